"""Storage: which memory each value of a plan lives in, and where exactly for given extents.

Decided once per plan: stages (stretches of items whose extents are all known when they begin), the value that each view
is a part of, which results share the buffer of a dying operand, which graph outputs are written in place by the step
that makes them. Decided per stage and set of extents: sizes, the arena's layout, offsets.

A pointer is a base and an offset. Base 0 is the address 0 (for constants, whose addresses are known), base 1 the
scratch memory, then come an arena for each stage, then the values whose addresses change from run to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import symbolic
from ..engine.graph import TensorType
from ..engine.symbolic import Dim
from .arrays import aligned
from .kernel_graph import (
    Control,
    Fallback,
    Item,
    Join,
    Loop,
    ModelPlan,
    Shape,
    Step,
    View,
    extents_of,
    is_host,
    reads,
    writes,
)
from .loop_workspace import Workspace, workspace
from .memory import Buffer, Placement, padded, place

Array = NDArray[Any]
SCRATCH = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is: `offset` bytes into the buffer of `root`."""

    root: str
    offset: Dim


@dataclass
class Stage:
    """Items that run one after the other with all extents known at the start."""

    items: list[Item] = field(default_factory=list)
    first: int = 0  # the number of its first item in the plan
    numbers: list[Shape] = field(default_factory=list)  # the values known from dims that its steps read
    symbols: tuple[str, ...] = ()  # all that its layout depends on


@dataclass
class Storage:
    """The decisions that hold for all extents. `place` has every value that isn't its own whole buffer."""

    plan: ModelPlan
    stages: list[Stage]
    place: dict[str, Place]
    base: dict[str, int]  # of each root that steps write or read, constants excepted
    shared: dict[str, str]  # root -> the root whose buffer it shares, for results in place
    outputs: dict[str, str]  # root -> the graph output that it is the buffer of
    bases: int  # how many there are
    lifetime: dict[str, tuple[int, int]]  # of each buffer in an arena
    bodies: dict[int, Storage]  # of the loops that the runtime drives, by the numbers of their items

    def locate(self, value: str) -> Place:
        """The root of a value and its offset there."""
        return self.place.get(value) or Place(value, 0)

    def holder(self, root: str) -> str:
        """The root whose buffer a root uses."""
        while root in self.shared:
            root = self.shared[root]
        return root


@dataclass(frozen=True)
class Layout:
    """A stage for one set of extents: what the runtime's `Binding`s are made from."""

    placement: Placement
    offset: dict[str, int]  # in its arena, of each buffer there
    shapes: dict[str, Array]  # the values of `Shape` items
    scratch: int  # bytes per thread
    loops: dict[int, Inner]  # by the numbers of their items


@dataclass(frozen=True)
class Inner:
    """A loop in a layout: the layout of its body, and its workspace, with where that is in the arena."""

    body: Layout
    workspace: Workspace
    offset: int


def nbytes(kind: TensorType) -> Dim:
    """The size of a tensor in bytes; ValueError if its rank or dtype isn't known."""
    if kind.shape is None or kind.dtype is None:
        raise ValueError(f"no size is known for {kind}")
    return symbolic.product(kind.shape) * kind.dtype.numpy.itemsize


def make_storage(plan: ModelPlan) -> Storage:
    """The decisions for a plan."""
    places = _places(plan)
    stages = _stages(plan, places)

    def root_of(value: str) -> str:
        return places[value].root if value in places else value

    made = {root_of(v) for item in plan.items for v in made_natively(item)}
    outputs: dict[str, str] = {}
    for value in plan.outputs:
        root = root_of(value)
        whole = value not in places or (
            places[value].offset == 0 and symbolic.same(nbytes(plan.type(value)), nbytes(plan.type(root)))
        )
        if root in made and whole and root not in outputs:
            outputs[root] = value
    lifetime = _lifetimes(plan, stages, places, made)
    shared = _share(plan, stages, places, outputs, lifetime, made)
    base: dict[str, int] = {}
    bases = SCRATCH + 1 + len(stages)
    for number, stage in enumerate(stages):
        for item in stage.items:
            base.update(dict.fromkeys(map(root_of, made_natively(item)), SCRATCH + 1 + number))
    touched = {root_of(v) for item in plan.items if isinstance(item, Step | Loop) for v in reads(item)}
    touched |= {root_of(v) for item in plan.items if isinstance(item, Control) for v, _ in item.when}
    grown = {v for item in plan.items if isinstance(item, Loop) and item.is_open for v in item.made}
    hosts = {v for item in plan.items if isinstance(item, Fallback | Control) for v in writes(item)} - made
    for root in dict.fromkeys((*plan.inputs, *(v for item in plan.items for v in writes(item)))):
        if root in outputs or root in grown or ((root in plan.inputs or root in hosts) and root in touched):
            base[root] = bases
            bases += 1
    bodies = {n: make_storage(item.body) for n, item in enumerate(plan.items) if isinstance(item, Loop)}
    storage = Storage(plan, stages, places, base, shared, outputs, bases, lifetime, bodies)
    for root in shared:
        base[root] = base[storage.holder(root)]
    return storage


def made_natively(item: Item) -> tuple[str, ...]:
    """The values that native code makes in buffers of known size."""
    if isinstance(item, Step):
        return item.outputs
    if isinstance(item, Loop):
        return tuple(v for v in item.outputs[: len(item.states) if item.is_open else None] if v)
    return ()


def _stages(plan: ModelPlan, places: Mapping[str, Place]) -> list[Stage]:
    """Cuts the plan after each item whose results tell extents that weren't known before, and after loops whose results
    Python looks at."""
    bound = {s for v in plan.inputs for d in plan.type(v).shape or () if (s := symbolic.symbol_name(d))}
    bound.update(plan.symbols)
    stages = [Stage()]
    for number, item in enumerate(plan.items):
        stages[-1].items.append(item)
        if is_host(item):
            shapes = [plan.type(v).shape or () for v in writes(item)]
            new = {s for shape in shapes for d in shape if (s := symbolic.symbol_name(d))} - bound
            if new or isinstance(item, Loop):
                bound |= new
                stages.append(Stage(first=number + 1))
    numbers = {item.output: item for item in plan.items if isinstance(item, Shape)}
    for stage in stages:
        read = dict.fromkeys(v for item in stage.items if isinstance(item, Step | Loop) for v in reads(item))
        roots = dict.fromkeys(places[v].root if v in places else v for v in read)
        stage.numbers = [numbers[v] for v in roots if v in numbers]
        names = {
            s
            for item in (*stage.items, *stage.numbers)
            for d in extents_of(item, plan.types)
            for s in symbolic.symbols(d)
        }
        stage.symbols = tuple(sorted(names))
    return stages


def _places(plan: ModelPlan) -> dict[str, Place]:
    """Where views and parts of other values are."""
    direct: dict[str, Place] = {}
    for item in plan.items:
        if isinstance(item, View):
            direct[item.output] = Place(item.input, item.offset)
        elif isinstance(item, Join):
            direct.update((v, Place(item.output, at)) for v, at in zip(item.parts, item.offsets, strict=True))
    places: dict[str, Place] = {}
    for value, found in direct.items():
        while found.root in direct:  # a part of a part, or a view of one
            around = direct[found.root]
            found = Place(around.root, around.offset + found.offset)
        places[value] = found
    return places


def _lifetimes(
    plan: ModelPlan, stages: Sequence[Stage], places: Mapping[str, Place], made: set[str]
) -> dict[str, tuple[int, int]]:
    """From which item to which each buffer that a step makes is in use. What a later stage or the caller reads lives to
    the end of its stage: arenas of earlier stages stay as they are."""
    stage_of = {}
    for stage in stages:
        for number in range(len(stage.items)):
            stage_of[stage.first + number] = stage
    lifetime: dict[str, tuple[int, int]] = {}
    maker: dict[str, Stage] = {}

    def use(value: str, number: int | None) -> None:
        root = places[value].root if value in places else value
        if root in lifetime:
            first, last = lifetime[root]
            end = maker[root].first + len(maker[root].items)  # after the last item
            lifetime[root] = (first, max(last, end if number is None else min(number, end)))

    for number, item in enumerate(plan.items):
        for value in reads(item):
            if not isinstance(item, View):
                use(value, number)
        makes = item.outputs if isinstance(item, Control) and item.when else made_natively(item)
        if makes:
            for value in makes:  # may be made by another, on other conditions, or in parts
                root = places[value].root if value in places else value
                if root in made:
                    lifetime.setdefault(root, (number, number))
                    maker.setdefault(root, stage_of[number])
                    use(root, number)
    for value in plan.outputs:
        use(value, None)
    return lifetime


def _share(
    plan: ModelPlan,
    stages: Sequence[Stage],
    places: Mapping[str, Place],
    outputs: Mapping[str, str],
    lifetime: dict[str, tuple[int, int]],
    made: set[str],
) -> dict[str, str]:
    """Results that take over the buffer of an operand that dies with the step; lifetimes are joined.

    Both are made in one stage: the array of an output is not there before the stage that makes it."""
    shared: dict[str, str] = {}
    makers = Counter(v for item in plan.items if not isinstance(item, View) for v in writes(item))

    def holder(root: str) -> str:
        while root in shared:
            root = shared[root]
        return root

    for number, item in enumerate(plan.items):
        begin = max((stage.first for stage in stages if stage.first <= number), default=0)
        if not isinstance(item, Step):
            continue
        done: set[int] = set()
        for source, target in item.in_place:
            value, result = item.inputs[source], item.outputs[target]
            at = places.get(value) or Place(value, 0)
            operand = holder(at.root)
            others = [v for i, v in enumerate(item.inputs) if i != source]
            if (
                target in done
                or result in places
                or makers[result] > 1  # its buffer is the same whichever makes it
                or at.root not in made
                or operand in outputs
                or lifetime[operand][1] != number
                or lifetime[operand][0] == number
                or lifetime[operand][0] < begin
                or at.offset != 0
                or any(holder(places[v].root if v in places else v) == operand for v in others)
                or any(holder(v) == operand for v in item.outputs)
                or not symbolic.same(nbytes(plan.type(operand)), nbytes(plan.type(result)))
            ):
                continue
            done.add(target)
            if result in outputs:  # the operand is written to the caller's array from the start
                shared[operand] = result
                lifetime[result] = (lifetime[operand][0], lifetime[result][1])
            else:
                shared[result] = operand
                lifetime[operand] = (lifetime[operand][0], lifetime[result][1])
    return shared


def lay_out(storage: Storage, number: int, extents: Mapping[str, int]) -> Layout:
    """Sizes and offsets of a stage for these extents (of its symbols at least)."""
    plan, stage = storage.plan, storage.stages[number]
    buffers = []
    done: set[str] = set()
    scratch = 0
    loops: dict[int, tuple[Layout, Workspace]] = {}
    for at, item in enumerate(stage.items, stage.first):
        if isinstance(item, Step):
            scratch = max(scratch, symbolic.evaluate(item.scratch, extents))
        elif isinstance(item, Loop):
            body = lay_out(storage.bodies[at], 0, extents)
            found = workspace(item, body.placement.size, plan.type, lambda v: storage.locate(v).offset, extents)
            loops[at] = body, found
            scratch = max(scratch, body.scratch)
            buffers.append(Buffer(_workspace_name(at), found.size, at, at))
        for root in (storage.locate(value).root for value in made_natively(item)):
            if root not in storage.shared and root not in storage.outputs and root not in done:
                first, last = storage.lifetime[root]
                size = symbolic.evaluate(nbytes(plan.type(root)), extents)
                buffers.append(Buffer(root, size, first, last))
                done.add(root)
    shapes = {item.output: shape_value(plan, item, extents) for item in stage.numbers}
    placement = place(buffers)
    inner = {n: Inner(body, own, placement.offsets[_workspace_name(n)]) for n, (body, own) in loops.items()}
    return Layout(placement, placement.offsets, shapes, padded(scratch), inner)


def _workspace_name(number: int) -> str:
    """The name of a loop's workspace among the buffers of an arena: no value has it."""
    return f"\0{number}"


def shape_value(plan: ModelPlan, item: Shape, extents: Mapping[str, int]) -> Array:
    """The tensor that a `Shape` item stands for."""
    kind = plan.type(item.output)
    assert kind.dtype is not None
    assert kind.shape is not None
    array = aligned(tuple(symbolic.evaluate(d, extents) for d in kind.shape), kind.dtype.numpy)
    array[...] = np.array([symbolic.evaluate(d, extents) for d in item.dims]).reshape(array.shape)
    return array
