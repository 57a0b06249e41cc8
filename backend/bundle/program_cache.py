"""The cache of compiled programs: a namespace of the store. A model compiled before loads in a fraction of a second.

    ROOT/programs/KEY/              a bundle
    ROOT/programs/KEY/model.rest    the parts of the optimized model that are not in the original, if it was written too
    ROOT/programs/KEY/notes.json    how both make up the optimized model, the report of the run, and checksums

A key covers everything that decides what a model becomes: its bytes, the settings, the rule files, the CPU, and the
files of this package. Models with data in files of their own are not cached. Files are copied by the kernel, which on
some file systems stores nothing twice. None is shared with files given out, because those may be written to.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...engine.ir.detached_model import DetachedModel
from ...errors import RewriteError, UserError
from ...system import scoped
from ...system.file_contents import checksum_of, checksum_of_file, copy_file, copy_range, size_and_crc
from ...system.store import Store, code_stamp, content_key
from ..ir.target import detect

if TYPE_CHECKING:
    from ..runtime.program import Program

LOG = logging.getLogger("rewrite.cache")
_ROOMS = ("", "system", "grammar", "engine", "backend", "rules")
_EXTERNAL = b"location"  # the key of an external tensor's entry that says which file it is in
_PREFIX = 16
"""Digits at the start of a key that do not depend on the model's contents, only on its size and all else."""
_READ = 64 << 20
"""Size in bytes up to which a model is read rather than mapped."""
_REST, _NOTES = "model.rest", "notes.json"
Part = tuple[int, int]
"""A run of bytes in an optimized model: its offset in the original (-1: it is not from there) and its length."""


@dataclass(frozen=True, slots=True)
class CachedRun:
    """The outputs of an earlier run: the bundle, the parts of the optimized model, and notes."""

    bundle: Path
    parts: tuple[Part, ...]
    notes: Any

    def load(self, threads: int) -> Program:
        """Load the program. Raises `UserError` if that is impossible."""
        from .load_bundle import load

        return load(self.bundle, threads=threads, cached=True)

    def write_model(self, original: Path, out: BinaryIO) -> None:
        """Write the optimized model, taking its other parts from the original. Raises OSError."""
        with open(original, "rb") as own, open(self.bundle / _REST, "rb") as rest:
            at = 0
            for start, size in self.parts:
                copy_range(own if start >= 0 else rest, at if start < 0 else start, size, out)
                at += size if start < 0 else 0

    def copy_bundle(self, target: Path) -> None:
        """Write the bundle to another path, as it was written before. Raises OSError."""
        with scoped.directory_beside(target) as temporary:
            fresh = temporary / "fresh"
            shutil.copytree(self.bundle, fresh, ignore=shutil.ignore_patterns(_REST, _NOTES), copy_function=copy_file)
            if target.exists():
                os.rename(target, temporary / "old")
            os.rename(fresh, target)


class ProgramCache:
    """The programs in a store (the user's if None)."""

    def __init__(self, store: Store | None = None) -> None:
        self._entries = (store or Store()).namespace("programs")

    def key(
        self,
        model: Path | bytes | DetachedModel,
        settings: Mapping[str, Any],
        rules: Mapping[str, str] | None = None,
        *,
        mapped: bool = False,
    ) -> str | None:
        """Return the key of a model compiled with these settings and rules; None if it is not to be cached.

        With `mapped`, a large file is mapped to be hashed, in half the time: the process dies if it is truncated then.

        A model is a file, its contents, or a `DetachedModel`; `repr` of settings must tell them apart; rules are the
        texts of rule files by path. Raises OSError if the model cannot be read."""
        most = self._entries.limit // 2
        checksum: str | None = None
        if isinstance(model, DetachedModel):
            size = model.nbytes
            checksum = model.checksum() if size <= most else None
        elif isinstance(model, Path):
            size = model.stat().st_size
            if 0 < size <= most and not _may_be_elsewhere(contents := _contents(model)):
                read = mapped or isinstance(contents, bytes)
                checksum = checksum_of(memoryview(contents)) if read else checksum_of_file(model)
        else:
            size = len(model)
            checksum = checksum_of(memoryview(model)) if 0 < size <= most and not _may_be_elsewhere(model) else None
        if checksum is None:
            return None
        context = _context(size, settings, rules)
        return f"{content_key(context)[:_PREFIX]}-{content_key(checksum, context)}"

    def may_have(
        self,
        model: Path | bytes | DetachedModel,
        settings: Mapping[str, Any],
        rules: Mapping[str, str] | None = None,
    ) -> bool:
        """Return whether a program of a model of this size was cached with these settings and rules.

        It takes no time, as the model is not read. Raises OSError if there is no such model."""
        if isinstance(model, DetachedModel):
            size = model.nbytes
        else:
            size = len(model) if isinstance(model, bytes) else model.stat().st_size
        start = content_key(_context(size, settings, rules))[:_PREFIX]
        self._entries.wait_for_writers()
        found = any(True for _ in self._entries.path.glob(f"{start}-*"))
        if not found:
            LOG.info("nothing cached for a model of %d bytes with these settings", size)
        return found

    def find(self, key: str, *, threads: int) -> Program | None:
        """Load the program with this key, if there is one. Discards a damaged one with a warning."""
        from .load_bundle import load

        found = self._entries.use_directory(key, lambda path: load(path, threads=threads, complete=True))
        LOG.info("program %.12s %s", key, "found" if found is not None else "not cached")
        return found

    def add(self, key: str, program: Program) -> None:
        """Cache a program, unless it is too large for the bound or the disk."""
        with contextlib.suppress(OSError, UserError):  # without a usable directory nothing is cached
            size = sum(c.nbytes for _, plan in program.variants for c in plan.constants.values())
            if self._entries.has_space_for(size):
                with self._entries.replacing_directory(key) as fresh:
                    program.save(fresh)

    def add_in_background(self, key: Callable[[], str | None], program: Program) -> None:
        """Cache a program under `key()`, unless that is None, in a thread; what reads programs later waits for it."""

        def work() -> None:
            if (name := key()) is not None:
                self.add(name, program)

        self._entries.write_in_background(work)

    def find_run(self, key: str) -> CachedRun | None:
        """Return the run cached with this key by `add_run`. Discards a damaged one with a warning."""
        if not (self._entries.path / key / _NOTES).is_file():
            LOG.info("run %.12s not cached", key)
            return None
        LOG.info("run %.12s found", key)
        return self._entries.use_directory(key, _read_run)

    def add_run(self, key: str, bundle: Path, model: Path, parts: Sequence[Part], notes: Any) -> None:
        """Cache the outputs of a run, with notes (plain JSON), unless they are too large for the bound or the disk."""
        with contextlib.suppress(OSError, UserError):  # as in `add`
            size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
            if not self._entries.has_space_for(size + sum(length for start, length in parts if start < 0)):
                return
            with self._entries.replacing_directory(key) as fresh:
                fresh.mkdir()
                with ThreadPoolExecutor(1) as pool:
                    rest = pool.submit(_write_rest, model, parts, fresh / _REST)
                    shutil.copytree(bundle, fresh, copy_function=copy_file, dirs_exist_ok=True)
                    rest.result()
                about = {"files": _checks(fresh), "parts": parts, "notes": notes}
                (fresh / _NOTES).write_text(json.dumps(about))

    def entries(self) -> list[Path]:
        """Return the directories of all programs."""
        return [entry.path for entry in self._entries.entries()]


def _context(size: int, settings: Mapping[str, Any], rules: Mapping[str, str] | None) -> str:
    """Return what decides about a program besides the bytes of the model, of which there are `size`."""
    machine = (detect(), os.environ.get("CC"), code_stamp(*_ROOMS))
    return repr((size, sorted(settings.items()), sorted((rules or {}).items()), machine))


def _read_run(path: Path) -> CachedRun:
    """Return the run in a directory. Raises OSError, and RewriteError if its files have changed."""
    try:
        found = json.loads((path / _NOTES).read_bytes())
        wanted = {name: tuple(about) for name, about in found["files"].items()}
        parts = tuple((int(start), int(size)) for start, size in found["parts"])
        notes = found["notes"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RewriteError(f"{_NOTES} is damaged") from error
    there = _checks(path)
    for name in sorted({*there, *wanted}):
        if there.get(name) != wanted.get(name):
            raise RewriteError(f"{name} has changed")
    return CachedRun(path, parts, notes)


def _write_rest(model: Path, parts: Sequence[Part], rest: Path) -> None:
    """Write the parts of a model that are not in its original. Raises OSError."""
    with open(model, "rb") as whole, open(rest, "wb") as out:
        at = 0
        for start, length in parts:
            if start < 0:
                copy_range(whole, at, length, out)
            at += length


def _checks(entry: Path) -> dict[str, tuple[int, int]]:
    """Return the size and checksum of each file of an entry, except the notes, by name."""
    files = sorted(path for path in entry.rglob("*") if path.is_file() and path.name != _NOTES)
    return {path.relative_to(entry).as_posix(): size_and_crc(path) for path in files}


def _contents(path: Path) -> bytes | mmap.mmap:
    """Return the contents of a file, mapped if it is large. Raises OSError.

    A process dies if a file that it has mapped is truncated. Small models, which are overwritten more often, are read.
    A map is never closed, as an interrupt may leave parts of it in use."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return file.read() if size <= _READ else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _may_be_elsewhere(contents: bytes | mmap.mmap) -> bool:
    """Return whether a serialized model may have data in other files: `location` occurs outside of its weights."""
    from ...engine.onnx_io.protobuf_wire import Malformed, outside  # loads NumPy: `may_have` returns before that

    try:
        return _EXTERNAL in outside(memoryview(contents))
    except Malformed:
        return True  # reading it reports the error
