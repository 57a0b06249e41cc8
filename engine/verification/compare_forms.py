"""Comparison of two forms of a value that a rule equates, by the rule's numerics class.

Tests of rules and `rewrite check` share it. Unlike models (`compare`), which are black boxes, forms show their
intermediate values, whose magnitudes bound the rounding error of a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...grammar.syntax import ast
from ..ir.graph import DType
from ..operators.folding import Array
from ..rewriting.rule_library import PRECISIONS
from .reference_values import Computed

_MARGIN = {
    "reassoc": {"float64": (3e-7, 1e-8), "float32": (2e-4, 4e-6), "float16": (2e-2, 6e-3), "bfloat16": (1e-1, 4e-2)},
    "fast": {"float64": (2e-3, 1e-11), "float32": (2e-3, 1e-5), "float16": (4e-2, 1e-2), "bfloat16": (2e-1, 8e-2)},
}
"""Margin by class and element type, relative to the result and to the largest intermediate magnitude. In double
precision it is that of single precision, which attributes have."""

_OVERFLOW = {"float64": (500.0, 1e100), "float32": (60.0, 1e12), "bfloat16": (60.0, 1e12), "float16": (8.0, 100.0)}
"""Magnitudes by element type from which an exponential, and from which a product, may overflow on one side only."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Magnitudes that bound the rounding error of a result.

    `peak` is the largest finite magnitude of an intermediate value of either form, `left` that of the left one; `lost`
    is the largest that a sum cancelled. `coarse` names the lowest-precision type among the operands where the result
    has a higher one."""

    peak: float = 0.0
    left: float = 0.0
    lost: float = 0.0
    coarse: str = ""


_LARGEST = {"float64": 1.7e308, "float32": 3.4e38, "bfloat16": 3.3e38, "float16": 65504.0}
_SMALLEST = {"float64": 2.3e-308, "float32": 1.2e-38, "bfloat16": 1.2e-38, "float16": 6.2e-5}
_HEADROOM = 64.0
"""Factor by which the magnitudes of the original stay below the largest number where a `reassoc` rule must not
overflow: a sum in another order, or a product with constants in another order, may be that much larger."""
_SURPLUS = 1e4
"""How many times what the left has in magnitudes the right may lose: a quotient of nearly nothing is no excuse."""

OVERFLOWS = "the right overflows where no value of the left is near the largest number"


def compare_forms(rule: ast.Rule, original: Computed, other: Computed, coarse: str) -> tuple[Any, Any, str] | None:
    """Return a pair of outputs that differ beyond what the rule's class allows, and how; None if none do.

    `coarse` names the lowest-precision type among the operands."""
    # Operands in 8 bits are multiples of small scales: the multiples are large, and say nothing of the error.
    peak = original.peak if rule.ruleset in PRECISIONS else max(original.peak, other.peak)
    lost = max(original.lost, min(other.lost, _SURPLUS * max(original.lost, original.peak)))
    scale = Scale(peak, original.peak, lost, coarse)
    for left, right in zip(original.arrays, other.arrays, strict=False):
        signed_zero = "signed_zero" in rule.relaxations
        if message := unequal(left, right, rule.numerics, signed_zero=signed_zero, scale=scale):
            return left, right, message
    return None


def lowest_precision(rule: ast.Rule, operands: Iterable[DType]) -> str:
    """Return the lowest-precision float type that a rule computes in, by its NumPy name; empty if there is none."""
    if rule.ruleset in PRECISIONS:
        return "bfloat16"
    floats = [t for t in operands if t.is_float]
    return min(floats, key=lambda t: t.bits > 16).numpy_name if floats else ""


def unequal(left: Any, right: Any, numerics: str, *, signed_zero: bool, scale: Scale) -> str:
    """Describe how two results differ beyond what a numerics class allows; empty if they do not.

    `exact`: the same bits, NaN payloads aside (with `signed_zero`, the sign of zeros too). `reassoc`: equal up to
    rounding where the original is finite, and not finite where it is not; in double precision the margin is so small
    that a changed constant shows. `fast`: the same with a wide margin where both are finite, or the original's numbers
    are of ordinary magnitude; quantized 8-bit integers may be one off. All other integers, truth values and strings
    must be identical."""
    if isinstance(left, list) or isinstance(right, list):
        if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
            return "one is a sequence of another length"
        pairs = (
            unequal(a, b, numerics, signed_zero=signed_zero, scale=scale) for a, b in zip(left, right, strict=True)
        )
        return next((message for message in pairs if message), "")
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"the left is {left.dtype}{list(left.shape)}, the right {right.dtype}{list(right.shape)}"
    if left is right or (left.dtype.kind != "O" and left.tobytes() == right.tobytes()):
        return ""
    if left.dtype.kind == "O":
        return "" if bool(np.all(left == right)) else "strings differ"
    if left.dtype.kind == "c":
        ok = (left == right) | (np.isnan(left) & np.isnan(right))
    elif left.dtype.kind in "iu" and left.dtype.itemsize == 1 and numerics == "fast":
        ok = np.abs(left.astype(np.int32) - right.astype(np.int32)) <= 1  # a quantized tie rounds either way
    elif left.dtype.kind in "biu" or (left.dtype.kind == "V" and left.dtype.name.startswith(("int", "uint"))):
        ok = np.asarray(left == right)
    else:
        x, y = left.astype(np.float64), right.astype(np.float64)
        if numerics == "exact":
            ok = (x == y) | (np.isnan(x) & np.isnan(y))
            ok = ok if signed_zero else ok & (np.isnan(x) | (np.signbit(x) == np.signbit(y)))
        else:
            ok = _close(x, y, numerics, left.dtype.name, scale)
    if bool(ok.all()):
        return ""
    at = tuple(int(i) for i in np.argwhere(~ok)[0])
    place = f" at {list(at)}" if at else ""
    return f"the left is {_show(left[at])}, the right {_show(right[at])}{place}"


def _close(x: Array, y: Array, numerics: str, dtype: str, scale: Scale) -> Array:
    finite, both = np.isfinite(x), np.isfinite(x) & np.isfinite(y)
    coarse = scale.coarse or dtype
    early, late = _OVERFLOW.get(coarse, _OVERFLOW["float32"])
    largest = float(np.max(np.abs(x[finite]), initial=0.0))
    if scale.peak > late and bool(np.isinf(x).any()):  # the largest result has overflowed: it was larger than the peak
        largest = max(largest, scale.peak)
    margins = _MARGIN[numerics]
    relative, absolute = max(margins.get(t, margins["float32"]) for t in (dtype, coarse))
    with np.errstate(all="ignore"):
        magnitude = max(min(scale.peak, 1e3 * max(largest, 1.0)), scale.lost)
        near = np.abs(x - y) <= relative * largest + absolute * magnitude
    if numerics == "fast":
        # Ordinary numbers stay finite: a constant that overflows in f16 must not make all results NaN.
        return np.asarray(near | (~both & (~finite | (scale.left > early))))
    # Only magnitudes of the left show that it has overflowed: a large constant on the right must not excuse that an
    # infinite operand became finite.
    infinite = ~np.isfinite(y) | (scale.left > early)
    return np.asarray(np.where(both, near, np.where(finite, scale.peak > late, infinite)))


def power_overflows(peak: float, exponent: float, coarse: str) -> bool:
    """Whether powers of numbers up to `peak` may overflow in the lowest-precision type, or a sum of them."""
    return exponent > 0 and peak > (_LARGEST.get(coarse, _LARGEST["float32"]) / _HEADROOM) ** (1 / exponent)


def power_underflows(peak: float, exponent: float, coarse: str) -> bool:
    """Whether powers of numbers up to `peak` may lose digits, or all of them, in the lowest-precision type."""
    return exponent > 0 and peak < (_SMALLEST.get(coarse, _SMALLEST["float32"]) * _HEADROOM) ** (1 / exponent)


def find_overflow(rule: ast.Rule, original: Computed, other: Computed, coarse: str) -> tuple[Any, Any, str] | None:
    """Return a pair of outputs of which the right one has overflowed, though the left has headroom; None if none has.

    For `reassoc` rules on operands of any magnitude, where rounding and underflow may differ widely. Where an
    intermediate number of the left is infinite, such as an exponential of which a minimum takes the other operand, its
    finite results need not be right, but the right has to be finite there."""
    limit = _LARGEST.get(coarse, _LARGEST["float32"])
    if rule.numerics != "reassoc" or original.peak * _HEADROOM > limit or other.finite:
        return None
    for left, right in zip(original.arrays, other.arrays, strict=False):
        if isinstance(left, np.ndarray) and left.dtype.name in _LARGEST:
            x, y = left.astype(np.float64), right.astype(np.float64)
            # A quotient by an infinite number is 0 where it should not be.
            near = np.abs(x - y) <= 0.1 * float(np.abs(x).max(initial=0.0))
            ok = np.isfinite(y) & near if original.finite else np.isfinite(y) | ~np.isfinite(x)
            if not bool(ok.all()):
                return left, right, OVERFLOWS
    return None


def same_bits(left: Any, right: Any) -> str:
    """Return `same`, `zeros` if only signs of zeros differ, or `different`."""
    if unequal(left, right, "exact", signed_zero=True, scale=Scale()):
        return "different"
    return "zeros" if unequal(left, right, "exact", signed_zero=False, scale=Scale()) else "same"


def _show(value: Any) -> str:
    if isinstance(value, np.bool_ | bool):
        return str(bool(value)).lower()
    if np.asarray(value).dtype.kind in "iu":
        return str(int(value))
    number = float(np.asarray(value).astype(np.float64))
    return "-0.0" if number == 0 and np.signbit(number) else f"{number:.10g}"
