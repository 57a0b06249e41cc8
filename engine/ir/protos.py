"""Conversion of tensors, types and attributes between ONNX protocol buffers and the graph's values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .graph import AttrValue, Constant, DType, Graph, OtherType, TensorType, ValueType
from .symbolic import Dim, symbol, symbol_name


def type_from_proto(
    proto: Any, dim: Callable[[str], Dim] = symbol, fresh: Callable[[], Dim] | None = None
) -> ValueType:
    """Convert a `TypeProto`. `dim` maps names of dims; `fresh` returns a symbol for each dim that is left open."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return TensorType()
    if kind != "tensor_type":
        return _opaque(proto)
    tensor = proto.tensor_type
    try:
        dtype = DType.from_onnx(tensor.elem_type) if tensor.elem_type else None
    except ValueError:
        return _opaque(proto)
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
    """Convert a type to a `TypeProto`; the text of a symbolic dim becomes its name."""
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


@cache
def without_shapes(proto: bytes) -> bytes:
    """Return a serialized `TypeProto` without the shapes of the tensors in it."""
    import onnx

    found = part = onnx.TypeProto.FromString(proto)
    while (kind := part.WhichOneof("value")) in ("sequence_type", "optional_type"):
        part = getattr(part, str(kind)).elem_type
    if kind == "tensor_type":
        part.tensor_type.ClearField("shape")
    return bytes(found.SerializeToString(deterministic=True))


def is_raw(array: np.ndarray) -> bool:
    """Whether the elements of an array, as they are in memory, are the raw bytes of its `TensorProto`."""
    dtype = DType.from_numpy(array.dtype)
    return sys.byteorder == "little" and dtype is not DType.STRING and dtype.bits >= 8


def fill_tensor(proto: Any, array: np.ndarray, name: str = "", *, empty: bool = False) -> Any:
    """Fill a `TensorProto` from an array, as raw bytes (strings as strings), and return it.

    If `empty`, which requires `is_raw`, it gets everything but the bytes."""
    import onnx

    proto.name = name
    dtype = DType.from_numpy(array.dtype)
    if dtype is DType.STRING:
        proto.string_data.extend(map(_bytes, array.reshape(-1)))
    elif dtype.bits < 8:
        proto.CopyFrom(onnx.numpy_helper.from_array(array, name))
        return proto
    elif not empty:
        proto.raw_data = (array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<"))).tobytes()
    proto.data_type = dtype.onnx
    proto.dims.extend(array.shape)
    return proto


def set_location(proto: Any, location: str, **entries: int) -> None:
    """Make a `TensorProto` without bytes one whose bytes are in the file `location`; `entries` say where in it."""
    import onnx

    proto.data_location = onnx.TensorProto.EXTERNAL
    del proto.external_data[:]
    for key, value in (("location", location), *entries.items()):
        proto.external_data.add(key=key, value=str(value))


def tensor_to_proto(array: np.ndarray, name: str = "") -> Any:
    """Return a `TensorProto` with the array's elements."""
    import onnx

    return fill_tensor(onnx.TensorProto(), array, name)


def text_from_proto(raw: str | bytes) -> str | bytes:
    """Decode a string; bytes that are not UTF-8 stay as they are."""
    try:
        return raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError:
        return raw


_FIELDS = {
    "FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "TYPE_PROTO": "tp",
    "FLOATS": "floats", "INTS": "ints", "STRINGS": "strings", "GRAPHS": "graphs",
}  # fmt: skip
"""The field of an `AttributeProto` that holds the value, by the kinds of attributes that graphs can hold."""


class EmptyFloats(tuple[float, ...]):
    """Empty list of floats: an empty tuple does not say of what, and custom operators have no schema that does."""


class EmptyStrings(tuple[str, ...]):
    """Empty list of strings, for the same reason."""


class EmptyDefault(tuple[Any, ...]):
    """Empty list that a declaration states as the default of an attribute, without saying of what: never written."""


_EMPTY: dict[str, type[tuple[Any, ...]]] = {"FLOATS": EmptyFloats, "STRINGS": EmptyStrings}
"""What stands for an empty list of a kind; an empty tuple is one of integers."""


def attribute_from_proto(proto: Any, graph: Callable[[Any], Graph], tensor: Callable[[Any], Constant]) -> AttrValue:
    """Convert an `AttributeProto`; `graph` and `tensor` convert what is nested in it.

    Raises `ValueError` for attributes that graphs cannot hold: sparse tensors, lists of tensors."""
    kind = proto.AttributeType.Name(proto.type)
    if proto.ref_attr_name:
        raise ValueError(f"attribute {proto.name} refers to an attribute of a function")
    if kind not in _FIELDS:
        raise ValueError(f"attribute {proto.name} is of a kind ({kind}) that is not supported")
    value = getattr(proto, _FIELDS[kind])
    convert: dict[str, Callable[[Any], Any]] = {
        "FLOAT": float, "INT": int, "STRING": text_from_proto, "TENSOR": tensor, "GRAPH": graph,
        "TYPE_PROTO": _opaque, "FLOATS": float, "INTS": int, "STRINGS": bytes.decode, "GRAPHS": graph,
    }  # fmt: skip
    try:
        if not kind.endswith("S"):
            return convert[kind](value)  # type: ignore[no-any-return]
        return tuple(map(convert[kind], value)) if value else _EMPTY.get(kind, tuple)()
    except UnicodeDecodeError:
        raise ValueError(f"attribute {proto.name} has strings that are not UTF-8") from None


def attribute_to_proto(name: str, value: AttrValue, kind: str = "", graph: Callable[[Graph], Any] | None = None) -> Any:
    """Convert a value to an `AttributeProto`; `kind`, the name of its ONNX type, decides where the value is ambiguous.

    An empty tuple is a list of integers unless `kind` says otherwise."""
    import onnx

    kind = _kind(value, kind)
    convert: Any = {"STRING": _bytes, "TENSOR": _tensor, "GRAPH": graph, "TYPE_PROTO": type_to_proto}
    change = convert.get(kind.removesuffix("S"), lambda number: number)
    written: Any = list(map(change, value)) if isinstance(value, tuple) else change(value)
    return onnx.AttributeProto(name=name, type=kind, **{_FIELDS[kind]: written})


def _kind(value: Any, kind: str) -> str:
    """Return the name of the ONNX type of an attribute's value; `kind` is that of the schema."""
    if isinstance(value, tuple) and value and isinstance(value[0], Graph | str | bytes):
        return f"{_kind(value[0], '')}S"
    if isinstance(value, tuple):
        floats = any(isinstance(v, float) for v in value)
        if kind in ("FLOATS", "INTS") or (kind == "STRINGS" and not value):
            return kind
        return next((k for k, empty in _EMPTY.items() if isinstance(value, empty)), "FLOATS" if floats else "INTS")
    for known, name in ((Graph, "GRAPH"), (Constant, "TENSOR"), (OtherType, "TYPE_PROTO"), (str | bytes, "STRING")):
        if isinstance(value, known):
            return name
    return "FLOAT" if kind == "FLOAT" or isinstance(value, float) else "INT"


def _opaque(proto: Any) -> OtherType:
    return OtherType(proto.SerializeToString(deterministic=True))


def _tensor(constant: Constant) -> Any:
    return tensor_to_proto(constant.array)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
