"""Step budget of a proof: work is counted rather than timed, so that the answer is the same on every machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PER_SECOND = 45_000
"""Steps per second, on a machine of 2024."""
SOLVER_STEPS = 100
"""Solver steps that take as long as one step of the prover."""
HOPELESS = ((0.7, 1.25), (0.3, 2.0), (0.2, 2.5))
"""Estimated work, as a multiple of the limit, above which a proof by cases is given up once this share of the limit is
used. Of the 239 proofs of the standard library by rank, 44 use a fifth of it. Their estimates are 2.02 at most from
then on, 1.80 after three tenths, and 0.97 after seven tenths."""
LOOK = 256
"""Steps between two readings of the clock."""


class OutOfTime(Exception):
    """The step budget of the rule is exhausted."""


class StepBudget:
    """Counter of steps, with a limit that corresponds to about `seconds`.

    Processor time is a backstop: it ends a proof that takes three times as long as its steps suggest."""

    def __init__(self, seconds: float) -> None:
        self.limit = int(seconds * PER_SECOND)
        self.spent = 0
        self._deadline = time.process_time() + 3 * seconds
        self._look = LOOK
        self._solver_steps = 0

    @contextmanager
    def share(self, part: float) -> Iterator[None]:
        """Limit the work within the context to a part of the whole, or to what is left."""
        whole = self.limit
        self.limit = min(whole, self.spent + int(part * whole))
        try:
            yield
        finally:
            self.limit = whole

    def hopeless(self, begun: int, done: float) -> bool:
        """Whether a proof by cases that began at a number of steps will not be complete within the limit.

        `done` is the share of the cases that are done. The first ones cost less than the last, which have the higher
        ranks, so the estimate is too low for most rules, and the less so the more is done."""
        spent = (self.spent - begun) / max(self.limit - begun, 1)
        return any(spent > share and spent > most * done for share, most in HOPELESS)

    def lift(self) -> None:
        """Remove the limit, for what follows a proof."""
        self.limit = sys.maxsize
        self._deadline = float("inf")

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises `OutOfTime` past the limit."""
        self.spent += steps
        if self.spent > self.limit:
            raise OutOfTime
        if self.spent >= self._look:
            self._look = self.spent + LOOK
            if time.process_time() > self._deadline:
                raise OutOfTime

    def solver_steps(self, most: int) -> int:
        """Return the steps that the solver may take for a question: `most`, or what is left, with which it must end."""
        return min(most, max(self.limit - self.spent, 1) * SOLVER_STEPS)

    def spend_again(self, steps: int) -> None:
        """Count steps whose result is known, one by one as far as the limit goes. Raises `OutOfTime` past it."""
        self.spend(min(steps, self.limit - self.spent + 1))

    def solved(self, solver: Any) -> None:
        """Count the steps of the solver since the last call; it has one counter for all solvers."""
        found, total = solver.statistics(), 0
        for i in range(len(found) - 1, -1, -1):  # the counter is among the last of some thirty
            name, value = found[i]
            if name == "rlimit count":
                total = int(value)
                break
        steps, self._solver_steps = max(total - self._solver_steps, 0), max(total, self._solver_steps)
        self.spend(1 + steps // SOLVER_STEPS)
