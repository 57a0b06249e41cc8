"""Memory planning: places in one arena for buffers that live for a while.

Offline dynamic storage allocation, as in Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020): buffers are placed largest first, each into the gap that fits best among those placed already that live at the
same time. The order of first use is tried too, and the smaller arena wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .kernel_graph import ALIGNMENT

STRETCH = 16  # buffers are looked up by stretches of so many time steps


@dataclass(frozen=True, slots=True)
class Buffer:
    """Something to place: `size` bytes from time `first` to time `last`, both included."""

    name: str
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Offsets by buffer name, the arena's `size`, and `bound`: the most bytes alive at one time."""

    offsets: dict[str, int]
    size: int
    bound: int

    @property
    def overhead(self) -> float:
        """How far the size is above the lower bound, as a fraction of it."""
        return self.size / self.bound - 1 if self.bound else 0.0


def padded(size: int) -> int:
    """A buffer's size as it is placed: a multiple of the alignment. What follows a buffer in the arena serves as its
    slack; the arena itself ends with some."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Iterable[Buffer]) -> int:
    """The most bytes alive at one time: no arena can be smaller."""
    change: dict[int, int] = {}
    for buffer in buffers:
        change[buffer.first] = change.get(buffer.first, 0) + padded(buffer.size)
        change[buffer.last + 1] = change.get(buffer.last + 1, 0) - padded(buffer.size)
    alive = most = 0
    for time in sorted(change):
        alive += change[time]
        most = max(most, alive)
    return most


def place(buffers: Sequence[Buffer]) -> Placement:
    """Places buffers so that no two that are alive at one time overlap. Deterministic."""
    bound = lower_bound(buffers)
    by_time = sorted(buffers, key=lambda b: (b.first, -b.size, b.name))
    best = _in_order(by_time)
    if _extent(best, buffers) > bound:
        by_size = sorted(buffers, key=lambda b: (-b.size, b.first, b.name))
        other = _in_order(by_size)
        if _extent(other, buffers) < _extent(best, buffers):
            best = other
    return Placement(best, _extent(best, buffers), bound)


def _extent(offsets: dict[str, int], buffers: Sequence[Buffer]) -> int:
    return max((offsets[b.name] + padded(b.size) for b in buffers), default=0)


def _in_order(buffers: Sequence[Buffer]) -> dict[str, int]:
    """Each buffer in turn into the smallest gap that holds it between neighbours in time, else above them all."""
    offsets: dict[str, int] = {}
    placed: dict[int, list[tuple[int, int, Buffer]]] = {}  # (offset, end, buffer) by stretch of time
    for buffer in buffers:
        size = padded(buffer.size)
        stretches = range(buffer.first // STRETCH, buffer.last // STRETCH + 1)
        spans = sorted(
            {
                (start, stop)
                for stretch in stretches
                for start, stop, other in placed.get(stretch, ())
                if other.first <= buffer.last and buffer.first <= other.last
            }
        )
        best, best_gap, end = -1, -1, 0
        for start, stop in spans:
            gap = start - end
            if gap >= size and (best_gap < 0 or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, stop)
        offset = offsets[buffer.name] = best if best_gap >= 0 else end
        for stretch in stretches:
            placed.setdefault(stretch, []).append((offset, offset + size, buffer))
    return offsets
