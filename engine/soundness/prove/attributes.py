"""Attributes of an operator as the prover sees them: written out, bound to a variable, or among the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from . import integers, scalars
from .integers import Atom, Int
from .path import Infeasible, NotModelled, Path
from .scalars import Scalar


@dataclass(frozen=True, slots=True)
class Hole:
    """A variable that a pattern binds to an attribute; it gets a value when an operator asks for one."""

    name: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is only ever compared with itself."""

    name: str


class Attrs:
    """The attributes of one operator: `named` ones, those of a `rest`, and defaults for all others."""

    def __init__(self, path: Path, named: Mapping[str, Any], rest: str | None, defaults: Mapping[str, Any]) -> None:
        self.path = path
        self.named = dict(named)
        self.rest = rest
        self.defaults = defaults

    def _get(self, name: str, make: Callable[[str], Any]) -> Any:
        value = self.named.get(name, self)
        if isinstance(value, Hole):
            return self._memo(("attribute", value.name), value.name, make)
        if value is not self:
            return value
        if self.rest is not None and name not in self.path.extra.get(("named beside", self.rest), ()):
            return self._memo(("rest", self.rest, name), f"{self.rest}.{name}", make)
        return self.defaults.get(name)

    def _memo(self, key: Any, name: str, make: Callable[[str], Any]) -> Any:
        if key not in self.path.extra:
            self.path.extra[key] = make(name)
        return self.path.extra[key]

    def option(self, name: str, options: Sequence[Any]) -> Any:
        """One of a few values."""
        value = self._get(name, lambda n: self.path.choose(list(options), n))
        if isinstance(value, integers.Poly):
            low, high = min(options), max(options)
            self.path.assume(integers.conj(integers.ge(value, low), integers.ge(high, value)))
            return self.path.concrete(value, low, high, name)
        if value not in options:
            raise Infeasible(f"{name} is {value}") if value is not None else NotModelled(f"no {name}")
        return value

    def integer(self, name: str, low: int | None = None) -> Int:
        """An integer, symbolic where it is not written out."""
        value = self._get(name, lambda n: self._variable(n, low))
        if not isinstance(value, (int, integers.Poly)):
            raise NotModelled(f"{name} is {value}")
        return self.path.normal(value)

    def axis(self, name: str, rank: int, *, end: bool = False) -> int:
        """An axis of a tensor of this rank, counted from the front; with `end` one past the last as well."""
        high = rank if end else rank - 1
        value = self.integer(name)
        self.path.assume(integers.conj(integers.ge(value, -rank), integers.ge(high, value)))
        found = self.path.concrete(value, -rank, high, name)
        return found + rank if found < 0 else found

    def _variable(self, name: str, low: int | None) -> Int:
        found = integers.var(name)
        if low == 0:
            return self.path.size(name)
        if low is not None:
            self.path.nonnegative.add(Atom(name))
            self.path.assume(integers.ge(found, low), certain=True)
        return found

    def ints(self, name: str, count: int, low: int | None = None) -> list[Int] | None:
        """A list of `count` integers; None if it is absent and has no default."""
        value = self._get(name, lambda n: [self._variable(f"{n}[{i}]", low) for i in range(count)])
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise NotModelled(f"{name} is {value}")
        if len(value) != count:
            raise Infeasible(f"{name} has {len(value)} elements")
        if low is not None:
            for item in value:
                self.path.require(integers.ge(item, low), f"{name} is at least {low}")
        return [self.path.normal(v) for v in value]

    def permutation(self, name: str, count: int) -> list[int]:
        """A permutation of the axes; backwards if it is absent."""
        found = self.ints(name, count)
        if found is None:
            return list(range(count))[::-1]
        taken: list[int] = []
        for i, item in enumerate(found):
            self.path.assume(integers.inside(item, count))
            for other in taken:
                self.path.assume(integers.negate(integers.eq(item, other)))
            taken.append(self.path.concrete(item, 0, count - 1, f"{name}[{i}]"))
        return taken

    def real(self, name: str) -> Scalar:
        """A number, symbolic where it is not written out."""
        value = self._get(name, lambda n: Scalar("read", (n,)))
        if value is None:
            raise NotModelled(f"no {name}")
        if isinstance(value, (Scalar, int, float, Fraction, integers.Poly)):
            return scalars.number(value)
        raise NotModelled(f"{name} is {value}")

    def key(self) -> tuple[Any, ...]:
        """All attributes as one value, for an operator that is known by its name only."""
        found: dict[str, Any] = {}
        for name, value in self.named.items():
            if isinstance(value, Hole):
                found[name] = self._get(name, Opaque)
            else:
                found[name] = value
        if self.rest is not None:
            found[".."] = Opaque(self.rest)
            beside = self.path.extra.get(("named beside", self.rest), ())
            found = {**{k: v for k, v in self.defaults.items() if k in beside}, **found}
        elif not any(isinstance(v, Opaque) for v in found.values()):
            found = {**self.defaults, **found}
        return tuple((name, _hashable(value)) for name, value in sorted(found.items()))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value
