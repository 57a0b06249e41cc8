"""Arrays in memory that kernels can use in place."""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.graph import Constant
from .kernel import ALIGNMENT, SLACK

Array = NDArray[Any]
NewArray = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Makes an uninitialized array that kernels may use in place."""
CALLER = 16
"""Alignment of malloc and NumPy in bytes; see `MEMORY_CALLER` in `runtime/native/memory.h`."""
_MAX_BIAS_BYTES = 1 << 16
"""Largest size in bytes of a constant with one number for each column of a product."""


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialized array that starts at a multiple of the alignment and has slack behind it, which is zero.

    A large one is on huge pages where the system has any."""
    from ..runtime.native.executor import Store

    array = np.ndarray(shape, dtype, Store(math.prod(shape) * dtype.itemsize).take())
    ctypes.memset(address(array) + array.nbytes, 0, SLACK)
    return array


def aligned_copy(array: Array) -> Array:
    """Return a copy of an array in memory as `aligned` gives it; an ordinary one of Python objects."""
    copy = aligned(array.shape, array.dtype) if array.dtype.kind != "O" else np.empty(array.shape, object)
    copy[...] = array
    return copy


def address(array: Array) -> int:
    """Return the address of the first element."""
    return int(array.__array_interface__["data"][0])


def element(constant: Constant | None) -> Any:
    """Return the one element of a constant; None if it has another number of them, or there is none."""
    return constant.array.reshape(-1)[0] if constant is not None and constant.array.size == 1 else None


def is_readable(array: Array) -> bool:
    """Return whether kernels may use the array's memory in place."""
    return readable_address(array) is not None


def readable_address(array: Array) -> int | None:
    """Return the address of an array whose memory kernels may use in place; None for others.

    It must be contiguous and aligned as every allocator does; the 64 bytes past its end must be on its last page."""
    if not array.flags.c_contiguous:
        return None
    start = address(array)
    end = (start + array.nbytes) % 4096
    return start if start % CALLER == 0 and 0 < end <= 4096 - ALIGNMENT else None


def usable(array: Array) -> Array:
    """Return an array that every run may read in place: this one if it has the alignment and the slack, else a copy.

    Arrays from `aligned` or a bundle have slack behind them. That of a small array has to be zero, which no other has:
    kernels compute on what is behind a bias, and on denormals some cores take over a hundred cycles."""
    from ..runtime.native.executor import Buffer

    owner: Any = array
    while isinstance(owner, np.ndarray):  # of the memory, past views of views
        owner = owner.base
    slack = isinstance(owner, Buffer) or (array.nbytes > _MAX_BIAS_BYTES and is_readable(array))
    fits = isinstance(array.base, np.memmap) or (slack and address(array) % ALIGNMENT == 0)
    return array if fits else aligned_copy(array)


_SAMPLE = 4096
"""Number of bytes of a larger array that its first checksum covers."""


class _Known:
    """An array as bytes, its name, and on demand its checksum."""

    def __init__(self, flat: Array, name: str) -> None:
        self.flat, self.name = flat, name

    @cached_property
    def checksum(self) -> int:
        """CRC-32 of all bytes."""
        return zlib.crc32(self.flat.data)


class Contents:
    """Index of arrays by type, shape and bytes.

    A checksum of some bytes separates most arrays, so that large weights are not read; one of all bytes separates most
    others. The rest are compared."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...], int], list[_Known]] = {}

    def name(self, array: Array, fresh: str) -> str:
        """Return the name of an equal array seen before; otherwise `fresh`, which becomes the name of this one."""
        found = self.find(array)
        if found is None:
            self.add(array, fresh)
        return found or fresh

    def find(self, array: Array) -> str | None:
        """Return the name of an equal array; None if there is none."""
        this, key = self._entry(array, "")
        for other in self._known.get(key, ()):
            if this.checksum == other.checksum and np.array_equal(this.flat, other.flat):
                return other.name
        return None

    def add(self, array: Array, name: str) -> None:
        """Add an array that no other is equal to."""
        this, key = self._entry(array, name)
        self._known.setdefault(key, []).append(this)

    def _entry(self, array: Array, name: str) -> tuple[_Known, tuple[str, tuple[int, ...], int]]:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        sample = flat[:: flat.size // _SAMPLE | 1]  # an odd step meets all bytes of elements
        kind = array.dtype.str + array.dtype.name
        return _Known(flat, name), (kind, array.shape, zlib.crc32(np.ascontiguousarray(sample).data))
