"""Values for the inputs of instances: ordinary ones, and those on which identities fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import DType

Array = NDArray[Any]

PLAIN, SPECIAL, LONE, EXTREME, SMALL, ZEROS = "plain", "special", "lone", "extreme", "small", "zeros"
"""Styles of values: ordinary; with NaN, infinities and zeros among them; with a single NaN or infinity in some inputs,
so that it shows how far that reaches; with the largest and smallest magnitudes, too; small whole numbers, zero often
among them; and mostly zeros of either sign."""

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0)


def trials(numerics: str, *, signed_zero: bool = False) -> tuple[str, ...]:
    """The styles that a numerics class is held to, which may leave the sign of zeros open."""
    if numerics == "exact":
        return (PLAIN, SPECIAL, LONE, EXTREME, SMALL, *(() if signed_zero else (ZEROS,)))
    return (PLAIN, SPECIAL, LONE, SMALL) if numerics == "reassoc" else (PLAIN, SMALL)


def draw(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, style: str = PLAIN) -> Array:
    """An array of a type in a style."""
    if dtype is DType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype is DType.STRING:
        return np.asarray(rng.choice(np.array(["a", "b", "ab"], dtype=object), shape), dtype=object)
    if not dtype.is_float:
        return _integers(dtype, shape, rng, style)
    array = rng.standard_normal(shape) * 1.5
    if style == SMALL:
        array = rng.integers(-2, 3, shape).astype(np.float64)
    if style == ZEROS:
        array = rng.choice((-0.0, -0.0, 0.0, 1.0), shape)
    if style == LONE and array.size and rng.random() < 0.6:
        array.reshape(-1)[int(rng.integers(array.size))] = rng.choice(_SPECIAL[:3])
    if style in (SPECIAL, EXTREME) and array.size:
        flat = array.reshape(-1)
        count = max(1, array.size // 3)
        spots = rng.integers(0, array.size, count)
        flat[spots] = rng.choice(_SPECIAL, count)
        if style == EXTREME:
            spots = rng.integers(0, array.size, count)
            flat[spots] = rng.choice(_extremes(dtype), count)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(dtype.numpy))


def _extremes(dtype: DType) -> tuple[float, ...]:
    if dtype is DType.F64:
        return (1.7e308, -1.7e308, 5e-324, -3e-310, 2.0**53 + 2, 0.5, 1.5, 2.5)
    if dtype is DType.F16:
        return (65504.0, -65504.0, 6e-8, -6e-7, 2050.0, 0.5, 1.5, 2.5)
    return (3.4e38, -3.4e38, 1e-45, -1e-41, 16777218.0, 0.5, 1.5, 2.5)


def _integers(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, style: str) -> Array:
    signed = dtype.value[0] == "i"
    low, high = (-4, 5) if style == PLAIN else (-2, 3)
    array = rng.integers(low if signed else 0, high, shape)
    if style in (SPECIAL, EXTREME) and array.size and dtype.bits >= 8:
        limits = np.iinfo(np.dtype(dtype.numpy.name))
        if dtype.bits == 8:  # few enough that neighbours all over the range come up
            array = rng.integers(limits.min, limits.max + 1, shape)
        count = max(1, array.size // 3)
        choices = np.array([limits.max, limits.min, limits.max - 1, limits.max // 2 + 1, 7], dtype=dtype.numpy)
        found = array.astype(dtype.numpy)
        found.reshape(-1)[rng.integers(0, array.size, count)] = rng.choice(choices, count)
        return found
    return np.asarray(array.astype(dtype.numpy))
