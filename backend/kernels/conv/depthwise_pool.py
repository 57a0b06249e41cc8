"""Windows over single channels: pooling in both layouts, and depthwise convolution, NCHW.

NCHW kernels compute bands of rows of a plane, with vectors along the width.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.names import OWN_DOMAIN
from ....engine.ir.symbolic import Dim, at_least, ceildiv, product
from ...codegen.template_params import int_attr, ints_attr, launch, serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import Knob, Space
from ..gemm.epilogue import Axes, of_group
from ..registry import lowering
from ..scheduling import at_width, bits_knob, schedule
from .depthwise_pool_nhwc import fits_table, pieces, plane_step_nhwc
from .problem import SMALL_PLANES, PlaneProblem, Window, known, number_or, window_of

UNROLLED = 50
"""Largest window, in elements, that is unrolled."""
MASKED = ("avx512", "avx2")
"""Vector extensions whose loads can leave out lanes."""
FEW_ROWS = 4
"""Images of fewer rows, such as signals, are copied: masks are prepared for each vector of columns."""
NARROW = 2
"""Vectors of outputs in a row up to which AVX2 reads every second column in place: with four, a pool took 1.18 times as
long as by copies, since half of its loads cross cache lines."""
BAND = 32
"""Rows that are computed before the next columns where extents are known at run time only, approximately."""
LARGEST_BAND = 256
"""Largest number of such rows: the addresses of their lines are on the stack."""
LARGEST_LINES = 8192
"""Largest number of these addresses."""
CODE = 200
"""Approximate limit of the multiply-adds of an unrolled tile."""
TABULATED = 1024
"""Largest int8 NHWC window, in elements: the kernel tabulates their addresses."""


@lowering("MaxPool", "AveragePool", "rewrite.ChannelsLastMaxPool", "rewrite.ChannelsLastAveragePool", f64=True)
def lower_pool(group: Group, ctx: Context) -> list[Step] | None:
    """MaxPool and AveragePool over one to three spatial dims, NCHW and NHWC; MaxPool in int8 too.

    MaxPool with indices is a group of its own, and NCHW."""
    node = group.node
    nhwc, largest = node.domain == OWN_DOMAIN, "MaxPool" in node.op
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    window = window_of(node, x, out, ints_attr(node, "kernel_shape", ()), nhwc=nhwc)
    if window is None or x.shape is None or out.shape is None:
        return None
    if any(node.outputs[1:]):
        return None if nhwc else _pool_with_indices(group, window, x, ctx)
    channels = x.shape[-1 if nhwc else 1]
    if nhwc and channels == 0:
        return None
    if largest and x.dtype in (DType.U8, DType.I8):
        return _pool_int8(group, window, channels, signed=x.dtype is DType.I8, nhwc=nhwc)
    axes = Axes(out.shape, 1, len(out.shape) - 1 if nhwc else 2)
    narrow = nhwc and x.dtype is DType.BF16 and ctx.real is DType.F32
    epilogue = of_group(group, ctx, axes, narrow=nhwc) if narrow or x.dtype is ctx.real else None
    if epilogue is None or (nhwc and not fits_table(window)):
        return None
    problem = PlaneProblem(
        group, window, epilogue, node.inputs[:1], channels, "max", stored="v_bf16" if narrow else "real"
    )
    if not largest:
        include_pad = bool(node.attrs.get("count_include_pad", 0))
        padded = any(p != 0 for p in (*window.pad, *window.pad_end))
        counted = (padded and not include_pad) or bool(node.attrs.get("ceil_mode", 0))
        problem = replace(problem, kind="mean", counted=counted, include_pad=include_pad)
    return [(plane_step_nhwc if nhwc else plane_step)(problem, ctx)]


@lowering("GlobalAveragePool", "GlobalMaxPool", f64=True)
def lower_global_pool(group: Group, ctx: Context) -> list[Step] | None:
    """Pooling over all spatial dims."""
    node = group.node
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    if x.dtype is not ctx.real or x.shape is None or len(x.shape) < 3 or out.shape is None:
        return None
    epilogue = of_group(group, ctx, Axes(out.shape, 1, 1))
    if epilogue is None:
        return None
    extents = Extents()
    params = {
        "kind": "max" if node.op == "GlobalMaxPool" else "mean",
        "images": extents(x.shape[0]),
        "channels": extents(x.shape[1]),
        "plane": extents(product(x.shape[2:])),
        "epilogue": epilogue.params(extents),
    }
    inputs, work = (node.inputs[0], *epilogue.values), serial_below(product(x.shape), SMALL_PLANES)
    return [launch(Kernel("global_pool", params), group, inputs, (epilogue.output,), extents, work)]


def _pool_int8(group: Group, window: Window, channels: Dim, *, signed: bool, nhwc: bool) -> list[Step] | None:
    """Return the step of a MaxPool node alone on u8 or i8; elements in the padding are ignored."""
    if len(group.nodes) != 1 or (nhwc and window.taps > TABULATED):
        return None
    extents = Extents()
    if nhwc:
        params = {"images": extents(window.images), "channels": extents(channels), "taps": window.taps}
    else:
        params = {"planes": extents(window.images * channels)}
    kind = {"type": "int8_t", "low": -128} if signed else {"type": "uint8_t", "low": 0}
    kernel = Kernel("pool_nhwc_int8" if nhwc else "pool_int8", {**params, "g": window.params(1, extents), **kind})
    work = serial_below(product((window.images, channels, *window.outputs, window.taps)), 1 << 15)
    return [launch(kernel, group, group.node.inputs[:1], group.node.outputs[:1], extents, work)]


_ELEMENTS = {DType.I8: ("int8_t", "INT8_MIN"), DType.U8: ("uint8_t", "0")}
"""C types of integers that are pooled, and their least values."""


def _pool_with_indices(group: Group, window: Window, x: TensorType, ctx: Context) -> list[Step] | None:
    """Return the step of a MaxPool node alone, NCHW, that has the places of the largest elements."""
    node = group.node
    if len(group.nodes) != 1 or x.shape is None or not (x.dtype is ctx.real or x.dtype in _ELEMENTS):
        return None
    kind, low = _ELEMENTS.get(x.dtype, ("real", "-INFINITY"))
    extents, planes = Extents(), product(x.shape[:2])
    params = {
        "type": kind,
        "low": low,
        "planes": extents(planes),
        "g": window.params(1, extents),
        "by_column": bool(int_attr(node, "storage_order", 0)),
    }
    work = serial_below(product((planes, *window.outputs, window.taps)), 1 << 15)
    return [launch(Kernel("pool_indices", params), group, node.inputs[:1], node.outputs[:2], extents, work)]


def plane_step(problem: PlaneProblem, ctx: Context) -> Step:
    """Return the step of the `depthwise_pool` kernel, NCHW, or of `depthwise_rows` where that one can read in place."""
    if _in_place(problem, ctx):
        return _rows_step(problem, ctx)
    point = schedule(problem.group, ctx, problem.label, problem.describe, partial(plane_space, problem, ctx))
    ctx = at_width(point, ctx)
    window, lanes, size = problem.window, ctx.target.lanes, ctx.target.element_bytes
    _, height, width = window.outputs
    unrolled = window.taps <= UNROLLED
    rows = int(point.get("rows", _rows(height, 8 if ctx.target.registers >= 32 else 4, window)))
    # what a vector reads beyond its row does not matter: lanes behind the last output are dropped
    ld = width + (window.kernel[2] - 1) * window.dilation[2] // window.stride[2]
    if not (isinstance(ld, int) and ld <= lanes):
        ld = ceildiv(ld, lanes) * lanes
    band = rows * 2
    if isinstance(height, int) and isinstance(ld, int):  # whole tiles whose input lines fit the cache, or all rows
        bands = range(rows, height + rows, rows)
        fits = [b for b in bands if at_least(ctx.target.l1 // 2, _floats(window, b, ld) * size)]
        band = min(height, fits[-1]) if fits else rows
    if "tiles" in point and isinstance(height, int):
        band = min(height, rows * int(point["tiles"]))
    item = _floats(window, band, ld) + lanes
    ahead = 4 if isinstance(item, int) and item * 4 * size <= ctx.target.l1 // 2 else 1
    ahead = int(point.get("ahead", ahead))
    scratch = ceildiv((item * ahead + (width + lanes if problem.counted else 0)) * size, 64) * 64
    extents = Extents()
    params = {
        "images": extents(window.images),
        "channels": number_or(problem.channels, extents),
        "multiple": problem.multiple,
        "g": window.params(problem.channels, extents),
        "rows": rows,
        "band": band,
        "ld": extents(ld),
        "scratch": extents(scratch),
        "unrolled": unrolled,
        "ahead": ahead,
        "item": extents(item),
        "short": _short(window, ld, lanes),
        "epilogue": problem.epilogue.params(extents),
        **problem.kinds,
    }
    kernel = ctx.kernel("depthwise_pool", params)
    return problem.launch(kernel, problem.inputs, extents, serial_below(problem.work, SMALL_PLANES), scratch=scratch)


def _in_place(problem: PlaneProblem, ctx: Context) -> bool:
    """Whether `depthwise_rows` computes this: it needs masked loads, and several rows to share what it prepares."""
    window = problem.window
    height = window.outputs[1]
    high = not isinstance(height, int) or height >= FEW_ROWS
    lines = window.kernel[0] * (LARGEST_BAND * window.stride[1] + window.kernel[1] * window.dilation[1])
    narrow = ctx.target.isa == "avx512" or ctx.likely(window.outputs[2]) <= NARROW * ctx.target.lanes
    pairs = window.stride[2] == 2 and window.dilation[2] == 1 and window.taps <= UNROLLED // 2 and narrow
    fits = high and (window.stride[2] == 1 or pairs) and lines <= LARGEST_LINES
    return fits and not (problem.counted and window.kernel[0] > 1) and ctx.target.isa in MASKED


def _rows_step(problem: PlaneProblem, ctx: Context) -> Step:
    """Return the step of the `depthwise_rows` kernel."""
    point = schedule(problem.group, ctx, problem.label, problem.describe, partial(rows_space, problem, ctx))
    ctx = at_width(point, ctx)
    window, target = problem.window, ctx.target
    _, height, width = window.outputs
    rows = int(point.get("rows", _rows_of_tile(height, window)))
    band = rows * int(point.get("tiles", BAND // rows))
    if "tiles" not in point and isinstance(height, int) and isinstance(width, int):
        read = max(1, width) * window.kernel[0] * window.stride[1] * window.stride[2]
        fits = target.l1 // 2 // (target.element_bytes * read)
        band = max(1, min(fits, LARGEST_BAND) // rows) * rows
    if isinstance(height, int):
        band = max(1, min(height, band))
    extents = Extents()
    counts = width + target.lanes if problem.counted else 0
    scratch = ceildiv((window.inputs[2] + target.lanes + counts) * target.element_bytes, 64) * 64
    params = {
        "images": extents(window.images),
        "channels": number_or(problem.channels, extents),
        "multiple": problem.multiple,
        "g": window.params(problem.channels, extents),
        "rows": pieces(height, rows) if isinstance(height, int) else [rows],
        "over": not isinstance(height, int) and rows > 1,
        "band": band,
        "by_line": target.registers < 32 or window.stride[2] > 1 or problem.kind != "depthwise",
        "starts": _starts(window, rows, band),
        "rolled": window.taps > UNROLLED // 2,
        "scratch": extents(scratch),
        "epilogue": problem.epilogue.params(extents),
        **problem.kinds,
    }
    work = serial_below(problem.work, SMALL_PLANES)
    return problem.launch(ctx.kernel("depthwise_rows", params), problem.inputs, extents, work, scratch=scratch)


def _starts(window: Window, rows: int, band: int) -> dict[str, Any] | bool:
    """Return the first rows of at most two tiles that are an image of known height, and its height and padding above.

    False for other images."""
    height, pad, down = window.inputs[1], window.pad[1], window.outputs[1]
    if not (isinstance(height, int) and isinstance(pad, int) and isinstance(down, int)) or window.kernel[0] > 1:
        return False
    exact = down == band and down % rows == 0 and down <= 2 * rows
    return exact and {"rows": list(range(0, down, rows)), "height": height, "pad": pad}


def _rows_of_tile(height: Dim, window: Window) -> int:
    """Return the rows of a tile: they share each input and weight, and leave few rows over."""
    taps, (_, kh, kw), down = window.taps, window.kernel, window.stride[1]

    def cycles(rows: int) -> float:
        inputs = len({i * down + h * window.dilation[1] for i in range(rows) for h in range(kh)}) * kw
        return max(rows, 4) * taps / 2 + (1.5 * inputs + taps) / 4 + 1.5 * rows + 4 if rows else 0.0

    if not isinstance(height, int):
        return 4
    fits = range(1, max(1, min(8, height)) + 1)
    return min(fits, key=lambda r: (height // r * cycles(r) + cycles(height % r), r))


_TILE_ROWS = (*range(1, 9), 10, 12, 14, 16)
"""Rows of a tile that a search tries."""


def plane_space(problem: PlaneProblem, ctx: Context) -> Space:
    """Return the schedules of a window over planes, NCHW.

    `rows`: those of a tile; `tiles`: how many a band has; `ahead`: bands that are copied before they are computed; see
    `scheduling` for the other."""
    height, taps = known(problem.window.outputs[1]) or 1, problem.window.taps
    rows = [r for r in _TILE_ROWS if r <= height and (r == 1 or taps > UNROLLED or r * taps <= 2 * CODE)]
    knobs = (Knob("rows", tuple(rows)), Knob("tiles", (1, 2, 4, 8, 16)), Knob("ahead", (1, 2, 4, 8)))
    return Space(("depthwise_pool",), (*knobs, bits_knob(ctx)))


def rows_space(problem: PlaneProblem, ctx: Context) -> Space:
    """Return the schedules of a window over planes that is read in place.

    `rows`: those of a tile; `tiles`: how many a band has; see `scheduling` for the other."""
    height = known(problem.window.outputs[1]) or 1
    rows = tuple(r for r in _TILE_ROWS if r <= height)
    return Space(("depthwise_rows",), (Knob("rows", rows), Knob("tiles", (1, 2, 4, 8, 16)), bits_knob(ctx)))


def _floats(window: Window, band: int, ld: Dim) -> Dim:
    """Return the size of a band's input lines in scratch, in elements."""
    return ld * (window.kernel[0] * window.reach(1, band) * window.stride[2])


def _short(window: Window, ld: Dim, lanes: int) -> bool:
    """Whether an input line (of one phase) and the padding on either side of it are at most one vector each."""
    width, pad, stride = window.inputs[2], window.pad[2], window.stride[2]
    if not (isinstance(ld, int) and isinstance(width, int) and isinstance(pad, int)):
        return False
    line = pad < width <= lanes * min(stride, 2) - pad
    return line and ld <= 2 * lanes and pad <= lanes and ld - (width + pad - stride + 1) // stride <= lanes


def _rows(height: Dim, most: int, window: Window) -> int:
    """Return the rows of a tile: they read each input once, leave few rows over, and keep the code small."""
    most = max(1, min(most, CODE // window.taps)) if window.taps <= UNROLLED else min(most, 4)
    if not isinstance(height, int):
        return min(4, most)

    def cycles(rows: int) -> float:
        return window.reach(1, rows) * window.kernel[2] * 0.7 + rows * (window.taps * 0.6 + 4) + 10

    fits = range(1, max(1, min(most, height)) + 1)
    return min(fits, key=lambda r: (height // r * cycles(r) + height % r * cycles(1), r))
