"""Products of bytes: MatMulInteger, QLinearMatMul, ConvInteger and QLinearConv with constant weights.

The register tile multiplies words of four unsigned bytes with words of four signed ones and sums them exactly. The
weights, less their zero points, have to fit signed bytes, as they do wherever they were quantised symmetrically. The
zero point z of the activations comes out of the sums again: sum (a - z) w = sum a w - z sum w, a term for each column
that is known when compiling if z is. Signed activations become unsigned ones by adding 128, to them and to z.

"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim, product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from . import tiles as tiling
from .conv import conv_step
from .epilogue import Axes, Sums, of_sums
from .matmul import SMALL_WORK, kernel_weight, lines_ahead, pack_columns, tile_params
from .window import Window, number, window_of

_C = {DType.F32: "float", DType.I32: "float", DType.U8: "uint8_t", DType.I8: "int8_t"}  # i32 is stored as it is
_BYTES = (DType.U8, DType.I8)


@dataclass(frozen=True)
class Quantised:
    """The operands of a product of bytes by name ("" where absent), with the result's scale and zero point if it is
    quantised anew; `addend` is a bias in i32."""

    x: str
    w: str
    x_zero: str = ""
    w_zero: str = ""
    scales: tuple[str, str, str] | None = None
    y_zero: str = ""
    addend: str = ""


def operands_of(node: Node) -> Quantised:
    """What a product of bytes reads, by name."""
    ins = [*node.inputs, *("",) * 9]
    if "QLinear" in node.op:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = ins[:9]
        return Quantised(x, w, x_zero, w_zero, (x_scale, w_scale, y_scale), y_zero, bias)
    return Quantised(ins[0], ins[1], ins[2], ins[3])


@lowering("MatMulInteger", "QLinearMatMul")
def lower_matmul(group: Group, ctx: Context) -> list[Step] | None:
    """[.., M, K] bytes times constant [K, N] bytes; zero points and scales of one number, or one a column."""
    node = group.anchor
    assert node is not None
    given = operands_of(node)
    x, out = ctx.type(given.x), ctx.type(node.outputs[0])
    if x.dtype not in _BYTES or not x.shape or len(x.shape) < 2 or out.shape is None:
        return None
    w = weights_of(ctx, given, lambda zero: zero)
    if w is None or w.ndim != 2 or not w.size or x.shape[-1] != w.shape[0]:
        return None
    k, n = w.shape
    rows = product(x.shape[:-1])
    names = tuple(n.name for n in group.nodes)
    steps: list[Step] = []
    sums = sums_of(ctx, given, w.astype(np.int64).sum(0), (n,), x.dtype, names, steps)
    found = None if sums is None else of_sums(group, ctx, Axes(out.shape, 0, len(out.shape) - 1), sums)
    if found is None:
        return None
    epilogue, dtype = found
    words = -(-k // 4)
    value = given.x
    if k % 4 or x.dtype is DType.I8:
        extents = Extents()
        value = ctx.new_value(TensorType(DType.U32, (rows, words)), "bytes")
        params: dict[str, Any] = {"rows": extents(rows), "k": k, "signed": x.dtype is DType.I8}
        steps.append(
            Step(
                Kernel("byte_rows", params),
                (given.x,),
                (value,),
                dims=tuple(extents.dims),
                threads=serial_below(product((rows, k)), 1 << 15),
                nodes=names,
            )
        )
    choice = tiling.choose(ctx.target, rows if isinstance(rows, int) else None, n, words, threads=ctx.threads)
    nr, lanes = choice.nv * ctx.target.lanes, ctx.target.lanes
    padded = np.zeros((4 * words, n), np.int8)
    padded[:k] = w
    panels = pack_columns(in_words(padded.reshape(words, 4, n))[np.newaxis], nr, lanes)
    extents = Extents()
    tiles = tile_params(choice, str(words), "1", str(choice.mr * words), nr, choice.tail * lanes)
    params = {
        "m": extents(rows),
        "n": n,
        "k": words,
        "batch": [],
        "packed": True,
        "kc": 0,
        "ahead": lines_ahead(choice, ctx.target, rows, n, words),
        "tiles": {**tiles, "dot": "u8s8", "out": _C[dtype]},
        "epilogue": epilogue.params(extents),
    }
    steps.append(
        Step(
            Kernel("gemm", params, kernel_weight(choice)),
            (value, ctx.add_constant(panels, "packed"), *epilogue.values),
            (epilogue.output,),
            dims=tuple(extents.dims),
            threads=serial_below(product((rows, n, words)), SMALL_WORK),
            nodes=names,
        )
    )
    return steps


@lowering("ConvInteger", "QLinearConv")
def lower_conv(group: Group, ctx: Context) -> list[Step] | None:
    """Convolutions of any geometry over one to three spatial dims; zero points and scales of one number, or one for
    each channel of the output."""
    node = group.anchor
    assert node is not None
    given = operands_of(node)
    x, out = ctx.type(given.x), ctx.type(node.outputs[0])
    if x.dtype not in _BYTES or x.shape is None or out.shape is None:
        return None
    w = filters_of(ctx, given, len(x.shape))
    shape = None if w is None or not w.size else window_of(node, x, out, w.shape[2:])
    if w is None or shape is None:
        return None
    spatial = (1,) * (w.ndim - 2)
    names = tuple(n.name for n in group.nodes)
    steps: list[Step] = []
    column = w.astype(np.int64).sum(tuple(range(1, w.ndim)))
    sums = sums_of(ctx, given, column, (w.shape[0], *spatial), x.dtype, names, steps)
    found = None if sums is None else of_sums(group, ctx, Axes(out.shape, 1, 2), sums)
    if found is None:
        return None
    epilogue, dtype = found
    groups, channels = number(node, "group", 1), w.shape[1]
    images = x.shape[0]
    quads = -(-channels // 4)
    inside, step = _planes(ctx, given, x, shape, images, groups, channels, names)
    steps.append(step)
    padded = np.zeros((w.shape[0], 4 * quads, *w.shape[2:]), np.int8)
    padded[:, :channels] = w
    packed = in_words(padded.reshape(w.shape[0], quads, 4, -1).swapaxes(2, 3), axis=3).reshape(
        w.shape[0], quads, *w.shape[2:]
    )
    window = replace(shape, inputs=_reach(shape), pad=(0, 0, 0), pad_end=(0, 0, 0))
    steps.append(conv_step(group, ctx, window, epilogue, images, groups, packed, inside, out=_C[dtype]))
    return steps


def in_words(array: NDArray[np.int8], axis: int = 1) -> NDArray[np.uint32]:
    """Signed bytes as words of the four along an axis, the first in the lowest byte."""
    bits: NDArray[np.uint32] = np.moveaxis(array, axis, -1).astype(np.uint8).astype(np.uint32)
    words = bits[..., 0] | bits[..., 1] << np.uint32(8) | bits[..., 2] << np.uint32(16) | bits[..., 3] << np.uint32(24)
    return np.asarray(words, np.uint32)


def filters_of(ctx: Context, given: Quantised, rank: int) -> NDArray[np.int8] | None:
    """Constant filters of a rank less their zero point, one number or one for each; see `weights_of`."""
    return weights_of(ctx, given, lambda zero: zero.reshape(-1, *(1,) * (rank - 1)))


def weights_of(ctx: Context, given: Quantised, seen: Any) -> NDArray[np.int8] | None:
    """Constant weights less their zero point (brought to their rank by `seen`), if that fits signed bytes."""
    w, zero = ctx.constant(given.w), ctx.constant(given.w_zero) if given.w_zero else None
    if w is None or w.type.dtype not in _BYTES or (given.w_zero and zero is None):
        return None
    whole = w.array.astype(np.int32)
    if zero is not None:
        offset = zero.array.astype(np.int32)
        if offset.ndim > 1:
            return None
        whole = whole - (seen(offset) if offset.size > 1 else offset.reshape(()))
    if whole.size and (whole.min() < -128 or whole.max() > 127):
        return None
    return whole.astype(np.int8)


def sums_of(
    ctx: Context,
    given: Quantised,
    column: NDArray[np.int64],
    shape: tuple[int, ...],
    dtype: DType,
    names: tuple[str, ...],
    steps: list[Step],
) -> Sums | None:
    """What has to be done with the sums: `column` are those of the weights, `shape` is that of a number for each. May
    add a step; None if zero points or scales are of another form."""
    shift = 128 if dtype is DType.I8 else 0
    kind = TensorType(DType.I32, shape)
    addends: list[tuple[str, TensorType]] = []
    constant = ctx.constant(given.x_zero) if given.x_zero else None
    if given.x_zero and constant is None:
        if product(ctx.type(given.x_zero).shape or (0,) * (ctx.type(given.x_zero).rank != 0)) != 1:
            return None
        term = ctx.new_value(TensorType(DType.I32, (len(column),)), "zero_term")
        params = {"n": len(column), "signed": dtype is DType.I8, "shift": shift}
        values = (given.x_zero, ctx.add_constant(column.astype(np.int32), "column_sums"))
        steps.append(Step(Kernel("zero_term", params), values, (term,), threads=1, nodes=names))
        addends.append((term, kind))
    else:
        if constant is not None and constant.array.size != 1:
            return None
        zero = shift + (0 if constant is None else int(constant.array.reshape(())))
        if zero:
            addends.append((ctx.add_constant((-zero * column).astype(np.int32), "zero_term"), kind))
    if given.addend:
        addends.append((given.addend, kind))
    if given.scales is None:
        return Sums(tuple(addends))
    scales = [ctx.constant(value) for value in given.scales]
    y_zero = ctx.constant(given.y_zero) if given.y_zero else None
    if any(s is None or s.array.dtype != np.float32 for s in scales) or (given.y_zero and y_zero is None):
        return None
    x_scale, w_scale, y_scale = (s.array for s in scales if s is not None)
    result = DType.from_numpy(y_zero.array.dtype) if y_zero is not None else dtype
    one_each = w_scale.size in (1, len(column))
    if x_scale.size != 1 or y_scale.size != 1 or not one_each or result not in _BYTES:
        return None
    if y_zero is not None and y_zero.array.size != 1:
        return None
    factor = np.float32(x_scale.item()) * w_scale.reshape(-1).astype(np.float32) / np.float32(y_scale.item())
    factors = np.broadcast_to(factor.astype(np.float32), (len(column),))
    low, high = (0.0, 255.0) if result is DType.U8 else (-128.0, 127.0)
    zero_point = 0.0 if y_zero is None else float(y_zero.array.reshape(()))
    name = ctx.add_constant(np.ascontiguousarray(factors), "factors")
    return Sums(tuple(addends), (name, TensorType(DType.F32, shape)), zero_point, low, high)


def _reach(shape: Window) -> tuple[Dim, ...]:
    """The extents of the inputs with all padding that windows touch."""
    sizes = zip(shape.outputs, shape.kernel, shape.stride, shape.dilation, strict=True)
    return tuple((out - 1) * s + d * (k - 1) + 1 for out, k, s, d in sizes)


def _planes(
    ctx: Context,
    given: Quantised,
    x: TensorType,
    shape: Window,
    images: Dim,
    groups: int,
    channels: int,
    names: tuple[str, ...],
) -> tuple[str, Step]:
    """The step that makes words of four channels, and its result."""
    outputs = _reach(shape)
    items = images * groups
    words = ctx.new_value(TensorType(DType.U32, (items, -(-channels // 4), *outputs)), "planes")
    constant = ctx.constant(given.x_zero) if given.x_zero else None
    known = not given.x_zero or constant is not None
    zero = str(0 if constant is None else int(constant.array.reshape(())) & 255) if known else ""
    extents = Extents()
    params = {
        "items": extents(items),
        "channels": channels,
        "inputs": extents.all(shape.inputs),
        "pads": extents.all(shape.pad),
        "outputs": extents.all(outputs),
        "signed": x.dtype is DType.I8,
        "zero": zero,
    }
    step = Step(
        Kernel("byte_planes", params),
        (given.x,) if known else (given.x, given.x_zero),
        (words,),
        dims=tuple(extents.dims),
        threads=serial_below(product((items, channels, *outputs)), 1 << 15),
        nodes=names,
    )
    return words, step
