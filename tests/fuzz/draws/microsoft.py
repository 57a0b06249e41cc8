"""Operators that ONNX Runtime's optimizer writes."""

from __future__ import annotations

from ..maker import (
    F32,
    I8,
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
