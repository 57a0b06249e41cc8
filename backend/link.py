"""Linking: a plan with the addresses of its kernels, as the runtime's walks; and their bindings to extents.

Layouts are kept for the extents seen last, so that a run with known extents plans nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..engine import symbolic
from .arrays import aligned, usable
from .kernel_graph import LAUNCH_WORK, SERIAL_WORK, Control, Fallback, Kernel, Loop, ModelPlan, Shape, Step
from .loop_link import Bases, LinkedLoop
from .storage import SCRATCH, Layout, Storage, lay_out, made_natively, make_storage, nbytes

Array = NDArray[Any]
LAYOUTS = 16  # kept for each stage: programs are run with few different extents
ANY_NUMBER = 255  # of threads, to the executor
K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Bound:
    """A stage's layout with the runtime's `Block` for each block of native items; for others the conditions on which
    they are run."""

    layout: Layout
    bindings: list[Any]
    made: list[Made]


@dataclass(frozen=True, slots=True)
class Made:
    """An output of the model that a stage's kernels write straight into an array, which is root to other values."""

    value: str
    root: str
    base: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    root_shape: tuple[int, ...]
    store: Any  # of the memory of such arrays

    def fresh(self) -> Array:
        """An array for the output, in memory that goes back to the store with it."""
        return np.ndarray(self.shape, self.dtype, self.store.take())


class LinkedBlock:
    """Native items that run one after the other: walks with their steps, and loops."""

    def __init__(self) -> None:
        self.parts: list[tuple[Any, list[Step]] | LinkedLoop] = []

    @property
    def is_open(self) -> bool:
        """Whether it ends with a loop that tells an extent."""
        return any(isinstance(part, LinkedLoop) and part.item.is_open for part in self.parts)


class Stage:
    """What a stage does: blocks of native items, and in between items that Python runs."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = symbols
        self.actions: list[LinkedBlock | Fallback | Control] = []
        self.outputs: list[str] = []  # roots that are made straight in an output array
        self.bound: dict[tuple[int, ...], Bound] = {}
        self.latest: Bound | None = None


class Link:
    """A plan linked with its kernels: `addresses` has the address of each one's function.

    The body of a loop has the `storage` and the `bases` of what is around it."""

    def __init__(
        self,
        plan: ModelPlan,
        addresses: Mapping[Kernel, int],
        storage: Storage | None = None,
        bases: Bases | None = None,
    ) -> None:
        self.plan = plan
        self.numbers = {item.output: item for item in plan.items if isinstance(item, Shape)}
        self.storage: Storage = storage or make_storage(plan)
        self._bases = bases or Bases(SCRATCH + 1)
        self._first = self._bases.take(self.storage.bases - SCRATCH - 1)
        self._addresses = addresses
        self._weights: dict[str, Array] = {}
        self.stages = [self._make_stage(number) for number in range(len(self.storage.stages))]

    @property
    def bases(self) -> int:
        """How many bases a frame has to have."""
        return self._bases.count

    def _make_stage(self, number: int) -> Stage:
        planned = self.storage.stages[number]
        stage = Stage(planned.symbols)
        block = LinkedBlock()
        steps: list[Step] = []

        def end_walk() -> None:
            if steps:
                block.parts.append((self._walk(steps), list(steps)))
                steps.clear()

        def flush() -> None:
            nonlocal block
            end_walk()
            if block.parts:
                stage.actions.append(block)
            block = LinkedBlock()

        for at, item in enumerate(planned.items, planned.first):
            if isinstance(item, Step):
                steps.append(item)
            elif isinstance(item, Loop):
                end_walk()
                inner = self.storage.bodies[at]
                block.parts.append(LinkedLoop(item, at, self, inner, self._addresses, self._bases))
            elif isinstance(item, Fallback | Control):
                flush()
                stage.actions.append(item)
            for root in (self.storage.locate(v).root for v in made_natively(item)):
                if root in self.storage.outputs and root not in stage.outputs:
                    stage.outputs.append(root)
        flush()
        return stage

    def _walk(self, steps: Sequence[Step]) -> Any:
        from .runtime.executor import Walk

        rows, bases = [], []
        for step in steps:
            pointers = [*(self.base(v) for v in (*step.inputs, *step.outputs))]
            if step.scratch != 0:
                pointers.append(SCRATCH)
            pointers += [self.base(v) for v, _ in step.when]
            bases += pointers
            address = self._addresses[step.kernel]
            rows.append((address, len(pointers), len(step.dims), [w for _, w in step.when]))
        return Walk(rows, bases)

    def base(self, value: str) -> int:
        """The base of the pointers to a value."""
        own = self.storage.base.get(self.storage.locate(value).root, 0)
        return own if own <= SCRATCH else own - SCRATCH - 1 + self._first

    def arena(self, number: int) -> int:
        """The base of a stage's arena."""
        return self._first + number

    def bind(self, number: int, extents: Mapping[str, int]) -> Bound:
        """The layout of a stage and its bindings for these extents, made or remembered."""
        stage = self.stages[number]
        key = tuple([extents[s] for s in stage.symbols])
        found = stage.bound.get(key)
        if found is not None:
            stage.latest = found
            return found
        layout = lay_out(self.storage, number, extents)
        bindings: list[Any] = []
        for action in stage.actions:
            if isinstance(action, LinkedBlock):
                bindings.append(self._block(action, number, layout, extents))
                continue
            guards = action.when if isinstance(action, Control) else ()
            bindings.append([(self.base(v), self.offset(v, layout, number, extents), w) for v, w in guards])
        found = Bound(layout, bindings, [self._made(root, extents) for root in stage.outputs])
        remember(stage.bound, key, found)
        stage.latest = found
        return found

    def block(self, number: int, layout: Layout, extents: Mapping[str, int]) -> Any:
        """The runtime's `Block` of a stage that is one block, or nothing, with this layout, which has to be kept."""
        from .runtime.executor import Block

        actions = self.stages[number].actions
        if not actions:
            return Block([])
        [action] = actions
        assert isinstance(action, LinkedBlock)
        return self._block(action, number, layout, extents)

    def _block(self, block: LinkedBlock, number: int, layout: Layout, extents: Mapping[str, int]) -> Any:
        from .runtime.executor import Block

        return Block(
            [
                part.bind(layout, number, extents)
                if isinstance(part, LinkedLoop)
                else self._binding(*part, number, layout, extents)
                for part in block.parts
            ]
        )

    def _binding(
        self, walk: Any, steps: Sequence[Step], number: int, layout: Layout, extents: Mapping[str, int]
    ) -> Any:
        from .runtime.executor import Binding

        offsets: list[int] = []
        dims: list[int] = []
        work: list[int] = []
        for step in steps:
            offsets += [self.offset(v, layout, number, extents) for v in (*step.inputs, *step.outputs)]
            if step.scratch != 0:
                offsets.append(0)
            offsets += [self.offset(v, layout, number, extents) for v, _ in step.when]
            dims += [symbolic.evaluate(d, extents) for d in step.dims]
            full = any(symbolic.evaluate(nbytes(self.plan.type(v)), extents) > 0 for v in step.outputs)
            work.append(step.work(extents) if full else 0)
        alone = sum(w for w in work if w >= SERIAL_WORK) < LAUNCH_WORK
        limits = [min(w, 1) if alone or w < SERIAL_WORK else ANY_NUMBER for w in work]
        return Binding(walk, offsets, dims, limits)

    def _made(self, root: str, extents: Mapping[str, int]) -> Made:
        from .runtime.executor import Store

        value = self.storage.outputs[root]
        kind = self.plan.type(value)
        assert kind.shape is not None
        assert kind.dtype is not None
        shape = tuple([symbolic.evaluate(d, extents) for d in kind.shape])
        own = tuple([symbolic.evaluate(d, extents) for d in self.plan.type(root).shape or ()])
        dtype = kind.dtype.numpy
        store = Store(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        return Made(value, root, self.base(root), dtype, shape, own, store)

    def offset(self, value: str, layout: Layout, number: int, extents: Mapping[str, int]) -> int:
        """What is added to the base of a value, for a stage with this layout."""
        at = self.storage.locate(value)
        offset = symbolic.evaluate(at.offset, extents)
        if at.root in self.plan.constants:
            return int(self._weight(at.root).__array_interface__["data"][0]) + offset
        if at.root in layout.shapes:
            return int(layout.shapes[at.root].__array_interface__["data"][0]) + offset
        base = self.storage.base[at.root]
        if SCRATCH < base <= SCRATCH + len(self.stages):
            holder = self.storage.holder(at.root)
            own = base - SCRATCH - 1
            if own != number:  # made by an earlier stage, whose layout hangs on its own extents
                layout = self.bind(own, extents).layout
            return layout.offset[holder] + offset
        return offset

    def _weight(self, name: str) -> Array:
        """A constant where kernels can read it."""
        if name not in self._weights:
            array = self.plan.constants[name].array
            if not usable(array):
                copy = aligned(array.shape, array.dtype)
                copy[...] = array
                array = copy
            self._weights[name] = array
        return self._weights[name]


def remember(cache: dict[K, V], key: K, value: V) -> None:
    """Adds an entry, and drops the oldest of more than so many. Needs no lock, which a fork could leave taken."""
    cache[key] = value
    for old in list(cache)[:-LAYOUTS]:
        cache.pop(old, None)
