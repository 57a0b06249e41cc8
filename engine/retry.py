"""Saturation that had to be stopped hard, tried again with less: a model is worth compiling even where rules make too
much of it.

The second attempt ends where the first one was last known to be within its bounds, and so finds the rewrites that the
first one found by then. If that is stopped too, or nothing is known, the third applies no rule: the model as it stands.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from . import worker
from .saturate import Limits

_MORE = 1.5
"""The second attempt may take so many times as long as the first one took to get where it is to end, …"""
_START = 2.0
"""… and so many seconds more."""


class SaturationWarning(UserWarning):
    """Saturation was stopped hard, and the result has fewer rewrites than the rules could find."""


def run(task: worker.Job, progress: worker.Progress, child: worker.Child | None = None) -> list[worker.Outcome]:
    """Like `worker.run`, but after a hard stop with what can be had without one: with a `SaturationWarning`, and the
    limit that was met as reason for stopping.

    Raises `worker.OutOfBounds` if even the model as it stands is too much."""
    start = time.monotonic()
    nodes, seconds = 0, 0.0

    def note(stage: str, facts: Mapping[str, Any]) -> None:
        nonlocal nodes, seconds
        nodes, seconds = int(facts.get("nodes", nodes)), time.monotonic() - start
        progress(stage, facts)

    try:
        return worker.run(task, note, child)
    except worker.OutOfBounds as error:
        stopped = error
    for limits, found in _less(task.limits, nodes, seconds):
        try:
            outcomes = worker.run(replace(task, limits=limits), progress)
        except worker.OutOfBounds:
            continue
        for outcome in outcomes:
            outcome.saturation.stop_reason = f"{stopped.bound}_limit"
        warnings.warn(f"{stopped}\n{found}", SaturationWarning, stacklevel=2)
        return outcomes
    raise stopped


def _less(limits: Limits, nodes: int, seconds: float) -> Iterator[tuple[Limits, str]]:
    """Narrower limits, and what is to be said of a result within them."""
    if nodes > 1:
        left = min(limits.seconds, _MORE * seconds + _START)
        found = f"The result has what was found before that, with {nodes:,} e-nodes."
        yield replace(limits, seconds=left, nodes=nodes - 1), found
    yield replace(limits, seconds=0.0), "No rule was applied: the result is the model as it stands."
