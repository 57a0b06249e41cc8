"""Loops and Scans for the runtime: decides which it can drive, and shapes their bodies for it.

It drives those whose bodies have kernels throughout, and whose carried values keep their types; it need not know how
many iterations they take. Others are run from Python over their compiled bodies (see `control`): where a carried value
grows from iteration to iteration, is a sequence, or something in the body has no kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..engine import symbolic
from ..engine.graph import DType, Graph, Node, TensorType
from .carried import alike, axes_of, begins, body_of, goes_on, iterations_of, n_states, with_axis, without_axis
from .kernel_graph import (
    Along,
    Control,
    Item,
    Join,
    Loop,
    ModelPlan,
    Shape,
    Step,
    View,
    fresh_name,
    is_host,
    reads,
    writes,
)
from .kernels.movement import copy_values
from .lower import Context
from .storage import nbytes


def driven(graph: Graph, node: Node, item: Control, context: Context, bound: Collection[str]) -> list[Item] | None:
    """The items that do what a Loop or Scan does, without Python; None if there are none. `bound` are the extents that
    are known around it."""
    body = body_of(node)
    if body is None or not _is_native(item.bodies[0]):
        return None
    return _Maker(graph, node, body, item, context, set(bound)).items()


def _is_native(body: ModelPlan) -> bool:
    """Whether a body is kernels, views and numbers only, and loops over such."""
    kinds = Step | View | Join | Shape | Loop
    return not body.versions and not body.fails and all(isinstance(i, kinds) and not is_host(i) for i in body.items)


class _Maker:
    """Makes the `Loop` of a Loop or Scan whose body has kernels throughout."""

    def __init__(self, graph: Graph, node: Node, body: Graph, item: Control, context: Context, bound: set[str]) -> None:
        self.graph, self.node, self.body, self.item, self.bound = graph, node, body, item, bound
        self.plan = item.bodies[0]
        self.context = context
        self.is_loop = node.op == "Loop"
        self.states = max(n_states(node), 0)
        self.first = 2 if self.is_loop else 0
        self.outputs = (*node.outputs, *("" for _ in body.outputs[self.is_loop + len(node.outputs) :]))

    def items(self) -> list[Item] | None:
        """The `Loop`, and views of what it hands through unchanged."""
        node, plan = self.node, self.plan
        given = plan.inputs[self.first : len(self.body.inputs)]
        carried, pieces = given[: self.states], given[self.states :]
        around = node.inputs[self.first :]
        before, scanned = around[: self.states], around[self.states :]
        ends = self.is_loop and not goes_on(node, self.body, self.graph.constants)
        starts = not self.is_loop or begins(node, self.graph.constants)
        contents = {v: found for v in node.inputs[:1] if v and (found := self.context.contents(v)) is not None}
        iterations = iterations_of(node, self.graph.types, contents, self.graph.constants)
        if iterations is not None and not symbolic.symbols(iterations) <= self.bound:
            iterations = None
        count = node.inputs[0] if self.is_loop and node.inputs and iterations is None else ""
        going = "" if starts else node.inputs[1]
        scans, makes = self._scans(scanned, pieces, iterations), self._makes(iterations, ends or not starts)
        if scans is None or makes is None or (not self.is_loop and iterations is None):
            return None
        if not self._keeps(carried, before) or not self._sees():
            return None
        if not all(self._is_single(v, kind) for v, kind in ((count, DType.I64), (going, DType.BOOL)) if v):
            return None
        kept = [i for i in range(self.states) if self._origin(plan.outputs[self.is_loop + i]) == carried[i]]
        moved = [i for i in range(self.states) if i not in kept]
        wanted = [i for i in range(self.states, len(self.outputs)) if self.outputs[i]]
        inner = (*plan.outputs[: self.is_loop * ends], *(plan.outputs[self.is_loop + i] for i in (*moved, *wanted)))
        order = (*plan.inputs[: self.first], *(carried[i] for i in moved), *pieces)
        captures = (*(carried[i] for i in kept), *plan.inputs[len(self.body.inputs) :])
        loop = Loop(
            op=node.op,
            body=self._delivering(inner, (*order, *captures)),
            states=tuple(before[i] for i in moved),
            scanned=tuple(scanned),
            captures=(*(before[i] for i in kept), *self.item.captures[0]),
            outputs=tuple(self.outputs[i] for i in (*moved, *wanted)),
            scans=tuple(scans),
            makes=tuple(makes[i - self.states] for i in wanted),
            iterations=iterations,
            count=count,
            going=going,
            ends=ends,
            name=node.name,
        )
        views = [View(before[i], self.outputs[i], 0, (node.name,)) for i in kept if self.outputs[i]]
        return [loop, *views] if loop.outputs else [*views]

    # --- whether the types are those that the runtime takes for granted -----------------------------------------------

    def _known(self, kind: TensorType) -> bool:
        """Whether a tensor can be in memory, with an extent known before the node for each dim."""
        if kind.shape is None or kind.dtype is None or kind.dtype is DType.STRING or kind.dtype.bits < 8:
            return False
        return {s for d in kind.shape for s in symbolic.symbols(d)} <= self.bound

    def _is_single(self, value: str, dtype: DType) -> bool:
        kind = self.graph.type(value)
        return kind.dtype is dtype and kind.shape is not None and all(d == 1 for d in kind.shape)

    def _sees(self) -> bool:
        """Whether what the body captures, the number of the iteration and the condition are what it takes them for."""
        plan = self.plan
        for value, outer in zip(plan.inputs[len(self.body.inputs) :], self.item.captures[0], strict=True):
            if not self._known(plan.type(value)) or not alike(plan.type(value), self.graph.type(outer)):
                return False
        cells = zip(plan.inputs[: self.first], (DType.I64, DType.BOOL), strict=False)
        flags = [*cells, *((v, DType.BOOL) for v in plan.outputs[: self.is_loop])]
        return all(
            (kind := plan.type(v)).dtype is dtype and kind.shape is not None and all(d == 1 for d in kind.shape)
            for v, dtype in flags
        )

    def _keeps(self, carried: Sequence[str], before: Sequence[str]) -> bool:
        """Whether each carried value is of one type before, in and after all iterations."""
        for i, (value, outer) in enumerate(zip(carried, before, strict=True)):
            kind, after = self.plan.type(value), self.plan.type(self.plan.outputs[self.is_loop + i])
            result = self.outputs[i]
            if not outer or not self._known(kind) or not alike(kind, self.graph.type(outer)) or not alike(kind, after):
                return False
            if result and not alike(kind, self.graph.type(result)):
                return False
        return True

    def _scans(
        self, scanned: Sequence[str], pieces: Sequence[str], iterations: symbolic.Dim | None
    ) -> list[Along] | None:
        """How each scanned tensor is gone through."""
        if self.is_loop:
            return []
        axes = axes_of(self.node, "scan_input_axes", len(scanned))
        ways = axes_of(self.node, "scan_input_directions", len(scanned))
        if not scanned or axes is None or ways is None or iterations is None:
            return None
        found = []
        for value, piece, axis, way in zip(scanned, pieces, axes, ways, strict=True):
            whole = self.graph.type(value)
            part = without_axis(whole, axis)
            if part is None or whole.shape is None or not self._known(whole) or not alike(part, self.plan.type(piece)):
                return None
            axis %= len(whole.shape)
            if not symbolic.same(whole.shape[axis], iterations):
                return None
            found.append(Along(axis, bool(way)))
        return found

    def _makes(self, iterations: symbolic.Dim | None, data: bool) -> list[Along] | None:
        """How each tensor is put together that the node makes; `data` says that data decide how many there are."""
        pieces = self.plan.outputs[self.is_loop + self.states :]
        axes: list[int] | None = [0] * len(pieces)
        ways = axes
        if not self.is_loop:
            axes = axes_of(self.node, "scan_output_axes", len(pieces))
            ways = axes_of(self.node, "scan_output_directions", len(pieces))
        if axes is None or ways is None:
            return None
        found = []
        for value, piece, axis, way in zip(self.outputs[self.states :], pieces, axes, ways, strict=True):
            kind = self.plan.type(piece)
            whole = self.graph.type(value) if value else TensorType()
            open_ended = iterations is None or data
            length = whole.shape[0] if open_ended and whole.shape else iterations
            made = None if length is None else with_axis(kind, axis, length)
            if value and (not self._known(kind) or made is None or not alike(made, whole)):
                return None
            if value and not open_ended and not self._known(whole):
                return None
            found.append(Along(axis % (len(kind.shape or ()) + 1), bool(way)))
        return found

    # --- the body -----------------------------------------------------------------------------------------------------

    def _origin(self, value: str) -> str:
        """What a value is a view of, as a whole."""
        views = {i.output: i for i in self.plan.items if isinstance(i, View) and i.offset == 0}
        while value in views:
            view = views[value]
            if not symbolic.same(nbytes(self.plan.type(view.input)), nbytes(self.plan.type(value))):
                break
            value = view.input
        return value

    def _delivering(self, outputs: Sequence[str], inputs: tuple[str, ...]) -> ModelPlan:
        """The body's plan with these outputs, each made by a step in a buffer of its own: what isn't is copied."""
        plan = self.plan
        items = list(plan.items)
        makers = {v for i in items if isinstance(i, Step | Loop | Join) for v in writes(i)}
        parts = {v for i in items if isinstance(i, Join) for v in i.parts}
        types = dict(plan.types)
        names, taken, found = set(types), set[str](), []
        for value in outputs:
            origin = self._origin(value)
            if origin in makers and origin not in parts and origin not in taken:
                taken.add(origin)
                found.append(value)
                continue
            kind = plan.type(value)
            copy = fresh_name(f"{value} (copy)", names)
            types[copy] = kind
            items.append(replace(copy_values(value, copy, kind), nodes=(self.node.name,)))
            found.append(copy)
        needed: list[Item] = []
        wanted = set(found)
        for item in reversed(items):
            if any(v in wanted for v in writes(item)):
                needed.append(item)
                wanted.update(reads(item))
        needed.reverse()
        used = {v for item in needed for v in (*reads(item), *writes(item))} | {*inputs, *found}
        return replace(
            plan,
            inputs=inputs,
            outputs=tuple(found),
            items=tuple(needed),
            constants={v: c for v, c in plan.constants.items() if v in used},
            types={v: t for v, t in types.items() if v in used},
        )
