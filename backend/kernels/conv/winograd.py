"""Winograd's minimal filtering for 3 x 3 convolutions of stride 1, NCHW and NHWC, and for n x 3 x 3 ones, NHWC.

The filter of a volume is one of images whose channels are those of n neighboring slices. In NHWC, a filter dilated by n
is n filters, each of the lines n apart.

F(t x u, 3 x 3) takes (t + 2) (u + 2) products for t u outputs where direct convolution takes 9 t u. That is 5.06 times
fewer for 6 x 6, 4 times for 4 x 4, 3 times for 4 x 2 and 2.25 times for 2 x 2. The real number is the same, its
rounding is not. Against float64 the largest error, relative to the largest output, is below 1e-6 for 2 x 2, 5e-6 for
4 x 2, 2e-5 for 4 x 4 and 4e-5 for 6 x 6 (1e-6 for direct convolution). Tiles of 7 x 7 would have 2e-4. So it is used
only where the run admits other rounding. After Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
CVPR 2016.

Length: one algorithm, whose model, blocks and parameters share the division into tiles.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.symbolic import Dim
from ...ir.arrays import aligned
from ...ir.iteration_space import Extents
from ...ir.kernel_graph import LeadingDimension, Step
from ...ir.lower import Context
from ...ir.schedule import DEFAULT, Knob, Point
from ...ir.target import Target
from ..gemm import tiles as tiling
from ..gemm.matmul import pack_columns, prefetched_lines
from ..gemm.tiles import Tiles
from ..scheduling import at_width
from .problem import ConvProblem, Window, known

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
    6: np.array(
        [
            [1, 0, 0],
            [-2 / 9, -2 / 9, -2 / 9],
            [-2 / 9, 2 / 9, -2 / 9],
            [1 / 90, 1 / 45, 2 / 45],
            [1 / 90, -1 / 45, 2 / 45],
            [1 / 45, 1 / 90, 1 / 180],
            [1 / 45, -1 / 90, 1 / 180],
            [0, 0, 1],
        ]
    ),
}
"""Filter transforms for the points 0, 1, -1, inf; 0, 1, -1, 2, -2, inf; and these with 1/2, -1/2."""

TileShape = tuple[int, int]
"""TileShape of a tile, down and across."""
_TRANSFORM: dict[TileShape, tuple[float, float]] = {
    (2, 2): (85.0, 65.0),
    (4, 2): (130.0, 90.0),
    (4, 4): (190.0, 130.0),
    (6, 6): (350.0, 250.0),
}
"""Cycles to transform the inputs and the outputs of a tile for one vector of channels, transposition included."""
_TRANSFORM_NHWC: dict[TileShape, tuple[float, float]] = {
    (2, 2): (60.0, 45.0),
    (4, 2): (95.0, 65.0),
    (4, 4): (150.0, 100.0),
    (6, 6): (300.0, 210.0),
}
"""The same for NHWC, without transposition."""
_STORED = 1.2
"""How much longer the transforms of a tile of 6 x 6 take where 16 registers are too few for them, see winograd.j2."""
_MARGIN = {True: 1.03, False: 1.12}
"""How much less time tiles of 6 x 6 have to take, by whether sizes are known. Their error is up to twice that
of 4 x 4, and blocks of images of any size are less even."""
_MEMORY, _L3 = 9.0, 24.0
"""Bytes per cycle from memory and from the third-level cache."""
_FILTER: dict[TileShape, float] = {(2, 2): 62.0, (4, 2): 80.0, (4, 4): 105.0, (6, 6): 200.0}
"""Cycles to transform a vector of filters in the kernel, mostly to bring its lines into the second-level cache."""
_SPACE = {False: 1 / 18, True: 1 / 72}
"""Cost of a byte of weights, in cycles, by whether the last cache holds those of the model: half of what it takes to
come from memory, since other kernels compete for the bandwidth, or what prefetching does not hide."""
_MODEL, _TRANSFORMED = 128 << 20, 4
"""Bytes of a cache that holds the weights of most models of images, and how many times as large those of a model become
at most where they are transformed: a smaller cache holds them, too, if it holds that."""
NAMES: dict[str, TileShape] = {"winograd6": (6, 6), "winograd4": (4, 4), "winograd4x2": (4, 2), "winograd2": (2, 2)}
"""Names of the algorithms F(t x u, 3 x 3), with their outputs."""
_BLOCKS = (8, 14, 28, 56, 84)
"""Approximate numbers of tiles per block that are tried."""
_HELD = 32
"""Most tiles of a block of an image of any size, where the second-level cache holds the filters."""
_FITTED = 1.1
"""How much less than the register tile for any number of tiles the one for a likely number has to cost."""
_SIDES = (4, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 56)
"""Tiles along each axis of the images for which the register tile of images of any size is chosen."""
_TIED = 1.003
"""How much more than the least time a register tile may take that is preferred."""
_PREFERRED = (28, 14, 56, 84, 8)
"""The same numbers. Of equal ones by the model the first is taken: 28 was fastest, 14 as fast, then 56."""


@dataclass(frozen=True)
class Blocks:
    """Division of an image's `down` x `across` tiles, of `t` outputs, into blocks of at most `rows` x `columns`."""

    t: TileShape
    down: int
    across: int
    rows: int
    columns: int

    @classmethod
    def of(cls, window: Window, t: TileShape, most: int) -> Blocks:
        """Return blocks of about `most` tiles, as even as possible."""
        lines = zip(window.outputs[1:], t, window.dilation[1:], strict=True)
        down, across = (_tiles(*axis) for axis in lines)
        columns = across if across <= most else math.ceil(across / math.ceil(across / most))
        rows = math.ceil(down / math.ceil(down / min(down, max(1, most // columns))))
        return cls(t, down, across, rows, columns)

    @property
    def size(self) -> int:
        """Tiles of a whole block."""
        return self.rows * self.columns

    @property
    def sizes(self) -> Counter[int]:
        """Number of blocks of each size in tiles."""
        return Counter(
            min(self.rows, self.down - i) * min(self.columns, self.across - j)
            for i in range(0, self.down, self.rows)
            for j in range(0, self.across, self.columns)
        )


@dataclass(frozen=True)
class Algorithm:
    """Blocking of a Winograd convolution F(t x u, 3 x 3), with its modeled time.

    Attributes:
        tiles: register tiles of the products.
        cycles: modeled time.
        chunk: 0 if filters are transformed at compile time. Else the kernel transforms those of `chunk` input channels
            at a time, for each panel and block: weights take 1/4 to 9/16 of the space and of the memory bandwidth.
        cost: `cycles`, and the worth of the space that weights take.
    """

    blocks: Blocks
    tiles: Tiles
    cycles: float
    chunk: int
    cost: float


def plan(problem: ConvProblem, ctx: Context, *, nhwc: bool = False, point: Point = DEFAULT) -> Algorithm | None:
    """Return the best algorithm by the model; None for other filters or strides, and for few or odd NCHW channels.

    A `point` of `knobs` fixes what it names.

    Extents known at run time only are taken to be likely ones, and twice as much: few tiles, or filters that are
    transformed for every block, suit few sizes. Then the register tile is one for any number of tiles, unless the one
    for likely extents is much better at both."""
    fixed = problem.window.is_known
    problem = problem.likely(ctx)
    window, m, c, lanes = problem.window, problem.m, problem.channels, ctx.target.lanes
    fits = window.kernel[1:] == (3, 3) and window.stride == (1, 1, 1)
    lines = zip(window.dilation, (1, *window.outputs[1:]), strict=True)
    fits &= all(n == 1 or (nhwc and isinstance(most, int) and n <= most) for n, most in lines)
    if not nhwc and (problem.groups != 1 or window.kernel[0] != 1 or window.outputs[0] != 1):
        return None
    few = c < lanes // 2 or m < lanes if nhwc else c % lanes != 0 or m < 2 * lanes
    if not fits or not window.is_known or few or not all(isinstance(p, int) for p in window.pad):
        return None
    larger = [] if fixed else [replace(problem, window=_doubled(window))]
    common = str(point.get("tile", ""))  # the register tile of any number of tiles; "": each algorithm chooses
    if not common and not fixed:
        common = tile_of_any(ctx.target, m, c * window.kernel[0])

    def cost(settings: tuple[TileShape, int, bool, str]) -> float:
        t, most, stored, tile = settings
        found = (algorithm(p, ctx, t, most, nhwc=nhwc, stored=stored, tile=tile) for p in (problem, *larger))
        bar = (1.0 if tile == common else _FITTED) * (_MARGIN[fixed] ** (1 + len(larger)) if t == (6, 6) else 1.0)
        return math.prod(each.cost for each in found) * bar

    forms = (True, False) if fixed or 36 * 4 * m * c * window.kernel[0] > ctx.target.l2 else (True,)
    sizes = list(NAMES.values()) if point.get("algorithm") not in NAMES else [NAMES[str(point["algorithm"])]]
    most_tiles: Iterable[int] = _PREFERRED if fixed else _PREFERRED[:-1]
    if "tiles" in point:
        most_tiles = [int(point["tiles"])]
    if "filters" in point:
        forms = (point["filters"] == "stored",)
    tiles = [common]
    if not fixed and "tile" not in point:
        likely = (algorithm(problem, ctx, t, _PREFERRED[0], nhwc=nhwc).tiles for t in sizes)
        least = tiling.least_rows(ctx.target)
        tiles += sorted({f"{each.mr}x{each.nv}" for each in likely if each.mr >= least and each.nv >= 2} - {common})
    t, most, stored, tile = min(itertools.product(sizes, most_tiles, forms, tiles), key=cost)
    found = algorithm(problem, ctx, t, most, nhwc=nhwc, stored=stored, tile=tile)
    return replace(found, tiles=replace(found.tiles, near=int(point.get("near", found.tiles.near))))


def at_best_width(
    problem: ConvProblem, ctx: Context, found: Algorithm, *, nhwc: bool = False, point: Point = DEFAULT
) -> tuple[Context, Algorithm]:
    """Return the context for the width of vectors (`at_width`), and the algorithm there; `found` is that of `ctx`.

    The time is that of the products, for as many filters as whole vectors have lanes."""
    best = at_width(point, ctx, lambda ctx: -(-problem.m // ctx.target.lanes) * ctx.target.lanes)
    if best is ctx:
        return ctx, found
    again = plan(problem, best, nhwc=nhwc, point=point)
    assert again is not None, "narrower vectors fit wherever wide ones do"
    return best, again


def knobs(target: Target) -> list[Knob]:
    """Return the knobs of Winograd's algorithms, which a knob `algorithm` chooses by one of `NAMES`.

    `tiles`: how many of an image make a block; `filters`: transformed at compile time (`stored`) or in the kernel;
    `prefetch`: cache lines of the next panel of filters for each step; see `tiles` for the others."""
    only = ("algorithm", tuple(NAMES))
    return [
        tiling.tile_knob(target, only=only),
        Knob("tiles", (*_BLOCKS, 112), only),
        Knob("filters", ("stored", "transformed"), only),
        tiling.near_knob(only),
        Knob("prefetch", (0, 1, 2, 4), only),
    ]


@lru_cache(maxsize=256)
def tile_of_any(target: Target, m: int, c: int) -> str:
    """Return the register tile that takes the least time by the model for images of any size, in the mean for each of
    their tiles. Of nearly equal ones the first that computes the fewest rows too many is returned."""
    choose = tiling.choose.__wrapped__  # so many numbers would push others out of its cache
    least = tiling.least_rows(target)

    def cycles(shape: tuple[int, int]) -> float:
        mr, nv = shape
        share: dict[int, float] = defaultdict(float)  # of the tiles of an image, over all images
        for side in _SIDES:
            for rows, blocks in divided(side, mr, _least(mr, nv)).items():
                share[rows] += blocks / side**2
        return sum(n * choose(target, rows, m, c, tile=f"{mr}x{nv}").cycles for rows, n in share.items())

    def fits(mr: int, nv: int) -> bool:
        """Return whether enough rows share a panel of filters: fewer do where it stays in the first-level cache, with
        AVX2. With AVX-512 a tile of three rows takes 1.26 times as long for each product on a Zen 4."""
        few = mr == 3 and target.isa == "avx2" and not tiling.is_far(target, nv, c)
        return nv >= 2 and (mr >= least or few)

    found = {tile: cycles(tile) for tile in tiling.candidates(target) if fits(*tile)}
    tied = (tile for tile, n in found.items() if n <= _TIED * min(found.values()))
    return "{}x{}".format(*min(tied, key=lambda tile: _least(*tile)))


@lru_cache(maxsize=512)
def divided(side: int, mr: int, least: int) -> Counter[int]:
    """Return the blocks of side x side tiles by what register tiles compute of them, see `division` in winograd.j2."""
    most, found = _BLOCKS[3], []
    for across in range(-(-side // most), -(-side // most) + 3):
        columns = -(-side // across)
        for rows in range(min(most // columns, side), 0, -1):
            sizes = Counter[int]()
            for high, wide in itertools.product((rows, side % rows), (columns, side % columns)):
                if n := high * wide:
                    n = n // mr * mr + min(mr, -(-(n % mr) // least) * least)
                    sizes[n] += (side // rows if high == rows else 1) * (side // columns if wide == columns else 1)
            found.append(sizes)
    return min(found, key=lambda sizes: sum((n + mr // 2) * count for n, count in sizes.items()))


def transformed_size(t: TileShape) -> int:
    """Return the number of products of a tile for each pair of channels."""
    return (t[0] + 2) * (t[1] + 2)


def _least(mr: int, nv: int) -> int:
    """Return the number of rows of a register tile that keep both multipliers busy."""
    rows = -(-8 // nv)
    return min(mr, 1 << (rows - 1).bit_length())


def _tiles(extent: Dim, t: int, dilation: int) -> int:
    """Return the number of tiles along an axis: of each of the sets of lines that a dilated filter reads, as many."""
    assert isinstance(extent, int)
    return dilation * math.ceil(extent / (t * dilation))


def _doubled(window: Window) -> Window:
    """Return the window of images that are twice as high and wide."""
    (depth, *inputs), (planes, *outputs) = window.inputs, window.outputs
    return replace(window, inputs=(depth, *(2 * n for n in inputs)), outputs=(planes, *(2 * n for n in outputs)))


def algorithm(
    problem: ConvProblem,
    ctx: Context,
    t: TileShape,
    most: int,
    *,
    nhwc: bool = False,
    stored: bool = True,
    tile: str = "",
) -> Algorithm:
    """Model the algorithm with blocks of about `most` tiles; `stored`: filters are transformed at compile time.

    `tile` is the register tile of the products, see `tiles.choose`.

    Its time is that of products and transforms, plus a share of the memory traffic that overlaps; or the other way
    round, whichever is more."""
    target, m, slices = ctx.target, problem.m, problem.window.kernel[0]
    c = problem.channels * slices
    lanes, xis, images = target.lanes, transformed_size(t), problem.batch * (known(problem.window.outputs[0]) or 1)
    blocks = Blocks.of(problem.window, t, most)
    sizes = blocks.sizes
    count = sizes.total() * images
    vectors = math.ceil(m / lanes)
    nbytes = 4 * (xis if stored else 9) * c * vectors * lanes
    streamed = nbytes > target.l2
    choice = tiling.choose(target, blocks.size, m, c, streamed=streamed, tile=tile)
    choice = replace(choice, rest=tuple(sorted({size % choice.mr for size in sizes} - {0}, reverse=True)))
    panels = math.ceil(vectors / choice.nv)
    parts = 1 if count >= 4 * ctx.threads or count % ctx.threads == 0 else min(ctx.threads, panels)  # `k_parts`
    products = _product_cycles(target, choice, sizes, (vectors, c, images), target.vector_bytes if streamed else 0)
    into, out = (_TRANSFORM_NHWC if nhwc else _TRANSFORM)[t]
    if t == (6, 6) and target.registers < 32:
        into, out = into * _STORED, out * _STORED
    work = xis * products
    read = into * math.ceil(problem.channels / lanes) * slices
    work += blocks.down * blocks.across * images * (read * parts + out * vectors)
    work += 0.0 if stored else _FILTER[t] * vectors * c * count
    work *= math.ceil(count * parts / ctx.threads) * ctx.threads / (count * parts)
    # bytes count less beside vectors that take two cycles, in units of a vector
    pace = tiling.times(target, target.halves)
    panel_bytes = xis * choice.nv * target.vector_bytes  # of one input channel's transformed filters
    # filters transformed at once: about a quarter of the second-level cache
    chunk = 0 if stored else min(c, -(-c // (8 * math.ceil(c * panel_bytes / (target.l2 // 4)))) * 8)
    inputs, sums = (xis * 4 * n * blocks.size for n in (c, choice.nv * lanes))
    held = nbytes if stored else chunk * panel_bytes
    memory = nbytes / (pace * _MEMORY) * ctx.threads if nbytes > target.l2 // 2 else 0.0
    again = 0.0  # bytes read repeatedly, or written and read, beyond the second-level cache
    if inputs + sums > target.l2 // 2:  # filters take the rest
        work += inputs * count / (pace * _L3)  # the transform does nothing but write them
    if held + inputs + sums > target.l2:
        again = nbytes * (count - 1) if nbytes > inputs else inputs * count * panels
    if not stored and held + sums > target.l2 * 2 // 5:  # streaming inputs evict the rest
        again += xis / 9 * nbytes * count
    again /= pace * _L3
    cycles = max(work + memory / 8 + again / 4, memory + again + work / 4)
    space = _SPACE[target.l3 >= min(_MODEL, _TRANSFORMED * ctx.weight_bytes)] / pace
    return Algorithm(blocks, choice, cycles, chunk, cost=cycles + space * nbytes * ctx.threads)


def _product_cycles(
    target: Target, choice: Tiles, sizes: Counter[int], extents: tuple[int, int, int], far_bytes: int
) -> float:
    """Model the products of one place xi for all blocks; `extents` are vectors of outputs, input channels, images.

    `far_bytes`: of a vector of filters if those come from beyond the second-level cache, else 0."""
    vectors, c, images = extents
    panels = math.ceil(vectors / choice.nv)
    widths = [choice.nv] * (panels - 1) + [vectors - (panels - 1) * choice.nv]
    heights: Counter[int] = Counter()  # rows of the tiles, and how many tiles have them
    for size, n in sizes.items():
        heights += Counter({choice.mr: size // choice.mr * n, size % choice.mr: n})
    total = images * sum(n * tiling.tile_cycles(target, h, v, c) for h, n in heights.items() if h for v in widths)
    if far_bytes:  # the first row of tiles misses L1
        first = min(choice.mr, max(sizes))
        near, away = (sum(tiling.tile_cycles(target, first, v, c, b) for v in widths) for b in (0, far_bytes))
        total += sizes.total() * images * (away - near)
    return total


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """How a kernel divides images into blocks of tiles.

    Attributes:
        tiles: the register tile.
        most: the maximum number of tiles in a block.
        rows: the maximum number of its rows of tiles.
        columns: the maximum number of its columns of tiles.
        least: the rows of a register tile that keep both multipliers busy.
    """

    tiles: Tiles
    most: int
    rows: int
    columns: int
    least: int


def block_limits(algorithm: Algorithm, target: Target, window: Window, k: int) -> BlockLimits:
    """Return how a kernel divides images; those of sizes known at run time only are divided then.

    `k` counts words of the inputs of a tile."""
    blocks, choice, xis = algorithm.blocks, algorithm.tiles, transformed_size(algorithm.blocks.t)
    least = _least(choice.mr, choice.nv)
    if window.is_known:
        return BlockLimits(choice, blocks.size, blocks.rows, blocks.columns, least)
    edges = tuple(r for r in (2 * least, least) if r < choice.mr)
    held = target.l2 // (8 * xis * (k + choice.nv * target.lanes))  # what half of the second-level cache holds
    most = max(blocks.size, min(_BLOCKS[3], held))
    return BlockLimits(replace(choice, rest=edges), most, most, most, least)


def winograd_step(
    problem: ConvProblem, algorithm: Algorithm, ctx: Context, *, nhwc: bool = False, point: Point = DEFAULT
) -> Step:
    """Return the step that convolves with weights [groups * M, C, 3, 3] or [groups * M, C, slices, 3, 3]."""
    blocks, lanes, epilogue = algorithm.blocks, ctx.target.lanes, problem.epilogue
    t, m, c, chunk = blocks.t, problem.m, problem.channels, algorithm.chunk
    window, nr, xis, groups = problem.window, algorithm.tiles.nv * lanes, transformed_size(t), problem.groups
    slices = window.kernel[0]
    k = c * slices
    limits = block_limits(algorithm, ctx.target, window, k)
    # of few tall register tiles, the last one would be too large a share; wider vectors of filters take two cycles from
    # the cache, which more tiles have to share
    low = 5 * limits.tiles.mr <= _HELD and ctx.target.vector_bytes <= 32
    if not window.is_known and not chunk and low and 4 * xis * k * m <= ctx.target.l2 * 3 // 4:
        # the second-level cache holds the filters: large blocks, which save reading them, would only displace them
        most = min(limits.most, _HELD)
        limits = replace(limits, most=most, rows=most, columns=most)
    if not nhwc and not window.is_known:  # the kernel transposes whole blocks, in memory reserved for the largest
        limits = replace(limits, rows=max(_BLOCKS[0], blocks.rows))
    choice, most = limits.tiles, limits.most
    turned = (limits.rows * t[0] + 2) * (limits.columns * t[1] + 2 + lanes) * lanes + lanes * lanes
    # layers of images of any size share kernels, whatever their numbers of channels
    shared = nhwc and not window.is_known
    ldv = -(-k // lanes) * lanes + 16
    v_plane, s_plane = (plane((most + (0 if window.is_known else limits.least)) * n, shared) for n in (ldv, nr))
    floats = xis * (v_plane + s_plane) + (0 if nhwc else turned)
    ldu = plane(chunk * nr, shared) if shared else chunk * nr + 16
    floats += xis * ldu if chunk else 0
    prefetch = prefetched_lines(choice, ctx.target, most, (9 if chunk else xis) * m, k, alone=True)
    if chunk and prefetch:  # the lines are those of one tap, not of a step
        prefetch = -(-36 * nr // (64 * xis * -(-most // choice.mr)))
    prefetch = int(point.get("prefetch", prefetch))
    scratch = -(-floats * 4 // 64) * 64
    extents, wide, rest = Extents(), choice.nv * lanes, choice.tail * lanes
    panels = -(-m // wide)
    last = rest if rest and panels * wide > m else wide

    def number(n: int) -> Any:
        """Write a number of the layer: as a constant, or as an entry of `dims` if kernels are shared."""
        return f"dims[{extents.variable(n)}]" if shared else n

    row = str(number(ldv) if tiling.shares_terms(choice.mr, k) else ldv)
    params = {
        **image_params(problem, extents),
        "m": number(m),
        "c": number(c),
        "k": number(k),
        "panels": number(panels),
        "last": number(last) if rest else wide,
        "filters": number((9 if chunk else xis) * k * ((panels - 1) * wide + last)),
        "slices": slices,
        "depth": extents(window.inputs[0]),
        "planes": extents(window.outputs[0]),
        "front": window.pad[0],
        "t": list(t),
        "least": limits.least,
        "most": number(most),
        "most_rows": number(limits.rows),
        "most_columns": number(limits.columns),
        "scratch": number(scratch),
        "ldv": row,
        "v_plane": v_plane,
        "s_plane": s_plane,
        "prefetch": prefetch,
        "turned": turned,
        "chunk": number(chunk) if chunk else 0,
        "ldu": ldu,
        "tiles": choice.params(row, "1", f"{choice.mr} * {row}", nr, rest),
        "out": epilogue.c,
    }
    leading: tuple[LeadingDimension, ...] = ()
    if shared:
        params["epilogue"], leading = epilogue.shared_params(extents, 2, m * groups)
        x, y = extents.variable(c * groups), extents.variable(m * groups)
        params |= {"x_row": f"dims[{x}]", "y_row": f"dims[{y}]"}
        x_rows = LeadingDimension(0, c * groups, (), ((x, 1),))
        leading = (x_rows, *leading, LeadingDimension(2 + len(epilogue.operands), m * groups, (), ((y, 1),)))
    else:
        params["epilogue"] = epilogue.params(extents)
        if nhwc:
            params |= {"x_row": c * groups, "y_row": m * groups}
            leading = epilogue.row_leading_dimensions(c * groups, m * groups)
    # [panel][C][9][NR] for kernels that transform filters
    w = problem.w.reshape(groups, m, c, slices, 3, 3).transpose(0, 1, 3, 2, 4, 5).reshape(groups, m, k, 3, 3)
    packed = [pack_columns(g.reshape(m, -1).T, nr, lanes) if chunk else transformed(g, t, nr, lanes) for g in w]
    filters = packed[0] if groups == 1 else np.concatenate([part.ravel() for part in packed])
    kernel = ctx.kernel("winograd_nhwc" if nhwc else "winograd", params)
    inputs = (problem.x, ctx.add_constant(filters, "packed"))
    return problem.launch(kernel, inputs, extents, scratch=scratch, leading_dimensions=leading)


def image_params(problem: ConvProblem, extents: Extents) -> dict[str, Any]:
    """Return the template parameters of images and their padding."""
    window = problem.window
    return {
        "images": extents(window.images),
        "groups": problem.groups,
        "h": extents(window.inputs[1]),
        "w": extents(window.inputs[2]),
        "oh": extents(window.outputs[1]),
        "ow": extents(window.outputs[2]),
        "top": window.pad[1],
        "left": window.pad[2],
        "high": window.dilation[1],
        "wide": window.dilation[2],
        "free": not window.is_known,
    }


def plane(floats: int, coarse: bool = False) -> int:
    """Return an odd number of cache lines, such that the elements of one tile fall into different sets of the cache.

    If `coarse`, it is an odd number of pages and one line: few values, and different sets of address translations."""
    return (-(-floats // 1024) | 1) * 1024 + 16 if coarse else (-(-floats // 16) | 1) * 16


def transformed(w: NDArray[Any], t: TileShape, nr: int, lanes: int) -> NDArray[Any]:
    """Return filters [M, C, 3, 3] as G w G', packed `[panel][xi][C][NR]`, flat, as `pack_columns` does.

    Each panel is transformed while it is in the cache."""
    m, c = w.shape[:2]
    down, across = (_G[n].astype(np.float32) for n in t)
    packed = aligned((transformed_size(t) * c * -(-m // lanes) * lanes,), np.dtype(np.float32))
    at = 0
    for part in (w[j : j + nr].reshape(-1, c, 3, 3).transpose(2, 3, 1, 0) for j in range(0, m, nr)):
        taps = np.pad(part, ((0, 0), (0, 0), (0, 0), (0, -part.shape[3] % lanes))).reshape(3, 3, -1)
        panel = packed[at : at + transformed_size(t) * taps.shape[2]].reshape(t[0] + 2, t[1] + 2, -1)
        # not by matrix products: for these shapes BLAS takes longer to distribute the work than to do it
        np.einsum("jb,ibn->ijn", across, np.einsum("ia,abn->ibn", down, taps), out=panel)
        at += panel.size
    return packed
