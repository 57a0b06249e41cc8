"""The per-user cache of compiled kernels.

    ROOT/kernels/TOOLCHAIN/MODULE.so        a compiled module
    ROOT/kernels/TOOLCHAIN/MODULE.json      its checksum and the kernels in it
    ROOT/kernels/TOOLCHAIN/index/KERNEL     the name of a module that has the kernel
    ROOT/programs/                          whole programs: see `programs`

ROOT is private to the user (mode 0700), and so is all that is in it, for it is executed: directories that belong to
another user are refused, rights of others to write to them are taken, and files that others own or may write to, or
that are links, are removed like those that don't match their checksums: with a warning, and so made anew. Files appear
atomically. When the whole outgrows its bound, the modules that were used longest ago go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import private, transient
from ..errors import UserError

LIMIT = 512 << 20
"""How many bytes of modules are kept; $REWRITE_CACHE_LIMIT_MB overrides it."""


def default_root() -> Path:
    """$REWRITE_CACHE_DIR, else the user's cache directory."""
    if os.environ.get("REWRITE_CACHE_DIR"):
        return Path(os.environ["REWRITE_CACHE_DIR"])
    import platformdirs

    return Path(platformdirs.user_cache_dir("onnx-rewrite", appauthor=False))


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What is in a cache."""

    root: Path
    modules: int
    kernels: int
    size: int  # bytes
    limit: int  # bytes


class Cache:
    """The cache below `root` (the default one if None). Nothing is made before it is needed."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.limit = _limit()

    def room(self, toolchain: str) -> Room:
        """The part for one combination of compiler, flags and CPU."""
        return Room(self, self.root / "kernels" / toolchain)

    def prepare(self, *below: str) -> Path:
        """Makes the root and directories in it, one in the other, private to the user; the last of them.

        Raises UserError if that can't be or one is another user's."""
        path = self.root
        for name in ("", *below):
            path /= name
            try:
                private.prepare(path)
            except private.NotPrivate as error:
                raise UserError(
                    f"the cache directory cannot be trusted: {error.strerror}", where=str(path), hint=_OWN
                ) from error
            except OSError as error:
                raise UserError(
                    f"the cache directory cannot be made: {error.strerror}", where=str(path), hint=_ELSEWHERE
                ) from error
        return path

    def _modules(self) -> list[Path]:
        return sorted((self.root / "kernels").glob("*/*.so"))

    def info(self) -> CacheInfo:
        """Counts and sizes."""
        modules = self._modules()
        kernels = sum(1 for _ in (self.root / "kernels").glob("*/index/*"))
        return CacheInfo(self.root, len(modules), kernels, sum(map(_size, modules)), self.limit)

    def clear(self) -> int:
        """Removes everything; the number of bytes freed. Raises UserError if something can't be removed."""
        rooms = [room for room in (self.root / "kernels", self.root / "programs") if room.exists()]
        freed = sum(_size(path) for room in rooms for path in room.rglob("*") if path.is_file())
        try:
            for room in rooms:
                shutil.rmtree(room)
        except OSError as error:
            raise UserError(f"the cache cannot be cleared: {error}", where=str(self.root)) from error
        return freed

    def evict(self, keep: Iterable[Path] = ()) -> None:
        """Removes the modules used longest ago until the rest fits the bound; never those in `keep`."""
        kept = set(keep)
        modules = [(path, _size(path), _used(path)) for path in self._modules()]
        excess = sum(size for _, size, _ in modules) - self.limit
        for path, size, _ in sorted(modules, key=lambda m: (m[2], m[0])):
            if excess <= 0:
                break
            if path not in kept:
                Room(self, path.parent).remove(path.stem)
                excess -= size


@dataclass(frozen=True, slots=True)
class Room:
    """The modules made by one toolchain for one CPU."""

    cache: Cache
    path: Path

    def find(self, kernels: Iterable[str]) -> dict[str, tuple[Path, tuple[str, ...]]]:
        """The modules that have any of these kernels, checked against their checksums: file and all kernels in it, by
        module name."""
        modules: dict[str, tuple[Path, tuple[str, ...]]] = {}
        bad: set[str] = set()
        if not self.path.is_dir():
            return modules
        self._prepare()
        for kernel in kernels:
            try:
                module = private.read(self.path / "index" / kernel).decode().strip()
            except (OSError, UnicodeDecodeError):
                continue
            if module in modules or module in bad:
                continue
            try:
                members = self._members(module)
            except _Damage as damage:
                bad.add(module)
                self.discard(module, str(damage))
                continue
            if members is None:
                bad.add(module)
                continue
            modules[module] = (self._library(module), members)
            with contextlib.suppress(OSError):
                os.utime(self._library(module))
        return modules

    def _prepare(self) -> None:
        self.cache.prepare("kernels", self.path.name, "index")

    def _library(self, module: str) -> Path:
        return self.path / f"{module}.so"

    def _members(self, module: str) -> tuple[str, ...] | None:
        """The kernels of a module, None if it isn't there (evicted). Raises _Damage."""
        if not module.isalnum():
            raise _Damage("its index is damaged")
        try:
            manifest = json.loads(private.read(self.path / f"{module}.json"))
            data = private.read(self._library(module))
            checksum, members = manifest["checksum"], tuple(map(str, manifest["kernels"]))
        except FileNotFoundError:
            return None
        except private.NotPrivate as error:
            raise _Damage(f"others could have written it: {error.strerror}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _Damage("its manifest is damaged") from error
        if _checksum(data) != checksum:
            raise _Damage("its checksum is wrong")
        return members

    def store(self, module: str, data: bytes, kernels: Sequence[str]) -> Path:
        """Adds a module; its file. Raises UserError if the cache can't be written."""
        self._prepare()
        try:
            manifest = {"checksum": _checksum(data), "kernels": list(kernels)}
            write_atomic(self._library(module), data)
            write_atomic(self.path / f"{module}.json", json.dumps(manifest).encode())
            for kernel in kernels:
                write_atomic(self.path / "index" / kernel, module.encode())
        except OSError as error:
            raise UserError(
                f"the cache cannot be written: {error.strerror}", where=str(self.path), hint=_ELSEWHERE
            ) from error
        self.cache.evict(keep=[self._library(module)])
        return self._library(module)

    def discard(self, module: str, reason: str) -> None:
        """Removes a damaged module and says so."""
        warnings.warn(f"a cached module of kernels is unusable ({reason}); it is made anew", stacklevel=2)
        self.remove(module)

    def remove(self, module: str) -> None:
        """Removes a module. Index entries that name it count as missing from then on."""
        for suffix in (".so", ".json"):
            with contextlib.suppress(OSError):
                (self.path / f"{module}{suffix}").unlink()


class _Damage(Exception):
    """A module that cannot be used, and why."""


_OWN = "What is in it is executed. Set REWRITE_CACHE_DIR to a directory of your own."
_ELSEWHERE = "Set REWRITE_CACHE_DIR to a directory that you can write to."


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file that appears complete or not at all. Raises OSError."""
    with transient.replacing(path, private=True) as file:
        file.write(data)


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _used(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _limit() -> int:
    text = os.environ.get("REWRITE_CACHE_LIMIT_MB", "")
    return int(text) << 20 if text.isdigit() else LIMIT
