"""The values of conditions that are no numbers: comparisons of contents, lists of unknown length, class heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .integers import Int


@dataclass(frozen=True, slots=True)
class Head:
    """The operator that a class head stands for on this path; `None` for one of which only the class is known."""

    variable: str
    op: str | None
    attrs: Any = None


@dataclass(frozen=True, slots=True)
class Predicate:
    """A comparison of the elements of a tensor, or of scalars, with a scalar."""

    op: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """The integers from `low` up to `high`, excluded, of which there may be any number."""

    low: Int
    high: Int
