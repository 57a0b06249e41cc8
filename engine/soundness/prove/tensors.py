"""Tensors as functions of an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import integers, scalars
from .integers import Atom, Bool, Int, Poly
from .path import Infeasible, NotModelled, Path
from .scalars import Scalar

At = Callable[[list[Int]], Scalar]


class Tensor:
    """A shape and what is at each index.

    `place` reads by the place of an element row by row, where that is simpler than the index. `values` are the
    contents of an integer tensor of rank 0 or 1 whose length is known. `dtype` names a class of element types."""

    def __init__(
        self,
        path: Path,
        shape: Sequence[Int],
        at: At,
        *,
        dtype: str,
        place: Callable[[Int], Scalar] | None = None,
        values: Callable[[], list[Int]] | None = None,
    ) -> None:
        self.path = path
        self._shape = [path.normal(d) for d in shape]
        self._at = at
        self._place = place
        self._values = values
        self.dtype = dtype

    @property
    def shape(self) -> list[Int]:
        """The dims, as simple as what is known by now makes them."""
        return [self.path.normal(d) for d in self._shape]

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self._shape)

    @property
    def size(self) -> Int:
        """The number of elements."""
        return self.path.normal(integers.product(self.shape))

    def at(self, index: Sequence[Int]) -> Scalar:
        """The element at an index."""
        self.path.tick()
        return self._at([self.path.normal(i) for i in index])

    def at_place(self, place: Int) -> Scalar:
        """The element at a place, row by row."""
        if self._place is not None:
            return self._place(self.path.normal(place))
        return self.at(self.path.unflatten(place, self.shape))

    def values(self, count: int | None = None) -> list[Int]:
        """The contents as integers, `count` of them if that is known; `NotModelled` where they are not followed."""
        if self._values is None:
            raise NotModelled("the contents of a computed tensor")
        return [self.path.normal(v) for v in self._values()]

    def integer_at(self, index: Sequence[Int]) -> Int:
        """The element at an index as an integer, to index with."""
        found = self.at(index)
        if found.op == "int":
            return self.path.normal(found.args[0])
        if found.op == "const" and not isinstance(found.args[0], str) and found.args[0].denominator == 1:
            return int(found.args[0])
        raise NotModelled("an index that is computed")


class Leaf(Tensor):
    """A tensor of the pattern: its rank and dims are variables of the path, its elements are reads."""

    def __init__(self, path: Path, name: str, rank: int | None = None, dtype: str | None = None) -> None:
        self.path = path
        self.name = name
        self.fixed = rank
        self.per_axis = 1
        self.dtype = dtype or f"dtype of {name}"
        self._dims: list[Int] | None = None
        self._place = self._read_place
        self._values = None

    @property
    def shape(self) -> list[Int]:
        """The dims: a rank is chosen when they are first asked for."""
        if self._dims is None:
            if self.path.extra.get("pointwise"):
                raise NotModelled("the shape of a tensor")
            rank = self.fixed
            if rank is None:
                rank = self.path.choose(range(self.path.max_rank + 1), f"rank of {self.name}")
            self._dims = [self.path.size(f"{self.name}.{i}") for i in range(rank)]
        return [self.path.normal(d) for d in self._dims]

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def at(self, index: Sequence[Int]) -> Scalar:
        """The read of an element."""
        self.path.tick()
        return self._read("read", [self.path.normal(i) for i in index])

    def _read_place(self, place: Int) -> Scalar:
        return self._read("flat", [place])

    def _read(self, op: str, index: list[Int]) -> Scalar:
        known = self.path.extra.get(("value of", self.name))
        if known is not None:
            return known(index) if callable(known) and op == "read" else _constant(known)
        if ("integers", self.name) in self.path.extra and op == "read":
            return scalars.number(self.path.normal(integers.of_atom(Atom(self.name, "data", tuple(index)))))
        return Scalar(op, (self.name, *index))

    def integer_at(self, index: Sequence[Int]) -> Int:
        """An element as an integer: the tensor is one of integers, then."""
        self.path.extra[("integers", self.name)] = True
        return super().integer_at(index)

    def values(self, count: int | None = None) -> list[Int]:
        """The contents as integers: the length is chosen, the elements are variables."""
        path, key = self.path, ("contents", self.name)
        if key not in path.extra:
            path.extra[("integers", self.name)] = True
            if self._dims is None and self.fixed is None:
                self.fixed = path.choose((1, 0), f"rank of {self.name}")
            if self.rank > 1:
                raise Infeasible(f"{self.name} is no list")
            if not self.rank:
                places: list[tuple[int, ...]] = [()]
            else:
                if count is not None:
                    path.assume(integers.eq(self.shape[0], count))
                most = max(2, path.max_rank * self.per_axis)
                count = path.concrete(self.shape[0], 0, most, f"length of {self.name}", certain=True)
                places = [(i,) for i in range(count)]
            path.extra[key] = [integers.of_atom(Atom(self.name, "data", p)) for p in places]
            for told in path.extra.pop(("targets", self.name), []):
                told(path.extra[key])
        return [path.normal(v) for v in path.extra[key]]


def _constant(known: Any) -> Scalar:
    if not isinstance(known, Scalar):
        raise NotModelled("the place of an element of a described tensor")
    return known


def select(path: Path, cond: Bool, a: Callable[[], Scalar], b: Callable[[], Scalar]) -> Scalar:
    """`a` where the condition holds, else `b`: by cases, or within a sum as a choice."""
    cond = path.normal_cond(cond)
    if isinstance(cond, bool):
        return a() if cond else b()
    if path.is_bound(cond):
        if path.entails(cond):
            return a()
        if path.entails(integers.negate(cond)):
            return b()
        return scalars.choice(cond, a(), b())
    return a() if path.decide(cond) else b()


def strides(shape: Sequence[Int]) -> list[Int]:
    """How far apart, row by row, neighbours along each axis are."""
    out: list[Int] = []
    step: Int = 1
    for d in reversed(list(shape)):
        out.append(step)
        step = step * d
    return out[::-1]


def place_of(index: Sequence[Int], shape: Sequence[Int]) -> Int:
    """The place of an index, row by row."""
    total: Int = 0
    for i, s in zip(index, strides(shape), strict=True):
        total = total + i * s
    return total


def broadcast(path: Path, shapes: Sequence[Sequence[Int]]) -> list[Int]:
    """The shape that shapes broadcast to, by cases on which dims are 1."""
    rank = max(map(len, shapes), default=0)
    out: list[Int] = []
    for k in range(rank):
        dims = [s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0]
        found: Int = 1
        for d in dims:
            found = _meet(path, path.normal(found), path.normal(d))
        out.append(found)
    return out


def _meet(path: Path, a: Int, b: Int) -> Int:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if _depth(b) > _depth(a):  # the simpler one first: of what is computed, the result mostly has the shape
        a, b = b, a
    if path.decide(integers.eq(b, 1)):
        return path.normal(a)
    if path.decide(integers.eq(a, 1)):
        return path.normal(b)
    path.require(integers.eq(a, b), "shapes broadcast", typed=True)
    return path.normal(a)


def _depth(d: Int) -> int:
    return (
        max((len(m) + 9 * any(a.kind == "div" for a in m) for m, _ in d.terms), default=0) if isinstance(d, Poly) else 0
    )


def read_broadcast(path: Path, x: Tensor, index: Sequence[Int]) -> Scalar:
    """The element of an operand for an index of the result."""
    shape = x.shape
    index = list(index)[len(index) - len(shape) :] if shape else []
    return x.at([0 if d == 1 or path.entails(integers.eq(d, 1)) else i for i, d in zip(index, shape, strict=True)])


def arange(path: Path, sizes: Sequence[Int], stem: str) -> list[Int]:
    """New variables to sum over."""
    return [path.index(path.fresh(stem), path.normal(d), summed=True) for d in sizes]
