"""Assignments of numbers to variables that satisfy the facts of a path: they answer "no" without the solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import integers
from .integers import Atom, Bool, Cond, Int, Poly

KEPT = 40
_SEEDS = ((1,), (2,), (3, 2, 4, 5, 7), (1, 2, 3), (5, 1, 2), (0, 1, 2), (2, 1))


class Undefined(Exception):
    """A quotient by what is not positive."""


class Model(dict[Atom, int]):
    """Numbers for variables; those that are not said take a number in turn."""

    def __init__(self, known: dict[Atom, int], rest: Sequence[int] = (1,)) -> None:
        super().__init__(known)
        self.rest = rest
        self.elements: dict[Any, int] = {}
        self.number = 0
        self._held: dict[Bool, bool] = {}

    def value(self, value: Int) -> int:
        """The value of an integer."""
        if not isinstance(value, Poly):
            return value
        total = 0
        for monomial, factor in value.terms:
            for atom in monomial:
                factor *= self.atom(atom)
            total += factor
        return total

    def atom(self, atom: Atom) -> int:
        """The value of an atom."""
        if atom.kind == "div":
            divisor = self.value(atom.args[1])
            if divisor <= 0:
                raise Undefined
            return self.value(atom.args[0]) // divisor
        if atom.kind == "data":
            key = (atom.name, tuple(self.value(a) for a in atom.args))
            return self.elements.setdefault(key, self._next(len(self.elements)))
        found = self.get(atom)
        if found is None:
            found = self[atom] = self._next(len(self))
        return found

    def _next(self, count: int) -> int:
        return self.rest[count % len(self.rest)]

    def holds(self, cond: Bool) -> bool:
        """Whether a condition holds. What was said of a variable stays, so an answer does too."""
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
    """Models that the paths of a proof have met, most useful first."""

    def __init__(self) -> None:
        self.known: list[Model] = []
        self.met = 0
        for seed in reversed(_SEEDS):
            self.add(Model({}, seed))

    def add(self, model: Model) -> None:
        """Keeps a model, instead of the one that has been of no use for longest."""
        self.met += 1
        model.number = self.met
        self.known.insert(0, model)
        del self.known[KEPT:]

    def used(self, model: Model) -> None:
        """Moves a model to the front."""
        if self.known[0] is not model:
            place = next(i for i, m in enumerate(self.known) if m is model)
            self.known.insert(0, self.known.pop(place))


def from_solver(found: Any, conds: Sequence[Bool]) -> Model:
    """The solver's model of the variables, and of the elements of tensors that conditions mention."""
    known: dict[Atom, int] = {}
    for declaration in found.decls():
        if not declaration.arity():
            value = found[declaration]
            if hasattr(value, "as_long"):
                known[Atom(declaration.name())] = value.as_long()
    model = Model(known)
    mentioned = (a for c in conds for v in integers.cond_ints(c) for a in integers.atoms(v) if a.kind == "data")
    for atom in dict.fromkeys(mentioned):
        value = found.eval(integers.to_z3(integers.of_atom(atom)), model_completion=True)
        try:
            model.elements[(atom.name, tuple(model.value(a) for a in atom.args))] = value.as_long()
        except Undefined:
            continue
    return model
