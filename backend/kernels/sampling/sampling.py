"""Lowering of GridSample, RoiAlign, MaxRoiPool and DeformConv."""

from __future__ import annotations

import math

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import Dim, ceildiv, product, same
from ...codegen.template_params import float_attr, int_attr, ints_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
MOST = 512
"""Positions across a region that are tabulated; those of more are computed each time."""
_TAP = 32  # bytes of a position with its weights, at most
TILE = 4
"""Vectors of positions whose samples DeformConv multiplies at once; even."""
_COLUMNS = 1 << 22
"""Largest number of channels and taps together of DeformConv, whose samples are in scratch."""


@lowering_alone("GridSample", f64=True)
def lower_grid_sample(node: Node, ctx: Context) -> list[Step] | None:
    """All modes, on images of one to three axes; data and grid of one element type."""
    x, grid = (ctx.type(value) for value in node.inputs)
    mode, padding = str(node.attrs.get("mode", "linear")), str(node.attrs.get("padding_mode", "zeros"))
    if x.shape is None or grid.shape is None or x.dtype is not ctx.real or grid.dtype is not ctx.real:
        return None
    rank = len(x.shape) - 2
    if not same(x.shape[0], grid.shape[0]) or grid.shape[-1] != rank:
        return None
    if not 1 <= rank <= 3 or mode not in TAPS or padding not in ("zeros", "border", "reflection"):
        return None
    plane, extents = product(x.shape[2:]), Extents()
    params = {
        "rank": rank,
        "taps": TAPS[mode],
        "padding": padding,
        "corners": bool(int_attr(node, "align_corners", 0)),
        "index": "int32_t" if isinstance(plane, int) and plane < 1 << 31 else "int64_t",
        "batch": extents(x.shape[0]),
        "channels": extents(x.shape[1]),
        "sizes": extents.all(x.shape[2:]),
        "points": extents(product(grid.shape[1:-1])),
    }
    work = threads((x.shape[0], x.shape[1], *grid.shape[1:-1]), 4 * TAPS[mode] ** rank)
    return [launch(Kernel("grid_sample", params), node, node.inputs, node.outputs, extents, work)]


def _pooled(
    node: Node, extents: Extents, images: tuple[Dim, ...], regions: Dim, result: tuple[int, int]
) -> dict[str, object]:
    """Return the template parameters of a pool of regions: the extents of images, and `result` rows and columns."""
    names = ("batch", "channels", "height", "width")
    return {
        "rows": result[0],
        "columns": result[1],
        "scale": float_attr(node, "spatial_scale", 1.0),
        **{name: extents(d) for name, d in zip(names, images, strict=True)},
        "regions": extents(regions),
    }


@lowering_alone("RoiAlign", f64=True)
def lower_roi_align(node: Node, ctx: Context) -> list[Step] | None:
    """All modes; data and regions of one element type."""
    x, regions, images = (ctx.type(value) for value in node.inputs)
    if x.shape is None or x.dtype is not ctx.real or regions.dtype is not ctx.real or images.dtype is not DType.I64:
        return None
    mode = str(node.attrs.get("mode", "avg"))
    rows, columns = (int_attr(node, f"output_{name}", 1) for name in ("height", "width"))
    if images.shape is None or regions.shape is None or not same(images.shape[0], regions.shape[0]):
        return None
    if mode not in ("avg", "max"):
        return None
    ratio = int_attr(node, "sampling_ratio", 0)
    half = node.attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    extents = Extents()
    scratch = ceildiv(_TAP * MOST + x.shape[3] * ctx.target.element_bytes, 64) * 64
    params = {
        "mode": mode,
        "most": MOST,
        "ratio": ratio,
        "offset": 0.5 if half else 0.0,
        **_pooled(node, extents, x.shape, images.shape[0], (rows, columns)),
        "scratch": extents(scratch),
    }
    work = threads((images.shape[0], x.shape[1], rows, columns), 8 * max(ratio, 2) ** 2)
    kernel = Kernel("roi_align", params)
    return [launch(kernel, node, node.inputs, node.outputs, extents, work, scratch=scratch)]


@lowering_alone("MaxRoiPool", f64=True)
def lower_max_roi_pool(node: Node, ctx: Context) -> list[Step] | None:
    """Data and regions of one element type."""
    x, regions = (ctx.type(value) for value in node.inputs)
    pooled = ints_attr(node, "pooled_shape", ())
    if x.shape is None or len(x.shape) != 4 or x.dtype is not ctx.real or regions.dtype is not ctx.real:
        return None
    if regions.shape is None or len(regions.shape) != 2 or regions.shape[1] != 5 or len(pooled) != 2 or min(pooled) < 1:
        return None
    extents = Extents()
    params = _pooled(node, extents, x.shape, regions.shape[0], (pooled[0], pooled[1]))
    work = threads((regions.shape[0], x.shape[1], *pooled), 32)
    return [launch(Kernel("max_roi_pool", params), node, node.inputs, node.outputs, extents, work)]


@lowering_alone("DeformConv", f64=True)
def lower_deform_conv(node: Node, ctx: Context) -> list[Step] | None:
    """Images with a known number of channels; weights, offsets and mask may be run-time values."""
    x, w, offset = (ctx.type(value) for value in node.inputs[:3])
    bias, mask = [*node.inputs[3:], "", ""][:2]
    out = ctx.type(node.outputs[0])
    present = [value for value in node.inputs if value]
    if any(ctx.type(value).dtype is not ctx.real for value in present):
        return None
    if x.shape is None or w.shape is None or offset.shape is None or out.shape is None or len(x.shape) != 4:
        return None
    filters, of_group, *kernel = w.shape
    groups, offset_groups = int_attr(node, "group", 1), int_attr(node, "offset_group", 1)
    channels = x.shape[1]
    if not isinstance(channels, int) or not isinstance(filters, int) or not isinstance(of_group, int):
        return None
    if len(kernel) != 2 or not all(isinstance(k, int) for k in kernel) or min(groups, offset_groups) < 1:
        return None
    taps = math.prod(k for k in kernel if isinstance(k, int))
    if channels != of_group * groups or filters % groups or channels % offset_groups:
        return None
    if not 1 <= channels * taps <= _COLUMNS or len(offset.shape) != 4:
        return None
    images, outputs = x.shape[0], out.shape[2:]
    sampled = (images, 2 * offset_groups * taps, *outputs)
    if not all(same(a, b) for a, b in zip(offset.shape, sampled, strict=True)):
        return None
    weighted = (images, offset_groups * taps, *outputs)
    if mask and not _is(ctx.type(mask).shape, weighted):
        return None
    if bias and not _is(ctx.type(bias).shape, (filters,)):
        return None
    extents, size = Extents(), ctx.target.element_bytes
    tap = 16 + 4 * size + 8
    scratch = ceildiv((channels * taps * size + taps * tap) * TILE * ctx.target.lanes, 64) * 64
    params = {
        "tile": TILE,
        "images": extents(images),
        "channels": channels,
        "filters": filters,
        "groups": groups,
        "offset_groups": offset_groups,
        "taps": taps,
        "kernel": kernel,
        "strides": list(ints_attr(node, "strides", (1, 1))),
        "dilations": list(ints_attr(node, "dilations", (1, 1))),
        "pads": list(ints_attr(node, "pads", (0, 0, 0, 0)))[:2],
        "sizes": extents.all(x.shape[2:]),
        "outputs": extents.all(outputs),
        "bias": present.index(bias, 3) if bias else 0,
        "mask": len(present) - 1 if mask else 0,
        "first": len(present),
        "scratch": extents(scratch),
    }
    work = threads((images, *outputs, filters, of_group * taps))
    return [launch(Kernel("deform_conv", params), node, present, node.outputs, extents, work, scratch=scratch)]


def _is(shape: tuple[Dim, ...] | None, wanted: tuple[Dim, ...]) -> bool:
    """Whether a shape is provably another one."""
    return shape is not None and len(shape) == len(wanted) and all(map(same, shape, wanted))
