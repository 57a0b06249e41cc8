"""The cache of compiled programs: a model that was compiled before is loaded, in a fraction of a second.

    ROOT/programs/KEY/              a bundle
    ROOT/programs/KEY/model.rest    where the optimised model was written too: what in it is not in the original
    ROOT/programs/KEY/notes.json    of which parts of both the optimised model is made, what was told, and checksums

A key is a hash of all that decides what a model becomes: its bytes, the settings, the rule files, the CPU, and the
files of this package. Models with data in files of their own are not kept. When the whole outgrows its bound, the
programs that were loaded longest ago go. Entries are bundles: what is damaged is noticed and made anew. Files are
copied by the kernel, which on some file systems stores nothing twice; none is shared with what is given out, for that
may be written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .. import private, transient
from ..checksum import checksum_of, quick
from ..copying import copy_file, copy_range
from ..engine.wire import Malformed, outside
from ..errors import RewriteError, UserError
from .cache import Cache
from .target import detect

if TYPE_CHECKING:
    from .program import Program

_PACKAGE = Path(__file__).resolve().parent.parent
_ROOMS = ("", "grammar", "engine", "backend", "rules")
_EXTERNAL = b"location"  # the key of an external tensor's entry that says which file it is in
_REST, _NOTES = "model.rest", "notes.json"
Part = tuple[int, int]
"""A stretch of bytes in an optimised model: where it begins in the original (-1: it is not from there), its length."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was written for a model before: the bundle, the parts of the optimised model, and what was told."""

    bundle: Path
    parts: tuple[Part, ...]
    notes: Any

    def load(self, threads: int) -> Program:
        """The program. Raises `UserError` if it cannot be loaded."""
        from .bundle import load

        return load(self.bundle, threads=threads)

    def write_model(self, original: Path, out: BinaryIO) -> None:
        """Writes the optimised model again, with the help of the file that it was made of. Raises OSError."""
        with open(original, "rb") as own, open(self.bundle / _REST, "rb") as rest:
            at = 0
            for start, size in self.parts:
                copy_range(own if start >= 0 else rest, at if start < 0 else start, size, out)
                at += size if start < 0 else 0


class Programs:
    """The programs in a cache (the user's if None), which take at most `limit` bytes."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache or Cache()
        self.limit = 4 * self._cache.limit
        self._root = self._cache.root / "programs"

    def key(
        self,
        model: Path | bytes,
        settings: Mapping[str, Any],
        rules: Mapping[str, str] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> str | None:
        """The key of a model (a file, or what is in one) compiled with these settings (of which `repr` tells all) and
        rules (the texts of all their files by path); None for one that is not kept. `meanwhile` may be called beside
        the work. Raises OSError if the model cannot be read."""
        data = memoryview(model if isinstance(model, bytes) else _mapped(model))
        if not 0 < len(data) <= self.limit // 2 or _may_be_elsewhere(data):
            return None
        digest = hashlib.sha256(checksum_of(data, meanwhile).encode())
        digest.update(repr(sorted((rules or {}).items())).encode())
        digest.update(repr((sorted(settings.items()), detect(), os.environ.get("CC"), _package())).encode())
        return digest.hexdigest()[:40]

    def find(self, key: str, *, threads: int) -> Program | None:
        """The program with this key, if there is one. Warns of a damaged one, and removes it."""
        from .bundle import is_bundle, load

        place = self._root / key
        if not is_bundle(place):
            return None
        self._cache.prepare("programs")
        try:
            _check_private(place)
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
            self._cache.prepare("programs")
            size = sum(c.nbytes for _, plan in program.variants for c in plan.constants.values())
            if size > min(self.limit, shutil.disk_usage(self._root).free) // 2:
                return
            with transient.directory_beside(self._root / key) as temporary:
                fresh = program.save(temporary / "fresh")
                self._place(fresh, key, temporary)
            self._evict(self._root / key)

    def written(self, key: str) -> Kept | None:
        """All that was kept with this key by `keep`, if there is anything. Warns of what is damaged, and removes it."""
        place = self._root / key
        if not (place / _NOTES).is_file():
            return None
        self._cache.prepare("programs")
        try:
            _check_private(place)
            found = json.loads((place / _NOTES).read_bytes())
            there, wanted = _checks(place), {name: tuple(about) for name, about in found["files"].items()}
            if there == wanted:
                parts = tuple((int(start), int(size)) for start, size in found["parts"])
                with contextlib.suppress(OSError):
                    os.utime(place)
                return Kept(place, parts, found["notes"])
            wrong = [name for name in sorted({*there, *wanted}) if there.get(name) != wanted.get(name)]
            error = f"{wrong[0]} has changed"
        except (RewriteError, OSError, ValueError, LookupError, TypeError, AttributeError) as failure:
            error = str(failure)
        warnings.warn(f"a cached program is unusable ({error}); it is made anew", stacklevel=2)
        shutil.rmtree(place, ignore_errors=True)
        return None

    def keep(self, key: str, bundle: Path, model: Path, parts: Sequence[Part], notes: Any) -> None:
        """Keeps what was written for a model, the bundle and the optimised model, which is made of these parts, with
        notes (plain JSON); unless it is too large for the bound or the disk."""
        with contextlib.suppress(OSError, UserError):  # as in `store`
            self._cache.prepare("programs")
            size = _size(bundle) + sum(length for start, length in parts if start < 0)
            if size > min(self.limit, shutil.disk_usage(self._root).free) // 2:
                return
            with transient.directory_beside(self._root / key) as temporary:
                fresh = temporary / "fresh"
                fresh.mkdir()
                with ThreadPoolExecutor(1) as pool:
                    rest = pool.submit(_write_rest, model, parts, fresh / _REST)
                    shutil.copytree(bundle, fresh, copy_function=copy_file, dirs_exist_ok=True)
                    rest.result()
                about = {"files": _checks(fresh), "parts": parts, "notes": notes}
                (fresh / _NOTES).write_text(json.dumps(about))
                self._place(fresh, key, temporary)
            self._evict(self._root / key)

    def _place(self, fresh: Path, key: str, temporary: Path) -> None:
        """Puts an entry into its place; the one that was there goes to a temporary directory. Raises OSError."""
        private.close_tree(fresh)
        if (self._root / key).exists():
            os.rename(self._root / key, temporary / "old")
        os.rename(fresh, self._root / key)

    def copy(self, kept: Kept, bundle: Path) -> None:
        """Writes the bundle of a kept program to another place, as it was written before. Raises OSError."""
        with transient.directory_beside(bundle) as temporary:
            fresh = temporary / "fresh"
            others = shutil.ignore_patterns(_REST, _NOTES)
            shutil.copytree(kept.bundle, fresh, ignore=others, copy_function=copy_file)
            if bundle.exists():
                os.rename(bundle, temporary / "old")
            os.rename(fresh, bundle)

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


def _check_private(entry: Path) -> None:
    """Raises `UserError` if others could have written anything of an entry."""
    try:
        private.check_tree(entry)
    except private.NotPrivate as error:
        name = Path(error.filename).name
        raise UserError(f"others could have written {name}: {error.strerror}", where=str(entry)) from error


def _write_rest(model: Path, parts: Sequence[Part], rest: Path) -> None:
    """Writes what is in a model and not in its original. Raises OSError."""
    with open(model, "rb") as whole, open(rest, "wb") as out:
        at = 0
        for start, length in parts:
            if start < 0:
                copy_range(whole, at, length, out)
            at += length


def _checks(entry: Path) -> dict[str, tuple[int, int]]:
    """Sizes and checksums of the files of an entry, by name, but for the notes."""
    files = sorted(path for path in entry.rglob("*") if path.is_file() and path.name != _NOTES)
    return {path.relative_to(entry).as_posix(): quick(path) for path in files}


def _mapped(path: Path) -> bytes | mmap.mmap:
    """The bytes of a file. Not closed: an interrupt may leave parts of it in use. Raises OSError."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _may_be_elsewhere(model: memoryview) -> bool:
    """Whether a serialised model may have data in other files: it has the word that says so outside of weights."""
    try:
        return _EXTERNAL in outside(model)
    except Malformed:
        return True  # it is refused when it is read


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
