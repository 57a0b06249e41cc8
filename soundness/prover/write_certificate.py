"""Certificate of a proof: what its paths recorded, as plain data for the checker."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..certificates.certificate import Case, Certificate, Goal
from .equality.smt import Claim
from .paths import element_types
from .paths.path import Path
from .paths.tensors import Leaf, Tensor
from .terms import scalars
from .terms.integers import Atom, Cond, Poly
from .terms.scalars import Scalar


def certificate(rule: str, claim: Claim, parts: Sequence[Sequence[Path]]) -> Certificate:
    """Return the certificate of a proof from the paths of each of its parts."""
    writer = Writer()
    return Certificate(
        rule, claim.numerics, claim.signed_zero, tuple(tuple(map(writer.case, paths)) for paths in parts)
    )


class Writer:
    """Writes values as plain data; equal values become one object."""

    def __init__(self) -> None:
        self._memo: dict[Any, Any] = {}

    def case(self, path: Path) -> Case:
        """Return what a path recorded."""
        leaves = {k[1]: v for k, v in path.extra.items() if isinstance(k, tuple) and k[0] == "leaf"}
        named = {k[1]: v for k, v in path.extra.items() if isinstance(k, tuple) and k[0] == "dtype of"}
        types = {name: element_types.root(path, t) for name, t in named.items()}
        goals = tuple(
            Goal(self._scalar(path, a), self._scalar(path, b), element_types.root(path, dtype))
            for a, b, dtype, _ in path.goals
        )
        known = {k[1]: v for k, v in path.extra.items() if isinstance(k, tuple) and k[0] == "value of"}
        roots = {*types.values(), *(g.dtype for g in goals)}
        return Case(
            taken=tuple(path.taken),
            options=tuple(count for count, _ in path.made),
            steps=tuple(map(self._step, path.trace)),
            goals=goals,
            types=types,
            kinds={t: element_types.kinds(path, t) for t in roots},
            shapes={n: tuple(map(self.plain, v.dims)) for n, v in leaves.items() if self._shaped(path, v)},
            contents={n: self._scalar(path, v) for n, v in known.items() if isinstance(v, Scalar)},
            integers=frozenset(k[1] for k in path.extra if isinstance(k, tuple) and k[0] == "integers"),
            elements=tuple(e for p in path.predicates if (e := self._element(path, p)) is not None),
        )

    def _shaped(self, path: Path, leaf: Leaf) -> bool:
        return not path.pointwise and "_shape" in vars(leaf)

    def _element(self, path: Path, p: Any) -> tuple[str, Any, Any] | None:
        sides: list[Any] = []
        for side in (p.left, p.right):
            if isinstance(side, Leaf):
                sides.append(side.name)
            elif isinstance(side, Scalar) or (isinstance(side, Tensor) and path.pointwise):
                sides.append(self._scalar(path, side if isinstance(side, Scalar) else side.at([])))
            else:
                return None
        return (p.op, *sides)

    def _step(self, step: tuple[Any, ...]) -> tuple[Any, ...]:
        return (step[0], *map(self.plain, step[1:]))

    def plain(self, value: Any) -> Any:
        """Return an integer, atom or condition as plain data."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if value not in self._memo:
            self._memo[value] = self._plain(value)
        return self._memo[value]

    def _plain(self, value: Any) -> Any:
        match value:
            case Poly(terms):
                return ("sum", *((factor, tuple(map(self.plain, monomial))) for monomial, factor in terms))
            case Atom(name, "var"):
                return ("var", name)
            case Atom(_, "div", args):
                return ("div", *map(self.plain, args))
            case Atom(name, "data", args):
                return ("data", name, *map(self.plain, args))
            case Cond(op, args):
                return (op, *map(self.plain, args))
        raise TypeError(type(value).__name__)

    def _scalar(self, path: Path, s: Scalar) -> tuple[Any, ...]:
        key = (id(path), s)
        if key not in self._memo:
            self._memo[key] = self._written(path, s)
        return self._memo[key]  # type: ignore[no-any-return]

    def _written(self, path: Path, s: Scalar) -> tuple[Any, ...]:
        match s.op, s.args:
            case "const", (value,):
                return ("const", str(value))
            case "big", (op, listed, body):
                sizes = tuple((self.plain(v), self.plain(path.bounds[v].extent)) for v in listed)
                return ("big", op, sizes, self._scalar(path, body))
            case "app", (op, attrs, *args):
                named = tuple((str(k), self._attribute(path, v)) for k, v in attrs)
                return ("app", op, named, *(self._scalar(path, a) for a in args))
        return (s.op, *(self._scalar(path, a) if isinstance(a, Scalar) else self.plain(a) for a in s.args))

    def _attribute(self, path: Path, value: Any) -> Any:
        if isinstance(value, Scalar):
            return self._scalar(path, value)
        if isinstance(value, str) and ("type", value) in path.extra:
            return element_types.root(path, value)
        if isinstance(value, (Fraction, float)):
            return self._scalar(path, scalars.number(value))
        if isinstance(value, (list, tuple)):
            return tuple(self._attribute(path, v) for v in value)
        return value if isinstance(value, (str, bool, int)) or value is None else repr(value)
