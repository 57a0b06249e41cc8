"""Checksums of files: of those on disk, and of those that are being written, without reading them again."""

from __future__ import annotations

import hashlib
import mmap
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

_LARGE = 1 << 16
"""So many bytes are worth hashing beside their being written."""
_STRETCH = 16 << 20


def checksum(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(data: memoryview, meanwhile: Callable[[], object] = lambda: None) -> str:
    """A hash of many bytes, made by two threads: SHA-256 of those of the stretches of 16 MiB, hexadecimal. `meanwhile`
    is called beside it."""
    stretches = [data[at : at + _STRETCH] for at in range(0, len(data), _STRETCH)]
    with ThreadPoolExecutor(2) as pool:
        digests = pool.map(lambda stretch: hashlib.sha256(stretch).digest(), stretches)
        meanwhile()
        return hashlib.sha256(b"".join((len(data).to_bytes(8, "little"), *digests))).hexdigest()


def quick(path: Path) -> tuple[int, int]:
    """The size of a file and a CRC-32 of those of its stretches of 16 MiB, made by two threads, which finds damage
    several times as fast as a SHA-256. Raises OSError."""
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # it is empty
            return 0, 0
        with data, memoryview(data) as whole:
            size = len(whole)
            starts = range(0, size, _STRETCH)
            with ThreadPoolExecutor(2) as pool:
                found = list((pool.map if len(starts) > 1 else map)(lambda at: _crc(whole, at), starts))
        return size, zlib.crc32(b"".join(crc.to_bytes(4, "little") for crc in found))


def _crc(whole: memoryview, start: int) -> int:
    """The CRC-32 of a stretch."""
    with whole[start : start + _STRETCH] as stretch:
        return zlib.crc32(stretch)


class Hashing:
    """A file that is written from its beginning, with the checksum of what was written: one thread hashes while this
    one writes. To be used in a `with` block."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Hashing:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def write(self, data: bytes | memoryview) -> None:
        """Writes more. The bytes are not read any more when this returns. Raises OSError."""
        if len(data) < _LARGE:
            self._hash.update(data)
            self._file.write(data)
            return
        hashed = self._pool.submit(self._hash.update, data)
        try:
            self._file.write(data)
        finally:
            hashed.result()

    def digest(self) -> str:
        """The SHA-256 of all that was written so far, hexadecimal."""
        return self._hash.hexdigest()
