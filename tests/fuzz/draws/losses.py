"""Losses, quantization, signals and detection."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..eager import Invalid
from ..maker import (
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U16,
    Maker,
)
from .registry import draws


@draws(0.8)
def loss(m: Maker) -> object:
    op = m.pick(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    n, c = m.between(1, 4), m.between(1, 6)
    rest = m.shape(0, 2)
    scores = m.like(m.pick((F32, F32, F64, F16)), (n, c, *rest))
    labels = m.fresh(np.asarray(m.rng.integers(0, c, (n, *rest))).astype(m.pick((I64, I32))))
    weights = [m.new(m.dtype(scores), (c,), "positive")] if m.chance(0.4) else []
    ignore = m.between(-1, c - 1) if m.chance(0.4) else None
    outputs = m.between(1, 2) if op[0] == "S" else 1
    reduction = m.pick(("mean", "sum", "none"))
    if reduction == "mean" and (m.values[labels] == ignore).all():
        raise Invalid("the mean of nothing is undefined")
    return m.emit(op, [scores, labels, *weights], outputs, reduction=reduction, ignore_index=ignore)


@draws(2)
def quantize(m: Maker) -> object:
    kind = m.between(0, 2)
    if kind == 0:
        return m.emit("DynamicQuantizeLinear", [m.some((F32,), 1, 4)], 3)
    to = m.pick((U8, I8, U16, np.dtype(np.int16)) if m.opset >= 21 else (U8, I8))
    # where only the reference has f16 it rounds the quotients to it; ONNX Runtime and kernels divide in f32
    halves = (F16,) if to in (U8, I8) and m.opset < 28 else ()
    x = m.some((F32, F32, *halves) if kind == 1 else (to,), 1, 4)
    axis = m.axis(x)
    per = (m.dims(x)[axis],) if m.chance(0.4) else ()
    scaled = m.dtype(x) if kind == 1 else F32
    scale = m.constant(np.abs(m.array(F64, per, "positive")) * 0.05, scaled)
    zero = m.constant(np.abs(m.array(I8, per) // 4), to)
    if kind == 1:
        [y] = m.emit("QuantizeLinear", [x, scale, zero], axis=axis if per else None)
        return m.emit("DequantizeLinear", [y, scale, zero], axis=axis if per else None) if m.chance(0.6) else y
    return m.emit("DequantizeLinear", [x, scale, zero][: m.between(2, 3)], axis=axis if per else None)


@draws(0.8)
def signal(m: Maker) -> object:
    kind = m.between(0, 3)
    if kind == 0:
        op = m.pick(("HannWindow", "HammingWindow", "BlackmanWindow"))
        dtype = m.pick((None, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16))
        [window] = m.emit(
            op, [m.fresh(np.asarray(m.between(1, 20), I64), 0.8)], periodic=m.between(0, 1), output_datatype=dtype
        )
        m.shy.add(window)  # its ends are 0.42 - 0.5 + 0.08: rounding decides their sign and reciprocal
        return window
    dtype = m.pick((F32, F32, F64))
    if kind == 1:
        n = m.pick((8, 16))
        operands = [m.like(dtype, (m.between(1, 2), m.between(20, 40), 1)), m.constant(m.between(3, 8))]
        operands += [m.new(dtype, (n,), fixed=0.8) if m.chance(0.6) else "", m.constant(n)]
        return m.emit("STFT", operands, onesided=m.between(0, 1))
    if kind == 2:
        values = (m.between(3, 8), m.pick((16, 32)), 8000)
        ends = [m.constant(0.0, F32), m.constant(4000.0, F32)]
        return m.emit("MelWeightMatrix", [*(m.constant(v) for v in values), *ends])
    x = m.like(
        dtype, (m.between(1, 2), m.pick((1, 2, 3, 4, 6, 7, 8, 10, 15, 16, 17, 31)), m.between(1, 6), m.between(1, 2))
    )
    length = m.constant(m.between(2, 12)) if m.chance(0.3) else ""
    one, back = m.between(0, 1), m.between(0, 1)
    return m.emit("DFT", [x, length, m.constant(m.between(1, 2))], onesided=one if not back else 0, inverse=back)


@draws(0.6)
def suppression(m: Maker) -> object:
    b, n, c = m.between(1, 2), m.pick((1, 5, 20)), m.between(1, 3)
    low = m.rng.random((b, n, 2)) * 5
    boxes = np.concatenate([low, low + m.rng.random((b, n, 2)) * 3 + 0.1], -1).astype(F32)
    scores = m.rng.random((b, c, n)).astype(F32)
    limits = [m.constant([m.between(0, 5)]), m.constant([0.4], F32), m.constant([0.3], F32)]
    return m.emit("NonMaxSuppression", [m.fresh(boxes), m.fresh(scores), *limits], center_point_box=m.between(0, 1))
