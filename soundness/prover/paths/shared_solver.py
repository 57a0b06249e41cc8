"""One solver for all paths of a proof, which hold most of their facts in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import z3

from ..terms import integers
from ..terms.integers import Bool

QUERY_STEPS = 1_500_000
"""Solver steps for one question, about half a second; steps are the same on every machine and under any load."""
QUERY_MILLISECONDS = 10_000
"""Backstop for a question that keeps the solver busy without counting steps, as one about many products did."""


class SharedSolver:
    """Solver that holds the facts of one path after the other.

    Paths are visited depth first, so that a path begins with the facts of the one before up to where they part. These
    stay. Facts are added in levels, one each time that the solver is asked, and whole levels are taken back."""

    def __init__(self) -> None:
        self._solver = z3.Solver()
        self._solver.set("rlimit", QUERY_STEPS)
        self._solver.set("random_seed", 7)
        self._solver.set("timeout", QUERY_MILLISECONDS)
        self._facts: list[Bool] = []
        self._levels: list[int] = []
        self._path: object = None

    def holding(self, path: object, facts: Sequence[Bool]) -> Any:
        """Return the solver with the facts of a path, to which facts may have been added since the last call."""
        if path is not self._path:
            self._path = path
            common = _common(self._facts, facts)
            while len(self._facts) > common:
                self._solver.pop()
                del self._facts[self._levels.pop() :]
        if len(facts) > len(self._facts):
            self._levels.append(len(self._facts))
            new = facts[len(self._facts) :]
            self._solver.push()
            add_to(self._solver, map(integers.cond_z3, new))
            self._facts += new
        return self._solver


def _common(some: Sequence[Bool], others: Sequence[Bool]) -> int:
    """Return the number of facts with which both begin."""
    count = 0
    for one, other in zip(some, others, strict=False):
        if one is not other and one != other:
            break
        count += 1
    return count


def add_to(solver: Any, formulas: Iterable[Any]) -> None:
    """Add formulas to a solver; its own method takes longer for the sort of each than for adding it."""
    context = solver.ctx.ref()
    for formula in formulas:
        z3.Z3_solver_assert(context, solver.solver, formula.as_ast())
