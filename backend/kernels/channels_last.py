"""Lowering of convolutions whose tensors have their channels last: `rewrite.ChannelsLastConv`.

x is [N, ..spatial, C], y is [N, ..spatial, M]; the weights keep the order of ONNX, [M, C / group, ..kernel]. One, two
and three spatial dims are one case, with leading dims of 1. Vectors run over output channels, so nothing is gathered
and nothing is turned: a filter of one tap is a plain product of matrices, others read each tap's channels where they
lie, through a table of places (an indirection, as in Dukhan, "The Indirect Convolution Algorithm", 2019).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from ...engine.graph import DType, TensorType
from ...engine.symbolic import Dim, product
from ..iteration import Extents, contiguous
from ..kernel_graph import Pitch
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from . import tiles as tiling
from . import winograd
from .epilogue import Axes, Epilogue, of_group
from .matmul import (
    SMALL_WORK,
    Matrices,
    Product,
    kernel_weight,
    lines_ahead,
    lower_product,
    pack_columns,
    tile_sizes,
)
from .matmul_bf16 import pair_rows, product_step
from .slide_last import channels_first, depthwise
from .tiles import Tiles
from .window import Window, filters, geometry, number, window_of

FEW = 8
"""Up to so many input channels the input lines are copied, so that a line of the filter is one run."""
TABLE = 16 << 10
"""Bytes that the table of a block may have."""
COPY = 128 << 10
"""Bytes that the copied lines of a block may have."""
RUN = 20.0
"""What it costs a tile to begin a run, in cycles."""


@lowering("rewrite.ChannelsLastConv", "rewrite.ChannelsLastConvBf16")
def lower_channels_last(group: Group, ctx: Context) -> list[Step] | None:
    """ChannelsLastConv of any geometry over one to three spatial dims, with constant weights; of f32, or of bf16 with
    weights that are rounded to it, and perhaps of a fourth operand, bf16 like the result, that is added."""
    node = group.anchor
    assert node is not None
    words = node.op == "rewrite.ChannelsLastConvBf16"
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    w = filters(node, ctx, DType.BF16 if words else DType.F32)
    if w is None or (words and w.shape[1] % 2):
        return None
    assert x.shape is not None
    assert out.shape is not None
    groups = number(node, "group", 1)
    shape = window_of(node, channels_first(x), channels_first(out), w.shape[2:])
    if shape is None or groups < 1 or w.shape[0] % groups:
        return None
    addend = None
    if len(node.inputs) > 2 and node.inputs[2]:
        addend = (node.inputs[2], TensorType(DType.F32, (w.shape[0],)), 1.0)
    residual = node.inputs[3] if len(node.inputs) > 3 else ""
    fuse = partial(of_group, group, ctx, addend=addend, residual=residual, halves=True)
    if groups == 1 and shape.is_pointwise:
        rows = len(out.shape) - 1
        found = fuse(Axes(out.shape, 0, rows))
        if found is not None and words:
            names = tuple(n.name for n in group.nodes)
            flat = w.reshape(w.shape[:2]).T
            return [product_step(node.inputs[0], product(out.shape[:-1]), flat, found, names, ctx)]
        if found is not None:
            return _pointwise(group, ctx, found, product(out.shape[:-1]), w, node.inputs)
    epilogue = fuse(Axes(out.shape, 1, len(out.shape) - 1))
    if epilogue is None:
        return None
    if groups > 1 and w.shape[0] == groups == x.shape[-1]:
        return [depthwise(group, ctx, shape, epilogue, x.shape[0], w, node.inputs[0])]
    if (
        not words
        and ctx.reassociate
        and (way := winograd.plan(ctx, shape, x.shape[0], groups, w.shape[0], w.shape[1], last=True))
    ):
        images = x.shape[0] if isinstance(x.shape[0], int) and x.shape[0] > 0 else 1
        plain = blocks_of(ctx, shape, w.shape[0], shape.taps, w.shape[1], images, copied=False)[1]
        if way.cycles < 0.9 * plain.cycles:
            return [winograd.winograd_step(group, ctx, shape, epilogue, x.shape[0], w, node.inputs[0], way, last=True)]
    return [conv_step(group, ctx, shape, epilogue, x.shape[0], groups, w, node.inputs[0], words)]


def _pointwise(
    group: Group, ctx: Context, epilogue: Epilogue, pixels: Dim, w: NDArray[Any], inputs: tuple[str, ...]
) -> list[Step]:
    """A product of matrices: pixels x channels times channels x output channels, the weights read as they are."""
    m, c = w.shape[:2]
    none = contiguous("", ())
    return lower_product(
        Product(Matrices(inputs[0], none, c, 1), Matrices(inputs[1], none, 1, c), (), pixels, m, c),
        epilogue,
        group,
        ctx,
    )


def conv_step(
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    groups: int,
    w: NDArray[Any],
    x: str,
    words: bool = False,
) -> Step:
    """The step that convolves the value `x` with weights [M, C / groups, *kernel] in an implicit GEMM.

    With `words` x is bf16 and C / groups even: channels are words of two then."""
    target = ctx.target
    m, c = w.shape[0] // groups, w.shape[1] // (2 if words else 1)
    channels = c * groups
    pixels = product(shape.outputs)
    copied = can_copy(shape, groups, c)
    run_length = shape.kernel[2] * c if copied else c
    runs = shape.taps * c // run_length
    number_of = images if isinstance(images, int) and images > 0 else 1
    block, choice = blocks_of(ctx, shape, m, runs, run_length, groups * number_of, copied)
    nr = choice.nv * target.lanes
    part = runs
    if not copied and not epilogue.half and runs * run_length * nr * 4 > target.l2 * 3 // 5:
        parts = min(runs, math.ceil(runs * run_length * nr * 4 / (target.l2 * 3 // 5)))
        part = math.ceil(runs / parts)
    extents = Extents()
    pitch = lines = 0
    reserved = channels
    if copied:
        width, pixels_across = shape.kernel[2], shape.outputs[2]
        assert isinstance(pixels_across, int)
        lines = (block // pixels_across - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1
        pitch = ((pixels_across - 1) * shape.stride[2] + width) * c
        reserved = lines * pitch
    reserved = -(-reserved // 16) * 16
    params: dict[str, Any] = {
        "images": extents(images),
        "groups": groups,
        "m": m,
        "pixels": extents(pixels),
        "runs": runs,
        "length": run_length,
        "part": part,
        "ahead": lines_ahead(
            choice, target, min(block, pixels) if isinstance(pixels, int) else block, m, runs * run_length
        ),
        "block": block,
        "copied": copied,
        "lines": lines,
        "pitch": pitch,
        "reserved": reserved,
        "scratch": -(-(reserved * 4 + block * runs * 8) // 64) * 64,
        "g": {**geometry(shape, channels, extents), "taps": list(shape.kernel)},
        "tiles": {**tile_sizes(choice), "dot": "bf16" if words else "", "out": epilogue.c},
        "epilogue": epilogue.params(extents),
    }
    taps = w.reshape(groups, m, w.shape[1], -1).transpose(0, 3, 2, 1)
    columns = (pair_rows(taps) if words else taps).reshape(groups, -1, m)
    macs = product((images, w.shape[0], pixels, runs * run_length))
    return Step(
        Kernel("conv_last", params, kernel_weight(choice) + 1),
        (x, ctx.add_constant(pack_columns(columns, nr, target.lanes), "packed"), *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=int(params["scratch"]),
        in_place=() if part < runs else epilogue.in_place(2),
        threads=serial_below(macs, SMALL_WORK),
        nodes=tuple(n.name for n in group.nodes),
        pitches=(
            *(() if copied else (Pitch(0, channels, ((("x_row",), 1),)),)),
            *epilogue.pitches(2, m * groups),
            Pitch(2 + len(epilogue.values), m * groups, ((("y_row",), 1),)),
        ),
    )


def can_copy(shape: Window, groups: int, c: int) -> bool:
    """Whether the input lines are better copied: few channels, columns side by side, sizes that are known."""
    known = all(isinstance(d, int) and d > 0 for d in (*shape.outputs[1:], shape.pad[1], shape.pad[2], *shape.inputs))
    flat = shape.kernel[0] == 1 and shape.outputs[0] == 1 and shape.inputs[0] == 1 and shape.pad[0] == 0
    return groups == 1 and c <= FEW and shape.kernel[2] > 1 and shape.dilation[2] == 1 and known and flat


def blocks_of(
    ctx: Context, shape: Window, m: int, runs: int, length: int, batch: int, copied: bool
) -> tuple[int, Tiles]:
    """The pixels of a block, and the tiles."""
    target = ctx.target
    pixels = product(shape.outputs)
    k = runs * (length + round(RUN * 2 / 24))
    if not isinstance(pixels, int) or pixels < 1:
        choice = tiling.choose(target, None, m, k, threads=ctx.threads, batch=batch)
        choice = replace(choice, rest=tuple(r for r in (4, 2, 1) if r < choice.mr))
        return math.ceil(max(1, TABLE // (8 * runs)) / choice.mr) * choice.mr, choice
    if copied:
        width = shape.outputs[2]
        height = shape.outputs[1]
        assert isinstance(width, int)
        assert isinstance(height, int)
        line = ((width - 1) * shape.stride[2] + shape.kernel[2]) * (length // shape.kernel[2]) * 4
        most = max(1, min(COPY // max(1, line * shape.stride[1]), TABLE * 4 // (8 * runs * width)))
        rows = math.ceil(height / math.ceil(height / most))
        choice = tiling.choose(target, pixels, m, k, threads=ctx.threads, batch=batch)
        left = {rows * width % choice.mr, height % rows * width % choice.mr} - {0}
        return rows * width, replace(choice, rest=tuple(sorted(left, reverse=True)))
    choice = tiling.choose(target, pixels, m, k, threads=ctx.threads, batch=batch)
    blocks = math.ceil(pixels * runs * 8 / TABLE)
    block = math.ceil(math.ceil(pixels / blocks) / choice.mr) * choice.mr
    return block, choice
