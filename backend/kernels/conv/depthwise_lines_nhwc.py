"""Depthwise convolution of images, NHWC, on compact copies of their lines.

Pixels are all channels apart. So those under a filter may fall into few sets of the first-level cache, or be read from
beyond the second level for each line of the filter. A copy of each line, which all lines of the filter read, is faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ...ir.schedule import Point
from ..gemm.epilogue import Epilogue
from ..gemm.tiles import Tiles
from .problem import SMALL_PLANES, PlaneProblem

LINE, SETS = 64, 64
"""Bytes of a line of the first-level cache, and the number of its sets."""
LARGE = 16
"""Filters of more elements are large: a copy takes little of their time."""
NARROW = 8
"""Fewest columns of an image that is not narrow."""
TILES = 64
"""Tiles of a strip, and of a band, where their number is known at run time only."""
RING = 4
"""A ring of computed lines takes at most this part, as a divisor, of the second-level cache."""
LINES_TILES = ("1x4", "1x8", "1x12", "1x16", "1x20", "2x4", "2x5", "2x8", "2x10", "3x4", "3x8")
"""Rows x columns of tiles that a schedule may choose."""
_TILES = {False: ("2x5", "1x8"), True: ("2x10", "1x20")}
"""Tiles of small and of large filters, by whether there are 32 registers."""


@dataclass(frozen=True)
class Expansion:
    """Pointwise convolution that computes the lines: its epilogue, register tiles, and number of input channels.

    The problem's inputs are then x of the pointwise convolution, the packed filters, the packed weights of the
    pointwise one, and the operands of its epilogue."""

    epilogue: Epilogue
    tiles: Tiles
    channels: int

    def params(self, target_lanes: int, extents: Extents) -> dict[str, Any]:
        """Return the template parameters."""
        k, nr, rest = self.channels, self.tiles.nv * target_lanes, max(0, self.tiles.tail) * target_lanes
        tiles = self.tiles.params(str(k), "1", str(self.tiles.mr * k), nr, rest)
        return {"k": k, "tiles": tiles, "epilogue": self.epilogue.params(extents)}


def can_copy_lines(problem: PlaneProblem) -> bool:
    """Whether the kernel computes this: depthwise filters of images in f32, of a known number of channels."""
    window = problem.window
    single = problem.kind == "depthwise" and problem.width == problem.multiple == 1 and problem.stored == "real"
    planes = (window.kernel[0], window.inputs[0], window.outputs[0])
    return single and planes == (1, 1, 1) and isinstance(problem.channels, int)


def copies_lines(problem: PlaneProblem, pixels: int, inside: float, spans: bool, ctx: Context) -> bool:
    """Whether this kernel is faster than tiles that read that many pixels of the image, as wide as it if `spans`.

    `inside` is the share of the products of such a tile that are not with padding at the sides.

    It is where the pixels evict each other from the sets that they share. Small filters of images much larger than the
    L2 cache are an exception: longer runs of channels are read ahead better. It is also for large filters of images
    larger than that cache, except narrow ones, where tiles leave out products with padding."""
    window, target = problem.window, ctx.target
    if not can_copy_lines(problem):
        return False
    row = ctx.likely(problem.channels) * 4
    nbytes = row * sum(math.prod(map(ctx.likely, sizes)) for sizes in (window.inputs, window.outputs))
    large, way = window.taps > LARGE, LINE * SETS
    sets = min(SETS, way // math.gcd(row, way))
    wide = ctx.likely(window.outputs[2]) >= NARROW
    if pixels * inside >= sets * (target.l1 // way) * (1 if wide else 1.5):  # narrower tiles hide less latency
        return large or nbytes <= 4 * target.l2
    return large and not spans and nbytes > 2 * target.l2


def lines_step(problem: PlaneProblem, ctx: Context, point: Point, expansion: Expansion | None = None) -> Step:
    """Return the step of the `depthwise_lines_nhwc` kernel, which copies lines or computes them by an expansion.

    By default a tile has sums enough to hide the latency of products, and the other registers hold weights. Two rows of
    a tile share weights. Of large filters one wider row reads fewer inputs for each result."""
    window, epilogue, target, channels = problem.window, problem.epilogue, ctx.target, problem.channels
    assert isinstance(channels, int)
    _, height, width = window.outputs
    tile = str(point.get("lines_tile", _TILES[target.registers >= 32][window.taps > LARGE]))
    most_rows, most_columns = map(int, tile.split("x"))
    if height == 1:
        most_rows, most_columns = 1, most_rows * most_columns
    rows, down = tile_sizes(height, most_rows, ctx.likely(height))
    columns, across = tile_sizes(width, most_columns, ctx.likely(width))
    blocks, lines = -(-channels // target.lanes), window.reach(1, rows[0]) + 1

    def scratch_of(strip: int, vectors: int) -> int:
        return lines * window.reach(2, strip * columns[0]) * vectors * target.vector_bytes

    def fits(strip: int, vectors: int, share: float) -> bool:
        taps = window.taps * vectors * target.vector_bytes
        return scratch_of(strip, vectors) + taps <= target.l1 * share

    # a line of the cache for each pixel, or two
    strip, vectors = across[1] if across else TILES, max(1, LINE // target.vector_bytes)
    if expansion:
        vectors = expansion.tiles.nv
        while strip > 1 and scratch_of(strip, vectors) > target.l2 // RING:
            strip = -(-strip // 2)
    else:
        while strip > 1 and not fits(strip, vectors, 1.5):
            strip = -(-strip // 2)
        vectors = min(blocks, int(point.get("vectors", vectors * 2 if fits(strip, vectors * 2, 0.75) else vectors)))
    chunks, band = -(-blocks // vectors), down[1] if down else TILES
    units = product((window.images, chunks, -(-across[1] // strip) if across else 1))
    if isinstance(units, int) and 0 < units < 4 * ctx.threads:
        band = min(band, max(-(-band * units // (4 * ctx.threads)), -(-window.reach(1, 1) // rows[0])))
    if down and window.images == 1 and ctx.threads > 1:  # as many bands for each thread, if they are few
        even = -(-down[1] // (-(-down[1] // (band * ctx.threads)) * ctx.threads))
        if -(-down[1] // even) % ctx.threads == 0 and down[1] < 8 * ctx.threads * band:
            band = even
    extents = Extents()
    params: dict[str, Any] = {
        "images": extents(window.images),
        "channels": channels,
        "g": window.params(expansion.channels if expansion else channels, extents),
        "vectors": vectors,
        "chunks": chunks,
        "rows": rows,
        "columns": columns,
        "counts": [down, across],
        "strip": strip,
        "band": band,
        "span": window.reach(2, strip * columns[0]),
        "held": min(window.kernel[2], max(1, target.registers - 2 - most_rows * most_columns)),
        "scratch": -(-scratch_of(strip, vectors) // 64) * 64,
        "expand": expansion and expansion.params(target.lanes, extents),
        "epilogue": epilogue.params(extents),
        "out": epilogue.c,
    }
    leading = epilogue.row_leading_dimensions(channels, channels, len(problem.inputs))
    leading = leading[1:] if expansion else leading  # tiles of the pointwise convolution read dense rows
    known_edges = all(isinstance(n, int) for n in window.outputs[1:])  # others are computed twice
    return problem.launch(
        ctx.kernel("depthwise_lines_nhwc", params),
        problem.inputs,
        extents,
        serial_below(problem.work, SMALL_PLANES),
        known_edges,
        scratch=params["scratch"],
        leading_dimensions=leading,
    )


def tile_sizes(extent: Dim, most: int, likely: int) -> tuple[list[int], list[int]]:
    """Return the sizes of the fewest tiles of at most that many outputs, and the numbers of larger ones and of all.

    Sizes differ by one at most. Of an extent known at run time only there are no numbers, and sizes for a `likely`
    extent, for smaller and for the smallest ones; see the template."""
    count = max(1, -(-likely // most))
    size = max(1, -(-likely // count))
    if not isinstance(extent, int):
        return sorted({size, -(-size // 2) if size > 4 else 1, 1}, reverse=True), []
    full = extent - count * (size - 1)
    return ([size] if full == count else [size, size - 1]), [full, count]
