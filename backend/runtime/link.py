"""Linking: a plan with the addresses of its kernels, as walks of the runtime, their bindings to extents, and one run.

The layouts for the latest extents are cached, so that a run with known extents computes none. The bases of a loop's
body have numbers in the frame of the program around it, after those of the program itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...engine.ir import symbolic
from ...engine.ir.graph import DType, TensorType
from ...errors import RewriteError, UserError
from ...system.short_text import clipped
from ..ir.arrays import address, aligned_copy, is_readable, readable_address, usable
from ..ir.kernel import LAUNCH_WORK, SERIAL_WORK, Kernel
from ..ir.kernel_graph import Control, Fallback, Guarded, Join, Loop, Measure, ModelPlan, Shape, Step, View
from ..memory.buffer_assignment import (
    SCRATCH,
    Layout,
    SliceLayout,
    Storage,
    concrete,
    lay_out,
    native_results,
    nbytes,
    shape_value,
)
from ..memory.buffer_assignment import Stage as Planned
from .native import executor as native

Array = NDArray[Any]
LAYOUTS = 16  # cached layouts of a stage: programs run with few different extents
ALL_THREADS = 255  # executor's code for: no thread limit
Check = Callable[[Storage, int, Mapping[str, int], bool], None]
"""Raises `UserError` for a stage of a program with wrong numbers for some extents; the flag: they fit all branches."""
K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Bound:
    """Layout of a stage, with the runtime's `Block` of each block of native items and the conditions of others.

    `refusals` are what these extents do not meet: conditions on which the run fails, as those of items, and the error.
    """

    layout: Layout
    bindings: list[Any]
    outputs: list[OutputArray]
    refusals: list[tuple[list[tuple[int, int, bool]], UserError]]


@dataclass(frozen=True, slots=True)
class OutputArray:
    """An output of the model that kernels write straight into an array; the array is the root of other values."""

    value: str
    root: str
    base: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    root_dtype: np.dtype[Any]
    root_shape: tuple[int, ...]
    store: Any  # recycles the memory of such arrays

    def fresh(self) -> Array:
        """Return a new array for the output, whose memory returns to the store with it."""
        return np.ndarray(self.shape, self.dtype, self.store.take())


def _misfit(reason: str, extents: Mapping[str, int]) -> UserError:
    hint = f"Here {', '.join(f'{name} = {size}' for name, size in extents.items())}."
    return UserError(f"the sizes of the inputs do not fit together: {reason}", hint=hint)


@dataclass
class Stage:
    """Actions of a stage: blocks of native items, and between them items that Python runs."""

    symbols: tuple[str, ...]
    actions: list[LinkedBlock | Fallback | Control | Measure]
    outputs: list[str]  # roots that kernels write straight into an output array
    bound: dict[tuple[int, ...], Bound] = field(default_factory=dict)
    latest: Bound | None = None


class Link:
    """A plan linked with its kernels: `addresses` has the address of each kernel's function.

    The frame's bases of a loop's body follow those of the program `around` it, which counts them in `bases`. `check`
    sees each stage that is laid out for new extents, with the bodies of its loops."""

    def __init__(
        self, plan: ModelPlan, storage: Storage, addresses: Mapping[Kernel, int],
        around: Link | None = None, check: Check | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.storage, self._addresses, self._check = plan, storage, addresses, check
        self.numbers = {item.output: item for item in plan.items if isinstance(item, Shape)}
        self.bases = SCRATCH + 1
        self._outermost: Link = around._outermost if around else self
        self._first = self._reserve_bases(storage.bases - SCRATCH - 1)
        self._weights: dict[str, Array] = {}
        self.stages = [self._make_stage(planned) for planned in storage.stages]

    def _reserve_bases(self, count: int = 1) -> int:
        """Reserve `count` new bases; return the first."""
        self._outermost.bases += count
        return self._outermost.bases - count

    def _make_stage(self, planned: Planned) -> Stage:
        actions: list[LinkedBlock | Fallback | Control | Measure] = []
        ran = [(at, i) for at, i in enumerate(planned.items, planned.first) if not isinstance(i, View | Join | Shape)]
        for is_native, items in itertools.groupby(ran, lambda one: isinstance(one[1], Step | Loop)):
            block: LinkedBlock = []
            for kind, found in itertools.groupby(items, lambda one: type(one[1])):
                if kind is Step:
                    steps = [item for _, item in found if isinstance(item, Step)]
                    block.append((self._walk(steps), steps))
                    continue
                for at, item in found:
                    if isinstance(item, Loop):
                        block.append(self._loop(item, at))
                    elif isinstance(item, Fallback | Control | Measure):
                        actions.append(item)
            if is_native:
                actions.append(block)
        roots = dict.fromkeys(self.storage.root(v) for item in planned.items for v in native_results(item))
        return Stage(planned.symbols, actions, [root for root in roots if root in self.storage.outputs])

    def _loop(self, item: Loop, number: int) -> LinkedLoop:
        states = tuple(self._reserve_bases() for _ in item.states)
        iterations = self._reserve_bases() if item.is_open else 0
        body = Link(item.body, self.storage.bodies[number][0], self._addresses, self)
        return LinkedLoop(item, number, self, body, states, iterations)

    def _walk(self, steps: Sequence[Step]) -> Any:
        rows, bases = [], []
        for step in steps:
            pointers = [self.base(v) for v in (*step.inputs, *step.outputs)]
            pointers += [SCRATCH] * (step.scratch != 0)
            pointers += [self.base(v) for v, _ in step.when]
            bases += pointers
            rows.append((self._addresses[step.kernel], len(pointers), len(step.dims), [w for _, w in step.when]))
        return native.Walk(rows, bases)

    def base(self, value: str) -> int:
        """Return the base of the pointers to a value."""
        own = self.storage.base.get(self.storage.root(value), 0)
        return own if own <= SCRATCH else own - SCRATCH - 1 + self._first

    def arena(self, number: int) -> int:
        """Return the base of the arena of a stage."""
        return self._first + number

    def bind(self, number: int, extents: Mapping[str, int]) -> Bound:
        """Return the layout of a stage and its bindings for these extents, from the cache if possible.

        Several threads may do so at once, for different extents."""
        stage = self.stages[number]
        key = tuple([extents[s] for s in stage.symbols])
        found = stage.bound.get(key)
        if found is None:
            try:
                found = self._bind(stage, number, extents)
            except ValueError as error:
                raise _misfit(str(error), extents) from None
            add_bounded(stage.bound, key, found)
        stage.latest = found
        return found

    def _bind(self, stage: Stage, number: int, extents: Mapping[str, int]) -> Bound:
        """Bind a stage. Raises ValueError for extents whose sizes have to agree and do not."""
        layout = lay_out(self.storage, number, extents)
        if self._check is not None:
            self._check(self.storage, number, extents, not layout.unmet)
        at = Position(self, number, layout, extents)
        bindings = [at.bind(action) for action in stage.actions]
        refusals = [(at.guards(r.when), _misfit(r.reason, extents)) for r in layout.unmet]
        return Bound(layout, bindings, [self._output(root, extents) for root in stage.outputs], refusals)

    def _output(self, root: str, extents: Mapping[str, int]) -> OutputArray:
        value = self.storage.outputs[root]
        shape, dtype = concrete(self.plan.type(value), extents)
        root_shape, root_dtype = concrete(self.plan.type(root), extents)
        store = native.Store(math.prod(shape) * dtype.itemsize)
        return OutputArray(value, root, self.base(root), dtype, shape, root_dtype, root_shape, store)

    def weight(self, name: str) -> Array:
        """Return a constant in memory that kernels can read."""
        if name not in self._weights:
            self._weights[name] = usable(self.plan.constants[name].array)
        return self._weights[name]


@dataclass(frozen=True, slots=True)
class Position:
    """A stage of a linked plan, with its layout for some extents."""

    link: Link
    number: int
    layout: Layout
    extents: Mapping[str, int]

    def offset(self, value: str) -> int:
        """Return the offset of a value from its base."""
        storage, layout = self.link.storage, self.layout
        at = storage.locate(value)
        offset = symbolic.evaluate(at.offset, self.extents)
        if at.root in self.link.plan.constants:
            return address(self.link.weight(at.root)) + offset
        if at.root in layout.shapes:
            return address(layout.shapes[at.root]) + offset
        own = storage.base[at.root] - SCRATCH - 1
        if not 0 <= own < len(self.link.stages):
            return offset
        if own != self.number:  # from an earlier stage, whose layout depends on its own extents
            layout = self.link.bind(own, self.extents).layout
        return layout.placement.offsets[storage.holder(at.root)] + offset

    def pointer(self, value: str) -> tuple[int, int]:
        """Return the base of a value, and its offset from there."""
        return self.link.base(value), self.offset(value)

    def bind(self, action: LinkedBlock | Fallback | Control | Measure) -> Any:
        """Return what an action needs: native items as a `Block`, where a count is, or conditions on which it runs."""
        if isinstance(action, Measure):
            return self.pointer(action.count)
        if isinstance(action, list):
            return self.block(action)
        return self.guards(() if isinstance(action, Fallback) else action.when)

    def guards(self, when: Guarded) -> list[tuple[int, int, bool]]:
        """Return where each of some conditions is, and the value that it must have."""
        return [(*self.pointer(v), wanted) for v, wanted in when]

    def block(self, parts: LinkedBlock) -> Any:
        """Return the runtime's `Block` of native items. The layout must outlive it."""
        return native.Block([p.bind(self) if isinstance(p, LinkedLoop) else self._binding(*p) for p in parts])

    def _binding(self, walk: Any, steps: Sequence[Step]) -> Any:
        offsets: list[int] = []
        dims: list[int] = []
        work: list[int] = []
        for step in steps:
            offsets += [self.offset(v) for v in (*step.inputs, *step.outputs)]
            offsets += [0] * (step.scratch != 0)
            offsets += [self.offset(v) for v, _ in step.when]
            sizes = (symbolic.evaluate(nbytes(self.link.plan.type(v)), self.extents) for v in step.outputs)
            work.append(step.work(self.extents) if any(size > 0 for size in sizes) else 0)
            # Dims of a step that does not run may have no value: those of a branch that these extents do not fit.
            dims += [symbolic.evaluate(d, self.extents) if work[-1] else 0 for d in step.dims]
        alone = sum(w for w in work if w >= SERIAL_WORK) < LAUNCH_WORK
        limits = [min(w, 1) if alone or w < SERIAL_WORK else ALL_THREADS for w in work]
        return native.Binding(walk, offsets, dims, limits)


@dataclass(frozen=True, slots=True)
class LinkedLoop:
    """A loop with its body linked.

    Attributes:
        item: the loop, with its number in the plan `around` it.
        states: the bases that hold the addresses of the carried values.
        iterations: the base that holds the number of iterations, 0 if it is known before.
    """

    item: Loop
    number: int
    around: Link
    body: Link
    states: tuple[int, ...]
    iterations: int

    def bind(self, at: Position) -> Any:
        """Return the runtime's loop in a stage of the plan around it."""
        item, around, body = self.item, self.around, self.body
        inner = at.layout.loops[self.number]
        own = inner.workspace
        arena = around.arena(at.number)

        def piece(value: str, one: SliceLayout, inside: str) -> tuple[int, ...]:
            grows = item.is_open and value in item.made
            base, offset = (around.base(value), 0) if grows else at.pointer(value)
            place = (base, offset, one.first, one.step, one.rows, one.row, one.stride, one.copy)
            return (*place, body.base(inside), grows)

        inputs = iter(item.body.inputs)
        cells = [body.base(next(inputs)) for _ in range(2 if item.op == "Loop" else 0)] or [0, 0]
        results = iter(item.body.outputs)
        condition = body.base(next(results)) if item.ends else 0
        states = []
        for i, (value, result) in enumerate(zip(item.states, item.outputs, strict=False)):
            to = at.pointer(result) if result else (arena, inner.offset + own.target[i])
            size = symbolic.evaluate(nbytes(around.plan.type(value)), at.extents)
            bases = body.base(next(inputs)), body.base(next(results)), self.states[i]
            states.append((*at.pointer(value), *to, own.spare[i], size, *bases))
        scanned = [piece(v, one, next(inputs)) for v, one in zip(item.scanned, own.scanned, strict=True)]
        made = [piece(v, one, next(results)) for v, one in zip(item.made, own.made, strict=True)]
        captures = [(*at.pointer(v), body.base(next(inputs))) for v in item.captures]
        [block] = body.stages[0].actions or [[]]
        assert isinstance(block, list)
        return native.Loop(
            iterations=-1 if item.iterations is None else max(0, symbolic.evaluate(item.iterations, at.extents)),
            count=at.pointer(item.count) if item.count else None,
            going=at.pointer(item.going) if item.going else None,
            workspace=(arena, inner.offset),
            bases=(body.arena(0), *cells, condition),
            cells=own.cells,
            done=self.iterations,
            guards=at.guards(item.when),
            states=states,
            scanned=scanned,
            made=made,
            captures=captures,
            body=Position(body, 0, inner.body, at.extents).block(block),
        )


LinkedBlock = list[tuple[Any, list[Step]] | LinkedLoop]
"""Native items that run one after the other: walks with their steps, and loops."""


def add_bounded(cache: dict[K, V], key: K, value: V) -> None:
    """Add an entry and drop the oldest past the limit. Lock-free: a fork could leave a lock held."""
    cache[key] = value
    for old in list(cache)[:-LAYOUTS]:
        cache.pop(old, None)


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """One step of a recorded run: of a kernel, a loop, or a node that Python runs.

    `spans` [threads, 2] is when each thread began and ended it, in seconds of the monotonic clock; zeros if it took no
    part. `buffers` are those that a kernel reads and then writes, each as (address, bytes, is written). `extents` are
    the sizes of the run."""

    item: Step | Fallback | Control | Loop
    spans: NDArray[np.float64]
    buffers: tuple[tuple[int, int, bool], ...]
    extents: Mapping[str, int]
    plan: ModelPlan

    def __repr__(self) -> str:
        return f"<Launch of {clipped(repr(self.item), 120)}>"


class Run:
    """One run in progress: extents, values that live in Python, and the frame."""

    __slots__ = ("arrays", "extents", "frame", "layouts", "link", "record")

    def __init__(self, link: Link, frame: Any, extents: Mapping[str, int], record: list[Launch] | None) -> None:
        self.link, self.frame, self.record = link, frame, record
        self.extents = dict(extents)
        self.arrays: dict[str, Any] = {}  # inputs, results of fallbacks, outputs written in place
        self.layouts: list[Layout] = []

    def take(self, name: str, array: Any) -> None:
        """Record an input, and point the frame at it where kernels read it."""
        self.arrays[name] = array
        base = self.link.storage.base.get(name)
        if base is not None:
            start = readable_address(array)
            if start is not None:
                self.frame.set(base, start)
            elif array.nbytes:
                array = np.ascontiguousarray(array)
                self.frame.copy_in(base, address(array), array.nbytes)

    def get(self, value: str) -> Any:
        """Return a value as an array, whose memory the run may reuse, or as another object."""
        if value in self.arrays:
            return self.arrays[value]
        link = self.link
        constant = link.plan.constants.get(value)
        if constant is not None:
            return constant.array
        at = link.storage.locate(value)
        whole = None
        if at.root in link.numbers:
            whole = shape_value(link.plan, link.numbers[at.root], self.extents)
        elif at.root in self.arrays or at.root in link.plan.constants:
            whole = self.get(at.root)
        if whole is not None and at.root == value:
            return whole
        shape, dtype = concrete(link.plan.type(value), self.extents)
        offset = symbolic.evaluate(at.offset, self.extents)
        holder = link.storage.holder(at.root)
        if whole is None and holder in self.arrays:  # an output array that is being written
            whole = self.arrays[holder]
        if whole is not None:
            return np.ndarray(shape, dtype, np.ascontiguousarray(whole).reshape(-1).view(np.uint8), offset)
        base = link.storage.base[at.root]
        offset += self.layouts[base - SCRATCH - 1].placement.offsets[holder]
        return self._array(base, offset, shape, dtype)

    def _array(self, base: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return memory of the frame as an array."""
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        return np.frombuffer(self.frame.memory(base, offset, size), dtype).reshape(shape)

    def put(self, value: str, found: Any, *, own: bool = False) -> None:
        """Record a value from Python, after checking it against its type; learn the extents that it determines.

        An array is not copied if `own` is set: nothing else refers to it. Raises RewriteError if it contradicts the
        inferred type."""
        kind = self.link.plan.types.get(value)
        if isinstance(found, np.ndarray) and isinstance(kind, TensorType):
            if kind.dtype is not None and kind.dtype is not DType.STRING and found.dtype != kind.dtype.numpy:
                found = found.astype(kind.dtype.numpy)  # some reference implementations compute in another precision
            if kind.shape is not None:
                if not found.size and len(kind.shape) == found.ndim:
                    found = self._completed(found, kind.shape)
                self._bind_extents(value, kind.shape, found.shape)
            base = self.link.storage.base.get(value)
            if not own or (base is not None and not is_readable(found)):
                found = aligned_copy(found)
            if base is not None:
                self.frame.set(base, address(found))
        elif isinstance(found, list):
            found = [np.array(v) if isinstance(v, np.ndarray) else v for v in found]
        self.arrays[value] = found

    def measure(self, item: Measure, base: int, offset: int) -> None:
        """Learn an extent that a kernel has counted. Raises RewriteError if it is known to be another."""
        import ctypes

        count = ctypes.c_int64.from_address(self.frame.base(base) + offset).value
        if not 0 <= count <= symbolic.evaluate(item.most, self.extents):
            raise RewriteError(f"a kernel counted {count} elements", where=f"node {item.name}")
        if self.extents.setdefault(item.extent, count) != count:
            known = self.extents[item.extent]
            raise RewriteError(
                f"the result has {count} elements; its inferred size is {known}", where=f"node {item.name}"
            )

    def _completed(self, empty: NDArray[Any], shape: Sequence[symbolic.Dim]) -> NDArray[Any]:
        """Return an empty array with the known extents in place of zeros, if it is still empty.

        ONNX Runtime stacks the results of no iterations to 0 along axes that it does not know."""
        extents = tuple(
            symbolic.evaluate(dim, self.extents) if not own and symbolic.symbols(dim) <= self.extents.keys() else own
            for dim, own in zip(shape, empty.shape, strict=True)
        )
        return empty if math.prod(extents) else np.empty(extents, empty.dtype)

    def fill(self, value: str, found: Any) -> None:
        """Copy an array from Python to the buffer in which steps write this value on other conditions.

        Raises RewriteError if it contradicts the inferred type."""
        import ctypes

        target = self.get(value)
        if not isinstance(found, np.ndarray) or found.dtype != target.dtype or found.shape != target.shape:
            raise RewriteError(f"value {value} is not the {target.dtype}{list(target.shape)} that was inferred")
        found = np.ascontiguousarray(found)
        ctypes.memmove(address(target), address(found), found.nbytes)

    def grown(self, item: Loop, iterations: int) -> None:
        """Record the tensors that a loop has made in memory of the frame; learn the extents that they determine.

        Raises RewriteError if they contradict the inferred types."""
        for value in filter(None, item.made):
            kind, base = self.link.plan.type(value), self.link.base(value)
            assert kind.shape is not None
            rest, dtype = concrete(replace(kind, shape=kind.shape[1:]), self.extents)
            shape = (iterations, *rest)
            self._bind_extents(value, kind.shape, shape)
            self.frame.reserve(base, math.prod(shape) * dtype.itemsize)
            array = self._array(base, 0, shape, dtype)
            # The next run reuses the memory.
            self.arrays[value] = aligned_copy(array) if value in self.link.plan.outputs else array

    def _bind_extents(self, value: str, shape: Sequence[symbolic.Dim], actual: Sequence[int]) -> None:
        if len(shape) != len(actual):
            raise RewriteError(f"value {value} has rank {len(actual)}; the inferred rank is {len(shape)}")
        for dim, extent in zip(shape, actual, strict=True):
            name = symbolic.symbol_name(dim)
            if name is not None:
                dim = self.extents.setdefault(name, extent)
            if symbolic.symbols(dim) <= self.extents.keys() and symbolic.evaluate(dim, self.extents) != extent:
                raise RewriteError(
                    f"value {value} has shape {tuple(actual)}; the inferred shape is {tuple(map(str, shape))}"
                )
