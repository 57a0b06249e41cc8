"""Checked libraries, kept by the content of their files: loading one again parses, checks and expands nothing.

An entry is JSON: a checksum; the files it was made of with their digests; an index of the items; and each item's syntax
tree on a line of its own, which is read when somebody asks for it. The key covers the paths, this program and the
operators that the checks were given. Nothing in an entry is executed; entries that are damaged, out of date, or could
have been written by another user are as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache as once
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .. import private
from . import ast, cache
from .library import Library, load_fresh, load_unchecked
from .operator_info import OperatorInfo

FORMAT = 1
MAX_ENTRIES = 32
_FIELDS = {"Rule": "rules", "Op": "ops", "Fuse": "fuses", "Ruleset": "rulesets", "Schedule": "schedules",
           "UseDomain": "domains"}  # fmt: skip
_DERIVED = "Derived"
_E = TypeVar("_E", bound="Entries")


class Keeper(Protocol):
    """What else is kept of a library by who loads it."""

    def derived(self, library: Library) -> Sequence[ast.Rule]:
        """Rules that follow from other items."""

    def facts(self, item: ast.Item) -> Any:
        """What is to be known of an item without its syntax tree, as plain JSON."""


@dataclass(slots=True)
class Entry:
    """One item of a kept library: what the index says, and its syntax tree when asked for."""

    kind: str
    name: str
    file: str
    line: int
    facts: Any
    _text: bytes = b""
    _item: Any = None

    @property
    def item(self) -> Any:
        """The syntax tree."""
        if self._item is None:
            self._item = cache.decode(json.loads(self._text), self.file)
        return self._item


class Entries(Library):
    """A library whose fields are made when they are asked for."""

    __slots__ = ("_whole", "entries")

    entries: list[Entry]
    _whole: Callable[[], Library]

    def __getattr__(self, name: str) -> Any:
        """A field that was not asked for before."""
        if name not in {f.name for f in fields(Library)}:
            raise AttributeError(name)
        kind = next((k for k, field in _FIELDS.items() if field == name), None)
        if kind is None:
            value = getattr(self._whole(), name)
        else:
            value = tuple(e.item for e in self.entries if e.kind == kind)
        object.__setattr__(self, name, value)
        return value

    def places(self) -> dict[str, tuple[str, int]]:
        """The file and line of every rule and operator."""
        if getattr(self, "entries", None) is None:  # a copy with other contents
            return Library.places(self)
        return {e.name: (e.file, e.line) for e in self.entries if e.kind in ("Rule", "Op")}


class KeptLibrary(Entries):
    """A library that was read from what is kept, and each of its items when it is asked for."""

    __slots__ = ()


def load(paths: Iterable[str | Path], operators: OperatorInfo, keeper: Keeper) -> Library:
    """As `library.load`, from what is kept if that is possible."""
    asked = [Path(p) for p in paths]
    name = _key(asked, operators, keeper)
    known = _load(name, asked, operators)
    if known is not None:
        return known
    library, sources = load_fresh(asked, operators, warn=False)
    made = _made(library, _entries(library, keeper), asked, operators)
    _store(name, made.entries, sources)
    return made


def begin(paths: Iterable[str | Path], operators: OperatorInfo, keeper: Keeper) -> tuple[Library, Callable[[], None]]:
    """As `load`, for rules that are right as far as one knows: when the function is called, in another thread perhaps,
    they are checked and kept. Raises as `load` does for rules that can't even be read, and that function for others."""
    asked = [Path(p) for p in paths]
    name = _key(asked, operators, keeper)
    known = _load(name, asked, operators)
    if known is not None:
        return known, lambda: None
    library, sources, check = load_unchecked(asked, operators)
    try:
        made = _made(library, _entries(library, keeper), asked, operators)
    except Exception:
        check(False)  # tells what is wrong with the rules
        raise

    def finish() -> None:
        check(False)
        _store(name, made.entries, sources)

    return made, finish


def _made(library: Library, entries: list[Entry], paths: Sequence[Path], operators: OperatorInfo) -> Entries:
    """A library that was read from its files, with its entries."""
    made = _library(Entries, entries, paths, operators)
    for field in fields(Library):
        if field.name != "warnings":
            object.__setattr__(made, field.name, getattr(library, field.name))
    return made


def _key(paths: Sequence[Path], operators: OperatorInfo, keeper: Keeper) -> str:
    """Says which files are asked for, in what order, and by what program."""
    listed = [[str(p), *(map(str, sorted(p.rglob("*.rules"))) if p.is_dir() else ())] for p in paths]
    where = os.getcwd() if any(not p.is_absolute() for p in paths) else ""
    known = repr((FORMAT, _code(), operators.version(), type(keeper).__name__, where, listed))
    return hashlib.sha256(known.encode()).hexdigest()


@once
def _code() -> str:
    """What changes when this program changes: names, sizes and times of the modules that may take part."""
    found = []
    package = Path(__file__).parent.parent
    for folder in (package / "grammar", package / "engine"):
        for place, _, _ in os.walk(folder):
            with os.scandir(place) as inside:
                for file in inside:
                    if file.name.endswith((".py", ".lark")):
                        about = file.stat()
                        found.append((file.path, about.st_size, about.st_mtime_ns))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _load(name: str, paths: Sequence[Path], operators: OperatorInfo) -> KeptLibrary | None:
    try:
        checksum, _, payload = private.read(cache.directory() / f"library-{name}.json").partition(b"\n")
        if _digest(payload) != checksum.decode():
            return None
        head, *texts = payload.split(b"\n")
        sources, index = json.loads(head)
        if any(_digest(Path(path).read_text(encoding="utf-8").encode()) != digest for path, digest in sources):
            return None
        entries = [
            Entry(kind, name, where, line, facts, text)
            for (kind, name, where, line, facts), text in zip(index, texts, strict=True)
        ]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return _library(KeptLibrary, entries, paths, operators)


def _library(kind: type[_E], entries: list[Entry], paths: Sequence[Path], operators: OperatorInfo) -> _E:
    """A library of entries; what they don't have, warnings among it, is worked out when it is asked for."""
    library = object.__new__(kind)
    object.__setattr__(library, "entries", entries)
    object.__setattr__(library, "_whole", once(lambda: load_fresh(paths, operators)[0]))
    return library


def _entries(library: Library, keeper: Keeper) -> list[Entry]:
    """The items of a library as entries."""
    items = [(field_kind, item) for field_kind, field in _FIELDS.items() for item in getattr(library, field)]
    items += [(_DERIVED, rule) for rule in keeper.derived(library)]
    return [
        Entry(kind, getattr(item, "name", ""), item.span.file, item.span.line, keeper.facts(item), _item=item)
        for kind, item in items
    ]


def _store(name: str, entries: Sequence[Entry], sources: Mapping[str, str]) -> None:
    """Keep an entry. Where that is impossible (a full disk, a directory of others) there will be none."""
    from .. import transient

    index = [[e.kind, e.name, e.file, e.line, e.facts] for e in entries]
    files = [[path, _digest(text.encode())] for path, text in sources.items()]
    lines = [json.dumps([files, index], separators=(",", ":"), ensure_ascii=False)]
    lines += [json.dumps(cache.encode(e.item, e.file), separators=(",", ":"), ensure_ascii=False) for e in entries]
    payload = "\n".join(lines).encode()
    with contextlib.suppress(OSError):
        folder = cache.prepared()
        with transient.replacing(folder / f"library-{name}.json", private=True) as out:
            out.write(_digest(payload).encode() + b"\n" + payload)
        kept = sorted(folder.glob("library-*.json"), key=lambda e: (e.stat().st_mtime, e.name))
        for entry in kept[:-MAX_ENTRIES]:
            entry.unlink(missing_ok=True)
