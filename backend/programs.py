"""The cache of compiled programs: a model that was compiled before is loaded, in a fraction of a second.

    ROOT/programs/KEY/    a bundle

A key is a hash of all that decides what a model becomes: its bytes, the settings, the rule files, the CPU, and the
files of this package. Models with data in files of their own are not kept. When the whole outgrows its bound, the
programs that were loaded longest ago go. Entries are bundles: what is damaged is noticed and made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RewriteError, UserError
from .cache import Cache
from .target import detect

if TYPE_CHECKING:
    from .program import Program

_PACKAGE = Path(__file__).resolve().parent.parent
_ROOMS = ("", "grammar", "engine", "backend", "rules")
_EXTERNAL = b"location"  # the key of an external tensor's entry that says which file it is in


class Programs:
    """The programs in a cache (the user's if None), which take at most `limit` bytes."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache or Cache()
        self.limit = 4 * self._cache.limit
        self._root = self._cache.root / "programs"

    def key(self, model: Path, settings: Mapping[str, Any], rules: Iterable[Path] = ()) -> str | None:
        """The key of a model compiled with these settings (of which `repr` tells all) and rule files; None for one that
        is not kept. Raises OSError if a file cannot be read."""
        digest = hashlib.sha256()
        with open(model, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 < size <= self.limit // 2:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data.find(_EXTERNAL) >= 0:
                    return None
                digest.update(data)
        for path in rules:
            for rule_file in sorted(path.rglob("*.rules")) if path.is_dir() else [path]:
                digest.update(repr(str(rule_file)).encode() + rule_file.read_bytes())
        digest.update(repr((sorted(settings.items()), detect(), os.environ.get("CC"), _package())).encode())
        return digest.hexdigest()[:40]

    def find(self, key: str, *, threads: int) -> Program | None:
        """The program with this key, if there is one. Warns of a damaged one, and removes it."""
        from .bundle import is_bundle, load

        place = self._root / key
        if not is_bundle(place):
            return None
        self._cache.prepare()
        try:
            program = load(place, threads=threads)
        except RewriteError as error:
            warnings.warn(f"a cached program is unusable ({error}); it is made anew", stacklevel=3)
            shutil.rmtree(place, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return program

    def store(self, key: str, program: Program) -> None:
        """Keeps a program, unless it is too large for the bound or the disk."""
        with contextlib.suppress(OSError, UserError):  # a cache that cannot be written is no cache, and no error
            self._cache.prepare()
            self._root.mkdir(parents=True, exist_ok=True)
            size = sum(c.nbytes for _, plan in program.variants for c in plan.constants.values())
            if size > min(self.limit, shutil.disk_usage(self._root).free) // 2:
                return
            program.save(self._root / key)
            self._evict(self._root / key)

    def _evict(self, keep: Path) -> None:
        entries = sorted(self.entries(), key=lambda entry: entry.stat().st_mtime_ns)
        sizes = {entry: _size(entry) for entry in entries}
        excess = sum(sizes.values()) - self.limit
        for entry in entries:
            if excess > 0 and entry != keep:
                shutil.rmtree(entry, ignore_errors=True)
                excess -= sizes[entry]

    def entries(self) -> list[Path]:
        """The bundles."""
        return sorted(path.parent for path in self._root.glob("*/manifest.json"))

    def size(self) -> int:
        """The bytes of all."""
        return sum(map(_size, self.entries()))


def _size(entry: Path) -> int:
    return sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())


@cache
def _package() -> str:
    """What the files of this package are: names, sizes and times of change."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        paths = (_PACKAGE / room).rglob("*") if room else _PACKAGE.glob("*.py")
        for path in sorted(p for p in paths if p.suffix in (".py", ".so", ".rules", ".j2", ".h", ".lark")):
            found = path.stat()
            digest.update(repr((str(path), found.st_size, found.st_mtime_ns)).encode())
    return digest.hexdigest()
