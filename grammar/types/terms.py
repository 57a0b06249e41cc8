"""Types during inference: sets of element types and partial shapes, restricted and unified; values of expressions.

Each type keeps the place that restricted it last, so that a conflict can show where the other type came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, TypeVar

from ..diagnostics import Label
from ..syntax.ast import Span
from .linear import Linear, Store
from .type import shown

T = TypeVar("T")


class Conflict(Exception):
    """Two facts that exclude each other."""

    def __init__(self, code: str, message: str, labels: tuple[Label, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.labels = code, message, labels


def _elsewhere(origin: Label | None, span: Span) -> tuple[Label, ...]:
    return () if origin is None or origin.span == span else (origin,)


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A term of a union-find structure: equal ones share the last node of the chain `same`."""

    same: Self | None = None

    def end(self) -> Self:
        """Return the node that all equal ones share."""
        node = self
        while node.same is not None:
            node = node.same
        return node


@dataclass(slots=True, eq=False)
class DTypes(Node):
    """Set of possible element types, None for any."""

    allowed: frozenset[str] | None = None
    origin: Label | None = None
    name: str = ""

    def restrict(self, allowed: frozenset[str] | None, origin: Label) -> None:
        """Remove the element types that are not in `allowed`."""
        node = self.end()
        if allowed is None:
            return
        both = allowed if node.allowed is None else node.allowed & allowed
        if node.allowed is not None and not both:
            raise _dtype_conflict(node.allowed, allowed, node.origin, origin)
        if both != node.allowed:
            node.allowed, node.origin = both, origin

    def unify(self, other: DTypes, origin: Label) -> None:
        """Make two sets equal."""
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
    left: frozenset[str], right: frozenset[str], first: Label | None, second: Label, at: Label | None = None
) -> Conflict:
    span = (at or second).span
    labels = _elsewhere(first, span)
    if at is not None and second is not first:
        labels = tuple(dict.fromkeys((*labels, *_elsewhere(second, span))))
    message = f"the element type would have to be both {shown(left)} and {shown(right)}"
    return Conflict("dtype-conflict", message, labels)


@dataclass(slots=True, eq=False)
class Shape(Node):
    """A rank and some dims, by place from the front or (negative) from the end."""

    rank: Linear
    dims: dict[int, Linear] = field(default_factory=dict)
    origin: Label | None = None
    places: dict[int, Label] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Tensor:
    """Type of a tensor. `const` is None if unknown."""

    dtype: DTypes
    shape: Shape
    const: bool | None = None
    const_origin: Label | None = None

    @property
    def rank(self) -> Linear:
        """The number of dims."""
        return self.shape.end().rank


def place_count(place: int) -> int:
    """Return how many elements a list has at least if it has one at a place."""
    return place + 1 if place >= 0 else -place


class Shapes:
    """Operations on shapes that share one store of unknowns."""

    def __init__(self) -> None:
        self.store = Store()

    def rank(self, shape: Shape) -> tuple[int, int | None]:
        """Return the bounds of a rank."""
        low, high = self.store.bounds(shape.end().rank)
        return low or 0, high

    def known_rank(self, shape: Shape) -> int | None:
        """Return the rank if it is a single number."""
        low, high = self.rank(shape)
        return low if low == high else None

    def dims(self, shape: Shape) -> list[Linear] | None:
        """Return all dims; None if the rank is unknown. Dims without an entry become fresh unknowns."""
        shape = shape.end()
        rank = self.known_rank(shape)
        if rank is None or rank > 64:
            return None
        self._normalize_places(shape, rank, shape.origin)
        return [shape.dims.setdefault(i, self.store.fresh()) for i in range(rank)]

    def dim(self, shape: Shape, place: int, origin: Label) -> Linear:
        """Return the dim at a place, which must exist."""
        shape = shape.end()
        self.at_least(shape, place_count(place), origin)
        rank = self.known_rank(shape)
        if rank is not None and place < 0:
            place += rank
        return shape.dims.get(place) or shape.dims.setdefault(place, self.store.fresh())

    def at_least(self, shape: Shape, bound: int, origin: Label) -> None:
        """Require a minimum rank."""
        self._restrict(shape, self.store.at_least, bound, lambda: f"at least {bound}", origin)

    def at_most(self, shape: Shape, bound: int, origin: Label) -> None:
        """Require a maximum rank."""
        self._restrict(shape, self.store.at_most, bound, lambda: f"at most {bound}", origin)

    def equal_rank(self, shape: Shape, rank: Linear, origin: Label) -> None:
        """Require a rank."""

        def wanted() -> str:
            low, high = self.store.bounds(rank)
            return str(low) if low == high else f"at least {low}" if high is None else f"at most {high}"

        self._restrict(shape, self.store.equate, rank, wanted, origin)

    def _restrict(
        self, shape: Shape, add: Callable[[Linear, T], bool], to: T, wanted: Callable[[], str], origin: Label
    ) -> None:
        shape = shape.end()
        before = self.rank(shape)
        if not add(shape.rank, to):
            raise self._rank_conflict(shape, wanted(), origin)
        if self.rank(shape) != before:
            shape.origin = origin

    def equal_dim(self, left: Linear, right: Linear, origin: Label, because: Label | None = None) -> None:
        """Require two dims to be equal."""
        if not self.store.equate(left, right):
            message = f"a dim would have to be both {self.describe(left)} and {self.describe(right)}"
            raise Conflict("dim-conflict", message, _elsewhere(because, origin.span))

    def describe(self, value: Linear) -> str:
        """Describe a dim for a message."""
        text = self.store.text(value)
        low, high = self.store.bounds(value)
        return text if text != "_" else f"at least {low}" if high is None else f"at most {high}"

    def unify(self, left: Shape, right: Shape, origin: Label) -> None:
        """Make two shapes equal."""
        left, right = left.end(), right.end()
        if left is right:
            return
        a, b = self.rank(left), self.rank(right)
        if not self.store.equate(left.rank, right.rank):
            conflict = self._rank_conflict(left, _rank_text(b), origin)
            conflict.labels = tuple(dict.fromkeys((*conflict.labels, *_elsewhere(right.origin, origin.span))))
            raise conflict
        if left.origin is None or (b[0] >= a[0] and b[1] is not None and right.origin is not None and a != b):
            left.origin = right.origin or left.origin
        right.same = left
        rank = self.known_rank(left)
        if rank is not None:
            self._normalize_places(left, rank, origin)
        for place, dim in right.dims.items():
            at = place + rank if rank is not None and place < 0 else place
            if at in left.dims:
                self.equal_dim(left.dims[at], dim, origin, left.places.get(at) or right.places.get(place))
            else:
                left.dims[at] = dim
                if place in right.places:
                    left.places.setdefault(at, right.places[place])

    def _normalize_places(self, shape: Shape, rank: int, origin: Label | None) -> None:
        """Convert places to count from the front, once the rank is known."""
        for place in [p for p in shape.dims if p < 0]:
            dim = shape.dims.pop(place)
            mine = shape.dims.setdefault(place + rank, dim)
            if origin is not None:
                self.equal_dim(mine, dim, origin, shape.places.get(place + rank))
            else:
                self.store.equate(mine, dim)

    def _rank_conflict(self, shape: Shape, wanted: str, origin: Label) -> Conflict:
        message = f"the rank would have to be both {_rank_text(self.rank(shape))} and {wanted}"
        return Conflict("rank-conflict", message, _elsewhere(shape.origin, origin.span))


def _rank_text(bounds: tuple[int, int | None]) -> str:
    low, high = bounds
    if low == high:
        return str(low)
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low == 0 else f"{low} to {high}"


# --- values of expressions

ATTRIBUTE_SORTS = {
    "INT": "int", "FLOAT": "float", "STRING": "string", "INTS": "ints", "FLOATS": "floats", "STRINGS": "strings",
    "TENSOR": "tensor", "GRAPH": "graph", "GRAPHS": "graphs",
}  # fmt: skip
"""Sorts of the kinds of ONNX attributes."""

LISTS = ("list", "ints", "floats", "strings", "dims", "numbers", "graphs", "bools", "dtypes")
NUMERIC = ("int", "dim", "float", "number", "bool")
READ_CONTENTS = "read the contents of a tensor with `ints(..)` or `dims(..)`"


@dataclass(slots=True, eq=False)
class Value:
    """A value of a sort, as far as it is known.

    `number` belongs to an int or dim; `length` and `items` to a list; `shape` is the shape whose dims a list holds.
    `fraction` marks a number that is not an integer."""

    sort: str
    tensor: Tensor | None = None
    number: Linear | None = None
    length: Linear | None = None
    items: list[Value] | None = None
    element: Value | None = None
    shape: Shape | None = None
    dtype: DTypes | None = None
    text: str | None = None
    fraction: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it is certainly a list."""
        return self.sort in LISTS

    @property
    def is_number(self) -> bool:
        """Whether it is certainly a single number or truth value."""
        return self.sort in NUMERIC

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, or several of one type."""
        return self.sort in ("tensor", "tensors")

    def known_items(self) -> list[int] | None:
        """Return the integers of a list that is written out, if all are known."""
        found = [i.number.known if i.sort == "int" and i.number is not None else None for i in self.items or ()]
        known = [n for n in found if n is not None]
        return known if self.items is not None and len(known) == len(found) else None


def unknown() -> Value:
    """Return a value of unknown sort."""
    return Value("any")


def list_of(items: list[Value]) -> Value:
    """Return a list that is written out."""
    return Value("list", length=Linear(len(items)), items=items, element=items[0] if items else None)


def elements_named(name: str, span: Span) -> Value:
    """Return the element type that is written as its name."""
    return Value("dtype", dtype=DTypes(frozenset((name,)), Label(span, f"{name} here")))


def describe(value: Value) -> str:
    """Describe the sort of a value for a message: `a tensor`, `a list`, `an integer`."""
    names = {
        "tensor": "a tensor", "tensors": "several tensors", "int": "an integer", "float": "a number",
        "number": "a number", "bool": "a truth value", "string": "a string", "dtype": "an element type",
        "dim": "a dim", "operator": "an operator", "rest": "a group of remaining attributes", "none": "`none`",
        "graph": "a graph", "contents": "a tensor's contents",
    }  # fmt: skip
    return names.get(value.sort, "a list" if value.is_list else value.sort)
