"""Contents of files: checksums, and copies made by the kernel, so that some file systems share the blocks."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from .crc import crc32

_CHUNK = 16 << 20
_COPIED = 1 << 20
_KERNEL_CHUNK = 64 << 20
"""Bytes per system call, which an interrupt has to wait for."""
Item = TypeVar("Item")
Result = TypeVar("Result")
_UNABLE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY)


@dataclass(frozen=True, slots=True)
class FileState:
    """Identity, size and time stamps of a file at some moment; empty if there is no such file."""

    path: Path
    stamp: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the file as it is now."""
        with contextlib.suppress(OSError):
            found = os.stat(path)
            return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        return cls(path, ())

    def is_unchanged(self) -> bool:
        """Whether the file is unchanged since."""
        return bool(self.stamp) and FileState.of(self.path) == self


class ReadAhead:
    """A file that a thread reads from now on, while this one does something else.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading: Future[bytes] | None = Future()
        threading.Thread(target=self._read, args=(self._reading,), daemon=True).start()  # an exit does not wait for it

    def _read(self, reading: Future[bytes]) -> None:
        try:
            reading.set_result(self.path.read_bytes())
        except BaseException as error:  # raised where the bytes are wanted
            reading.set_exception(error)

    def contents(self) -> bytes:
        """Return the bytes of the file, the first time those that the thread read; it keeps none. Raises OSError."""
        reading, self._reading = self._reading, None
        return reading.result() if reading is not None else self.path.read_bytes()


def checksum_of(data: memoryview) -> str:
    """Return the BLAKE3 hash of large data in hexadecimal, without holding the interpreter's lock, by two threads."""
    from blake3 import blake3  # not where programs are only run

    return blake3(data, max_threads=2).hexdigest()


def checksum_of_file(path: Path) -> str:
    """Return the hash of a file's contents, as `checksum_of`. Raises OSError.

    The file is read, not mapped, so it may be truncated by others."""
    from blake3 import blake3

    digest, buffer = blake3(), memoryview(bytearray(_COPIED))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def size_and_crc(path: Path) -> tuple[int, int]:
    """Return the size of a file and a CRC-32 over those of its 16 MiB chunks, computed by two threads.

    It detects damage several times as fast as SHA-256. Raises OSError."""
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # it is empty
            return 0, 0
        with data, memoryview(data) as whole:
            size = len(whole)
            found = _in_two_threads(lambda at: _crc(data, whole, at), range(0, size, _CHUNK))
        return size, zlib.crc32(b"".join(crc.to_bytes(4, "little") for crc in found))


def _in_two_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of `work`, which has no effects, for some items, in two threads where that is possible.

    While the interpreter ends, threads that still run cannot have work done by others."""
    if len(items) > 1:
        with contextlib.suppress(RuntimeError), ThreadPoolExecutor(2) as pool:
            return list(pool.map(work, items))
    return list(map(work, items))


def _crc(data: mmap.mmap, whole: memoryview, start: int) -> int:
    """Return the CRC-32 of one chunk, whose pages are given back: a process need not hold a whole file."""
    with whole[start : start + _CHUNK] as chunk:
        found = int(crc32(chunk))
        if hasattr(mmap, "MADV_DONTNEED") and start % mmap.PAGESIZE == 0:
            data.madvise(mmap.MADV_DONTNEED, start, len(chunk))
    return found


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy the contents of a file to a new one. Raises OSError."""
    with open(source, "rb") as file, open(target, "wb") as out:
        copy_range(file, 0, os.fstat(file.fileno()).st_size, out)


def copy_range(source: IO[Any], start: int, size: int, target: IO[Any]) -> None:
    """Append `size` bytes of a file, from offset `start` on, to another file. Raises OSError, also if there are fewer
    bytes."""
    target.flush()
    done = _by_kernel(source.fileno(), start, size, target.fileno())
    while done < size:
        data = os.pread(source.fileno(), min(_COPIED, size - done), start + done)
        if not data:
            raise OSError(errno.EIO, "the file has become shorter", source.name)
        target.write(data)
        done += len(data)


def _by_kernel(source: int, start: int, size: int, target: int) -> int:
    """Return the number of bytes that the kernel copied: all, unless it cannot copy between these files."""
    done = 0
    while done < size and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source, target, min(_KERNEL_CHUNK, size - done), start + done)
        except OSError as error:
            if error.errno in _UNABLE:
                return done
            raise
        if not count:
            return done
        done += count
    return done
