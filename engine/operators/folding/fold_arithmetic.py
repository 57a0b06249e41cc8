"""Elementwise operators on constants: arithmetic, comparisons, casts, quantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.graph import DType
from .fold_call import Array, Attrs, Call, Fast, Refused, common_shape, front_axis, in_double, numeric, real, tiny
from .signed_extrema import maximum, minimum


def _elementwise(function: Callable[..., Array], operands: int, result: type | None = None) -> Fast:
    """Function of operands of one type; of that type too unless `result` is given."""

    def run(call: Call) -> Array:
        arrays = [call[i] for i in range(operands)]
        numeric(*arrays)
        dtype = np.dtype(result or arrays[0].dtype)
        call.allow(common_shape(*arrays), dtype)
        return np.asarray(function(*arrays), dtype=dtype)

    return run


def _real(function: Callable[[Array], Array]) -> Fast:
    """Function of reals, computed in double precision and rounded once."""

    def run(call: Call) -> Array:
        x = call[0]
        if not DType.from_numpy(x.dtype).is_float or tiny(x.dtype):
            raise Refused
        return in_double(function, x)

    return run


def _variadic(function: Callable[[Array, Array], Array]) -> Callable[[Call], Array]:
    def run(call: Call) -> Array:
        found, *others = call.present()
        numeric(found, *others)
        for array in others:
            call.allow(common_shape(found, array), found.dtype)
            found = np.asarray(function(found, array), dtype=found.dtype)
        return found

    return run


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    if (b == 0).any():
        raise Refused
    quotient = a // b
    if a.dtype.kind == "u":
        return np.asarray(quotient)
    return np.asarray(quotient + ((quotient * b != a) & ((a < 0) != (b < 0))))  # towards zero, not down


def _mod(call: Call) -> Array:
    a, b = call[0], call[1]
    numeric(a, b)
    whole, truncating = a.dtype.kind in "iu", call.integer("fmod", 0)
    if (whole and (b == 0).any()) or not (whole or truncating):
        raise Refused
    return np.asarray(np.fmod(a, b) if truncating else np.mod(a, b), dtype=a.dtype)


def _pow(call: Call) -> Array:
    base, exponent = call[0], call[1]
    numeric(base)
    numeric(exponent)
    if base.dtype.kind in "iu":
        if exponent.dtype.kind not in "iu" or (exponent < 0).any():
            raise Refused
        return np.asarray(np.power(base, exponent.astype(base.dtype)))
    # Broadcast first: NumPy's routines for one common exponent differ in the last bit.
    wide = [np.array(a, np.float64) for a in np.broadcast_arrays(base, exponent)]
    return np.asarray(np.power(*wide)).astype(base.dtype)


def erf(x: Array) -> Array:
    """Error function in double precision."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _clip(call: Call) -> Array:
    found = call[0]
    numeric(found)
    for bound, nearer in ((call.get(1), maximum), (call.get(2), minimum)):
        if bound is None:
            continue
        if bound.size != 1:
            raise Refused
        # Implementations accept a bound of shape [1] as a scalar; the result has the shape of the data.
        found = nearer(found, bound.reshape(()).astype(found.dtype))
    return np.asarray(found, dtype=call[0].dtype)


_NIBBLES = {"int4": (-8, 7), "uint4": (0, 15)}
"""Least and greatest value of the integers of four bits, which NumPy stores in a byte each."""


def cast(array: Array, to: np.dtype[Any]) -> Array:
    """Cast an array as ONNX's Cast does; raises `Refused` where ONNX leaves the result undefined."""
    if array.dtype == to:
        return array
    if array.dtype.name in _NIBBLES:
        return cast(array.astype(np.int8), to)
    if to.name in _NIBBLES:
        low, high = _NIBBLES[to.name]
        if array.dtype.kind not in "iu" or (array < low).any() or (array > high).any():
            raise Refused
        return np.asarray(array.astype(to))
    if any((d.kind not in "biuf" and d.name != "bfloat16") or tiny(d) for d in (array.dtype, to)):
        raise Refused
    if real(array.dtype) and to.kind in "iu":
        whole = np.trunc(array.astype(np.float64))
        limits = np.iinfo(to)
        # 2⁶³ − 1 is not a double, 2⁶³ is: compare with the power of two above.
        if not (np.isfinite(whole).all() and (whole >= limits.min).all() and (whole < float(limits.max) + 1).all()):
            raise Refused
        return np.asarray(whole.astype(to))
    return np.asarray(array != 0 if to.kind == "b" else array.astype(to))


def _mean(call: Call) -> Array:
    total = _variadic(np.add)(call)
    return np.asarray(total / np.asarray(len(call.arrays), total.dtype), dtype=total.dtype)


def quantized(attrs: Attrs, arrays: Sequence[Any]) -> Array | None:
    """Quantize a tensor to integers of 8 or 16 bits; None for other types.

    The reference casts the quotient to 32 bits before it saturates, so large numbers and infinities get the wrong sign.
    Where the quotient is NaN the standard leaves the result open; here it is the lowest integer. Raises `ValueError`
    for an attribute that does not name an element type."""
    x, scale, zero = (*arrays, None)[:3]
    if scale is None or x.dtype.name not in ("float16", "float32", "bfloat16"):
        return None
    wanted = attrs.get("output_dtype", 0)
    dtype: np.dtype[Any] = np.dtype(np.uint8)
    if zero is not None:
        dtype = zero.dtype
    elif wanted:
        dtype = DType.from_onnx(wanted).numpy  # type: ignore[arg-type]
    by, shift = _aligned(scale, x, attrs), np.zeros(()) if zero is None else _aligned(zero, x, attrs)
    if dtype.name not in ("uint8", "int8", "uint16", "int16") or by is None or shift is None:
        return None
    if precision := attrs.get("precision", 0):
        own = DType.from_onnx(precision).numpy  # type: ignore[arg-type]
        x, by = x.astype(own), by.astype(own)
    limits = np.iinfo(dtype)
    found = np.rint((x / by).astype(np.float64)) + shift.astype(np.float64)
    found = np.where(np.isnan(found), limits.min, np.clip(found, limits.min, limits.max))
    return np.asarray(found.astype(dtype))


def _aligned(grid: Array, x: Array, attrs: Attrs) -> Array | None:
    """Reshape a scale or zero point so that it broadcasts along the axis; None if it does not fit."""
    if grid.size == 1:
        return grid.reshape(())
    axis = attrs.get("axis", 1) if x.ndim != 1 else 0
    if attrs.get("block_size", 0) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        return None
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return grid.reshape(shape) if grid.shape == (x.shape[axis],) else None


def _dequantize(call: Call) -> Array:
    """Dequantize integers: (q - z) * s in f32, with one s and z for all, for each index of an axis, or for each block.

    Computed as the standard says, where the reference implementation is slow. Refused for other scales than f32."""
    x, scale = call[0], call[1]
    if x.dtype.name not in _QUANTIZED or scale.dtype != np.float32:
        raise Refused
    if call.integer("output_dtype", 0) not in (0, DType.F32.onnx):
        raise Refused
    call.allow(x.shape, scale.dtype)
    by, found = _spread(scale, x, call), x.astype(np.float32)
    if (zero := call.get(2)) is not None:
        found -= _spread(zero, x, call).astype(np.float32)
    return np.asarray(np.multiply(found, by, out=found))


_QUANTIZED = ("int8", "uint8", "int16", "uint16", "int32", *_NIBBLES)


def _spread(grid: Array, x: Array, call: Call) -> Array:
    """Return a scale or zero point such that it broadcasts to x; refuse one that does not fit."""
    block = call.integer("block_size", 0)
    if not block:
        found = _aligned(grid, x, call.attrs)
        if found is None:
            raise Refused
        return found
    axis = front_axis(call.integer("axis", 1), x.ndim)
    blocks = -(-x.shape[axis] // block)
    if grid.shape != (*x.shape[:axis], blocks, *x.shape[axis + 1 :]):
        raise Refused
    repeated = np.repeat(grid, block, axis)
    return repeated[(slice(None),) * axis + (slice(x.shape[axis]),)]


def _shift(call: Call) -> Array:
    """Shift unsigned integers; a distance of at least their width is left open by C, and refused here."""
    x, by = call[0], call[1]
    numeric(x, by)
    if x.dtype.kind != "u" or (by >= 8 * x.dtype.itemsize).any():
        raise Refused
    return np.asarray(np.left_shift(x, by) if call.attrs.get("direction") == "LEFT" else np.right_shift(x, by))


def _bitwise(function: Callable[[Array, Array], Array]) -> Fast:
    """Function of the bits of integers."""

    def run(call: Call) -> Array:
        a, b = call[0], call[1]
        numeric(a, b)
        if a.dtype.kind not in "iu":
            raise Refused
        call.allow(common_shape(a, b), a.dtype)
        return np.asarray(function(a, b))

    return run


def _relu(x: Array) -> Array:
    return maximum(x, np.zeros((), x.dtype))


_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "Neg": np.negative, "Abs": np.abs, "Sign": np.sign, "Not": np.logical_not, "Floor": np.floor, "Ceil": np.ceil,
    "Round": np.rint, "Relu": _relu,
}  # fmt: skip
_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _div,
}
_BITS: Mapping[str, Callable[[Array, Array], Array]] = {
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
}  # fmt: skip
_TESTS: Mapping[str, Callable[..., Array]] = {
    "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}  # fmt: skip
_OF_REALS: Mapping[str, Callable[[Array], Array]] = {
    "Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Reciprocal": np.reciprocal, "Sin": np.sin, "Cos": np.cos,
    "Tanh": np.tanh, "Erf": erf, "Sigmoid": _sigmoid,
}  # fmt: skip
ARITHMETIC: dict[str, Fast] = {
    **{op: _elementwise(function, 1) for op, function in _UNARY.items()},
    **{op: _elementwise(function, 2) for op, function in _BINARY.items()},
    **{op: _elementwise(function, 2, np.bool_) for op, function in _TESTS.items()},
    **{op: _real(function) for op, function in _OF_REALS.items()},
    **{op: _bitwise(function) for op, function in _BITS.items()},
    "BitShift": _shift,
    "DequantizeLinear": _dequantize,
    "Min": _variadic(minimum),
    "Max": _variadic(maximum),
    "Sum": _variadic(np.add),
    "Mean": _mean,
    "Mod": _mod,
    "Pow": _pow,
    "Clip": _clip,
    "Cast": lambda call: cast(call[0], DType.from_onnx(call.integer("to", 0)).numpy),
    "CastLike": lambda call: cast(call[0], call[1].dtype),
}
