"""Windows over single channels or narrow groups of them, NHWC: pooling, depthwise and grouped convolution.

Vectors run over output channels. Each input of a tile of pixels is loaded once for all windows that contain it, which
the implicit GEMM cannot do, and several groups share a vector. So it is the faster kernel where groups are narrow.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ...ir.schedule import DEFAULT, Knob, Point, Space
from ...ir.target import Target
from ..scheduling import schedule
from .problem import SMALL_PLANES, PlaneProblem, Window, known

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
_AROUND = (5, 6, 7, 8, 10, 12)
"""Eighths of a likely extent that are as likely."""
PERIOD = 4096
"""Bytes after which addresses share a set of the first-level cache."""
SHARED, AGAIN = 1.5, 15.0
"""Inputs are copied where those under a row of tiles exceed the sets that they share at least this many times, and that
times the loads of each input is at least the second figure."""


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
        down = window.kernel[1] if self.rolled else window.reach(1, self.rows)
        return window.kernel[0] * down * window.reach(2, self.columns)


def plane_step_nhwc(problem: PlaneProblem, ctx: Context) -> Step:
    """Return the step of the `depthwise_pool_nhwc` kernel, for windows that `fits_table` accepts."""
    window, epilogue, target = problem.window, problem.epilogue, ctx.target
    grouping = Grouping.of(problem.width, problem.multiple, problem.groups, target.lanes)
    channels, blocks = problem.groups * problem.multiple, grouping.blocks(problem.groups)
    space = partial(plane_nhwc_space, problem, grouping, target)
    point = schedule(problem.group, ctx, f"{problem.label} NHWC", problem.describe, space)
    tile = best_window_tile(window, grouping, target, ctx.likely, point)
    slots = tile.slots(window)
    nbytes = blocks * grouping.vectors * target.vector_bytes * window.taps * grouping.inputs
    outer = problem.kind == "depthwise" and nbytes > target.l1 // 2
    if "order" in point:
        outer = point["order"] != "tiles"
    tiles = product((window.images, *window.outputs))
    few = outer and isinstance(tiles, int) and tiles < 8 * ctx.threads * tile.rows * tile.columns
    copied = _copied(problem, grouping, tile, target, point.get("order")) if outer else None
    reserved = copied.floats(target.lanes) if copied else -(-(problem.channels + target.lanes) // 16) * 16
    most = max(1, min(int(point.get("most", 64)), TABLE // (8 * slots))) if outer else 1
    most = copied.tiles if copied else most
    scratch = -(-(reserved * 4 + most * slots * 8) // 64) * 64
    lines = window.kernel[0] * window.kernel[1]
    extents = Extents()
    params: dict[str, Any] = {
        "images": extents(window.images),
        "channels": channels,
        "inputs": grouping.inputs,
        "outputs": grouping.outputs,
        "in_block": grouping.inputs * grouping.together,
        "out_block": grouping.outputs * grouping.together,
        "pick": grouping.pick,
        "unroll": grouping.unroll,
        "g": window.params(problem.channels, extents),
        "rows": pieces(window.outputs[1], tile.rows),
        "columns": pieces(window.outputs[2], tile.columns),
        "overlap": [not isinstance(n, int) for n in window.outputs[1:]],
        "rolled": tile.rolled,
        "unrolled_lines": tile.rolled and not outer and grouping.pick == "all" and lines <= LINES,
        "outer": outer,
        "copied": asdict(copied) if copied else False,
        "most": most,
        "parts": min(ctx.threads, blocks) if few else 1,
        "slots": slots,
        "reserved": reserved,
        "scratch": scratch,
        "epilogue": epilogue.params(extents),
        "stored": problem.stored,
        "out": epilogue.c,
        **problem.kinds,
    }
    leading = epilogue.row_leading_dimensions(problem.channels, channels, len(problem.inputs))
    kernel = Kernel("depthwise_pool_nhwc", params)
    work = serial_below(problem.work, SMALL_PLANES)
    known_edges = all(isinstance(n, int) for n in window.outputs[1:])  # others are computed twice
    return problem.launch(
        kernel, problem.inputs, extents, work, known_edges, scratch=scratch, leading_dimensions=leading
    )


@dataclass(frozen=True)
class Copies:
    """Copies of the inputs under `band` rows of `tiles` in all: `lines` of `wide` pixels of `deep` vectors."""

    band: int
    tiles: int
    planes: int
    lines: int
    wide: int
    deep: int

    def floats(self, lanes: int) -> int:
        """Size in elements."""
        return self.planes * self.lines * self.wide * self.deep * lanes


def plane_nhwc_space(problem: PlaneProblem, grouping: Grouping, target: Target) -> Space:
    """Return the schedules of a window over channels, NHWC.

    `tile`: rows x columns of pixels, `form`: whether the window is unrolled as a whole, or each line in a loop;
    `order`: `tiles` computes all channels of a tile first, `channels` some tiles of a vector of channels, and `copies`
    likewise, from copies of the inputs; `most`: tiles of a block."""
    window, registers = problem.window, target.registers
    _, height, width = (known(n) or 1 for n in window.outputs)
    tiles = [
        (r, t)
        for r, t in itertools.product(range(1, 5), range(1, 25))
        if r * t <= registers * 3 // 4 and r <= height and t <= width
    ]
    whole = grouping.pick == "all" and window.taps <= UNROLLED * 2
    wide = [n for n in window.outputs if n != 1]
    orders = ("tiles", "channels", "copies") if problem.kind == "depthwise" and all(map(known, wide)) else ()

    def constraint(point: Point) -> bool:
        rows, columns = (int(n) for n in str(point.get("tile", "1x1")).split("x"))
        if ("tile" in point) != ("form" in point):
            return False
        if point.get("form") == "rolled":
            return rows == 1 and columns * window.kernel[2] * grouping.unroll <= 2 * CODE_LINE
        return rows * columns * window.taps <= 2 * CODE

    knobs = [
        Knob("tile", tuple(f"{r}x{t}" for r, t in tiles)),
        Knob("form", ("whole", "rolled") if whole else ("rolled",)),
        Knob("order", orders),
        Knob("most", (8, 16, 32, 64, 128), ("order", ("channels",))),
    ]
    return Space(("depthwise_pool_nhwc",), tuple(knobs), constraint)


def _copied(
    problem: PlaneProblem, grouping: Grouping, tile: WindowTile, target: Target, order: object
) -> Copies | None:
    """Return the copies that the kernel makes of inputs, None where reading them in place is as fast.

    An `order` of `plane_nhwc_space` decides, if there is one."""
    window, slots = problem.window, tile.slots(problem.window)
    height, width, across = (known(n) for n in (*window.outputs[1:], window.inputs[2]))
    if height is None or width is None or across is None or not all(map(known, window.inputs)):
        return None
    # pixels under a row of tiles, over those whose cache lines fit at once; and how often each input is loaded
    held = target.l1 // PERIOD * (PERIOD // math.gcd(PERIOD, problem.channels * 4))
    conflict = window.kernel[0] * window.kernel[1] * min(window.reach(2, width), across) / held
    again = window.kernel[1] * (-(-grouping.inputs // grouping.unroll))
    if order == "channels" or (order is None and (conflict < SHARED or again * conflict < AGAIN)):
        return None
    across, wide = -(-width // tile.columns), window.reach(2, width)
    deep = -(-grouping.inputs * grouping.together // target.lanes)
    line = window.kernel[0] * wide * deep * target.vector_bytes
    most = max(1, min(target.l2 // 4 // (line * tile.rows * window.stride[1]), 2 * TABLE // (8 * slots * across)))
    rows = -(-height // tile.rows)
    band = -(-rows // -(-rows // most))
    return Copies(band, band * across, window.kernel[0], window.reach(1, band * tile.rows), wide, deep)


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
    many = target.registers >= 32
    sums, registers = (16, 31) if many else (8, 16)
    taps, inputs = window.taps, grouping.inputs

    def unrolled(r: int, t: int) -> float | None:
        if r * t > sums or r * t + kw * min(r, kh) >= registers or (r * t > 1 and r * t * taps > CODE):
            return None
        loads = window.reach(1, r) * window.reach(2, t) * 2 / 3 + r * t + taps / 2
        return max(r * t * taps / 2, 2 * taps) + loads

    def rolled(r: int, t: int) -> float | None:
        if r > 1 or t > sums * 3 // 2 or (t > 1 and (t * kw * grouping.unroll > CODE_LINE or t + 2 >= registers)):
            return None
        spilled = max(0, t + kw + 1 - registers) / kw * t * kw  # weights that are read again for each sum
        loads = window.reach(2, t) * (1 + (grouping.pick == "one") / grouping.unroll) + kw + spilled
        line = max(t * kw / 2, 4 * kw, loads / 2) + loads / (12 if grouping.pick == "one" else 8) + 1
        return taps / kw * inputs * line + 2 * t

    whole = taps <= UNROLLED and grouping.pick == "all"
    model = unrolled if whole else rolled
    rows, columns = best_tile(window, 8 if whole else 2 * sums, model, likely)
    cycles = model(rows, columns)
    assert cycles is not None
    return WindowTile(rows, columns, not whole, cycles)


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
