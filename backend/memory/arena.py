"""Arena planning: offsets in one arena for buffers with lifetimes.

Offline dynamic storage allocation, as in Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020): buffers are placed largest first, each into the best-fitting gap among those placed already that live at the
same time. Other orders are tried too: by first use, and by size times lifetime. If none reaches the lower bound, orders
change step by step as in the hill climbing of Arm's Vela compiler: a buffer at the top of the arena, or beside such a
one, is placed earlier. The smallest arena wins.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from ..ir.kernel import ALIGNMENT

TRIES = 1000  # maximum number of changes of the order
WORK = 100_000  # maximum number of buffers placed in all: about 0.3 s
STRETCH = 16  # time steps per bucket of the index of placed buffers
LONG_LIVED = 16  # average number of buckets of a buffer from which the index costs more than comparing it with all


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer to place: `size` bytes, alive from time `first` to time `last`, both included."""

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


@dataclass(frozen=True, slots=True)
class PlacedBuffer:
    """A buffer in an arena: `size` bytes at `offset`, in use from item `first` of the plan to item `last`."""

    name: str
    offset: int
    size: int
    first: int
    last: int


def padded(size: int) -> int:
    """Return the size of a placed buffer: a multiple of the alignment.

    The next buffer in the arena serves as slack; the arena itself ends with some."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Iterable[Buffer]) -> int:
    """Return the most bytes alive at one time: no arena can be smaller."""
    change: Counter[int] = Counter()
    for buffer in buffers:
        change[buffer.first] += padded(buffer.size)
        change[buffer.last + 1] -= padded(buffer.size)
    return max(itertools.accumulate(change[time] for time in sorted(change)), default=0)


def place(buffers: Sequence[Buffer]) -> Placement:
    """Place buffers so that no two that are alive at one time overlap. Deterministic."""
    bound = lower_bound(buffers)
    orders = (
        sorted(buffers, key=lambda b: (b.first, -b.size, b.name)),
        sorted(buffers, key=lambda b: (-b.size, b.first, b.name)),
        sorted(buffers, key=lambda b: (-b.size * (b.last - b.first + 1), b.first, b.name)),
    )
    best = order = None
    for one in orders:
        found = _in_order(one)
        if best is None or _extent(found, buffers) < _extent(best, buffers):
            best, order = found, one
        if _extent(best, buffers) == bound:
            break
    assert best is not None
    assert order is not None
    if _extent(best, buffers) > bound:
        best = _climb(order, best, bound)
    return Placement(best, _extent(best, buffers), bound)


def _climb(order: list[Buffer], best: dict[str, int], bound: int) -> dict[str, int]:
    """Improve the placement of an order by changing the order; return at worst the same placement."""
    random = Random(0)
    size = height = _extent(best, order)
    current, offsets = order, best
    cost = max(1, len(order), _index_entries(order) // LONG_LIVED)
    for _ in range(min(TRIES, WORK // cost)):
        top = [i for i, b in enumerate(current) if offsets[b.name] + padded(b.size) == height]
        moved = random.choice(top)
        beside = [i for i, b in enumerate(current[:moved]) if _overlap_in_time(b, current[moved])]
        if not beside:
            break  # it was placed first among all that live with it: no order places it lower
        changed = list(current)
        if random.random() < 0.5:
            changed.insert(random.choice(beside), changed.pop(moved))
        else:
            other = random.choice(beside)
            changed[moved], changed[other] = changed[other], changed[moved]
        found = _in_order(changed)
        extent = _extent(found, order)
        if extent <= height or random.random() < 0.02:
            current, offsets, height = changed, found, extent
        if extent < size:
            best, size = found, extent
            if size == bound:
                break
    return best


def _overlap_in_time(a: Buffer, b: Buffer) -> bool:
    """Return whether two buffers are alive at one time."""
    return a.first <= b.last and b.first <= a.last


def _extent(offsets: dict[str, int], buffers: Sequence[Buffer]) -> int:
    return max((offsets[b.name] + padded(b.size) for b in buffers), default=0)


def _index_entries(buffers: Iterable[Buffer]) -> int:
    """Return the number of entries of the index of placed buffers."""
    return sum(buffer.last // STRETCH - buffer.first // STRETCH + 1 for buffer in buffers)


def _in_order(buffers: Sequence[Buffer]) -> dict[str, int]:
    """Place each buffer in turn into the smallest gap between its neighbors in time, else above them all."""
    if _index_entries(buffers) > LONG_LIVED * len(buffers):
        return _in_order_by_arrays(buffers)
    offsets: dict[str, int] = {}
    placed: defaultdict[int, list[tuple[int, int, Buffer]]] = defaultdict(list)  # (offset, end, buffer) by bucket
    for buffer in buffers:
        size = padded(buffer.size)
        stretches = range(buffer.first // STRETCH, buffer.last // STRETCH + 1)
        spans = {
            (start, stop)
            for stretch in stretches
            for start, stop, other in placed[stretch]
            if other.first <= buffer.last and buffer.first <= other.last
        }
        best, best_gap, end = -1, -1, 0
        for start, stop in sorted(spans):
            gap = start - end
            if gap >= size and (best_gap < 0 or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, stop)
        offset = offsets[buffer.name] = best if best_gap >= 0 else end
        for stretch in stretches:
            placed[stretch].append((offset, offset + size, buffer))
    return offsets


def _in_order_by_arrays(buffers: Sequence[Buffer]) -> dict[str, int]:
    """The same, for buffers that live long: each is compared with all placed ones at once, in arrays.

    A network unrolled over thousands of steps has thousands of buffers that live during most of them."""
    count = len(buffers)
    first, last, starts, stops = np.zeros((4, count), np.int64)
    offsets: dict[str, int] = {}
    for number, buffer in enumerate(buffers):
        size = padded(buffer.size)
        beside = np.flatnonzero((first[:number] <= buffer.last) & (last[:number] >= buffer.first))
        order = beside[np.lexsort((stops[beside], starts[beside]))]
        start, stop = starts[order], stops[order]
        end = np.maximum.accumulate(np.concatenate(([0], stop)))
        gaps = start - end[:-1]
        fits = gaps >= size
        fits[1:] &= (start[1:] != start[:-1]) | (stop[1:] != stop[:-1])
        fitting = np.flatnonzero(fits)
        offset = int(end[fitting[np.argmin(gaps[fitting])]] if len(fitting) else end[-1])
        offsets[buffer.name] = offset
        first[number], last[number] = buffer.first, buffer.last
        starts[number], stops[number] = offset, offset + size
    return offsets
