"""Types of what a Loop or Scan carries: those of before the first iteration, where each gives a value of the same type.

A model tells the types of a Loop's carried values seldom, and they may change from iteration to iteration. Where the
body, with its inputs of the types that go in, gives the same types again, these are the types in all iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..engine import symbolic
from ..engine.graph import Constant, DType, Graph, Node, TensorType, ValueType
from ..engine.shapes import SymbolicValue
from ..engine.symbolic import Dim

REPEATED = frozenset({"Loop", "Scan"})
Types = Mapping[str, ValueType]
Constants = Mapping[str, Constant]


def n_states(node: Node) -> int:
    """How many values a Loop or Scan carries."""
    return len(node.inputs) - (2 if node.op == "Loop" else int(node.attrs["num_scan_inputs"]))  # type: ignore[arg-type]


def body_of(node: Node) -> Graph | None:
    """The body of a Loop or Scan, None where its interface is not what the operator's attributes say."""
    body = node.attrs.get("body")
    if not isinstance(body, Graph) or (node.op == "Scan" and not isinstance(node.attrs.get("num_scan_inputs"), int)):
        return None
    states, loop = n_states(node), node.op == "Loop"
    # The trip count and the condition of a Loop may be left out at the end.
    inputs = max(len(node.inputs), 2) if loop else len(node.inputs)
    if states < (0 if not loop else -2) or len(body.inputs) != inputs or len(body.outputs) < max(states, 0) + loop:
        return None
    return body


def axes_of(node: Node, name: str, count: int) -> list[int] | None:
    """The axes or directions of a Scan's inputs or outputs; None if they are not so many."""
    found = node.attrs.get(name) or (0,) * count
    return [int(v) for v in found] if isinstance(found, tuple) and len(found) == count else None  # type: ignore[arg-type]


def without_axis(kind: TensorType, axis: int) -> TensorType | None:
    """The type of a piece along an axis; None if it has no such axis."""
    if kind.shape is None or not -len(kind.shape) <= axis < len(kind.shape):
        return None
    axis %= len(kind.shape)
    return TensorType(kind.dtype, (*kind.shape[:axis], *kind.shape[axis + 1 :]))


def with_axis(kind: TensorType, axis: int, length: Dim) -> TensorType | None:
    """The type of a tensor of so many pieces along an axis of its own; None if there is none."""
    if kind.shape is None or not -len(kind.shape) - 1 <= axis <= len(kind.shape):
        return None
    axis %= len(kind.shape) + 1
    return TensorType(kind.dtype, (*kind.shape[:axis], length, *kind.shape[axis:]))


def inputs_of_body(node: Node, body: Graph, types: Types) -> list[TensorType] | None:
    """The types of a body's inputs in the first iteration; None where the shape of one isn't known."""
    around = [types.get(v) if v else None for v in node.inputs]
    states = max(n_states(node), 0)
    found: list[TensorType] = []
    if node.op == "Loop":
        for value, dtype in zip(body.inputs, (DType.I64, DType.BOOL), strict=False):
            shape = body.type(value).shape or ()
            found.append(TensorType(dtype, shape if all(d == 1 for d in shape) else ()))
        carried = around[2:]
    else:
        carried = around[:states]
    for kind in carried:
        if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is None:
            return None
        found.append(kind)
    if node.op == "Scan":
        axes = axes_of(node, "scan_input_axes", len(around) - states)
        for kind, axis in zip(around[states:], axes or (), strict=False):
            piece = without_axis(kind, axis) if isinstance(kind, TensorType) and kind.dtype is not None else None
            if piece is None:
                return None
            found.append(piece)
    return found if len(found) == len(body.inputs) else None


def is_fixed(node: Node, body: Graph, inputs: Sequence[TensorType]) -> bool:
    """Whether a body gives its carried values the types that they came with."""
    first, skipped = (2, 1) if node.op == "Loop" else (0, 0)
    states = max(n_states(node), 0)
    return all(
        alike(kind, body.type(value))
        for kind, value in zip(inputs[first : first + states], body.outputs[skipped : skipped + states], strict=True)
    )


def alike(a: TensorType, b: TensorType) -> bool:
    """Whether two types are the same for sure, and known."""
    if a.shape is None or b.shape is None or a.dtype is None or a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        return False
    return all(map(symbolic.same, a.shape, b.shape))


def iterations_of(node: Node, types: Types, contents: Mapping[str, Sequence[Dim]], constants: Constants) -> Dim | None:
    """How often the body is run at most, in terms of extents; None where only a run can tell. `contents` are those of
    small integer tensors."""
    if node.op == "Scan":
        states = n_states(node)
        axes = axes_of(node, "scan_input_axes", len(node.inputs) - states)
        kind = types.get(node.inputs[states]) if states < len(node.inputs) else None
        if not axes or not isinstance(kind, TensorType) or without_axis(kind, axes[0]) is None:
            return None
        assert kind.shape is not None
        return kind.shape[axes[0] % len(kind.shape)]
    count = node.inputs[0] if node.inputs else ""
    if not count:
        return None
    constant = constants.get(count)
    if constant is not None:
        return max(0, int(constant.array.reshape(-1)[0])) if constant.array.size == 1 else None
    dims = contents.get(count)
    if dims is None or len(dims) != 1:
        return None
    return dims[0] if symbolic.at_least(dims[0], 0) else symbolic.maximum(dims[0], 0)


def goes_on(node: Node, body: Graph, constants: Constants) -> bool:
    """Whether the condition of a Loop, if it holds at first, holds after each iteration: a constant, or handed on."""
    makers = body.producers()
    value = body.outputs[0]
    while value in makers and makers[value].op == "Identity":
        value = makers[value].inputs[0]
    constant = body.constants.get(value) or (constants.get(value) if value not in makers else None)
    if constant is not None:
        return constant.array.size == 1 and bool(constant.array.reshape(-1)[0])
    return len(body.inputs) > 1 and value == body.inputs[1]


def begins(node: Node, constants: Constants) -> bool:
    """Whether the condition of a Loop holds at first, for sure."""
    value = node.inputs[1] if len(node.inputs) > 1 else ""
    constant = constants.get(value)
    return not value or (constant is not None and constant.array.size == 1 and bool(constant.array.reshape(-1)[0]))


def types_after(
    node: Node,
    body: Graph,
    inputs: Sequence[TensorType],
    found: Sequence[ValueType],
    contents: Mapping[str, SymbolicValue],
    types: Types,
    constants: Constants,
    is_known: Callable[[TensorType], bool],
) -> tuple[ValueType, ...]:
    """The types of a node's outputs with a body of fixed types (see `is_fixed`), completing those `found`; `is_known`
    says whether all dims of a type are known around the node."""
    loop, states = node.op == "Loop", max(n_states(node), 0)
    result: list[Any] = list(found)
    result[:states] = inputs[2 * loop : 2 * loop + states][: len(result)]
    iterations = iterations_of(node, types, {v: c.dims for v, c in contents.items()}, constants)
    if iterations is None or (loop and not (begins(node, constants) and goes_on(node, body, constants))):
        return tuple(result)
    axes = [0] * (len(body.outputs) - loop - states)
    if not loop:
        axes = axes_of(node, "scan_output_axes", len(axes)) or axes
    for i, (value, axis) in enumerate(zip(body.outputs[loop + states :], axes, strict=True), states):
        kind = with_axis(body.type(value), axis, iterations)
        if i < len(result) and kind is not None and is_known(kind):
            result[i] = kind
    return tuple(result)
