"""Loops and Scans: the types that they carry, native loops, and bodies prepared for them.

Models seldom declare the types of carried values, and they may change from iteration to iteration. If the body, given
the initial types, produces the same types again, these are the types in all iterations.

The runtime drives loops whose bodies have kernels throughout and whose carried values keep their types; the number of
iterations may be unknown. Python runs the others over their compiled bodies (see `runtime.fallback`): a carried
value grows from iteration to iteration, is a sequence, or some node of the body has no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...engine.ir import symbolic
from ...engine.ir.bodies import originals
from ...engine.ir.graph import Constant, DType, Graph, Node, TensorType, ValueType, symbols_of, with_axis, without_axis
from ...engine.ir.names import unique_name
from ...engine.ir.symbolic import Dim
from ...engine.operators.type_inference import TypeEnvironment
from ..ir.arrays import element
from ..ir.dataflow import is_dense, is_single, needed, pruned, same_type, writes
from ..ir.kernel_graph import Control, Item, Join, Loop, ModelPlan, Slicing, Step, View
from ..ir.lower import Context
from ..kernels.movement.copies import copy_values
from .aliases import aliased

REPEATED = frozenset({"Loop", "Scan"})
Types = Mapping[str, ValueType]
Constants = Mapping[str, Constant]


def n_states(node: Node) -> int:
    """Return the number of values that a Loop or Scan carries."""
    if node.op == "Loop":
        return max(len(node.inputs) - 2, 0)  # the trip count and the condition may be omitted at the end
    return len(node.inputs) - int(node.attrs["num_scan_inputs"])  # type: ignore[arg-type]


def body_of(node: Node) -> Graph | None:
    """Return the body of a Loop or Scan; None if its interface contradicts the attributes of the operator."""
    body = node.attrs.get("body")
    if not isinstance(body, Graph) or (node.op == "Scan" and not isinstance(node.attrs.get("num_scan_inputs"), int)):
        return None
    states, loop = n_states(node), node.op == "Loop"
    inputs = 2 + states if loop else len(node.inputs)
    return body if states >= 0 and len(body.inputs) == inputs and len(body.outputs) >= states + loop else None


def axes_of(node: Node, name: str, count: int) -> list[int] | None:
    """Return the axes or directions of a Scan's inputs or outputs; None if their number is wrong."""
    found = node.attrs.get(name) or (0,) * count
    return [int(v) for v in found] if isinstance(found, tuple) and len(found) == count else None  # type: ignore[arg-type]


def inputs_of_body(node: Node, body: Graph, types: Types) -> list[TensorType] | None:
    """Return the types of a body's inputs in the first iteration; None if the shape of one is unknown."""
    around = [types.get(v) if v else None for v in node.inputs]
    states = n_states(node)
    found: list[ValueType | None] = []
    if node.op == "Loop":
        for value, dtype in zip(body.inputs, (DType.I64, DType.BOOL), strict=False):
            shape = body.type(value).shape or ()
            found.append(TensorType(dtype, shape if all(d == 1 for d in shape) else ()))
        found += around[2:]
    else:
        axes = axes_of(node, "scan_input_axes", len(around) - states) or ()
        found += around[:states]
        for kind, axis in zip(around[states:], axes, strict=False):
            found.append(without_axis(kind, axis) if isinstance(kind, TensorType) else None)
    known = [k for k in found if isinstance(k, TensorType) and k.shape is not None and k.dtype is not None]
    return known if len(known) == len(found) == len(body.inputs) else None


def is_fixed(node: Node, body: Graph, inputs: Sequence[TensorType]) -> bool:
    """Return whether a body returns its carried values with the types that they came with."""
    loop, states = node.op == "Loop", n_states(node)
    carried, results = inputs[2 * loop : 2 * loop + states], body.outputs[loop : loop + states]
    return all(same_type(kind, body.type(value)) for kind, value in zip(carried, results, strict=True))


def iterations_of(node: Node, types: Types, contents: Mapping[str, Sequence[Dim]], constants: Constants) -> Dim | None:
    """Return the maximum number of iterations in terms of extents; None if only a run can tell.

    `contents` are those of small integer tensors."""
    if node.op == "Scan":
        states = n_states(node)
        axes = axes_of(node, "scan_input_axes", len(node.inputs) - states)
        kind = types.get(node.inputs[states]) if states < len(node.inputs) else None
        if not axes or not isinstance(kind, TensorType) or without_axis(kind, axes[0]) is None:
            return None
        assert kind.shape is not None
        return kind.shape[axes[0]]
    count = node.inputs[0] if node.inputs else ""
    if count in constants:
        number = element(constants[count])
        return None if number is None else max(0, int(number))
    dims = contents.get(count, ())
    if not count or len(dims) != 1:
        return None
    return dims[0] if symbolic.at_least(dims[0], 0) else symbolic.maximum(dims[0], 0)


def stays_true(node: Node, body: Graph, constants: Constants) -> bool:
    """Return whether the condition of a Loop stays true once it is: a constant, or passed through."""
    makers = body.producers()
    value = originals(body)(body.outputs[0])
    constant = body.constants.get(value) or (constants.get(value) if value not in makers else None)
    return bool(element(constant)) if constant is not None else value in body.inputs[1:2]


def starts_true(node: Node, constants: Constants) -> bool:
    """Return whether the condition of a Loop is known to be true at first."""
    value = node.inputs[1] if len(node.inputs) > 1 else ""
    return not value or bool(element(constants.get(value)))


def types_after(
    node: Node,
    body: Graph,
    inputs: Sequence[TensorType],
    found: Sequence[ValueType],
    known: TypeEnvironment,
    is_known: Callable[[TensorType], bool],
) -> tuple[ValueType, ...]:
    """Return the types of a node's outputs with a body of fixed types (see `is_fixed`), completing those `found`.

    `is_known` says whether all dims of a type are known around the node."""
    loop, states = node.op == "Loop", n_states(node)
    result: list[Any] = list(found)
    result[:states] = inputs[2 * loop : 2 * loop + states][: len(result)]
    contents = {v: content.dims for v, content in known.contents.items()}
    iterations = iterations_of(node, known.types, contents, known.constants)
    if iterations is None or (
        loop and not (starts_true(node, known.constants) and stays_true(node, body, known.constants))
    ):
        return tuple(result)
    axes = [0] * (len(body.outputs) - loop - states)
    if not loop:
        axes = axes_of(node, "scan_output_axes", len(axes)) or axes
    for i, (value, axis) in enumerate(zip(body.outputs[loop + states :], axes, strict=True), states):
        kind = with_axis(body.type(value), axis, iterations)
        if i < len(result) and kind is not None and is_known(kind):
            result[i] = kind
    return tuple(result)


def native_loop(graph: Graph, node: Node, item: Control, context: Context, bound: Collection[str]) -> list[Item] | None:
    """Return the items equivalent to a Loop or Scan that run without Python; None if there are none.

    `bound` are the extents known around it."""
    body, plan = body_of(node), item.bodies[0]
    if body is None or plan.fails or not plan.is_native:
        return None
    return _LoopBuilder(graph, node, body, item, context, set(bound)).items()


class _LoopBuilder:
    """Builder of the `Loop` of a Loop or Scan whose body has kernels throughout."""

    def __init__(self, graph: Graph, node: Node, body: Graph, item: Control, context: Context, bound: set[str]) -> None:
        self.graph, self.node, self.body, self.item, self.bound = graph, node, body, item, bound
        self.plan, self.context = item.bodies[0], context
        self.is_loop = node.op == "Loop"
        self.states = n_states(node)
        self.first = 2 if self.is_loop else 0
        self.outputs = (*node.outputs, *("" for _ in body.outputs[self.is_loop + len(node.outputs) :]))

    def items(self) -> list[Item] | None:
        """Return the `Loop`, and aliases of the values that it passes through unchanged."""
        node, plan = self.node, self.plan
        given = plan.inputs[self.first : len(self.body.inputs)]
        carried, pieces = given[: self.states], given[self.states :]
        around = node.inputs[self.first :]
        before, scanned = around[: self.states], around[self.states :]
        ends = self.is_loop and not stays_true(node, self.body, self.graph.constants)
        starts = not self.is_loop or starts_true(node, self.graph.constants)
        contents = {v: found for v in node.inputs[:1] if v and (found := self.context.contents(v)) is not None}
        iterations = iterations_of(node, self.graph.types, contents, self.graph.constants)
        if iterations is not None and not symbolic.symbols(iterations) <= self.bound:
            iterations = None
        count = node.inputs[0] if self.is_loop and node.inputs and iterations is None else ""
        going = "" if starts else node.inputs[1]
        scans, makes = (
            self._scanned_slicings(scanned, pieces, iterations),
            self._stacked_slicings(iterations, ends or not starts),
        )
        if scans is None or makes is None or not self._types_are_fixed(carried, before) or not self._captures_match():
            return None
        cells = ((count, DType.I64), (going, DType.BOOL))
        if not all(is_single(self.graph.type(v), kind) for v, kind in cells if v):
            return None
        passed = [i for i in range(self.states) if aliased(plan, plan.outputs[self.is_loop + i]) == carried[i]]
        moved = [i for i in range(self.states) if i not in passed]
        wanted = [i for i in range(self.states, len(self.outputs)) if self.outputs[i]]
        inner = (*plan.outputs[: self.is_loop * ends], *(plan.outputs[self.is_loop + i] for i in (*moved, *wanted)))
        order = (*plan.inputs[: self.first], *(carried[i] for i in moved), *pieces)
        captures = (*(carried[i] for i in passed), *plan.inputs[len(self.body.inputs) :])
        loop = Loop(
            op=node.op,
            body=self._with_outputs(inner, (*order, *captures)),
            states=tuple(before[i] for i in moved),
            scanned=tuple(scanned),
            captures=(*(before[i] for i in passed), *self.item.captures[0]),
            outputs=tuple(self.outputs[i] for i in (*moved, *wanted)),
            scans=tuple(scans),
            makes=tuple(makes[i - self.states] for i in wanted),
            iterations=iterations,
            count=count,
            going=going,
            ends=ends,
            name=node.name,
        )
        views = [View(before[i], self.outputs[i], 0, (node.name,)) for i in passed if self.outputs[i]]
        return [loop, *views] if loop.outputs else [*views]

    # --- checks of the types that the runtime relies on ---------------------------------------------------------------

    def _known(self, kind: TensorType) -> bool:
        """Return whether a tensor can be in memory and all its extents are known before the node."""
        return is_dense(kind) and symbols_of(kind) <= self.bound

    def _captures_match(self) -> bool:
        """Return whether captured values, the iteration number and the condition are as the body expects them."""
        plan = self.plan
        captured = zip(plan.inputs[len(self.body.inputs) :], self.item.captures[0], strict=True)
        cells = zip(plan.inputs[: self.first], (DType.I64, DType.BOOL), strict=False)
        flags = [*cells, *((v, DType.BOOL) for v in plan.outputs[: self.is_loop])]
        return all(
            self._known(plan.type(value)) and same_type(plan.type(value), self.graph.type(outer))
            for value, outer in captured
        ) and all(is_single(plan.type(value), dtype) for value, dtype in flags)

    def _types_are_fixed(self, carried: Sequence[str], before: Sequence[str]) -> bool:
        """Return whether each carried value has one type before, in and after all iterations."""
        ends = self.plan.outputs[self.is_loop :]
        for value, outer, end, result in zip(carried, before, ends, self.outputs, strict=False):
            kind = self.plan.type(value)
            others = [self.plan.type(end), *(self.graph.type(v) for v in (outer, result) if v)]
            if not outer or not self._known(kind) or not all(same_type(kind, other) for other in others):
                return False
        return True

    def _slicings(self, kind: str, count: int) -> list[tuple[int, bool]] | None:
        """Return the axis and the direction of each tensor that a Scan takes or makes; None if they are wrong."""
        axes, directions = (axes_of(self.node, f"scan_{kind}_{what}", count) for what in ("axes", "directions"))
        if axes is None or directions is None:
            return None
        return [(axis, bool(direction)) for axis, direction in zip(axes, directions, strict=True)]

    def _scanned_slicings(
        self, scanned: Sequence[str], pieces: Sequence[str], iterations: Dim | None
    ) -> list[Slicing] | None:
        """Return how the loop slices each scanned tensor; None if it cannot."""
        if self.is_loop:
            return []
        slicings = self._slicings("input", len(scanned))
        if not scanned or slicings is None or iterations is None:
            return None
        found = []
        for value, piece, (axis, reverse) in zip(scanned, pieces, slicings, strict=True):
            whole = self.graph.type(value)
            part = without_axis(whole, axis)
            if (
                part is None
                or whole.shape is None
                or not self._known(whole)
                or not same_type(part, self.plan.type(piece))
            ):
                return None
            if not symbolic.same(whole.shape[axis], iterations):
                return None
            found.append(Slicing(axis % len(whole.shape), reverse))
        return found

    def _stacked_slicings(self, iterations: Dim | None, data: bool) -> list[Slicing] | None:
        """Return how the loop assembles each tensor that it makes; `data` if data decide the number of slices."""
        pieces = self.plan.outputs[self.is_loop + self.states :]
        slicings = [(0, False)] * len(pieces) if self.is_loop else self._slicings("output", len(pieces))
        if slicings is None:
            return None
        found = []
        for value, piece, (axis, reverse) in zip(self.outputs[self.states :], pieces, slicings, strict=True):
            kind, whole = self.plan.type(piece), self.graph.type(value)
            open_ended = iterations is None or data
            length = whole.shape[0] if open_ended and whole.shape else iterations
            made = None if length is None else with_axis(kind, axis, length)
            if value and not (self._known(kind) and same_type(made, whole) and (open_ended or self._known(whole))):
                return None
            found.append(Slicing(axis % (len(kind.shape or ()) + 1), reverse))
        return found

    # --- the body -----------------------------------------------------------------------------------------------------

    def _with_outputs(self, outputs: Sequence[str], inputs: tuple[str, ...]) -> ModelPlan:
        """Return the plan of the body with these outputs, each written by a step to its own buffer.

        Others are copied."""
        plan = self.plan
        items = list(plan.items)
        makers = {v for i in items if isinstance(i, Step | Loop | Join) for v in writes(i)}
        free = makers - {v for i in items if isinstance(i, Join) for v in i.parts}
        types, names = dict(plan.types), set(plan.types)
        found = []
        for value in outputs:
            origin = aliased(plan, value)
            if origin in free:
                free.remove(origin)
                found.append(value)
                continue
            copy = unique_name(f"{value} (copy)", names)
            kind = types[copy] = plan.type(value)
            items.append(replace(copy_values(value, copy, kind), nodes=(self.node.name,)))
            found.append(copy)
        kept = tuple(needed(items, found, types))
        return pruned(replace(plan, inputs=inputs, outputs=tuple(found), items=kept, types=types))
