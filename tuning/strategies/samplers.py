"""Samplers that need no library: random points, the grid, simulated annealing, and evolution."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from random import Random

from ...backend.ir.schedule import DEFAULT, Knob, Point, Space, Value
from .search import point_key


class RandomPoints:
    """Independent random points."""

    def __init__(self, space: Space, seed: int | str) -> None:
        self._space, self._random = space, Random(seed)

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield random points without end."""
        while True:
            yield self._space.sample(self._random)

    def observe(self, point: Point, ratio: float) -> None:
        """Ignore what was measured."""


class Grid:
    """All points in the order of the knobs' values, the last knob changing fastest."""

    def __init__(self, space: Space) -> None:
        self._rest = all_points(space)

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield the points that were not yielded before."""
        return self._rest

    def observe(self, point: Point, ratio: float) -> None:
        """Ignore what was measured."""


class Evolution:
    """Random points until `explored` are known, then mostly mutations of the `parents` best ones.

    Mutation with truncation selection: spaces have some thousands of points, of which a budget allows some dozens, and
    neighbors are alike."""

    def __init__(self, space: Space, seed: int | str, *, explored: int = 12, parents: int = 4) -> None:
        self._space, self._random = space, Random(seed)
        self._explored, self._parents = explored, parents
        self._best: list[tuple[float, Point]] = []
        self._known: set[Hashable] = set()

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield points without end."""
        while True:
            if len(self._known) <= self._explored or self._random.random() < 0.2:
                yield self._space.sample(self._random)
                continue
            point = self._random.choice(self._best)[1]
            for _ in range(1 + (self._random.random() < 0.3)):
                point = self._space.mutated(point, self._random)
            yield point

    def observe(self, point: Point, ratio: float) -> None:
        """Note the time of a point."""
        others = [pair for pair in self._best if point_key(pair[1]) != point_key(point)]
        self._known.add(point_key(point))
        self._best = sorted([*others, (ratio, point)], key=lambda pair: pair[0])[: self._parents]


class Annealing:
    """Simulated annealing (Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing", 1983).

    A walk from the default schedule to neighbors: to faster ones always, to one slower by a part d of the default's
    time with probability exp(-d / temperature). Each new point multiplies the temperature by `cooling`. The points of a
    proposal are all neighbors of one."""

    def __init__(self, space: Space, seed: int | str, *, temperature: float = 0.1, cooling: float = 0.98) -> None:
        self._space, self._random = space, Random(seed)
        self._temperature, self._cooling = temperature, cooling
        self._at: tuple[float, Point] = (1.0, DEFAULT)
        self._known: set[Hashable] = set()

    def candidates(self, count: int) -> Iterator[Point]:
        """Yield neighbors of the present point; more distant ones if they are many."""
        at = self._at[1]
        for tried in range(1 << 30):
            point = at
            for _ in range(1 + tried // (8 * count)):
                point = self._space.mutated(point, self._random)
            yield point

    def observe(self, point: Point, ratio: float) -> None:
        """Move to a point, or stay."""
        worse = ratio - self._at[0]
        if worse <= 0 or self._random.random() < math.exp(-worse / self._temperature):
            self._at = ratio, point
        if point_key(point) not in self._known:  # steps to known points cost no measurement
            self._known.add(point_key(point))
            self._temperature = max(1e-3, self._temperature * self._cooling)


def all_points(space: Space) -> Iterator[Point]:
    """Yield all points of a space, the default first."""

    def extended(point: dict[str, Value], knobs: tuple[Knob, ...]) -> Iterator[dict[str, Value]]:
        if not knobs:
            yield point
            return
        yield from extended(point, knobs[1:])
        if knobs[0].applies(point) and knobs[0].name not in point:
            for value in knobs[0].values:
                yield from extended({**point, knobs[0].name: value}, knobs[1:])

    return filter(space.constraint, extended({}, space.knobs))
