"""Register blocking of the GEMM micro-kernel, chosen by an analytic model.

A tile of MR rows and NR = v vectors costs, per k, the largest of MR * v fused multiply-adds (two per cycle), MR + v
loads (two per cycle), the latency of an addition (four cycles), and with SSE2 all instructions, plus the stores and the
call. The choice keeps tails small and the threads evenly loaded. CPUs with AMX multiply bf16 and bytes in tiles
of its own, 32 rows by two vectors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ....engine.ir.symbolic import Dim
from ...ir.schedule import Knob
from ...ir.target import Target
from ..scheduling import Only

NOMINAL_ROWS, NOMINAL_COLUMNS = 128, 512  # stand for extents known at run time only
_ADDRESSED, _POINTERS, _LONG = 8, 15, 128
"""Rows of A that a micro-kernel addresses by a few registers if their distance is a variable; rows that one pointer per
three addresses; terms of a sum from which the time to set up these pointers does not count."""
_CALL, _STORE, _LATENCY = 30.0, 2.0, 4.0  # cycles
_SENT = 32.0
"""Bytes that the second-level cache sends in a cycle."""
_PAIRS = 6 / 26  # cycles of an instruction on vectors for products of pairs of bytes, such that a step of 6x2 takes six
_SSE2 = 6 / 46
"""Cycles of an instruction of SSE2: a step of 2 x 6, the tile with the fewest for each product, takes six cycles as
elsewhere. So the times of other kernels, in which copies and shuffles are not counted, compare with those of tiles."""
NEAR = 16
"""Steps of k ahead of which B is fetched into the first-level cache, where it outgrows that. On Intel's cores a load
that misses it delays products even where the second level answers in time. On others with AVX2 fetching only costs
time: up to a fifth on a Zen 3."""
_STREAMS = 4 * 4096
"""Least bytes that a tile of rows prefetches for it to do so by streams (`k_streams`), which cost 2 to 7 % where
weights are at hand. Other CPUs than Intel's were not tried."""
_UNKNOWN_BLOCKS = 4  # of rows that are known at run time only, in the choice of streams
_STREAMED = 1 / 16  # cycles per byte of B from the second-level cache while that is filled from memory
_FEW, _LINES, _PIECE = 32, 128, 2.0
"""Results of at most `_FEW` terms that take more than half of the second-level cache cost `_PIECE` more cycles for each
piece of a row that is shorter than two lines of the cache."""
_AMX_ROWS, _AMX_VECTORS, _AMX_WORDS = 32, 2, 16  # of a tile, and of a step of k
_AMX_LOAD, _AMX_LEAST = 12.0, 9.0  # cycles to load 16 rows from the second-level cache; of a product of few rows
_AMX_SHAPE, _AMX_STORE = 150.0, 5.0  # cycles to set the tiles' shapes; to store a vector of sums and load it again
_AMX_GATHER = 4.0  # cycles to copy a step's words of a row


class Precision(Enum):
    """Element type of a product's operands; the value is the number of elements per 32-bit word of the micro-kernel.

    A word holds neighbors along k, so a product in bf16 or int8 is one in f32 with fewer, different multiply-adds."""

    F32 = 1
    BF16 = 2
    INT8 = 4

    def words(self, k: int) -> int:
        """Number of words that hold k elements."""
        return -(-k // self.value)

    def dot(self, weights_first: bool = False) -> str:
        """Name of the multiply-add in `tile.j2`; int8 weights are signed, activations unsigned."""
        return {Precision.F32: "", Precision.BF16: "bf16"}.get(self, "s8u8" if weights_first else "u8s8")

    @property
    def feature(self) -> str:
        """CPU feature that multiplies such numbers in tiles of AMX."""
        return {Precision.BF16: "amx_bf16", Precision.INT8: "amx_int8"}.get(self, "none")


def uses_pairs(target: Target) -> bool:
    """Whether products of bytes are those of numbers of 16 bits: with AVX2 and no instruction for four bytes."""
    return target.isa == "avx2" and target.machine == "x86_64" and "avx_vnni" not in target.features


@dataclass(frozen=True)
class Tiles:
    """Register tile of `mr` rows and `nv` vectors (NR columns), and the tiles at the edges of known extents.

    Attributes:
        rest: MR of the tiles for the remaining rows, descending.
        tail: vectors of the last panel of columns; 0: none, -1: known at run time only.
        full: whether there are full panels.
        near: steps of k ahead of which a panel is fetched into the first-level cache; 0: it stays there.
        streams: whether a tile prefetches several parts of the next panel in turn.
        cycles: modeled time of all tiles.
        amx: words of a step of k if the tile is AMX's, else 0.
    """

    mr: int
    nv: int
    rest: tuple[int, ...]
    tail: int
    full: bool
    near: int = 0
    streams: bool = False
    cycles: float = 0.0
    amx: int = 0

    @property
    def sizes(self) -> dict[str, Any]:
        """Template parameters of the tiles."""
        found = {"mr": self.mr, "nv": self.nv, "rest": list(self.rest), "tail": self.tail, "full": self.full}
        optional = {"near": self.near, "streams": self.streams, "amx": self.amx}
        return found | {name: value for name, value in optional.items() if value}

    def params(self, a_row: str, a_k: str, a_step: str, b_k: str | int, tail_k: str | int) -> dict[str, Any]:
        """Template parameters of the tiles with the strides of A and B as C expressions (see `tile.j2`)."""
        return self.sizes | {"a_row": a_row, "a_k": a_k, "a_step": a_step, "b_k": str(b_k), "tail_k": str(tail_k)}

    def cut(self) -> Tiles:
        """The same tile with edge tiles for any number of remaining rows, which AMX needs none of."""
        if self.amx:
            return replace(self, rest=())
        return replace(self, rest=(8,) * (self.mr >= 12) + tuple(r for r in (4, 2, 1) if r < self.mr))


def shares_terms(mr: int, k: int) -> bool:
    """Return whether products of any number of terms share a register tile of `mr` rows as well as those of k alone."""
    return mr <= (_POINTERS if k >= _LONG else _ADDRESSED)


def candidates(target: Target) -> list[tuple[int, int]]:
    """Return the tiles that fit the registers: accumulators, a row of B, and a broadcast element if one is left."""
    if target.registers >= 32:
        wide = [(8, 3), (7, 4), (6, 4), (9, 3), (12, 2), (14, 2), (10, 2), (5, 5), (16, 1), (4, 6)]
        return [*wide, (1, 8), (2, 8), (3, 6)]
    if target.isa == "portable":  # without fused multiply-adds a product takes a register of its own
        return [(2, 4), (2, 5), (2, 6), (3, 3), (1, 8), (4, 2), (6, 2), (5, 2), (8, 1)]
    return [(6, 2), (4, 3), (5, 2), (8, 1), (3, 3), (3, 4), (1, 8), (2, 4)]


def least_rows(target: Target) -> int:
    """Return the least height of a tile for any number of rows; broadcasts take half the instructions of a wide one."""
    return 2 if target.isa == "portable" else 4


def tile_knob(target: Target, most_rows: int = 16, only: Only = None) -> Knob:
    """Return the register tile as a knob: rows x vectors whose sums, and what they are made of, fit the registers.

    Smaller ones than a quarter of the registers cannot hide the latency of additions."""
    shapes = itertools.product(range(1, most_rows + 1), range(1, 9))
    fits = [(r, v) for r, v in shapes if target.registers // 4 <= r * v <= target.registers - min(r, v)]
    if target.isa == "portable":  # see candidates
        fits = [(r, v) for r, v in fits if r * v + min(r, v) < 15]
    return Knob("tile", tuple(f"{r}x{v}" for r, v in fits), only)


def near_knob(only: Only = None) -> Knob:
    """Return the distance of `NEAR` as a knob, 0 for none."""
    return Knob("near", (0, 8, 16, 32), only)


def _parsed(tile: str) -> tuple[int, int]:
    rows, _, vectors = tile.partition("x")
    return int(rows), int(vectors)


def tile_cycles(
    target: Target, rows: int, vecs: int, k: int, far_bytes: int = 0, pairs: bool = False, halves: bool = False
) -> float:
    """Model the cycles of one tile; `far_bytes`: of a vector of B if that comes from beyond the first-level cache.

    SSE2 multiplies into a copy of a vector, adds that, and broadcasts by a load and a shuffle. Products of `pairs` are
    added by a second instruction, and vectors of B are widened. `halves`: wide vectors take two cycles, except those
    of A, of which one number is loaded."""
    issued = _SSE2 * (3 * rows * vecs + 2 * rows + vecs) if target.isa == "portable" else 0.0
    issued = _PAIRS * (2 * rows * vecs + vecs) if pairs else issued
    each = times(target, halves)
    step = max(each * rows * vecs / 2, (rows + each * vecs) / 2, issued, _LATENCY, _STREAMED * far_bytes * vecs)
    return k * step + _CALL + each * _STORE * rows * vecs


def times(target: Target, halves: bool) -> int:
    """Return how many cycles a wide vector takes for one of a vector of 256 bits."""
    return 2 if halves and target.vector_bytes == 64 else 1


def is_far(target: Target, vecs: int, k: int) -> bool:
    """Whether each tile of rows reads a panel of `vecs` vectors from the second-level cache again."""
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
    vectors: int = 0,
    tile: str = "",
    by_rows: bool = False,
    pairs: bool = False,
    halves: bool = False,
) -> Tiles:
    """Return the tile with the least modeled time for a batch of rows x columns x k products; None: any extent.

    `packing` is the cost of packing one vector of a panel, in cycles per k. `streamed`: B comes from memory, each panel
    once, so reading it again costs much even for few rows. `vectors` is the width of the tile; 0: any. `tile` is one
    of `tile_knob`, chosen by a search. `by_rows`: threads may divide rows (`k_by_rows`). `pairs`: each product takes a
    register of its own and a second instruction to add it. `halves`: see `tile_cycles`. Of equal tiles the first
    candidate wins."""
    best: tuple[float, tuple[int, int]] | None = None
    m, n = rows or (NOMINAL_ROWS if rows is None else 1), columns or (NOMINAL_COLUMNS if columns is None else 1)
    for mr, nv in [_parsed(tile)] if tile else candidates(target):
        if not tile and ((rows is None and mr < least_rows(target)) or vectors not in (0, nv)):
            continue
        if not tile and nv < 2 and (columns is None or streamed):
            continue
        if not tile and mr * nv + min(mr, nv) + 1 + pairs > target.registers:
            continue
        nr = nv * target.lanes
        blocks, panels = math.ceil(m / mr), math.ceil(n / nr)
        last = math.ceil((n - (panels - 1) * nr) / target.lanes)
        far = target.vector_bytes if streamed and is_far(target, nv, k) else 0
        column = [(nv, panels - 1), (last, 1)]
        row = [(mr, m // mr), (m % mr, 1 if m % mr else 0)]
        each = {(r, v): tile_cycles(target, r, v, k, far, pairs, halves) for r, _ in row for v, _ in column}
        total = sum(each[r, v] * count_r * count_v for v, count_v in column for r, count_r in row)
        gathered = times(target, halves) * packing * k * sum(v * count for v, count in column)
        total += gathered * (1 if panels * batch >= threads else threads)
        if k <= _FEW and nr * target.element_bytes < _LINES and m * n * batch * target.element_bytes > target.l2 // 2:
            total += _PIECE * m * panels
        share = [sum(each[r, v] * count for r, count in row) + packing * k * v for v, _ in column]
        whole_rows = by_rows and batch == 1 and _divides_rows(m, n, k, blocks, threads)
        cost = total * _uneven(blocks, panels, batch, share[0], share[1], threads, whole_rows)
        if best is None or cost < best[0] * 0.995:
            best = cost, (mr, nv)
    assert best is not None
    mr, nv = best[1]
    fetched = (target.intel or target.isa != "avx2") and 4 * k * nv * target.vector_bytes > 3 * target.l1
    near = NEAR if fetched else 0
    blocks = _UNKNOWN_BLOCKS if rows is None else math.ceil(m / mr)
    streams = target.intel and k * nv * target.vector_bytes >= _STREAMS * blocks
    return replace(with_edges(target, mr, nv, rows, columns), near=near, streams=streams, cycles=best[0])


def cycles_by_halves(chosen: Callable[..., Tiles]) -> float:
    """Model the cycles of a choice on a CPU that computes vectors of 512 bits by halves; `chosen` is `choose` with its
    arguments. Tiles are the same as on other CPUs."""
    found = chosen()
    return chosen(tile=f"{found.mr}x{found.nv}", halves=True).cycles


def choose_words(
    target: Target,
    precision: Precision,
    rows: int | None,
    columns: int | None,
    k: int,
    *,
    threads: int = 1,
    batch: int = 1,
    run: int = 0,
    copied: int = 0,
    by_rows: bool = False,
    tile: str = "",
) -> Tiles:
    """Return the tile with the least modeled time for products of words: AMX's, where the CPU has them, or vectors.

    `k` counts words. Steps of AMX are equal, and k is rounded up to whole ones (`padded`), or they divide a `run` of k.
    Before AMX reads A, `copied` words of each row are copied. `by_rows`: threads may divide rows
    (`k_by_rows`). `tile` is one of `tile_knob`, chosen by a search among those of vectors."""
    pairs = precision is Precision.INT8 and uses_pairs(target)
    vectors = choose(target, rows, columns, k, threads=threads, batch=batch, by_rows=by_rows, tile=tile, pairs=pairs)
    if tile:
        return vectors
    steps = -(-k // _AMX_WORDS)
    if run:
        steps = k // max(n for n in range(1, min(run, _AMX_WORDS) + 1) if run % n == 0)
    if columns is None or precision.feature not in target.features:
        return vectors
    m = rows or (NOMINAL_ROWS if rows is None else 1)
    blocks, (panels, rest) = -(-m // _AMX_ROWS), divmod(columns, _AMX_VECTORS * target.lanes)
    narrow = 0 < rest <= target.lanes
    total = 0.0
    for height, count in ((_AMX_ROWS, m // _AMX_ROWS), (m % _AMX_ROWS, 1 if m % _AMX_ROWS else 0)):
        for width, times in ((_AMX_VECTORS, panels + (rest > target.lanes)), (1, int(narrow))):
            total += amx_cycles(height, width, steps) * count * times
    wide = panels + (rest > 0)
    total += _AMX_SHAPE * wide + _AMX_GATHER * m * copied / _AMX_WORDS
    whole_rows = by_rows and batch == 1 and _divides_rows(m, columns, k, blocks, threads)
    cycles = total * _uneven(blocks, wide, batch, 1.0, 0.6 if narrow else 1.0, threads, whole_rows)
    # these CPUs begin one product of words on vectors per cycle, not two
    if cycles >= 2.0 * vectors.cycles:
        return vectors
    made = with_edges(target, _AMX_ROWS, _AMX_VECTORS, rows, columns)
    return replace(made, rest=(), cycles=cycles / 2.0, amx=-(-k // steps))


def amx_cycles(rows: int, vecs: int, steps: int) -> float:
    """Model the cycles of one tile of AMX: products of 16 rows take 16 cycles, of fewer somewhat less."""
    halves = [min(16, rows - top) for top in range(0, rows, 16)]
    products = sum(max(_AMX_LEAST, float(half)) for half in halves) * vecs
    loads = _AMX_LOAD * (len(halves) + vecs)
    return steps * max(products, loads) + _CALL + _AMX_STORE * rows * vecs


def padded(choice: Tiles, k: int) -> int:
    """Return k, in words, rounded up to whole steps of a tile."""
    return -(-k // choice.amx) * choice.amx if choice.amx else k


def _divides_rows(m: int, n: int, k: int, blocks: int, threads: int) -> bool:
    """Whether threads divide the rows of a product [m, k] x [k, n], in blocks: `k_by_rows` in kernel.h."""
    idle, word = -blocks % threads, 3 if m > 128 and k * n <= 3 << 18 else 20
    return threads > 1 and idle * 4 <= blocks and idle * n * m < blocks * (threads - 1) * (48 * m - word * n)


def _uneven(
    blocks: int, panels: int, batch: int, full: float, last: float, threads: int, whole_rows: bool = False
) -> float:
    """Return the time of the slowest thread relative to an even distribution.

    Each thread gets an equal stretch of tiles, panel by panel; with `whole_rows`, blocks of rows. The last panel of
    each matrix is narrower: it takes `last` cycles instead of `full`."""
    if threads == 1:
        return 1.0
    if whole_rows:
        return (blocks + -blocks % threads) / blocks
    items = blocks * panels * batch

    def until(item: int) -> float:
        whole, rest = divmod(item, blocks * panels)
        wide = min(rest, blocks * (panels - 1))
        return whole * (full * (panels - 1) + last) + (wide * full + (rest - wide) * last) / blocks

    ends = [until(items * t // threads) for t in range(threads + 1)]
    return max(b - a for a, b in pairwise(ends)) * threads / ends[-1]


def with_edges(target: Target, mr: int, nv: int, rows: int | None, columns: int | None) -> Tiles:
    """Return a tile with the edge tiles for these extents."""
    nr = nv * target.lanes
    tail, full = (-1, True) if columns is None else (math.ceil(columns % nr / target.lanes), columns >= nr)
    tile = Tiles(mr, nv, (rows % mr,) if rows and rows % mr else (), tail, full)
    return tile.cut() if rows is None else tile


def few_rows(target: Target, choice: Tiles, rows: Dim, columns: Dim) -> dict[str, list[tuple[int, int]]]:
    """Return the template parameter `few`: rows and panels of the tiles for few rows, known at run time only.

    Each sum waits four cycles for the one before. If a row of B has fewer bytes than the second-level cache sends in
    that time, tiles read several panels, up to eight vectors. Three rows are a tile of their own, so that B is read
    once. SSE2 has instructions enough for that time."""
    kept_up = choice.nv * target.vector_bytes >= _LATENCY * _SENT
    if isinstance(rows, int) or target.isa == "portable" or choice.amx or kept_up or not choice.full:
        return {}
    there = columns // (choice.nv * target.lanes) if isinstance(columns, int) else 8
    found = []
    for count in range(min(3, choice.mr - 1), 0, -1):
        panels = min(8, target.registers * 3 // 4 // count) // choice.nv
        found.append((count, 1 << min(panels, there).bit_length() - 1))
    return {"few": found} if found and found[-1][1] > 1 else {}


def odd_rows(target: Target, choice: Tiles, rows: Dim, k: Dim) -> dict[str, list[int]]:
    """Return the template parameter `rest` with tiles of three and of five rows, for rows known at run time only.

    Two tiles read B twice, which costs time where a panel of B outgrows the first-level cache. This is for AVX-512:
    AVX2 has `few_rows`, and the instructions of SSE2 hide the loads of B."""
    known = isinstance(rows, int) or not isinstance(k, int) or not is_far(target, choice.nv, k)
    if known or target.isa != "avx512" or choice.amx:
        return {}
    return {"rest": sorted({*choice.rest, *(n for n in (3, 5) if n < choice.mr)}, reverse=True)}


def k_block(target: Target, k: int, columns: int, row_blocks: int | None) -> int:
    """Return KC, the block of k: all of it, or equal parts whose panel of B stays in the second-level cache.

    With one block of rows each panel is read once, so blocking gains nothing."""
    limit = target.l2 * 3 // 5
    if k * columns * target.element_bytes <= limit or row_blocks == 1:
        return k
    parts = math.ceil(k * columns * target.element_bytes / limit)
    return math.ceil(k / parts)
