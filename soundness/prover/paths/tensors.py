"""Symbolic tensors: functions from an index to a scalar."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence

from ..terms import integers, scalars
from ..terms.integers import Atom, Bool, Int, Poly
from ..terms.scalars import Scalar
from .path import NotModeled, Path

At = Callable[[list[Int]], Scalar]


class Tensor:
    """Shape, and the scalar at each index.

    `place` reads by row-major position, where that is simpler than by index. `values` are the contents of an integer
    tensor of rank 0 or 1 whose length is known. `dtype` is an element type or a type variable."""

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
        self.fixed: int | None = len(shape)
        self._at = at
        self._place = place
        self._values = values
        self.dtype = dtype

    @property
    def shape(self) -> list[Int]:
        """Dims, simplified by what is known now."""
        return [self.path.normal(d) for d in self._shape]

    @property
    def dims(self) -> list[Int]:
        """Dims as they were made."""
        return self._shape

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self._shape)

    @property
    def size(self) -> Int:
        """Number of elements."""
        return self.path.normal(integers.product(self.shape))

    def at(self, index: Sequence[Int]) -> Scalar:
        """Return the element at an index."""
        self.path.tick()
        return self._at([self.path.normal(i) for i in index])

    def at_place(self, place: Int) -> Scalar:
        """Return the element at a row-major position."""
        if self._place is not None:
            return self._place(self.path.normal(place))
        return self.at(self.path.unflatten(place, self.shape))

    def fix_rank(self, rank: int) -> None:
        """Set the rank of a variable for which it is still open, as the operator that reads it needs."""
        if self.fixed is None:
            self.fixed = rank

    def require_rank(self, rank: int, what: str) -> None:
        """Fix the rank. Raises `Infeasible` if it is another one."""
        self.fix_rank(rank)
        self.path.require(self.rank == rank, what)

    def values(self, count: int | None = None) -> list[Int]:
        """Return the contents as integers, `count` of them if given. Raises `NotModeled` if they are unknown."""
        if self._values is None:
            raise NotModeled("the contents of a computed tensor")
        return [self.path.normal(v) for v in self._values()]

    def integer_at(self, index: Sequence[Int]) -> Int:
        """Return the element at an index as an integer, to be used as an index."""
        found = self.at(index)
        if found.op == "int":
            return self.path.normal(found.args[0])
        if found.is_number and found.args[0].denominator == 1:
            return int(found.args[0])
        raise NotModeled("an index that is computed")


class Leaf(Tensor):
    """Tensor variable of the pattern: its rank and dims are variables of the path, its elements are reads."""

    def __init__(self, path: Path, name: str, rank: int | None = None, dtype: str | None = None) -> None:
        self.path = path
        self.name = name
        self.fixed = rank
        self.least = 0
        """Least rank that a `given` clause allows."""
        self.per_axis = 1
        self.dtype = dtype or f"dtype of {name}"
        self._values = None

    @functools.cached_property
    def _shape(self) -> list[Int]:  # type: ignore[override]
        """Dims; the rank is chosen on first access."""
        if self.path.pointwise:
            raise NotModeled("the shape of a tensor")
        if self.fixed is None:
            self.fixed = self.path.any_rank(self.name, self.least)
        return [self.path.size(f"{self.name}.{i}") for i in range(self.fixed)]

    def at(self, index: Sequence[Int]) -> Scalar:
        """Return the element at an index."""
        self.path.tick()
        return self._read("read", [self.path.normal(i) for i in index])

    def at_place(self, place: Int) -> Scalar:
        """Return the element at a row-major position."""
        return self._read("flat", [self.path.normal(place)])

    def _read(self, op: str, index: list[Int]) -> Scalar:
        known = self.path.extra.get(("value of", self.name))
        if op == "read" and callable(known):
            return known(index)  # type: ignore[no-any-return]
        if known is not None and not isinstance(known, Scalar):
            raise NotModeled("the position of an element of a tensor with known contents")
        for k, value in enumerate(self.path.extra.get(("contents", self.name), ()) if op == "read" and index else ()):
            if self.path.entails(integers.eq(index[0], k)):
                return scalars.number(self.path.normal(value))
        if known is None and ("integers", self.name) in self.path.extra and op == "read":
            return scalars.number(self.path.normal(integers.of_atom(Atom(self.name, "data", tuple(index)))))
        return Scalar(op, (self.name, *index)) if known is None else known

    def integer_at(self, index: Sequence[Int]) -> Int:
        """Return an element as an integer, which makes the tensor one of integers."""
        self.path.extra[("integers", self.name)] = True
        return super().integer_at(index)

    def values(self, count: int | None = None) -> list[Int]:
        """Return the contents as integers: the length is chosen, the elements are variables."""
        path, key = self.path, ("contents", self.name)
        if key not in path.extra:
            path.extra[("integers", self.name)] = True
            if self.fixed is None:
                self.fixed = path.choose((1, 0), f"rank of {self.name}")
            self.path.require(self.rank <= 1, f"{self.name} is not a list")
            places: list[tuple[int, ...]] = [()]
            if self.rank:
                if count is not None:
                    path.assume(integers.eq(self.shape[0], count))
                most = max(2, path.max_rank * self.per_axis)
                count = path.concrete(self.shape[0], 0, most, f"length of {self.name}", certain=True)
                places = [(i,) for i in range(count)]
            known = path.extra.get(("value of", self.name))
            whole = isinstance(known, Scalar) and known.is_number and known.args[0].denominator == 1
            data = (
                int(known.args[0]) if whole and known else integers.of_atom(Atom(self.name, "data", p)) for p in places
            )
            path.extra[key] = list(data)
            for callback in path.extra.pop(("targets", self.name), []):
                callback(path.extra[key])
        return [path.normal(v) for v in path.extra[key]]


def select(path: Path, cond: Bool, a: Callable[[], Scalar], b: Callable[[], Scalar]) -> Scalar:
    """Return `a` where the condition holds, else `b`: by cases, or within a sum as a conditional scalar."""
    open_parts = (c for c in integers.conjuncts(path.normal_cond(cond)) if not path.entails(c))
    cond = integers.conj(*open_parts)
    if not path.is_bound(cond):
        return a() if path.decide(cond) else b()
    return b() if path.entails(integers.negate(cond)) else scalars.choice(cond, a(), b())


def strides(shape: Sequence[Int]) -> list[Int]:
    """Return the row-major stride of each axis, in elements."""
    steps: list[Int] = [1, *itertools.accumulate(reversed(shape), operator.mul)]
    return steps[-2::-1]


def place_of(index: Sequence[Int], shape: Sequence[Int]) -> Int:
    """Return the row-major position of an index."""
    return sum((i * s for i, s in zip(index, strides(shape), strict=True)), start=0)


def broadcast(path: Path, shapes: Sequence[Sequence[Int]]) -> list[Int]:
    """Return the shape that shapes broadcast to, by cases on which dims are 1."""
    rank = max(map(len, shapes), default=0)
    axes = ([s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0] for k in range(rank))
    one: Int = 1
    return [functools.reduce(functools.partial(_meet, path), dims, one) for dims in axes]


def _meet(path: Path, a: Int, b: Int) -> Int:
    a, b = path.normal(a), path.normal(b)
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if _depth(b) > _depth(a):  # test the simpler one first: a computed dim is rarely 1
        a, b = b, a
    if path.decide(integers.eq(b, 1)):
        return path.normal(a)
    if path.decide(integers.eq(a, 1)):
        return path.normal(b)
    path.require(integers.eq(a, b), "shapes broadcast", typed=True)
    return path.normal(a)


def _depth(d: Int) -> int:
    terms = d.terms if isinstance(d, Poly) else ()
    return max((len(m) + 9 * any(a.kind == "div" for a in m) for m, _ in terms), default=0)


def broadcasts_to(path: Path, x: Tensor, shape: Sequence[Int], what: str, *, typed: bool = False) -> None:
    """Require that a tensor broadcasts to a shape, by cases on which of its dims are 1."""
    path.require(x.rank <= len(shape), what)
    for d, e in zip(x.shape, shape[len(shape) - x.rank :], strict=True):
        if not path.decide(integers.eq(d, 1)):
            path.require(integers.eq(d, e), what, typed=typed)


def read_broadcast(path: Path, x: Tensor, index: Sequence[Int]) -> Scalar:
    """Return the element of an operand for an index of the broadcast result."""
    shape = x.shape
    place = index[len(index) - len(shape) :]
    return x.at([0 if path.entails(integers.eq(d, 1)) else i for i, d in zip(place, shape, strict=True)])
