"""The plan of a model as a graph of kernels: steps that call them, and items that need none.

A `Graph` is cut into groups and each group is lowered to steps. Steps, aliases, numbers known from shapes, and nodes
that Python runs, in order, make up the `ModelPlan`. Everything here is plain data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...engine.ir.graph import Constant, Node, Requirement, TensorType, ValueType
from ...engine.ir.symbolic import Dim, evaluate
from ...system.short_text import clipped, listed, plural
from .kernel import UNKNOWN_WORK, Kernel, Origin

VIEWS = frozenset({"Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten"})
"""Operators that reinterpret an operand's shape."""
HOST_OPERATORS = VIEWS | {"Range"}
"""Operators that Python computes directly where no kernel can: views of a rank that data determine, and a few numbers
whose count does."""

Guarded = tuple[tuple[str, bool], ...]
"""Conditions on which an item runs: one-element booleans, each with the value it must have."""


def _application(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    return f"{listed(outputs)} = {name}({listed(inputs, 5)})"


@dataclass(frozen=True)
class LeadingDimension:
    """Parameters of a step by which one of its buffers may be columns of a wider tensor, as in BLAS.

    Rows are the elements along the last axis, such as the channels of a pixel. They have `length` elements, and start
    further apart in a wider tensor. `buffer` counts the inputs, then the outputs; `params` are paths to the kernel
    parameters that hold the distance between rows in elements, each with a factor, and `dims` such entries of
    `Step.dims`."""

    buffer: int
    length: int
    params: tuple[tuple[tuple[str | int, ...], int], ...]
    dims: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Step:
    """One launch of a kernel: `NAME(bufs, dims, tid, nth)` for each part `tid` of `nth`, after the step before it.

    `bufs` holds the `inputs`, then the `outputs`, then, if `scratch` is not 0, one pointer to `scratch * nth` bytes, of
    which thread `tid` owns the part from `scratch * tid` on. Outputs alias inputs only as `in_place` allows; their
    contents are undefined at the start. Values are names in the graph or from `Context.new_value`.

    Several steps may write a value if at most one of them runs: `when` has the conditions on which one does, and `only`
    pairs of dims of which the first must not exceed the second. `leading_dimensions` exist only during planning."""

    kernel: Kernel
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: tuple[Dim, ...] = ()  # evaluated at run time, passed as int64
    scratch: Dim = 0  # bytes per thread, a multiple of 64
    in_place: tuple[tuple[int, int], ...] = ()  # (input number, output number) that may share a buffer
    threads: Dim = 0  # its work in simple operations; 0: unknown, enough for all threads
    nodes: tuple[str, ...] = ()  # names of the nodes that it implements, for reports
    origins: tuple[Origin, ...] = ()  # the same nodes in full; equal for steps that share the work of a group
    when: Guarded = ()
    only: tuple[tuple[Dim, Dim], ...] = ()
    leading_dimensions: tuple[LeadingDimension, ...] = ()

    def __repr__(self) -> str:
        return f"<Step {_application(self.kernel.template, self.inputs, self.outputs)}>"

    def work(self, extents: Mapping[str, int]) -> int:
        """Return its work for these extents, `UNKNOWN_WORK` if unknown; 0 if the step must not run at all."""
        try:
            if any(evaluate(low, extents) > evaluate(high, extents) for low, high in self.only):
                return 0
        except ValueError:
            if not self.when:
                raise
            return 0  # sizes of a branch that these extents do not fit: the plan refuses to take it
        return max(1, evaluate(self.threads, extents)) if self.threads != 0 else UNKNOWN_WORK


@dataclass(frozen=True)
class View:
    """A value that aliases another: contiguous, `offset` bytes into it. Costs nothing at run time.

    With a `leading_dimension` it is columns of the other value, whose rows have that many elements. Planning replaces
    these: each reader either gets the distance between rows as a parameter, or reads a copy."""

    input: str
    output: str
    offset: Dim = 0
    nodes: tuple[str, ...] = ()
    leading_dimension: int = 0  # in elements; 0: not columns


@dataclass(frozen=True)
class Join:
    """A concatenation in place: each part lies `offset` bytes into the output, and its producer writes it there.

    In a plan, steps (or other joins) produce all parts, and a part belongs to one join only. With a `leading_dimension`
    parts are columns of rows of that many elements; planning replaces these."""

    parts: tuple[str, ...]
    offsets: tuple[Dim, ...]
    output: str
    nodes: tuple[str, ...] = ()
    leading_dimension: int = 0  # in elements; 0: not columns

    def __repr__(self) -> str:
        return f"<Join {_application('', self.parts, (self.output,))}>"


@dataclass(frozen=True)
class Shape:
    """An integer tensor whose elements are known in terms of dims (shape arithmetic): filled in without a kernel."""

    output: str
    dims: tuple[Dim, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """An extent that depends on data: a kernel has counted it. Steps after it write tensors of that size.

    `count` is a value of one i64, which no kernel makes larger than `most`; `extent` is the symbol. When it is read,
    the next stage begins. `name` is the node's, for reports."""

    count: str
    extent: str
    most: Dim
    name: str = ""

    def __repr__(self) -> str:
        return f"<Measure {self.extent} = {self.count}>"


@dataclass(frozen=True)
class Fallback:
    """A node without a native kernel: another implementation of its operator runs it."""

    node: Node


@dataclass(frozen=True)
class Control:
    """An If, Loop, Scan or SequenceMap that Python drives over its bodies, which are compiled programs.

    The inputs of a body are those it has in the model, then the values that it captures: `captures`, one list for each
    body. `attrs` are the operator's other attributes. The operator "Branch" stands for one branch of an `If`, run only
    on the conditions `when`; steps may write its outputs on other conditions."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    bodies: tuple[ModelPlan, ...]
    captures: tuple[tuple[str, ...], ...]
    name: str = ""
    when: Guarded = ()

    def __repr__(self) -> str:
        return f"<Control {_application(self.op, self.inputs, self.outputs)}>"


@dataclass(frozen=True, slots=True)
class Slicing:
    """How a loop slices a tensor: along an axis (of the whole tensor), forward or from its end."""

    axis: int = 0
    reverse: bool = False


@dataclass(frozen=True)
class Loop:
    """A Loop or Scan that the runtime drives over a body of kernels.

    The inputs of the body are, for a Loop, the iteration number and the condition; then the carried values, a slice of
    each scanned tensor, and the captured values. Its outputs are, if `ends`, the condition; then the carried values,
    and a slice of each tensor that the loop makes. Steps write all of them, each to a buffer of its own. A carried
    value has one type from the first iteration to the last.

    Attributes:
        states, scanned, captures: the values that these inputs come from.
        outputs: the carried values after the last iteration ("": unused), then the tensors that the loop makes.
        scans, makes: how the loop slices the scanned tensors and those that it makes.
        iterations: the number of iterations, an upper bound if `ends`; None if only `count` or the condition tell.
        count, going: the values of the trip count and of the condition before the first iteration; empty if absent or
            known.
    """

    op: str
    body: ModelPlan
    states: tuple[str, ...]
    scanned: tuple[str, ...]
    captures: tuple[str, ...]
    outputs: tuple[str, ...]
    scans: tuple[Slicing, ...] = ()
    makes: tuple[Slicing, ...] = ()
    iterations: Dim | None = None
    count: str = ""
    going: str = ""
    ends: bool = False
    name: str = ""
    when: Guarded = ()

    def __repr__(self) -> str:
        return f"<Loop {_application(self.op, (*self.states, *self.scanned), self.outputs)}>"

    @property
    def made(self) -> tuple[str, ...]:
        """The tensors that the loop makes slice by slice."""
        return self.outputs[len(self.states) :]

    @property
    def is_open(self) -> bool:
        """Whether the length of its stacked outputs is known only after it ran. Such a loop ends a stage."""
        return bool(self.makes) and (self.iterations is None or self.ends or bool(self.going))


Item = Step | View | Join | Shape | Measure | Fallback | Control | Loop


def bodies(item: Item) -> tuple[ModelPlan, ...]:
    """Return the plans inside an item."""
    return (item.body,) if isinstance(item, Loop) else item.bodies if isinstance(item, Control) else ()


def is_host(item: Item) -> bool:
    """Return whether Python runs an item or inspects its results, whose extents are unknown before."""
    return isinstance(item, Fallback | Control | Measure) or (isinstance(item, Loop) and item.is_open)


@dataclass(frozen=True)
class Guard:
    """A condition on sizes: two dims are equal (or, if not `equal`, different)."""

    left: Dim
    right: Dim
    equal: bool = True

    def holds(self, extents: Mapping[str, int]) -> bool:
        """Return whether it holds for these extents."""
        return (evaluate(self.left, extents) == evaluate(self.right, extents)) == self.equal


@dataclass(frozen=True)
class Version:
    """The plan of a graph for the sizes on which all guards hold. `fails` if running it always ends in an error."""

    guards: tuple[Guard, ...]
    plan: ModelPlan
    fails: bool = False


@dataclass(frozen=True)
class ModelPlan:
    """A graph ready to be built: its interface, and the items in the order in which they run.

    `constants` holds what items read or outputs are, packed weights included; `types` has every value; `defaults` the
    contents of optional inputs. A plan with `versions` has no items: the extents of the inputs choose the version that
    runs. `fails` if running it always ends in an error. `requirements` are checked before items run for new extents."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    items: tuple[Item, ...]
    constants: Mapping[str, Constant]
    types: Mapping[str, ValueType]
    symbols: tuple[str, ...] = ()  # of a body: extents that it needs from the enclosing plan
    defaults: Mapping[str, Constant] = field(default_factory=dict)
    versions: tuple[Version, ...] = ()
    fails: bool = False
    requirements: tuple[Requirement, ...] = ()

    def __repr__(self) -> str:
        sizes = f"{plural(len(self.items), 'item')}, {plural(len(self.constants), 'constant')}"
        versions = f", {plural(len(self.versions), 'version')}" if self.versions else ""
        return (
            f"<ModelPlan {clipped(self.name, 30)}: {sizes}{versions}, {listed(self.inputs)} → {listed(self.outputs)}>"
        )

    def all_items(self) -> Iterator[Item]:
        """Iterate over the items, each followed by those of its bodies; then over those of all versions."""
        for item in self.items:
            yield item
            for body in bodies(item):
                yield from body.all_items()
        for version in self.versions:
            yield from version.plan.all_items()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels in order of first use, those of bodies included."""
        return tuple(dict.fromkeys(item.kernel for item in self.all_items() if isinstance(item, Step)))

    def type(self, value: str) -> TensorType:
        """Return the tensor type of a value; unknown dtype and shape if it is not a tensor."""
        found = self.types.get(value)
        return found if isinstance(found, TensorType) else TensorType()

    @property
    def is_native(self) -> bool:
        """Whether it consists of kernels, aliases, numbers, and loops over such, in one version."""
        return not self.versions and not any(map(is_host, self.items))

    def fallbacks(self) -> dict[str, int]:
        """Return the operators without a native kernel, each with its number of nodes, bodies included.

        Of several versions, the one with the most nodes of an operator counts."""
        found: Counter[str] = Counter()
        for item in self.items:
            if isinstance(item, Fallback) and item.node.op not in HOST_OPERATORS:
                found[item.node.op] += 1
            for body in bodies(item):
                found.update({} if body.fails else body.fallbacks())
        for version in self.versions:
            found |= Counter({} if version.fails else version.plan.fallbacks())
        return dict(found)
