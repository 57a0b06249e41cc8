"""Reductions, normalizations along axes, and running sums."""

from __future__ import annotations

import math

import numpy as np

from ..eager import Invalid
from ..maker import (
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    U8,
    Maker,
)
from .registry import draws

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip


@draws(5)
def reduce(m: Maker) -> object:
    op = m.pick(REDUCTIONS)
    integers = op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1")
    kinds = INTEGERS if integers and m.chance(0.3) else FLOATS
    domain = "positive" if op == "ReduceLogSum" else "small" if op == "ReduceProd" or kinds is INTEGERS else ""
    x = m.some(kinds, 0, 4, domain)
    axes = m.axes(x)
    keep = m.between(0, 1)
    if op == "ReduceMean" and not all(m.dims(x)):
        raise Invalid("the mean of nothing is undefined")
    if m.opset >= 18 or (m.opset >= 13 and op == "ReduceSum"):
        operands = [x] if m.chance(0.2) else [x, m.constant(axes)]
        return m.emit(op, operands, keepdims=keep, noop_with_empty_axes=m.between(0, 1) if m.chance(0.2) else None)
    return m.emit(op, [x], keepdims=keep, axes=axes or None)


@draws(2)
def arg_reduce(m: Maker) -> object:
    x = m.some(NUMBERS, 1, 4)
    op = m.pick(("ArgMax", "ArgMin"))
    return m.emit(op, [x], axis=m.axis(x), keepdims=m.between(0, 1), select_last_index=m.between(0, 1))


@draws(1.5)
def cumulative(m: Maker) -> object:
    op = m.pick(("CumSum", "CumSum", "CumProd"))
    x = m.some((*FLOATS, I64, I32), 1, 4)
    axis = m.fresh(np.asarray(m.axis(x), m.pick((I64, I32))), 0.8)
    return m.emit(op, [x, axis], exclusive=m.between(0, 1), reverse=m.between(0, 1))


@draws(1.5)
def top_k(m: Maker) -> object:
    x = m.some((*FLOATS, I64, I32, U8), 1, 3)
    axis = m.axis(x)
    k = m.between(0 if m.chance(0.1) else 1, max(m.dims(x)[axis], 1))
    count = m.fresh(np.array([k], I64), 0.8)
    return m.emit("TopK", [x, count], 2, axis=axis, largest=m.between(0, 1), sorted=1)


@draws(3)
def softmax(m: Maker) -> object:
    x = m.some(FLOATS, 1, 4)
    op = m.pick(("Softmax", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization"))
    if op == "LpNormalization":
        return m.emit(op, [x], axis=m.axis(x), p=m.between(1, 2))
    return m.emit(op, [x], axis=m.axis(x))


@draws(3)
def normalize(m: Maker) -> object:
    op = m.pick((
        "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization",
        "LRN", "MeanVarianceNormalization",
    ))  # fmt: skip
    if op in ("LayerNormalization", "RMSNormalization"):
        x = m.some(FLOATS, 1, 4)
        axis = m.axis(x)
        dims = m.dims(x)[axis:]
        weights = [m.like(m.dtype(x), dims, fixed=0.7) for _ in range(2 if op[0] == "L" and m.chance(0.6) else 1)]
        return m.emit(op, [x, *weights], axis=axis, epsilon=m.pick((1e-5, 1e-3)))
    x = m.some(FLOATS, *((4, 4) if op in ("LRN", "MeanVarianceNormalization") else (3, 4) if op[0] == "I" else (2, 4)))
    if op == "LRN":
        return m.emit(op, [x], size=m.pick((1, 3, 5)), alpha=0.01, beta=0.7, bias=1.5)
    if op == "MeanVarianceNormalization":
        x = m.new(m.pick((F32, F64)), (2, 3, 4, 5), "plain")  # else the difference of squares is only rounding
        return m.emit(op, [x], axes=sorted({a % 4 for a in m.axes(x)}) or None)
    if op == "InstanceNormalization" and math.prod(m.dims(x)[2:]) == 1:
        raise Invalid("ONNX Runtime divides the rounding error of the mean of one number by the root of epsilon")
    channels = m.dims(x)[1]
    groups = m.pick([g for g in (1, 2, 4, channels) if g and channels % g == 0]) if op == "GroupNormalization" else 1
    scaled = groups if op == "GroupNormalization" and m.opset < 21 else channels
    pair = [m.like(m.dtype(x), (scaled,), fixed=0.8) for _ in range(2)]
    if op == "BatchNormalization":
        rest = [m.new(m.dtype(x), (channels,), fixed=0.8), m.new(m.dtype(x), (channels,), "positive", 0.8)]
        return m.emit(op, [x, *pair, *rest])
    if op == "GroupNormalization":
        return m.emit(op, [x, *pair], num_groups=groups)
    return m.emit(op, [x, *pair])
