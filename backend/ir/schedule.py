"""Search spaces of schedules: what a template leaves open, as data.

A *knob* is one choice that a template leaves open, such as its register tile. A *point* maps knobs to values. A knob
that a point leaves out follows the lowerer's formula, so the empty point is the default schedule, and the same template
renders for every point. Points come from files and searches: `Space.accepts` is checked before one is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

Value = int | str
Point = Mapping[str, Value]
DEFAULT: Point = {}
"""The point at which formulas decide everything."""


@dataclass(frozen=True)
class Knob:
    """A choice of a template, and the values between which a search chooses besides the formula's.

    `only` restricts it to points at which another knob, named first, has one of the values that follow."""

    name: str
    values: tuple[Value, ...]
    only: tuple[str, tuple[Value, ...]] | None = None

    def applies(self, point: Mapping[str, Any]) -> bool:
        """Return whether a point may set this knob."""
        return self.only is None or point.get(self.only[0]) in self.only[1]


def _every_point(point: Point) -> bool:
    return True


@dataclass(frozen=True)
class Space:
    """The knobs of a kernel, those that others depend on first, and the constraint between their values.

    Knobs of one name belong to points that exclude each other. `templates` are those that points render; their texts
    are the version of the space."""

    templates: tuple[str, ...]
    knobs: tuple[Knob, ...]
    constraint: Callable[[Point], bool] = _every_point

    def accepts(self, point: Mapping[str, Any]) -> bool:
        """Return whether a mapping, perhaps of unknown origin, is a valid point."""
        allowed = [knob for knob in self.knobs if knob.applies(point)]

        def is_allowed(name: str, value: object) -> bool:
            values = (v for knob in allowed if knob.name == name for v in knob.values)
            return any(type(v) is type(value) and v == value for v in values)

        return all(is_allowed(name, value) for name, value in point.items()) and self.constraint(point)

    def sample(self, random: Random, *, formula: float = 0.4, tries: int = 200) -> Point:
        """Return a random valid point; each knob but the first is left to the formula with this probability.

        The default point if no valid one is found in as many tries."""
        for _ in range(tries):
            point: dict[str, Value] = {}
            for number, knob in enumerate(self.knobs):
                if knob.values and knob.applies(point) and (number == 0 or random.random() >= formula):
                    point[knob.name] = random.choice(knob.values)
            if self.constraint(point):
                return point
        return DEFAULT

    def mutated(self, point: Point, random: Random, *, tries: int = 200) -> Point:
        """Return a valid neighbor of a point: one knob is changed or left to the formula.

        A numeric knob mostly moves to an adjacent value. The point itself if no neighbor is found in as many tries."""
        for _ in range(tries):
            knobs = [knob for knob in self.knobs if knob.applies(point) and knob.values]
            if not knobs:
                break
            knob = random.choice(knobs)
            changed = {**point, knob.name: self._moved(knob, point.get(knob.name), random)}
            if changed[knob.name] == point.get(knob.name) or random.random() < 0.15:
                del changed[knob.name]
            # a knob, or a value, of an algorithm that is no longer chosen is dropped
            applying = (k for k in self.knobs if k.applies(changed))
            kept = {k.name: changed[k.name] for k in applying if changed.get(k.name) in k.values}
            if kept != point and self.constraint(kept):
                return kept
        return point

    @staticmethod
    def _moved(knob: Knob, value: Value | None, random: Random) -> Value:
        if value in knob.values and isinstance(value, int) and random.random() < 0.6:
            at = knob.values.index(value) + random.choice((-1, 1))
            return knob.values[max(0, min(at, len(knob.values) - 1))]
        return random.choice(knob.values)


@dataclass(frozen=True)
class Tunable:
    """A kernel to schedule: the key of its problem, a label for people, its space, and the group of nodes it computes.

    Equal keys mean equal problems: sizes, types, epilogue, threads. Neither names nor weights enter a key."""

    key: str
    label: str
    space: Space
    group: Any


class Schedules(Protocol):
    """Source of schedules for a compile."""

    def point(self, kernel: Tunable) -> Point:
        """Return the point for a kernel; `DEFAULT` where nothing is known."""


def problem_key(*parts: object) -> str:
    """Return the key of a problem given as plain data."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def describe(point: Point) -> str:
    """Return a point for people: `tile=8x3 near=16`."""
    return " ".join(f"{name}={value}" for name, value in point.items()) or "default"
