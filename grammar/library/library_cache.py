"""Cache of checked libraries: loading one again parses, checks and expands nothing.

An entry is JSON lines: the files with their digests, an index of the items, then one syntax tree per line, decoded on
demand. The key covers the paths, this program and the table of operators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ...system.store import Store, code_stamp, content_key
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


def load(paths: Iterable[str | Path], operators: OperatorInfo, annotator: Annotator) -> Library:
    """Load a library as `library.load` does, from the cache if possible."""
    asked = [Path(p) for p in paths]
    name = _key(asked, operators, annotator)
    library = object.__new__(LazyLibrary)
    entries = _load(name)
    if entries is None:
        whole, sources = load_fresh(asked, operators, warn=False)
        entries = entries_of(whole, annotator)
        _save(name, entries, sources)
        library._set(files=whole.files, defs=whole.defs)
    library._set(entries=entries, _paths_and_operators=(asked, operators))
    return library


def _key(paths: Sequence[Path], operators: OperatorInfo, annotator: Annotator) -> str:
    """Return the key of the requested files, in their order, and of this program."""
    listed = [[str(p), *(map(str, sorted(p.rglob("*.rules"))) if p.is_dir() else ())] for p in paths]
    where = os.getcwd() if any(not p.is_absolute() for p in paths) else ""
    stamp = code_stamp("grammar", "engine")
    return content_key(stamp, operators.version(), type(annotator).__name__, where, repr(listed))


def _load(name: str) -> list[Entry] | None:
    payload = Store().namespace("libraries").read(name)
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


def _save(name: str, entries: Sequence[Entry], sources: Mapping[str, str]) -> None:
    index = [[e.kind, e.name, e.file, e.line, e.facts] for e in entries]
    files = [[path, content_key(text)] for path, text in sources.items()]
    head = json.dumps([files, index], separators=(",", ":"), ensure_ascii=False).encode()
    payload = b"\n".join([head, *(tree_json.dumps(e.item, e.file) for e in entries)])
    Store().namespace("libraries").save(name, payload)
