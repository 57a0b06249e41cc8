"""Maxima and minima in which +0 is greater than -0.

IEEE 754 (2008, 5.3.1) and ONNX leave it open which of two zeros is returned. In NumPy it depends on the order of the
operands, on vector instructions and on the memory layout. Here equal operands give the same zero in any order
(`maximum` and `minimum` of IEEE 754-2019, 9.6), so a check sees only real changes of a zero's sign. `swapped_zeros`
makes the other choice, for checks that a rule depends on neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from .fold_call import Array, real

_SWAPPED: ContextVar[bool] = ContextVar("_SWAPPED", default=False)


@contextmanager
def swapped_zeros(swapped: bool = True) -> Iterator[None]:
    """Take -0 for the greater one of two zeros inside."""
    token = _SWAPPED.set(swapped)
    try:
        yield
    finally:
        _SWAPPED.reset(token)


def maximum(a: Array, b: Array) -> Array:
    """Elementwise maximum: NaN if either operand is. Shapes broadcast; both have one type."""
    return _signed(np.asarray(np.maximum(a, b)), lambda: _both(a, b, _SWAPPED.get()))


def minimum(a: Array, b: Array) -> Array:
    """Elementwise minimum: NaN if either operand is. Shapes broadcast; both have one type."""
    return _signed(np.asarray(np.minimum(a, b)), lambda: _both(a, b, not _SWAPPED.get()))


def largest(x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
    """Maximum along axes, none of which is empty: NaN where one element is."""
    found = np.asarray(np.max(x, axis=axis, keepdims=keepdims))
    return _signed(found, lambda: _along(x, axis, keepdims, _SWAPPED.get()))


def smallest(x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
    """Minimum along axes, none of which is empty: NaN where one element is."""
    found = np.asarray(np.min(x, axis=axis, keepdims=keepdims))
    return _signed(found, lambda: _along(x, axis, keepdims, not _SWAPPED.get()))


def _zeros(x: Array, negative: bool) -> Array:
    return np.asarray((x == 0) & (np.signbit(x) if negative else ~np.signbit(x)))


def _both(a: Array, b: Array, preferred: bool) -> Array:
    """Where a zero is negative that is one of two operands, if one of them is or only if none is positive."""
    return np.asarray(_zeros(a, True) | _zeros(b, True) if preferred else ~(_zeros(a, False) | _zeros(b, False)))


def _along(x: Array, axis: int | tuple[int, ...], keepdims: bool, preferred: bool) -> Array:
    """The same of all elements along axes."""
    found = np.any(_zeros(x, preferred), axis=axis, keepdims=keepdims)
    return np.asarray(found if preferred else ~found)


def _signed(found: Array, negative: Callable[[], Array]) -> Array:
    """Set the sign of an array's zeros; integers and booleans have none."""
    if not real(found.dtype) or not (zero := found == 0).any():
        return found
    plus = np.zeros((), found.dtype)
    return np.asarray(np.where(zero, np.where(negative(), -plus, plus), found))
