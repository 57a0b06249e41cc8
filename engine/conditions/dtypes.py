"""Element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import DType
from ..scope import Scope
from ..values import Unprovable
from .registry import function


def as_dtype(t: Any) -> DType:
    """An element type given as such or as its ONNX number."""
    return t if isinstance(t, DType) else DType.from_onnx(t)


@function
def is_float(ev: Scope, t: Any) -> bool:
    """Whether an element type is floating-point."""
    return as_dtype(t).is_float


@function
def is_integer(ev: Scope, t: Any) -> bool:
    """Whether an element type is an integer type."""
    return as_dtype(t).is_integer


_MANTISSA = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
_EXPONENT = {DType.F64: 11, DType.F32: 8, DType.F16: 5, DType.BF16: 8}


@function
def lossless(ev: Scope, source: Any, target: Any) -> bool:
    """Whether every value of one element type is a value of the other."""
    a, b = as_dtype(source), as_dtype(target)
    if a == b:
        return True
    if a is DType.BOOL:
        return b.is_integer or b in _MANTISSA
    if a.is_integer and b.is_integer:
        if a.value[0] == b.value[0]:
            return a.bits <= b.bits
        return a.value[0] == "u" and a.bits < b.bits
    if a.is_integer and b in _MANTISSA:
        bits = a.bits - (a.value[0] == "i")
        return bits <= _MANTISSA[b] and bits < 2 ** (_EXPONENT[b] - 1)
    if a in _MANTISSA and b in _MANTISSA:
        return _MANTISSA[a] <= _MANTISSA[b] and _EXPONENT[a] <= _EXPONENT[b]
    return False


@function
def limits(ev: Scope, t: Any) -> list[float | int]:
    """The lowest and the highest finite value of an element type."""
    found = as_dtype(t)
    if found.is_integer:
        signed = found.value[0] == "i"
        return [-(2 ** (found.bits - 1)) if signed else 0, 2 ** (found.bits - signed) - 1]
    if found in (DType.F64, DType.F32, DType.F16):
        info = np.finfo(found.value.replace("f", "float"))
        return [float(info.min), float(info.max)]
    raise Unprovable(f"{found} has no limits")
