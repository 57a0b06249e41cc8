"""Inference of elementwise operators, with broadcasting where they have several inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial, reduce

from ...ir.graph import DType, TensorType
from ...ir.symbolic import Dim, at_least, broadcast_dims, certainly_differ, maximum, minimum, product, same, truncdiv
from .inference_call import MAX_ELEMENTS, Call, SymbolicValue, Types, integer_range, rule


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
        call.contents[0] = replace(value, dims=tuple(map(function, value.dims)))
    elif call.op in ("Floor", "Ceil"):
        call.contents[0] = _rounded(call, up=call.op == "Ceil")
    return [call.type()]


def _rounded(call: Call, *, up: bool) -> SymbolicValue | None:
    """Return the contents of the input, rounded to integers."""
    value = call.fraction(0)
    if value is None:
        return None
    dims = tuple((d + value.over - 1 if up else d) // value.over for d in value.dims)
    sizes = frozenset(new for new, d in zip(dims, value.dims, strict=True) if call.is_size(d))
    return replace(value, dims=dims, sizes=sizes, over=1)


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
            call.fit(size, whole, "slope")
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
        sizes: set[Dim] = set()

        def apply(a: Dim, b: Dim) -> Dim | None:
            found = function(a, b, call.is_size)
            if found is not None and call.op in _OF_SIZES and call.is_size(a) and call.is_size(b):
                sizes.add(found)
            return found

        result = _zip(apply, call.value(0), call.value(1))
        if result is not None and (dtype is DType.BOOL or (dtype.is_integer and _fit(result, dtype, sizes))):
            call.contents[0] = replace(result, sizes=frozenset(sizes))
        elif not dtype.is_integer and dtype is not DType.BOOL:
            call.contents[0] = _float_binary(call)
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
    """The same shape with another element type; contents are followed between types that hold them."""
    dtype = call.dtype(1) if call.op == "CastLike" else call.dtype_attr("to")
    value, fraction = call.value(0) or _whole_numbers(call), call.fraction(0)
    if value is None and dtype is not None and dtype.is_integer and fraction is not None:
        value = _rounded(call, up=False) if all(map(call.is_size, fraction.dims)) else None  # towards zero
    if value is not None and dtype is not None and call.op != "BitCast":
        if dtype.is_integer and _fit(value, dtype, value.sizes):
            call.contents[0] = value
        elif dtype is DType.BOOL and all(isinstance(d, int) for d in value.dims):
            call.contents[0] = replace(value, dims=tuple(int(d != 0) for d in value.dims))
        elif dtype.is_float:
            call.contents[0] = value
    return [TensorType(dtype, call.shape())]


def _whole_numbers(call: Call) -> SymbolicValue | None:
    """Return the contents of floats that are known to have no fractions, constants among them."""
    found = call.numbers(0)
    return found if found is not None and found.over == 1 else None


def _float_binary(call: Call) -> SymbolicValue | None:
    """Return the contents of a sum, difference, product or quotient of floats whose rounding makes no difference."""
    a, b = call.numbers(0), call.numbers(1)
    if a is None or b is None or not a.is_exact or not b.is_exact:
        return None
    if call.op == "Div":
        divisor = b.dims[0] if b.over == 1 and len(b.dims) == 1 else 0
        if not isinstance(divisor, int) or divisor <= 0:
            return None
        found = _zip(lambda x, _: x, a, b)
        over = a.over * divisor
    elif call.op == "Mul":
        found, over = _zip(operator.mul, a, b), a.over * b.over
    elif call.op in ("Add", "Sub"):
        over = max(a.over, b.over)
        sign = 1 if call.op == "Add" else -1
        found = _zip(lambda x, y: x * (over // a.over) + y * (over // b.over) * sign, a, b)
    else:
        return None
    if found is None or over > 2**10:
        return None
    every = call.op != "Sub" and all(map(call.is_size, (*a.dims, *b.dims)))
    return replace(found, over=over, sizes=frozenset(found.dims if every else ()))


@rule("Dropout")
def dropout(call: Call) -> Types:
    """The data, and the mask of the elements that remain."""
    return [call.type(0), TensorType(DType.BOOL, call.shape())]


def _fit(value: SymbolicValue, dtype: DType, sizes: Collection[Dim]) -> bool:
    """Whether all elements are certainly in the range of this integer type; a size is assumed to fit 31 bits."""
    low, high = integer_range(dtype)
    return all(
        low <= d < high if isinstance(d, int) else dtype.bits >= 32 and (low < 0 or at_least(d, 0) or d in sizes)
        for d in value.dims
    )


def _zip(
    function: Callable[[Dim, Dim], Dim | None], a: SymbolicValue | None, b: SymbolicValue | None
) -> SymbolicValue | None:
    """Apply the function to each pair of elements, broadcast; None if one is unknown, or one is a matrix."""
    n = None if a is None or b is None or max(a.rank, b.rank) > 1 else broadcast_dims(len(a.dims), len(b.dims))
    if a is None or b is None or not isinstance(n, int) or n > MAX_ELEMENTS:
        return None
    dims = [function(a.dims[i % len(a.dims)], b.dims[i % len(b.dims)]) for i in range(n)]
    known = tuple(d for d in dims if d is not None)
    return SymbolicValue(known, max(a.rank, b.rank)) if len(known) == n else None


def _divide(a: Dim, b: Dim, is_size: IsSize) -> Dim | None:
    """Divide integers as ONNX does, towards zero; that is `//` for sizes."""
    if b != 0 and is_size(a) and is_size(b):
        return a // b
    if not isinstance(b, int) or not b:
        return None
    return truncdiv(a, b) if b > 0 else truncdiv(-a, -b)


def _modulo(a: Dim, b: Dim, is_size: IsSize) -> Dim | None:
    """Return the remainder; both operands are sizes, so `fmod` makes no difference."""
    return a % b if b != 0 and is_size(a) and is_size(b) else None


def _power(a: Dim, b: Dim, is_size: IsSize) -> Dim | None:
    return product([a] * b) if isinstance(b, int) and 0 <= b <= 8 else None


def _equal(a: Dim, b: Dim, is_size: IsSize) -> Dim | None:
    negative = isinstance(b, int) and b < 0 and is_size(a)
    return 1 if same(a, b) else 0 if negative or certainly_differ(a, b) else None


def _greater(a: Dim, b: Dim, is_size: IsSize) -> Dim | None:
    negative = isinstance(b, int) and b < 0 and is_size(a)
    return 1 if negative or at_least(a, b + 1) else 0 if at_least(b, a) else None


IsSize = Callable[[Dim], bool]
_BINARY: dict[str, Callable[[Dim, Dim, IsSize], Dim | None]] = {
    "Add": lambda a, b, _: a + b,
    "Sub": lambda a, b, _: a - b,
    "Mul": lambda a, b, _: a * b,
    "Div": _divide,
    "Mod": _modulo,
    "Pow": _power,
    "And": lambda a, b, _: a * b,
    "Or": lambda a, b, _: maximum(a, b),
    "Equal": _equal,
    "Greater": _greater,
    "Less": lambda a, b, is_size: _greater(b, a, is_size),
    "GreaterOrEqual": lambda a, b, is_size: _greater(a, b - 1, is_size),
    "LessOrEqual": lambda a, b, is_size: _greater(b, a - 1, is_size),
}
"""Operators whose contents are followed; the last argument tells whether an element is a size."""
_OF_SIZES = frozenset({"Add", "Mul", "Div", "Mod"})
"""Those that make sizes of sizes."""
