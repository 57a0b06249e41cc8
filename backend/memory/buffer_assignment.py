"""Buffer assignment: the memory of each value of a plan, and its offset there for given extents.

- Per plan: stages (runs of items whose extents are all known when they begin), the value that each alias is a part of,
  the results that share the buffer of a dying operand, the outputs that a step writes in place.
- Per stage and set of extents: sizes, the layout of the arena, offsets.

A pointer is a base and an offset. Base 0 is the address 0, for constants, whose addresses are known. Base 1 is the
scratch memory. Then come an arena for each stage, and the values whose addresses change from run to run.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir import symbolic
from ...engine.ir.graph import Requirement, TensorType
from ...engine.ir.symbolic import Dim
from ...system.short_text import plural
from ..ir.arrays import CALLER, aligned
from ..ir.dataflow import determined, extents_of, plain_symbols, reads, writes
from ..ir.kernel_graph import (
    Control,
    Fallback,
    Item,
    Join,
    Loop,
    ModelPlan,
    Shape,
    Slicing,
    Step,
    View,
    bodies,
    is_host,
)
from .arena import Buffer, Placement, padded, place

CELL = 64  # bytes for each of the iteration number, the condition before it, and the one after it


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """How the slices of a tensor are laid out: `first` offset and `step` to the next, in bytes.

    Each slice is `rows` runs of `row` bytes, `stride` bytes apart. `copy` is the offset in the workspace of a copy, for
    slices that kernels cannot use in place; -1 if they can."""

    first: int
    step: int
    rows: int
    row: int
    stride: int
    copy: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """Offsets in the workspace of a loop, which begins with the arena of its body.

    Attributes:
        size: its size in bytes.
        cells: offset of the cells.
        spare: for each carried value, the buffer that every other iteration writes.
        target: for each, the buffer of the other iterations, -1 if that is the result's.
    """

    size: int
    cells: int
    spare: tuple[int, ...]
    target: tuple[int, ...]
    scanned: tuple[SliceLayout, ...]
    made: tuple[SliceLayout, ...]


def workspace(
    item: Loop, arena: int, outer: Callable[[str], TensorType], offset: Callable[[str], Dim], extents: Mapping[str, int]
) -> Workspace:
    """Return the workspace of a loop whose body has an arena of `arena` bytes.

    `outer` gives the types of the values around it, `offset` the offset of each in the buffer that it is a part of."""
    size = padded(arena)

    def take(count: int) -> int:
        nonlocal size
        taken = padded(max(count, 1))
        size += taken
        return size - taken

    def piece(value: str, inside: str, slicing: Slicing) -> SliceLayout:
        whole, part, at = outer(value), item.body.type(inside), slicing.axis
        assert whole.shape is not None
        assert part.shape is not None
        rows = symbolic.evaluate(symbolic.product(part.shape[:at]), extents)
        row = symbolic.evaluate(nbytes(replace(part, shape=part.shape[at:])), extents)
        grows = item.is_open and value in item.made
        length = 0 if grows else symbolic.evaluate(whole.shape[at], extents)
        starts = 0 if grows else symbolic.evaluate(offset(value), extents)
        direct = (rows == 1 or length == 1) and row % CALLER == 0 and starts % CALLER == 0
        first, step = ((length - 1) * row, -row) if slicing.reverse else (0, row)
        return SliceLayout(first, step, rows, row, length * row, -1 if direct else take(rows * row))

    cells = take(3 * CELL)
    n = len(item.states)
    sizes = [symbolic.evaluate(nbytes(outer(v)), extents) for v in item.states]
    spare = tuple([take(count) for count in sizes])
    target = tuple([-1 if v else take(count) for v, count in zip(item.outputs[:n], sizes, strict=True)])
    first = 2 * (item.op == "Loop") + n
    pieces, ends = item.body.inputs[first : first + len(item.scanned)], item.body.outputs[item.ends + n :]
    scanned = tuple(map(piece, item.scanned, pieces, item.scans))
    made = tuple(map(piece, item.made, ends, item.makes))
    return Workspace(size, cells, spare, target, scanned, made)


Array = NDArray[Any]
SCRATCH = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a value: `offset` bytes into the buffer of `root`."""

    root: str
    offset: Dim


@dataclass
class Stage:
    """Items that run one after the other, with all extents known at the start."""

    items: list[Item] = field(default_factory=list)
    first: int = 0  # number of its first item in the plan
    numbers: list[Shape] = field(default_factory=list)  # values known from dims that its steps read
    symbols: tuple[str, ...] = ()  # the extents that its layout depends on
    requirements: list[Requirement] = field(default_factory=list)  # of extents that are known from here on


@dataclass
class Storage:
    """Decisions that hold for all extents."""

    plan: ModelPlan
    place: dict[str, Place]  # of every value that is not a whole buffer of its own
    stages: list[Stage] = field(default_factory=list)
    base: dict[str, int] = field(default_factory=dict)  # of each root that native code writes or reads, not constants
    shared: dict[str, str] = field(default_factory=dict)  # root -> the root whose buffer it shares, in place
    outputs: dict[str, str] = field(default_factory=dict)  # root -> the graph output whose array is its buffer
    bases: int = 0  # number of bases of a frame
    lifetime: dict[str, tuple[int, int]] = field(default_factory=dict)  # items that first and last use a buffer
    bodies: dict[int, tuple[Storage, ...]] = field(default_factory=dict)  # of control flow, by item number
    versions: tuple[Storage, ...] = ()

    def __repr__(self) -> str:
        return f"<Storage: {plural(len(self.stages), 'stage')}, {plural(len(self.lifetime), 'buffer')}>"

    def locate(self, value: str) -> Place:
        """Return the root of a value and its offset there."""
        return self.place.get(value) or Place(value, 0)

    def root(self, value: str) -> str:
        """Return the value that a value is a part of, or itself."""
        return self.locate(value).root

    def holder(self, root: str) -> str:
        """Return the root whose buffer a root uses."""
        while root in self.shared:
            root = self.shared[root]
        return root


@dataclass(frozen=True)
class Layout:
    """Layout of a stage for one set of extents, from which the `Binding`s of the runtime are built."""

    placement: Placement
    buffers: tuple[Buffer, ...]  # what is placed, in the order of first use
    shapes: dict[str, Array]  # the values of `Shape` items
    scratch: int  # bytes per thread
    loops: dict[int, LoopLayout]  # by item number
    unmet: tuple[Requirement, ...]  # by these extents: the run fails if their conditions hold


@dataclass(frozen=True)
class LoopLayout:
    """A loop in a layout: the layout of its body, and its workspace with the offset of that in the arena."""

    body: Layout
    workspace: Workspace
    offset: int


def nbytes(kind: TensorType) -> Dim:
    """Return the size of a tensor in bytes. Raises ValueError if its rank or dtype is unknown."""
    if kind.shape is None or kind.dtype is None:
        raise ValueError(f"the size of {kind} is unknown")
    return symbolic.product(kind.shape) * kind.dtype.numpy.itemsize


def assign_buffers(plan: ModelPlan) -> Storage:
    """Decide the memory of each value of a plan, and of those of its bodies and versions."""
    storage = Storage(plan, _places(plan))
    native = {storage.root(v) for item in plan.items for v in native_results(item)}
    storage.stages = _stages(storage)
    storage.outputs = _outputs_in_place(storage, native)
    storage.lifetime = _lifetimes(storage, native)
    _share(storage, native)
    _number_bases(storage, native)
    storage.bodies = {n: tuple(map(assign_buffers, found)) for n, i in enumerate(plan.items) if (found := bodies(i))}
    storage.versions = tuple(assign_buffers(version.plan) for version in plan.versions)
    return storage


def _outputs_in_place(storage: Storage, native: set[str]) -> dict[str, str]:
    """Return the roots whose buffers are output arrays, each with the output."""
    kind = storage.plan.type
    outputs: dict[str, str] = {}
    for value in storage.plan.outputs:
        at = storage.locate(value)
        whole = at.root == value or (at.offset == 0 and symbolic.same(nbytes(kind(value)), nbytes(kind(at.root))))
        if at.root in native and whole:
            outputs.setdefault(at.root, value)
    return outputs


def shareable(storage: Storage) -> list[tuple[str, str]]:
    """Return the pairs of an input and an output of a plan that a caller may keep in one array.

    The input is last read before the output's buffer is first written, or by the step that writes it in place."""
    plan = storage.plan
    made = Counter(storage.root(v) for item in plan.items for v in native_results(item))
    last: dict[str, int] = dict.fromkeys(plan.inputs, -1)
    for number, item in enumerate(plan.items):
        if not isinstance(item, View):
            last.update((storage.root(v), number) for v in reads(item) if storage.root(v) in last)
    kept = {storage.root(v) for v in plan.outputs}
    found = []
    for root, output in storage.outputs.items():
        first = storage.lifetime[root][0]
        item = plan.items[first]
        for value, end in last.items():
            in_place = end == first and isinstance(item, Step) and _in_place(storage, item, value, root)
            if value not in kept and made[root] == 1 and (end < first or in_place):
                found.append((value, output))
    return found


def _in_place(storage: Storage, item: Step, value: str, root: str) -> bool:
    """Return whether a step that always runs may write the buffer of `root` over an input of the program, all of it."""
    uses = [i for i, v in enumerate(item.inputs) if storage.root(v) == value]
    pairs = [(i, o) for i, o in item.in_place if item.inputs[i] == value and item.outputs[o] == root]
    return not item.when and len(uses) == 1 and any(i == uses[0] for i, _ in pairs)


def _number_bases(storage: Storage, native: set[str]) -> None:
    """Number the bases, of each root that native code reads or writes."""
    plan, root, base = storage.plan, storage.root, storage.base
    for number, stage in enumerate(storage.stages, SCRATCH + 1):
        base.update((root(v), number) for item in stage.items for v in native_results(item))
    touched = {root(v) for item in plan.items if isinstance(item, Step | Loop) for v in reads(item)}
    touched |= {root(v) for item in plan.items if isinstance(item, Control) for v, _ in item.when}
    touched |= {root(v) for r in plan.requirements for v, _ in r.when}
    grown = {v for item in plan.items if isinstance(item, Loop) and item.is_open for v in item.made}
    given = {v for item in plan.items if isinstance(item, Fallback | Control) for v in writes(item)} - native
    given.update(plan.inputs)
    values = dict.fromkeys((*plan.inputs, *(v for item in plan.items for v in writes(item))))
    own = [v for v in values if v in storage.outputs or v in grown or (v in given and v in touched)]
    first = SCRATCH + 1 + len(storage.stages)
    base.update(zip(own, range(first, first + len(own)), strict=True))
    storage.bases = first + len(own)
    base.update({shared: base[storage.holder(shared)] for shared in storage.shared})


def native_results(item: Item) -> tuple[str, ...]:
    """Return the values that native code writes to buffers of known size."""
    if isinstance(item, Step):
        return item.outputs
    if isinstance(item, Loop):
        return tuple(v for v in item.outputs[: len(item.states) if item.is_open else None] if v)
    return ()


def _stages(storage: Storage) -> list[Stage]:
    """Cut the plan after each item whose results determine new extents, and after loops whose results Python reads."""
    plan = storage.plan
    bound = set(plan.symbols).union(*(plain_symbols(plan.type(v)) for v in plan.inputs))
    stages, known = [Stage()], [frozenset(bound)]
    for number, item in enumerate(plan.items):
        stages[-1].items.append(item)
        if is_host(item):
            new = determined(item, plan.types) - bound
            if new or isinstance(item, Loop):
                bound |= new
                stages.append(Stage(first=number + 1))
                known.append(frozenset(bound))
    _take_requirements(storage, stages, known)
    numbers = {item.output: item for item in plan.items if isinstance(item, Shape)}
    for stage in stages:
        read = (v for item in stage.items if isinstance(item, Step | Loop) for v in reads(item))
        stage.numbers = [numbers[v] for v in dict.fromkeys(map(storage.root, read)) if v in numbers]
        dims = [d for item in (*stage.items, *stage.numbers) for d in extents_of(item, plan.types)]
        dims += [r.excess for r in stage.requirements]
        stage.symbols = tuple(sorted({s for d in dims for s in symbolic.symbols(d)}))
    return stages


def _take_requirements(storage: Storage, stages: Sequence[Stage], known: Sequence[Collection[str]]) -> None:
    """Give each requirement to the first stage that begins with its extents `known`, and ends with its conditions."""
    later = {storage.root(v) for item in storage.plan.items for v in writes(item)}
    asked = list(storage.plan.requirements)
    for stage, there in zip(stages, known, strict=True):
        later -= {storage.root(v) for item in stage.items for v in writes(item)}
        taken = [
            symbolic.symbols(r.excess) <= set(there) and not any(storage.root(v) in later for v, _ in r.when)
            for r in asked
        ]
        stage.requirements += itertools.compress(asked, taken)
        asked = [r for r, one in zip(asked, taken, strict=True) if not one]


def _places(plan: ModelPlan) -> dict[str, Place]:
    """Return the location of each alias and each part of a join."""
    direct: dict[str, Place] = {}
    for item in plan.items:
        if isinstance(item, View):
            direct[item.output] = Place(item.input, item.offset)
        elif isinstance(item, Join):
            direct.update((v, Place(item.output, at)) for v, at in zip(item.parts, item.offsets, strict=True))
    places: dict[str, Place] = {}
    for value, found in direct.items():
        while found.root in direct:  # a part of a part, or an alias of one
            around = direct[found.root]
            found = Place(around.root, around.offset + found.offset)
        places[value] = found
    return places


def _lifetimes(storage: Storage, native: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and last item that use each buffer written by native code.

    A value that a later stage or the caller reads lives to the end of its stage: arenas of earlier stages persist."""
    ends = [stage.first + len(stage.items) for stage in storage.stages for _ in stage.items]  # after the last item
    lifetime: dict[str, tuple[int, int]] = {}
    end: dict[str, int] = {}

    def use(value: str, number: float) -> None:
        root = storage.root(value)
        if root in lifetime:
            first, last = lifetime[root]
            lifetime[root] = (first, max(last, int(min(number, end[root]))))

    for number, item in enumerate(storage.plan.items):
        for value in reads(item) if not isinstance(item, View) else ():
            use(value, number)
        makes = item.outputs if isinstance(item, Control) and item.when else native_results(item)
        for root in map(storage.root, makes):  # another item may write it too: on other conditions, or in parts
            if root in native:
                lifetime.setdefault(root, (number, number))
                end.setdefault(root, ends[number])
                use(root, number)
    for value in (*storage.plan.outputs, *(v for r in storage.plan.requirements for v, _ in r.when)):
        use(value, math.inf)
    return lifetime


def _share(storage: Storage, native: set[str]) -> None:
    """Let results take over the buffer of an operand that dies with the step; join their lifetimes.

    Both belong to one stage, because the array of an output does not exist before the stage that writes it."""
    plan, shared, lifetime = storage.plan, storage.shared, storage.lifetime
    makers = Counter(v for item in plan.items if not isinstance(item, View) for v in writes(item))

    def fits(item: Step, number: int, begin: int, source: int, result: str) -> bool:
        at = storage.locate(item.inputs[source])
        operand = storage.holder(at.root)
        others = [v for i, v in enumerate(item.inputs) if i != source]
        return (
            result not in storage.place
            and makers[result] == 1  # else its buffer is the same whichever step writes it
            and at.root in native
            and operand not in storage.outputs
            and begin <= lifetime[operand][0] < number == lifetime[operand][1]
            and at.offset == 0
            and operand not in map(storage.holder, (*map(storage.root, others), *item.outputs))
            and symbolic.same(nbytes(plan.type(operand)), nbytes(plan.type(result)))
        )

    for stage in storage.stages:
        for number, item in enumerate(stage.items, stage.first):
            done: set[str] = set()
            for source, target in item.in_place if isinstance(item, Step) else ():
                assert isinstance(item, Step)
                result = item.outputs[target]
                if result in done or not fits(item, number, stage.first, source, result):
                    continue
                done.add(result)
                operand = storage.holder(storage.root(item.inputs[source]))
                # An output is written to the caller's array from the start.
                given, taken = (operand, result) if result in storage.outputs else (result, operand)
                shared[given] = taken
                lifetime[taken] = (lifetime[operand][0], lifetime[result][1])


def lay_out(storage: Storage, number: int, extents: Mapping[str, int]) -> Layout:
    """Compute sizes and offsets of a stage for these extents, which cover at least its symbols.

    Raises ValueError for extents that do not meet a requirement, whatever branches run."""
    plan, stage = storage.plan, storage.stages[number]
    unmet = tuple(_unmet(stage, extents))
    buffers: dict[str, Buffer] = {}
    scratch = 0
    loops: dict[str, tuple[int, Layout, Workspace]] = {}
    for at, item in enumerate(stage.items, stage.first):
        if isinstance(item, Step):
            scratch = max(scratch, symbolic.evaluate(item.scratch, extents))
        elif isinstance(item, Loop):
            body = lay_out(storage.bodies[at][0], 0, extents)
            found = workspace(item, body.placement.size, plan.type, lambda v: storage.locate(v).offset, extents)
            name = f"\0{at}"  # differs from the names of all values
            loops[name] = at, body, found
            scratch = max(scratch, body.scratch)
            buffers[name] = Buffer(name, found.size, at, at)
        for root in map(storage.root, native_results(item)):
            if root not in storage.shared and root not in storage.outputs and root not in buffers:
                size = symbolic.evaluate(nbytes(plan.type(root)), extents)
                buffers[root] = Buffer(root, size, *storage.lifetime[root])
    shapes = {item.output: shape_value(plan, item, extents) for item in stage.numbers}
    placed = tuple(buffers.values())
    placement = place(placed)
    inner = {at: LoopLayout(body, own, placement.offsets[name]) for name, (at, body, own) in loops.items()}
    return Layout(placement, placed, shapes, padded(scratch), inner, unmet)


def _unmet(stage: Stage, extents: Mapping[str, int]) -> Iterator[Requirement]:
    """Yield the requirements of branches that these extents do not meet. Raises ValueError for one of no branch."""
    for requirement in stage.requirements:
        with contextlib.suppress(ValueError):  # sizes in it do not fit either
            if symbolic.evaluate(requirement.excess, extents) == 0:
                continue
        if not requirement.when:
            raise ValueError(requirement.reason)
        yield requirement


def shape_value(plan: ModelPlan, item: Shape, extents: Mapping[str, int]) -> Array:
    """Return the tensor that a `Shape` item stands for."""
    shape, dtype = concrete(plan.type(item.output), extents)
    array = aligned(shape, dtype)
    array[...] = np.array([symbolic.evaluate(d, extents) for d in item.dims]).reshape(array.shape)
    return array


def concrete(kind: TensorType, extents: Mapping[str, int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape of a tensor for these extents, and the type of its elements."""
    assert kind.shape is not None
    assert kind.dtype is not None
    return tuple([symbolic.evaluate(d, extents) for d in kind.shape]), kind.dtype.numpy
