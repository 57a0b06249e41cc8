"""Summary of a constant for saturation: its type and statistics, and its elements only if they are few.

Saturation runs in a process of its own, and weights of hundreds of megabytes should not be copied into it. Conditions
on a large constant (`all(c == 1)`, `finite(c)`, `positive(c)`) are decided from a summary computed in one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .graph import Constant, TensorType

SMALL = 4096
"""Largest number of elements of a constant whose summary includes the elements."""


@dataclass(frozen=True, slots=True)
class ConstantInfo:
    """A constant as conditions see it.

    `elements` is None for a large constant. Then `splat` (the value if all elements are equal), `low`, `high`,
    `finite` and `axes` are what is known; `low` and `high` are None where unordered, empty or with NaN. `axes` is the
    number of leading axes that the elements depend on, as those of expanded indices do; the rank but for integers."""

    digest: str
    type: TensorType
    elements: NDArray[np.generic] | None = field(compare=False, repr=False)
    splat: float | int | bool | None
    low: float | int | None
    high: float | int | None
    finite: bool
    axes: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(int(d) for d in self.type.shape or () if isinstance(d, int))

    def contents(self) -> NDArray[np.generic] | None:
        """Return the elements, if they are few or all equal (then as a broadcast view); else None."""
        if self.elements is not None:
            return self.elements
        if self.splat is not None and self.type.dtype is not None:
            return np.broadcast_to(np.asarray(self.splat, self.type.dtype.numpy), tuple(self.type.shape or ()))  # type: ignore[arg-type]
        return None


def summarize(constant: Constant) -> ConstantInfo:
    """Summarize a constant in one pass over its elements, without copying them."""
    array = constant.array
    kind = array.dtype.kind
    splat: float | int | bool | None = None
    low: float | int | None = None
    high: float | int | None = None
    finite = True
    if array.size and (kind in "biuf" or array.dtype.name == "bfloat16"):
        numbers = array if kind in "biuf" else array.astype(np.float32)
        smallest, largest = np.minimum.reduce(numbers, axis=None).item(), np.maximum.reduce(numbers, axis=None).item()
        finite = math.isfinite(smallest) and math.isfinite(largest)
        if smallest == smallest:  # not NaN
            low, high = smallest, largest
            # -0.0 and 0.0 compare equal but are different contents.
            zeros = low == 0 and kind not in "biu"
            if low == high and not (zeros and np.unique(np.signbit(numbers)).size > 1):
                splat = array.flat[0].item()
    elements = array if array.size <= SMALL else None
    axes = (0 if splat is not None else leading_axes(array)) if kind in "iu" else array.ndim
    return ConstantInfo(constant.digest, constant.type, elements, splat, low, high, finite, axes)


def leading_axes(array: NDArray[np.generic]) -> int:
    """Return the number of leading axes that the elements depend on: along the others they repeat."""
    axes = array.ndim
    while axes and bool((array[(slice(None),) * (axes - 1) + (slice(0, 1),)] == array).all()):
        axes -= 1
        array = array[(slice(None),) * axes + (slice(0, 1),)]
    return axes
