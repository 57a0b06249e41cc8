"""What saturation knows of a constant: always its type and a summary, its elements only when they are few.

Saturation runs in a process of its own, and weights of hundreds of megabytes have no business there. Conditions on a
large constant (`all(c == 1)`, `finite(c)`, `positive(c)`) are decided from a summary that one pass over it gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .graph import Constant, TensorType

SMALL = 4096
"""A constant of at most this many elements takes its elements along."""


@dataclass(frozen=True, slots=True)
class ConstantInfo:
    """A constant as seen by conditions.

    `elements` is None for a large constant; then `splat` (the value if all elements are equal), `low` and `high` (as
    Python numbers; None where unordered, empty or with NaN) and `finite` are what is known."""

    digest: str
    type: TensorType
    elements: NDArray[np.generic] | None = field(compare=False, repr=False)
    splat: float | int | bool | None
    low: float | int | None
    high: float | int | None
    finite: bool

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(int(d) for d in self.type.shape or () if isinstance(d, int))

    def contents(self) -> NDArray[np.generic] | None:
        """The elements, if they are few or all equal (then as a broadcast view); else None."""
        if self.elements is not None:
            return self.elements
        if self.splat is not None and self.type.dtype is not None:
            return np.broadcast_to(np.asarray(self.splat, self.type.dtype.numpy), tuple(self.type.shape or ()))  # type: ignore[arg-type]
        return None


def summarise(constant: Constant) -> ConstantInfo:
    """The summary of a constant. One pass over its elements; nothing is copied unless it is small."""
    array = constant.array
    small = array.size <= SMALL
    splat: float | int | bool | None = None
    low: float | int | None = None
    high: float | int | None = None
    finite = True
    if (array.size and array.dtype.kind in "biuf") or (array.dtype.name == "bfloat16" and array.size):
        numbers = array.astype(np.float32) if array.dtype.kind not in "biuf" else array
        smallest, largest = numbers.min(), numbers.max()
        finite = bool(np.isfinite(smallest) and np.isfinite(largest)) if numbers.dtype.kind == "f" else True
        if smallest == smallest:  # not NaN
            low, high = smallest.item(), largest.item()
            # -0.0 and 0.0 compare equal but are different contents
            if smallest == largest and not (low == 0 and numbers.dtype.kind == "f" and _mixed_zeros(numbers)):
                splat = array.flat[0].item()
    return ConstantInfo(constant.digest, constant.type, array if small else None, splat, low, high, finite)


def _mixed_zeros(numbers: NDArray[np.generic]) -> bool:
    signs = np.signbit(numbers)
    return bool(signs.any() != signs.all())
