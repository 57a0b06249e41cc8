"""Tensors as arrays and arrays as tensors, in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]

_BY_BITS: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e4m3fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e5m2fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}
"""Types that NumPy lacks: the integers that both libraries have, and the type of `ml_dtypes`."""
_TORCH = {array: (bits, dtype) for dtype, (bits, array) in _BY_BITS.items()}


def as_array(tensor: torch.Tensor) -> Array:
    """Return a tensor on the CPU as an array of the same memory and strides.

    Raises RuntimeError or TypeError for tensors without memory of their own, such as fake ones."""
    found = _BY_BITS.get(tensor.dtype)
    if found is None:
        return tensor.detach().numpy()
    bits, dtype = found
    return tensor.detach().view(bits).numpy().view(dtype)


def as_tensor(array: Array) -> torch.Tensor:
    """Return an array as a tensor of the same memory, which lives as long as either."""
    found = _TORCH.get(array.dtype)
    if found is None:
        return torch.from_numpy(array)
    bits, dtype = found
    return torch.from_numpy(array.view(np.int16 if bits is torch.int16 else np.uint8)).view(dtype)


def dense_order(shape: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the order of axes, outermost first, in which a tensor is contiguous; None if it has gaps or overlaps.

    Symbolic sizes and strides count as the numbers for which the graph was captured."""
    sizes, steps = [_number(size) for size in shape], [_number(step) for step in strides]
    if 0 in sizes:
        return tuple(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda axis: (-steps[axis], axis))
    wanted = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and steps[axis] != wanted:
            return None
        wanted *= sizes[axis]
    return tuple(order)


def _number(size: Any) -> int:
    """Return a size as a number: that of a symbol if it is known, else one that no other size has."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    hint = size.node.hint if size.node.has_hint() else None
    return 4099 if hint is None else int(hint)
