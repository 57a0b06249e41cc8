"""Elementwise ONNX operators as pointwise programs.

`EXPANSIONS` maps an operator to the function that appends its instructions to a builder. The primitives are the keys of
the tables in `pointwise_emit`; activations are expanded into these by their definitions. `from_nodes` translates a run
of nodes: equal instructions are shared, and constants with one value for all elements become immediates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from ...engine.ir.graph import DType, Node, TensorType
from ...engine.ir.symbolic import Dim
from .pointwise_emit import CURVES
from .pointwise_program import NATIVE, Builder, Context, Pointwise, Unsupported, uniform
from .template_params import float_attr, int_attr

LIBRARY_DOMAINS = ("", "com.microsoft", "rewrite")
"""Domains whose operators of these names have the meanings below."""

Expansion = Callable[["Value", Node], "Value"]
"""Appends what a node does to its first operand, and returns the result."""
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # the defaults of the ONNX schema


def from_nodes(nodes: Iterable[Node], inputs: Sequence[str], outputs: Sequence[str], ctx: Context) -> Pointwise | None:
    """Translate nodes in topological order to the program that computes `outputs`.

    Operands are those of `inputs` that are read, in that order, then every other value read from outside. None if a
    node is not pointwise or has an element type outside `NATIVE`."""
    builder = Builder(ctx, listed=list(inputs))
    try:
        for node in nodes:
            _translate(builder, node)
        results = [builder.read(value) for value in outputs]
    except Unsupported:
        return None
    return builder.finish(results, tuple(outputs))


def _translate(b: Builder, node: Node) -> None:
    """Append a node's instructions and record the handles of its outputs."""
    name = node.op.rpartition(".")[2]
    if node.domain not in LIBRARY_DOMAINS or name not in EXPANSIONS or (any(node.outputs[1:]) and name != "Dropout"):
        raise Unsupported(node.op)
    dtype = b.ctx.type(node.outputs[0]).dtype
    if dtype not in NATIVE:
        raise Unsupported(node.op)
    x = Value(b, b.read(node.inputs[0]))
    if name in FLOAT_EXPANSIONS and not x.dtype.is_float:
        raise Unsupported(node.op)
    value = EXPANSIONS[name](x, node)
    if value.dtype is not dtype:
        raise Unsupported(node.op)
    b.known[node.outputs[0]] = value.handle
    for mask in node.outputs[1:]:  # of a Dropout that drops nothing
        b.known[mask] = b.const(True, DType.BOOL)


def _operator(op: str, dtype: DType | None = None) -> Callable[[Value, Value | float], Value]:
    return lambda x, other: x.op(op, other, dtype=dtype)


@dataclass(frozen=True)
class Value:
    """Value of a program under construction, with Python's operators; numbers become immediates of its type."""

    b: Builder
    handle: int

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.b.dtype(self.handle)

    def like(self, number: float) -> Value:
        """Return an immediate of the same element type."""
        return Value(self.b, self.b.like(number, self.handle))

    def op(self, op: str, *others: Value | float, dtype: DType | None = None) -> Value:
        """Return a primitive applied to this value and others."""
        handles = [o.handle if isinstance(o, Value) else self.like(o).handle for o in others]
        return Value(self.b, self.b.op(op, self.handle, *handles, dtype=dtype))

    def select(self, yes: Value, no: Value) -> Value:
        """Return `yes` where this truth value is true, else `no`."""
        return self.op("Select", yes, no, dtype=yes.dtype)

    __add__, __sub__, __mul__, __truediv__ = map(_operator, ("Add", "Sub", "Mul", "Div"))
    __lt__ = _operator("Less", DType.BOOL)
    __le__ = _operator("LessOrEqual", DType.BOOL)
    __gt__ = _operator("Greater", DType.BOOL)
    equals = _operator("Equal", DType.BOOL)  # `==` compares the descriptions

    def clamp(self, low: Value | float, high: Value | float) -> Value:
        """Return the value, at least `low` and then at most `high`."""
        return self.op("AtLeast", low).op("AtMost", high)


def _args(x: Value, node: Node) -> list[Value]:
    return [Value(x.b, x.b.read(value)) for value in node.inputs if value]


def _plain(op: str, dtype: DType | None = None) -> Expansion:
    """Primitive of the same arity; the result has the type of the first operand unless another is given."""
    return lambda x, node: x.op(op, *_args(x, node)[1:], dtype=dtype)


def _fold(op: str) -> Expansion:
    """Variadic operator as a chain of a binary primitive."""
    return lambda x, node: reduce(lambda total, arg: total.op(op, arg), _args(x, node))


_sum = _fold("Add")


def _prelu(x: Value, node: Node) -> Value:
    return (x < 0).select(x * _args(x, node)[1], x)


def _elu(x: Value, node: Node) -> Value:
    low = (x.op("Exp") - 1) * float_attr(node, "alpha", 1.0)
    return (x < 0).select(low, x)


def _selu(x: Value, node: Node) -> Value:
    alpha, gamma = float_attr(node, "alpha", SELU_ALPHA), float_attr(node, "gamma", SELU_GAMMA)
    low = (x.op("Exp") - 1) * (alpha * gamma)
    return (x <= 0).select(low, x * gamma)


def _celu(x: Value, node: Node) -> Value:
    alpha = float_attr(node, "alpha", 1.0)
    low = ((x / alpha).op("Exp") - 1) * alpha
    return (x < 0).select(low, x)


def _softplus(x: Value, node: Node) -> Value:
    """max(x, 0) + log1p(exp(-|x|)): equal to log(exp(x) + 1), without overflow."""
    return x.op("AtLeast", 0) + x.op("Abs").op("Neg").op("Exp").op("Log1p")


def _mish(x: Value, node: Node) -> Value:
    """X * tanh(softplus(x)) = x * n / (n + 2) with n = e * (e + 2), e = exp(x); above 20 the factor is 1."""
    e = x.op("AtMost", 20).op("Exp")
    n = e * (e + 2)
    return x * (n / (n + 2))


def _gelu_tanh(x: Value) -> Value:
    """X / 2 * (1 + tanh(u)) = x * sigmoid(2 u) with u = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    scale = 2 * math.sqrt(2 / math.pi)
    return x * (x * (x * x * (0.044715 * scale) + scale)).op("Sigmoid")


def _gelu(x: Value, node: Node) -> Value:
    return _gelu_tanh(x) if node.attrs.get("approximate") == "tanh" else x.op("Gelu")


def _swish(x: Value, node: Node) -> Value:
    alpha = float_attr(node, "alpha", 1.702 if node.op.endswith("QuickGelu") else 1.0)
    return x * (x if alpha == 1.0 else x * alpha).op("Sigmoid")


def _shrink(x: Value, node: Node) -> Value:
    lambd, bias = float_attr(node, "lambd", 0.5), float_attr(node, "bias", 0.0)
    low, high, zero = x < -lambd, x > lambd, x.like(0)
    up, down = x + bias, x - bias
    return low.select(up, high.select(down, zero))


def _clip(x: Value, node: Node) -> Value:
    for bound, op in zip(node.inputs[1:], ("AtLeast", "AtMost"), strict=False):
        if bound:
            x = x.op(op, Value(x.b, x.b.read(bound)))
    return x


def _cast(x: Value, node: Node) -> Value:
    target = x.b.ctx.type(node.outputs[0]).dtype
    return x if x.dtype is target else x.op("Cast", dtype=target)


def _dropout(x: Value, node: Node) -> Value:
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if training and ((constant := x.b.ctx.constant(training)) is None or bool(constant.array)):
        raise Unsupported(node.op)
    return x


def _is_inf(x: Value, node: Node) -> Value:
    signs = {"detect_positive": math.inf, "detect_negative": -math.inf}
    hits = [x.equals(infinity) for name, infinity in signs.items() if node.attrs.get(name, 1)]
    return reduce(lambda one, other: one.op("Or", other), hits) if hits else Value(x.b, x.b.const(False, DType.BOOL))


def _mod(x: Value, node: Node) -> Value:
    fmod = bool(node.attrs.get("fmod", 0))
    if x.dtype.is_float and not fmod:
        raise Unsupported(node.op)
    return x.op("Fmod" if fmod else "Mod", _args(x, node)[1])


def _pow(x: Value, node: Node) -> Value:
    """Power; exponents 1 to 3 become products, 1/2 a square root, -1 a reciprocal."""
    y = _args(x, node)[1]
    exponent = x.b.handles[y.handle]
    value = exponent.attr("value") if getattr(exponent, "op", "") == "Const" else None  # type: ignore[union-attr]
    if value in (1, 2, 3):
        return reduce(Value.__mul__, [x] * int(value))
    if value == 0.5 and x.dtype.is_float:
        root = x.op("Sqrt").op("Abs")  # pow(-0, 1/2) is +0
        return x.equals(-math.inf).select(x.like(math.inf), root)
    if value == -1 and x.dtype.is_float:
        return x.op("Reciprocal")
    return x.op("Pow", y)


def _batch_normalization(x: Value, node: Node) -> Value:
    """(x - mean) * scale / sqrt(var + epsilon) + bias, all four per channel (axis 1)."""
    shape = x.b.ctx.type(node.inputs[0]).shape
    if node.attrs.get("training_mode", 0) or shape is None or len(shape) < 2:
        raise Unsupported(node.op)
    scale, bias, mean, var = (_per_index(x.b, value, shape, 1) for value in node.inputs[1:5])
    if len({v.dtype for v in (x, scale, bias, mean, var)}) > 1:
        raise Unsupported(node.op)
    deviation = (var + float_attr(node, "epsilon", 1e-5)).op("Sqrt")
    return (x - mean) * (scale / deviation) + bias


def _per_index(b: Builder, value: str, shape: Sequence[Dim], axis: int) -> Value:
    """A vector with one element per index of an axis, or the one number that all of them share."""
    handle = b.read(value)
    kind = b.ctx.type(value)
    if getattr(b.handles[handle], "op", "") == "Const" or kind.shape in ((), (1,)):
        return Value(b, handle)
    axis += len(shape) if axis < 0 else 0
    if kind.shape is None or len(kind.shape) != 1 or not 0 <= axis < len(shape):
        raise Unsupported(value)
    return Value(b, b.operand(value, TensorType(kind.dtype, (*kind.shape, *(1,) * (len(shape) - axis - 1)))))


def _scale_and_zero(b: Builder, node: Node) -> tuple[Value, Value | None]:
    """Scale of a linear quantization and its zero point as f32 (None for 0)."""
    shape = b.ctx.type(node.inputs[0]).shape
    if shape is None or node.attrs.get("block_size", 0):
        raise Unsupported(node.op)
    axis = int_attr(node, "axis", 1)
    scale = _per_index(b, node.inputs[1], shape, axis)
    if scale.dtype is not DType.F32:
        raise Unsupported(node.op)
    if len(node.inputs) < 3 or not node.inputs[2]:
        return scale, None
    constant = b.ctx.constant(node.inputs[2])
    if constant is not None and not constant.array.any():
        return scale, None
    if constant is not None and (common := uniform(constant)) is not None:
        return scale, Value(b, b.const(float(common), DType.F32))
    return scale, _per_index(b, node.inputs[2], shape, axis).op("Cast", dtype=DType.F32)


def _quantize(x: Value, node: Node) -> Value:
    """saturate(round(x / scale) + zero), rounded half to even; exact in f32 wherever the result does not saturate.

    NaN becomes the least byte, as `n_packed` makes it."""
    target = x.b.ctx.type(node.outputs[0]).dtype
    if target not in (DType.U8, DType.I8) or x.dtype is not DType.F32:
        raise Unsupported(node.op)
    scale, zero = _scale_and_zero(x.b, node)
    y = (x / scale).op("Round")
    low, high = (0, 255) if target is DType.U8 else (-128, 127)
    return (y if zero is None else y + zero).op("Above", low).op("AtMost", high).op("Narrow", dtype=target)


def _dequantize(x: Value, node: Node) -> Value:
    """(x - zero) * scale; exact in f32 for bytes."""
    if x.dtype not in (DType.U8, DType.I8, DType.I32) or x.b.ctx.type(node.outputs[0]).dtype is not DType.F32:
        raise Unsupported(node.op)
    scale, zero = _scale_and_zero(x.b, node)
    if zero is not None and x.dtype is DType.I32:
        raise Unsupported(node.op)
    y = x.op("Cast", dtype=DType.F32)
    return (y if zero is None else y - zero) * scale


_FUNCTIONS = ("Sqrt", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Floor", "Ceil", "Round", "Reciprocal", *CURVES)
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign")
_LOGIC = ("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
_COMPARE = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN")

FLOAT_EXPANSIONS: dict[str, Expansion] = {
    **{op: _plain(op) for op in _FUNCTIONS},
    **dict.fromkeys(("Swish", "Silu", "QuickGelu"), _swish),
    "LeakyRelu": lambda x, node: (x < 0).select(x * float_attr(node, "alpha", 0.01), x),
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "HardSigmoid": lambda x, node: (x * float_attr(node, "alpha", 0.2) + float_attr(node, "beta", 0.5)).clamp(0, 1),
    "HardSwish": lambda x, node: x * (x * (1 / 6) + 0.5).clamp(0, 1),
    "Softplus": _softplus,
    "Softsign": lambda x, node: x / (x.op("Abs") + 1),
    "Mish": _mish,
    "Gelu": _gelu,
    "ThresholdedRelu": lambda x, node: (x > float_attr(node, "alpha", 1.0)).select(x, x.like(0)),
    "Shrink": _shrink,
    "BatchNormalization": _batch_normalization,
}
"""Operators that are pointwise on floats only."""

EXPANSIONS: dict[str, Expansion] = {
    **FLOAT_EXPANSIONS,
    **{op: _plain(op) for op in (*_ARITHMETIC, *_LOGIC)},
    **{op: _plain(op, DType.BOOL) for op in _COMPARE},
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "IsInf": _is_inf,
    "Sum": _sum,
    "Max": _fold("Max"),
    "Min": _fold("Min"),
    "Mean": lambda x, node: _sum(x, node) * (1.0 / len(node.inputs)),
    "Pow": _pow,
    "Mod": _mod,
    "BitShift": lambda x, node: _plain(f"Shift{str(node.attrs.get('direction', 'RIGHT')).title()}")(x, node),
    "Relu": lambda x, node: x.op("AtLeast", 0),
    "PRelu": _prelu,
    "FastGelu": lambda x, node: _gelu_tanh(_sum(x, node)),  # of the sum with a bias, which is optional
    "BiasGelu": lambda x, node: _sum(x, node).op("Gelu"),
    "Clip": _clip,
    "Where": lambda x, node: Value.select(*_args(x, node)),
    "Identity": lambda x, node: x,
    "Dropout": _dropout,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
"""Operators that can be part of a pointwise program."""
