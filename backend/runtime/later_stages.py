"""Later stages of a program for the runtime: what follows when data have determined an extent, without Python.

The stages of a plan end where a kernel has counted the elements of a result. The sizes of the first follow from the
inputs, so that Python binds it once for each set of them. Those of the later ones change from run to run: the runtime
gets their sizes as dims, and evaluates them in each run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...engine.ir.symbolic import Dim
from ..ir.arrays import address
from ..ir.dim_program import Operation, postfix
from ..ir.kernel import UNKNOWN_WORK
from ..ir.kernel_graph import Measure, Step
from ..memory.buffer_assignment import SCRATCH, Layout, native_results, nbytes
from .link import Link, LinkedLoop, Stage
from .native import executor as native

Size = int | Sequence[Operation]
"""A dim, as the runtime takes it."""
Pointer = tuple[int, int, Size]
"""Base of the frame, number of a part (-1: none), offset."""


@dataclass(frozen=True)
class LaterStages:
    """All stages but the first.

    Attributes:
        native: the runtime's `Stages`.
        symbols: the names of the extents in their sizes, in the runtime's order.
        given: the buffers of the first stage that they read.
        outputs: the outputs of the program that they make.
    """

    native: Any
    symbols: tuple[str, ...]
    given: tuple[str, ...]
    outputs: frozenset[str]

    def arguments(self, extents: Mapping[str, int], first: Layout) -> dict[str, Any]:
        """Return what a `Call` needs for inputs of these extents: `first` is the layout of the first stage."""
        symbols = [extents.get(name, -1) for name in self.symbols]
        return {"stages": self.native, "symbols": symbols, "parts": [first.placement.offsets[v] for v in self.given]}


def later_stages(link: Link) -> LaterStages | None:
    """Return the later stages of a program for the runtime.

    None if there are none, or one of them has something else than steps, which the runtime cannot size."""
    if len(link.stages) < 2 or not all(map(_is_sized, range(len(link.stages)), itertools.repeat(link))):
        return None
    writer = _Writer(link)
    rows = [writer.stage(number) for number in range(1, len(link.stages))]
    outputs = frozenset(link.storage.outputs[root] for stage in link.stages[1:] for root in stage.outputs)
    try:
        found = native.Stages(rows, len(writer.symbols), len(writer.given))
    except (ValueError, OverflowError):  # a size has more operands than the runtime takes, or larger numbers
        return None
    return LaterStages(found, tuple(writer.symbols), tuple(writer.given), outputs)


def _is_sized(number: int, link: Link) -> bool:
    """Return whether a stage is steps and then measured extents; the first may have any native items."""
    stage, planned = link.stages[number], link.storage.stages[number]
    block, measures = _parts(stage)
    if not all(isinstance(action, Measure) for action in measures):
        return False
    if number == 0:
        return bool(block) and bool(measures)
    steps_only = len(block) < 2 and not any(isinstance(part, LinkedLoop) for part in block)
    return steps_only and not planned.requirements and (bool(measures) or stage is link.stages[-1])


def _parts(stage: Stage) -> tuple[list[Any], list[Any]]:
    """Return the block that a stage begins with, if any, and the actions after it."""
    first = stage.actions[0] if stage.actions else None
    return (first, stage.actions[1:]) if isinstance(first, list) else ([], stage.actions)


class _Writer:
    """Writer of stages, which numbers the symbols and parts."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.symbols: dict[str, int] = {}
        self.given: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        self._collect_given()
        self.count = len(self.given)  # of all parts

    def _collect_given(self) -> None:
        """Number the buffers of the first stage that later ones read: their parts come first."""
        storage = self.link.storage
        values: list[str] = []
        for number, stage in enumerate(self.link.stages):
            block, measures = _parts(stage)
            values += [measure.count for measure in measures]
            for step in block[0][1] if number and block else ():
                values += [*step.inputs, *step.outputs, *(v for v, _ in step.when)]
        for root in (storage.locate(v).root for v in values):
            if storage.base.get(root) == SCRATCH + 1:
                self.given.setdefault(storage.holder(root), len(self.given))

    def stage(self, number: int) -> tuple[Any, ...]:
        """Return the row of a stage."""
        link, storage = self.link, self.link.storage
        _, counted = _parts(link.stages[number - 1])
        measures = [(self.pointer(m.count, {}), self.symbol(m.extent), self.size(m.most)) for m in counted]
        block, _ = _parts(link.stages[number])
        walk, steps = block[0] if block else (None, [])
        buffers: list[tuple[Size, int, int]] = []
        shapes: list[tuple[int, list[Size]]] = []
        numbers: dict[str, int] = {}
        for step in steps:
            for root in map(storage.root, native_results(step)):
                if root not in storage.shared and root not in storage.outputs and root not in self.parts:
                    self.parts[root] = self.count + len(buffers)
                    buffers.append((self.size(nbytes(link.plan.type(root))), *storage.lifetime[root]))
        for item in storage.stages[number].numbers:
            kind = link.plan.type(item.output).dtype
            assert kind is not None
            numbers[item.output] = self.count + len(buffers) + len(shapes)
            shapes.append((kind.numpy.itemsize, list(map(self.size, item.dims))))
        self.count += len(buffers) + len(shapes)
        pointers = [pointer for step in steps for pointer in self._pointers(step, numbers)]
        outputs = [self._output(root) for root in link.stages[number].outputs]
        rows = list(map(self._step, steps))
        return measures, walk, pointers, rows, buffers, shapes, outputs, link.arena(number)

    def symbol(self, name: str) -> int:
        """Return the number of a symbol."""
        return self.symbols.setdefault(name, len(self.symbols))

    def size(self, dim: Dim) -> Size:
        """Return a dim for the runtime."""
        return dim if isinstance(dim, int) else postfix(dim, self.symbols)

    def pointer(self, value: str, numbers: Mapping[str, int]) -> Pointer:
        """Return where a value is; `numbers` are the parts of the tensors that are known from sizes."""
        link, storage = self.link, self.link.storage
        at = storage.locate(value)
        if at.root in link.plan.constants:
            return 0, -1, self.size(address(link.weight(at.root)) + at.offset)
        if at.root in numbers:
            return 0, numbers[at.root], self.size(at.offset)
        own = storage.base[at.root] - SCRATCH - 1
        part = -1
        if 0 <= own < len(link.stages):
            holder = storage.holder(at.root)
            part = self.given[holder] if own == 0 else self.parts[holder]
        return link.base(value), part, self.size(at.offset)

    def _pointers(self, step: Step, numbers: Mapping[str, int]) -> list[Pointer]:
        """Return the pointers of a step in the order of its walk."""
        found = [self.pointer(v, numbers) for v in (*step.inputs, *step.outputs)]
        found += [(SCRATCH, -1, 0)] * (step.scratch != 0)
        return found + [self.pointer(v, numbers) for v, _ in step.when]

    def _step(self, step: Step) -> tuple[Any, ...]:
        sizes = [self.size(nbytes(self.link.plan.type(v))) for v in step.outputs]
        pairs = [tuple(map(self.size, pair)) for pair in step.only]
        work = self.size(step.threads if step.threads != 0 else UNKNOWN_WORK)
        return list(map(self.size, step.dims)), sizes, pairs, work, self.size(step.scratch)

    def _output(self, root: str) -> tuple[int, int, int, list[Size]]:
        plan = self.link.plan
        value = self.link.storage.outputs[root]
        kind = plan.type(value)
        assert kind.dtype is not None
        assert kind.shape is not None
        number = plan.outputs.index(value)
        return number, self.link.base(root), kind.dtype.numpy.itemsize, list(map(self.size, kind.shape))
