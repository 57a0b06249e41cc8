"""Copies of files and of parts of them, made by the kernel where it can."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Any

_CHUNK = 1 << 20
_MOST = 64 << 20
"""So much is copied at a time: an interrupt waits for it."""
_UNABLE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copies the contents of a file to a new one. Raises OSError."""
    with open(source, "rb") as file, open(target, "wb") as out:
        copy_range(file, 0, os.fstat(file.fileno()).st_size, out)


def copy_range(source: IO[Any], start: int, size: int, target: IO[Any]) -> None:
    """Writes that many bytes of a file, from a place on, where another one is being written. Raises OSError, also if
    there are not so many."""
    target.flush()
    done = _by_kernel(source.fileno(), start, size, target.fileno())
    while done < size:
        data = os.pread(source.fileno(), min(_CHUNK, size - done), start + done)
        if not data:
            raise OSError(errno.EIO, "the file is shorter than it was", source.name)
        target.write(data)
        done += len(data)


def _by_kernel(source: int, start: int, size: int, target: int) -> int:
    """How many of the bytes the kernel has copied: all, unless it cannot between these files."""
    done = 0
    while done < size and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source, target, min(_MOST, size - done), start + done)
        except OSError as error:
            if error.errno in _UNABLE:
                return done
            raise
        if not count:
            return done
        done += count
    return done
