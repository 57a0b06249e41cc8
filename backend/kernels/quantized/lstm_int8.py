"""Lowering of DynamicQuantizeLSTM: an LSTM of int8 weights whose input and state are quantized at run time.

The input is quantized once, with one scale and zero point for all its elements. So is the state of all rows of a
direction, before each step. With sequences of several lengths, the input's range is that of the steps up to the longest
one; a sequence that has ended has a state of zeros. This is the arithmetic of ONNX Runtime on one thread. On several it
may quantize parts of a batch by themselves, so that its results depend on their number; these do not.

Weights less their zero points are stored in signed bytes, if they fit. Other ones are shifted, and the sum of the bytes
of a row times the shift is added. Sums are exact.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import launch, serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import Space
from ...ir.target import Target
from ..gemm import tiles as tiling
from ..gemm.epilogue import Epilogue, Operand
from ..gemm.matmul import choose_tiles, packed_gemm_step, padded_rows
from ..gemm.problem import SMALL_WORK
from ..gemm.tiles import Precision
from ..recurrent.rnn import (
    activations_of,
    blocked_weights,
    by_block,
    layer_params,
    recurrent_space,
    row_blocks,
    units_together,
    unrolled,
)
from ..registry import lowering
from ..scheduling import schedule
from .gemm_int8 import dynamic_quantize_steps
from .requantize import INT8, Operands, pack_words

_GATES = 4
_INPUTS = 12

Array = NDArray[Any]


@lowering("com.microsoft.DynamicQuantizeLSTM")
def lower_dynamic_quantize_lstm(group: Group, ctx: Context) -> list[Step] | None:
    """f32 with constant u8 or s8 weights, scales, zero points, bias and peepholes.

    Scales and zero points are one number per direction, or one per column."""
    node = group.node
    inputs = [*node.inputs, *[""] * _INPUTS][:_INPUTS]
    x, activations = ctx.type(inputs[0]), activations_of(node, "LSTM")
    if len(group.nodes) != 1 or activations is None or x.dtype is not DType.F32 or x.shape is None:
        return None
    weights, recurrence = (_weights(inputs, first, ctx) for first in (1, 2))
    if weights is None or recurrence is None:
        return None
    bias, peepholes = (ctx.constant(inputs[i]) if inputs[i] else None for i in (3, 7))
    if any(inputs[i] and (c is None or c.type.dtype is not DType.F32) for i, c in ((3, bias), (7, peepholes))):
        return None
    if any(
        inputs[i] and ctx.type(inputs[i]).dtype is not wanted
        for i, wanted in ((4, DType.I32), (5, x.dtype), (6, x.dtype))
    ):
        return None
    (w, w_larger, w_scale), (r, r_larger, r_scale) = weights, recurrence
    directions, _, hidden, k = w.shape
    time, batch = x.shape[:2]
    lanes = ctx.target.lanes
    blocks = -(-hidden // lanes)
    width = blocks * lanes

    def described(extents: Extents) -> dict[str, Any]:
        sizes, has = extents.all((time, batch, hidden, directions)), [bool(v) for v in (*inputs[3:], *node.outputs)]
        return {"layer": layer_params(node, activations), "sizes": sizes, "has": has, "larger": bool(r_larger.any())}

    space = partial(lstm_int8_space, batch, blocks, ctx.target)
    point = schedule(group, ctx, f"lstm {time}x{batch}x{hidden} int8", described, space)
    rows = row_blocks(batch, _GATES, ctx.target.registers, int(point.get("rows", 0)))
    together = int(point.get("together", units_together(rows, _GATES, blocks)))

    # the input contributions: (sums of products - zero point * sums of weights) * scales + bias
    limit = (inputs[4], batch) if inputs[4] else None
    quantized, quantize = dynamic_quantize_steps(inputs[0], group, ctx, limit)
    codes, scale, zero = quantized
    operands = Operands(group, ctx, x=codes, w=inputs[1], x_zero=zero)
    columns = _columns(w.sum(-1, dtype=np.int64) + k * w_larger, lanes)
    sums = operands.sums(columns, columns.shape)
    assert sums is not None
    steps = [*quantize, *sums.steps]
    added = np.zeros((directions, _GATES, hidden), np.float32)
    if bias is not None:
        added = bias.array.reshape(directions, 2, _GATES, hidden).sum(1)
    summands = [
        Operand(sums.addends[0][0], (0, 0, 1)),
        Operand(scale, (0, 0, 0)),
        Operand(ctx.add_constant(_columns(w_scale, lanes), "scales"), (0, 0, 1)),
        Operand(ctx.add_constant(_columns(added, lanes), "bias"), (0, 0, 1)),
    ]
    whole = "(vi)x + (vi)e0"
    if w_larger.any():
        step, ((row_sums, _), (larger, _)) = operands.row_sums(_columns(w_larger, lanes), x.shape)
        steps.append(step)
        summands += [Operand(row_sums, (0, 1, 0)), Operand(larger, (0, 0, 1))]
        whole += " + (vi)e4 * (vi)e5"
    words, m = Precision.INT8.words(k), product(x.shape[:2])
    padded = np.zeros((directions, _GATES, hidden, 4 * words), np.int8)
    padded[..., :k] = w
    packed = by_block(_words(padded), lanes)
    gates = ctx.new_value(TensorType(DType.F32, (m, packed.shape[1])), "gates")
    lines = (f"const vi n = {whole};",)
    epilogue = Epilogue(tuple(summands), lines, "__builtin_convertvector(n, vf) * (e1 * e2) + e3", gates)
    copied = bool(k % 4)
    if copied:
        length = tiling.padded(choose_tiles(m, packed, Precision.INT8, ctx), words)
        codes, step = padded_rows(codes, m, k, length, group, ctx)
        steps.append(step)
    steps.append(packed_gemm_step(codes, m, packed, Precision.INT8, epilogue, group, ctx, pads=copied))

    # the time loop
    state_words = Precision.INT8.words(hidden)
    padded = np.zeros((directions, _GATES, hidden, 4 * state_words), np.int8)
    padded[..., :hidden] = r
    recurrent = {
        "weights": ctx.add_constant(blocked_weights(_words(padded), lanes, together), "recurrent"),
        "columns": ctx.add_constant(_columns(r.sum(-1, dtype=np.int32) + hidden * r_larger, lanes), "column_sums"),
        "scales": ctx.add_constant(_columns(r_scale, lanes), "scales"),
    }
    if r_larger.any():
        recurrent["larger"] = ctx.add_constant(_columns(r_larger, lanes), "larger")
    recurrent |= {key: inputs[i] for key, i in (("lengths", 4), ("h0", 5), ("c0", 6)) if inputs[i]}
    if peepholes is not None:
        wide = np.zeros((directions, 3, width), np.float32)
        wide[:, :, :hidden] = peepholes.array.reshape(directions, 3, hidden)
        recurrent["peepholes"] = ctx.add_constant(wide, "peepholes")
    named = zip(("y", "y_h", "y_c"), node.outputs, strict=False)
    outputs = {key: value for key, value in named if value and value in group.outputs}
    extents = Extents()
    params = {
        **layer_params(node, activations),
        "t": extents(time),
        "batch": extents(batch),
        "hidden": hidden,
        "directions": directions,
        "rows": rows,
        "together": together,
        **unrolled(point),
        "inputs": ["x", *recurrent],
        "outputs": list(outputs),
        "ended_as_zeros": bool(node.outputs[0]),
    }
    buffers = (
        ("states", DType.F32, (directions, 2, batch, width)),
        ("cells", DType.F32, (directions, batch, width)),
        ("codes", DType.U8, (directions, batch, 4 * state_words)),
        ("sums", DType.I32, (directions, batch)),
    )
    own = [ctx.new_value(TensorType(dtype, shape), name) for name, dtype, shape in buffers]
    work = product((time, batch, _GATES * hidden * hidden))  # one thread per direction
    threads = serial_below(work, SMALL_WORK) if directions > 1 else 1
    values = (gates, *recurrent.values())
    kernel = Kernel("lstm_int8", params)
    return [*steps, launch(kernel, group, values, (*outputs.values(), *own), extents, threads)]


def lstm_int8_space(batch: Dim, blocks: int, target: Target) -> Space:
    """Return the schedules of a time loop in int8: those of `recurrent_space`, for this template."""
    return replace(recurrent_space(batch, _GATES, blocks, target), templates=("lstm_int8",))


def _weights(inputs: list[str], first: int, ctx: Context) -> tuple[Array, Array, Array] | None:
    """Return signed bytes [direction, gate, unit, k], by how much the weights are larger, and their scales.

    Both of the latter are [direction, gate, unit], i32 and f32. None if the operands, the weights at `first`, are not
    constant or have another form."""
    places = (first, 6 + 2 * first, 7 + 2 * first)
    constants = [ctx.constant(inputs[i]) if inputs[i] else None for i in places]
    arrays = [constant.array for constant in constants if constant is not None]
    if len(arrays) < len(places) or arrays[0].ndim != 3 or not arrays[0].size:
        return None
    weights, scale, zero = arrays
    if DType.from_numpy(weights.dtype) not in INT8 or zero.dtype != weights.dtype or scale.dtype != np.float32:
        return None
    directions, k, n = weights.shape
    if n % _GATES or any(found.shape not in ((directions,), (directions, n)) for found in (scale, zero)):
        return None
    shift = 128 if weights.dtype == np.uint8 else 0
    offset = np.broadcast_to(zero.reshape(directions, -1).astype(np.int32), (directions, n))
    signed, larger = weights.astype(np.int32) - offset[:, None], np.zeros_like(offset)
    if signed.min() < -128 or signed.max() > 127:
        signed, larger = weights.astype(np.int32) - shift, shift - offset
    shape = (directions, _GATES, n // _GATES)
    scales = np.broadcast_to(scale.reshape(directions, -1), (directions, n)).reshape(shape)
    split = signed.astype(np.int8).reshape(directions, k, *shape[1:]).transpose(0, 2, 3, 1)
    return split, larger.reshape(shape), scales


def _columns(numbers: Array, lanes: int) -> Array:
    """Return [direction, gate, unit] in the order of the columns of `by_block`, zeros for missing units."""
    return by_block(numbers[..., None], lanes).reshape(-1)


def _words(padded: NDArray[np.int8]) -> NDArray[np.uint32]:
    """Return [.., k] as words of four bytes each."""
    return pack_words(padded.reshape(*padded.shape[:-1], -1, 4), axis=-1)
