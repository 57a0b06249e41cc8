"""Operators that ONNX Runtime's optimizer writes."""

from __future__ import annotations

import numpy as np

from ..maker import (
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    Maker,
)
from .registry import draws

MS = "com.microsoft"


@draws(2)
def contributed(m: Maker) -> object:
    kind = m.between(0, 8)
    width = m.pick((4, 8, 16))
    x = m.like(F32, (m.between(1, 2), m.between(1, 5), width))
    row = (width,)
    if kind == 0:
        return m.emit(m.pick(("Gelu", "FastGelu", "QuickGelu")), [x], domain=MS)
    if kind == 1:
        return m.emit(m.pick(("BiasGelu", "FastGelu")), [x, m.new(F32, row)], domain=MS)
    if kind == 2:
        operands = [x, m.like(F32, m.dims(x)), *(m.new(F32, row) for _ in range(m.between(1, 3)))]
        return m.emit("SkipLayerNormalization", operands, domain=MS, epsilon=1e-5)
    if kind == 3:
        operands = [x, m.like(F32, m.dims(x)), *(m.new(F32, row) for _ in range(m.between(1, 2)))]
        return m.emit("SkipSimplifiedLayerNormalization", operands, domain=MS, epsilon=1e-5)
    if kind == 4:
        beyond = m.between(0, 1)
        shape = (m.size(0), width) if beyond else (width, m.size(0))
        return m.emit("FusedMatMul", [x, m.new(F32, shape)], domain=MS, transB=beyond, alpha=m.pick((1.0, 0.3)))
    if kind == 5:
        w = m.new(m.pick((U8, I8)), (width, m.size(0)), fixed=1.0)
        return m.emit("DynamicQuantizeMatMul", [x, w, m.constant(0.02, F32), m.constant(0, m.dtype(w))], domain=MS)
    if kind == 6:
        q = m.like(F32, (2, m.between(1, 4), width))
        return m.emit(
            "MultiHeadAttention", [q, *(m.like(F32, (2, 3, width)) for _ in range(2))], domain=MS, num_heads=2
        )
    if kind == 7:
        packed = m.new(F32, (width, 3 * width), fixed=1.0), m.new(F32, (3 * width,), fixed=1.0)
        return m.emit("Attention", [x, *packed], domain=MS, num_heads=2)
    columns, block = m.pick((1, 8, 17)), 32
    weights = m.constant(m.array(U8, (columns, 1, block // 2)), U8)
    scales = m.constant(m.array(F32, (columns,), "unit"), F32)
    y = m.like(F32, (m.between(1, 4), block))
    return m.emit("MatMulNBits", [y, weights, scales], domain=MS, K=block, N=columns, bits=4, block_size=block)


@draws(1)
def quantized_lstm(m: Maker) -> object:
    """An LSTM of bytes; weights of up to 64, which ONNX Runtime adds exactly on every machine."""
    t, b, i, h = m.between(1, 4), m.between(1, 3), m.between(1, 9), m.between(1, 9)
    direction = m.pick(("forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    dtype = m.pick((I8, U8))
    shift = 0 if dtype == I8 else 128
    per = (d, 4 * h) if m.chance(0.4) else (d,)
    [x] = m.emit("Mul", [m.like(F32, (t, b, i)), m.constant(0.9, F32)])  # computed: its rounding decides bytes
    codes = [m.constant(m.rng.integers(-64, 64, (d, k, 4 * h)) + shift, dtype) for k in (i, h)]
    scales = [m.constant(m.rng.uniform(0.5, 1, per) / (64 * k**0.5), F32) for k in (i, h)]
    zero = m.constant(np.full(per, shift), dtype)
    lengths = np.asarray(m.rng.integers(1, t, b, endpoint=True)).astype(I32)
    optional = (
        m.new(F32, (d, 8 * h), "unit", 1.0), m.fresh(lengths), m.new(F32, (d, b, h), "unit"),
        m.new(F32, (d, b, h), "unit"), m.new(F32, (d, 3 * h), "unit", 1.0),
    )  # fmt: skip
    rest = [v if m.chance(p) else "" for v, p in zip(optional, (0.6, 0.2, 0.3, 0.3, 0.2), strict=True)]
    outputs = [m.chance(0.7), m.chance(0.6), m.chance(0.5)]
    outputs[0] = outputs[0] or bool(rest[1]) or not any(outputs)  # without it, ended sequences keep their state in it
    operands = [x, *codes, *rest, scales[0], zero, scales[1], zero]
    return m.emit("DynamicQuantizeLSTM", operands, outputs, domain=MS, hidden_size=h, direction=direction)


def _codes(m: Maker, dtype: np.dtype, shape: tuple[int, ...]) -> list[str]:
    """Return a tensor of bytes with its scale and zero point."""
    scale = m.constant(float(m.rng.uniform(0.01, 0.06)), F32)
    return [m.like(dtype, shape), scale, m.constant(m.array(dtype, ()) // 4, dtype)]


@draws(1.5)
def quantized(m: Maker) -> object:
    """Operators on bytes that ONNX Runtime's quantizer writes."""
    dtype = m.pick((U8, I8))
    width = m.pick((4, 8, 16))
    shape = (m.between(1, 2), m.between(1, 4), width)
    kind = m.between(0, 7)
    if kind == 0:
        operands = [
            *_codes(m, dtype, shape),
            *_codes(m, dtype, m.pick((shape, shape[1:], (1,)))),
            *_codes(m, dtype, ())[1:],
        ]
        return m.emit(m.pick(("QLinearAdd", "QLinearMul")), operands, domain=MS)
    if kind == 1:
        operands = [*_codes(m, dtype, shape), *_codes(m, dtype, ())[1:]]
        if m.chance(0.5):
            return m.emit("QLinearSigmoid", operands, domain=MS)
        return m.emit("QLinearLeakyRelu", operands, domain=MS, alpha=m.pick((0.01, 0.2)))
    if kind == 2:
        image = (m.between(1, 2), m.between(1, 5), m.between(3, 8), m.between(3, 8))
        operands = [*_codes(m, dtype, image), *_codes(m, dtype, ())[1:]]
        if m.chance(0.5):
            return m.emit("QLinearGlobalAveragePool", operands, domain=MS, channels_last=0)
        inside = m.between(0, 1)
        return m.emit(
            "QLinearAveragePool", operands, domain=MS, kernel_shape=[2, 3], strides=[m.between(1, 2)] * 2,
            pads=[m.between(0, 1)] * 4, count_include_pad=inside,
        )  # fmt: skip
    if kind == 3:
        parts = [_codes(m, dtype, (2, m.between(1, 4), 3)) for _ in range(m.between(2, 3))]
        operands = [*_codes(m, dtype, ())[1:], *(v for part in parts for v in part)]
        return m.emit("QLinearConcat", operands, domain=MS, axis=1)
    if kind == 4:
        rows, inner, columns = m.between(1, 5), m.pick((3, 8, 33)), m.between(1, 9)
        operands = [
            *_codes(m, dtype, (rows, inner)),
            *_codes(m, I8 if dtype == I8 else m.pick((U8, I8)), (inner, columns)),
        ]
        operands.append(m.constant(m.array(I32, (columns,)), I32) if m.chance(0.5) else "")
        return m.emit("QGemm", [*operands, *_codes(m, dtype, ())[1:]], domain=MS)
    if kind == 5:
        a, b = _codes(m, dtype, shape), _codes(m, dtype, (width, m.between(1, 9)))
        operands = [a[0], b[0], a[1], b[1], a[2], b[2]]
        if m.chance(0.5):
            operands.append(m.new(F32, m.dims(b[0])[1:]))
        return m.emit("MatMulIntegerToFloat", operands, domain=MS)
    if kind == 6:
        whole = m.constant(np.float32(1 / m.pick((16, 25, 100, 256))), F32)  # ONNX Runtime rounds its reciprocal down
        operands = [*_codes(m, dtype, shape), whole, _codes(m, dtype, ())[2]]
        return m.emit("QLinearSoftmax", operands, domain=MS, axis=-1, opset=13)
    [condition] = m.emit("Less", [m.like(F32, shape), m.constant(0.0, F32)])
    operands = [condition, *_codes(m, dtype, shape), *_codes(m, dtype, shape), *_codes(m, dtype, ())[1:]]
    return m.emit("QLinearWhere", operands, domain=MS)


@draws(1)
def fused(m: Maker) -> object:
    """Operators of floats that fusions and older exporters write."""
    kind = m.between(0, 7)
    if kind == 0:
        x = m.like(F32, (m.between(1, 2), m.pick((1, 3, 8)), m.between(3, 9), m.between(3, 9)))
        w = m.new(F32, (m.pick((1, 4, 9)), m.dims(x)[1], m.between(1, 3), m.between(1, 3)), fixed=0.8)
        bias = [m.new(F32, m.dims(w)[:1], fixed=0.8)] if m.chance(0.6) else []
        act, numbers = m.pick(
            (("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.2]), ("Clip", [-1.0, 1.0]))
        )
        return m.emit("FusedConv", [x, w, *bias], domain=MS, activation=act, activation_params=numbers)
    if kind == 1:
        rows, inner, columns, across = m.between(1, 5), m.pick((3, 8)), m.between(1, 9), m.between(0, 1)
        b = m.new(F32, (columns, inner) if across else (inner, columns), fixed=0.8)
        operands = [m.like(F32, (rows, inner)), b, m.new(F32, (columns,), fixed=0.8)]
        return m.emit("FusedGemm", operands, domain=MS, transB=across, activation=m.pick(("Relu", "Tanh", "Sigmoid")))
    if kind == 2:
        return m.emit("CDist", [m.like(F32, (m.between(1, 5), 3)), m.like(F32, (m.between(1, 5), 3))], domain=MS)
    if kind == 3:
        x = m.some((F32, F64, I64), 2, 4)
        return m.emit("Trilu", [x], domain=MS, upper=m.between(0, 1))
    if kind == 4:
        x = m.some((F32, I64), 1, 3)
        return m.emit("ExpandDims", [x, m.constant(m.between(0, len(m.dims(x))), I32)], domain=MS)
    if kind == 5:
        heads, head, length, batch = m.pick((1, 2)), m.pick((4, 8)), m.between(1, 5), m.between(1, 2)
        x = m.like(F32, (batch, length, heads * head))
        caches = [m.new(F32, (9, head // 2), fixed=0.8) for _ in range(2)]
        places = m.fresh(m.rng.integers(0, 9, (batch, length)))
        return m.emit("RotaryEmbedding", [x, places, *caches], domain=MS, interleaved=m.between(0, 1))
    if kind == 6:
        words, places, width = m.between(2, 9), m.between(4, 7), m.pick((4, 8))
        ids = m.fresh(np.asarray(m.rng.integers(0, words, (m.between(1, 2), m.between(1, 4)))).astype(I32))
        tables = [m.new(F32, (n, width), fixed=0.8) for n in (words, places)]
        row = [m.new(F32, (width,), fixed=0.8) for _ in range(2)]
        return m.emit("EmbedLayerNormalization", [ids, "", *tables, "", *row], [True, False], domain=MS)
    width = m.pick((4, 8))
    x, w = m.like(F32, (m.between(1, 2), m.between(1, 4), width)), m.new(I8, (width, 3 * width), fixed=1.0)
    codes, scale, zero = _codes(m, U8, m.dims(x))
    operands = [
        codes,
        w,
        m.new(F32, (3 * width,), fixed=1.0),
        scale,
        m.constant(0.01, F32),
        "",
        zero,
        m.constant(0, I8),
    ]
    return m.emit("QAttention", operands, domain=MS, num_heads=2)
