"""Countermodels: assignments that satisfy the facts of a path and refute a question without asking the solver."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..terms import integers
from ..terms.integers import Atom, Bool, Cond, Int, Poly

MAX_MODELS = 40
_SEEDS = ((1,), (2,), (3, 2, 4, 5, 7), (1, 2, 3), (5, 1, 2), (0, 1, 2), (2, 1))


class Undefined(Exception):
    """A quotient has a divisor that is not positive."""


class Model(dict[Atom, int]):
    """Values of variables; a variable without a value takes the next number of `rest`."""

    def __init__(self, known: dict[Atom, int], rest: Sequence[int] = (1,)) -> None:
        super().__init__(known)
        self.rest = rest
        self.elements: dict[Any, int] = {}
        self.number = 0
        self._held: dict[Bool, bool] = {}

    def value(self, value: Int) -> int:
        """Return the value of an integer."""
        if not isinstance(value, Poly):
            return value
        return sum(factor * math.prod(map(self.atom, monomial)) for monomial, factor in value.terms)

    def atom(self, atom: Atom) -> int:
        """Return the value of an atom."""
        if atom.kind == "div":
            divisor = self.value(atom.args[1])
            if divisor <= 0:
                raise Undefined
            return self.value(atom.args[0]) // divisor
        if atom.kind == "data":
            key = (atom.name, tuple(self.value(a) for a in atom.args))
            return self.elements.setdefault(key, self._next(len(self.elements)))
        return self.setdefault(atom, self._next(len(self)))

    def _next(self, count: int) -> int:
        return self.rest[count % len(self.rest)]

    def holds(self, cond: Bool) -> bool:
        """Whether a condition holds. Values of variables never change, so answers are cached."""
        if isinstance(cond, bool):
            return cond
        found = self._held.get(cond)
        if found is None:
            found = self._held[cond] = self._holds(cond)
        return found

    def _holds(self, cond: Cond) -> bool:
        match cond.op:
            case "ge":
                return self.value(cond.args[0]) >= 0
            case "eq":
                return self.value(cond.args[0]) == 0
            case "not":
                return not self.holds(cond.args[0])
            case "and":
                return all(map(self.holds, cond.args))
        return any(map(self.holds, cond.args))


class Pool:
    """Models found by the paths of a proof, the one used last first."""

    def __init__(self) -> None:
        self.known: list[Model] = []
        self.count = itertools.count(1)
        for seed in reversed(_SEEDS):
            self.add(Model({}, seed))

    def add(self, model: Model) -> None:
        """Add a model, in place of the one that was used longest ago."""
        model.number = next(self.count)
        self.known.insert(0, model)
        del self.known[MAX_MODELS:]

    def used(self, model: Model) -> None:
        """Move a model to the front."""
        self.known.sort(key=lambda known: known is not model)


def from_solver(found: Any, conds: Sequence[Bool]) -> Model:
    """Return the solver's model of the variables and of the tensor elements that conditions mention."""
    constants = {Atom(d.name()): found[d] for d in found.decls() if not d.arity()}
    model = Model({atom: value.as_long() for atom, value in constants.items() if hasattr(value, "as_long")})
    mentioned = (a for c in conds for v in integers.cond_ints(c) for a in integers.atoms(v) if a.kind == "data")
    for atom in dict.fromkeys(mentioned):
        value = found.eval(integers.to_z3(integers.of_atom(atom)), model_completion=True)
        with suppress(Undefined):
            model.elements[(atom.name, tuple(map(model.value, atom.args)))] = value.as_long()
    return model
