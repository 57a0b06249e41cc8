"""Inference by the ONNX library, for operators without a rule of our own and for those of another opset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...ir.graph import OtherType, TensorType, ValueType, graphs_in
from ...ir.protos import attribute_to_proto, tensor_to_proto, type_from_proto, type_to_proto
from ...ir.symbolic import Dim, Expr, symbol, symbol_name
from ..schemas import WORKING_OPSET, find_schema, split_name
from .inference_call import Call, Types


def infer_by_schema(call: Call) -> Types:
    """Infer types by the operator's schema; unknown where it infers nothing.

    A symbolic dim is passed as a name of its own. ONNX's inference functions copy such names or leave a dim unset. So a
    name that returns is the dim it stood for, and unset dims become fresh symbols. Sequences and optionals have ONNX
    types, in which a dim is the name of its symbol; larger expressions are left out."""
    import onnx
    from onnx import shape_inference

    schema = find_schema(call.op)
    if schema is None or not schema.has_type_and_shape_inference_function or any(graphs_in(call.attrs)):
        return ()
    if any(isinstance(found, TensorType) and found.dtype is None for found in call.types):
        return ()
    names: dict[Dim, str] = {}
    inputs = ["" if found is None else f"i{i}" for i, found in enumerate(call.types)]
    while inputs and not inputs[-1]:  # some inference functions take a stated absence for a value
        inputs.pop()
    types = {f"i{i}": _with_names(found, names) for i, found in enumerate(call.types) if found is not None}
    contents = {name: _contents(call, i) for i, name in enumerate(inputs) if name}
    data = {name: tensor_to_proto(array, name) for name, array in contents.items() if array is not None}
    _, op_type, version = split_name(call.op)
    outputs = [f"o{i}" for i in range(call.n_outputs)]
    node = onnx.helper.make_node(op_type, inputs, outputs, domain=schema.domain)
    node.attribute.extend(attribute_to_proto(key, value) for key, value in call.attrs.items())
    imports = [onnx.helper.make_opsetid(schema.domain, version or max(WORKING_OPSET, schema.since_version))]
    try:
        inferred = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, KeyError):
        return ()
    symbols = {name: dim for dim, name in names.items()}
    return [_back(call, inferred[o], symbols) if o in inferred else TensorType() for o in outputs]


def _contents(call: Call, i: int) -> np.ndarray | None:
    array = call.array(i)
    if array is not None:
        return array if array.size <= 4096 else None
    numbers, dtype, value = call.ints(i), call.dtype(i), call.value(i)
    if numbers is None or dtype is None or value is None:
        return None
    return np.array(numbers, dtype.numpy).reshape(value.shape)


def _with_names(found: ValueType, names: dict[Dim, str]) -> Any:
    def name(d: Dim) -> str:
        return names.setdefault(d, f"d{len(names)}")

    if isinstance(found, TensorType):
        shape = found.shape and tuple(symbol(name(d)) if isinstance(d, Expr) else d for d in found.shape)
        return type_to_proto(TensorType(found.dtype, shape))
    proto = type_to_proto(found)
    for entry in _named_dims(proto):
        if entry.dim_param.isidentifier():
            entry.dim_param = name(symbol(entry.dim_param))
        else:
            entry.Clear()
    return proto


def _back(call: Call, proto: Any, symbols: dict[str, Dim]) -> ValueType:
    def dim(name: str) -> Dim:
        return symbols.get(name) or call.fresh()

    if proto.WhichOneof("value") not in (None, "tensor_type"):
        for entry in _named_dims(proto):
            known = symbols.get(entry.dim_param)
            name = symbol_name(known) if known is not None else None
            if name is not None and name.isidentifier():
                entry.dim_param = name
            else:
                entry.Clear()
    found = type_from_proto(proto, dim, call.fresh)
    return found if isinstance(found, TensorType | OtherType) else TensorType()


def _named_dims(proto: Any) -> Iterator[Any]:
    """Iterate over the named dims in the type of a sequence, an optional or a map: those of its elements."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield from (d for d in getattr(proto, kind).shape.dim if d.WhichOneof("value") == "dim_param")
    elif kind is not None:
        inner = getattr(proto, kind)
        yield from _named_dims(inner.value_type if kind == "map_type" else inner.elem_type)
