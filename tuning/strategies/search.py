"""Search in a space of schedules: proposals of a sampler, without those whose code was measured before.

Points differ more often than their code does: a block larger than the problem, or the value that the formula would
choose, render the same kernel. So what was measured is remembered by code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol

from ...backend.ir.schedule import DEFAULT, Point, Space

TRIES = 40
"""Candidates that are considered for each point of a proposal before the search counts as exhausted."""


def point_key(point: Point) -> Hashable:
    """Return a point as a hashable value."""
    return tuple(sorted(point.items()))


class Sampler(Protocol):
    """A way to choose points of a space."""

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield valid points, of which about `count` will be measured; some may have been before."""

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point relative to the default schedule; infinite if it cannot be used."""


class Search:
    """What was proposed and measured of one space, in front of a sampler.

    `code` returns what is equal for points that render the same kernel."""

    def __init__(
        self,
        space: Space,
        sampler: Sampler,
        known: Iterable[tuple[Point, float]] = (),
        *,
        code: Callable[[Point], Hashable] = point_key,
    ) -> None:
        """Search from `known` points with their ratios on."""
        self._space, self._sampler, self._code = space, sampler, code
        self._suggested: list[Point] = []
        self._ratios: dict[Hashable, float | None] = {}  # None: proposed, not measured yet
        self.observe(DEFAULT, 1.0)
        for point, ratio in known:
            if space.accepts(point):
                self.observe(point, ratio)

    def propose(self, count: int) -> list[Point]:
        """Return up to `count` points whose code was not proposed before; fewer if no more are found.

        At most half of them are suggested ones."""
        found: list[Point] = []
        while self._suggested and len(found) < (count + 1) // 2:
            self._take(self._suggested.pop(0), found)
        candidates = self._sampler.candidates(count - len(found))
        for _ in range(TRIES * count):
            if len(found) == count or (point := next(candidates, None)) is None:
                break
            self._take(point, found)
        return found

    def _take(self, point: Point, found: list[Point]) -> None:
        code = self._code(point)
        if code not in self._ratios:
            self._ratios[code] = None
            found.append(point)
        elif (ratio := self._ratios[code]) is not None:
            self._sampler.observe(point, ratio)

    def suggest(self, point: Point) -> None:
        """Propose a point soon, if it is one of the space: one that is fast for a similar kernel."""
        if self._space.accepts(point) and point not in self._suggested:
            self._suggested.append(point)

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point relative to the default schedule; infinite if it cannot be used."""
        self._ratios[self._code(point)] = ratio
        self._sampler.observe(point, ratio)

    @property
    def best(self) -> float:
        """The smallest ratio so far; 1 is that of the default schedule."""
        return min((ratio for ratio in self._ratios.values() if ratio is not None), default=math.inf)
