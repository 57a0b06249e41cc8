"""QuantizeLinear as the standard says, which the reference implementation does not quite do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import DType
from .call import Array, Attrs


def quantized(attrs: Attrs, arrays: Sequence[Any]) -> Array | None:
    """A tensor quantised to integers of 8 or 16 bits; None elsewhere. The reference casts the quotient to 32 bits
    before it saturates, so that large numbers and infinities end on the wrong side. Where the quotient is NaN the
    standard leaves the result open, and it is the lowest integer here. Raises ValueError for an attribute that names no
    element type."""
    x, scale, zero = (*arrays, None)[:3]
    if scale is None or x.dtype.name not in ("float16", "float32", "bfloat16"):
        return None
    wanted = attrs.get("output_dtype", 0)
    dtype: np.dtype[Any] = np.dtype(np.uint8)
    if zero is not None:
        dtype = zero.dtype
    elif wanted:
        dtype = DType.from_onnx(wanted).numpy  # type: ignore[arg-type]
    by, shift = _along(scale, x, attrs), np.zeros(()) if zero is None else _along(zero, x, attrs)
    if dtype.name not in ("uint8", "int8", "uint16", "int16") or by is None or shift is None:
        return None
    if precision := attrs.get("precision", 0):
        own = DType.from_onnx(precision).numpy  # type: ignore[arg-type]
        x, by = x.astype(own), by.astype(own)
    limits = np.iinfo(dtype)
    found = np.rint((x / by).astype(np.float64)) + shift.astype(np.float64)
    found = np.where(np.isnan(found), limits.min, np.clip(found, limits.min, limits.max))
    return np.asarray(found.astype(dtype))


def _along(grid: Array, x: Array, attrs: Attrs) -> Array | None:
    """A scale or zero point, one or one for each place along the axis, so that it broadcasts; None if it does not."""
    if grid.size == 1:
        return grid.reshape(())
    axis = attrs.get("axis", 1) if x.ndim != 1 else 0
    if attrs.get("block_size", 0) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        return None
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return grid.reshape(shape) if grid.shape == (x.shape[axis],) else None
