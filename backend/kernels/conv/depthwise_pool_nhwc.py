"""Windows over single channels or narrow groups of them, NHWC: pooling, depthwise and grouped convolution.

Vectors run over output channels. Each input of a tile of pixels is loaded once for all windows that contain it, which
the implicit GEMM cannot do, and several groups share a vector. So it is the faster kernel where groups are narrow.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.symbolic import Dim, ceildiv, product
from ...codegen.template_params import serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel_graph import LeadingDimension, Step
from ...ir.lower import Context
from ...ir.schedule import DEFAULT, Knob, Point, Space
from ...ir.target import Target
from ..scheduling import at_width, bits_knob, schedule
from .depthwise_lines_nhwc import LINES_TILES, can_copy_lines, copies_lines, lines_step
from .problem import SMALL_PLANES, PlaneProblem, Window, known, number_or

UNROLLED = 16
"""Largest window, in elements, that is unrolled as a whole; of a larger one, each line is."""
CODE, CODE_LINE = 260, 420
"""Approximate limits of the multiply-adds of an unrolled tile, and of one line of the filter in a tile."""
LINES = 8
"""Most lines of a filter that are unrolled where vectors of channels follow: the end of their loop is mispredicted."""
WIDEST, LARGEST = 128, 4096
"""Largest window, in columns and in elements: each line is unrolled, and all addresses are tabulated."""
TABLE = 16 << 10
"""Bytes of the table of addresses where each vector of channels is computed for many tiles."""
_AROUND = (5, 6, 7, 8, 8, 8, 10, 12)
"""Eighths of a likely extent that are likely too, that extent itself more than others."""
LEAST_CHUNK = 128
"""Least bytes of a chunk of channels: fewer lines of each pixel are not read ahead."""


@dataclass(frozen=True)
class Grouping:
    """Layout of groups in vectors: each reads `inputs` channels and computes `outputs`, `together` of them a block."""

    inputs: int
    outputs: int
    together: int
    lanes: int

    @classmethod
    def of(cls, inputs: int, outputs: int, groups: int, lanes: int) -> Grouping:
        """Return the layout with as many groups in a vector as fit; one channel each always fills the vector."""
        fits = min(lanes // inputs, lanes // outputs)
        return cls(inputs, outputs, lanes if inputs == outputs == 1 else max(1, min(fits, groups)), lanes)

    @property
    def pick(self) -> str:
        """How the template gets the inputs of a vector."""
        if self.inputs == self.outputs == 1:
            return "all"
        return "spread" if self.together > 1 else "one"

    @property
    def vectors(self) -> int:
        """Vectors of outputs in a block."""
        return -(-self.together * self.outputs // self.lanes)

    @property
    def unroll(self) -> int:
        """Inputs of a group that are unrolled."""
        return self.inputs if self.pick != "one" else next(n for n in (4, 2, 1) if self.inputs % n == 0)

    def blocks(self, groups: int) -> int:
        """Number of blocks."""
        return -(-groups // self.together)

    def pack(self, w: NDArray[Any], groups: int) -> NDArray[Any]:
        """Return weights [M, C, *kernel] in the order of the template, flat; missing lanes are zero."""
        blocks, columns = self.blocks(groups), w.shape[-1]
        lines = math.prod(w.shape[2:-1])
        by_group = w.reshape(groups, -1)
        by_group = np.pad(by_group, ((0, blocks * self.together - groups), (0, 0)))
        taps = by_group.reshape(blocks, self.together * self.outputs, self.inputs, lines, columns)
        taps = np.pad(taps, ((0, 0), (0, self.vectors * self.lanes - taps.shape[1]), *((0, 0),) * 3))
        split = (blocks, self.vectors, self.lanes, self.inputs // self.unroll, self.unroll, lines, columns)
        return np.ascontiguousarray(taps.reshape(split).transpose(0, 1, 3, 5, 4, 6, 2)).ravel()


@dataclass(frozen=True)
class WindowTile:
    """Tile of `rows` x `columns` pixels; `rolled`: with a loop over the lines of the filter, for one row."""

    rows: int
    columns: int
    rolled: bool
    cycles: float

    def slots(self, window: Window) -> int:
        """Number of inputs under the tile."""
        return self.lines(window) * window.reach(2, self.columns)

    def lines(self, window: Window) -> int:
        """Number of lines of inputs under the tile."""
        return window.kernel[0] * (window.kernel[1] if self.rolled else window.reach(1, self.rows))

    def spans(self, window: Window) -> bool:
        """Whether the tile is as wide as the image, of known width, and the image is one plane."""
        planes = (window.kernel[0], window.inputs[0], window.outputs[0])
        return planes == (1, 1, 1) and window.outputs[2] == self.columns and window.sides is not None


def plane_step_nhwc(problem: PlaneProblem, ctx: Context, w: NDArray[Any] | None = None) -> Step:
    """Return the step of the `depthwise_pool_nhwc` kernel, for windows that `fits_table` accepts.

    Where copies of lines are faster, it is that of `depthwise_lines_nhwc`. `w` are the weights of a convolution, which
    become an input."""
    space = partial(plane_nhwc_space, problem, ctx)
    point = schedule(problem.group, ctx, f"{problem.label} NHWC", problem.describe, space)
    ctx = at_width(point, ctx)
    window, epilogue, target, grouping = problem.window, problem.epilogue, ctx.target, _grouping(problem, ctx.target)
    if w is not None:
        groups = problem.groups
        assert isinstance(groups, int)
        problem = replace(problem, inputs=(*problem.inputs, ctx.add_constant(grouping.pack(w, groups), "packed")))
    channels, blocks = problem.groups * problem.multiple, ceildiv(problem.groups, grouping.together)
    tile = best_window_tile(window, grouping, target, ctx.likely, point)
    spans = tile.spans(window)
    pixels = tile.lines(window) * min(window.reach(2, tile.columns), known(window.inputs[2]) or WIDEST)
    inside = _inside(window, tile.columns) if spans else 1.0
    if point.get("order") == "lines" or (not point and copies_lines(problem, pixels, inside, spans, ctx)):
        return lines_step(problem, ctx, point)
    addresses = tile.lines(window) if spans else tile.slots(window)
    chunk = _chunk(problem, grouping, tile, target)
    if "order" in point:
        chunk = int(point.get("chunk", 1)) if point["order"] == "channels" else 0
    most = max(1, min(int(point.get("most", 64)), TABLE // (8 * addresses))) if chunk else 1
    reserved = ceildiv(problem.channels + target.lanes, 16) * 16
    scratch = ceildiv(reserved * 4 + most * addresses * 8, 64) * 64
    lines = window.kernel[0] * window.kernel[1]
    padded = window.pad[1] != 0 or window.pad_end[1] != 0
    whole = zip(window.outputs[1:], (tile.rows, tile.columns), strict=True)
    sizes = [pieces(n, size) if isinstance(n, int) else [size] for n, size in whole]
    extents = Extents()
    params: dict[str, Any] = {
        "images": extents(window.images),
        "channels": number_or(channels, extents),
        "blocks": extents(blocks),
        "inputs": grouping.inputs,
        "outputs": grouping.outputs,
        "in_block": grouping.inputs * grouping.together,
        "out_block": grouping.outputs * grouping.together,
        "pick": grouping.pick,
        "unroll": grouping.unroll,
        "g": window.params(problem.channels, extents),
        "rows": sizes[0],
        "columns": sizes[1],
        "partial": [not isinstance(n, int) and of[0] > 1 for n, of in zip(window.outputs[1:], sizes, strict=True)],
        "rolled": tile.rolled,
        "unrolled_lines": tile.rolled and not chunk and grouping.pick == "all" and lines <= LINES,
        "cut": tile.rolled and window.kernel[0] == 1 and (window.kernel[1] > 1 or (spans and padded)),
        "spans": spans and {"width": window.inputs[2], "pad": window.pad[2]},
        "chunk": chunk,
        "most": most,
        "slots": addresses,
        "reserved": extents(reserved),
        "scratch": extents(scratch),
        "epilogue": epilogue.params(extents),
        "stored": problem.stored,
        "out": epilogue.c,
        **problem.kinds,
    }
    leading: tuple[LeadingDimension, ...] = ()
    if isinstance(problem.channels, int) and isinstance(channels, int):
        leading = epilogue.row_leading_dimensions(problem.channels, channels, len(problem.inputs))
    kernel = ctx.kernel("depthwise_pool_nhwc", params)
    work = serial_below(problem.work, SMALL_PLANES)
    return problem.launch(kernel, problem.inputs, extents, work, scratch=scratch, leading_dimensions=leading)


def _grouping(problem: PlaneProblem, target: Target) -> Grouping:
    # channels known at run time only are those of a pool, whose groups fill vectors
    return Grouping.of(problem.width, problem.multiple, known(problem.groups) or target.lanes, target.lanes)


def plane_nhwc_space(problem: PlaneProblem, ctx: Context) -> Space:
    """Return the schedules of a window over channels, NHWC.

    `tile`: rows x columns of pixels, `form`: whether the window is unrolled as a whole, or each line in a loop;
    `order`: `tiles` computes all channels of a tile first, `channels` some tiles of a chunk of channels, `lines` copies
    lines (`depthwise_lines_nhwc`); `chunk`: blocks of channels of a chunk; `most`: tiles of a block; `lines_tile`,
    `vectors`: the tile, and the vectors of a chunk, where lines are copied; see `scheduling` for the other."""
    window, registers, grouping = problem.window, ctx.target.registers, _grouping(problem, ctx.target)
    _, height, width = (known(n) or 1 for n in window.outputs)
    tiles = [
        (r, t)
        for r, t in itertools.product(range(1, 5), range(1, 25))
        if r * t <= registers * 3 // 4 and r <= height and t <= width
    ]
    whole = grouping.pick == "all" and window.taps <= UNROLLED * 2
    orders = ("tiles", "channels", *(("lines",) if can_copy_lines(problem) else ()))

    def constraint(point: Point) -> bool:
        rows, columns = (int(n) for n in str(point.get("tile", "1x1")).split("x"))
        if ("tile" in point) != ("form" in point) or ("tile" in point and point.get("order") == "lines"):
            return False
        if point.get("form") == "rolled":
            return rows == 1 and columns * window.kernel[2] * grouping.unroll <= 2 * CODE_LINE
        return rows * columns * window.taps <= 2 * CODE

    knobs = [
        Knob("tile", tuple(f"{r}x{t}" for r, t in tiles)),
        Knob("form", ("whole", "rolled") if whole else ("rolled",)),
        Knob("order", orders if problem.kind == "depthwise" else ()),
        Knob("chunk", (1, 2, 4, 8, 16, 32), ("order", ("channels",))),
        Knob("most", (8, 16, 32, 64, 128), ("order", ("channels",))),
        Knob("lines_tile", LINES_TILES, ("order", ("lines",))),
        Knob("vectors", (1, 2, 4, 8), ("order", ("lines",))),
        bits_knob(ctx),
    ]
    return Space(("depthwise_pool_nhwc", "depthwise_lines_nhwc"), tuple(knobs), constraint)


def _chunk(problem: PlaneProblem, grouping: Grouping, tile: WindowTile, target: Target) -> int:
    """Return the blocks of channels whose taps, inputs and outputs of a tile fit three quarters of the L1 cache.

    A power of two. 0, for all channels at once, where these are at most twice as much, for images much larger than the
    L2 cache, of which long runs are read ahead best, for groups, which compute more for each load, and for channels
    known at run time only."""
    window = problem.window
    if not isinstance(problem.groups, int) or not isinstance(problem.channels, int):
        return 0
    image = (product(n) for n in (window.inputs, window.outputs))
    nbytes = sum(n * problem.channels * 4 if isinstance(n, int) else 0 for n in image)
    taps = window.taps * grouping.inputs if problem.kind == "depthwise" else 0
    vectors = grouping.vectors * (taps + tile.rows * tile.columns) + tile.slots(window)
    blocks, block_bytes = grouping.blocks(problem.groups), vectors * target.vector_bytes
    fits = max(1, target.l1 * 3 // 4 // block_bytes)
    chunk = max(1 << fits.bit_length() - 1, LEAST_CHUNK // (grouping.vectors * target.vector_bytes))
    gains = grouping.pick == "all" and blocks * block_bytes > target.l1 * 3 // 2 and nbytes <= 2 * target.l2
    return chunk if gains and chunk < blocks else 0


def fits_table(window: Window) -> bool:
    """Whether the kernel computes such windows."""
    return window.kernel[2] <= WIDEST and window.taps <= LARGEST


def window_cycles(window: Window, grouping: Grouping, groups: int, ctx: Context) -> float:
    """Model the cycles of the kernel for one image of a likely size."""
    tile = best_window_tile(window, grouping, ctx.target, ctx.likely)
    depth, height, width = map(ctx.likely, window.outputs)
    tiles = depth * math.ceil(height / tile.rows) * math.ceil(width / tile.columns)
    return tiles * (tile.cycles * grouping.blocks(groups) * grouping.vectors + 1.5 * tile.slots(window) + 30)


def best_window_tile(
    window: Window, grouping: Grouping, target: Target, likely: Callable[[Dim], int], point: Point = DEFAULT
) -> WindowTile:
    """Return the tile with the fewest cycles per output by a model of one vector; see `best_tile` for `likely`.

    A `point` of `plane_nhwc_space` decides, if it names the tile."""
    if "tile" in point:
        rows, columns = (int(n) for n in str(point["tile"]).split("x"))
        return WindowTile(rows, columns, point["form"] == "rolled", 0.0)
    _, kh, kw = window.kernel
    registers = 31 if target.registers >= 32 else 16
    sums = registers // 2 + registers % 2
    taps, inputs, single = window.taps, grouping.inputs, grouping.pick == "all"

    def unrolled(r: int, t: int) -> float | None:
        inside = _inside(window, t) if WindowTile(r, t, False, 0.0).spans(window) else 1.0
        if r * t > max(sums, 14) or (r * t > 1 and r * t * taps > CODE):
            return None
        if inside == 1 and (t > 8 or r * t > sums or r * t + kw * min(r, kh) >= registers):
            return None
        loads = window.reach(1, r) * window.reach(2, t) * 2 / 3 + r * t + taps / 2
        return max(r * t * taps / 2 * inside, 2 * taps) + loads

    def rolled(r: int, t: int) -> float | None:
        if r > 1 or t > (24 if single else sums * 3 // 2) or (t > 1 and t * kw * grouping.unroll > CODE_LINE):
            return None
        if t > 1 and t + 1 + (not single) >= registers:
            return None
        spilled = max(0, t + kw + 1 - registers) * t  # weights that are read again for each sum
        loads = window.reach(2, t) * (1 + (grouping.pick == "one") / grouping.unroll) + kw
        loads += spilled / 2 if single else spilled
        line = max(t * kw / 2, (4.5 if single else 4) * kw, loads / 2)
        line += loads / (12 if grouping.pick == "one" else 8) + 1
        inside = _inside(window, t) if single and WindowTile(r, t, True, 0.0).spans(window) else 1
        return taps / kw * inputs * line * inside + 2 * t

    whole = taps <= UNROLLED and single
    model = unrolled if whole else rolled
    rows, columns = best_tile(window, 14 if whole else 2 * sums, model, likely)
    cycles = model(rows, columns)
    assert cycles is not None
    return WindowTile(rows, columns, not whole, cycles)


def _inside(window: Window, columns: int) -> float:
    """Return the share of the products of that many outputs from the left edge on that are not with padding."""
    assert window.sides is not None
    width, pad = window.sides
    reads = (j * window.stride[2] + k * window.dilation[2] for j in range(columns) for k in range(window.kernel[2]))
    return statistics.fmean(0 <= at - pad < width for at in reads)


def pieces(extent: Dim, size: int) -> list[int]:
    """Return the sizes that an extent is cut into, descending: the full one, and that of the remainder.

    What remains of an extent known at run time only is cut into ones, or the last full one overlaps its neighbor."""
    if not isinstance(extent, int):
        return [size] if size == 1 else [size, 1]
    return [size, extent % size] if extent % size and size < extent else [min(size, max(1, extent))]


def best_tile(
    window: Window,
    most_columns: int,
    cycles: Callable[[int, int], float | None],
    likely: Callable[[Dim], int],
    edges: float = 1.0,
) -> tuple[int, int]:
    """Return the rows (up to 4) and columns of the tile with the fewest cycles per output.

    `cycles` models one tile, None if it does not fit; `edges` is the share of a full tile's time that one at the edges
    of the image wastes. An extent known at run time only is taken to be any around the one that `likely` returns."""
    _, height, width = window.outputs

    def waste(extent: Dim, size: int) -> float:
        around = [extent] if isinstance(extent, int) else [likely(extent) * n // 8 for n in _AROUND]
        rounded = statistics.fmean(math.ceil(n / size) * size / n if n > 0 else 1.0 for n in around)
        return rounded * edges + (1 - edges)

    _, rows, columns = min(
        (own / (r * t) * waste(height, r) * waste(width, t), r, t)
        for r in range(1, 5)
        for t in range(1, most_columns + 1)
        if (own := cycles(r, t)) is not None
    )
    return rows, columns
