"""Compiled kernels: cache (a namespace of the store) and loading, which bundles use as well.

    ROOT/kernels/TOOLCHAIN/MODULE.so            a compiled module
    ROOT/kernels/TOOLCHAIN/by_kernel/KERNEL     a module that has the kernel, and its checksum

A toolchain is a combination of compiler, flags and CPU. Eviction counts and removes modules; an index file whose module
is gone counts as missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ...system import ownership
from ...system.store import Store


class KernelCache:
    """The modules that one toolchain compiled."""

    def __init__(self, store: Store, toolchain: str) -> None:
        self._entries = store.namespace("kernels")
        self._toolchain = toolchain
        self._checked: dict[str, str] = {}  # checksums of modules whose files were read and match

    def find(self, kernel: str) -> tuple[str, Path] | None:
        """Return the name and the file of a module that has the kernel, after checking its checksum."""
        if not (self._entries.path / self._toolchain).is_dir():
            return None
        self._entries.prepare(self._toolchain, "by_kernel")
        payload = self._entries.read(f"{self._toolchain}/by_kernel/{kernel}")
        if payload is None:
            return None
        module, checksum = json.loads(payload)
        return (module, self._file(module)) if self._is_intact(module, checksum) else None

    def _is_intact(self, module: str, checksum: str) -> bool:
        """Return whether a module is there with this checksum; a damaged one is discarded."""
        if self._checked.get(module) == checksum:
            return True
        try:
            if _checksum(ownership.read(self._file(module))) == checksum:
                self._checked[module] = checksum
                with contextlib.suppress(OSError):
                    os.utime(self._file(module))
                return True
            self.discard(module, "its checksum is wrong")
        except FileNotFoundError:  # evicted
            pass
        except OSError as error:
            others = "others could have written it: " if isinstance(error, ownership.NotPrivate) else ""
            self.discard(module, f"{others}{error.strerror}")
        return False

    def add(self, module: str, data: bytes, kernels: Sequence[str]) -> Path:
        """Write a module and its index; return its file. Raises UserError if the store cannot be written to."""
        path = self._entries.write(self._name(module), data, bare=True)
        index = json.dumps([module, _checksum(data)]).encode()
        for kernel in kernels:
            self._entries.write(f"{self._toolchain}/by_kernel/{kernel}", index)
        return path

    def discard(self, module: str, reason: str) -> None:
        """Remove a damaged module, with a warning."""
        self._entries.discard(self._name(module), reason)

    def _name(self, module: str) -> str:
        return f"{self._toolchain}/{module}.so"

    def _file(self, module: str) -> Path:
        return self._entries.path / self._name(module)


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class _Entry(ctypes.Structure):
    """Row of a module's table: `k_entry` in kernel.h."""

    _fields_ = (("name", ctypes.c_char_p), ("run", ctypes.c_void_p))


_LOADED: dict[tuple[str, str], dict[str, int]] = {}


def load_module(name: str, path: Path) -> dict[str, int]:
    """Load a compiled module, once per name and directory in a process; return the addresses of its kernels by name.

    A module's name is a hash of its source; it stays loaded as long as the process. Raises OSError if the file is not
    such a module."""
    key = (name, path.parent.name)
    if key not in _LOADED:
        library = ctypes.CDLL(str(path))
        try:
            count = ctypes.c_int64.in_dll(library, "k_count").value
            table = (_Entry * count).in_dll(library, "k_table")
        except ValueError as error:
            raise OSError(f"{path.name} is not a module of kernels: {error}") from error
        _LOADED[key] = {entry.name.decode(): entry.run for entry in table}
    return _LOADED[key]
