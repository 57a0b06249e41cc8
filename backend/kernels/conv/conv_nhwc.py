"""Lowering of NHWC convolutions, `rewrite.ChannelsLastConv`, and transposed ones, `rewrite.ChannelsLastConvTranspose`.

x is [N, ..spatial, C], y is [N, ..spatial, M]; weights have the order of ONNX, [M, C / group, ..kernel]. Vectors run
over output channels, so nothing is gathered or transposed. A pointwise filter is a matrix product; other filters read
each tap's channels where they lie, through a table of pointers (Dukhan, "The Indirect Convolution Algorithm", 2019).
A transposed one is a convolution of unit stride for each phase of its outputs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ....engine.cost.conv_cycles import FEW_CHANNELS
from ....engine.ir.symbolic import product
from ...codegen.template_params import serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import DEFAULT, Knob, Point, Space
from ..gemm import tiles as tiling
from ..gemm.matmul import gemm_steps, pack_columns, packed_gemm_step, pair_rows, prefetched_lines
from ..gemm.problem import SMALL_WORK, UNBATCHED, GemmProblem, Matrices
from ..gemm.tiles import Precision, Tiles
from ..registry import lowering
from ..scheduling import at_width, bits_knob, schedule
from . import winograd
from .depthwise_pool_nhwc import Grouping, fits_table, plane_step_nhwc, window_cycles
from .expanded import expanded_step
from .planes import plane_step
from .problem import COPIED_SHARE, ConvProblem, PlaneProblem, Window, block_rows, known, read_conv

TABLE = 16 << 10
"""Bytes of a block's table of pointers."""
COPY = 128 << 10
"""Bytes of a block's copied lines."""
RUN = 20.0
"""Cycles for a tile to begin a run."""
WIDE = 6
"""Least dilation at which kernels for images of any size look for taps that read padding only."""
UNSURE = 0.5
"""Winograd's algorithm is chosen for such images where it takes less than this share of the time at likely sizes: at
smaller ones, each set of lines has only one or two, of tiles of four."""
MOST_PHASES = 1024
"""Maximum number of phases of a transposed convolution."""


@lowering("rewrite.ChannelsLastConv", "rewrite.ChannelsLastConvBf16")
def lower_conv_nhwc(group: Group, ctx: Context) -> list[Step] | None:
    """NHWC convolution of any geometry over one to three spatial dims, with constant weights.

    In bf16 the weights are rounded, and a fourth operand, bf16 like the result, may be added."""
    if group.prologue:
        step = expanded_step(group, ctx)
        return [step] if step else None
    problem = read_conv(group, ctx, nhwc=True)
    bf16 = problem is not None and problem.precision is Precision.BF16
    if problem is None:
        return None
    window, m, c = problem.window, problem.m, problem.channels
    odd = bf16 and c % 2 != 0  # no whole words: copied for AMX, else refused
    if odd and not blocking(problem, Runs(window.taps, problem.precision.words(c)), ctx)[-1].amx:
        return None
    if problem.flat and not odd:
        rows = product((window.images, window.pixels))
        if bf16:
            words = pair_rows(problem.w.reshape(m, c).T)
            return [packed_gemm_step(problem.x, rows, words, Precision.BF16, problem.epilogue, group, ctx, pads=False)]
        left, right = Matrices(problem.x, UNBATCHED, c, 1), Matrices(group.node.inputs[1], UNBATCHED, 1, c)
        return gemm_steps(GemmProblem(group, problem.epilogue, left, right, (), rows, m, c, c), ctx)
    if bf16 and (step := _by_planes(problem, ctx)):
        return [step]
    if problem.groups > 1 and not bf16 and (step := _by_window(problem, ctx)):
        return [step]
    point = DEFAULT
    if not bf16:
        point = schedule(group, ctx, f"{problem.label} NHWC", problem.describe, partial(conv_nhwc_space, problem, ctx))
    algorithm, own = point.get("algorithm", ""), ctx
    ctx = at_width(point, own)
    if not bf16 and ctx.reassociate and algorithm != "direct":
        filtering = winograd.plan(problem, ctx, nhwc=True, point=point)
        likely = problem.likely(ctx)
        direct = blocking(likely, Runs(window.taps, c), ctx)[-1].cycles * likely.batch * likely.window.share_read
        share = UNSURE if _is_wide(window) else 0.9
        if filtering is not None and (algorithm or filtering.cycles < share * direct):
            ctx, filtering = winograd.at_best_width(problem, own, filtering, nhwc=True, point=point)
            return [winograd.winograd_step(problem, filtering, ctx, nhwc=True, point=point)]
    if not bf16:
        runs = _runs(window, c, can_copy(window, problem.groups, c))
        ctx = at_width(point, own, lambda ctx: tiling.cycles_by_halves(_chosen(problem, runs, ctx, point)))
    return [conv_step(problem, ctx, point)]


def conv_nhwc_space(problem: ConvProblem, ctx: Context) -> Space:
    """Return the schedules of a convolution in f32, NHWC.

    `block`: most pixels of a block, where lines are not copied; `k_parts`: parts of the runs of a pixel, of which one
    is computed for all pixels of a block before the next; `prefetch`: lines of the next weights for each step; see
    `tiles` and `scheduling` for the others."""
    copied = can_copy(problem.window, problem.groups, problem.channels)
    filtering = ctx.reassociate and winograd.plan(problem, ctx, nhwc=True) is not None
    direct = ("algorithm", ("direct",))
    knobs = [
        Knob("algorithm", ("direct", *(winograd.NAMES if filtering else ()))),
        tiling.tile_knob(ctx.target, only=direct),
        Knob("block", () if copied else (32, 64, 128, 256, 512), direct),
        Knob("k_parts", () if copied or problem.epilogue.is_narrow else (1, 2, 3, 4, 6, 9), direct),
        tiling.near_knob(direct),
        Knob("prefetch", (0, 1, 2, 4), direct),
    ]
    knobs += winograd.knobs(ctx.target) if filtering else []
    knobs.append(bits_knob(ctx))
    return Space(("conv_nhwc", "winograd_nhwc"), tuple(knobs))


@lowering("rewrite.ImageConvBf16")
def lower_image_conv(group: Group, ctx: Context) -> list[Step] | None:
    """Convolution of NCHW images of few channels with an NHWC result, by AMX: the copy to planes rounds x."""
    problem = read_conv(group, ctx, nhwc=True)
    step = None if problem is None else _by_planes(problem, ctx, channels_first=True)
    return [step] if step else None


def _by_planes(problem: ConvProblem, ctx: Context, channels_first: bool = False) -> Step | None:
    """Return the step that reads the taps in planes of the input, None where others are faster."""
    groups, m, window = problem.groups, problem.m, problem.window
    taps = problem.w.reshape(groups, m, problem.channels, window.taps).transpose(0, 3, 2, 1)
    zeros = {"zero": "0", "zero_point": None, "start": False}
    return plane_step(problem, pair_rows(taps), (problem.x,), zeros, ctx, channels_first=channels_first)


def _by_window(problem: ConvProblem, ctx: Context) -> Step | None:
    """Return the step of the kernel for narrow groups, None where the implicit GEMM is faster."""
    window, groups, m, c = problem.window, problem.groups, problem.m, problem.channels
    if not fits_table(window):
        return None
    layout = Grouping.of(c, m, groups, ctx.target.lanes)
    point = DEFAULT
    if layout.pick != "all":
        described = partial(problem.describe, choice="algorithm")
        point = schedule(problem.group, ctx, f"algorithm of {problem.label} NHWC", described, grouped_space)
        if point.get("algorithm") == "product":
            return None
    if layout.pick != "all" and not point:
        likely = problem.likely(ctx)
        product_cycles = blocking(likely, Runs(window.taps, c), ctx)[-1].cycles * groups
        if window_cycles(window, layout, groups, ctx) > product_cycles:
            return None
    planes = PlaneProblem(problem.group, window, problem.epilogue, (problem.x,), c * groups, width=c, multiple=m)
    return plane_step_nhwc(planes, ctx, problem.w)


def grouped_space() -> Space:
    """Return the algorithms of a convolution in narrow groups, NHWC; each has a space of its own besides.

    `window` has vectors of the outputs of several groups, `product` is the implicit GEMM of one group after the
    other."""
    return Space(("depthwise_pool_nhwc", "conv_nhwc"), (Knob("algorithm", ("window", "product")),))


@dataclass(frozen=True)
class Runs:
    """Contiguous stretches of the input under a filter: `count` per pixel, of `length` words each.

    With `copied` a run is a line of the filter, read from copies of the input lines with their padding."""

    count: int
    length: int
    copied: bool = False


def conv_step(problem: ConvProblem, ctx: Context, point: Point = DEFAULT) -> Step:
    """Return the step of the implicit GEMM; in bf16, channels are words of two."""
    target, window, epilogue, groups = ctx.target, problem.window, problem.epilogue, problem.groups
    bf16, m, c = problem.precision is Precision.BF16, problem.m, problem.precision.words(problem.channels)
    copied = can_copy(window, groups, c)
    runs = _runs(window, c, copied)
    block, block_columns, choice = blocking(problem, runs, ctx, point)
    k = tiling.padded(choice, runs.count * runs.length)
    if choice.amx:  # rows are copied by bf16, not by words
        c = problem.channels
        runs = _runs(window, c, copied)
        k = tiling.padded(choice, problem.precision.words(runs.count * runs.length))
    length = runs.length
    rows = min(block, window.pixels) if isinstance(window.pixels, int) else block
    nr = choice.nv * target.lanes
    part = runs.count
    if not choice.amx and not copied and not epilogue.is_narrow and k * nr * 4 > target.l2 * 3 // 5:
        part = math.ceil(runs.count / min(runs.count, math.ceil(k * nr * 4 / (target.l2 * 3 // 5))))
    if "k_parts" in point:
        part = -(-runs.count // int(point["k_parts"]))
    reserved = -(-(copied_elements(window, block, block_columns, c) if copied else c * groups) // 16) * 16
    scratch = -(-(reserved * 4 + block * runs.count * 8) // 64) * 64
    gathered = {"depth": k, "gathered": scratch} if choice.amx else {}
    scratch += -(-4 * block * k // 64) * 64 if choice.amx else 0
    few = tiling.few_rows(target, choice, window.pixels, m)
    finite = bool(np.isfinite(problem.w).all())  # else padding would be NaN
    skips = not copied and not choice.amx and (_is_wide(window) or problem.likely(ctx).window.share_read < 1)
    extents = Extents()
    params = {
        **problem.params(c * groups, extents),
        **gathered,
        "runs": runs.count,
        "length": length,
        "part": part,
        "prefetch": int(point.get("prefetch", prefetched_lines(choice, target, rows, m, k))),
        "block": block,
        "copied": copied,
        "skips": skips and finite,
        **({"skips_few": finite and not copied} if few else {}),
        "columns": block_columns,
        "reserved": reserved,
        "scratch": scratch,
        "tiles": {**choice.sizes, **few, "dot": problem.precision.dot(), "out": epilogue.c},
    }
    taps = problem.w.reshape(groups, m, problem.channels, -1).transpose(0, 3, 2, 1).reshape(groups, -1, m)
    columns = pair_rows(taps) if bf16 else taps
    if columns.shape[1] < k:  # most need no copy
        columns = np.pad(columns, ((0, 0), (0, k - columns.shape[1]), (0, 0)))
    inputs = (problem.x, ctx.add_constant(pack_columns(columns, nr, target.lanes, ctx.memory.new), "packed"))
    leading = epilogue.row_leading_dimensions(c * groups, m * groups)[copied:]  # lines that are copied have no other
    kernel, work = ctx.kernel("conv_nhwc", params), serial_below(problem.macs(k), SMALL_WORK)
    in_place = part == runs.count
    return problem.launch(kernel, inputs, extents, work, in_place, scratch=scratch, leading_dimensions=leading)


def _runs(window: Window, c: int, copied: bool) -> Runs:
    """Return the runs of a pixel under all taps, or lines of the filter, of `c` channels each."""
    length = window.kernel[2] * c if copied else c
    return Runs(window.taps * c // length, length, copied)


def _is_wide(window: Window) -> bool:
    """Return whether many taps may read padding only, in images of a size that is not known."""
    return not window.is_known and max(window.dilation) >= WIDE


def can_copy(window: Window, groups: int, c: int) -> bool:
    """Whether input lines are better copied: those of images with few channels, and filters of adjacent columns."""
    flat = window.kernel[0] == 1 and window.outputs[0] == 1 and window.inputs[0] == 1 and window.pad[0] == 0
    return groups == 1 and c <= FEW_CHANNELS and window.kernel[2] > 1 and window.dilation[2] == 1 and flat


def copied_elements(window: Window, block: int, columns: int, c: int) -> int:
    """Return the largest number of inputs under a block of at most `columns` pixels of an output row, or of whole rows.

    Where the width is known, `columns` divides the block. Otherwise the largest block is one row or one column: with
    filters no smaller than their strides, every other shape of as many pixels overlaps more."""
    high, wide = window.reach(1, 1), window.kernel[2]
    if known(window.outputs[2]):
        shapes = {(block // columns, columns)}
    else:
        high, wide, shapes = max(high, window.stride[1]), max(wide, window.stride[2]), {(1, block), (block, 1)}
    sides = (((rows - 1) * window.stride[1] + high, (n - 1) * window.stride[2] + wide) for rows, n in shapes)
    return max(map(math.prod, sides)) * c


def blocking(
    problem: ConvProblem, runs: Runs, ctx: Context, point: Point = DEFAULT, row: int = 0
) -> tuple[int, int, Tiles]:
    """Return the maximum number of pixels in a block, and in a row of a copied one; and the tiles.

    `row`: words of 32 bits to which the inputs of a pixel are unpacked, for vectors; 0: none."""
    window, target = problem.window, ctx.target
    pixels = known(window.pixels)
    choice = _chosen(problem, runs, ctx, point, pairs=row > 0)()
    streams = choice.streams and pixels is not None  # images of any size have blocks of many pixels
    choice = replace(choice, near=int(point.get("near", choice.near)), streams=streams)
    if problem.precision is not Precision.F32:
        bf16 = problem.precision is Precision.BF16  # bytes are copied by words
        words = problem.precision.words(problem.k) if bf16 else runs.count * runs.length
        tiles = tiling.choose_words(
            target,
            problem.precision,
            pixels,
            problem.m,
            words,
            threads=ctx.threads,
            batch=problem.batch,
            copied=words,
            by_rows=True,
        )
        choice = tiles if tiles.amx else choice
    if runs.copied:
        _, height, width = map(ctx.likely, window.outputs)
        line = ((max(1, width) - 1) * window.stride[2] + window.kernel[2]) * (runs.length // window.kernel[2]) * 4
        most = max(1, min(COPY // max(1, line * window.stride[1]), TABLE * 4 // (8 * runs.count * max(1, width))))
        if row:
            most = max(1, min(most, target.l2 // COPIED_SHARE // (4 * row * max(1, width))))
        rows = block_rows(height, most, ctx.threads if problem.batch == 1 else 1)
        if pixels is None:
            return max(1, rows * width), max(1, rows * width), choice.cut()
        left = {rows * width % choice.mr, height % rows * width % choice.mr} - {0}
        return rows * width, width, replace(choice, rest=tuple(sorted(left, reverse=True)))
    if choice.amx or row:
        rows = max(1, target.l2 // COPIED_SHARE // (4 * (row or tiling.padded(choice, words)) * choice.mr))
        rows = max(1, int(point["block"]) // choice.mr) if "block" in point else rows
        blocks = 1 if pixels is None else math.ceil(pixels / (rows * choice.mr))
        most = rows if pixels is None else math.ceil(math.ceil(pixels / blocks) / choice.mr)
        return most * choice.mr, 0, choice if choice.amx or pixels is not None else choice.cut()
    if pixels is None:
        choice = choice.cut()
        return math.ceil(max(1, TABLE // (8 * runs.count)) / choice.mr) * choice.mr, 0, choice
    blocks = math.ceil(pixels / int(point["block"])) if "block" in point else math.ceil(pixels * runs.count * 8 / TABLE)
    return math.ceil(math.ceil(pixels / blocks) / choice.mr) * choice.mr, 0, choice


def _chosen(problem: ConvProblem, runs: Runs, ctx: Context, point: Point, pairs: bool = False) -> partial[Tiles]:
    """Return `tiles.choose` with its arguments for products of f32."""
    return partial(
        tiling.choose,
        ctx.target,
        known(problem.window.pixels),
        problem.m,
        runs.count * (runs.length + round(RUN * 2 / 24)),
        threads=ctx.threads,
        batch=problem.batch,
        tile=str(point.get("tile", "")),
        by_rows=True,
        pairs=pairs,
    )


@lowering("rewrite.ChannelsLastConvTranspose")
def lower_conv_transpose_nhwc(group: Group, ctx: Context) -> list[Step] | None:
    """NHWC transposed convolution over one to three spatial dims with known padding and constant weights."""
    problem = read_conv(group, ctx, nhwc=True, transposed=True)
    if problem is None or math.prod(problem.window.stride) > MOST_PHASES:
        return None
    window, epilogue, groups, target = problem.window, problem.epilogue, problem.groups, ctx.target
    pad = [p for p in window.pad if isinstance(p, int)]
    if len(pad) < 3:
        return None
    c, m = problem.m, problem.channels
    phases = _phases(window)
    runs = max(1, *map(len, phases))
    pixels = known(window.pixels)
    rows = None if pixels is None else -(-pixels // len(phases))
    batch = len(phases) * problem.batch
    choice = tiling.choose(target, rows, m, math.ceil(c * window.taps / len(phases)), threads=ctx.threads, batch=batch)
    choice, nr = choice.cut(), choice.nv * target.lanes
    block = math.ceil(max(1, TABLE // (8 * runs)) / choice.mr) * choice.mr
    if rows is not None:
        block = min(block, rows)
    reserved = -(-c * groups // 16) * 16
    scratch = -(-(reserved * 4 + block * (runs + 1) * 8) // 64) * 64
    taps = problem.w.reshape(groups, c, m, -1).transpose(0, 3, 1, 2)
    columns = [taps[:, [tap for tap, _ in phase]].reshape(groups, -1, m) for phase in phases]
    packed = np.concatenate([pack_columns(part, nr, target.lanes).reshape(-1) for part in columns if part.size])
    extents = Extents()
    params = {
        "images": extents(window.images),
        "groups": groups,
        "m": m,
        "g": window.params(c * groups, extents),
        "pad": pad,
        "epilogue": epilogue.params(extents),
        "phases": list(itertools.accumulate(map(len, phases[:-1]), initial=0)),
        "shifts": [list(shift) for phase in phases for _, shift in phase],
        "runs": runs,
        "length": c,
        "block": block,
        "reserved": reserved,
        "scratch": scratch,
        "tiles": {**choice.sizes, "out": epilogue.c},
    }
    kernel = Kernel("conv_transpose_nhwc", params)
    macs = product((window.images, *window.inputs, c * groups * m * window.taps))
    leading = epilogue.row_leading_dimensions(c * groups, m * groups)
    inputs = (problem.x, ctx.add_constant(packed, "packed"))
    work = serial_below(macs, SMALL_WORK)
    return [problem.launch(kernel, inputs, extents, work, scratch=scratch, leading_dimensions=leading)]


def _phases(window: Window) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return the taps of each phase of a transposed convolution, each with the shift of the input that it reads."""
    phases = []
    for phase in itertools.product(*map(range, window.stride)):
        taps = []
        for number, tap in enumerate(itertools.product(*map(range, window.kernel))):
            places = [k * d - r for k, d, r in zip(tap, window.dilation, phase, strict=True)]
            if all(place % step == 0 for place, step in zip(places, window.stride, strict=True)):
                taps.append((number, tuple(p // step for p, step in zip(places, window.stride, strict=True))))
        phases.append(taps)
    return phases
