"""Arrays in memory that kernels can use as it is."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kernel_graph import ALIGNMENT

Array = NDArray[Any]
CALLER = 16
"""What malloc, and so NumPy, aligns to; see `MEMORY_CALLER` in `runtime/memory.h`."""


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array that begins at a multiple of the alignment and may be read past its end; a large one lies
    on huge pages where the system gives any."""
    from .runtime.executor import Store

    size = dtype.itemsize
    for d in shape:
        size *= d
    return np.ndarray(shape, dtype, Store(size).take())


def is_readable(array: Array) -> bool:
    """Whether kernels may use the array's memory as it is: it is contiguous, aligned as every allocator does it, and 64
    bytes past its end are on a page that it is on itself."""
    address = array.__array_interface__["data"][0]
    end = (address + array.nbytes) % 4096
    return bool(array.flags.c_contiguous and address % CALLER == 0 and 0 < end <= 4096 - ALIGNMENT)


def is_aligned(array: Array) -> bool:
    """Like `is_readable`, for arrays that are read in every run: they begin at a multiple of the alignment."""
    return is_readable(array) and array.__array_interface__["data"][0] % ALIGNMENT == 0


def usable(array: Array) -> bool:
    """Like `is_aligned`, but also true for arrays from `aligned` and of bundles, which have their slack wherever they
    end."""
    from .runtime.executor import Block

    if isinstance(array.base, np.memmap):
        return True
    address = array.__array_interface__["data"][0]
    return is_aligned(array) or (isinstance(array.base, Block) and address % ALIGNMENT == 0)


class Contents:
    """Finds arrays of equal type, shape and bytes. A checksum tells most that differ; what it doesn't is compared."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...], int], list[tuple[Array, str]]] = {}

    def name(self, array: Array, fresh: str) -> str:
        """The name of an equal array that was asked for before, else `fresh`, which is this one's then."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = (array.dtype.str + array.dtype.name, array.shape, zlib.crc32(flat.data))
        for other, name in self._known.setdefault(key, []):
            if np.array_equal(flat, other):
                return name
        self._known[key].append((flat, fresh))
        return fresh
