"""Maxima and minima in which +0 is greater than -0.

NumPy leaves it to the order of the operands, to the processor's vectors and to how an array lies in memory which of two
zeros it gives, as IEEE 754 (2008, 5.3.1) and ONNX allow. Here the same operands give the same zero in whatever order
they come (`maximum` and `minimum` of IEEE 754-2019, 9.6), so that only what really changes a zero's sign shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .call import Array


def maximum(a: Array, b: Array) -> Array:
    """The greater of two numbers, element by element: NaN if either is. Shapes broadcast; both of one type."""
    return _signed(np.asarray(np.maximum(a, b)), lambda: np.signbit(a) & np.signbit(b))


def minimum(a: Array, b: Array) -> Array:
    """The smaller of two numbers, element by element: NaN if either is. Shapes broadcast; both of one type."""
    return _signed(np.asarray(np.minimum(a, b)), lambda: np.signbit(a) | np.signbit(b))


def largest(x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
    """The maximum along axes, none of which is empty: NaN where one element is."""
    found = np.asarray(np.max(x, axis=axis, keepdims=keepdims))
    return _signed(found, lambda: np.all(np.signbit(x), axis=axis, keepdims=keepdims))


def smallest(x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
    """The minimum along axes, none of which is empty: NaN where one element is."""
    found = np.asarray(np.min(x, axis=axis, keepdims=keepdims))
    return _signed(found, lambda: np.any(np.signbit(x), axis=axis, keepdims=keepdims))


def _signed(found: Array, negative: Callable[[], Array]) -> Array:
    """An array with the sign of its zeros as told; integers and truth values have none."""
    if found.dtype.kind != "f" and found.dtype.name != "bfloat16":
        return found
    zero = found == 0
    if not zero.any():
        return found
    plus = np.zeros((), found.dtype)
    return np.asarray(np.where(zero, np.where(negative(), -plus, plus), found))
