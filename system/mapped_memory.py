"""Memory mapped from files: which mapping an array lies in, and giving back pages that were read.

Pages of a read-only mapping come from the file, whose contents stay in the system's cache. Without them a process is as
much smaller, and reading them again costs little.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Any

_STRIDE = 64 << 20
"""Bytes that may be read before pages are given back."""


def mapping_of(data: Any) -> mmap.mmap | None:
    """Return the mapping that an array or memoryview lies in; None if it is in other memory."""
    owner = data
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


class MappedArrays:
    """The mappings of arrays that are read one after the other; together they keep at most 64 MiB in memory.

    Writable mappings are left alone: their pages may differ from the file."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        found: dict[int, mmap.mmap] = {}
        size = 0
        for array in arrays:
            mapping = mapping_of(array)
            if mapping is not None and memoryview(mapping).readonly:
                found[id(mapping)] = mapping
                size += array.nbytes
        self._mappings = list(found.values()) if size >= _STRIDE and hasattr(mmap, "MADV_DONTNEED") else []
        self._read = 0

    def note(self, nbytes: int) -> None:
        """Count bytes that were read, and give all pages back once they are 64 MiB."""
        self._read += nbytes
        if self._read >= _STRIDE:
            self.give_back()

    def give_back(self) -> None:
        """Give back all pages that were read."""
        self._read = 0
        for mapping in self._mappings:
            mapping.madvise(mmap.MADV_DONTNEED)
