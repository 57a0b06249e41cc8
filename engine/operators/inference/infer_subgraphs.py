"""Inference of operators with subgraphs, from the types of the values in the bodies."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import DType, Graph, OtherType, TensorType, ValueType, with_axis
from ...ir.symbolic import Dim, symbols
from .inference_call import Call, Types, rule


def _body_types(call: Call, attribute: str = "body") -> list[ValueType]:
    """Return the types of a body's outputs; empty where there is none."""
    body = call.attrs.get(attribute)
    return [_closed(call, body.types.get(v, TensorType())) for v in body.outputs] if isinstance(body, Graph) else []


def _closed(call: Call, found: ValueType) -> ValueType:
    """Return a type as seen from outside the body: dims that hold only within one run of it become unknown.

    Symbols are global names, of the model's inputs or fresh. A fresh one, which begins with an underscore, may differ
    between two runs of the body."""
    if isinstance(found, OtherType) or found.shape is None:
        return found
    local = [any(name.startswith("_") for name in symbols(d)) for d in found.shape]
    return TensorType(found.dtype, tuple(call.fresh() if x else d for d, x in zip(found.shape, local, strict=True)))


@rule("If")
def if_(call: Call) -> Types:
    """What both branches agree on."""
    yes, no = _body_types(call, "then_branch"), _body_types(call, "else_branch")
    return [_meet(call, a, b) for a, b in zip(yes, no, strict=True)] if len(yes) == len(no) else ()


def _meet(call: Call, a: ValueType, b: ValueType) -> ValueType:
    if a == b:
        return a
    if isinstance(a, OtherType) or isinstance(b, OtherType):
        return TensorType()
    dtype = a.dtype if a.dtype == b.dtype else None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(dtype)
    return TensorType(dtype, tuple(x if x == y else call.fresh() for x, y in zip(a.shape, b.shape, strict=True)))


def _carried_and_stacked(
    call: Call, before: Sequence[ValueType | None], body: Sequence[ValueType], axes: Sequence[int], length: Dim | None
) -> Types:
    """Return the types of values that each run replaces, then of those that runs add up along axes.

    A replaced value has the type `before` the runs, if there are none, or the body's. An unknown `length` may differ
    from output to output."""
    found = [new if old is None else _meet(call, old, new) for old, new in zip(before, body, strict=False)]
    for each, axis in zip(body[len(before) :], axes, strict=False):
        dtype = None if isinstance(each, OtherType) else each.dtype
        size = call.fresh() if length is None else length
        stacked = None if isinstance(each, OtherType) else with_axis(each, axis, size)
        found.append(stacked or TensorType(dtype))
    return found


@rule("Loop")
def loop(call: Call) -> Types:
    """The carried values, then the scanned ones with the number of iterations as first dim."""
    body = _body_types(call)
    return _carried_and_stacked(call, call.types[2:], body[1:], [0] * len(body), None)


@rule("Scan")
def scan(call: Call) -> Types:
    """The states, then the scanned outputs with the length of the scanned inputs inserted at their axis."""
    body = _body_types(call)
    scanned = call.integer("num_scan_inputs")
    states = call.n_inputs - scanned
    axes = call.int_list("scan_input_axes") or (0,) * scanned
    length: Dim | None = None
    for i, axis in enumerate(axes, states):
        shape = call.shape(i)
        if shape is not None and -len(shape) <= axis < len(shape):
            length = shape[axis] if length is None or isinstance(shape[axis], int) else length
    out_axes = call.int_list("scan_output_axes") or (0,) * len(body)
    length = call.fresh() if length is None else length
    return _carried_and_stacked(call, call.types[:states], body, out_axes, length)


@rule("OptionalHasElement SequenceLength")
def scalar_fact(call: Call) -> Types:
    """A boolean, or a number."""
    return [TensorType(DType.BOOL if call.op == "OptionalHasElement" else DType.I64, ())]
