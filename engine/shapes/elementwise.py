"""Operators that work element by element, with broadcasting where they have several inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ..graph import DType, TensorType
from ..symbolic import Dim, at_least, broadcast_dims, certainly_differ, maximum, minimum, same
from .core import MAX_ELEMENTS, Call, SymbolicValue, Types, dtype_attr, join_shapes, like, refuse, rule

SAME_TYPE = (
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "CumProd",
    "CumSum",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "LRN",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Neg",
    "Not",
    "PRelu",
    "Reciprocal",
    "Relu",
    "ReverseSequence",
    "RotaryEmbedding",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "TensorScatter",
    "ThresholdedRelu",
    "Trilu",
)


@rule(*SAME_TYPE)
def same_type(call: Call) -> Types:
    """One output of the type of the first input. The slope of PRelu broadcasts to its first input; what scales and
    shifts channels is of its type."""
    if call.op == "PRelu":
        _slope(call)
    if call.op in ("GroupNormalization", "InstanceNormalization"):
        for index in (1, 2):
            if None not in (call.dtype(0), call.dtype(index)) and call.dtype(index) is not call.dtype(0):
                raise refuse(call, f"input {index} is {call.dtype(index)} where the data is {call.dtype(0)}")
    value = call.value(0)
    if value is not None:
        result = _UNARY[call.op](value.dims) if call.op in _UNARY else None
        if result is not None:
            call.contents[0] = SymbolicValue(result, value.rank)
    return [like(call)]


def _slope(call: Call) -> None:
    """Refuses a slope that would enlarge the result."""
    x, slope = call.shape(0), call.shape(1)
    if x is None or slope is None:
        return
    if len(slope) > len(x):
        raise refuse(call, f"a slope of rank {len(slope)} for data of rank {len(x)}")
    for size, whole in zip(reversed(slope), reversed(x), strict=False):
        if certainly_differ(size, 1) and certainly_differ(size, whole):
            raise refuse(call, f"the slope has {size} where the data has {whole}")


def _absolute(dims: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    return dims if all(at_least(d, 0) for d in dims) else tuple(maximum(d, -d) for d in dims)


_UNARY: dict[str, Callable[[tuple[Dim, ...]], tuple[Dim, ...] | None]] = {
    "Identity": lambda dims: dims,
    "Neg": lambda dims: tuple(-d for d in dims),
    "Abs": _absolute,
    "Not": lambda dims: tuple(1 - d for d in dims),
    "Relu": lambda dims: tuple(maximum(d, 0) for d in dims),
}


@rule("IsNaN", "IsInf", "RegexFullMatch")
def tested(call: Call) -> Types:
    """A boolean for each element."""
    return [TensorType(DType.BOOL, call.shape())]


@rule("Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
def binary(call: Call) -> Types:
    """Two inputs broadcast together; the element type is the first one's (only Pow may mix them)."""
    dtype = call.dtype(0)
    if dtype is None and call.op != "Pow":
        dtype = call.dtype(1)
    _combine(call, _BINARY.get(call.op), dtype)
    return [TensorType(dtype, join_shapes(call, call.shape(0), call.shape(1)))]


@rule("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(call: Call) -> Types:
    """Two inputs broadcast together, compared to booleans."""
    _combine(call, _BINARY[call.op], DType.BOOL)
    return [TensorType(DType.BOOL, join_shapes(call, call.shape(0), call.shape(1)))]


@rule("Max", "Min", "Mean", "Sum")
def variadic(call: Call) -> Types:
    """Any number of inputs broadcast together."""
    dtypes = [call.dtype(i) for i in range(call.n_inputs) if call.dtype(i) is not None]
    values = [call.value(i) for i in range(call.n_inputs)]
    if call.op in ("Max", "Min") and values and all(v is not None for v in values):
        function = maximum if call.op == "Max" else minimum
        total = values[0]
        for value in values[1:]:
            total = _zip(total, value, function)
        if total is not None:
            call.contents[0] = total
    shape = join_shapes(call, *(call.shape(i) for i in range(call.n_inputs)))
    return [TensorType(dtypes[0] if dtypes else None, shape)]


@rule("Where")
def where(call: Call) -> Types:
    """A choice by element, condition and both values broadcast together."""
    condition, yes, no = (call.value(i) for i in range(3))
    if condition is not None and yes is not None and no is not None and all(isinstance(d, int) for d in condition.dims):
        masked = _zip(condition, yes, lambda c, y: y if c else 0)
        other = _zip(condition, no, lambda c, n: 0 if c else n)
        chosen = _zip(masked, other, operator.add)
        if chosen is not None:
            call.contents[0] = chosen
    shape = join_shapes(call, call.shape(0), call.shape(1), call.shape(2))
    return [TensorType(call.dtype(1) or call.dtype(2), shape)]


@rule("Cast", "CastLike", "BitCast")
def cast(call: Call) -> Types:
    """The same shape with another element type; contents are followed between integer types."""
    dtype = call.dtype(1) if call.op == "CastLike" else dtype_attr(call, "to")
    value = call.value(0) or _whole_numbers(call)
    if value is not None and dtype is not None and call.op != "BitCast":
        if dtype.is_integer and all(_fits(d, dtype) for d in value.dims):
            call.contents[0] = value
        elif dtype is DType.BOOL and all(isinstance(d, int) for d in value.dims):
            call.contents[0] = SymbolicValue(tuple(int(d != 0) for d in value.dims), value.rank)
    return [TensorType(dtype, call.shape())]


def _whole_numbers(call: Call) -> SymbolicValue | None:
    """The contents of a small constant of floats without fractions."""
    array = call.array(0)
    if array is None or array.ndim > 1 or array.size > MAX_ELEMENTS or array.dtype.kind != "f":
        return None
    numbers = [float(v) for v in array.reshape(-1)]
    if not all(v.is_integer() and abs(v) < 2**24 for v in numbers):
        return None
    return SymbolicValue(tuple(map(int, numbers)), array.ndim)


@rule("Dropout")
def dropout(call: Call) -> Types:
    """The data, and the mask of what was kept."""
    return [like(call), TensorType(DType.BOOL, call.shape())]


@rule("StringConcat")
def string_concat(call: Call) -> Types:
    """Strings joined element by element."""
    return [TensorType(DType.STRING, join_shapes(call, call.shape(0), call.shape(1)))]


@rule("Bernoulli", "RandomNormalLike", "RandomUniformLike", "EyeLike")
def random_like(call: Call) -> Types:
    """The shape of the input, with the element type that `dtype` names or else the input's."""
    return [TensorType(dtype_attr(call, "dtype", call.dtype()), call.shape())]


@rule("RandomNormal", "RandomUniform")
def random(call: Call) -> Types:
    """The shape that the attribute says."""
    return [TensorType(dtype_attr(call, "dtype", DType.F32), call.int_list("shape"))]


@rule("Multinomial")
def multinomial(call: Call) -> Types:
    """`sample_size` draws for each row."""
    shape = call.shape()
    rows = call.fresh() if shape is None else shape[0]
    return [TensorType(dtype_attr(call, "dtype", DType.I32), (rows, call.integer("sample_size", 1)))]


def _fits(d: Dim, dtype: DType) -> bool:
    """Whether the dim certainly has its own value as this integer type; a size is taken to fit 31 bits."""
    signed: bool = dtype.value[0] == "i"
    if isinstance(d, int):
        return (-(1 << dtype.bits - 1) if signed else 0) <= d < 1 << (dtype.bits - signed)
    return bool(dtype.bits >= 32 and (signed or at_least(d, 0)))


def _combine(call: Call, function: Callable[[Dim, Dim], Dim | None] | None, dtype: DType | None) -> None:
    """Notes the contents of the output of a binary operator, if they are known and in the range of the dtype."""
    if function is None or dtype is None or not (dtype.is_integer or dtype is DType.BOOL):
        return
    result = _zip(call.value(0), call.value(1), function)
    if result is not None and (dtype is DType.BOOL or all(_fits(d, dtype) for d in result.dims)):
        call.contents[0] = result


def _zip(
    a: SymbolicValue | None, b: SymbolicValue | None, function: Callable[[Dim, Dim], Dim | None]
) -> SymbolicValue | None:
    """The function on each pair of elements, broadcast; None if one is unknown."""
    if a is None or b is None:
        return None
    n = broadcast_dims(len(a.dims), len(b.dims))
    if not isinstance(n, int) or n > MAX_ELEMENTS:
        return None
    dims = []
    for i in range(n):
        d = function(a.dims[i % len(a.dims)], b.dims[i % len(b.dims)])
        if d is None:
            return None
        dims.append(d)
    return SymbolicValue(tuple(dims), max(a.rank, b.rank))


def _divide(a: Dim, b: Dim) -> Dim | None:
    """Integer division as ONNX has it, towards zero; that is `//` for sizes."""
    if isinstance(b, int) and b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a // b if at_least(a, 0) and at_least(b, 0) else None


def _modulo(a: Dim, b: Dim) -> Dim | None:
    """The remainder; the same with either sign convention, `fmod` being 1 or 0, as both are sizes."""
    if isinstance(b, int) and b == 0:
        return None
    return a % b if at_least(a, 0) and at_least(b, 0) else None


def _power(a: Dim, b: Dim) -> Dim | None:
    if not isinstance(b, int) or not 0 <= b <= 8:
        return None
    result: Dim = 1
    for _ in range(b):
        result = result * a
    return result


def _equal(a: Dim, b: Dim) -> Dim | None:
    return 1 if same(a, b) else 0 if certainly_differ(a, b) else None


def _greater(a: Dim, b: Dim) -> Dim | None:
    return 1 if at_least(a, b + 1) else 0 if at_least(b, a) else None


_BINARY: dict[str, Callable[[Dim, Dim], Dim | None]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _divide,
    "Mod": _modulo,
    "Pow": _power,
    "And": lambda a, b: a * b,
    "Or": maximum,
    "Equal": _equal,
    "Greater": _greater,
    "Less": lambda a, b: _greater(b, a),
    "GreaterOrEqual": lambda a, b: 1 if at_least(a, b) else 0 if at_least(b, a + 1) else None,
    "LessOrEqual": lambda a, b: 1 if at_least(b, a) else 0 if at_least(a, b + 1) else None,
}
