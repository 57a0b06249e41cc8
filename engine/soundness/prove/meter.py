"""How much work a proof has taken, counted and not timed, so that the answer is the same on every machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PER_SECOND = 45_000
"""Steps that take about a second, on a machine of 2024."""
SOLVER_STEPS = 100
"""Steps of the solver that take as long as one of the prover's own."""
LOOK = 256
"""After so many steps the clock is read."""


class OutOfTime(Exception):
    """The work for the rule is done up."""


class Meter:
    """Counts steps up to a limit of about so many seconds.

    The processor's clock ends what takes three times as long as it should, which a count cannot see coming."""

    def __init__(self, seconds: float) -> None:
        self.limit = int(seconds * PER_SECOND)
        self.spent = 0
        self._deadline = time.process_time() + 3 * seconds
        self._look = LOOK
        self._solver_steps = 0

    @contextmanager
    def share(self, part: float) -> Iterator[None]:
        """Allows a part of the whole work, or what is left of it, while the context lasts."""
        whole = self.limit
        self.limit = min(whole, self.spent + int(part * whole))
        try:
            yield
        finally:
            self.limit = whole

    def spend(self, steps: int = 1) -> None:
        """Counts steps; raises `OutOfTime` past the limit."""
        self.spent += steps
        if self.spent > self.limit:
            raise OutOfTime
        if self.spent >= self._look:
            self._look = self.spent + LOOK
            if time.process_time() > self._deadline:
                raise OutOfTime

    def solved(self, solver: Any) -> None:
        """Counts what the solver has spent since it was last asked; its count is one for all solvers."""
        found = solver.statistics()
        counts = [int(found[i][1]) for i in range(len(found)) if found[i][0] == "rlimit count"]
        total = max(counts, default=0)
        steps, self._solver_steps = max(total - self._solver_steps, 0), max(total, self._solver_steps)
        self.spend(1 + steps // SOLVER_STEPS)
