"""Whether two results are equal in the sense of a numerics class.

`exact`: bit for bit, but for what a NaN carries (and with `signed_zero` the sign of zeros). `reassoc`: equal up to
rounding where the original is finite, and not finite where it is not; with operands in double precision the margin for
rounding is so small that a changed constant shows. `fast`: the same with a wide margin, where both are finite, and
integers of 8 bits, which quantisation rounds, may be one off. Else integers, truth values and strings are the same or
different.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MARGIN = {
    "reassoc": {"float64": (3e-7, 1e-8), "float32": (2e-4, 4e-6), "float16": (2e-2, 6e-3), "bfloat16": (1e-1, 4e-2)},
    "fast": {"float64": (2e-3, 1e-11), "float32": (2e-3, 1e-5), "float16": (4e-2, 1e-2), "bfloat16": (2e-1, 8e-2)},
}
"""By class and element type: the margin relative to the result, and to the largest number on the way to it.

In double precision it is that of the single precision which attributes have."""

_OVERFLOW = {"float64": (500.0, 1e100), "float32": (60.0, 1e12), "bfloat16": (60.0, 1e12), "float16": (8.0, 100.0)}
"""By element type: the magnitude from which an exponential may overflow, which the other side need not; and from which
products may."""


def unequal(
    left: Any, right: Any, numerics: str, *, signed_zero: bool, peak: float, lost: float = 0.0, coarse: str = ""
) -> str:
    """How two results differ beyond what the class allows; empty if they do not.

    `peak` is the largest magnitude that came up, `lost` the largest that a sum cancelled; `coarse` names the narrowest
    floating-point type of the operands, where that is narrower than the result's."""
    if isinstance(left, list) or isinstance(right, list):
        return _sequences(left, right, numerics, signed_zero=signed_zero, peak=peak, lost=lost, coarse=coarse)
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"the left is {left.dtype}{list(left.shape)}, the right {right.dtype}{list(right.shape)}"
    if left.dtype.kind == "O":
        return "" if bool(np.all(left == right)) else "strings differ"
    if left.dtype.kind == "c":
        ok = (left == right) | (np.isnan(left) & np.isnan(right))
    elif left.dtype.kind in "iu" and left.dtype.itemsize == 1 and numerics == "fast":
        ok = np.abs(left.astype(np.int32) - right.astype(np.int32)) <= 1  # a quantised tie rounds either way
    elif left.dtype.kind in "biu" or (left.dtype.kind == "V" and left.dtype.name.startswith(("int", "uint"))):
        ok = np.asarray(left == right)
    else:
        x, y = left.astype(np.float64), right.astype(np.float64)
        dtype = left.dtype.name if numerics != "exact" else ""
        ok = _close(x, y, numerics, dtype, signed_zero=signed_zero, peak=peak, lost=lost, coarse=coarse)
    if bool(ok.all()):
        return ""
    at = tuple(int(i) for i in np.argwhere(~ok)[0])
    place = f" at {list(at)}" if at else ""
    return f"the left is {_show(left[at])}, the right {_show(right[at])}{place}"


def _close(
    x: Array, y: Array, numerics: str, dtype: str, *, signed_zero: bool, peak: float, lost: float, coarse: str
) -> NDArray[np.bool_]:
    if numerics == "exact":
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        return np.asarray(same if signed_zero else same & (np.isnan(x) | (np.signbit(x) == np.signbit(y))))
    finite, both = np.isfinite(x), np.isfinite(x) & np.isfinite(y)
    early, late = _OVERFLOW.get(coarse or dtype, _OVERFLOW["float32"])
    scale = float(np.max(np.abs(x[finite]), initial=0.0))
    margins = _MARGIN[numerics]
    relative, absolute = max(margins.get(t, margins["float32"]) for t in (dtype, coarse or dtype))
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= relative * scale + absolute * max(min(peak, 1e3 * max(scale, 1.0)), lost)
    if numerics == "fast" or peak > late:
        return np.asarray(near | ~both)
    return np.asarray(np.where(both, near, (finite == np.isfinite(y)) | (~finite & (peak > early))))


def _sequences(
    left: Any, right: Any, numerics: str, *, signed_zero: bool, peak: float, lost: float, coarse: str
) -> str:
    if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
        return "one is a sequence of another length"
    for a, b in zip(left, right, strict=True):
        message = unequal(a, b, numerics, signed_zero=signed_zero, peak=peak, lost=lost, coarse=coarse)
        if message:
            return message
    return ""


def same_bits(left: Any, right: Any) -> str:
    """`same`, `zeros` if only signs of zeros differ, or `different`."""
    if unequal(left, right, "exact", signed_zero=True, peak=0.0):
        return "different"
    return "zeros" if unequal(left, right, "exact", signed_zero=False, peak=0.0) else "same"


def _show(value: Any) -> str:
    if isinstance(value, np.bool_ | bool):
        return str(bool(value)).lower()
    if np.asarray(value).dtype.kind in "iu":
        return str(int(value))
    number = float(np.asarray(value).astype(np.float64))
    return "-0.0" if number == 0 and np.signbit(number) else f"{number:.10g}"
