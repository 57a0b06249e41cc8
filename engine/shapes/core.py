"""What an inference rule sees and gives: the call, and the registry of rules by operator.

A rule is a function from a `Call` (an operator with what is known of its inputs) to the types of the outputs. It may
note the contents of small integer outputs in `Call.contents`. Everything a rule says must hold for every run that does
not fail; what it does not know it leaves unknown. A call that fails for all inputs is refused with `IllTyped`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..graph import Attrs, AttrValue, Constant, DType, TensorType, ValueType
from ..symbolic import Dim, at_least, broadcast, certainly_differ

MAX_ELEMENTS = 64
"""Integer tensors of at most this many elements have their contents followed."""

Shape = tuple[Dim, ...]


class IllTyped(Exception):
    """An operator applied to inputs for which it fails whatever their contents, such as Concat of different ranks."""


class Misfit(IllTyped):
    """Sizes that differ where they have to be equal, so that there is nothing to compute, whoever computes it."""


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """The known contents of a small tensor of integers or booleans, of rank 0 (one element) or 1.

    Elements are dims; they may be negative. Arithmetic is that of integers: values are taken not to overflow, which
    sizes of tensors do not."""

    dims: tuple[Dim, ...]
    rank: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return (len(self.dims),) if self.rank else ()


@dataclass(frozen=True, slots=True)
class Inference:
    """The types of all outputs, and the contents of those that are followed."""

    types: tuple[ValueType, ...]
    values: tuple[SymbolicValue | None, ...]


@dataclass(slots=True)
class Call:
    """An operator applied to inputs, with what is known of them; absent inputs have the type None."""

    op: str
    attrs: Attrs
    types: Sequence[ValueType | None]
    values: Sequence[SymbolicValue | None]
    constants: Sequence[Constant | None]
    n_outputs: int
    fresh: Callable[[], Dim]
    contents: dict[int, SymbolicValue] = field(default_factory=dict)

    @property
    def n_inputs(self) -> int:
        """The number of inputs, absent ones among them."""
        return len(self.types)

    def present(self, i: int) -> bool:
        """Whether input i is there."""
        return i < len(self.types) and self.types[i] is not None

    def type(self, i: int) -> TensorType:
        """The type of input i; all unknown if it is absent or no tensor."""
        found = self.types[i] if i < len(self.types) else None
        return found if isinstance(found, TensorType) else TensorType()

    def dtype(self, i: int = 0) -> DType | None:
        """The element type of input i."""
        return self.type(i).dtype

    def shape(self, i: int = 0) -> Shape | None:
        """The shape of input i."""
        return self.type(i).shape

    def rank(self, i: int = 0) -> int | None:
        """The rank of input i."""
        return self.type(i).rank

    def value(self, i: int) -> SymbolicValue | None:
        """The contents of input i, if they are followed."""
        return self.values[i] if i < len(self.values) else None

    def dims(self, i: int) -> Shape | None:
        """The contents of input i as a list."""
        found = self.value(i)
        return None if found is None else found.dims

    def ints(self, i: int) -> tuple[int, ...] | None:
        """The contents of input i, if they are all known numbers."""
        found = self.dims(i)
        if found is None or not all(isinstance(d, int) for d in found):
            return None
        return tuple(d for d in found if isinstance(d, int))

    def array(self, i: int) -> np.ndarray | None:
        """The contents of input i, if it is a constant."""
        found = self.constants[i] if i < len(self.constants) else None
        return None if found is None else found.array

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        found = self.attrs.get(name, default)
        return found if isinstance(found, int) else default

    def text(self, name: str, default: str = "") -> str:
        """A string attribute."""
        found = self.attrs.get(name, default)
        return found if isinstance(found, str) else default

    def int_list(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers; None if absent."""
        found = self.attrs.get(name)
        return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else None

    def attr(self, name: str) -> AttrValue | None:
        """Any attribute; None if absent."""
        return self.attrs.get(name)

    def unknown_dims(self, rank: int | None) -> Shape | None:
        """A shape of this rank with nothing known of the dims; nothing is known of ranks that no tensor can have,
        which a shape may claim whose own length is the product of a model's numbers."""
        return None if rank is None or rank > MAX_ELEMENTS else tuple(self.fresh() for _ in range(rank))


Types = Sequence[ValueType]
Rule = Callable[[Call], Types]
RULES: dict[str, Rule] = {}
"""The inference rule of each operator at the working opset."""
R = TypeVar("R", bound=Rule)


def rule(*ops: str) -> Callable[[R], R]:
    """Registers the decorated function as the inference rule of these operators."""

    def register(function: R) -> R:
        for op in ops:
            assert op not in RULES, op
            RULES[op] = function
        return function

    return register


def refuse(call: Call, reason: str) -> IllTyped:
    """The exception for a call that always fails."""
    return IllTyped(f"{call.op}: {reason}")


def axis_of(call: Call, axis: int, rank: int) -> int:
    """An axis attribute, made non-negative; refuses one out of range."""
    if not -rank <= axis < rank:
        raise refuse(call, f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(call: Call, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Several axes, made non-negative, in their order."""
    return tuple(axis_of(call, axis, rank) for axis in axes)


def join_shapes(call: Call, *shapes: Shape | None) -> Shape | None:
    """The broadcast shape of all; None if one is unknown, refused if they cannot be broadcast together."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    joined = broadcast(*known)
    if joined is None:
        raise Misfit(f"{call.op}: cannot broadcast " + " with ".join(f"[{', '.join(map(str, s))}]" for s in known))
    return joined


def agree(call: Call, a: Dim, b: Dim, what: str) -> Dim:
    """The one size that two dims have that must be equal; the more certain of the two. Refuses provably unequal."""
    if certainly_differ(a, b):
        raise Misfit(f"{call.op}: {what}: {a} is not {b}")
    return b if isinstance(b, int) and not isinstance(a, int) else a


def size_of(call: Call, d: Dim) -> Dim:
    """The dim as the size of an output: should it be negative at run time the operator fails, so it is taken as it is.

    Refuses what is certainly negative."""
    if at_least(-1, d):
        raise refuse(call, f"a dim of the output would be {d}")
    return d


def like(call: Call, i: int = 0) -> TensorType:
    """The type of input i."""
    return call.type(i)


def dtype_attr(call: Call, name: str, default: DType | None = None) -> DType | None:
    """An attribute that names an element type by its ONNX number; the default if absent or zero."""
    found = call.attrs.get(name)
    if not isinstance(found, int) or found == 0:
        return default
    try:
        return DType.from_onnx(found)
    except ValueError:
        return default
