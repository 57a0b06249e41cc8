"""Cache of checked libraries: loading one again parses, checks and expands nothing.

An entry is JSON lines: the files with their digests, an index of the items, then one syntax tree per line, decoded on
demand. The key covers the paths, this program and the table of operators.

A package can bring the entry of its own rules, so that its first run after the installation does without these steps as
well (`prepare`). In that file the directory of the rules is a zero byte, which JSON cannot contain.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ...system.store import Store, code_digest, code_stamp, content_key
from ..operator_info import OperatorInfo
from ..syntax import ast, tree_json
from .load import KINDS, Library, load_fresh


class Annotator(Protocol):
    """Source of the data that is cached beside a library's items."""

    def derived(self, library: Library) -> Sequence[ast.Rule]:
        """Return rules that follow from other items."""

    def facts(self, item: ast.Item) -> Any:
        """Return what is needed of an item without its syntax tree, as plain JSON."""


@dataclass
class Entry:
    """One item of a cached library: its index record, and its syntax tree on demand."""

    kind: str
    name: str
    file: str
    line: int
    facts: Any
    text: bytes = b""

    def __repr__(self) -> str:
        return f"<Entry {self.kind} {self.name} at {self.file}:{self.line}>"

    @cached_property
    def item(self) -> Any:
        """The syntax tree."""
        return tree_json.decode(json.loads(self.text), self.file)


def entries_of(library: Library, annotator: Annotator) -> list[Entry]:
    """Return the items of a library as entries, and the rules that follow from them as `Derived`."""
    items = [(kind.__name__, item) for name, kind in KINDS.items() for item in getattr(library, name)]
    entries = []
    for kind, item in (*items, *(("Derived", rule) for rule in annotator.derived(library))):
        entry = Entry(kind, getattr(item, "name", ""), item.span.file, item.span.line, annotator.facts(item))
        entry.item = item
        entries.append(entry)
    return entries


class LazyLibrary(Library):
    """A library of entries; other fields, such as warnings, are computed from the files on first access."""

    __slots__ = ("_paths_and_operators", "entries")

    entries: list[Entry]
    _paths_and_operators: tuple[Sequence[Path], OperatorInfo]

    def __getattr__(self, name: str) -> Any:
        """Compute a field."""
        if name not in Library.__dataclass_fields__:
            raise AttributeError(name)
        if name in KINDS:
            found = {name: tuple(e.item for e in self.entries if e.kind == KINDS[name].__name__)}
        else:
            whole = load_fresh(*self._paths_and_operators)[0]
            found = {field: getattr(whole, field) for field in ("files", "defs", "warnings")}
        self._set(**found)
        return found[name]

    def _set(self, **found: Any) -> None:
        for field, value in found.items():
            object.__setattr__(self, field, value)

    def places(self) -> dict[str, tuple[str, int]]:
        """Return the file and line of every rule and operator."""
        if getattr(self, "entries", None) is None:  # a copy with other contents
            return Library.places(self)
        return {e.name: (e.file, e.line) for e in self.entries if e.kind in ("Rule", "Op")}


def load(
    paths: Iterable[str | Path], operators: OperatorInfo, annotator: Annotator, *, prepared: Path | None = None
) -> Library:
    """Load a library as `library.load` does, from the cache if possible, else from the file of `prepare` if it fits."""
    asked = [Path(p) for p in paths]
    found = find(asked, operators, annotator, prepared=prepared)
    if found is not None:
        return found
    whole, sources = load_fresh(asked, operators, warn=False)
    entries = entries_of(whole, annotator)
    Store().namespace("libraries").save(_key(asked, operators, annotator), _payload(entries, sources))
    library = _lazy(entries, asked, operators)
    library._set(files=whole.files, defs=whole.defs)
    return library


def find(
    asked: Sequence[Path], operators: OperatorInfo, annotator: Annotator, *, prepared: Path | None = None
) -> LazyLibrary | None:
    """Return a library that need not be parsed, as `load` does; None if it must be."""
    name = _key(asked, operators, annotator)
    entries = _parse(Store().namespace("libraries").read(name))
    if entries is None and prepared is not None and (payload := _read_prepared(prepared, operators)) is not None:
        entries = _parse(payload)
        if entries is not None:
            Store().namespace("libraries").save(name, payload)
    return None if entries is None else _lazy(entries, asked, operators)


def _lazy(entries: list[Entry], asked: Sequence[Path], operators: OperatorInfo) -> LazyLibrary:
    library = object.__new__(LazyLibrary)
    library._set(entries=entries, _paths_and_operators=(asked, operators))
    return library


def _key(paths: Sequence[Path], operators: OperatorInfo, annotator: Annotator) -> str:
    """Return the key of the requested files, in their order, and of this program."""
    listed = [[str(p), *(map(str, sorted(p.rglob("*.rules"))) if p.is_dir() else ())] for p in paths]
    where = os.getcwd() if any(not p.is_absolute() for p in paths) else ""
    stamp = code_stamp("grammar", "engine")
    return content_key(stamp, operators.version(), type(annotator).__name__, where, repr(listed))


def prepare(paths: Sequence[Path], operators: OperatorInfo, annotator: Annotator, target: Path) -> None:
    """Write the entry of a library for every installation of this package; the files are beside `target`.

    Raises as `library.load` does, and OSError if the file cannot be written."""
    whole, sources = load_fresh(paths, operators, warn=False)
    payload = _payload(entries_of(whole, annotator), sources)
    stamp = _stamp(operators).encode()
    target.write_bytes(stamp + b"\n" + payload.replace(_directory(target), b"\0"))


def _read_prepared(path: Path, operators: OperatorInfo) -> bytes | None:
    """Return the entry in a file of `prepare`; None if this program or the table of operators has changed since."""
    try:
        stamp, _, payload = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return payload.replace(b"\0", _directory(path)) if stamp == _stamp(operators).encode() else None


def _stamp(operators: OperatorInfo) -> str:
    return content_key(code_digest("grammar", "engine"), operators.release())


def _directory(path: Path) -> bytes:
    """Return the directory of a file as it stands in JSON strings, with the slash after it."""
    return json.dumps(f"{path.parent}/", ensure_ascii=False)[1:-1].encode()


def _parse(payload: bytes | None) -> list[Entry] | None:
    if payload is None:
        return None
    try:
        head, *texts = payload.split(b"\n")
        sources, index = json.loads(head)
        if any(content_key(Path(path).read_text(encoding="utf-8")) != digest for path, digest in sources):
            return None
        return [
            Entry(kind, name, file, line, facts, text)
            for (kind, name, file, line, facts), text in zip(index, texts, strict=True)
        ]
    except (OSError, ValueError, TypeError):
        return None


def _payload(entries: Sequence[Entry], sources: Mapping[str, str]) -> bytes:
    index = [[e.kind, e.name, e.file, e.line, e.facts] for e in entries]
    files = [[path, content_key(text)] for path, text in sources.items()]
    head = json.dumps([files, index], separators=(",", ":"), ensure_ascii=False).encode()
    return b"\n".join([head, *(tree_json.dumps(e.item, e.file) for e in entries)])
