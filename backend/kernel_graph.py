"""The values that flow through the backend: target, groups, kernels, steps and the plan of a model.

A `Graph` is cut into groups (`group`), each group is lowered to steps that call kernels (`lower`), and steps, views
and fallbacks in order make the `ModelPlan`, from which sources are rendered, memory is planned and a `Program` made.
Everything here is plain data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..engine.graph import Constant, Node, TensorType, ValueType
from ..engine.symbolic import Dim, evaluate, symbol

ALIGNMENT = 64
"""Every buffer a kernel gets starts at a multiple of this many bytes …"""

SLACK = 64
"""… and may be read (never written) this many bytes past its end."""


def fresh_name(hint: str, taken: set[str]) -> str:
    """`hint`, or where it is taken the first of `hint_2`, `hint_3`, … that is not; taken from then on."""
    name, n = hint, 1
    while name in taken:
        n += 1
        name = f"{hint}_{n}"
    taken.add(name)
    return name


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that kernels are made for. Sizes are in bytes; `l1`, `l2` are those of one core."""

    isa: str  # "avx512", "avx2" or "portable"
    vector_bytes: int  # 64, 32 or 16
    cores: int = 1
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    features: tuple[str, ...] = ()  # that kernels may use beyond those of the ISA: "avx512_vnni", "avx512_bf16" ..
    machine: str = "x86_64"  # the architecture

    @property
    def lanes(self) -> int:
        """How many f32 a vector holds."""
        return self.vector_bytes // 4

    @property
    def registers(self) -> int:
        """How many vector registers there are."""
        return 32 if self.isa == "avx512" else 16


@dataclass(frozen=True)
class Kernel:
    """One compiled function: a template and the parameters it is rendered with.

    `params` is JSON-able; equal kernels of a model are compiled once, and the cache is keyed by template text and
    params. Constant extents belong into `params`, symbolic ones into `Step.dims`."""

    template: str  # "gemm" is templates/gemm.pyx.j2
    params: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0  # how long it takes to compile, relative to an elementwise kernel; balances the modules

    @cached_property
    def canonical(self) -> str:
        """Template and params as canonical JSON: equal for equal kernels. Raises TypeError for what isn't JSON-able."""
        return json.dumps([self.template, self.params], sort_keys=True, separators=(",", ":"), allow_nan=True)

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.canonical == other.canonical


@dataclass(frozen=True)
class Origin:
    """A node that a step implements, with what its work depends on: operator, attributes, types (None: absent)."""

    op: str
    name: str
    attrs: Mapping[str, Any]
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType | None, ...]


SERIAL_WORK = 16_384
"""Kernels with fewer simple operations run on one thread: they take less than a few microseconds."""

LAUNCH_WORK = 8 * SERIAL_WORK
"""Other threads are called only if there is more work than this for them between two calls from Python: in a small
model it takes them as long to wake up as one thread needs for all of it."""

MUCH = 1 << 62

HOST_OPERATORS = frozenset({"Range"})
"""Operators that are done at once in Python, where they have no kernel: a few numbers, whose count hangs on data."""

Guarded = tuple[tuple[str, bool], ...]
"""Conditions (one-element booleans) with what each has to be for an item to run."""


@dataclass(frozen=True)
class Pitch:
    """A buffer of a step that may be some columns of a wider tensor: its rows, `length` elements each, lie further
    apart then. (Rows are all elements along the last axis: the channels of a pixel.)

    `buffer` counts the inputs, then the outputs; `params` are the kernel's parameters that say how far apart rows lie,
    in elements: paths into them, each with a factor."""

    buffer: int
    length: int
    params: tuple[tuple[tuple[str | int, ...], int], ...]


@dataclass(frozen=True)
class Step:
    """One launch of a kernel: `NAME(bufs, dims, tid, nth)` for each part `tid` of `nth`, after the step before it.

    `bufs` holds the `inputs`, then the `outputs`, then, if `scratch` is not 0, one pointer to `scratch * nth` bytes, of
    which thread `tid` owns the part from `scratch * tid` on. Outputs are never aliased with inputs except as `in_place`
    allows; their contents are undefined at the start. Values are names in the graph or from `Context.new_value`.

    A value may be made by several steps if at most one of them runs: `when` has the conditions on which one does, and
    `only` pairs of dims of which the first must not be larger than the second. `pitches` are there while a graph is
    planned only."""

    kernel: Kernel
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: tuple[Dim, ...] = ()  # evaluated at run time, passed as int64
    scratch: Dim = 0  # bytes per thread, a multiple of 64
    in_place: tuple[tuple[int, int], ...] = ()  # (input number, output number) that may be the same buffer
    threads: Dim = 0  # its work, in simple operations: one thread does less than `SERIAL_WORK`; 0 is much
    nodes: tuple[str, ...] = ()  # the nodes that it implements, for reports
    origins: tuple[Origin, ...] = ()  # the same in full; steps that share a group's work have it equal
    when: Guarded = ()
    only: tuple[tuple[Dim, Dim], ...] = ()
    pitches: tuple[Pitch, ...] = ()

    def work(self, extents: Mapping[str, int]) -> int:
        """Its work for these extents, `MUCH` where nothing is said; 0 if it is not to be run at all."""
        if any(evaluate(low, extents) > evaluate(high, extents) for low, high in self.only):
            return 0
        return max(1, evaluate(self.threads, extents)) if self.threads != 0 else MUCH


@dataclass(frozen=True)
class View:
    """A value that is the same memory as another: `offset` bytes into it, contiguous. Costs nothing at run time.

    With a `pitch` it is some columns of the other, whose rows have so many elements: those who read it have to know
    (see `pitch`). In a plan there are none of these any more."""

    input: str
    output: str
    offset: Dim = 0
    nodes: tuple[str, ...] = ()
    pitch: int = 0


@dataclass(frozen=True)
class Join:
    """A value that others are parts of, each `offset` bytes into it: what makes a part writes it there from the start.

    In a plan all parts are made by steps (or are such values themselves), and are parts of nothing else. With a `pitch`
    parts are columns of rows of so many elements; in a plan there are none of these any more."""

    parts: tuple[str, ...]
    offsets: tuple[Dim, ...]
    output: str
    nodes: tuple[str, ...] = ()
    pitch: int = 0


@dataclass(frozen=True)
class Shape:
    """An integer tensor whose contents are known in terms of dims (shape arithmetic): filled in without a kernel."""

    output: str
    dims: tuple[Dim, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fallback:
    """A node that has no native kernel: run by the reference implementation of its operator."""

    node: Node


@dataclass(frozen=True)
class Control:
    """An If, Loop, Scan or SequenceMap, driven from Python over its bodies, which are compiled programs.

    The inputs of a body are those it has in the model, then the values that it captures: `captures`, one list for each
    body. `attrs` are the operator's other attributes. "Branch" is one branch of an `If`, run only on the conditions
    `when`: its outputs may be those of steps."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    bodies: tuple[ModelPlan, ...]
    captures: tuple[tuple[str, ...], ...]
    name: str = ""
    when: Guarded = ()


@dataclass(frozen=True, slots=True)
class Along:
    """How a tensor is gone through: by pieces along an axis (of the whole), forward or from its end."""

    axis: int = 0
    reverse: bool = False


@dataclass(frozen=True)
class Loop:
    """A Loop or Scan that the runtime drives over a body of kernels.

    The inputs of the body are, for a Loop, the number of the iteration and the condition that it begins with; then the
    carried values, a piece of each tensor that is scanned, and what it captures. Its outputs are, if `ends`, whether to
    go on; then the carried values, and a piece of each tensor that is made. All of them are made by steps, each in a
    buffer of its own. What is carried is of one type from the first iteration to the last.

    Attributes:
        states, scanned, captures: values that these inputs come from.
        outputs: the carried values after the last iteration (empty: nobody reads it), then the tensors that are made.
        scans, makes: how those are gone through.
        iterations: how many there are, at most if `ends`; None if `count` says it, or only the condition.
        count, going: the values of the trip count and of the condition before the first iteration; empty if there are
            none, or if they are known.
    """

    op: str
    body: ModelPlan
    states: tuple[str, ...]
    scanned: tuple[str, ...]
    captures: tuple[str, ...]
    outputs: tuple[str, ...]
    scans: tuple[Along, ...] = ()
    makes: tuple[Along, ...] = ()
    iterations: Dim | None = None
    count: str = ""
    going: str = ""
    ends: bool = False
    name: str = ""
    when: Guarded = ()

    @property
    def made(self) -> tuple[str, ...]:
        """The tensors that are made piece by piece."""
        return self.outputs[len(self.states) :]

    @property
    def is_open(self) -> bool:
        """Whether only a run tells how long the tensors get that it makes: it ends a stage then."""
        return bool(self.makes) and (self.iterations is None or self.ends or bool(self.going))


Item = Step | View | Join | Shape | Fallback | Control | Loop


def reads(item: Item) -> tuple[str, ...]:
    """The values that an item reads; absent inputs left out."""
    if isinstance(item, Step):
        return (*item.inputs, *(v for v, _ in item.when)) if item.when else item.inputs
    if isinstance(item, View):
        return (item.input,)
    if isinstance(item, Join):
        return item.parts
    if isinstance(item, Fallback):
        return tuple(v for v in item.node.inputs if v)
    if isinstance(item, Loop):
        conditions = [v for v, _ in item.when]
        return tuple(
            dict.fromkeys(
                v for v in (*item.states, *item.scanned, *item.captures, item.count, item.going, *conditions) if v
            )
        )
    if isinstance(item, Control):
        conditions = [v for v, _ in item.when]
        return tuple(dict.fromkeys(v for vs in (item.inputs, *item.captures, conditions) for v in vs if v))
    return ()


def writes(item: Item) -> tuple[str, ...]:
    """The values that an item makes."""
    if isinstance(item, Step | Control | Loop):
        return tuple(v for v in item.outputs if v)
    if isinstance(item, Fallback):
        return tuple(v for v in item.node.outputs if v)
    return (item.output,)


def is_host(item: Item) -> bool:
    """Whether Python runs an item, or looks at what it gives: only then its results' extents are known."""
    return isinstance(item, Fallback | Control) or (isinstance(item, Loop) and item.is_open)


def extents_of(item: Item, types: Mapping[str, ValueType]) -> list[Dim]:
    """All the dims whose numbers are needed to run an item."""

    def shapes(values: Iterable[str]) -> list[Dim]:
        kinds = [types.get(v) for v in values]
        return [d for kind in kinds if isinstance(kind, TensorType) for d in kind.shape or ()]

    if isinstance(item, Step):
        pairs = [d for pair in item.only for d in pair]
        return [*shapes((*item.inputs, *item.outputs)), *item.dims, item.scratch, item.threads, *pairs]
    if isinstance(item, Join):
        return [*shapes((*item.parts, item.output)), *item.offsets]
    if isinstance(item, View):
        return [*shapes((item.input, item.output)), item.offset]
    if isinstance(item, Shape):
        return list(item.dims)
    if isinstance(item, Control):
        return [symbol(name) for body in item.bodies for name in body.symbols]
    if isinstance(item, Loop):
        own = shapes((*item.states, *item.scanned, *item.captures, *item.outputs[: len(item.states)]))
        own += [d for v in item.made for d in shapes((v,))[1 if item.is_open else 0 :]]
        iterations = () if item.iterations is None else (item.iterations,)
        return [*own, *iterations, *(symbol(name) for name in item.body.symbols)]
    return []  # a fallback takes its operands as they are


@dataclass(frozen=True)
class Group:
    """Nodes that become one kernel (or a few): a prologue, at most one anchor, an epilogue of elementwise nodes.

    `nodes` stand in topological order. `inputs` are the values read from outside, in order of first use, constants
    among them; `outputs` those that are needed outside, in order of production."""

    nodes: tuple[Node, ...]
    anchor: Node | None  # the one node that isn't elementwise; None if all are
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def op(self) -> str:
        """The operator the group is lowered by: the anchor's, or `""` if all nodes are elementwise."""
        return self.anchor.op if self.anchor else ""

    @property
    def prologue(self) -> tuple[Node, ...]:
        """The nodes before the anchor (none without an anchor)."""
        return self.nodes[: self.nodes.index(self.anchor)] if self.anchor else ()

    @property
    def epilogue(self) -> tuple[Node, ...]:
        """The nodes after the anchor (all of them without an anchor)."""
        return self.nodes[self.nodes.index(self.anchor) + 1 :] if self.anchor else self.nodes

    @property
    def label(self) -> str:
        """The nodes' names, for messages."""
        return " + ".join(node.name or node.op for node in self.nodes)


@dataclass(frozen=True)
class Guard:
    """A question about sizes: whether two dims are equal (or, with `equal` false, different)."""

    left: Dim
    right: Dim
    equal: bool = True


@dataclass(frozen=True)
class Version:
    """The plan of a graph for the sizes on which all guards hold; `fails` if running it ends in an error for sure."""

    guards: tuple[Guard, ...]
    plan: ModelPlan
    fails: bool = False


@dataclass(frozen=True)
class ModelPlan:
    """A graph ready to be built: its interface, and the items in the order they run.

    `constants` holds only what items read or outputs are, packed weights among them; `types` has every value;
    `defaults` the contents of the inputs that need not be given. With `versions` there are no items: one of them is
    run, chosen by the extents that the inputs tell. `fails` says that running it ends in an error for sure."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    items: tuple[Item, ...]
    constants: Mapping[str, Constant]
    types: Mapping[str, ValueType]
    symbols: tuple[str, ...] = ()  # of a body: the extents that it needs from around it
    defaults: Mapping[str, Constant] = field(default_factory=dict)
    versions: tuple[Version, ...] = ()
    fails: bool = False

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels in order of first use, those of bodies among them."""
        found: dict[Kernel, None] = {}
        for item in self.items:
            if isinstance(item, Step):
                found[item.kernel] = None
            elif isinstance(item, Control):
                found.update(dict.fromkeys(k for body in item.bodies for k in body.kernels))
            elif isinstance(item, Loop):
                found.update(dict.fromkeys(item.body.kernels))
        for version in self.versions:
            found.update(dict.fromkeys(version.plan.kernels))
        return tuple(found)

    def type(self, value: str) -> TensorType:
        """The tensor type of a value; all unknown if it is none."""
        found = self.types.get(value)
        return found if isinstance(found, TensorType) else TensorType()

    def fallbacks(self) -> dict[str, int]:
        """The operators without a native kernel and how many nodes of each there are, bodies included.

        Of several versions each operator is counted where it is most frequent."""
        found: dict[str, int] = {}
        for item in self.items:
            if isinstance(item, Fallback) and item.node.op not in HOST_OPERATORS:
                found[item.node.op] = found.get(item.node.op, 0) + 1
            elif isinstance(item, Control):
                for body in item.bodies:
                    for op, count in body.fallbacks().items() if not body.fails else ():
                        found[op] = found.get(op, 0) + count
        for version in self.versions:
            if not version.fails:
                for op, count in version.plan.fallbacks().items():
                    found[op] = max(found.get(op, 0), count)
        return found

    def fallback_nodes(self) -> Iterator[Node]:
        """The nodes without a native kernel, bodies and versions included."""
        for version in self.versions:
            yield from version.plan.fallback_nodes()
        for item in self.items:
            if isinstance(item, Fallback):
                yield item.node
            elif isinstance(item, Control):
                for body in item.bodies:
                    yield from body.fallback_nodes()
