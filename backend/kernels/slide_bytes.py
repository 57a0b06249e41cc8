"""Depthwise convolution of bytes with their channels last (called by `bytes_last`).

Every instruction multiplies four lines of a column at once, for as many channels as a vector has words; see
`templates/slide_bytes.pyx.j2`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.symbolic import Dim, product
from ..iteration import Extents
from ..kernel_graph import Target
from ..lower import Context, Group, Kernel, Step
from ..template_params import serial_below
from .epilogue import Epilogue, Operand
from .integer import in_words
from .requantise import Requantised
from .slide import SMALL_PLANES
from .slide_last import pieces
from .window import Window, geometry_in_numbers

LARGEST = 200
"""The largest window, in elements: it is unrolled."""


def depthwise_bytes(
    group: Group,
    ctx: Context,
    inputs: tuple[str, ...],
    zero: str,
    shape: Window,
    found: Requantised,
    images: Dim,
    w: NDArray[np.int8],
) -> Step | None:
    """The step that convolves each channel of x with a filter of its own, weights [C, 1, *kernel]; `inputs` are x and,
    if `zero` is "", its zero point.

    None for very large windows, and for operands other than constants of one number or of one for each channel."""
    target, channels = ctx.target, w.shape[0]
    if shape.taps > LARGEST:
        return None
    epilogue = _reordered(ctx, found.epilogue, channels)
    if epilogue is None:
        return None
    rows, columns = _tile(shape, target)
    padded = -(-channels // (4 * target.lanes)) * 4 * target.lanes
    extents = Extents()
    params: dict[str, Any] = {
        "images": extents(images),
        "channels": channels,
        "padded": padded,
        "zero": zero,
        "g": geometry_in_numbers(shape, channels, extents),
        "rows": pieces(shape.outputs[1], rows),
        "columns": pieces(shape.outputs[2], columns),
        "scratch": -(-(padded + 64) // 64) * 64,
        "epilogue": epilogue.params(extents),
        **found.out,
    }
    work = product((images, channels, *shape.outputs, shape.taps))
    sizes = len(params["rows"]) * len(params["columns"])
    packed = _weights(w, shape, params["rows"][0], target.lanes)
    return Step(
        Kernel("slide_bytes", params, 2.0 + sizes * rows * columns * shape.taps / 30),
        (*inputs, ctx.add_constant(packed, "packed"), *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=int(params["scratch"]),
        threads=serial_below(work, 4 * SMALL_PLANES),
        nodes=tuple(n.name for n in group.nodes),
    )


def order(channels: int, lanes: int) -> NDArray[np.int64]:
    """The channels, in whole steps of 4 * lanes, as interleaving leaves them: vectors 0 to 3 of each step in turn."""
    steps = -(-channels // (4 * lanes))
    within = np.arange(4 * lanes).reshape(lanes // 4, 4, 4).transpose(1, 0, 2).reshape(-1)
    return np.asarray((np.arange(steps)[:, np.newaxis] * 4 * lanes + within).reshape(-1))


def _reordered(ctx: Context, epilogue: Epilogue, channels: int) -> Epilogue | None:
    """The epilogue with its operands of one number for each channel in that order; None if others vary."""
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


def _weights(w: NDArray[np.int8], shape: Window, rows: int, lanes: int) -> NDArray[np.uint32]:
    """Weights as the template has them: for each place of an output in a tile those of all lines, four to a word."""
    depth, height, width = shape.kernel
    lines = (rows - 1) * shape.stride[1] + (height - 1) * shape.dilation[1] + 1
    words = -(-lines * depth // 4)
    places = order(w.shape[0], lanes)
    filters = np.zeros((len(places), depth, height, width), np.int8)
    filters[: w.shape[0]] = w.reshape(-1, depth, height, width)
    placed = np.zeros((len(places), rows, 4 * words, width), np.int8)
    for i in range(rows):
        for h in range(height):
            line = i * shape.stride[1] + h * shape.dilation[1]
            placed[:, i, line * depth : (line + 1) * depth] = filters[:, :, h]
    whole = in_words(placed.reshape(-1, rows, words, 4, width), axis=3)[places]
    steps = whole.reshape(-1, 4 * lanes, rows, words, width)
    return np.ascontiguousarray(steps.transpose(0, 2, 3, 4, 1)).reshape(-1)


def _tile(shape: Window, target: Target) -> tuple[int, int]:
    """Rows and columns of a tile: as many sums as the registers hold, few words to interleave for each, little left."""
    most = 6 if target.registers >= 32 else 2
    _, height, width = shape.outputs
    depth, kh, kw = shape.kernel
    best = (math.inf, 1, 1)
    for r in range(1, 5):
        lines = (r - 1) * shape.stride[1] + (kh - 1) * shape.dilation[1] + 1
        for t in range(1, 7):
            if r * t > most or (r * t > 1 and r * t * shape.taps > LARGEST):
                continue
            across = (t - 1) * shape.stride[2] + (kw - 1) * shape.dilation[2] + 1
            products = 0
            for i in range(r):
                first = i * shape.stride[1] * depth // 4
                last = ((i * shape.stride[1] + (kh - 1) * shape.dilation[1] + 1) * depth - 1) // 4
                products += (last - first + 1) * kw * t
            cycles = -(-lines * depth // 4) * across * 8 + products * 2.5 + r * t * 10 + 10
            high = math.ceil(height / r) * r / height if isinstance(height, int) and height else 1
            wide = math.ceil(width / t) * t / width if isinstance(width, int) and width else 1
            best = min(best, (cycles / (r * t) * (high + 1) * (wide + 1) / 4, r, t))
    return best[1], best[2]
