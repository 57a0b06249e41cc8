"""Saturation with fewer rewrites, after the process had to be killed: the model is still compiled.

The second attempt ends at the size at which the first was last known to be within its limits, and so finds the same
rewrites up to there. If it is killed too, or no size is known, the third applies no rule: the model stays as it is.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ...system.progress import Progress, ignore
from . import saturation_process
from .child_process import Child
from .saturate import Limits, Saturation

_MORE = 1.5
"""The second attempt may take this multiple of the time that the first took to reach the same size …"""
_START = 2.0
"""… and this many seconds more."""


class SaturationWarning(UserWarning):
    """Saturation was killed at a hard limit, and the result has fewer rewrites than the rules could find."""


class Outcome(Protocol):
    """Result with a saturation report."""

    saturation: Saturation


def run(task: saturation_process.Task, progress: Progress = ignore, child: Child | None = None) -> Sequence[Any]:
    """Run a task as `saturation_process.run` does; if it is killed, warn and run it again with lower limits.

    The outcomes of a later attempt name the limit as their reason for stopping. Raises `OutOfBounds` if even the
    unchanged model exceeds the limits."""
    start = time.monotonic()
    nodes, seconds = 0, 0.0

    def note(stage: str, facts: Mapping[str, Any]) -> None:
        nonlocal nodes, seconds
        nodes, seconds = int(facts.get("nodes", nodes)), time.monotonic() - start
        progress(stage, facts)

    outcomes: Sequence[Outcome]
    try:
        return saturation_process.run(task, note, child)  # type: ignore[no-any-return]
    except saturation_process.OutOfBounds as error:
        stopped = error
    for limits, found in _lower(task.limits, nodes, seconds):
        try:
            outcomes = saturation_process.run(task.within(limits), progress, None)
        except saturation_process.OutOfBounds:
            continue
        for outcome in outcomes:
            outcome.saturation.stop_reason = f"{stopped.bound}_limit"
        warnings.warn(f"{stopped}\n{found}", SaturationWarning, stacklevel=2)
        return outcomes
    raise stopped


def _lower(limits: Limits, nodes: int, seconds: float) -> Iterator[tuple[Limits, str]]:
    """Yield lower limits, and the warning about a result within them."""
    if nodes > 1:
        found = f"The result has the rewrites found before that, with {nodes:,} e-nodes."
        yield replace(limits, seconds=min(limits.seconds, _MORE * seconds + _START), nodes=nodes - 1), found
    yield replace(limits, seconds=0.0), "No rule was applied: the result is the unchanged model."
