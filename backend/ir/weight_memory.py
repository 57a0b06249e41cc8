"""Memory for the packed weights of a program: on huge pages, where they lie one behind the other, and touched ahead."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.ir.graph import Graph
from .arrays import Array, address, aligned
from .kernel import ALIGNMENT, SLACK

_BLOCK, _SMALLEST, _LARGEST = 32 << 20, 32 << 10, 8 << 20
"""Bytes of a block of weights, and of the smallest and the largest array in it."""
_PAGE = 4096
"""Bytes of the smallest page."""
_ROOM = 32
"""Part of a large weight, the reciprocal, that its memory is larger: packing rounds numbers of columns up."""
_LOOKED_UP = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators whose tables stay where they are."""


class ReadyMemory:
    """Memory for weights that a thread touches before they are packed.

    The system provides new memory when it is touched first, which takes most of the time of packing large weights. The
    thread does that while this process waits for saturation. What nobody takes is freed by `close`."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._wanted = list(sizes)
        self._ready: list[Array] = []
        self._closed = False
        self._changing = threading.Lock()

    def fill(self) -> None:
        """Provide the memory; for a thread of its own. It ends early when no memory is left."""
        while True:
            with self._changing:
                if not self._wanted:
                    return
                size = self._wanted.pop(0)
            try:
                block = aligned((size,), np.dtype(np.uint8))
            except MemoryError:
                return
            block[::_PAGE] = 0  # without the interpreter's lock
            with self._changing:
                if self._closed:
                    return
                self._ready.append(block)

    def take(self, size: int) -> Array | None:
        """Return a block for `size` bytes, not much larger; None if none is ready.

        The caller then provides it, so one that fits and that the thread has not begun is not wanted any more."""
        most = size + size // _ROOM + SLACK
        with self._changing:
            for number, block in enumerate(self._ready):
                if size <= block.nbytes <= most:
                    return self._ready.pop(number)
            for number, wanted in enumerate(self._wanted):
                if size <= wanted <= most:
                    del self._wanted[number]
                    break
        return None

    def close(self) -> None:
        """Free what is left, and provide no more."""
        with self._changing:
            self._closed = True
            self._wanted.clear()
            self._ready.clear()


def expected_sizes(graph: Graph) -> list[int]:
    """Return the sizes of the memory that the packed weights of a graph are likely to take, in the order of its nodes.

    They are about as large as the constants. Tables in which rows are looked up are not packed."""
    sizes: list[int] = []
    small = 0
    seen: set[str] = set()
    for node in graph.nodes:
        for name in node.inputs[1:] if node.op in _LOOKED_UP else node.inputs:
            constant = graph.constants.get(name)
            if constant is None or name in seen or constant.nbytes < _SMALLEST:
                continue
            seen.add(name)
            if constant.nbytes > _LARGEST:
                sizes.append(constant.nbytes + constant.nbytes // _ROOM)
                continue
            if small % _BLOCK == 0 or small % _BLOCK + constant.nbytes > _BLOCK:
                sizes.append(_BLOCK)
                small = -(-small // _BLOCK) * _BLOCK
            small += constant.nbytes
    return sizes


class WeightMemory:
    """Memory for the weights of a program: blocks of huge pages, where they lie one behind the other.

    On pages of 4 KiB they fill sets of the second-level cache unevenly, by chance. What is not used of a block takes no
    memory, unless it is from `ready`. Each array keeps its block alive."""

    def __init__(self, ready: ReadyMemory | None = None) -> None:
        self._ready = ready
        self._at, self._block = _BLOCK, np.empty(0, np.uint8)

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialized array with slack behind it, which is zero: in a block unless it is small or large."""
        nbytes = math.prod(shape) * dtype.itemsize
        if _SMALLEST <= nbytes <= _LARGEST:
            if self._at + nbytes + SLACK > _BLOCK:
                self._at, self._block = 0, self._provided(_BLOCK)
            place = self._block[self._at : self._at + nbytes]
            self._at = _end(self._at + nbytes)
        elif nbytes > _LARGEST:
            place = self._provided(nbytes + SLACK)[:nbytes]
        else:
            return aligned(shape, dtype)
        array = np.ndarray(shape, dtype, place)
        ctypes.memset(address(array) + nbytes, 0, SLACK)
        return array

    def _provided(self, size: int) -> Array:
        block = self._ready.take(size) if self._ready is not None else None
        return block if block is not None else aligned((size,), np.dtype(np.uint8))

    def copy(self, array: Array) -> Array:
        """Return a copy in a block; the array itself if it is in one, small or large."""
        if not _SMALLEST <= array.nbytes <= _LARGEST or array.dtype.kind == "O" or self._has(array):
            return array
        copy = self.new(array.shape, array.dtype)
        copy[...] = array
        return copy

    def give_back(self, array: Array) -> None:
        """Use the place of an array again, if it is the last one that `new` returned in a block."""
        if self._has(array):
            start = address(array) - address(self._block)
            if _end(start + array.nbytes) == self._at:
                self._at = start

    def _has(self, array: Array) -> bool:
        """Whether an array begins in the last block."""
        return 0 <= address(array) - address(self._block) < self._block.nbytes


def _end(at: int) -> int:
    """Return where the next array begins behind one that ends here."""
    return -(-(at + SLACK) // ALIGNMENT) * ALIGNMENT
