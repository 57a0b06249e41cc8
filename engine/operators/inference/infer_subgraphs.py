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
    if isinstance(found, OtherType):
        return found.plain
    if found.shape is None:
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
    if isinstance(a, OtherType) and isinstance(b, OtherType) and a.plain == b.plain:
        return a.plain
    if isinstance(a, OtherType) or isinstance(b, OtherType):
        return TensorType()
    dtype = a.dtype if a.dtype == b.dtype else None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(dtype)
    return TensorType(dtype, tuple(x if x == y else call.fresh() for x, y in zip(a.shape, b.shape, strict=True)))


def _carried_and_stacked(
    call: Call, before: Sequence[ValueType | None], body: Sequence[ValueType], axes: Sequence[int], length: Dim
) -> Types:
    """Return the types of values that each run replaces, then of those that runs add up along axes.

    A replaced value has the type `before` the runs, if there are none, or the body's."""
    found = [new if old is None else _meet(call, old, new) for old, new in zip(before, body, strict=False)]
    for each, axis in zip(body[len(before) :], axes, strict=False):
        dtype = None if isinstance(each, OtherType) else each.dtype
        stacked = None if isinstance(each, OtherType) else with_axis(each, axis, length)
        found.append(stacked or TensorType(dtype))
    return found


@rule("Loop")
def loop(call: Call) -> Types:
    """The carried values, then the scanned ones with the number of iterations as first dim.

    A carried value whose type no run changes keeps that type, even if its dims hold only within one run of an enclosing
    body. A loop that certainly runs has its body's types, whatever those of the first values."""
    body, graph = _body_types(call), call.attrs.get("body")
    runs = (not call.present(0) or (call.number(0) or 0) >= 1) and (not call.present(1) or bool(call.number(1)))
    before = [None] * len(call.types[2:]) if runs else call.types[2:]
    found = list(_carried_and_stacked(call, before, body[1:], [0] * len(body), call.fresh()))
    if isinstance(graph, Graph):
        states = zip(call.types[2:], graph.inputs[2:], graph.outputs[1:], strict=False)
        for i, (first, name, following) in enumerate(states):
            if first is not None and first == graph.types.get(name) == graph.types.get(following):
                found[i] = first
    return found


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
