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
from .kernel_graph import LAUNCH_WORK, SERIAL_WORK, Control, Fallback, Kernel, ModelPlan, Shape, Step
from .storage import SCRATCH, Layout, Storage, lay_out, make_storage, nbytes

Array = NDArray[Any]
LAYOUTS = 16  # kept for each stage: programs are run with few different extents
ANY_NUMBER = 255  # of threads, to the executor
K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Bound:
    """A stage's layout with the runtime's bindings of its walks."""

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


class Stage:
    """What a stage does: walks of native steps, and in between items that Python runs."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = symbols
        self.actions: list[tuple[Any, list[Step]] | Fallback | Control] = []
        self.outputs: list[str] = []  # roots that are made straight in an output array
        self.bound: dict[tuple[int, ...], Bound] = {}
        self.latest: Bound | None = None


class Link:
    """A plan linked with its kernels: `addresses` has the address of each one's function."""

    def __init__(self, plan: ModelPlan, addresses: Mapping[Kernel, int]) -> None:
        self.plan = plan
        self.numbers = {item.output: item for item in plan.items if isinstance(item, Shape)}
        self.storage: Storage = make_storage(plan)
        self._addresses = addresses
        self._weights: dict[str, Array] = {}
        self.stages = [self._make_stage(number) for number in range(len(self.storage.stages))]

    def _make_stage(self, number: int) -> Stage:
        planned = self.storage.stages[number]
        stage = Stage(planned.symbols)
        steps: list[Step] = []

        def flush() -> None:
            if steps:
                stage.actions.append((self._walk(steps), list(steps)))
                steps.clear()

        for item in planned.items:
            if isinstance(item, Step):
                steps.append(item)
                for root in (self.storage.locate(v).root for v in item.outputs):
                    if root in self.storage.outputs and root not in stage.outputs:
                        stage.outputs.append(root)
            elif isinstance(item, Fallback | Control):
                flush()
                stage.actions.append(item)
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
        return self.storage.base.get(self.storage.locate(value).root, 0)

    def bind(self, number: int, extents: Mapping[str, int]) -> Bound:
        """The layout of a stage and its bindings for these extents, made or remembered."""
        from .runtime.executor import Binding

        stage = self.stages[number]
        key = tuple([extents[s] for s in stage.symbols])
        found = stage.bound.get(key)
        if found is not None:
            stage.latest = found
            return found
        layout = lay_out(self.storage, number, extents)
        bindings: list[Any] = []
        for action in stage.actions:
            if not isinstance(action, tuple):
                guards = action.when if isinstance(action, Control) else ()
                bindings.append([(self.base(v), self.offset(v, layout, number, extents), w) for v, w in guards])
                continue
            walk, steps = action
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
            bindings.append(Binding(walk, offsets, dims, limits))
        found = Bound(layout, bindings, [self._made(root, extents) for root in stage.outputs])
        remember(stage.bound, key, found)
        stage.latest = found
        return found

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
        return Made(value, root, self.storage.base[root], dtype, shape, own, store)

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
