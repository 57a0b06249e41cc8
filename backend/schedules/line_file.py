"""Files of records, one a line, to which several processes may append at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ...errors import UserError
from ...system import ownership
from ...system.store import Store

FOLDER = "schedules"


class LineFile:
    """A file of lines in a store (the user's if None), which only its owner may read and write."""

    def __init__(self, name: str, store: Store | None = None) -> None:
        self._store = store or Store()
        self.path = self._store.root / FOLDER / name

    def read(self) -> bytes:
        """Return the contents. Raises OSError if there is no such file, or if others could have written it."""
        return ownership.read(self.path)

    def append(self, lines: str) -> None:
        """Add lines, on a line of their own even if a writer was killed within one. Raises UserError."""
        with self.locked(), reported(self.path):
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            with open(file, "rb+", buffering=0) as opened:
                end = opened.seek(0, os.SEEK_END)
                opened.seek(max(0, end - 1))
                torn = end > 0 and opened.read(1) != b"\n"
                opened.write(("\n" * torn + lines).encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold an exclusive lock on the directory, where the system has locks. Raises UserError."""
        folder = self._store.prepare(FOLDER)
        try:
            import fcntl
        except ImportError:
            yield
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@contextlib.contextmanager
def reported(path: Path) -> Iterator[None]:
    """Raise UserError where a file of records cannot be written."""
    try:
        yield
    except OSError as error:
        problem = f"the records cannot be written: {error.strerror}"
        raise UserError(problem, where=str(path), hint="Set REWRITE_CACHE_DIR to a directory of your own.") from error
