"""Lowering of NHWC int8 convolutions, `rewrite.ChannelsLastConvInteger` and `rewrite.ChannelsLastQLinearConv`.

x is [N, ..spatial, C], unsigned, y is [N, ..spatial, M]; weights have the order of ONNX, [M, C / group, ..kernel], are
constant and fit signed bytes. As in `conv_nhwc`, vectors run over output channels and nothing is gathered; four
neighboring bytes are a word of the micro-kernel. A depthwise kernel multiplies four lines of a column at once, for as
many channels as a vector has words. The epilogue extends to the next int8 tensor (`requantize`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType
from ...codegen.template_params import int_attr, serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import DEFAULT, Knob, Point, Space
from ..conv.conv_nhwc import Runs, blocking, can_copy, copied_elements
from ..conv.depthwise_pool_nhwc import best_tile, pieces
from ..conv.planes import plane_step
from ..conv.problem import SMALL_PLANES, ConvProblem, Window, known, window_of
from ..gemm import tiles as tiling
from ..gemm.epilogue import Axes, Epilogue, Operand
from ..gemm.matmul import pack_columns, prefetched_lines
from ..gemm.problem import SMALL_WORK
from ..gemm.tiles import Precision, uses_pairs
from ..registry import lowering
from ..scheduling import schedule
from . import winograd_int8
from .requantize import Operands, Sums, pack_words, requantized_epilogue

LARGEST = 200
"""Largest window of the depthwise kernel, in elements: it is unrolled."""


@lowering("rewrite.ChannelsLastConvInteger", "rewrite.ChannelsLastQLinearConv")
def lower_conv_nhwc_int8(group: Group, ctx: Context) -> list[Step] | None:
    """Convolutions of any geometry over one to three spatial dims.

    Zero points and scales are one number, or one per output channel."""
    node, operands = group.node, Operands.of(group, ctx)
    x, out, w = operands.type, ctx.type(node.outputs[0]), operands.weights(filters=True)
    groups = int_attr(node, "group", 1)
    larger = None
    if w is None and groups == 1 and (shifted := operands.shifted_weights(filters=True)) is not None:
        w, larger = shifted
    parts = operands.weight_parts() if w is None and groups > 1 else None
    if parts is not None:
        w = parts[0]
    if w is None or x.dtype is not DType.U8 or groups < 1 or w.shape[0] % groups:
        return None
    window = window_of(node, x, out, w.shape[2:], nhwc=True)
    if window is None or out.shape is None:
        return None
    more = parts[1:] if parts else ()
    column = np.sum([part.astype(np.int64).sum(tuple(range(1, w.ndim))) for part in (w, *more)], axis=0)
    if larger is not None:
        column += w[0].size * larger.astype(np.int64)
    sums = operands.sums(column, (w.shape[0],))
    inputs, zero = operands.padding()
    if sums and larger is not None:
        plain, rows = operands.window_sums(larger, out.shape, len(out.shape) - 1)
        ones = ConvProblem(group, window, plain, operands.x, np.ones_like(w[:1]), 1, Precision.INT8)
        alone = {"zero": zero, "out": plain.c, "zero_point": None, "start": False}
        sums = replace(sums, steps=(*sums.steps, _product_step(ones, inputs, alone, ctx)), rows=(rows,))
    for part in more:
        if sums is None:
            return None
        plain, found = operands.plain(out.shape)
        rest = ConvProblem(group, window, plain, operands.x, part, groups, Precision.INT8)
        alone = {"zero": zero, "out": plain.c, "zero_point": None, "start": False}
        sums = replace(
            sums, steps=(*sums.steps, _product_step(rest, inputs, alone, ctx)), addends=(*sums.addends, found)
        )
    axes = Axes(out.shape, 1, len(out.shape) - 1)
    requantized = sums and requantized_epilogue(group, ctx, axes, with_one_constant(ctx, sums), nhwc=True)
    if not sums or not requantized:
        return None
    problem = ConvProblem(group, window, requantized.epilogue, operands.x, w, groups, Precision.INT8)
    shared = {"zero": zero, **requantized.params}
    if groups > 1 and w.shape[0] == groups and w.shape[1] == 1:
        step = depthwise_step(problem, inputs, shared, ctx)
        if step is None and group.epilogue:
            return None  # retry with the node alone
    else:
        words = _columns(problem, 1, Precision.INT8.words(problem.channels))
        words = words.reshape(groups, window.taps, -1, problem.m)
        step = plane_step(problem, words, inputs, shared, ctx, in_place=False, leads=False)
    return [*sums.steps, step or conv_step(problem, inputs, shared, ctx)]


def with_one_constant(ctx: Context, sums: Sums) -> Sums:
    """Return the same sums with all constant addends as one, the first."""
    constants = [(found.array, kind) for value, kind in sums.addends if (found := ctx.constant(value)) is not None]
    if len(constants) < 2:
        return sums
    total = sum(array.reshape(-1).astype(np.int64) for array, _ in constants)
    wrapped = np.asarray(total).astype(np.int32)
    rest = [(value, kind) for value, kind in sums.addends if ctx.constant(value) is None]
    return replace(sums, addends=((ctx.add_constant(wrapped, "start"), constants[0][1]), *rest))


def conv_step(problem: ConvProblem, inputs: tuple[str, ...], shared: dict[str, Any], ctx: Context) -> Step:
    """Return the step of the algorithm that was tuned, else of the fastest one by the models of their times.

    `inputs` are x and, if known at run time only, its zero point; `shared` the parameters of zero points."""
    described = partial(problem.describe, shared=shared)
    space = partial(conv_nhwc_int8_space, problem, ctx)
    point = schedule(problem.group, ctx, f"{problem.label} NHWC int8", described, space)
    step = _by_winograd(problem, inputs, shared, ctx, point)
    return step or _product_step(problem, inputs, shared, ctx, point)


def conv_nhwc_int8_space(problem: ConvProblem, ctx: Context) -> Space | None:
    """Return the schedules of an int8 convolution, NHWC; None where a CPU has tiles of AMX for it.

    `block`: most pixels of a block, where lines are not copied; `prefetch`: lines of the next weights for each step;
    `tiles`: how many of an image make a block of Winograd's algorithm; `tile`: see `tiles`."""
    window = problem.window
    copied = not window.is_pointwise and can_copy(window, problem.groups, problem.channels)
    if Precision.INT8.feature in ctx.target.features:
        return None
    filtering = uses_pairs(ctx.target) and winograd_int8.plan(problem, ctx) is not None
    direct, other = (("algorithm", (name,)) for name in ("direct", "winograd"))
    blocks = () if copied or (window.is_pointwise and not uses_pairs(ctx.target)) else (16, 32, 64, 128, 256, 512)
    knobs = [
        Knob("algorithm", ("direct", *(("winograd",) if filtering else ()))),
        tiling.tile_knob(ctx.target, only=direct),
        Knob("block", blocks, direct),
        Knob("prefetch", (0, 1, 2, 4), direct),
        *(winograd_int8.knobs(other) if filtering else ()),
    ]
    return Space(("conv_nhwc_int8", "winograd_nhwc_int8"), tuple(knobs))


def _product_step(
    problem: ConvProblem, inputs: tuple[str, ...], shared: dict[str, Any], ctx: Context, point: Point = DEFAULT
) -> Step:
    """Return the step of the implicit GEMM."""
    target, window, groups = ctx.target, problem.window, problem.groups
    m, c, pixels = problem.m, problem.channels, window.pixels
    direct = window.is_pointwise
    copied = not direct and can_copy(window, groups, c)
    count, taps = (window.taps // window.kernel[2], window.kernel[2]) if copied else (window.taps, 1)
    words = Precision.INT8.words(taps * c)
    pairs = _pairs(problem, taps) if uses_pairs(target) else None
    row = 0 if pairs is None else _odd_lines(pairs.shape[1])
    block, wide, choice = blocking(problem, Runs(count, words, copied), ctx, point, row=row)
    if direct and not row:
        whole = known(pixels)
        precision = Precision.INT8 if c % 4 == 0 else Precision.F32  # tiles of AMX read whole words
        choice = tiling.choose_words(
            target,
            precision,
            whole,
            m,
            words,
            threads=ctx.threads,
            batch=problem.batch,
            run=words,
            by_rows=True,
            tile=str(point.get("tile", "")),
        )
        block = whole or block
    k = tiling.padded(choice, count * words)
    nr = choice.nv * target.lanes
    reserved = -(-((copied_elements(window, block, wide, c) if copied else c * groups) + 4) // 64) * 64
    scratch = 0 if direct else -(-(reserved + block * count * 8) // 64) * 64
    gathered: dict[str, Any] = {}
    if pairs is not None:
        k = pairs.shape[1]
        gathered = {"pairs": row, "gathered": scratch, "depth": k, "length": taps * c}
        scratch += 4 * block * row + 64
    elif choice.amx:
        gathered = {"depth": k, "gathered": None if direct else scratch}
        scratch += 0 if direct else -(-4 * block * k // 64) * 64
    block_rows = min(block, pixels) if isinstance(pixels, int) else block
    extents = Extents()
    params = {
        **problem.params(c * groups, extents),
        **gathered,
        **({"epilogue_loop": True} if problem.epilogue.is_long and not choice.amx else {}),
        "runs": count,
        "words": words,
        "direct": direct,
        "copied": copied,
        "prefetch": int(point.get("prefetch", prefetched_lines(choice, target, block_rows, m, k // 2 if row else k))),
        "block": extents(pixels) if direct and not row and not isinstance(pixels, int) else block,
        "columns": wide,
        "reserved": reserved,
        "scratch": scratch,
        "tiles": choice.sizes | ({"dot": "u8s8", "out": shared["out"]} if choice.amx else {}),
        **shared,
    }
    columns: NDArray[Any] = pairs if pairs is not None else _columns(problem, taps, words)
    if columns.shape[1] < k:  # most need no copy
        columns = np.pad(columns, ((0, 0), (0, k - columns.shape[1]), (0, 0)))
    packed = ctx.add_constant(pack_columns(columns, nr, target.lanes), "packed")
    kernel = Kernel("conv_nhwc_int8", params)
    work = serial_below(problem.macs(count * words), SMALL_WORK)
    return problem.launch(kernel, (*inputs, packed), extents, work, scratch=scratch)


def _by_winograd(
    problem: ConvProblem, inputs: tuple[str, ...], shared: dict[str, Any], ctx: Context, point: Point
) -> Step | None:
    """Return the step of Winograd's algorithm, None where products are not those of pairs or others are faster."""
    algorithm = point.get("algorithm", "winograd")
    usable = uses_pairs(ctx.target) and algorithm == "winograd"
    found = winograd_int8.plan(problem, ctx, point) if usable else None
    if found is None:
        return None
    if "algorithm" in point:
        return winograd_int8.winograd_step(problem, found, inputs, shared, ctx, point)
    likely, runs = problem.likely(ctx), Runs(problem.window.taps, Precision.INT8.words(problem.channels))
    direct = blocking(likely, runs, ctx)[-1].cycles * likely.batch
    if found.cycles > 0.9 * 2 * direct:  # a word of four bytes is two pairs
        return None
    return winograd_int8.winograd_step(problem, found, inputs, shared, ctx)


def _odd_lines(words: int) -> int:
    """Return the least odd number of cache lines for a row, in words, so that rows of a tile lie in different sets."""
    return (-(-words // 16) | 1) * 16


def _columns(problem: ConvProblem, taps: int, words: int) -> NDArray[np.uint32]:
    """Return the weights as matrices [groups][runs * words][M / groups] of words; a run has `taps` taps."""
    lines = _lines(problem, taps)
    padded = np.pad(lines, ((0, 0), (0, 0), (0, 4 * words - lines.shape[2]), (0, 0)))
    return pack_words(padded.reshape(problem.groups, -1, 4, problem.m), axis=2)


def _pairs(problem: ConvProblem, taps: int) -> NDArray[np.uint16]:
    """Return the weights as matrices [groups][K][M / groups] of two bytes each, the runs one after the other."""
    lines = _lines(problem, taps).reshape(problem.groups, -1, problem.m)
    whole = np.pad(lines, ((0, 0), (0, lines.shape[1] % 2), (0, 0)))
    bits = np.moveaxis(whole.reshape(problem.groups, -1, 2, problem.m), 2, -1).astype(np.uint8).astype(np.uint16)
    return np.asarray(bits[..., 0] | bits[..., 1] << np.uint16(8), np.uint16)


def _lines(problem: ConvProblem, taps: int) -> NDArray[np.int8]:
    """Return the weights as [groups][runs][numbers of a run][M / groups]; a run has `taps` taps."""
    groups, m, c, runs = problem.groups, problem.m, problem.channels, math.prod(problem.w.shape[2:]) // taps
    lines = problem.w.reshape(groups, m, c, runs, taps).transpose(0, 3, 4, 2, 1)
    return np.asarray(lines.reshape(groups, runs, taps * c, m), np.int8)


def depthwise_step(problem: ConvProblem, inputs: tuple[str, ...], shared: dict[str, Any], ctx: Context) -> Step | None:
    """Return the step that convolves each channel with its own filter, weights [C, 1, *kernel].

    None for very large windows, and for operands other than constants of one number or one per channel."""
    target, channels, window = ctx.target, problem.groups, problem.window
    epilogue = _reordered(ctx, problem.epilogue, channels) if window.taps <= LARGEST else None
    if epilogue is None:
        return None
    described = partial(problem.describe, shared=shared)
    label = f"depthwise{problem.label.removeprefix('conv').partition(' in ')[0]} NHWC int8"
    point = schedule(problem.group, ctx, label, described, partial(depthwise_int8_space, window, ctx))
    rows, columns = _tile(window, ctx)
    if "tile" in point:
        rows, columns = (int(n) for n in str(point["tile"]).split("x"))
    padded = -(-channels // (4 * target.lanes)) * 4 * target.lanes
    scratch = -(-(padded + 64) // 64) * 64
    extents = Extents()
    params: dict[str, Any] = {
        "images": extents(window.images),
        "channels": channels,
        "padded": padded,
        "g": window.params(channels, extents),
        "rows": pieces(window.outputs[1], rows),
        "columns": pieces(window.outputs[2], columns),
        "scratch": scratch,
        "epilogue": epilogue.params(extents),
        **shared,
    }
    packed = ctx.add_constant(_weights(problem.w, window, params["rows"][0], target.lanes), "packed")
    kernel = Kernel("depthwise_int8", params)
    work = serial_below(problem.macs(problem.k), 4 * SMALL_PLANES)
    return replace(problem, epilogue=epilogue).launch(kernel, (*inputs, packed), extents, work, scratch=scratch)


def depthwise_int8_space(window: Window, ctx: Context) -> Space:
    """Return the schedules of a depthwise int8 convolution: `tile`, rows x columns of pixels computed together."""
    _, height, width = (known(n) or 1 for n in window.outputs)
    tiles = itertools.product(range(1, min(4, height) + 1), range(1, min(8, width) + 1))
    most = ctx.target.registers // 2
    fits = [(r, t) for r, t in tiles if r * t <= most and (r * t == 1 or r * t * window.taps <= LARGEST)]
    return Space(("depthwise_int8",), (Knob("tile", tuple(f"{r}x{t}" for r, t in fits)),))


def order(channels: int, lanes: int) -> NDArray[np.int64]:
    """Return the channels, in whole steps of 4 * lanes, in the order that interleaving four vectors produces."""
    steps = -(-channels // (4 * lanes))
    within = np.arange(4 * lanes).reshape(lanes // 4, 4, 4).transpose(1, 0, 2).reshape(-1)
    return np.asarray((np.arange(steps)[:, np.newaxis] * 4 * lanes + within).reshape(-1))


def _reordered(ctx: Context, epilogue: Epilogue, channels: int) -> Epilogue | None:
    """Return the epilogue with its per-channel operands in that order; None if others vary."""
    places = order(channels, ctx.target.lanes)
    operands = []
    for operand in epilogue.operands:
        if operand.strides[2] == 0 and operand.strides[:2] == (0, 0):
            operands.append(operand)
            continue
        constant = ctx.constant(operand.value)
        if constant is None or operand.strides != (0, 0, 1) or operand.type:
            return None
        padded = np.zeros(len(places), constant.array.dtype)
        padded[:channels] = constant.array.reshape(-1)
        operands.append(Operand(ctx.add_constant(padded[places], "reordered"), operand.strides))
    return replace(epilogue, operands=tuple(operands))


def _weights(w: NDArray[np.int8], window: Window, rows: int, lanes: int) -> NDArray[np.uint32]:
    """Return the weights as the template reads them: for each output of a tile those of all lines, four per word."""
    depth, height, width = window.kernel
    lines = window.reach(1, rows)
    words = -(-lines * depth // 4)
    places = order(w.shape[0], lanes)
    filters = np.zeros((len(places), depth, height, width), np.int8)
    filters[: w.shape[0]] = w.reshape(-1, depth, height, width)
    placed = np.zeros((len(places), rows, 4 * words, width), np.int8)
    for i in range(rows):
        for h in range(height):
            line = i * window.stride[1] + h * window.dilation[1]
            placed[:, i, line * depth : (line + 1) * depth] = filters[:, :, h]
    whole = pack_words(placed.reshape(-1, rows, words, 4, width), axis=3)[places]
    steps = whole.reshape(-1, 4 * lanes, rows, words, width)
    return np.ascontiguousarray(steps.transpose(0, 2, 3, 4, 1)).reshape(-1)


def _tile(window: Window, ctx: Context) -> tuple[int, int]:
    """Return rows and columns of a tile: sums fill the registers, few words are interleaved per output."""
    most = 6 if ctx.target.registers >= 32 else 2
    depth, _, kw = window.kernel

    def cycles(r: int, t: int) -> float | None:
        if r * t > most or (r * t > 1 and r * t * window.taps > LARGEST):
            return None
        starts = range(0, r * window.stride[1], window.stride[1])
        words = sum(((first + window.reach(1, 1)) * depth - 1) // 4 - first * depth // 4 + 1 for first in starts)
        products = words * kw * t
        return -(-window.reach(1, r) * depth // 4) * window.reach(2, t) * 8 + products * 2.5 + r * t * 10 + 10

    return best_tile(window, 6, cycles, ctx.likely, edges=0.5)
