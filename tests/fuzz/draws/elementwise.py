"""Elementwise operators: functions of numbers, comparisons, choices, casts."""

from __future__ import annotations

import numpy as np
from onnx import helper

from ..maker import (
    ANY,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    SIGNED,
    U8,
    U16,
    U32,
    U64,
    UNSIGNED,
    Maker,
    is_float,
)
from .registry import draws

PLAIN = (
    "Abs", "Neg", "Relu", "Sign", "Identity", "Ceil", "Floor", "Round", "Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid",
    "Tanh", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh",
    "Acosh", "Atanh", "Mish", "HardSwish", "IsNaN", "IsInf",
)  # fmt: skip


@draws(6)
def unary(m: Maker) -> object:
    return m.emit(m.pick(PLAIN), [m.some(FLOATS)])


@draws(3)
def unary_with_attributes(m: Maker) -> object:
    op, attributes = m.pick((
        ("Celu", {"alpha": 1.5}), ("Elu", {"alpha": 0.7}), ("Gelu", {"approximate": m.pick(("none", "tanh"))}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("LeakyRelu", {"alpha": m.pick((0.1, -0.5, 2.0))}),
        ("Selu", {}), ("Selu", {"alpha": 2.0, "gamma": 3.0}), ("Shrink", {"lambd": 0.6, "bias": 0.2}),
        ("Swish", {"alpha": m.pick((1.0, 1.7))}), ("ThresholdedRelu", {"alpha": 0.3}),
        ("IsInf", {"detect_negative": m.between(0, 1), "detect_positive": m.between(0, 1)}),
    ))  # fmt: skip
    return m.emit(op, [m.some(FLOATS)], **attributes)


@draws(1.5)
def unary_on_integers(m: Maker) -> object:
    if m.chance(0.2):
        return m.emit("Not", [m.some((BOOL,))])
    op = m.pick(("Abs", "Neg", "Sign", "Relu", "Identity", "BitwiseNot", "Clip"))
    x = m.some(SIGNED if op in ("Neg", "Relu", "Abs") else INTEGERS)
    if op == "Clip":
        low, high = sorted((m.between(0, 100), m.between(0, 100)))
        return m.emit(op, [x, m.constant(low, m.dtype(x)), m.constant(high, m.dtype(x))])
    return m.emit(op, [x])


@draws(7)
def binary(m: Maker) -> object:
    op = m.pick(("Add", "Sub", "Mul", "Div", "Add", "Mul", "Max", "Min", "Pow", "PRelu"))
    x = m.some(FLOATS if op in ("Pow", "PRelu") or m.chance(0.7) else INTEGERS)
    if op == "Div":
        return m.emit(op, [x, m.against(x, "nonzero")])
    if op == "Pow":
        y = m.constant(m.pick((0.5, 2, 3, -1, 1, 0)), m.dtype(x)) if m.chance(0.5) else m.against(x, "unit")
        return m.emit(op, [x, y])
    pair = [x, m.against(x)]
    return m.emit(op, pair if op == "PRelu" or m.chance(0.7) else pair[::-1])


@draws(0.7)
def pow_of_mixed_types(m: Maker) -> object:
    if m.chance(0.5):
        x = m.some((F32, F64, F16))
        return m.emit("Pow", [x, m.new(m.pick((I32, I64)), m.dims(x), "small")])
    x = m.new(m.pick((I32, I64)), m.shape(), "small")
    return m.emit("Pow", [x, m.new(m.pick((I32, I64, F32)), m.dims(x), "small")])


@draws(2)
def compare(m: Maker) -> object:
    op = m.pick(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
    x = m.some(NUMBERS)
    return m.emit(op, [x, m.against(x)])


@draws(1.5)
def logical(m: Maker) -> object:
    x = m.some((BOOL,))
    return m.emit(m.pick(("And", "Or", "Xor", "Equal")), [x, m.against(x)])


@draws(1.5)
def bits(m: Maker) -> object:
    if m.chance(0.3):
        x = m.some(UNSIGNED)
        y = m.fresh(np.asarray(m.rng.integers(0, m.dtype(x).itemsize * 8, m.dims(x))).astype(m.dtype(x)))
        return m.emit("BitShift", [x, y], direction=m.pick(("LEFT", "RIGHT")))
    x = m.some(INTEGERS)
    return m.emit(m.pick(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), [x, m.against(x)])


@draws(1)
def mod(m: Maker) -> object:
    x = m.some(NUMBERS)
    fmod = 1 if is_float(m.dtype(x)) else m.between(0, 1)
    return m.emit("Mod", [x, m.against(x, "nonzero")], fmod=fmod)


@draws(1.5)
def variadic(m: Maker) -> object:
    op = m.pick(("Max", "Min", "Sum", "Mean"))
    x = m.some(NUMBERS if op in ("Max", "Min") else FLOATS)
    return m.emit(op, [x, *(m.against(x) for _ in range(m.between(0, 3)))])


@draws(2)
def where(m: Maker) -> object:
    x = m.some(ANY)
    return m.emit("Where", [m.like(BOOL, m.dims(x) if m.chance(0.7) else m.dims(x)[-1:]), x, m.against(x)])


@draws(1.5)
def clip(m: Maker) -> object:
    x = m.some(FLOATS)
    low = m.fresh(np.asarray(-0.5).astype(m.dtype(x)), 0.7) if m.chance(0.7) else ""
    high = m.fresh(np.asarray(m.pick((0.7, 0.1, -1.0))).astype(m.dtype(x)), 0.7) if m.chance(0.7) else ""
    return m.emit("Clip", [x, low, high])


@draws(4)
def cast(m: Maker) -> object:
    x = m.some(ANY)
    to = m.pick(ANY)
    value = m.values[x].astype(np.float64)
    if not is_float(to) and to != BOOL and value.size:
        if not np.isfinite(value).all() or (
            is_float(m.dtype(x)) and not 0 <= np.floor(value).min() <= value.max() < 127
        ):
            x = m.new(m.dtype(x), m.dims(x), "positive")
    kind = helper.np_dtype_to_tensor_dtype(to)
    if m.chance(0.2):
        return m.emit("CastLike", [x, m.new(to, (1,))])
    return m.emit("Cast", [x], to=kind)


@draws(0.4)
def bit_cast(m: Maker) -> object:
    x = m.some((F32, I32, U32, F64, I64, F16, U16, U8, I8))
    if is_float(m.dtype(x)):  # a computed one may be rounded otherwise, which makes other integers
        x = m.new(m.dtype(x), m.dims(x))
        if m.chance(0.5):
            [x] = m.emit(m.pick(("Abs", "Neg", "Relu")), [x])
    to = {4: (F32, I32, U32), 8: (F64, I64, U64), 2: (F16, U16), 1: (U8, I8)}[m.dtype(x).itemsize]
    return m.emit("BitCast", [x], to=helper.np_dtype_to_tensor_dtype(m.pick(to)))
