"""Winograd's minimal filtering for 3 x 3 convolutions of stride 1.

F(t x t, 3 x 3) takes (t + 2)^2 products for t^2 outputs where the plain way takes 9 t^2: 4 times fewer for t = 4, 2.25
times for t = 2. The same real number, but rounded otherwise: against float64 the largest error, relative to the largest
output, is below 1e-6 for t = 2 and 2e-5 for t = 4 (1e-6 for the plain way). So it is used where the run admits other
rounding. After Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.symbolic import Dim
from ..arrays import aligned
from ..iteration import Extents
from ..kernel_graph import Pitch
from ..lower import Context, Group, Kernel, Step
from . import tiles as tiling
from .epilogue import Epilogue
from .matmul import kernel_weight, lines_ahead, tile_params
from .tiles import Tiles
from .window import Window

_G = {
    2: np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    4: np.array(
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ]
    ),
}
"""The filter transforms for the points 0, 1, -1, inf and 0, 1, -1, 2, -2, inf."""

_TRANSFORM = {2: (85.0, 65.0), 4: (190.0, 130.0)}
"""What the transforms of the inputs and of the outputs of one tile cost for one vector of channels, in cycles, with
turning."""
_LAST = {2: (60.0, 45.0), 4: (150.0, 100.0)}
"""The same where channels lie last."""
_MEMORY, _L3 = 9.0, 24.0
"""Bytes that come in a cycle from memory and from the third-level cache."""
_FILTER = {2: 45.0, 4: 105.0}
"""What it costs to transform a vector of filters in the kernel: to bring the lines of its places into the second-level
cache, mostly."""
_SPACE = 1 / 18
"""What a byte of weights is worth, in cycles: half of what it takes to come from memory. Memory is for others, too."""
_BLOCKS = (8, 14, 28, 56, 84)
"""About how many tiles a block may have."""


@dataclass(frozen=True)
class Winograd:
    """A way to do a convolution: `t` outputs of a tile along an axis, `rows` x `columns` tiles of a block, the panels
    of output channels in `parts`; its modelled time in cycles, and its cost: that and what its bytes are worth.

    `chunk` is 0 where the filters are transformed when compiling. Else the kernel transforms them, so many input
    channels at a time, each panel for each block: weights take a quarter or 9/16 of the space, and of the time to come
    from memory."""

    t: int
    rows: int
    columns: int
    parts: int
    tiles: Tiles
    cycles: float
    chunk: int
    cost: float


def plan(
    ctx: Context, shape: Window, images: Dim, groups: int, m: int, c: int, *, last: bool = False
) -> Winograd | None:
    """The best way by the model; None where it cannot be done: other filters, strides, few or odd channels.

    `last` is for channels that lie last; any number of them will do."""
    lanes = ctx.target.lanes
    fits = shape.kernel == (1, 3, 3) and shape.stride == (1, 1, 1) and shape.dilation == (1, 1, 1) and groups == 1
    known = all(isinstance(d, int) and d > 0 for d in (*shape.inputs, *shape.outputs)) and shape.outputs[0] == 1
    few = c < lanes // 2 or m < lanes if last else c % lanes != 0 or m < 2 * lanes
    if not fits or not known or few or not all(isinstance(p, int) for p in shape.pad):
        return None
    number = images if isinstance(images, int) and images > 0 else 1
    ways = [
        way(ctx, shape, number, m, c, t, most, last=last, stored=stored)
        for t in (4, 2)
        for most in _BLOCKS
        for stored in (True, False)
    ]
    return min(ways, key=lambda way: way.cost)


def way(
    ctx: Context,
    shape: Window,
    images: int,
    m: int,
    c: int,
    t: int,
    most: int,
    *,
    last: bool = False,
    stored: bool = True,
) -> Winograd:
    """The way with blocks of about `most` tiles, with its time: that of the products and transforms, and shares of that
    of weights from memory and of what else comes from beyond the second-level cache, which are fetched meanwhile; or
    the other way round.

    `stored` says that the filters are transformed when compiling."""
    lanes, xis = ctx.target.lanes, (t + 2) ** 2
    down, across = _tiles(shape, t)
    columns = across if across <= most else math.ceil(across / math.ceil(across / most))
    rows = math.ceil(down / math.ceil(down / min(down, max(1, most // columns))))
    sizes = Counter(
        min(rows, down - i) * min(columns, across - j) for i in range(0, down, rows) for j in range(0, across, columns)
    )
    blocks = sizes.total() * images
    nbytes = 4 * (xis if stored else 9) * c * math.ceil(m / lanes) * lanes
    streamed = nbytes > ctx.target.l2
    choice = tiling.choose(ctx.target, rows * columns, m, c, streamed=streamed)
    rest = {size % choice.mr for size in sizes} - {0}
    choice = replace(choice, rest=tuple(sorted(rest, reverse=True)))
    vectors = math.ceil(m / lanes)
    panels = math.ceil(vectors / choice.nv)
    parts = 1 if blocks >= 4 * ctx.threads or blocks % ctx.threads == 0 else min(ctx.threads, panels)
    widths = [choice.nv] * (panels - 1) + [vectors - (panels - 1) * choice.nv]
    heights = [
        (h, n * images)
        for size, n in sizes.items()
        for h in (*[choice.mr] * (size // choice.mr), size % choice.mr)
        if h
    ]
    far = stored and streamed and tiling.is_far(ctx.target, choice.nv, c)
    products = sum(n * tiling.tile_cycles(h, v, c, far) for h, n in heights for v in widths)
    if streamed and not far:  # still the first tile of rows finds nothing in the first-level cache
        first = min(choice.mr, rows * columns)
        products += blocks * sum(
            tiling.tile_cycles(first, v, c, True) - tiling.tile_cycles(first, v, c) for v in widths
        )
    into, out = (_LAST if last else _TRANSFORM)[t]
    work = xis * products + down * across * images * (into * math.ceil(c / lanes) * parts + out * vectors)
    work += 0.0 if stored else _FILTER[t] * vectors * c * blocks
    work *= math.ceil(blocks * parts / ctx.threads) * ctx.threads / (blocks * parts)
    inputs, sums = (xis * 4 * n for n in (rows * columns * c, rows * columns * choice.nv * lanes))
    chunk = 0 if stored else _chunk(ctx, xis * choice.nv * ctx.target.vector_bytes, c)
    held = nbytes if stored else chunk * xis * choice.nv * ctx.target.vector_bytes
    memory = nbytes / _MEMORY * ctx.threads if nbytes > ctx.target.l2 // 2 else 0.0
    again = 0.0  # bytes that are read once more, or written and read, outside of the second-level cache
    if held + inputs + sums > ctx.target.l2:
        again = nbytes * (blocks - 1) if nbytes > inputs else inputs * blocks * (panels - 1)
    if not stored and held + sums > ctx.target.l2 * 2 // 5:  # inputs pass by, and take the rest
        again += xis / 9 * nbytes * blocks
    again /= _L3
    cycles = max(work + memory / 8 + again / 4, memory + again + work / 4)
    return Winograd(t, rows, columns, parts, choice, cycles, chunk, cycles + _SPACE * nbytes * ctx.threads)


def _chunk(ctx: Context, channel: int, c: int) -> int:
    """How many input channels' filters are transformed at once, where those of one take `channel` bytes: about what a
    quarter of the second-level cache holds."""
    parts = math.ceil(c * channel / (ctx.target.l2 // 4))
    return min(c, -(-c // (8 * parts)) * 8)


def _tiles(shape: Window, t: int) -> tuple[int, int]:
    _, height, width = shape.outputs
    assert isinstance(height, int)
    assert isinstance(width, int)
    return -(-height // t), -(-width // t)


def winograd_step(
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    w: NDArray[Any],
    x: str,
    way: Winograd,
    *,
    last: bool = False,
) -> Step:
    """The step that convolves the value `x` with weights [M, C, 1, 3, 3] or [M, C, 3, 3] in that way.

    `last` says that the channels of `x` and of the output lie last."""
    t, lanes, choice = way.t, ctx.target.lanes, way.tiles
    xis, m, c = (t + 2) ** 2, w.shape[0], w.shape[1]
    nr, most = choice.nv * lanes, way.rows * way.columns
    down, across = _tiles(shape, t)
    turned = (way.rows * t + 2) * (way.columns * t + 2 + lanes) * lanes
    ldv = -(-c // lanes) * lanes + 16
    floats = xis * most * (ldv + nr) + (ldv if last else turned + lanes * lanes)
    floats += xis * (way.chunk * nr + 16) if way.chunk else 0
    ahead = lines_ahead(choice, ctx.target, most, (9 if way.chunk else xis) * m, c)
    if way.chunk and ahead:  # the lines are those of one tap, not of a step
        ahead = -(-36 * nr // (64 * xis * -(-most // choice.mr)))
    extents = Extents()
    params = {
        "images": extents(images),
        "m": m,
        "c": c,
        "h": shape.inputs[1],
        "w": shape.inputs[2],
        "oh": shape.outputs[1],
        "ow": shape.outputs[2],
        "top": shape.pad[1],
        "left": shape.pad[2],
        "t": t,
        "rows": way.rows,
        "columns": way.columns,
        "down": down,
        "across": across,
        "parts": way.parts,
        "scratch": -(-floats * 4 // 64) * 64,
        "ldv": ldv,
        "ahead": ahead,
        "turned": turned + lanes * lanes,
        "chunk": way.chunk,
        "tiles": tile_params(choice, str(ldv), "1", str(choice.mr * ldv), nr, choice.tail * lanes),
        "epilogue": epilogue.params(extents),
        "out": epilogue.c,
    }
    filters = by_channel(w, nr, lanes) if way.chunk else transformed(w, t, nr, lanes)
    return Step(
        Kernel("winograd_last" if last else "winograd", params, kernel_weight(choice) + 3),
        (x, ctx.add_constant(filters, "packed"), *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=int(params["scratch"]),
        in_place=epilogue.in_place(2),
        nodes=tuple(n.name for n in group.nodes),
        pitches=(
            Pitch(0, c, ((("x_row",), 1),)),
            *epilogue.pitches(2, m),
            Pitch(2 + len(epilogue.values), m, ((("y_row",), 1),)),
        )
        if last
        else (),
    )


def transformed(w: NDArray[Any], t: int, nr: int, lanes: int) -> NDArray[Any]:
    """Filters [M, C, 3, 3] as G w G', packed `[panel][xi][C][nr]`, flat; the last panel has only whole vectors, with
    zeros for the channels that are missing."""
    m, c, e = w.shape[0], w.shape[1], t + 2
    g = _G[t].astype(np.float32)
    packed = aligned((e * e * c * -(-m // lanes) * lanes,), np.dtype(np.float32))
    at = 0
    for j in range(0, m, nr):
        count = min(nr, m - j)
        taps = np.zeros((3, 3, c, -(-count // lanes) * lanes), np.float32)
        taps[..., :count] = w[j : j + count].reshape(count, c, 3, 3).transpose(2, 3, 1, 0)
        flat = taps.reshape(3, 3, -1)
        panel = packed[at : at + e * e * flat.shape[2]].reshape(e, e, -1)
        # not by matrix products: for these shapes BLAS takes longer to share the work than to do it
        np.einsum("jb,ibn->ijn", g, np.einsum("ia,abn->ibn", g, flat), out=panel)
        at += panel.size
    return packed


def by_channel(w: NDArray[Any], nr: int, lanes: int) -> NDArray[Any]:
    """Filters [M, C, 3, 3] as `[panel][C][9][nr]`, flat, for kernels that transform them; the last panel as above."""
    m, c = w.shape[:2]
    packed = aligned((9 * c * -(-m // lanes) * lanes,), np.dtype(np.float32))
    at = 0
    for j in range(0, m, nr):
        count = min(nr, m - j)
        width = -(-count // lanes) * lanes
        panel = packed[at : at + 9 * c * width].reshape(c, 9, width)
        panel[..., :count] = w[j : j + count].reshape(count, c, 9).transpose(1, 2, 0)
        panel[..., count:] = 0
        at += panel.size
    return packed
