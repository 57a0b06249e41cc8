"""Inference of elementwise operators, with broadcasting where they have several inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce

from ...ir.graph import DType, TensorType
from ...ir.symbolic import Dim, at_least, broadcast_dims, certainly_differ, maximum, minimum, product, same
from .inference_call import MAX_ELEMENTS, Call, SymbolicValue, Types, rule


@rule(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh CumProd CumSum Elu Erf Exp Floor Gelu"
    " HardSigmoid HardSwish Hardmax Identity LRN LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization"
    " Mish Neg Not Reciprocal Relu ReverseSequence RotaryEmbedding Round ScatterElements ScatterND Selu Shrink Sigmoid"
    " Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh TensorScatter ThresholdedRelu Trilu"
)
def same_type(call: Call) -> Types:
    """One output of the type of the first input."""
    value, function = call.value(0), _UNARY.get(call.op)
    if value is not None and function is not None:
        call.contents[0] = SymbolicValue(tuple(map(function, value.dims)), value.rank)
    return [call.type()]


_UNARY: dict[str, Callable[[Dim], Dim]] = {
    "Identity": lambda d: d,
    "Neg": lambda d: -d,
    "Abs": lambda d: maximum(d, -d),
    "Not": lambda d: 1 - d,
    "Relu": lambda d: maximum(d, 0),
}


@rule("GroupNormalization InstanceNormalization")
def factors_by_channel(call: Call) -> Types:
    """The type of the data, which is that of the factors too."""
    for index in (1, 2):
        if None not in (call.dtype(0), call.dtype(index)) and call.dtype(index) is not call.dtype(0):
            raise call.refuse(f"input {index} is {call.dtype(index)} where the data is {call.dtype(0)}")
    return [call.type()]


@rule("PRelu")
def prelu(call: Call) -> Types:
    """The type of the data, which the slope must not enlarge."""
    x, slope = call.shape(0), call.shape(1)
    if x is not None and slope is not None:
        if len(slope) > len(x):
            raise call.refuse(f"a slope of rank {len(slope)} for data of rank {len(x)}")
        for size, whole in zip(reversed(slope), reversed(x), strict=False):
            if certainly_differ(size, 1) and certainly_differ(size, whole):
                raise call.refuse(f"the slope has {size} where the data has {whole}")
    return [call.type()]


@rule("IsNaN IsInf RegexFullMatch")
def tested(call: Call) -> Types:
    """A boolean for each element."""
    return [TensorType(DType.BOOL, call.shape())]


@rule("Add Sub Mul Div Mod Pow And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift StringConcat")
def binary(call: Call) -> Types:
    """Two inputs broadcast together, with the element type of the first one (only Pow may mix them)."""
    return _combined(call, call.dtype(0) or (None if call.op == "Pow" else call.dtype(1)))


@rule("Equal Greater GreaterOrEqual Less LessOrEqual")
def comparison(call: Call) -> Types:
    """Two inputs broadcast together, compared to booleans."""
    return _combined(call, DType.BOOL)


def _combined(call: Call, dtype: DType | None) -> Types:
    """Two inputs broadcast together; contents are followed if they are in the range of the output's element type."""
    function = _BINARY.get(call.op)
    if function is not None and dtype is not None:
        result = _zip(function, call.value(0), call.value(1))
        if result is not None and (dtype is DType.BOOL or (dtype.is_integer and _fit(result, dtype))):
            call.contents[0] = result
    return [TensorType(dtype, call.join_shapes(call.shape(0), call.shape(1)))]


@rule("Max Min Mean Sum")
def variadic(call: Call) -> Types:
    """Any number of inputs broadcast together."""
    types = [call.type(i) for i in range(call.n_inputs)]
    if call.op in ("Max", "Min"):
        extremum = partial(_zip, maximum if call.op == "Max" else minimum)
        call.contents[0] = reduce(extremum, [call.value(i) for i in range(call.n_inputs)])
    return [TensorType(next((t.dtype for t in types if t.dtype), None), call.join_shapes(*(t.shape for t in types)))]


@rule("Where")
def where(call: Call) -> Types:
    """Choice by element: condition and both values broadcast together."""
    condition, yes, no = (call.value(i) for i in range(3))
    if call.ints(0) is not None:
        masked = _zip(lambda c, y: y if c else 0, condition, yes)
        other = _zip(lambda c, n: 0 if c else n, condition, no)
        call.contents[0] = _zip(operator.add, masked, other)
    shape = call.join_shapes(call.shape(0), call.shape(1), call.shape(2))
    return [TensorType(call.dtype(1) or call.dtype(2), shape)]


@rule("Cast CastLike BitCast")
def cast(call: Call) -> Types:
    """The same shape with another element type; contents are followed between integer types."""
    dtype = call.dtype(1) if call.op == "CastLike" else call.dtype_attr("to")
    value = call.value(0) or _whole_numbers(call)
    if value is not None and dtype is not None and call.op != "BitCast":
        if dtype.is_integer and _fit(value, dtype):
            call.contents[0] = value
        elif dtype is DType.BOOL and all(isinstance(d, int) for d in value.dims):
            call.contents[0] = SymbolicValue(tuple(int(d != 0) for d in value.dims), value.rank)
    return [TensorType(dtype, call.shape())]


def _whole_numbers(call: Call) -> SymbolicValue | None:
    """Return the contents of a small constant of floats without fractions."""
    array = call.array(0)
    if array is None or array.ndim > 1 or array.size > MAX_ELEMENTS or array.dtype.kind != "f":
        return None
    numbers = [float(v) for v in array.reshape(-1)]
    if not all(v.is_integer() and abs(v) < 2**24 for v in numbers):
        return None
    return SymbolicValue(tuple(map(int, numbers)), array.ndim)


@rule("Dropout")
def dropout(call: Call) -> Types:
    """The data, and the mask of the elements that remain."""
    return [call.type(0), TensorType(DType.BOOL, call.shape())]


def _fit(value: SymbolicValue, dtype: DType) -> bool:
    """Whether all elements are certainly in the range of this integer type; a size is assumed to fit 31 bits."""
    signed = dtype.value[0] == "i"
    low, high = (-(1 << dtype.bits - 1) if signed else 0), 1 << (dtype.bits - signed)
    return all(
        low <= d < high if isinstance(d, int) else dtype.bits >= 32 and (signed or at_least(d, 0)) for d in value.dims
    )


def _zip(
    function: Callable[[Dim, Dim], Dim | None], a: SymbolicValue | None, b: SymbolicValue | None
) -> SymbolicValue | None:
    """Apply the function to each pair of elements, broadcast; None if one is unknown."""
    n = None if a is None or b is None else broadcast_dims(len(a.dims), len(b.dims))
    if a is None or b is None or not isinstance(n, int) or n > MAX_ELEMENTS:
        return None
    dims = [function(a.dims[i % len(a.dims)], b.dims[i % len(b.dims)]) for i in range(n)]
    known = tuple(d for d in dims if d is not None)
    return SymbolicValue(known, max(a.rank, b.rank)) if len(known) == n else None


def _divide(a: Dim, b: Dim) -> Dim | None:
    """Divide integers as ONNX does, towards zero; that is `//` for sizes."""
    if isinstance(a, int) and isinstance(b, int) and b:
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a // b if b != 0 and at_least(a, 0) and at_least(b, 0) else None


def _modulo(a: Dim, b: Dim) -> Dim | None:
    """Return the remainder; both operands are sizes, so `fmod` makes no difference."""
    return a % b if b != 0 and at_least(a, 0) and at_least(b, 0) else None


def _power(a: Dim, b: Dim) -> Dim | None:
    return product([a] * b) if isinstance(b, int) and 0 <= b <= 8 else None


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
    "GreaterOrEqual": lambda a, b: _greater(a, b - 1),
    "LessOrEqual": lambda a, b: _greater(b, a - 1),
}
