"""Evaluation by the reference implementation in `onnx`: slow, for operators without any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.graph import AttrValue, Constant, DType, Graph, OtherType
from ..schemas import WORKING_OPSET, find_schema, signature, split_name
from .fold_call import Array, Attrs, Refused

REFERENCE_LIMIT = 1 << 18
"""Maximum number of elements that the reference implementation gets, since it is slow."""


def attribute(name: str, value: AttrValue) -> Any:
    """Convert an attribute to an `AttributeProto`; raises `Refused` for graphs and types."""
    import onnx

    if isinstance(value, Graph | OtherType) or (isinstance(value, tuple) and any(isinstance(v, Graph) for v in value)):
        raise Refused
    if isinstance(value, Constant):
        return onnx.helper.make_attribute(name, onnx.numpy_helper.from_array(value.array))
    if isinstance(value, tuple):
        kind = onnx.AttributeProto.INTS if not value else None
        return onnx.helper.make_attribute(name, list(value), attr_type=kind)
    return onnx.helper.make_attribute(name, value)


def by_reference(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int) -> list[Array]:
    """Evaluate one operator by `onnx.reference`; raises `Refused` where that fails."""
    if sum(a.size for a in arrays if a is not None) > REFERENCE_LIMIT:
        raise Refused
    try:
        found = run_reference(op, attrs, arrays, n_outputs)
    except Exception as error:  # its errors have no common base class
        raise Refused from error
    if any(not isinstance(a, np.ndarray | np.generic) for a in found):
        raise Refused
    results = [np.asarray(a) for a in found]
    if not _well_typed(op, arrays, results):  # it computed in another type as well: the numbers are wrong, too
        raise Refused
    return results


def _well_typed(op: str, arrays: Sequence[Array | None], results: Sequence[Array]) -> bool:
    """Whether results have element types that the operator's schema admits beside those of its operands."""
    known = signature(op)
    if known is None:
        return True
    bound = {
        formal.type: array.dtype
        for formal, array in zip(known.inputs, arrays, strict=False)
        if array is not None and not (formal.variadic and not formal.homogeneous)
    }
    for formal, array in zip(known.outputs, results, strict=False):
        wanted = bound.get(formal.type)
        if wanted is not None and array.dtype != wanted:
            return False
        if formal.dtypes and DType.from_numpy(array.dtype).value not in formal.dtypes:
            return False
    return True


def run_reference(op: str, attrs: Attrs, arrays: Sequence[Any], n_outputs: int) -> list[Any]:
    """Run one operator in `onnx.reference`, on values of any kind (a sequence is a list), None where absent.

    Raises whatever the reference implementation raises."""
    evaluator = reference_evaluator(op, attrs, arrays, n_outputs)
    return list(evaluator.run(None, {f"i{i}": a for i, a in enumerate(arrays) if a is not None}))


def reference_evaluator(op: str, attrs: Attrs, arrays: Sequence[Any], n_outputs: int) -> Any:
    """Return `onnx.reference`'s evaluator of one operator on inputs `i0`, `i1`, … of the types and ranks of arrays."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    domain, name, version = split_name(op)
    names = ["" if a is None else f"i{i}" for i, a in enumerate(arrays)]
    while names and not names[-1]:  # some implementations take a stated absence for a value
        del names[-1]
    outs = [f"o{i}" for i in range(n_outputs)]
    node = onnx.helper.make_node(name, names, outs, domain=domain)
    known = signature(op)
    formals = known.attributes if known is not None else {}
    for key, value in attrs.items():
        # Defaults are left out: the implementation may not know an attribute of a newer opset.
        if not key.startswith("$") and (key not in formals or formals[key].default != value):
            node.attribute.append(attribute(key, value))
    inputs = []
    for n, a in zip(names, arrays, strict=False):
        if isinstance(a, list):
            inputs.append(onnx.ValueInfoProto(name=n))
        elif a is not None:  # typed, since functions are expanded for the types of their inputs
            kind = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(n, kind, [None] * a.ndim))
    graph = onnx.helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=n) for n in outs])
    schema = find_schema(op)
    assert schema is not None
    current = WORKING_OPSET if not domain else schema.since_version
    return ReferenceEvaluator(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(domain, version or current)])
    )
