"""Tensors, types and attributes between the ONNX protocol buffers and the graph's own values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import AttrValue, Constant, DType, Graph, OtherType, TensorType, ValueType
from .symbolic import Dim, symbol, symbol_name


def type_from_proto(
    proto: Any, dim: Callable[[str], Dim] = symbol, fresh: Callable[[], Dim] | None = None
) -> ValueType:
    """The type that a `TypeProto` says. `dim` names symbolic dims; `fresh` gives one for each dim that is not said."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return TensorType()
    if kind != "tensor_type":
        return OtherType(proto.SerializeToString(deterministic=True))
    tensor = proto.tensor_type
    try:
        dtype = DType.from_onnx(tensor.elem_type) if tensor.elem_type else None
    except ValueError:
        return OtherType(proto.SerializeToString(deterministic=True))
    if not tensor.HasField("shape"):
        return TensorType(dtype)
    dims: list[Dim] = []
    for d in tensor.shape.dim:
        which = d.WhichOneof("value")
        if which == "dim_value" and d.dim_value >= 0:
            dims.append(d.dim_value)
        elif which == "dim_param" and d.dim_param:
            dims.append(dim(d.dim_param))
        elif fresh is not None:
            dims.append(fresh())
        else:
            return TensorType(dtype)
    return TensorType(dtype, tuple(dims))


def type_to_proto(found: ValueType) -> Any:
    """The `TypeProto` of a type; the expression of a symbolic dim becomes its name."""
    import onnx

    proto = onnx.TypeProto()
    if isinstance(found, OtherType):
        proto.ParseFromString(found.proto)
        return proto
    tensor = proto.tensor_type
    if found.dtype is not None:
        tensor.elem_type = found.dtype.onnx
    if found.shape is not None:
        tensor.shape.SetInParent()
        for d in found.shape:
            entry = tensor.shape.dim.add()
            if isinstance(d, int):
                entry.dim_value = d
            else:
                entry.dim_param = symbol_name(d) or str(d)
    return proto


def is_raw(array: np.ndarray) -> bool:
    """Whether the elements of an array, as they lie in memory, are the raw bytes of its `TensorProto`."""
    dtype = DType.from_numpy(array.dtype)
    return sys.byteorder == "little" and dtype is not DType.STRING and dtype.bits >= 8


def fill_tensor(proto: Any, array: np.ndarray, name: str = "", *, empty: bool = False) -> Any:
    """Makes a `TensorProto` hold the array, as raw bytes (strings: as strings), and gives it.

    If `empty`, which is for what `is_raw`, it has all but the bytes."""
    import onnx

    proto.name = name
    dtype = DType.from_numpy(array.dtype)
    if dtype is DType.STRING:
        proto.string_data.extend(s.encode() if isinstance(s, str) else bytes(s) for s in array.reshape(-1))
    elif dtype.bits < 8:
        proto.CopyFrom(onnx.numpy_helper.from_array(array, name))
        return proto
    elif not empty:
        proto.raw_data = (array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<"))).tobytes()
    proto.data_type = dtype.onnx
    proto.dims.extend(array.shape)
    return proto


def tensor_to_proto(array: np.ndarray, name: str = "") -> Any:
    """A `TensorProto` with the array's elements."""
    import onnx

    return fill_tensor(onnx.TensorProto(), array, name)


def attribute_from_proto(proto: Any, graph: Callable[[Any], Graph], tensor: Callable[[Any], Constant]) -> AttrValue:
    """The value of an `AttributeProto`; `graph` and `tensor` convert what is nested in it.

    Raises `ValueError` for a kind of attribute that graphs cannot hold: sparse tensors, lists of tensors."""
    import onnx

    kinds = onnx.AttributeProto
    kind = proto.type
    if proto.ref_attr_name:
        raise ValueError(f"attribute {proto.name} refers to an attribute of a function")
    match kind:
        case kinds.FLOAT:
            return float(proto.f)
        case kinds.INT:
            return int(proto.i)
        case kinds.STRING:
            return _text(proto.s)
        case kinds.FLOATS:
            return tuple(float(v) for v in proto.floats)
        case kinds.INTS:
            return tuple(int(v) for v in proto.ints)
        case kinds.STRINGS:
            try:
                return tuple(v.decode() for v in proto.strings)
            except UnicodeDecodeError:
                raise ValueError(f"attribute {proto.name} has strings that are not UTF-8") from None
        case kinds.TENSOR:
            return tensor(proto.t)
        case kinds.GRAPH:
            return graph(proto.g)
        case kinds.GRAPHS:
            return tuple(graph(g) for g in proto.graphs)
        case kinds.TYPE_PROTO:
            return OtherType(proto.tp.SerializeToString(deterministic=True))
    raise ValueError(f"attribute {proto.name} is of a kind ({kinds.AttributeType.Name(kind)}) that is not supported")


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def attribute_to_proto(name: str, value: AttrValue, kind: str = "", graph: Callable[[Graph], Any] | None = None) -> Any:
    """The `AttributeProto` of a value. `kind`, the name of its ONNX type, decides where the value leaves it open.

    An empty list is one of integers unless `kind` says otherwise."""
    import onnx

    kinds = onnx.AttributeProto
    proto = onnx.AttributeProto(name=name)
    first = value[0] if isinstance(value, tuple) and value else value
    if isinstance(value, tuple):
        if isinstance(first, Graph):
            proto.type = kinds.GRAPHS
            assert graph is not None
            proto.graphs.extend(graph(g) for g in value if isinstance(g, Graph))
        elif isinstance(first, str | bytes) or (not value and kind == "STRINGS"):
            proto.type = kinds.STRINGS
            proto.strings.extend(v.encode() if isinstance(v, str) else v for v in value)
        elif kind == "FLOATS" or (kind != "INTS" and any(isinstance(v, float) for v in value)):
            proto.type = kinds.FLOATS
            proto.floats.extend(value)
        else:
            proto.type = kinds.INTS
            proto.ints.extend(value)
    elif isinstance(value, Graph):
        proto.type = kinds.GRAPH
        assert graph is not None
        proto.g.CopyFrom(graph(value))
    elif isinstance(value, Constant):
        proto.type = kinds.TENSOR
        fill_tensor(proto.t, value.array)
    elif isinstance(value, OtherType):
        proto.type = kinds.TYPE_PROTO
        proto.tp.ParseFromString(value.proto)
    elif isinstance(value, str | bytes):
        proto.type = kinds.STRING
        proto.s = value.encode() if isinstance(value, str) else value
    elif kind == "FLOAT" or isinstance(value, float):
        proto.type = kinds.FLOAT
        proto.f = value
    else:
        proto.type = kinds.INT
        proto.i = value
    return proto
