"""Lowering of MatMulInteger, QLinearMatMul, ConvInteger and QLinearConv (NCHW), and of DynamicQuantizeLinear.

Activations are packed into words of four bytes along k where they do not lie so; see `requantize`
for the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType, Node, TensorType
from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import int_attr, launch, serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ..conv.conv import conv_step, packing_steps
from ..conv.problem import ConvProblem, Window, window_of
from ..gemm import tiles as tiling
from ..gemm.epilogue import Axes, Epilogue
from ..gemm.matmul import PACK_WORK, choose_tiles, packed_gemm_step, padded_rows
from ..gemm.tiles import Precision, uses_pairs
from ..registry import lowering, lowering_alone
from .conv_nhwc_int8 import conv_step as conv_nhwc_int8_step
from .conv_nhwc_int8 import with_one_constant
from .gemm_int8_variable import ZeroTerms, variable_product
from .requantize import INT8, Operands, Sums, pack_words, requantized_epilogue

PARTS = 64
"""Parts of a tensor whose ranges are found separately, whatever the number of threads."""


@lowering("MatMulInteger", "QLinearMatMul")
def lower_matmul(group: Group, ctx: Context) -> list[Step] | None:
    """[.., M, K] int8 times [K, N] int8; zero points and scales of one number, or one per row of x or column of w.

    Weights that do not fit signed bytes less their zero points need the sums of the rows of x."""
    operands = Operands.of(group, ctx)
    x, out, w = operands.type, ctx.type(group.node.outputs[0]), operands.weights()
    if x.dtype not in INT8 or not x.shape or len(x.shape) < 2 or out.shape is None:
        return None
    larger = None
    if w is None and (found := operands.shifted_weights()) is not None:
        w, larger = found
    if w is None or w.ndim != 2 or not isinstance(x.shape[-1], int):
        return variable_product(group, ctx, operands)
    if x.shape[-1] != w.shape[0]:
        return None
    k, n = w.shape
    sums = operands.sums(w.astype(np.int64).sum(0) + (0 if larger is None else k * larger.astype(np.int64)), (n,))
    if sums and larger is not None:
        step, factors = operands.row_sums(larger, x.shape)
        sums = replace(sums, steps=(*sums.steps, step), rows=(*sums.rows, factors))
    paired = uses_pairs(ctx.target) and w.size > 0
    sums = with_one_constant(ctx, sums) if sums and paired else sums
    axes = Axes(out.shape, 0, len(out.shape) - 1)
    requantized = sums and requantized_epilogue(group, ctx, axes, sums, nhwc=paired)
    if not sums or not requantized:
        return None
    steps, value, signed = list(sums.steps), operands.x, x.dtype is DType.I8
    words, rows, copied = Precision.INT8.words(k), product(x.shape[:-1]), bool(k % 4) or signed
    if paired:
        if signed:
            value, step = padded_rows(value, rows, k, words, group, ctx, signed)
            steps.append(step)
            w = np.pad(w, ((0, 4 * words - k), (0, 0)))
        ones, none = (1, 1, 1), (0, 0, 0)
        window = Window(1, (1, 1, rows), (1, 1, rows), ones, ones, ones, none, none)
        filters = np.ascontiguousarray(w.T).reshape(n, -1, *ones)
        problem = ConvProblem(group, window, requantized.epilogue, value, filters, 1, Precision.INT8)
        return [*steps, conv_nhwc_int8_step(problem, (value,), {"zero": "0", **requantized.params}, ctx)]
    padded = np.zeros((4 * words, n), np.int8)
    padded[:k] = w
    packed = pack_words(padded.reshape(words, 4, n))
    if copied:
        length = tiling.padded(choose_tiles(rows, packed, Precision.INT8, ctx), words)
        value, step = padded_rows(value, rows, k, length, group, ctx, signed)
        steps.append(step)
    epilogue = requantized.epilogue
    return [*steps, packed_gemm_step(value, rows, packed, Precision.INT8, epilogue, group, ctx, pads=copied)]


@lowering("ConvInteger", "QLinearConv")
def lower_conv(group: Group, ctx: Context) -> list[Step] | None:
    """Convolutions of any geometry over one to three spatial dims.

    Zero points and scales are one number, or one per output channel."""
    node, operands = group.node, Operands.of(group, ctx)
    x, out, w = operands.type, ctx.type(node.outputs[0]), operands.weights(filters=True)
    groups, larger = int_attr(node, "group", 1), None
    if w is None and groups == 1 and (shifted := operands.shifted_weights(filters=True)) is not None:
        w, larger = shifted
    parts = operands.weight_parts() if w is None and groups > 1 else None
    if w is None and parts is None:
        return _variable_conv(group, ctx, operands)
    if parts is not None:
        w = parts[0]
    window = None if w is None else window_of(node, x, out, w.shape[2:])
    if w is None or window is None or x.dtype not in INT8 or out.shape is None:
        return None
    more = parts[1:] if parts else ()
    column = np.sum([part.astype(np.int64).sum(tuple(range(1, w.ndim))) for part in (w, *more)], axis=0)
    if larger is not None:
        column += w[0].size * larger.astype(np.int64)
    sums = operands.sums(column, (w.shape[0], *(1,) * (w.ndim - 2)))
    partial = [operands.plain(out.shape) for _ in more]
    if sums:
        sums = replace(sums, addends=(*sums.addends, *(found for _, found in partial)))
    if sums and larger is not None:
        plain, rows = operands.window_sums(larger, out.shape, 1)
        sums = replace(sums, rows=(rows,))
    requantized = sums and requantized_epilogue(group, ctx, Axes(out.shape, 1, 2), sums)
    if not sums or not requantized:
        return None
    planes = _Planes.of(operands, window, w.shape[1], groups)
    before = [] if larger is None else [planes.convolved(np.ones_like(w[:1]), plain)]
    before += [planes.convolved(part, epilogue) for part, (epilogue, _) in zip(more, partial, strict=True)]
    return [*sums.steps, planes.step, *before, planes.convolved(w, requantized.epilogue)]


def _variable_conv(group: Group, ctx: Context, operands: Operands) -> list[Step] | None:
    """Return the steps of a convolution whose filters, of known shape, are known at run time only.

    Zero points of filters, and filters of unsigned bytes, need the sums of the image under each window: those of all
    channels, or for each filter those of its group, which take as many products again."""
    node, x, out, groups = group.node, operands.type, ctx.type(group.node.outputs[0]), int_attr(group.node, "group", 1)
    shape = [d for d in ctx.type(operands.w).shape or () if isinstance(d, int)]
    if len(shape) < 3 or len(shape) != ctx.type(operands.w).rank or 0 in shape or out.shape is None:
        return None
    window, (m, channels, *kernel) = window_of(node, x, out, shape[2:]), shape
    each = (m, *(1,) * len(kernel))
    column = TensorType(DType.I32, each)
    terms = ZeroTerms.of(operands, m, column, column)
    if window is None or terms is None or m % groups:
        return None
    addends = (*terms.addends, *([(operands.addend, column)] if operands.addend else []))
    summed = 1 if groups == 1 else m
    plain, found = operands.plain([summed if axis == 1 else dim for axis, dim in enumerate(out.shape)])
    sums = operands.scaled(Sums(addends, rows=((found, terms.shifts),) if terms.shifts else ()), m, each)
    requantized = sums and requantized_epilogue(group, ctx, Axes(out.shape, 1, 2), sums)
    if not requantized:
        return None
    quads, planes = Precision.INT8.words(channels), _Planes.of(operands, window, channels, groups)
    words = ctx.new_value(TensorType(DType.U32, (m, quads, *kernel)), "words")
    params = {"m": m, "channels": channels, "taps": window.taps, **terms.params}
    work = serial_below(m * channels * window.taps, PACK_WORK)
    kernel_ = Kernel("pack_filters_int8", params)
    pack = launch(kernel_, group, terms.inputs, (words, *terms.outputs), Extents(), work)
    filters = np.broadcast_to(np.zeros((), np.uint32), (m, quads, *kernel))
    problem = replace(planes.problem(filters, requantized.epilogue), computed=words)
    ones = [planes.convolved(np.ones((summed, channels, *kernel), np.int8), plain)] if terms.shifts else []
    k = quads * window.taps
    return [planes.step, *ones, pack, *packing_steps(problem, ctx, (m // groups * k, k, window.taps, 1))]


@dataclass(frozen=True)
class _Planes:
    """Images in words of four channels, with all padding that windows touch, and the step that makes them."""

    group: Group
    ctx: Context
    value: str
    window: Window
    groups: int
    step: Step

    @classmethod
    def of(cls, operands: Operands, window: Window, channels: int, groups: int) -> _Planes:
        """Return the planes of x, with `channels` channels in each group."""
        group, ctx = operands.group, operands.ctx
        geometry = zip(window.outputs, window.kernel, window.stride, window.dilation, strict=True)
        inputs = tuple((o - 1) * s + d * (k - 1) + 1 for o, k, s, d in geometry)
        items = window.images * groups
        found = ctx.new_value(TensorType(DType.U32, (items, Precision.INT8.words(channels), *inputs)), "planes")
        values, zero = operands.padding()
        extents = Extents()
        params = {
            "items": extents(items),
            "channels": channels,
            "inputs": extents.all(window.inputs),
            "pads": extents.all(window.pad),
            "outputs": extents.all(inputs),
            "signed": operands.type.dtype is DType.I8,
            "zero": zero,
        }
        work = serial_below(product((items, channels, *inputs)), PACK_WORK)
        step = launch(Kernel("pack_planes_int8", params), group, values, (found,), extents, work)
        return cls(group, ctx, found, replace(window, inputs=inputs, pad=(0, 0, 0), pad_end=(0, 0, 0)), groups, step)

    def problem(self, words: NDArray[Any], epilogue: Epilogue) -> ConvProblem:
        """Return the convolution of the planes with filters of words."""
        return ConvProblem(self.group, self.window, epilogue, self.value, words, self.groups, Precision.INT8)

    def convolved(self, filters: NDArray[np.int8], epilogue: Epilogue) -> Step:
        """Return the step that convolves the planes with filters of bytes."""
        channels, *kernel = filters.shape[1:]
        quads = Precision.INT8.words(channels)
        padded = np.zeros((len(filters), 4 * quads, *kernel), np.int8)
        padded[:, :channels] = filters
        packed = pack_words(padded.reshape(len(filters), quads, 4, *kernel), axis=2)
        return conv_step(self.problem(packed, epilogue), self.ctx)


@lowering_alone("DynamicQuantizeLinear")
def lower_dynamic_quantize(node: Node, ctx: Context) -> list[Step] | None:
    """f32 of any shape to u8, with the scale and the zero point: a pass for the range, and one to quantize.

    The scale of a tensor of zeros is 1, as in ONNX Runtime; the standard leaves it open."""
    x = ctx.type(node.inputs[0])
    if len(node.outputs) != 3 or x.dtype is not DType.F32 or x.shape is None:
        return None
    return dynamic_quantize_steps(node.inputs[0], node, ctx, outputs=node.outputs)[1]


def dynamic_quantize_steps(
    value: str,
    source: Node | Group,
    ctx: Context,
    limit: tuple[str, Dim] | None = None,
    outputs: Sequence[str] = ("", "", ""),
) -> tuple[list[str], list[Step]]:
    """Return the names of the bytes, scale (f32) and zero point (u8) of an f32 tensor, and the steps that compute them.

    `limit`: i32 lengths, and their number. Then elements behind the longest length, along the first axis, have no part
    in the range. `outputs` has the names that are wanted."""
    x = ctx.type(value)
    assert x.shape is not None
    kinds = zip(outputs, (DType.U8, DType.F32, DType.U8), (x.shape, (), ()), strict=True)
    names = [name or ctx.new_value(TensorType(dtype, shape), "quantized") for name, dtype, shape in kinds]
    ranges = ctx.new_value(TensorType(DType.F32, (PARTS, 2)), "ranges")
    extents, count = Extents(), product(x.shape)
    params: dict[str, Any] = {"n": extents(count), "parts": PARTS}
    work = serial_below(count, PACK_WORK)
    quantize = launch(Kernel("dynamic_quantize", params), source, (value, ranges), names, extents, work)
    inputs, extents, params = [value], Extents(), {"parts": PARTS, "lengths": ""}
    if limit is not None:
        inputs.append(limit[0])
        params |= {"lengths": extents(limit[1]), "steps": extents(x.shape[0]), "step": extents(product(x.shape[1:]))}
    params["n"] = extents(count)
    return names, [launch(Kernel("value_range", params), source, inputs, (ranges,), extents, work), quantize]
