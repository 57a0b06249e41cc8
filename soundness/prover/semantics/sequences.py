"""Meaning of sequences of known members, and of optionals that have an element: lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ..paths import element_types
from ..paths.path import Infeasible, NotModeled, Path
from ..paths.tensors import Tensor
from ..terms.integers import Int
from ..terms.scalars import ONE, Scalar, number
from .semantics_registry import Attrs, operator


class Members(Tensor):
    """Sequence or optional (`kind`) of these tensors. It has neither a shape nor elements of its own."""

    def __init__(self, path: Path, kind: str, members: Sequence[Tensor], dtype: str) -> None:
        super().__init__(path, [], self._no_element, dtype=dtype)
        self.kind = kind
        self.members = tuple(members)

    @property
    def shape(self) -> list[Int]:
        """Raise `NotModeled`."""
        raise NotModeled(f"the shape of a {self.kind}")

    @property
    def rank(self) -> int:
        """Raise `NotModeled`."""
        raise NotModeled(f"the rank of a {self.kind}")

    def _no_element(self, index: list[Int]) -> Scalar:
        raise NotModeled(f"an element of a {self.kind}")


def _sequence(x: Tensor) -> Members:
    """Return a sequence of known members. Raises `NotModeled` for others."""
    if not isinstance(x, Members) or x.kind != "sequence":
        raise NotModeled("a sequence of unknown members")
    return x


def _made(path: Path, members: Sequence[Tensor], dtype: str) -> Members:
    element_types.unify(path, dtype, *(t.dtype for t in members))
    if any(isinstance(t, Members) for t in members):
        raise NotModeled("a sequence of sequences")
    return Members(path, "sequence", members, dtype)


def _position(path: Path, at: Tensor, count: int) -> int:
    """Return the position that a scalar means, which may count from the end."""
    if at.fixed is None:
        at.fix_rank(0)
    path.require(at.rank == 0, "a position is a scalar")
    return path.place(at.integer_at([]), count, "position in a sequence")


@operator("SequenceConstruct")
def construct(path: Path, attrs: Attrs, first: Tensor, *others: Tensor) -> Tensor:
    """List the operands."""
    return _made(path, [first, *others], first.dtype)


@operator("SequenceAt")
def member(path: Path, attrs: Attrs, sequence: Tensor, at: Tensor) -> Tensor:
    """Return a member."""
    members = _sequence(sequence).members
    return members[_position(path, at, len(members))]


@operator("SequenceLength")
def length(path: Path, attrs: Attrs, sequence: Tensor) -> Tensor:
    """Count the members."""
    count = len(_sequence(sequence).members)
    return Tensor(path, [], lambda index: number(count), dtype="i64", values=lambda: [count])


@operator("SequenceInsert")
def insert(path: Path, attrs: Attrs, sequence: Tensor, x: Tensor, at: Tensor | None = None) -> Tensor:
    """Append a member."""
    if at is not None:
        raise NotModeled("a member that is not inserted at the end")
    return _made(path, [*_sequence(sequence).members, x], sequence.dtype)


@operator("SequenceErase")
def erase(path: Path, attrs: Attrs, sequence: Tensor, at: Tensor | None = None) -> Tensor:
    """Drop a member, by default the last."""
    members = list(_sequence(sequence).members)
    path.require(bool(members), "a sequence has a member to drop")
    del members[len(members) - 1 if at is None else _position(path, at, len(members))]
    return _made(path, members, sequence.dtype)


@operator("Optional")
def optional(path: Path, attrs: Attrs, x: Tensor | None = None) -> Tensor:
    """Wrap a tensor or sequence."""
    if x is None:
        raise NotModeled("an optional without an element")
    return Members(path, "optional", [x], x.dtype)


@operator("OptionalHasElement")
def has_element(path: Path, attrs: Attrs, x: Tensor | None = None) -> Tensor:
    """Whether there is an element; only optionals that have one are modeled."""
    if not isinstance(x, Members) or x.kind != "optional":
        raise NotModeled("an optional that may be empty")
    return Tensor(path, [], lambda index: ONE, dtype="bool")


@operator("OptionalGetElement")
def element(path: Path, attrs: Attrs, x: Tensor) -> Tensor:
    """Return the element of an optional."""
    if not isinstance(x, Members) or x.kind != "optional":
        raise NotModeled("an optional that may be empty")
    return x.members[0]


def pairs(path: Path, a: Tensor, b: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors to compare for two values: themselves, or the members of two sequences."""
    if not isinstance(a, Members) and not isinstance(b, Members):
        return [(a, b)]
    if not isinstance(a, Members) or not isinstance(b, Members) or a.kind != b.kind:
        raise Infeasible("a sequence is not a tensor")
    if len(a.members) != len(b.members):
        raise NotModeled("sequences of different lengths")
    return [p for x, y in zip(a.members, b.members, strict=True) for p in pairs(path, x, y)]
