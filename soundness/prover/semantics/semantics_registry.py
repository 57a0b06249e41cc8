"""Table of the operators that have a meaning in the prover, and their symbolic attributes.

An attribute is written out, bound to a variable, or among the open ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from ..paths.path import NotModeled, Path
from ..paths.tensors import Tensor
from ..terms import integers, scalars
from ..terms.integers import Atom, Int
from ..terms.scalars import Scalar


@dataclass(frozen=True, slots=True)
class Hole:
    """Variable that a pattern binds to an attribute, or an attribute `name` of a `rest`.

    It gets a value when an operator reads it. `default` is a value of the attribute's type, if one is known."""

    name: str
    rest: str | None = None
    default: Any = None

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the value among what is made once on a path."""
        return ("attribute", self.name) if self.rest is None else ("rest", self.rest, self.name)

    def __str__(self) -> str:
        return self.name if self.rest is None else f"{self.rest}.{self.name}"


@dataclass(frozen=True, slots=True)
class Opaque:
    """Value that is only compared with itself."""

    name: str


@dataclass(frozen=True, slots=True)
class Attrs:
    """Attributes of one operator: `named` ones, those of a `rest`, and defaults for all others."""

    path: Path
    op: str
    named: Mapping[str, Any]
    rest: str | None
    defaults: Mapping[str, Any]

    @property
    def beside(self) -> frozenset[str]:
        """Names of attributes that the `rest` lacks, because a pattern writes them beside it."""
        return self.path.extra.get(("named beside", self.rest), frozenset())  # type: ignore[no-any-return]

    def get(self, name: str, make: Callable[[str], Any]) -> Any:
        """Return the value of an attribute; `make` creates that of a variable from its name."""
        if name in self.named:
            value = self.named[name]
            if isinstance(value, Hole):
                return self.path.once(value.key, lambda: make(str(value)))
            return value
        if self.rest is not None and name not in self.beside:
            return self.path.once(("rest", self.rest, name), lambda: make(f"{self.rest}.{name}"))
        return self.defaults.get(name)

    def is_variable(self, name: str) -> bool:
        """Whether the pattern binds an attribute, or leaves it open."""
        value = self.named.get(name)
        return isinstance(value, Hole) if name in self.named else self.rest is not None and name not in self.beside

    def source(self, *names: str) -> str | None:
        """Return the `rest` that holds all of these attributes, passed on by a declared operator or not; else None."""
        if self.rest is not None and self.beside.union(self.named).isdisjoint(names):
            return self.rest
        found = {
            v.rest if isinstance(v, Hole) and v.name == n else None for n, v in ((n, self.named.get(n)) for n in names)
        }
        return found.pop() if len(found) == 1 else None

    def option(self, name: str, options: Sequence[Any]) -> Any:
        """Return an attribute that has a few possible values, by cases."""
        value = self.get(name, lambda n: self.path.choose(list(options), n))
        if isinstance(value, integers.Poly):
            low, high = min(options), max(options)
            self.path.assume(integers.conj(integers.ge(value, low), integers.ge(high, value)))
            return self.path.concrete(value, low, high, name)
        if value is None and None not in options:
            raise NotModeled(f"no {name}")
        self.path.require(value in options, f"{name} is {value}")
        return value

    def integer(self, name: str, low: int | None = None) -> Int:
        """Return an integer attribute, symbolic unless it is written out."""
        value = self.get(name, lambda n: self._variable(n, low))
        if not isinstance(value, (int, integers.Poly)):
            raise NotModeled(f"{name} is {value}")
        return self.path.normal(value)

    def axis(self, name: str, rank: int, *, end: bool = False) -> int:
        """Return an axis of a tensor of this rank, counted from the front; with `end`, one past the last is allowed."""
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
        """Return a list of `count` integers; None if it is absent and has no default."""
        value = self.get(name, lambda n: [self._variable(f"{n}[{i}]", low) for i in range(count)])
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise NotModeled(f"{name} is {value}")
        self.path.require(len(value) == count, f"{name} has {len(value)} elements")
        if low is not None:
            for item in value:
                self.path.require(integers.ge(item, low), f"{name} is at least {low}")
        return [self.path.normal(v) for v in value]

    def permutation(self, name: str, count: int) -> list[int]:
        """Return a permutation of the axes; the reversed order if it is absent."""
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
        """Return a real attribute, symbolic unless it is written out."""
        value = self.get(name, lambda n: Scalar("read", (n,)))
        if value is None:
            raise NotModeled(f"no {name}")
        if isinstance(value, (Scalar, int, float, Fraction, integers.Poly)):
            return scalars.number(value)
        raise NotModeled(f"{name} is {value}")

    def key(self) -> tuple[Any, ...]:
        """Return all attributes as one value, for an operator that is known by its name only."""
        found = {name: self.get(name, Opaque) for name in self.named}
        if self.rest is not None:
            beside = {k: v for k, v in self.defaults.items() if k in self.beside}
            found = {**beside, **found, "..": Opaque(self.rest)}
        elif not any(isinstance(v, Opaque) for v in found.values()):
            found = {**self.defaults, **found}
        return tuple((name, _hashable(value)) for name, value in sorted(found.items()))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


# --- the table ---

OPERATORS: dict[str, Callable[[Path, Attrs, Sequence[Tensor | None]], list[Tensor]]] = {}
CONTENTS = {
    "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Expand": (1,), "Tile": (1,), "Split": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "ConstantOfShape": (0,), "ReduceSum": (1,), "ReduceMean": (1,), "ReduceMax": (1,),
    "ReduceMin": (1,), "ReduceProd": (1,), "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,), "ReduceSumSquare": (1,), "CumSum": (1,), "TopK": (1,),
}  # fmt: skip
"""Inputs whose contents an operator reads as a list, at most as long as the rank of a tensor."""
REDUCTIONS = tuple(op for op in CONTENTS if op.startswith("Reduce"))
Meaning = TypeVar("Meaning", bound=Callable[..., Tensor | list[Tensor]])


def operator(*names: str) -> Callable[[Meaning], Meaning]:
    """Register the meaning of operators: a function of the path, the attributes and the inputs.

    A parameter without a default is an input that must be present."""

    def register(meaning: Meaning) -> Meaning:
        parameters = list(inspect.signature(meaning).parameters.values())[2:]
        needed = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in parameters)

        def results(path: Path, attrs: Attrs, inputs: Sequence[Tensor | None]) -> list[Tensor]:
            path.require(len(inputs) >= needed and None not in inputs[:needed], "an input is absent")
            found = meaning(path, attrs, *inputs)
            return found if isinstance(found, list) else [found]

        OPERATORS.update(dict.fromkeys(names, results))
        return meaning

    return register
