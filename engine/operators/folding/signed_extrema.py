"""Maxima and minima in which +0 is greater than -0.

IEEE 754 (2008, 5.3.1) and ONNX leave it open which of two zeros is returned. In NumPy it depends on the order of the
operands, on vector instructions and on the memory layout. Here equal operands give the same zero in any order
(`maximum` and `minimum` of IEEE 754-2019, 9.6), so a check sees only real changes of a zero's sign.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .fold_call import Array, real


def maximum(a: Array, b: Array) -> Array:
    """Elementwise maximum: NaN if either operand is. Shapes broadcast; both have one type."""
    return _signed(np.asarray(np.maximum(a, b)), lambda: np.signbit(a) & np.signbit(b))


def minimum(a: Array, b: Array) -> Array:
    """Elementwise minimum: NaN if either operand is. Shapes broadcast; both have one type."""
    return _signed(np.asarray(np.minimum(a, b)), lambda: np.signbit(a) | np.signbit(b))


def largest(x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
    """Maximum along axes, none of which is empty: NaN where one element is."""
    found = np.asarray(np.max(x, axis=axis, keepdims=keepdims))
    return _signed(found, lambda: np.all(np.signbit(x), axis=axis, keepdims=keepdims))


def smallest(x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
    """Minimum along axes, none of which is empty: NaN where one element is."""
    found = np.asarray(np.min(x, axis=axis, keepdims=keepdims))
    return _signed(found, lambda: np.any(np.signbit(x), axis=axis, keepdims=keepdims))


def _signed(found: Array, negative: Callable[[], Array]) -> Array:
    """Set the sign of an array's zeros; integers and booleans have none."""
    if not real(found.dtype) or not (zero := found == 0).any():
        return found
    plus = np.zeros((), found.dtype)
    return np.asarray(np.where(zero, np.where(negative(), -plus, plus), found))
