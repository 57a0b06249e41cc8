"""The choice of register tiles for GEMM and convolution, by an analytic model of the micro-kernel.

A tile of r rows and v vectors costs, for each k, the largest of its r*v fused multiply-adds (two a cycle), its r + v
loads (two a cycle) and the latency of a chain of additions (four cycles); and for itself the stores and the call. What
the model is for: keeping tails small and the threads evenly loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from ..kernel_graph import Target

NOMINAL_ROWS, NOMINAL_COLUMNS = 128, 512  # stand for extents that only run time knows
_CALL, _STORE, _LATENCY = 30.0, 2.0, 4.0  # cycles
_FAR = 4.0  # cycles for a vector of B that comes from the second-level cache while that is filled from memory


@dataclass(frozen=True)
class Tiles:
    """A register tile of `mr` rows and `nv` vectors, and what is left of known extents at the edges.

    `rest` are the smaller numbers of rows that remaining ones are cut into, descending; `tail` is the number of vectors
    of the last panel of columns (0: none; -1: only run time knows), `full` whether there are full panels."""

    mr: int
    nv: int
    rest: tuple[int, ...]
    tail: int
    full: bool
    cycles: float = 0.0  # the modelled time of all tiles


def _candidates(target: Target) -> list[tuple[int, int]]:
    """Tiles that fit the registers: accumulators, a row of B, and a broadcast element (or, at the limit, none)."""
    if target.registers >= 32:
        big = [(8, 3), (7, 4), (6, 4), (9, 3), (12, 2), (14, 2), (10, 2), (5, 5), (16, 1), (4, 6)]
    else:
        big = [(6, 2), (4, 3), (5, 2), (8, 1), (3, 3), (3, 4)]
    thin = [(1, 8), (2, 8), (3, 6)] if target.registers >= 32 else [(1, 8), (2, 4)]
    return big + thin


def tile_cycles(rows: int, vecs: int, k: int, far: bool = False) -> float:
    """The modelled time of one tile; `far` is whether B comes from beyond the first-level cache."""
    step = max(rows * vecs / 2, (rows + vecs) / 2, _LATENCY, _FAR * vecs if far else 0.0)
    return k * step + _CALL + _STORE * rows * vecs


def is_far(target: Target, vecs: int, k: int) -> bool:
    """Whether a panel of so many vectors is read from the second-level cache by each tile of rows anew."""
    return k * vecs * target.vector_bytes > target.l1 // 2


@lru_cache(maxsize=4096)
def choose(
    target: Target,
    rows: int | None,
    columns: int | None,
    k: int,
    *,
    threads: int = 1,
    batch: int = 1,
    packing: float = 0.0,
    streamed: bool = False,
) -> Tiles:
    """The tile with the least modelled time for a batch of rows x columns x k products, None being any number.

    `packing` is what a vector of a panel of columns costs to put together, in cycles per k. With `streamed` B comes
    from memory, each panel once, and going through it one more time costs much even for few rows. Of equal tiles the
    first in the list of candidates wins."""
    best: tuple[float, tuple[int, int]] | None = None
    m, n = rows or (NOMINAL_ROWS if rows is None else 1), columns or (NOMINAL_COLUMNS if columns is None else 1)
    for mr, nv in _candidates(target):
        if rows is None and mr < 4:
            continue
        if nv < 2 and (columns is None or streamed):
            continue
        nr = nv * target.lanes
        blocks, panels = math.ceil(m / mr), math.ceil(n / nr)
        last = math.ceil((n - (panels - 1) * nr) / target.lanes)
        far = streamed and is_far(target, nv, k)
        column = [(nv, panels - 1), (last, 1)]
        row = [(mr, m // mr), (m % mr, 1 if m % mr else 0)]
        total = sum(tile_cycles(r, v, k, far) * count_r * count_v for v, count_v in column for r, count_r in row)
        total += packing * k * sum(v * count for v, count in column) * (1 if panels * batch >= threads else threads)
        share = [sum(tile_cycles(r, v, k, far) * count for r, count in row) + packing * k * v for v, _ in column]
        cost = total * _uneven(blocks, panels, batch, share[0], share[1], threads)
        if best is None or cost < best[0] * 0.995:
            best = cost, (mr, nv)
    assert best is not None
    mr, nv = best[1]
    return replace(shape(target, mr, nv, rows, columns), cycles=best[0])


def _uneven(blocks: int, panels: int, batch: int, full: float, last: float, threads: int) -> float:
    """How much longer the slowest thread takes than if all had the same to do. Tiles are dealt out in stretches of
    equal number, panel by panel; those of the last panel of each matrix are narrower: `last` a panel, not `full`."""
    if threads == 1:
        return 1.0
    items = blocks * panels * batch

    def until(item: int) -> float:
        whole, rest = divmod(item, blocks * panels)
        wide = min(rest, blocks * (panels - 1))
        return whole * (full * (panels - 1) + last) + (wide * full + (rest - wide) * last) / blocks

    ends = [until(items * t // threads) for t in range(threads + 1)]
    return max(b - a for a, b in pairwise(ends)) * threads / ends[-1]


def shape(target: Target, mr: int, nv: int, rows: int | None, columns: int | None) -> Tiles:
    """The tiles at the edges for a given full one."""
    nr = nv * target.lanes
    if rows is None:
        rest = tuple(r for r in (4, 2, 1) if r < mr)
    else:
        rest = (rows % mr,) if rows % mr else ()
    if columns is None:
        return Tiles(mr, nv, rest, -1, True)
    return Tiles(mr, nv, rest, math.ceil(columns % nr / target.lanes), columns >= nr)


def k_block(target: Target, k: int, columns: int, row_blocks: int | None) -> int:
    """How much of k to do at once: all of it, or equal parts such that a panel of B stays in the second-level cache
    while several tiles of rows read it."""
    limit = target.l2 * 3 // 5
    if k * columns * 4 <= limit or row_blocks == 1:
        return k
    parts = math.ceil(k * columns * 4 / limit)
    return math.ceil(k / parts)
