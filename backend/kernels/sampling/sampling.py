"""Lowering of GridSample and RoiAlign."""

from __future__ import annotations

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import ceildiv, product, same
from ...codegen.template_params import float_attr, int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
MOST = 512
"""Positions across a region that are tabulated; those of more are computed each time."""
_TAP = 32  # bytes of a position with its weights, at most


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
        "rows": rows,
        "columns": columns,
        "ratio": ratio,
        "offset": 0.5 if half else 0.0,
        "scale": float_attr(node, "spatial_scale", 1.0),
        "batch": extents(x.shape[0]),
        "channels": extents(x.shape[1]),
        "height": extents(x.shape[2]),
        "width": extents(x.shape[3]),
        "regions": extents(images.shape[0]),
        "scratch": extents(scratch),
    }
    work = threads((images.shape[0], x.shape[1], rows, columns), 8 * max(ratio, 2) ** 2)
    kernel = Kernel("roi_align", params)
    return [launch(kernel, node, node.inputs, node.outputs, extents, work, scratch=scratch)]
