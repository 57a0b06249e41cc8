"""Search in a space of schedules: random points first, then neighbors of the best ones.

A strategy proposes points and receives the time of each relative to the default; `Evolution` is the only one so far.
The spaces have some thousands of points, of which a budget allows some dozens, and neighbors are alike: so small
changes to the best few points found are what most proposals should be (mutation with truncation selection).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Protocol

from ..backend.ir.schedule import DEFAULT, Point, Space

Key = tuple[tuple[str, int | str], ...]


def point_key(point: Point) -> Key:
    """Return a point as a hashable value."""
    return tuple(sorted(point.items()))


class Strategy(Protocol):
    """A way to search a space."""

    def propose(self, count: int) -> list[Point]:
        """Return up to `count` points that were not proposed before; fewer if it finds no more."""

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point relative to the default schedule; infinite if it cannot be used."""


class Evolution:
    """Suggested points, random ones until `explored` are known, then mostly mutations of the `parents` best ones."""

    def __init__(
        self,
        space: Space,
        seed: int | str,
        known: Iterable[tuple[Point, float]] = (),
        *,
        explored: int = 12,
        parents: int = 4,
    ) -> None:
        """Search from `known` points with their ratios on."""
        self._space, self._random = space, Random(seed)
        self._suggested: list[Point] = []
        self._explored, self._parents = explored, parents
        self._seen: set[Key] = {point_key(DEFAULT)}
        self._ratios: dict[Key, float] = {point_key(DEFAULT): 1.0}
        for point, ratio in known:
            if space.accepts(point):
                self._seen.add(point_key(point))
                self.observe(point, ratio)

    def propose(self, count: int) -> list[Point]:
        """Return points that were not proposed before, at most half of them suggested ones."""
        found: list[Point] = []
        for attempt in range(40 * count):
            if len(found) == count:
                break
            point = self._suggested.pop(0) if self._suggested and attempt < (count + 1) // 2 else self._candidate()
            if point_key(point) not in self._seen:
                self._seen.add(point_key(point))
                found.append(point)
        return found

    def suggest(self, point: Point) -> None:
        """Propose a point soon, if it is one of the space: one that is fast for a similar kernel."""
        if self._space.accepts(point) and point_key(point) not in self._seen:
            self._suggested.append(point)

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point."""
        self._ratios[point_key(point)] = ratio

    def _candidate(self) -> Point:
        if len(self._seen) <= self._explored or self._random.random() < 0.2:
            return self._space.sample(self._random)
        best = sorted(self._ratios, key=self._ratios.__getitem__)[: self._parents]
        point: Mapping[str, int | str] = dict(self._random.choice(best))
        for _ in range(1 + (self._random.random() < 0.3)):
            point = self._space.mutated(point, self._random)
        return point
