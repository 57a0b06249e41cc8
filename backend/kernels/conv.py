"""Lowering of Conv to the implicit-GEMM kernel; depthwise ones go to `depthwise`.

The output of a convolution is, for each image and group, a matrix of channels x pixels: the packed weights times the
inputs under the filter, gathered panel by panel. One, two and three spatial dims are one case, with leading dims of 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, TensorType
from ...engine.symbolic import Dim, product
from ..iteration import Extents
from ..loops import serial_below
from ..lower import Context, Group, Kernel, Step, lowering
from . import tiles as tiling
from . import winograd
from .epilogue import Axes, Epilogue, of_group
from .matmul import SMALL_WORK, kernel_weight, pack_columns, tile_params
from .slide import slide
from .tiles import Tiles
from .window import Window, geometry, number, window_of

SMALL = 256
"""Images of at most so many pixels may be done by vectors of channels."""
WEIGHTS = 4 / 7.0
"""What a weight costs that comes from memory, in cycles."""
GATHER, TURN = 2.0, 3.0
"""What a vector of gathered inputs costs, and an element of the output that has to be turned, in cycles."""


@lowering("Conv")
def lower_conv(group: Group, ctx: Context) -> list[Step] | None:
    """Conv of any geometry over one to three spatial dims, with constant weights."""
    node = group.anchor
    assert node is not None
    x, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    weights = ctx.constant(node.inputs[1])
    if weights is None or x.dtype is not DType.F32 or weights.type.dtype is not DType.F32:
        return None
    if x.shape is None or out.shape is None:
        return None
    w = weights.array
    groups = number(node, "group", 1)
    shape = window_of(node, x, out, w.shape[2:])
    if shape is None or not w.size:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    addend = None
    if bias:
        addend = (bias, TensorType(DType.F32, (w.shape[0], *(1,) * (w.ndim - 2))), 1.0)
    epilogue = of_group(group, ctx, Axes(out.shape, 1, 2), addend=addend)
    if epilogue is None:
        return None
    images = x.shape[0]
    if groups > 1 and w.shape[1] == 1:
        extra = {"kind": "depthwise", "counted": False, "include_pad": False}
        inputs = (node.inputs[0], node.inputs[1])
        return [slide(group, ctx, shape, epilogue, images, groups, w.shape[0] // groups, inputs, extra)]
    step = conv_step(group, ctx, shape, epilogue, images, groups, w, node.inputs[0])
    pixels = product(shape.outputs)
    if isinstance(pixels, int) or w.ndim > 3:
        return [step]
    return _by_length(step, group, ctx, shape, epilogue, images, groups, w, pixels)


def conv_step(
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    groups: int,
    w: NDArray[Any],
    x: str,
) -> Step:
    """The step that convolves the value `x` with weights [M, C / groups, *kernel] in an implicit GEMM."""
    pixels = product(shape.outputs)
    m, channels = w.shape[0] // groups, w.shape[1]
    k = channels * shape.taps
    direct = shape.is_pointwise
    choice = tiling.choose(
        ctx.target,
        m,
        pixels if isinstance(pixels, int) else None,
        k,
        threads=ctx.threads,
        batch=groups * (images if isinstance(images, int) and images > 0 else 1),
        packing=0.0 if direct else GATHER,
    )
    if ctx.reassociate and (way := winograd.plan(ctx, shape, images, groups, m, channels)):
        if way.cycles < 0.8 * (choice.cycles + WEIGHTS * w.size):
            return winograd.winograd_step(group, ctx, shape, epilogue, images, w, x, way)
    if isinstance(pixels, int) and pixels > 0 and (small := _small(ctx, shape, images, groups, m, pixels, k, direct)):
        if small[1].cycles < 0.96 * choice.cycles:  # the model is no more exact than that
            return _small_step(group, ctx, shape, epilogue, images, groups, w, x, *small)
    nr = choice.nv * ctx.target.lanes
    kc = 0
    if not direct:
        kc = tiling.k_block(ctx.target, k, nr, None)
        kc = 0 if kc >= k else kc
    extents = Extents()
    b_k = extents(pixels) if direct else nr
    scratch = 0 if direct else -(-((kc or k) * nr + ctx.target.lanes) * 4 // 64) * 64
    params = {
        "images": extents(images),
        "groups": groups,
        "m": m,
        "pixels": extents(pixels),
        "k": k,
        "kc": kc,
        "direct": direct,
        "scratch": scratch,
        "g": geometry(shape, channels, extents),
        **_gathering(shape, ctx.target.lanes),
        "tiles": tile_params(choice, "1", str(choice.mr), str(choice.mr * k), b_k, b_k),
        "epilogue": epilogue.params(extents),
    }
    macs = product((images, w.shape[0], pixels, k))
    return Step(
        Kernel("conv", params, kernel_weight(choice) + (not direct)),
        (x, ctx.add_constant(pack_rows(w, groups, choice.mr), "packed"), *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=scratch,
        in_place=() if kc else epilogue.in_place(2),
        threads=serial_below(macs, SMALL_WORK),
        nodes=tuple(n.name for n in group.nodes),
    )


def _by_length(
    step: Step,
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    groups: int,
    w: NDArray[Any],
    pixels: Dim,
) -> list[Step]:
    """A step for signals of any length as two: where less than a vector of samples comes out, vectors run over
    channels."""
    lanes, direct = ctx.target.lanes, shape.is_pointwise
    m, k = w.shape[0] // groups, w.shape[1] * shape.taps
    columns = tiling.choose(ctx.target, m, None, k, packing=0.0 if direct else GATHER).cycles
    found = None
    for count in (lanes // 4, lanes // 2, lanes):
        small = _small(ctx, shape, images, groups, m, count, k, direct)
        if small is None or small[1].cycles > 0.8 * columns * lanes / tiling.NOMINAL_COLUMNS:
            break
        found = small
    if found is None:
        return [step]
    block, choice = found
    choice = replace(choice, rest=tuple(r for r in (4, 2, 1) if r < choice.mr))
    few = _small_step(group, ctx, shape, epilogue, images, groups, w, step.inputs[0], block, choice)
    return [replace(few, only=((pixels, block),), in_place=()), replace(step, only=((block + 1, pixels),), in_place=())]


def _small(
    ctx: Context, shape: Window, images: Dim, groups: int, m: int, pixels: int, k: int, direct: bool
) -> tuple[int, Tiles] | None:
    """The block of pixels and the tiles with which the kernel for small images would do it, with its modelled time."""
    if m < 2 * ctx.target.lanes or pixels > SMALL:
        return None
    blocks = -(-pixels // 64)
    block = -(-pixels // blocks)
    batch = blocks * groups * (images if isinstance(images, int) and images > 0 else 1)
    choice = tiling.choose(ctx.target, block, m, k, threads=ctx.threads, batch=batch)
    vectors = -(-block // ctx.target.lanes) * batch
    gathering = 0.0 if direct else GATHER * k * vectors * max(1, -(-ctx.threads // batch))
    turning = TURN * block * m * batch
    if pixels % block:
        choice = replace(choice, rest=tuple(r for r in (4, 2, 1) if r < choice.mr))
    return block, replace(choice, cycles=choice.cycles + gathering + turning)


def _small_step(
    group: Group,
    ctx: Context,
    shape: Window,
    epilogue: Epilogue,
    images: Dim,
    groups: int,
    w: NDArray[Any],
    x: str,
    block: int,
    choice: Tiles,
) -> Step:
    """The step of the kernel for images of few pixels."""
    lanes = ctx.target.lanes
    m, channels = w.shape[0] // groups, w.shape[1]
    k, pixels = channels * shape.taps, product(shape.outputs)
    direct = shape.is_pointwise
    nr, pitch = choice.nv * lanes, -(-block // lanes) * lanes
    kc = 0
    if not direct:
        kc = tiling.k_block(ctx.target, k, max(pitch, nr), None)
        kc = 0 if kc >= k else kc
    depth = -(-m // nr) if kc else 1
    floats = depth * pitch * nr + (0 if direct else (kc or k) * pitch + lanes)
    extents = Extents()
    a_k = extents(pixels) if direct else str(pitch)
    last = choice.tail * lanes
    columns = w.reshape(groups, m, channels, -1).transpose(0, 3, 2, 1).reshape(groups, k, m)
    params = {
        "images": extents(images),
        "groups": groups,
        "m": m,
        "pixels": extents(pixels),
        "k": k,
        "kc": kc,
        "direct": direct,
        "block": block,
        "pitch": pitch,
        "depth": depth,
        "scratch": -(-floats * 4 // 64) * 64,
        "g": geometry(shape, channels, extents),
        **_gathering(shape, lanes),
        "tiles": tile_params(choice, "1", a_k, str(choice.mr), nr, last),
        "epilogue": epilogue.params(extents),
    }
    return Step(
        Kernel("conv_small", params, kernel_weight(choice) + 1 + (not direct)),
        (x, ctx.add_constant(pack_columns(columns, nr, lanes), "packed"), *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=int(params["scratch"]),
        in_place=epilogue.in_place(2),
        threads=serial_below(product((images, w.shape[0], pixels, k)), SMALL_WORK // 2),
        nodes=tuple(n.name for n in group.nodes),
    )


def _gathering(shape: Window, lanes: int) -> dict[str, int]:
    """How `im2col.j2` is to gather: by vectors of how many pieces (0: not at all), and from which width on."""
    width = shape.outputs[2]
    if shape.stride[2] > 2 or shape.kernel[2] > 16:
        return {"pieces": 0, "at_least": 0}
    if not isinstance(width, int):
        return {"pieces": 2, "at_least": lanes}
    pieces = (lanes - 2) // max(1, width) + 2
    return {"pieces": pieces if pieces <= 4 else 0, "at_least": 0}


def pack_rows(w: NDArray[Any], groups: int, mr: int) -> NDArray[Any]:
    """Weights [M, C, *kernel] as `[group][M / mr][tap, C][mr]`, flat; missing rows of the last block are zero."""
    m, channels = w.shape[0] // groups, w.shape[1]
    by_tap = w.reshape(groups, m, channels, -1).transpose(0, 1, 3, 2).reshape(groups, m, -1)
    blocks = -(-m // mr)
    padded = np.zeros((groups, blocks * mr, by_tap.shape[2]), w.dtype)
    padded[:, :m] = by_tap
    return np.ascontiguousarray(padded.reshape(groups, blocks, mr, -1).transpose(0, 1, 3, 2)).reshape(-1)
