"""Lowering of convolutions of bytes whose tensors have their channels last: `rewrite.ChannelsLastConvInteger` and
`rewrite.ChannelsLastQLinearConv`.

x is [N, ..spatial, C], unsigned, y is [N, ..spatial, M]; weights keep the order of ONNX, [M, C / group, ..kernel], are
constant and have to fit signed bytes. As in `channels_last` vectors run over output channels and nothing is gathered
or turned; four bytes that follow each other are a word of the register tile (`integer`). What follows the convolution,
up to the next bytes, is its epilogue (`requantise`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType
from ...engine.symbolic import Dim, product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from . import tiles as tiling
from .channels_last import blocks_of, can_copy
from .epilogue import Axes, Sums
from .integer import Quantised, filters_of, in_words, operands_of, sums_of
from .matmul import SMALL_WORK, kernel_weight, lines_ahead, pack_columns, tile_sizes
from .requantise import Requantised, of_bytes
from .slide_bytes import depthwise_bytes
from .slide_last import channels_first
from .window import Window, geometry, number, window_of


@lowering("rewrite.ChannelsLastConvInteger", "rewrite.ChannelsLastQLinearConv")
def lower_bytes_last(group: Group, ctx: Context) -> list[Step] | None:
    """Convolutions of any geometry over one to three spatial dims; zero points and scales of one number, or one for
    each channel of the output."""
    node = group.anchor
    assert node is not None
    given = operands_of(node)
    x, out = ctx.type(given.x), ctx.type(node.outputs[0])
    if x.dtype is not DType.U8 or x.shape is None or out.shape is None or len(x.shape) < 3:
        return None
    w = filters_of(ctx, given, len(x.shape))
    groups = number(node, "group", 1)
    if w is None or not w.size or groups < 1 or w.shape[0] % groups:
        return None
    shape = window_of(node, channels_first(x), channels_first(out), w.shape[2:])
    if shape is None:
        return None
    names = tuple(n.name for n in group.nodes)
    steps: list[Step] = []
    column = w.astype(np.int64).sum(tuple(range(1, w.ndim)))
    sums = sums_of(ctx, given, column, (w.shape[0],), x.dtype, names, steps)
    found = None if sums is None else of_bytes(group, ctx, Axes(out.shape, 1, len(out.shape) - 1), _together(ctx, sums))
    if found is None:
        return None
    step = None
    if groups > 1 and w.shape[0] == groups and w.shape[1] == 1:
        zero = zero_of(ctx, given)
        inputs = (given.x,) if zero else (given.x, given.x_zero)
        step = depthwise_bytes(group, ctx, inputs, zero, shape, found, x.shape[0], w)
        if step is None and group.epilogue:
            return None  # alone it may be done so
    return [*steps, step or conv_step(group, ctx, given, shape, found, x.shape[0], groups, w)]


def _together(ctx: Context, sums: Sums) -> Sums:
    """The same sums with all addends that are constants as one, the first."""
    known = [(constant.array, kind) for value, kind in sums.addends if (constant := ctx.constant(value)) is not None]
    if len(known) < 2:
        return sums
    total = sum(array.reshape(-1).astype(np.int64) for array, _ in known)
    wrapped = np.asarray(total).astype(np.int32)
    rest = [(value, kind) for value, kind in sums.addends if ctx.constant(value) is None]
    return Sums(((ctx.add_constant(wrapped, "start"), known[0][1]), *rest), sums.scale, sums.zero, sums.low, sums.high)


def zero_of(ctx: Context, given: Quantised) -> str:
    """The zero point of x as a number in C; "" if only run time knows it."""
    constant = ctx.constant(given.x_zero) if given.x_zero else None
    if given.x_zero and constant is None:
        return ""
    return str(0 if constant is None else int(constant.array.reshape(())))


def conv_step(
    group: Group,
    ctx: Context,
    given: Quantised,
    shape: Window,
    found: Requantised,
    images: Dim,
    groups: int,
    w: NDArray[np.int8],
) -> Step:
    """The step that convolves x with weights [M, C / groups, *kernel] in an implicit GEMM."""
    target, epilogue = ctx.target, found.epilogue
    m, c = w.shape[0] // groups, w.shape[1]
    channels = c * groups
    pixels = product(shape.outputs)
    direct = shape.is_pointwise
    copied = not direct and can_copy(shape, groups, c)
    runs, taps = (shape.taps // shape.kernel[2], shape.kernel[2]) if copied else (shape.taps, 1)
    words = -(-taps * c // 4)
    number_of = images if isinstance(images, int) and images > 0 else 1
    block, choice = blocks_of(ctx, shape, m, runs, words, groups * number_of, copied)
    if direct and isinstance(pixels, int) and pixels > 0:
        choice = tiling.choose(target, pixels, m, words, threads=ctx.threads, batch=groups * number_of)
        block = pixels
    nr = choice.nv * target.lanes
    extents = Extents()
    pitch = 0
    reserved = channels + 4
    if copied:
        across = shape.outputs[2]
        assert isinstance(across, int)
        lines = (block // across - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1
        pitch = ((across - 1) * shape.stride[2] + taps) * c
        reserved = lines * pitch + 4
    reserved = -(-reserved // 64) * 64
    zero = zero_of(ctx, given)
    ahead_of = min(block, pixels) if isinstance(pixels, int) else block
    params: dict[str, Any] = {
        "images": extents(images),
        "groups": groups,
        "m": m,
        "pixels": extents(pixels),
        "runs": runs,
        "words": words,
        "direct": direct,
        "copied": copied,
        "ahead": lines_ahead(choice, target, ahead_of, m, runs * words),
        "block": extents(pixels) if direct and not isinstance(pixels, int) else block,
        "pitch": pitch,
        "reserved": reserved,
        "scratch": 0 if direct else -(-(reserved + block * runs * 8) // 64) * 64,
        "zero": zero,
        "g": {**geometry(shape, channels, extents), "taps": list(shape.kernel)},
        "tiles": tile_sizes(choice),
        "epilogue": epilogue.params(extents),
        **found.out,
    }
    macs = product((images, w.shape[0], pixels, runs * words))
    return Step(
        Kernel("conv_bytes", params, kernel_weight(choice) + 1),
        (
            given.x,
            *(() if zero else (given.x_zero,)),
            ctx.add_constant(pack_columns(_columns(w, groups, taps, words), nr, target.lanes), "packed"),
            *epilogue.values,
        ),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=int(params["scratch"]),
        threads=serial_below(macs, SMALL_WORK),
        nodes=tuple(n.name for n in group.nodes),
    )


def _columns(w: NDArray[np.int8], groups: int, taps: int, words: int) -> NDArray[np.uint32]:
    """Weights [M, C, *kernel] as matrices [groups][runs * words][M / groups] of words; a run is so many taps."""
    m, c = w.shape[0] // groups, w.shape[1]
    runs = math.prod(w.shape[2:]) // taps
    lines = w.reshape(groups, m, c, runs, taps).transpose(0, 3, 4, 2, 1).reshape(groups, runs, taps * c, m)
    padded = np.zeros((groups, runs, 4 * words, m), np.int8)
    padded[:, :, : taps * c] = lines
    return in_words(padded.reshape(groups, runs * words, 4, m), axis=2)
