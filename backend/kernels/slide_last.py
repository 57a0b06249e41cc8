"""Lowering of what slides over single planes where channels lie last: depthwise convolution (called by
`channels_last`), ChannelsLastMaxPool and ChannelsLastAveragePool. Vectors run over channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, TensorType
from ...engine.symbolic import Dim, product
from ..arrays import aligned
from ..iteration import Extents
from ..kernel_graph import Pitch
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from .byte_pool import byte_pool
from .epilogue import Axes, Epilogue, of_group
from .slide import SMALL_PLANES, UNROLLED, pool_kind
from .window import Window, geometry_in_numbers, ints, window_of

CODE = 260
"""About as many multiply-adds a tile may have."""


def channels_first(kind: TensorType) -> TensorType:
    """The type that a tensor with its channels last has with them in front of its spatial dims."""
    assert kind.shape is not None
    n, *spatial, c = kind.shape
    return TensorType(kind.dtype, (n, c, *spatial))


@lowering("rewrite.ChannelsLastMaxPool", "rewrite.ChannelsLastAveragePool")
def lower_pool(group: Group, ctx: Context) -> list[Step] | None:
    """MaxPool (without indices) and AveragePool over one to three spatial dims."""
    node = group.anchor
    assert node is not None
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    bytes_ = x.dtype in (DType.U8, DType.I8) and "MaxPool" in node.op
    if (x.dtype is not DType.F32 and not bytes_) or x.shape is None or out.shape is None or len(x.shape) < 3:
        return None
    if any(node.outputs[1:]):
        return None
    shape = window_of(node, channels_first(x), channels_first(out), ints(node, "kernel_shape", ()))
    channels = x.shape[-1]
    if shape is None or not isinstance(channels, int) or not channels:
        return None
    if bytes_:
        return byte_pool(group, ctx, shape, last=True)
    epilogue = of_group(group, ctx, Axes(out.shape, 1, len(out.shape) - 1), halves=True)
    if epilogue is None:
        return None
    extra = pool_kind(node, shape, "MaxPool" in node.op)
    return [slide_last(group, ctx, shape, epilogue, x.shape[0], channels, (node.inputs[0],), extra)]


def depthwise(
    group: Group, ctx: Context, shape: Window, epilogue: Epilogue, images: Dim, w: NDArray[Any], x: str
) -> Step:
    """The step that convolves each channel of `x` with a filter of its own: weights [C, 1, *kernel]."""
    lanes, channels = ctx.target.lanes, w.shape[0]
    padded = aligned((shape.taps, -(-channels // lanes) * lanes), np.dtype(np.float32))
    padded[:, :channels] = w.reshape(channels, -1).T
    padded[:, channels:] = 0
    extra = {"kind": "depthwise", "counted": False, "include_pad": False}
    inputs = (x, ctx.add_constant(padded.reshape(-1), "packed"))
    return slide_last(group, ctx, shape, epilogue, images, channels, inputs, extra)


def slide_last(
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    channels: int,
    inputs: tuple[str, ...],
    extra: dict[str, Any],
) -> Step:
    """The step of the `slide_last` kernel: `inputs` are x and, for a depthwise convolution, its weights."""
    lanes = ctx.target.lanes
    unrolled = shape.taps <= UNROLLED
    rows, columns = _tile(shape, ctx) if unrolled else (1, 1)
    padded = -(-channels // lanes) * lanes
    extents = Extents()
    params: dict[str, Any] = {
        "images": extents(images),
        "channels": channels,
        "padded": padded,
        "g": geometry_in_numbers(shape, channels, extents),
        "rows": pieces(shape.outputs[1], rows),
        "columns": pieces(shape.outputs[2], columns),
        "unrolled": unrolled,
        "scratch": -(-(padded + lanes) * 4 // 64) * 64,
        "epilogue": epilogue.params(extents),
        "out": epilogue.c,
        **extra,
    }
    work = product((images, channels, *shape.outputs, shape.taps))
    sizes = len(params["rows"]) * len(params["columns"])
    return Step(
        Kernel("slide_last", params, 2.0 + (sizes * rows * columns * shape.taps / 60 if unrolled else 0.5)),
        (*inputs, *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=int(params["scratch"]),
        in_place=epilogue.in_place(len(inputs)),
        threads=serial_below(work, SMALL_PLANES),
        nodes=tuple(n.name for n in group.nodes),
        pitches=(
            Pitch(0, channels, ((("x_row",), 1),)),
            *epilogue.pitches(len(inputs), channels),
            Pitch(len(inputs) + len(epilogue.values), channels, ((("y_row",), 1),)),
        ),
    )


def pieces(extent: Dim, size: int) -> list[int]:
    """The sizes that an extent is cut into, descending: the full one, and that of what is left."""
    if not isinstance(extent, int):
        return [size] if size == 1 else [size, 1]
    return [size, extent % size] if extent % size and size < extent else [min(size, max(1, extent))]


def _tile(shape: Window, ctx: Context) -> tuple[int, int]:
    """Rows and columns of a tile: as many sums as the registers hold, few inputs for each, little left over."""
    sums = 16 if ctx.target.registers >= 32 else 8
    _, height, width = shape.outputs
    _, kh, kw = shape.kernel
    best = (math.inf, 1, 1)
    for r in range(1, 5):
        for t in range(1, 9):
            weights = kw * min(r, kh)
            room = ctx.target.registers - 1 if ctx.target.registers >= 32 else 2 * sums
            if r * t > sums or r * t + weights > room or (r * t > 1 and r * t * shape.taps > CODE):
                continue
            inputs = ((r - 1) * shape.stride[1] + (kh - 1) * shape.dilation[1] + 1) * (
                (t - 1) * shape.stride[2] + (kw - 1) * shape.dilation[2] + 1
            )
            loads = inputs * 2 / 3 + r * t + shape.taps / 2
            cycles = max(r * t * shape.taps / 2, 4 * shape.taps / max(1, 4 // (r * t)) / 2) + loads
            high = math.ceil(height / r) * r / height if isinstance(height, int) and height else 1
            wide = math.ceil(width / t) * t / width if isinstance(width, int) and width else 1
            best = min(best, (cycles / (r * t) * high * wide, r, t))
    return best[1], best[2]
