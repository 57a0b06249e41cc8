"""Operators with subgraphs, whose types are known where the bodies' are."""

from __future__ import annotations

from ..graph import DType, Graph, OtherType, TensorType, ValueType
from ..symbolic import Dim, symbols
from .core import Call, Types, rule


def _body_types(call: Call, attribute: str) -> list[ValueType] | None:
    body = call.attr(attribute)
    if not isinstance(body, Graph):
        return None
    return [_closed(call, body.types.get(name, TensorType())) for name in body.outputs]


def _closed(call: Call, found: ValueType) -> ValueType:
    """A type as seen from outside the body: dims that hold only within one run of it are made unknown.

    Symbols are global names (of the model's inputs, or fresh), so that a fresh one of a body may differ between two
    runs of it. Those begin with an underscore (see `onnx_in`)."""
    if isinstance(found, OtherType) or found.shape is None:
        return found
    return TensorType(found.dtype, tuple(call.fresh() if _local(d) else d for d in found.shape))


def _local(d: Dim) -> bool:
    return any(name.startswith("_") for name in symbols(d))


@rule("If")
def if_(call: Call) -> Types:
    """What both branches agree on."""
    yes, no = _body_types(call, "then_branch"), _body_types(call, "else_branch")
    if yes is None or no is None or len(yes) != len(no):
        return [TensorType()] * call.n_outputs
    return [_meet(call, a, b) for a, b in zip(yes, no, strict=True)]


def _meet(call: Call, a: ValueType, b: ValueType) -> ValueType:
    if a == b:
        return a
    if isinstance(a, OtherType) or isinstance(b, OtherType):
        return TensorType()
    dtype = a.dtype if a.dtype == b.dtype else None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(dtype)
    return TensorType(dtype, tuple(x if x == y else call.fresh() for x, y in zip(a.shape, b.shape, strict=True)))


def _carried(call: Call, before: ValueType | None, after: ValueType) -> ValueType:
    """A value that each iteration replaces: it is of the first type (for no iteration) or of the body's."""
    return after if before is None else _meet(call, before, after)


@rule("Loop")
def loop(call: Call) -> Types:
    """The carried values, then the scanned ones with the number of iterations in front."""
    body = _body_types(call, "body")
    if body is None:
        return [TensorType()] * call.n_outputs
    carried = call.n_inputs - 2
    result: list[ValueType] = []
    for i, found in enumerate(body[1:]):
        if i < carried:
            result.append(_carried(call, call.types[i + 2], found))
        elif isinstance(found, TensorType) and found.shape is not None:
            result.append(TensorType(found.dtype, (call.fresh(), *found.shape)))
        else:
            result.append(TensorType(found.dtype if isinstance(found, TensorType) else None))
    return result


@rule("Scan")
def scan(call: Call) -> Types:
    """The states, then the scanned outputs with the length of the scanned inputs put in at their axis."""
    body = _body_types(call, "body")
    if body is None:
        return [TensorType()] * call.n_outputs
    scanned = call.integer("num_scan_inputs")
    states = call.n_inputs - scanned
    axes = call.int_list("scan_input_axes") or (0,) * scanned
    out_axes = call.int_list("scan_output_axes") or (0,) * (len(body) - states)
    length: Dim | None = None
    for i in range(scanned):
        shape = call.shape(states + i)
        if shape is not None and -len(shape) <= axes[i] < len(shape):
            dim = shape[axes[i]]
            length = dim if length is None or isinstance(dim, int) else length
    length = call.fresh() if length is None else length
    result: list[ValueType] = []
    for i, found in enumerate(body):
        if i < states:
            result.append(_carried(call, call.types[i], found))
        elif isinstance(found, TensorType) and found.shape is not None:
            axis = out_axes[i - states]
            axis += len(found.shape) + 1 if axis < 0 else 0
            result.append(TensorType(found.dtype, (*found.shape[:axis], length, *found.shape[axis:])))
        else:
            result.append(TensorType(found.dtype if isinstance(found, TensorType) else None))
    return result


@rule("SequenceLength")
def sequence_length(call: Call) -> Types:
    """A number."""
    return [TensorType(DType.I64, ())]


@rule("OptionalHasElement")
def optional_has_element(call: Call) -> Types:
    """Yes or no."""
    return [TensorType(DType.BOOL, ())]
