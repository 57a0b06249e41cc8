"""Functions of large f32 tensors, for which the double-precision ones take too long."""

from __future__ import annotations

import math

import numpy as np

from .fold_call import Array, Attrs

_COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""Of equation 7.1.26 in Abramowitz and Stegun, "Handbook of Mathematical Functions", highest power first."""


def erf32(x: Array) -> Array:
    """Error function of f32 values; its error is at most 1.5e-7 and a rounding."""
    size = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911) * size)
    total = np.zeros_like(t)
    for coefficient in _COEFFICIENTS:
        total = (total + np.float32(coefficient)) * t
    return np.asarray(np.copysign(1 - total * np.exp(-size * size), x))


def gelu32(attrs: Attrs, x: Array) -> Array:
    """Gelu of f32 values, as the attribute `approximate` says."""
    half = np.float32(0.5) * x
    if attrs.get("approximate", "none") == "tanh":
        inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
        return np.asarray(half * (1 + np.tanh(inner)))
    return np.asarray(half * (1 + erf32(x * np.float32(math.sqrt(0.5)))))
