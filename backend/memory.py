"""Memory planning: places in one arena for buffers that live for a while.

Offline dynamic storage allocation, as in Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020): buffers are placed largest first, each into the gap that fits best among those placed already that live at the
same time. Other orders are tried too: of first use, of size times lifetime, and where none reaches the lower bound,
orders changed step by step as in the hill climbing of Arm's Vela compiler: what lies at the top of the arena, or beside
what does, is placed earlier. The smallest arena wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from .kernel_graph import ALIGNMENT

TRIES = 1000  # of changing the order in which buffers are placed, at most …
WORK = 100_000  # … and so many buffers placed in all: some 0.3 s
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
    orders = (
        sorted(buffers, key=lambda b: (b.first, -b.size, b.name)),
        sorted(buffers, key=lambda b: (-b.size, b.first, b.name)),
        sorted(buffers, key=lambda b: (-b.size * (b.last - b.first + 1), b.first, b.name)),
    )
    best: dict[str, int] | None = None
    size, order = 0, orders[0]
    for one in orders:
        found = _in_order(one)
        if best is None or _extent(found, buffers) < size:
            best, size, order = found, _extent(found, buffers), one
        if size == bound:
            break
    assert best is not None
    if size > bound:
        best = _climb(order, best, bound)
    return Placement(best, _extent(best, buffers), bound)


def _climb(order: list[Buffer], best: dict[str, int], bound: int) -> dict[str, int]:
    """A better placement than the one that an order gave, found by changing the order; at worst the same."""
    random = Random(0)
    size = _extent(best, order)
    tries = min(TRIES, WORK // max(1, len(order)))
    current, offsets = order, best
    for _ in range(tries):
        height = _extent(offsets, order)
        top = [i for i, b in enumerate(current) if offsets[b.name] + padded(b.size) == height]
        moved = random.choice(top)
        beside = [
            i
            for i, b in enumerate(current[:moved])
            if b.first <= current[moved].last and current[moved].first <= b.last
        ]
        if not beside:
            break  # it was placed first among all that live with it: nothing makes it lie lower
        changed = list(current)
        if random.random() < 0.5:
            changed.insert(random.choice(beside), changed.pop(moved))
        else:
            other = random.choice(beside)
            changed[moved], changed[other] = changed[other], changed[moved]
        found = _in_order(changed)
        extent = _extent(found, order)
        if extent <= height or random.random() < 0.02:
            current, offsets = changed, found
        if extent < size:
            best, size = found, extent
            if size == bound:
                break
    return best


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
