"""The draws: functions that add a node of some kind to a random graph, with their weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..maker import Maker

Draw = Callable[[Maker], object]
DRAWS: dict[str, tuple[float, Draw]] = {}
"""Weight and function of each kind of node."""


def draws(weight: float) -> Callable[[Draw], Draw]:
    """Register a function with this weight."""

    def register(draw: Draw) -> Draw:
        DRAWS[draw.__name__] = weight, draw
        return draw

    return register


def step(maker: Maker) -> None:
    """Add one node, or a few that belong together. Raises `Invalid` if it cannot be."""
    names = list(DRAWS)
    weights = np.array([DRAWS[name][0] for name in names])
    chosen = names[int(maker.rng.choice(len(names), p=weights / weights.sum()))]
    maker.nan = chosen in NAN
    DRAWS[chosen][1](maker)


NAN = frozenset((
    "unary", "unary_with_attributes", "binary", "compare", "variadic", "where", "clip", "reshape", "transpose",
    "concat", "split", "slice_", "gather", "matmul", "cast",
))  # fmt: skip
"""Draws whose operators have the same meaning for NaN and infinities everywhere."""
