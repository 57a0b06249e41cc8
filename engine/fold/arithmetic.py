"""Elementwise operators on constants: arithmetic, comparisons, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import DType
from .call import Array, Call, Fast, Refused, numeric, tiny
from .extrema import maximum, minimum


def _binary(function: Callable[[Array, Array], Array]) -> Fast:
    def run(call: Call) -> list[Array]:
        a, b = call[0], call[1]
        numeric(a, b)
        call.allow(np.broadcast_shapes(a.shape, b.shape), a.dtype)
        return [np.asarray(function(a, b), dtype=a.dtype)]

    return run


def _compare(function: Callable[[Array, Array], Array]) -> Fast:
    def run(call: Call) -> list[Array]:
        a, b = call[0], call[1]
        numeric(a, b)
        return [np.asarray(function(a, b), dtype=np.bool_)]

    return run


def _unary(function: Callable[[Array], Array]) -> Fast:
    def run(call: Call) -> list[Array]:
        numeric(call[0])
        return [np.asarray(function(call[0]), dtype=call[0].dtype)]

    return run


def _real(function: Callable[[Array], Array]) -> Fast:
    """A function of reals, computed in double precision and rounded once."""

    def run(call: Call) -> list[Array]:
        x = call[0]
        if not DType.from_numpy(x.dtype).is_float or tiny(x.dtype):
            raise Refused
        return [np.asarray(function(x.astype(np.float64))).astype(x.dtype)]

    return run


def _variadic(function: Callable[[Array, Array], Array]) -> Fast:
    def run(call: Call) -> list[Array]:
        arrays = call.present()
        numeric(*arrays)
        found = arrays[0]
        for array in arrays[1:]:
            call.allow(np.broadcast_shapes(found.shape, array.shape), found.dtype)
            found = np.asarray(function(found, array), dtype=found.dtype)
        return [found]

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


def _mod(call: Call) -> list[Array]:
    a, b = call[0], call[1]
    numeric(a, b)
    if a.dtype.kind in "iu" and (b == 0).any():
        raise Refused
    if call.integer("fmod", 0):
        return [np.asarray(np.fmod(a, b), dtype=a.dtype)]
    if a.dtype.kind not in "iu":
        raise Refused
    return [np.asarray(np.mod(a, b))]


def _pow(call: Call) -> list[Array]:
    base, exponent = call[0], call[1]
    numeric(base)
    numeric(exponent)
    if base.dtype.kind in "iu":
        if exponent.dtype.kind not in "iu" or (exponent < 0).any():
            raise Refused
        return [np.asarray(np.power(base, exponent.astype(base.dtype)))]
    # one exponent for all is taken to other routines than one for each, which differ in the last bit
    wide = [np.array(a, np.float64) for a in np.broadcast_arrays(base, exponent)]
    return [np.asarray(np.power(*wide)).astype(base.dtype)]


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))))


def _clip(call: Call) -> list[Array]:
    found = call[0]
    numeric(found)
    for bound, nearer in ((call.get(1), maximum), (call.get(2), minimum)):
        if bound is None:
            continue
        if bound.size != 1:
            raise Refused
        # a bound of shape [1] is a scalar to implementations, too: the result has the shape of what is bounded
        found = nearer(found, bound.reshape(()).astype(found.dtype))
    return [np.asarray(found, dtype=call[0].dtype)]


def cast(array: Array, to: np.dtype[Any]) -> Array:
    """An array in another element type as ONNX's Cast; `Refused` where ONNX leaves the result undefined."""
    if array.dtype == to:
        return array
    source = array.dtype
    if any((d.kind not in "biuf" and d.name != "bfloat16") or tiny(d) for d in (source, to)):
        raise Refused
    real = source.kind == "f" or source.name == "bfloat16"
    if real and to.kind in "iu":
        whole = np.trunc(array.astype(np.float64))
        limits = np.iinfo(to)
        # 2⁶³ − 1 is no double, 2⁶³ is: compare against the power of two above
        if not (np.isfinite(whole).all() and (whole >= limits.min).all() and (whole < float(limits.max) + 1).all()):
            raise Refused
        return np.asarray(whole.astype(to))
    if to.kind == "b":
        return np.asarray(array != 0)
    return np.asarray(array.astype(to))


def _cast(call: Call) -> list[Array]:
    return [cast(call[0], DType.from_onnx(call.integer("to", 0)).numpy)]


def _mean_of(call: Call) -> list[Array]:
    total = _variadic(np.add)(call)[0]
    return [np.asarray(total / np.asarray(len(call.arrays), total.dtype), dtype=total.dtype)]


ARITHMETIC: dict[str, Fast] = {
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(_div),
    "Mod": _mod,
    "Pow": _pow,
    "Equal": _compare(np.equal),
    "Greater": _compare(np.greater),
    "GreaterOrEqual": _compare(np.greater_equal),
    "Less": _compare(np.less),
    "LessOrEqual": _compare(np.less_equal),
    "And": _compare(np.logical_and),
    "Or": _compare(np.logical_or),
    "Xor": _compare(np.logical_xor),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sign": _unary(np.sign),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.rint),
    "Relu": _unary(lambda x: maximum(x, np.zeros((), x.dtype))),
    "Sqrt": _real(np.sqrt),
    "Exp": _real(np.exp),
    "Log": _real(np.log),
    "Reciprocal": _real(np.reciprocal),
    "Sin": _real(np.sin),
    "Cos": _real(np.cos),
    "Tanh": _real(np.tanh),
    "Erf": _real(_erf),
    "Sigmoid": _real(_sigmoid),
    "Min": _variadic(minimum),
    "Max": _variadic(maximum),
    "Sum": _variadic(np.add),
    "Mean": _mean_of,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": lambda call: [cast(call[0], call[1].dtype)],
}
