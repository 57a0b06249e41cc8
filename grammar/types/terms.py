"""Types while they are inferred: sets of element types and shapes that are narrowed and made equal.

Each remembers the place that narrowed it last, so that a conflict can show where the other type came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ast import Span
from ..diagnostics import Label
from .linear import Linear, Store
from .type import shown


@dataclass(frozen=True, slots=True)
class Origin:
    """Why something is known: a place, and what it says there."""

    span: Span
    text: str


class Conflict(Exception):
    """Two things that can never both hold."""

    def __init__(self, code: str, message: str, labels: tuple[Label, ...] = (), hint: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.labels, self.hint = code, message, labels, hint


def _label(origin: Origin | None, span: Span) -> tuple[Label, ...]:
    return () if origin is None or origin.span == span else (Label(origin.span, origin.text),)


@dataclass(slots=True, eq=False)
class DTypes:
    """The element types that something may have. Equal ones share their end of the chain `same`."""

    allowed: frozenset[str] | None = None
    origin: Origin | None = None
    name: str = ""
    same: DTypes | None = None

    def end(self) -> DTypes:
        """The node that all equal ones share."""
        node = self
        while node.same is not None:
            node = node.same
        return node

    def narrow(self, allowed: frozenset[str] | None, origin: Origin) -> None:
        """Keep the element types in `allowed` only."""
        node = self.end()
        if allowed is None:
            return
        if node.allowed is None:
            node.allowed, node.origin = allowed, origin
            return
        both = node.allowed & allowed
        if not both:
            raise _dtype_conflict(node.allowed, allowed, node.origin, origin)
        if both != node.allowed:
            node.allowed, node.origin = both, origin

    def unify(self, other: DTypes, origin: Origin) -> None:
        """Make two equal."""
        left, right = self.end(), other.end()
        if left is right:
            return
        if left.allowed is not None and right.allowed is not None and not left.allowed & right.allowed:
            raise _dtype_conflict(left.allowed, right.allowed, left.origin, right.origin or origin, origin)
        if right.allowed is not None and (left.allowed is None or not left.allowed <= right.allowed):
            narrower = left.allowed is None or right.allowed < left.allowed
            left.allowed = right.allowed if left.allowed is None else left.allowed & right.allowed
            left.origin = right.origin if narrower else origin
        left.name = left.name or right.name
        right.same = left


def _dtype_conflict(
    left: frozenset[str], right: frozenset[str], first: Origin | None, second: Origin, at: Origin | None = None
) -> Conflict:
    a, b = (shown(s) for s in (left, right))
    span = (at or second).span
    labels = _label(first, span)
    if at is not None and second is not first:
        labels += tuple(label for label in _label(second, span) if label not in labels)
    return Conflict("dtype-conflict", f"the element type would have to be both {a} and {b}", labels)


@dataclass(slots=True, eq=False)
class Shape:
    """A rank and some dims, by place from the front or (negative) from the end."""

    rank: Linear
    dims: dict[int, Linear] = field(default_factory=dict)
    origin: Origin | None = None
    places: dict[int, Origin] = field(default_factory=dict)
    same: Shape | None = None

    def end(self) -> Shape:
        """The node that all equal ones share."""
        node = self
        while node.same is not None:
            node = node.same
        return node


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor's type. `const` is None where nothing is known of it."""

    dtype: DTypes
    shape: Shape
    const: bool | None = None
    const_origin: Origin | None = None


class Shapes:
    """Operations on shapes that share one store of unknowns."""

    def __init__(self) -> None:
        self.store = Store()

    def tensor(self) -> Tensor:
        """A tensor of which nothing is known."""
        return Tensor(DTypes(), Shape(self.store.fresh()))

    def shape(self, dims: list[Linear], origin: Origin | None = None) -> Shape:
        """A shape of known rank."""
        return Shape(Linear(len(dims)), dict(enumerate(dims)), origin)

    def rank(self, shape: Shape) -> tuple[int, int | None]:
        """The bounds of a rank."""
        low, high = self.store.bounds(shape.end().rank)
        return low or 0, high

    def known_rank(self, shape: Shape) -> int | None:
        """The rank if it is one number."""
        low, high = self.rank(shape)
        return low if low == high else None

    def dims(self, shape: Shape) -> list[Linear] | None:
        """All dims, None where the rank is not known. Those not mentioned before are unknowns from now on."""
        shape = shape.end()
        rank = self.known_rank(shape)
        if rank is None or rank > 64:
            return None
        self._settle(shape, rank, shape.origin)
        return [shape.dims.setdefault(i, self.store.fresh()) for i in range(rank)]

    def dim(self, shape: Shape, place: int, origin: Origin) -> Linear:
        """The dim at a place, which must exist."""
        shape = shape.end()
        self.at_least(shape, place + 1 if place >= 0 else -place, origin)
        rank = self.known_rank(shape)
        if rank is not None and place < 0:
            place += rank
        found = shape.dims.get(place)
        if found is None:
            found = shape.dims[place] = self.store.fresh()
        return found

    def at_least(self, shape: Shape, bound: int, origin: Origin) -> None:
        """Note a least rank."""
        shape = shape.end()
        before = self.rank(shape)
        if not self.store.at_least(shape.rank, bound):
            raise self._rank_conflict(shape, f"at least {bound}", origin)
        if self.rank(shape) != before:
            shape.origin = origin

    def at_most(self, shape: Shape, bound: int, origin: Origin) -> None:
        """Note a greatest rank."""
        shape = shape.end()
        before = self.rank(shape)
        if not self.store.at_most(shape.rank, bound):
            raise self._rank_conflict(shape, f"at most {bound}", origin)
        if self.rank(shape) != before:
            shape.origin = origin

    def equal_rank(self, shape: Shape, rank: Linear, origin: Origin) -> None:
        """Note the rank."""
        shape = shape.end()
        before = self.rank(shape)
        if not self.store.equate(shape.rank, rank):
            low, high = self.store.bounds(rank)
            wanted = str(low) if low == high else f"at least {low}" if high is None else f"at most {high}"
            raise self._rank_conflict(shape, wanted, origin)
        if self.rank(shape) != before:
            shape.origin = origin

    def equal_dim(self, left: Linear, right: Linear, origin: Origin, because: Origin | None = None) -> None:
        """Note that two dims are equal."""
        if not self.store.equate(left, right):
            a, b = self.describe(left), self.describe(right)
            raise Conflict("dim-conflict", f"a dim would have to be both {a} and {b}", _label(because, origin.span))

    def describe(self, value: Linear) -> str:
        """A dim for a message."""
        text = self.store.text(value)
        low, high = self.store.bounds(value)
        if text != "_":
            return text
        return f"at least {low}" if high is None else f"at most {high}"

    def unify(self, left: Shape, right: Shape, origin: Origin) -> None:
        """Make two shapes equal."""
        left, right = left.end(), right.end()
        if left is right:
            return
        a, b = self.rank(left), self.rank(right)
        if not self.store.equate(left.rank, right.rank):
            conflict = self._rank_conflict(left, _rank_text(b), origin)
            conflict.labels += tuple(x for x in _label(right.origin, origin.span) if x not in conflict.labels)
            raise conflict
        if left.origin is None or (b[0] >= a[0] and b[1] is not None and right.origin is not None and a != b):
            left.origin = right.origin or left.origin
        right.same = left
        rank = self.known_rank(left)
        if rank is not None:
            self._settle(left, rank, origin)
        for place, dim in right.dims.items():
            at = place + rank if rank is not None and place < 0 else place
            mine = left.dims.get(at)
            if mine is None:
                left.dims[at] = dim
                if place in right.places:
                    left.places.setdefault(at, right.places[place])
            else:
                self.equal_dim(mine, dim, origin, left.places.get(at) or right.places.get(place))

    def _settle(self, shape: Shape, rank: int, origin: Origin | None) -> None:
        """Count places from the front, now that the rank is known."""
        for place in [p for p in shape.dims if p < 0]:
            dim = shape.dims.pop(place)
            mine = shape.dims.get(place + rank)
            if mine is None:
                shape.dims[place + rank] = dim
            elif origin is not None:
                self.equal_dim(mine, dim, origin, shape.places.get(place + rank))
            else:
                self.store.equate(mine, dim)

    def _rank_conflict(self, shape: Shape, wanted: str, origin: Origin) -> Conflict:
        has = _rank_text(self.rank(shape))
        return Conflict(
            "rank-conflict", f"the rank would have to be both {has} and {wanted}", _label(shape.origin, origin.span)
        )


def _rank_text(bounds: tuple[int, int | None]) -> str:
    low, high = bounds
    if low == high:
        return str(low)
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low == 0 else f"{low} to {high}"
