"""All files that concern an editor: the open ones, those they use, and the standard library."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from pygls.uris import from_fs_path, to_fs_path

from ...errors import UserError
from ..checks.check import check
from ..diagnostics import Diagnostic, RuleErrors
from ..library.load import load
from ..syntax import ast
from ..syntax.expand import collect, expand
from ..syntax.parse import read
from ..types import Type, infer
from .document import Document
from .services import Results, Services

Kind = TypeVar("Kind", bound=ast.Item)

MAX_FILES = 1000
"""Maximum number of files of a folder that are searched for uses of a name."""


class Workspace:
    """Documents by path. Files that are not open are read from disk, and again when they change there."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.results = Results()
        self.encoding = "utf-16"
        self.folders: list[Path] = []
        self.open: dict[Path, Document] = {}
        self._closed: dict[Path, tuple[int, Document]] = {}
        self._known: dict[Path, tuple[list[ast.Item], list[ast.Op], tuple[int, ...]]] = {}

    # --- documents

    def update(self, uri: str, text: str, version: int | None) -> Document:
        """Open a document, or replace its text."""
        path = path_of(uri)
        document = self.open.get(path)
        if document is None:
            document = self.open[path] = Document(path, uri, text, self.encoding)
        elif text != document.text:
            document.update(text)
        document.version = version
        self._known.clear()
        return document

    def close(self, uri: str) -> None:
        """Drop the state of a file that the editor closed."""
        self.open.pop(path_of(uri), None)
        self._known.clear()

    def get(self, uri: str) -> Document | None:
        """Return an open document."""
        return self.open.get(path_of(uri))

    def document(self, path: Path) -> Document | None:
        """Return a file, open or not; None if it cannot be read."""
        path = path.resolve()
        if path in self.open:
            return self.open[path]
        try:
            changed = path.stat().st_mtime_ns
            if self._closed.get(path, (None,))[0] != changed:
                uri = from_fs_path(str(path)) or path.as_uri()
                self._closed[path] = (changed, Document(path, uri, read(path), self.encoding, is_open=False))
        except (OSError, UserError):
            return None
        return self._closed[path][1]

    def used(self, document: Document) -> list[Document]:
        """Return the files that a document uses, directly or indirectly, without itself."""
        found: dict[Path, Document] = {}
        todo = [document]
        while todo:
            current = todo.pop()
            for item in current.items:
                other = self.document(current.path.parent / item.path) if isinstance(item, ast.Use) else None
                if other is not None and other.path not in found and other is not document:
                    found[other.path] = other
                    todo.append(other)
        return list(found.values())

    def standard(self) -> list[Document]:
        """Return the files of the standard library."""
        return [d for d in map(self.document, self.services.standard_files()) if d is not None]

    def context(self, document: Document) -> list[Document]:
        """Return the files whose operators and definitions a document may name."""
        found = {d.path: d for d in (*self.standard(), *self.used(document))}
        found.pop(document.path, None)
        return list(found.values())

    def visible(self, document: Document, kind: type[Kind]) -> Iterator[Kind]:
        """Yield the items of a kind that a document may name, its own first."""
        for other in (document, *self.context(document)):
            yield from (item for item in other.items if isinstance(item, kind))

    def everywhere(self) -> list[Document]:
        """Return the open files, those of the workspace folders, and the standard library."""
        found = [other for path in self._paths() if (other := self.document(path)) is not None]
        return list({other.path: other for other in (*found, *self.standard())}.values())

    def related(self, document: Document) -> list[Document]:
        """Return the document, then all files that may name what it defines."""
        found = (document, *self.everywhere(), *self.context(document))
        return list({other.path: other for other in found}.values())

    def is_ours(self, document: Document) -> bool:
        """Return whether a file may be edited: it is open, or in a workspace folder."""
        return document.path in self.open or any(document.path.is_relative_to(f) for f in self.folders)

    def _paths(self) -> Iterator[Path]:
        yield from list(self.open)
        inside = ((folder, path) for folder in self.folders for path in folder.rglob("*.rules"))
        for folder, path in itertools.islice(inside, MAX_FILES):
            if not any(part.startswith(".") for part in path.relative_to(folder).parts):
                yield path

    def texts(self) -> dict[Path, str]:
        """Return the texts of the open files."""
        return {path: document.text for path, document in self.open.items()}

    # --- what they mean

    def items(self, document: Document) -> tuple[list[ast.Item], list[Diagnostic]]:
        """Return the expanded items of a document, after those of other files that they may refer to."""
        others = [(d, i) for d in self.context(document) for i in d.items if not isinstance(i, ast.Rule | ast.Fuse)]
        written = [*others, *((document, item) for item in document.items)]
        defs = [item for _, item in written if isinstance(item, ast.Def)]
        definitions, found = collect(defs)
        known = tuple(map(id, defs))
        expanded: list[ast.Item] = []
        for owner, item in written:
            changed = None
            if not isinstance(item, ast.Def):
                changed = owner.cached("expand", item, partial(_expanded, item, definitions), known)
            new, more = changed or (item, [])
            expanded.append(new)
            found += more
        return expanded, found

    def problems(self, document: Document) -> list[Diagnostic]:
        """Return everything wrong with a document, given the files it refers to."""
        found = list(document.syntax_errors)
        for use in document.items:
            if isinstance(use, ast.Use) and self.document(document.path.parent / use.path) is None:
                found.append(Diagnostic("use-missing", f'`use "{use.path}"`: file not found', use.span))
        items, more = self.items(document)
        found += more
        name = str(document.path)
        if document.is_closed:
            found += check(items, self.services.operators())
            if not any(d.severity == "error" for d in found if d.span.file == name):
                ops = [item for item in items if isinstance(item, ast.Op) and item.params is not None]
                known = tuple(map(id, ops))
                for item in items:
                    if item.span.file == name and not isinstance(item, ast.Def):
                        found += document.cached("infer", item, partial(self._inferred, item, ops), known)
        mine = [d for d in dict.fromkeys(found) if d.span.file == name]
        return sorted(mine, key=lambda d: (d.span.line, d.span.column, d.code))

    def found_in_all(self, document: Document, texts: Mapping[Path, str]) -> list[Diagnostic]:
        """Return errors and warnings of a file loaded with all others; too slow for each keystroke."""
        try:
            library = load([*self.services.standard_files(), document.path], self.services.operators(), texts=texts)
            found: Iterable[Diagnostic] = library.warnings
        except RuleErrors as errors:
            found = errors.diagnostics
        except UserError:  # an unreadable file, reported where it is named
            return []
        return [d for d in found if Path(d.span.file).resolve() == document.path]

    def _inferred(self, item: ast.Item, ops: list[ast.Op]) -> list[Diagnostic]:
        return infer([item], self.services.operators(), among=ops).diagnostics

    def types(self, document: Document, item: ast.Item) -> dict[str, Type]:
        """Return the types of the variables of an item; reused as long as it and what it refers to are the same."""
        if document.path not in self._known:
            items, _ = self.items(document)
            definitions = [i for d in (document, *self.context(document)) for i in d.items if isinstance(i, ast.Def)]
            ops = [i for i in items if isinstance(i, ast.Op)]
            self._known[document.path] = items, ops, tuple(map(id, (*ops, *definitions)))
        items, ops, known = self._known[document.path]
        chosen = [i for i in items if i.span == item.span]

        def make() -> dict[str, Type]:
            found = infer(chosen, self.services.operators(), among=ops).types
            return found.get(getattr(item, "name", ""), {})

        types: dict[str, Type] = document.cached("types", item, make, known, is_relative=True)
        return types


def _expanded(item: ast.Item, definitions: Mapping[str, ast.Def]) -> tuple[ast.Item, list[Diagnostic]] | None:
    """Return the item after expansion, with what is wrong with its calls; None if it calls no definition."""
    found: list[Diagnostic] = []
    new = expand(item, definitions, found)
    return None if new is item and not found else (new, found)


def path_of(uri: str) -> Path:
    """Return the path of a document; its address for one that is not on a disk."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return Path(path).resolve() if path else Path(uri.replace(":", "/"))
