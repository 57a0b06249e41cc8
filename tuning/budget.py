"""Sharing a budget among kernels by what the next measurements should gain for the whole model.

Each kernel is an arm of a bandit. What its next batch should gain per second is estimated as in Ansor's task scheduler
(Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", 2020): a mean of what its last
batches gained, and of what remains at best. The latter is optimistic, so that no kernel is given up early: time falls
with the batches n as 1 / n at most, and similar kernels may be sped up as much as the best of them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

RECENT = 0.5
"""Weight of the gain of the last batches; the optimistic estimate has the other part."""
_DECAY = 0.5  # of the gain of earlier batches
_LEAST = 1e-4  # relative gain of a batch that is expected at least, so that the largest kernels come first


@dataclass
class Arm:
    """A kernel: its `share` of the run, the `kind` that similar ones have in common, and what its batches gained.

    `best` is its time relative to the default; `seconds` is what a batch takes, 0 before the first one."""

    share: float
    kind: Hashable = None
    best: float = 1.0
    batches: int = 0
    recent: float = 0.0
    seconds: float = 0.0

    def ran(self, best: float, seconds: float) -> None:
        """Note a batch after which the best time is `best`."""
        self.recent = _DECAY * self.recent + (1 - _DECAY) * max(0.0, self.best - best)
        self.best = min(self.best, best)
        self.seconds = (self.seconds * self.batches + seconds) / (self.batches + 1)
        self.batches += 1


def expected_gain(arm: Arm, arms: Sequence[Arm], seconds: float) -> float:
    """Return the part of the run that the next batch of a kernel should save per second.

    `seconds` is what a batch takes of which none was run."""
    similar = min((other.best for other in arms if other.kind == arm.kind), default=arm.best)
    rest = max(arm.best / (arm.batches + 1) ** 2, (arm.best - similar) / (arm.batches + 1))
    gain = RECENT * arm.recent + (1 - RECENT) * rest
    return arm.share * max(gain, _LEAST) / (arm.seconds or seconds)


def next_arm(arms: Sequence[Arm], waiting: Collection[int]) -> int:
    """Return which of the `waiting` arms to run next. Raises ValueError if none waits."""
    known = [arm.seconds for arm in arms if arm.seconds]
    typical = sum(known) / len(known) if known else 1.0
    return max(waiting, key=lambda number: (expected_gain(arms[number], arms, typical), -number))
