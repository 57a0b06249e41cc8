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
from ..lower import Context, Group, Kernel, Step, Target, lowering
from ..template_params import serial_below
from . import tiles as tiling
from . import winograd
from .epilogue import Axes, Epilogue, of_group
from .matmul import SMALL_WORK, kernel_weight, pack_columns, tile_params
from .matmul_bf16 import pair_rows
from .slide import slide
from .tiles import Tiles
from .window import Window, filters, geometry, number, window_of

SMALL = 256
"""Images of at most so many pixels may be done by vectors of channels."""
WEIGHTS = 4 / 7.0
"""What a weight costs that comes from memory, in cycles."""
GATHER, TURN, PAIR = 2.0, 3.0, 1.5
"""What a vector of gathered inputs costs, an element of the output that has to be turned, and a vector of inputs that
is rounded to bf16 and paired, in cycles."""
CHUNK = 64
"""So many rows of inputs are gathered before they are rounded to bf16."""


@lowering("Conv", "rewrite.ConvBf16")
def lower_conv(group: Group, ctx: Context) -> list[Step] | None:
    """Conv of any geometry over one to three spatial dims, with constant weights; in f32, or of operands rounded to
    bf16."""
    node = group.anchor
    assert node is not None
    words = node.op == "rewrite.ConvBf16"
    x, out, w = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), filters(node, ctx)
    if w is None:
        return None
    assert x.shape is not None
    assert out.shape is not None
    groups = number(node, "group", 1)
    shape = window_of(node, x, out, w.shape[2:])
    if shape is None:
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
    step = conv_step(group, ctx, shape, epilogue, images, groups, w, node.inputs[0], words)
    pixels = product(shape.outputs)
    if isinstance(pixels, int) or w.ndim > 3 or words:
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
    words: bool = False,
    out: str = "",
) -> Step:
    """The step that convolves the value `x` with weights [M, C / groups, *kernel] in an implicit GEMM.

    With `words` both are rounded to bf16, unless Winograd's algorithm in f32 is faster. With `out`, a C type, both are
    words of four bytes (`integer.py`), and the epilogue's results are of that type."""
    pixels = product(shape.outputs)
    m, channels = w.shape[0] // groups, w.shape[1]
    k = channels * shape.taps
    direct = shape.is_pointwise and not words
    gathering = GATHER * (not shape.is_pointwise) + PAIR if words else GATHER
    choice = tiling.choose(
        ctx.target,
        m,
        pixels if isinstance(pixels, int) else None,
        -(-k // 2) if words else k,
        threads=ctx.threads,
        batch=groups * (images if isinstance(images, int) and images > 0 else 1),
        packing=0.0 if direct else gathering * (1 + words),
    )
    if not out and ctx.reassociate and (way := winograd.plan(ctx, shape, images, groups, m, channels)):
        margin = 0.9 if words else 0.8
        if way.cycles < margin * (choice.cycles + WEIGHTS * w.size / (1 + words)):
            return winograd.winograd_step(group, ctx, shape, epilogue, images, w, x, way)
    if (
        isinstance(pixels, int)
        and pixels > 0
        and (small := _small(ctx, shape, images, groups, m, pixels, k, direct, gathering, words))
    ):
        if small[1].cycles < 0.96 * choice.cycles:  # the model is no more exact than that
            return _small_step(group, ctx, shape, epilogue, images, groups, w, x, *small, words, out)
    nr = choice.nv * ctx.target.lanes
    kc = 0 if direct or out else _parts(ctx.target, k, nr, words)
    extents = Extents()
    b_k = extents(pixels) if direct else nr
    gathered = _gathered(shape, kc or k, nr, ctx.target.lanes, words)
    scratch = 0 if direct else -(-gathered["floats"] * 4 // 64) * 64
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
        **gathered,
        "tiles": {
            **tile_params(choice, "1", str(choice.mr), str(choice.mr * (-(-k // 2) if words else k)), b_k, b_k),
            "dot": "s8u8" if out else "bf16" if words else "",
            "out": out or "float",
        },
        "epilogue": epilogue.params(extents),
    }
    macs = product((images, w.shape[0], pixels, k))
    return Step(
        Kernel("conv", params, kernel_weight(choice) + (not direct)),
        (x, ctx.add_constant(pack_rows(w, groups, choice.mr, words), "packed"), *epilogue.values),
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
        small = _small(ctx, shape, images, groups, m, count, k, direct, GATHER, False)
        if small is None or small[1].cycles > 0.8 * columns * lanes / tiling.NOMINAL_COLUMNS:
            break
        found = small
    if found is None:
        return [step]
    block, choice = found
    choice = replace(choice, rest=tuple(r for r in (4, 2, 1) if r < choice.mr))
    few = _small_step(group, ctx, shape, epilogue, images, groups, w, step.inputs[0], block, choice, False)
    return [replace(few, only=((pixels, block),), in_place=()), replace(step, only=((block + 1, pixels),), in_place=())]


def _small(
    ctx: Context,
    shape: Window,
    images: Dim,
    groups: int,
    m: int,
    pixels: int,
    k: int,
    direct: bool,
    gather: float,
    words: bool,
) -> tuple[int, Tiles] | None:
    """The block of pixels and the tiles with which the kernel for small images would do it, with its modelled time."""
    if m < 2 * ctx.target.lanes or pixels > SMALL:
        return None
    blocks = -(-pixels // 64)
    block = -(-pixels // blocks)
    batch = blocks * groups * (images if isinstance(images, int) and images > 0 else 1)
    choice = tiling.choose(ctx.target, block, m, -(-k // 2) if words else k, threads=ctx.threads, batch=batch)
    vectors = -(-block // ctx.target.lanes) * batch
    gathering = 0.0 if direct else gather * k * vectors * max(1, -(-ctx.threads // batch))
    turning = TURN * block * m * batch
    if pixels % block:
        choice = replace(choice, rest=tuple(r for r in (4, 2, 1) if r < choice.mr))
    if words:  # as of one image and group, which is what the other kernel's time is of
        return block, replace(choice, cycles=blocks * (choice.cycles + (gathering + turning) / batch))
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
    words: bool,
    out: str = "",
) -> Step:
    """The step of the kernel for images of few pixels."""
    lanes = ctx.target.lanes
    m, channels = w.shape[0] // groups, w.shape[1]
    k, pixels = channels * shape.taps, product(shape.outputs)
    direct = shape.is_pointwise and not words
    nr, pitch = choice.nv * lanes, -(-block // lanes) * lanes
    kc = 0 if direct else _parts(ctx.target, k, max(pitch, nr), words)
    depth = -(-m // nr) if kc else 1
    gathered = _gathered(shape, kc or k, pitch, lanes, words)
    floats = depth * pitch * nr + (0 if direct else gathered["floats"])
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
        **gathered,
        "tiles": {
            **tile_params(choice, "1", a_k, str(choice.mr), nr, last),
            "dot": "u8s8" if out else "bf16" if words else "",
            "out": out or "float",
        },
        "epilogue": epilogue.params(extents),
    }
    return Step(
        Kernel("conv_small", params, kernel_weight(choice) + 1 + (not direct)),
        (
            x,
            ctx.add_constant(pack_columns(pair_rows(columns) if words else columns, nr, lanes), "packed"),
            *epilogue.values,
        ),
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


def _parts(target: Target, k: int, columns: int, words: bool) -> int:
    """How much of k is gathered and done at once, in elements; 0: all."""
    kc = 2 * tiling.k_block(target, -(-k // 2), columns, None) if words else tiling.k_block(target, k, columns, None)
    return 0 if kc >= k else kc


def _gathered(shape: Window, k: int, pitch: int, lanes: int, words: bool) -> dict[str, Any]:
    """What the templates want to know of the panel that is gathered, of k rows, and how many floats it takes."""
    if not words:
        return {"words": False, "floats": k * pitch + lanes}
    panel, chunk = -(-k // 2) * pitch, min(CHUNK, k + k % 2)
    return {
        "words": True,
        "pointwise": shape.is_pointwise,
        "chunk": chunk,
        "rows_at": panel,
        "floats": panel + (0 if shape.is_pointwise else chunk * pitch + lanes),
    }


def pack_rows(w: NDArray[Any], groups: int, mr: int, words: bool = False) -> NDArray[Any]:
    """Weights [M, C, *kernel] as `[group][M / mr][tap, C][mr]`, flat; missing rows of the last block are zero. With
    `words` pairs that follow each other along [tap, C] become words of two bf16."""
    m, channels = w.shape[0] // groups, w.shape[1]
    by_tap = w.reshape(groups, m, channels, -1).transpose(0, 1, 3, 2).reshape(groups, m, -1)
    if words:
        by_tap = pair_rows(by_tap.transpose(0, 2, 1)).transpose(0, 2, 1)
    blocks = -(-m // mr)
    padded = np.zeros((groups, blocks * mr, by_tap.shape[2]), by_tap.dtype)
    padded[:, :m] = by_tap
    return np.ascontiguousarray(padded.reshape(groups, blocks, mr, -1).transpose(0, 1, 3, 2)).reshape(-1)
