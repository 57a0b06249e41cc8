"""Meaning of Einsum: a sum of products over labels, which an open equation takes from all that are possible."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..paths import element_types
from ..paths.path import NotModeled, Path
from ..paths.tensors import Tensor, broadcast
from ..terms import integers
from ..terms.integers import Int
from ..terms.scalars import Scalar
from .reductions import total
from .semantics_registry import Attrs, operator

LABELS = 4
"""Maximum number of labels of an equation that a rule leaves open."""


@dataclass(frozen=True, slots=True)
class Equation:
    """Labels of each operand, then of the result, by number. None for an equation that is not plain.

    A plain equation names a label at most once in each term, and has no ellipsis."""

    terms: tuple[tuple[int, ...], ...] | None

    def __str__(self) -> str:
        return "another equation" if self.terms is None else " ".join("".join(map(str, t)) or "-" for t in self.terms)


def equations(ranks: Sequence[int]) -> Iterator[Equation]:
    """Yield the plain equations on operands of these ranks, labels numbered as they appear, and one for all others."""

    def operands(rest: Sequence[int], count: int) -> Iterator[tuple[tuple[tuple[int, ...], ...], int]]:
        if not rest:
            yield (), count
            return
        for known in itertools.product((True, False), repeat=rest[0]):
            more = count + known.count(False)
            if more > LABELS:
                continue
            for old in itertools.permutations(range(count), known.count(True)):
                taken, new = iter(old), iter(range(count, more))
                term = tuple(next(taken) if k else next(new) for k in known)
                for others, most in operands(rest[1:], more):
                    yield (term, *others), most

    for terms, count in operands(ranks, 0):
        for size in range(count + 1):
            yield from (Equation((*terms, result)) for result in itertools.permutations(range(count), size))
    yield Equation(None)


class _Product(Tensor):
    """Result of an equation. Its shape is found when it is read, because conditions may state which dims agree."""

    def __init__(self, path: Path, equation: Equation, operands: Sequence[Tensor]) -> None:
        super().__init__(path, [], self._element, dtype=operands[0].dtype)
        self.equation = equation
        self.operands = operands
        self.fixed = None if equation.terms is None else len(equation.terms[-1])

    @property
    def labels(self) -> tuple[tuple[int, ...], ...]:
        """Labels of the operands and of the result."""
        if self.equation.terms is None:
            raise NotModeled("an equation that is not plain")
        return self.equation.terms

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.labels[-1])

    @functools.cached_property
    def sizes(self) -> dict[int, Int]:
        """Size of each label; an axis of size 1 is repeated."""
        found: dict[int, list[Int]] = {}
        for term, x in zip(self.labels, self.operands, strict=False):
            for label, d in zip(term, x.shape, strict=True):
                found.setdefault(label, []).append(d)
        return {label: broadcast(self.path, [[d] for d in dims])[0] for label, dims in found.items()}

    @property
    def shape(self) -> list[Int]:
        """Dims of the result."""
        return [self.path.normal(self.sizes[label]) for label in self.labels[-1]]

    def _element(self, index: list[Int]) -> Scalar:
        path, (*terms, result) = self.path, self.labels
        summed = [label for label in self.sizes if label not in result]

        def product(values: list[Int]) -> Scalar:
            place = dict(zip((*result, *summed), (*index, *values), strict=True))
            factors = []
            for term, x in zip(terms, self.operands, strict=True):
                ones = [path.entails(integers.eq(d, 1)) for d in x.shape]
                factors.append(x.at([0 if one else place[label] for one, label in zip(ones, term, strict=True)]))
            return functools.reduce(Scalar.__mul__, factors)

        return total(path, [self.sizes[label] for label in summed], product)


def parsed(text: str) -> Equation:
    """Return an equation that a rule writes out, such as `ij,jk->ik`."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    letters = list(dict.fromkeys("".join(terms)))
    if not arrow:
        right = "".join(sorted(c for c in letters if left.count(c) == 1))
    plain = all(c.isascii() and c.isalpha() for c in letters) and set(right) <= set(letters)
    if not plain or any(len(set(t)) < len(t) for t in (*terms, right)):
        return Equation(None)
    return Equation(tuple(tuple(map(letters.index, t)) for t in (*terms, right)))


@operator("Einsum")
def einsum(path: Path, attrs: Attrs, first: Tensor, *others: Tensor) -> Tensor:
    """Multiply the operands and sum over the labels that the result lacks."""
    operands = [first, *others]
    element_types.unify(path, *(x.dtype for x in operands))
    element_types.restrict(path, first.dtype, element_types.NUMBERS)
    ranks = [x.rank for x in operands]

    def make(name: str) -> Equation:
        path.bounded.add(f"up to {LABELS} labels of Einsum")
        return path.choose(list(path.memoized(("equations", *ranks), lambda: tuple(equations(ranks)))), name)

    found = attrs.get("equation", make)
    if isinstance(found, str):
        found = parsed(found)
    if not isinstance(found, Equation):
        raise NotModeled(f"the equation {found}")
    if found.terms is not None:
        path.require([len(t) for t in found.terms[:-1]] == ranks, "an axis for each label")
    return _Product(path, found, operands)
