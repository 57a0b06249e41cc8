"""The on-disk store: everything that is cached between runs, in one directory of the user.

    ROOT/                   $REWRITE_CACHE_DIR, else the user's cache directory
    ROOT/NAMESPACE/NAME     an entry: a checksummed file, a bare file, or a directory

A namespace holds entries of one kind and is bounded in bytes: the entries used longest ago are evicted first. Names are
content keys, hashes of everything that an entry was computed from, so no entry is ever out of date.

Entries are believed and some are executed. ROOT is therefore private to the user (mode 0700). What another user owns or
could have written, or is a link, counts as damaged. Every entry appears by one rename. Writers of the same entry write
the same contents, so only directories need a lock, which keeps eviction from one that is being read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from ..errors import RewriteError, UserError
from . import ownership

# `scoped` and `shutil` are imported where something is written or removed: reading parsed rules is part of start-up.

LIMIT = 512 << 20
"""Default size bound of compiled kernels, in bytes; $REWRITE_CACHE_LIMIT_MB overrides it."""
SHARES: Mapping[str, float] = {
    "kernels": 1, "headers": 1 / 2, "programs": 4, "rules": 1 / 8, "libraries": 1 / 8, "analysis": 1 / 16,
    "soundness": 1 / 16, "mutants": 1 / 8, "translations": 1 / 8,
}  # fmt: skip
"""All namespaces, each with its size bound as a multiple of the limit."""
_PATTERNS = {"kernels": "*/*.so"}
"""Paths of entries below a namespace, where they are not all that is in it; only these count and are evicted."""
_SUFFIXES = (".py", ".so", ".rules", ".j2", ".h", ".lark", ".txt")
_PACKAGE = Path(__file__).resolve().parents[1]
_OWN = "What is in it is executed. Set REWRITE_CACHE_DIR to a directory of your own."
_ELSEWHERE = "Set REWRITE_CACHE_DIR to a directory that you can write to."
_WRITERS: dict[threading.Thread, Path] = {}
"""Threads that write entries, with the directory of their namespace."""
_TOTALS: dict[Path, int] = {}
"""Bytes in a namespace, by its directory: those found when this process last looked at all entries, and those it has
written since. Others' entries are found when they are exceeded."""
_LEFT = 15 / 16
"""Share of the bound that eviction leaves: what is full is not looked at for each entry."""
Result = TypeVar("Result")


def default_root() -> Path:
    """Return $REWRITE_CACHE_DIR, else the user's cache directory."""
    if os.environ.get("REWRITE_CACHE_DIR"):
        return Path(os.environ["REWRITE_CACHE_DIR"])
    import platformdirs

    return Path(platformdirs.user_cache_dir("onnx-rewrite", appauthor=False))


def content_key(*parts: str | bytes) -> str:
    """Return the name of the entry that was computed from these parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@cache
def code_stamp(*rooms: str) -> str:
    """Return a digest of the names, sizes and modification times of this package's files in these rooms.

    A room is a directory below the package; "" stands for the modules beside them."""
    found = []
    for room in rooms:
        for folder, below, names in os.walk(_PACKAGE / room):  # at half the time of `Path.rglob`
            if not room:
                below.clear()
            paths = (f"{folder}/{name}" for name in names if name.endswith(_SUFFIXES))
            found += [(path, (about := os.stat(path)).st_size, about.st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def code_digest(*rooms: str) -> str:
    """Return a digest of the names and contents of this package's files in these rooms, wherever it is installed.

    It takes some 20 ms, `code_stamp` a tenth of that."""
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((_PACKAGE / room).rglob("*")):
            if path.suffix in _SUFFIXES and path.suffix != ".so":
                name, data = path.relative_to(_PACKAGE).as_posix(), path.read_bytes()
                digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its path, its size in bytes, and when it was last used (nanoseconds)."""

    path: Path
    size: int
    used: int


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """Contents of a namespace: the number of entries, their size and its bound in bytes."""

    name: str
    entries: int
    size: int
    limit: int


class Store:
    """The store below `root` (the user's if None). Directories are created when the first entry is written."""

    def __init__(self, root: Path | str | None = None, *, limit: int | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()
        megabytes = os.environ.get("REWRITE_CACHE_LIMIT_MB", "")
        self.limit = limit if limit is not None else int(megabytes) << 20 if megabytes.isdigit() else LIMIT

    def namespace(self, name: str) -> Namespace:
        """Return a namespace of `SHARES`."""
        return Namespace(self, name, int(SHARES[name] * self.limit))

    def prepare(self, *below: str) -> Path:
        """Create the root and nested directories below it, private to the user; return the innermost.

        Raises UserError if that is impossible or one of them belongs to another user."""
        path = self.root
        for name in ("", *below):
            path /= name
            try:
                ownership.prepare(path)
            except OSError as error:
                foreign = isinstance(error, ownership.NotPrivate)
                message = f"the cache directory cannot be {'trusted' if foreign else 'created'}: {error.strerror}"
                raise UserError(message, where=str(path), hint=_OWN if foreign else _ELSEWHERE) from error
        return path

    def info(self) -> list[NamespaceInfo]:
        """Return the contents of all namespaces."""
        return [self.namespace(name).info() for name in SHARES]

    def clear(self) -> int:
        """Remove all entries; return the number of bytes freed. Raises UserError if something cannot be removed."""
        import shutil

        for name in SHARES:
            self.namespace(name).wait_for_writers()
        folders = [self.root / name for name in SHARES if (self.root / name).exists()]
        freed = sum(map(_size, folders))
        try:
            for folder in folders:
                shutil.rmtree(folder)
        except OSError as error:
            raise UserError(f"the cache cannot be cleared: {error}", where=str(self.root)) from error
        return freed


@dataclass(frozen=True, slots=True)
class Namespace:
    """The entries of one kind, of at most `limit` bytes together."""

    store: Store
    name: str
    limit: int

    @property
    def path(self) -> Path:
        """The directory of this namespace."""
        return self.store.root / self.name

    def info(self) -> NamespaceInfo:
        """Return the contents of this namespace."""
        sizes = [entry.size for entry in self.entries()]
        return NamespaceInfo(self.name, len(sizes), sum(sizes), self.limit)

    def prepare(self, *below: str) -> Path:
        """Create the directory of this namespace and those below; see `Store.prepare`."""
        return self.store.prepare(self.name, *below)

    def read(self, name: str) -> bytes | None:
        """Return the payload of a checksummed file; None if it is absent, damaged, or others could have written it."""
        try:
            checksum, _, payload = ownership.read(self.path / name).partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(payload).hexdigest().encode() != checksum:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path / name)
        return payload

    def write(self, name: str, payload: bytes, *, bare: bool = False) -> Path:
        """Write a file, with its checksum unless `bare`, and evict others if necessary; return its path.

        Raises UserError if the store cannot be written to."""
        *below, _ = name.split("/")
        self.prepare(*below)
        path = self.path / name
        try:
            write_atomic(path, payload if bare else hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
        except OSError as error:
            message = f"the cache cannot be written to: {error.strerror}"
            raise UserError(message, where=str(path.parent), hint=_ELSEWHERE) from error
        if path.match(_PATTERNS.get(self.name, "*")):
            self.evict(keep=path)
        return path

    def save(self, name: str, payload: bytes) -> None:
        """Write a checksummed file if possible: a full disk or an unusable directory only costs the entry."""
        with contextlib.suppress(UserError):
            self.write(name, payload)

    def use_directory(self, name: str, read: Callable[[Path], Result]) -> Result | None:
        """Return `read(path)` for a directory; None if it is absent.

        A damaged one (`read` raises RewriteError or OSError, or others could have written it) is discarded."""
        self.wait_for_writers()
        path = self.path / name
        if not path.is_dir():
            return None
        self.prepare()
        try:
            with self._lock(exclusive=False):
                ownership.check_tree(path)
                result = read(path)
        except ownership.NotPrivate as error:
            self.discard(name, f"others could have written {Path(error.filename).name}: {error.strerror}")
        except (RewriteError, OSError) as error:
            self.discard(name, str(error))
        else:
            with contextlib.suppress(OSError):
                os.utime(path)
            return result
        return None

    @contextlib.contextmanager
    def replacing_directory(self, name: str) -> Iterator[Path]:
        """Yield a path at which to create a directory, which becomes the entry when the block ends without an error.

        Raises OSError, and UserError as `prepare` does."""
        from . import scoped

        self.prepare()
        path = self.path / name
        with scoped.directory_beside(path) as temporary:
            yield temporary / "fresh"
            ownership.close_tree(temporary / "fresh")
            with self._lock(exclusive=True):
                if path.exists():
                    os.rename(path, temporary / "old")
                os.rename(temporary / "fresh", path)
                self.evict(keep=path)

    def write_in_background(self, work: Callable[[], None]) -> None:
        """Run `work`, which writes an entry, in a thread. It is finished before this process ends."""

        def write() -> None:
            try:
                work()
            finally:
                del _WRITERS[thread]

        thread = threading.Thread(target=write, name="rewrite.store")
        _WRITERS[thread] = self.path
        thread.start()

    def wait_for_writers(self) -> None:
        """Wait until other threads of this process have written the entries of this namespace that they write."""
        for thread, path in list(_WRITERS.items()):
            if path == self.path and thread is not threading.current_thread():
                thread.join()

    def has_space_for(self, size: int) -> bool:
        """Return whether an entry of `size` bytes takes at most half of the bound and of the free disk space."""
        import shutil

        return size <= min(self.limit, shutil.disk_usage(self.prepare()).free) // 2

    def discard(self, name: str, reason: str) -> None:
        """Remove a damaged entry, with a warning."""
        what = {"programs": "program", "kernels": "module of kernels", "headers": "header of kernels"}.get(
            self.name, "entry"
        )
        warnings.warn(f"a cached {what} is unusable ({reason}); it is rebuilt", stacklevel=3)
        _remove(self.path / name)

    def entries(self) -> list[Entry]:
        """Return the entries, the one used longest ago first."""
        self.wait_for_writers()
        found = []
        for path in self.path.glob(_PATTERNS.get(self.name, "*")):
            if not path.name.startswith("."):  # otherwise one that is being written
                with contextlib.suppress(OSError):
                    found.append(Entry(path, _size(path), path.stat().st_mtime_ns))
        return sorted(found, key=lambda entry: (entry.used, entry.path))

    def evict(self, keep: Path) -> None:
        """Remove the entries used longest ago, except the new entry `keep`, if all together exceed the bound."""
        total = _TOTALS.get(self.path)
        if total is not None and total + _size(keep) <= self.limit:
            _TOTALS[self.path] = total + _size(keep)
            return
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        if total > self.limit:
            for entry in entries:
                if total > self.limit * _LEFT and entry.path != keep:
                    _remove(entry.path)
                    total -= entry.size
        _TOTALS[self.path] = total

    @contextlib.contextmanager
    def _lock(self, *, exclusive: bool) -> Iterator[None]:
        """Hold an advisory lock on this namespace, on systems and file systems that have them."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        folder = os.open(self.path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(folder)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file that appears complete or not at all. Raises OSError."""
    from . import scoped

    with scoped.replacing(path, private=True) as file:
        file.write(data)


def _remove(path: Path) -> None:
    import shutil

    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size
