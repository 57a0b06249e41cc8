"""Lowering of what slides over single planes: depthwise convolution (called by `conv`), MaxPool and AveragePool."""

from __future__ import annotations

from typing import Any

from ...engine.graph import DType, Node
from ...engine.symbolic import Dim, at_least, ceildiv, product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from .byte_pool import byte_pool
from .epilogue import Axes, Epilogue, of_group
from .window import Window, geometry, ints, window_of

UNROLLED = 50  # windows of up to so many elements are unrolled
CODE = 200  # about as many multiply-adds a tile may have when unrolled
SMALL_PLANES = 60_000  # fewer elements under all windows than this are left to one thread


@lowering("MaxPool", "AveragePool")
def lower_pool(group: Group, ctx: Context) -> list[Step] | None:
    """MaxPool (without indices) and AveragePool over one to three spatial dims."""
    node = group.anchor
    assert node is not None
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    bytes_ = node.op == "MaxPool" and x.dtype in (DType.U8, DType.I8)
    if (x.dtype is not DType.F32 and not bytes_) or x.shape is None or out.shape is None or any(node.outputs[1:]):
        return None
    kernel = ints(node, "kernel_shape", ())
    shape = window_of(node, x, out, kernel)
    channels = x.shape[1] if len(x.shape) > 1 else None
    if shape is None or not isinstance(channels, int):
        return None
    if bytes_:
        return byte_pool(group, ctx, shape)
    epilogue = of_group(group, ctx, Axes(out.shape, 1, 2))
    if epilogue is None:
        return None
    extra = pool_kind(node, shape, node.op == "MaxPool")
    return [slide(group, ctx, shape, epilogue, x.shape[0], channels, 1, (node.inputs[0],), extra)]


def pool_kind(node: Node, shape: Window, largest: bool) -> dict[str, Any]:
    """What the templates want to know of a pooling node: the kind, whether counts vary, whether padding counts."""
    if largest:
        return {"kind": "max", "counted": False, "include_pad": False}
    include = bool(node.attrs.get("count_include_pad", 0))
    padded = any(p != 0 for p in (*shape.pad, *shape.pad_end))
    counted = (padded and not include) or bool(node.attrs.get("ceil_mode", 0))
    return {"kind": "mean", "counted": counted, "include_pad": include}


@lowering("GlobalAveragePool", "GlobalMaxPool")
def lower_global_pool(group: Group, ctx: Context) -> list[Step] | None:
    """Pooling over all spatial dims."""
    node = group.anchor
    assert node is not None
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    if x.dtype is not DType.F32 or x.shape is None or len(x.shape) < 3 or out.shape is None:
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
    work = product(x.shape)
    return [
        Step(
            Kernel("global_pool", params, 1.5),
            (node.inputs[0], *epilogue.values),
            (epilogue.output,),
            dims=tuple(extents.dims),
            threads=serial_below(work, SMALL_PLANES),
            nodes=tuple(n.name for n in group.nodes),
        )
    ]


def slide(
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    channels: int,
    multiple: int,
    inputs: tuple[str, ...],
    extra: dict[str, Any],
) -> Step:
    """The step of the `slide` kernel: `inputs` are x and, for a depthwise convolution, its weights."""
    lanes = ctx.target.lanes
    _, height, width = shape.outputs
    unrolled = shape.taps <= UNROLLED
    rows = _rows(height, 8 if ctx.target.registers >= 32 else 4, shape)
    reach = (shape.kernel[2] - 1) * shape.dilation[2] // shape.stride[2]
    # what a vector reads beyond its row doesn't matter: lanes behind the last output are dropped
    pitch = width + reach
    if not (isinstance(pitch, int) and pitch <= lanes):
        pitch = ceildiv(pitch, lanes) * lanes
    band = rows * 2
    if isinstance(height, int) and isinstance(pitch, int):
        band = _band(shape, rows, height, pitch, ctx.target.l1 // 2)
    item = _floats(shape, band, pitch) + lanes
    ahead = 4 if isinstance(item, int) and item * 16 <= ctx.target.l1 // 2 else 1
    floats = item * ahead
    if extra["counted"]:
        floats = floats + width + lanes
    scratch = ceildiv(floats * 4, 64) * 64
    extents = Extents()
    params = {
        "images": extents(images),
        "channels": channels,
        "multiple": multiple,
        "g": {
            **geometry(shape, channels, extents),
            "kernel": list(shape.kernel),
            "stride": list(shape.stride),
            "dilation": list(shape.dilation),
        },
        "rows": rows,
        "band": band,
        "pitch": extents(pitch),
        "scratch": extents(scratch),
        "unrolled": unrolled,
        "ahead": ahead,
        "item": extents(item),
        "short": _short(shape, pitch, lanes),
        "epilogue": epilogue.params(extents),
        **extra,
    }
    work = product((images, channels * multiple, *shape.outputs, shape.taps))
    return Step(
        Kernel("slide", params, 2.0 + (rows * shape.taps / 60 if unrolled else 0.5)),
        (*inputs, *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=scratch,
        in_place=epilogue.in_place(len(inputs)),
        threads=serial_below(work, SMALL_PLANES),
        nodes=tuple(n.name for n in group.nodes),
    )


def _band(shape: Window, rows: int, height: int, pitch: int, limit: int) -> int:
    """How many output rows to do at once: whole tiles whose input lines fit `limit` bytes, or all."""
    fits = [b for b in range(rows, height + rows, rows) if at_least(limit, _floats(shape, b, pitch) * 4)]
    return min(height, fits[-1]) if fits else rows


def _floats(shape: Window, band: int, pitch: Dim) -> Dim:
    """The size of a band's input lines in scratch."""
    lines = (band - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1
    return pitch * (shape.kernel[0] * lines * shape.stride[2])


def _short(shape: Window, pitch: Dim, lanes: int) -> bool:
    """Whether a line of the input (of one phase) and the padding on either side of it are at most one vector each."""
    width, pad, stride = shape.inputs[2], shape.pad[2], shape.stride[2]
    if not (isinstance(pitch, int) and isinstance(width, int) and isinstance(pad, int)):
        return False
    return (
        pitch <= 2 * lanes
        and width > pad
        and width + pad <= lanes * min(stride, 2)
        and pad <= lanes
        and pitch - (width + pad - stride + 1) // stride <= lanes
    )


def _rows(height: Dim, most: int, shape: Window) -> int:
    """The rows of a tile: as many as let each input be read once, few left over, and code of a reasonable size."""
    most = max(1, min(most, CODE // shape.taps)) if shape.taps <= UNROLLED else min(most, 4)
    if not isinstance(height, int):
        return min(4, most)

    def cycles(rows: int) -> float:
        lines = (rows - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1
        return lines * shape.kernel[2] * 0.7 + rows * (shape.taps * 0.6 + 4) + 10

    fits = range(1, max(1, min(most, height)) + 1)
    return min(fits, key=lambda r: (height // r * cycles(r) + height % r * cycles(1), r))
