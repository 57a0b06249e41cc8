"""What each elementwise ONNX operator is as a pointwise program.

`EXPANSIONS` maps an operator's name to the function that adds its instructions to a builder. The primitives that may be
used are the keys of the tables in `pointwise_c`; activations are written by their definitions over these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..engine.graph import DType, Node, TensorType
from .pointwise_program import Builder, Unsupported, uniform

LIBRARY_DOMAINS = ("", "com.microsoft", "rewrite")
"""The domains whose operators of these names mean what is written here."""

Expansion = Callable[[Builder, Node], int]
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # the defaults of the ONNX schema


def _attr(node: Node, name: str, default: Any) -> Any:
    return node.attrs.get(name, default)


def _args(b: Builder, node: Node) -> list[int]:
    return [b.read(value) for value in node.inputs if value]


def _plain(op: str, *, floats_only: bool = False) -> Expansion:
    """A primitive of the same arity whose result has the type of its first operand."""

    def expand(b: Builder, node: Node) -> int:
        args = _args(b, node)
        if floats_only and not b.dtype(args[0]).is_float:
            raise Unsupported(node.op)
        return b.op(op, *args)

    return expand


def _compare(op: str) -> Expansion:
    return lambda b, node: b.op(op, *_args(b, node), dtype=DType.BOOL)


def _fold(op: str) -> Expansion:
    """A variadic operator as a chain of a binary one."""

    def expand(b: Builder, node: Node) -> int:
        args = _args(b, node)
        total = args[0]
        for arg in args[1:]:
            total = b.op(op, total, arg)
        return total

    return expand


def _mean(b: Builder, node: Node) -> int:
    total = _fold("Add")(b, node)
    return b.op("Mul", total, b.like(1.0 / len(node.inputs), total))


def _unary(definition: Callable[[Builder, int, Node], int]) -> Expansion:
    """A float operator of one operand by its definition."""

    def expand(b: Builder, node: Node) -> int:
        x = b.read(node.inputs[0])
        if not b.dtype(x).is_float:
            raise Unsupported(node.op)
        return definition(b, x, node)

    return expand


def _select(b: Builder, condition: int, yes: int, no: int) -> int:
    return b.op("Select", condition, yes, no, dtype=b.dtype(yes))


def _below_zero(b: Builder, x: int) -> int:
    return b.op("Less", x, b.like(0, x), dtype=DType.BOOL)


def _relu(b: Builder, node: Node) -> int:
    x = b.read(node.inputs[0])
    return b.op("AtLeast", x, b.like(0, x))


def _leaky_relu(b: Builder, x: int, node: Node) -> int:
    return _select(b, _below_zero(b, x), b.op("Mul", x, b.like(_attr(node, "alpha", 0.01), x)), x)


def _prelu(b: Builder, node: Node) -> int:
    x, slope = _args(b, node)
    return _select(b, _below_zero(b, x), b.op("Mul", x, slope), x)


def _exp_minus_one(b: Builder, x: int) -> int:
    return b.op("Sub", b.op("Exp", x), b.like(1, x))


def _elu(b: Builder, x: int, node: Node) -> int:
    low = b.op("Mul", _exp_minus_one(b, x), b.like(_attr(node, "alpha", 1.0), x))
    return _select(b, _below_zero(b, x), low, x)


def _selu(b: Builder, x: int, node: Node) -> int:
    alpha, gamma = _attr(node, "alpha", SELU_ALPHA), _attr(node, "gamma", SELU_GAMMA)
    low = b.op("Mul", _exp_minus_one(b, x), b.like(alpha * gamma, x))
    return _select(b, b.op("LessOrEqual", x, b.like(0, x), dtype=DType.BOOL), low, b.op("Mul", x, b.like(gamma, x)))


def _celu(b: Builder, x: int, node: Node) -> int:
    alpha = _attr(node, "alpha", 1.0)
    low = b.op("Mul", _exp_minus_one(b, b.op("Div", x, b.like(alpha, x))), b.like(alpha, x))
    return _select(b, _below_zero(b, x), low, x)


def _hard_sigmoid(b: Builder, x: int, alpha: float, beta: float) -> int:
    line = b.op("Add", b.op("Mul", x, b.like(alpha, x)), b.like(beta, x))
    return b.op("AtMost", b.op("AtLeast", line, b.like(0, x)), b.like(1, x))


def _softplus(b: Builder, x: int, node: Node) -> int:
    """max(x, 0) + log1p(exp(-|x|)): equal to log(exp(x) + 1), without overflow."""
    return b.op("Add", b.op("AtLeast", x, b.like(0, x)), b.op("Log1p", b.op("Exp", b.op("Neg", b.op("Abs", x)))))


def _softsign(b: Builder, x: int, node: Node) -> int:
    return b.op("Div", x, b.op("Add", b.op("Abs", x), b.like(1, x)))


def _mish(b: Builder, x: int, node: Node) -> int:
    """By x * tanh(softplus(x)) = x * n / (n + 2) where n = e * (e + 2), e = exp(x); above 20 the factor is 1."""
    e = b.op("Exp", b.op("AtMost", x, b.like(20, x)))
    n = b.op("Mul", e, b.op("Add", e, b.like(2, x)))
    return b.op("Mul", x, b.op("Div", n, b.op("Add", n, b.like(2, x))))


def _gelu_erf(b: Builder, x: int) -> int:
    """By the primitive: x / 2 * (1 + erf(x / sqrt(2)))."""
    return b.op("Gelu", x)


def _gelu_tanh(b: Builder, x: int) -> int:
    """By x / 2 * (1 + tanh(u)) = x * sigmoid(2 u), u = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    scale = 2 * math.sqrt(2 / math.pi)
    cube = b.op("Add", b.op("Mul", b.op("Mul", x, x), b.like(0.044715 * scale, x)), b.like(scale, x))
    return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, cube)))


def _gelu(b: Builder, x: int, node: Node) -> int:
    return _gelu_tanh(b, x) if _attr(node, "approximate", "none") == "tanh" else _gelu_erf(b, x)


def _biased(definition: Callable[[Builder, int], int]) -> Expansion:
    """An activation of the sum of the operands (the second, a bias, may be absent)."""
    return lambda b, node: definition(b, _fold("Add")(b, node))


def _swish(b: Builder, x: int, node: Node) -> int:
    alpha = _attr(node, "alpha", 1.702 if node.op.endswith("QuickGelu") else 1.0)
    inner = x if alpha == 1.0 else b.op("Mul", x, b.like(alpha, x))
    return b.op("Mul", x, b.op("Sigmoid", inner))


def _thresholded_relu(b: Builder, x: int, node: Node) -> int:
    alpha = b.like(_attr(node, "alpha", 1.0), x)
    return _select(b, b.op("Greater", x, alpha, dtype=DType.BOOL), x, b.like(0, x))


def _shrink(b: Builder, x: int, node: Node) -> int:
    lambd, bias = _attr(node, "lambd", 0.5), _attr(node, "bias", 0.0)
    low = b.op("Less", x, b.like(-lambd, x), dtype=DType.BOOL)
    high = b.op("Greater", x, b.like(lambd, x), dtype=DType.BOOL)
    zero = b.like(0, x)
    up, down = b.op("Add", x, b.like(bias, x)), b.op("Sub", x, b.like(bias, x))
    return _select(b, low, up, _select(b, high, down, zero))


def _clip(b: Builder, node: Node) -> int:
    x = b.read(node.inputs[0])
    bounds = [*node.inputs[1:], "", ""][:2]
    for bound, op in zip(bounds, ("AtLeast", "AtMost"), strict=True):
        if bound:
            x = b.op(op, x, b.read(bound))
    return x


def _where(b: Builder, node: Node) -> int:
    return _select(b, *_args(b, node))


def _cast(b: Builder, node: Node) -> int:
    target = b.ctx.type(node.outputs[0]).dtype
    x = b.read(node.inputs[0])
    return x if b.dtype(x) is target else b.op("Cast", x, dtype=target)


def _identity(b: Builder, node: Node) -> int:
    return b.read(node.inputs[0])


def _dropout(b: Builder, node: Node) -> int:
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if training and ((constant := b.ctx.constant(training)) is None or bool(constant.array)):
        raise Unsupported(node.op)
    return b.read(node.inputs[0])


def _is_inf(b: Builder, node: Node) -> int:
    x = b.read(node.inputs[0])
    hits = []
    for name, infinity in (("detect_positive", math.inf), ("detect_negative", -math.inf)):
        if _attr(node, name, 1):
            hits.append(b.op("Equal", x, b.like(infinity, x), dtype=DType.BOOL))
    if not hits:
        return b.const(False, DType.BOOL)
    return hits[0] if len(hits) == 1 else b.op("Or", *hits)


def _mod(b: Builder, node: Node) -> int:
    x, y = _args(b, node)
    if b.dtype(x).is_float and not _attr(node, "fmod", 0):
        raise Unsupported(node.op)
    return b.op("Fmod" if _attr(node, "fmod", 0) else "Mod", x, y)


def _pow(b: Builder, node: Node) -> int:
    """Small whole exponents become products."""
    x, y = _args(b, node)
    exponent = b.handles[y]
    value = exponent.attr("value") if getattr(exponent, "op", "") == "Const" else None  # type: ignore[union-attr]
    if value in (1, 2, 3):
        square = b.op("Mul", x, x)
        return {1: x, 2: square}[value] if value < 3 else b.op("Mul", square, x)
    if value == 0.5 and b.dtype(x).is_float:
        root = b.op("Abs", b.op("Sqrt", x))  # pow(-0, 1/2) is +0
        low = b.op("Equal", x, b.like(-math.inf, x), dtype=DType.BOOL)
        return _select(b, low, b.like(math.inf, x), root)
    if value == -1 and b.dtype(x).is_float:
        return b.op("Reciprocal", x)
    return b.op("Pow", x, y)


def _bit_shift(b: Builder, node: Node) -> int:
    return b.op("ShiftLeft" if _attr(node, "direction", "") == "LEFT" else "ShiftRight", *_args(b, node))


def _batch_normalization(b: Builder, node: Node) -> int:
    """(x - mean) * scale / sqrt(var + epsilon) + bias, the last four one per channel (axis 1)."""
    if _attr(node, "training_mode", 0):
        raise Unsupported(node.op)
    rank = b.ctx.type(node.inputs[0]).rank
    x = b.read(node.inputs[0])
    if rank is None or rank < 2 or not b.dtype(x).is_float:
        raise Unsupported(node.op)
    scale, bias, mean, var = (_per_channel(b, value, rank) for value in node.inputs[1:5])
    if len({b.dtype(h) for h in (x, scale, bias, mean, var)}) > 1:
        raise Unsupported(node.op)
    deviation = b.op("Sqrt", b.op("Add", var, b.like(_attr(node, "epsilon", 1e-5), var)))
    return b.op("Add", b.op("Mul", b.op("Sub", x, mean), b.op("Div", scale, deviation)), bias)


def _per_channel(b: Builder, value: str, rank: int) -> int:
    handle = b.read(value)
    type_ = b.ctx.type(value)
    if getattr(b.handles[handle], "op", "") == "Const":
        return handle
    if type_.shape is None or len(type_.shape) != 1:
        raise Unsupported(value)
    return b.operand(value, TensorType(type_.dtype, (*type_.shape, *(1,) * (rank - 2))))


def _along(b: Builder, value: str, shape: tuple[Any, ...], axis: int) -> int:
    """A scale or zero point: one number, or one for each index of an axis."""
    handle = b.read(value)
    kind = b.ctx.type(value)
    if getattr(b.handles[handle], "op", "") == "Const" or kind.shape in ((), (1,)):
        return handle
    axis += len(shape) if axis < 0 else 0
    if kind.shape is None or len(kind.shape) != 1 or not 0 <= axis < len(shape):
        raise Unsupported(value)
    return b.operand(value, TensorType(kind.dtype, (*kind.shape, *(1,) * (len(shape) - axis - 1))))


def _scale_and_zero(b: Builder, node: Node) -> tuple[int, int | None]:
    """The scale of a linear quantisation, and its zero point as f32 (None for 0)."""
    shape = b.ctx.type(node.inputs[0]).shape
    if shape is None or _attr(node, "block_size", 0):
        raise Unsupported(node.op)
    axis = int(_attr(node, "axis", 1))
    scale = _along(b, node.inputs[1], shape, axis)
    if b.dtype(scale) is not DType.F32:
        raise Unsupported(node.op)
    if len(node.inputs) < 3 or not node.inputs[2]:
        return scale, None
    constant = b.ctx.constant(node.inputs[2])
    if constant is not None and not constant.array.any():
        return scale, None
    if constant is not None and (common := uniform(constant)) is not None:
        return scale, b.const(float(common), DType.F32)
    return scale, b.op("Cast", _along(b, node.inputs[2], shape, axis), dtype=DType.F32)


def _quantize(b: Builder, node: Node) -> int:
    """saturate(round(x / scale) + zero), rounded half to even; f32 holds all numbers on the way exactly that matter."""
    target = b.ctx.type(node.outputs[0]).dtype
    x = b.read(node.inputs[0])
    if target not in (DType.U8, DType.I8) or b.dtype(x) is not DType.F32:
        raise Unsupported(node.op)
    scale, zero = _scale_and_zero(b, node)
    y = b.op("Round", b.op("Div", x, scale))
    if zero is not None:
        y = b.op("Add", y, zero)
    low, high = (0, 255) if target is DType.U8 else (-128, 127)
    return b.op("Narrow", b.op("AtMost", b.op("AtLeast", y, b.like(low, y)), b.like(high, y)), dtype=target)


def _dequantize(b: Builder, node: Node) -> int:
    """(x - zero) * scale; exact in f32 for bytes."""
    x = b.read(node.inputs[0])
    if b.dtype(x) not in (DType.U8, DType.I8, DType.I32) or b.ctx.type(node.outputs[0]).dtype is not DType.F32:
        raise Unsupported(node.op)
    scale, zero = _scale_and_zero(b, node)
    if zero is not None and b.dtype(x) is DType.I32:
        raise Unsupported(node.op)
    y = b.op("Cast", x, dtype=DType.F32)
    return b.op("Mul", y if zero is None else b.op("Sub", y, zero), scale)


_FLOAT_FUNCTIONS = ("Sqrt", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Floor", "Ceil", "Round", "Reciprocal")
_CURVES = ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")
_PLAIN = ("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign", "And", "Or", "Xor", "Not")
_BITWISE = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
_COMPARE = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN")

EXPANSIONS: dict[str, Expansion] = {
    **{op: _plain(op, floats_only=True) for op in (*_FLOAT_FUNCTIONS, *_CURVES)},
    **{op: _plain(op) for op in (*_PLAIN, *_BITWISE)},
    **{op: _compare(op) for op in _COMPARE},
    "IsInf": _is_inf,
    "Sum": _fold("Add"),
    "Max": _fold("Max"),
    "Min": _fold("Min"),
    "Mean": _mean,
    "Pow": _pow,
    "Mod": _mod,
    "BitShift": _bit_shift,
    "Relu": _relu,
    "LeakyRelu": _unary(_leaky_relu),
    "PRelu": _prelu,
    "Elu": _unary(_elu),
    "Selu": _unary(_selu),
    "Celu": _unary(_celu),
    "HardSigmoid": _unary(lambda b, x, node: _hard_sigmoid(b, x, _attr(node, "alpha", 0.2), _attr(node, "beta", 0.5))),
    "HardSwish": _unary(lambda b, x, node: b.op("Mul", x, _hard_sigmoid(b, x, 1 / 6, 0.5))),
    "Softplus": _unary(_softplus),
    "Softsign": _unary(_softsign),
    "Mish": _unary(_mish),
    "Gelu": _unary(_gelu),
    "FastGelu": _biased(_gelu_tanh),
    "BiasGelu": _biased(_gelu_erf),
    "Swish": _unary(_swish),
    "Silu": _unary(_swish),
    "QuickGelu": _unary(_swish),
    "ThresholdedRelu": _unary(_thresholded_relu),
    "Shrink": _unary(_shrink),
    "Clip": _clip,
    "Where": _where,
    "Cast": _cast,
    "CastLike": _cast,
    "Identity": _identity,
    "Dropout": _dropout,
    "BatchNormalization": _batch_normalization,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
"""Every operator that can be part of a pointwise program."""
