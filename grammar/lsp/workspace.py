"""All files that an editor has to do with: those that are open, those they use, and the standard library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pygls.uris import from_fs_path, to_fs_path

from ...errors import UserError
from .. import ast
from ..ast import Span
from ..check import check
from ..diagnostics import Diagnostic, RuleErrors
from ..expand import collect, expand
from ..library import load
from ..parse import read
from ..types import Type, infer
from .document import Document
from .results import Results
from .services import Services

MAX_FILES = 1000
"""How many files of a folder are looked at for uses of a name."""


class Workspace:
    """Documents by path. What is not open is read from disk, and again when it has changed there."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.results = Results()
        self.encoding = "utf-16"
        self.folders: list[Path] = []
        self.open: dict[Path, Document] = {}
        self._closed: dict[Path, tuple[int, Document]] = {}
        self._made: dict[tuple[str, int], tuple[ast.Item, Span, tuple[int, ...], Any]] = {}
        self._used: dict[tuple[str, int], tuple[ast.Item, Span, tuple[int, ...], Any]] = {}
        self._types: dict[tuple[Path, int], dict[str, dict[str, Type]]] = {}

    # --- documents

    def update(self, uri: str, text: str, version: int | None) -> Document:
        """Open a document, or give it a new text."""
        path = path_of(uri)
        document = self.open.get(path)
        if document is None:
            document = self.open[path] = Document(path, uri, text, self.encoding)
        elif text != document.text:
            document.update(text)
        document.version = version
        self._types.clear()
        return document

    def close(self, uri: str) -> None:
        """Forget what the editor has made of a file."""
        self.open.pop(path_of(uri), None)
        self._types.clear()

    def get(self, uri: str) -> Document | None:
        """An open document."""
        return self.open.get(path_of(uri))

    def document(self, path: Path) -> Document | None:
        """A file, open or not; None if it cannot be read."""
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
        """The files that a document uses, directly or through others, without itself."""
        found: dict[Path, Document] = {}
        todo = [document]
        while todo:
            current = todo.pop()
            for item in current.items:
                if isinstance(item, ast.Use):
                    other = self.document(current.path.parent / item.path)
                    if other is not None and other.path not in found and other is not document:
                        found[other.path] = other
                        todo.append(other)
        return list(found.values())

    def standard(self) -> list[Document]:
        """The files of the standard library."""
        return [d for d in map(self.document, self.services.standard_files()) if d is not None]

    def context(self, document: Document) -> list[Document]:
        """The files whose operators and definitions a document may name: what it uses, and the standard library."""
        found = {d.path: d for d in (*self.standard(), *self.used(document))}
        found.pop(document.path, None)
        return list(found.values())

    def related(self, document: Document) -> list[Document]:
        """The document first, then all that may name what it defines: open files and those of the folders."""
        found = {document.path: document}
        for path in self._paths():
            other = self.document(path)
            if other is not None:
                found.setdefault(other.path, other)
        for other in self.context(document):
            found.setdefault(other.path, other)
        return list(found.values())

    def is_ours(self, document: Document) -> bool:
        """Whether a file may be changed: it is open, or in a folder of the workspace."""
        return document.path in self.open or any(document.path.is_relative_to(f) for f in self.folders)

    def _paths(self) -> Iterator[Path]:
        yield from list(self.open)
        count = 0
        for folder in self.folders:
            for path in folder.rglob("*.rules"):
                count += 1
                if count > MAX_FILES:
                    return
                if not any(part.startswith(".") for part in path.relative_to(folder).parts):
                    yield path

    def texts(self) -> dict[Path, str]:
        """The texts of the open files."""
        return {path: document.text for path, document in self.open.items()}

    # --- what they mean

    def items(self, document: Document) -> tuple[list[ast.Item], list[Diagnostic]]:
        """The expanded items of a document after those of other files that they may refer to."""
        others = [i for d in self.context(document) for i in d.items if not isinstance(i, ast.Rule | ast.Fuse)]
        written = [*others, *document.items]
        definitions, found = collect(item for item in written if isinstance(item, ast.Def))
        known = tuple(id(item) for item in written if isinstance(item, ast.Def))
        expanded: list[ast.Item] = []
        for item in written:
            more: list[Diagnostic] = []
            if not isinstance(item, ast.Def):
                item, more = self._kept("expand", item, known, partial(_expanded, item, definitions))
            expanded.append(item)
            found += more
        return expanded, found

    def problems(self, document: Document) -> list[Diagnostic]:
        """Everything that is wrong with a document, as far as it can be told from the files it refers to."""
        found = [*document.syntax_errors, *self._missing(document)]
        items, more = self.items(document)
        found += more
        name = str(document.path)
        if document.is_closed:
            found += check(items, self.services.operators())
            if not any(d.severity == "error" for d in found if d.span.file == name):
                ops = _typed_ops(items)
                known = tuple(map(id, ops))
                for item in items:
                    if item.span.file == name and not isinstance(item, ast.Def):
                        found += self._kept("infer", item, known, partial(self._inferred, item, ops))
        self._forget()
        mine = [d for d in dict.fromkeys(found) if d.span.file == name]
        return sorted(mine, key=lambda d: (d.span.line, d.span.column, d.code))

    def found_in_all(self, document: Document, texts: Mapping[Path, str]) -> list[Diagnostic]:
        """What is wrong or doubtful in a file together with all others; takes a while, so not for each keystroke."""
        try:
            library = load([*self.services.standard_files(), document.path], self.services.operators(), texts=texts)
            found: Iterable[Diagnostic] = library.warnings
        except RuleErrors as errors:
            found = errors.diagnostics
        except UserError:  # a file that cannot be read, which is told where it is named
            return []
        return [d for d in found if Path(d.span.file).resolve() == document.path]

    def _inferred(self, item: ast.Item, ops: list[ast.Op]) -> list[Diagnostic]:
        return infer([item], self.services.operators(), among=ops).diagnostics

    def _kept(self, what: str, item: ast.Item, known: tuple[int, ...], make: Callable[[], Any]) -> Any:
        """What was made of an item before, if neither it nor what it depends on has changed since.

        What names places is made again where the item has moved."""
        key = (what, id(item))
        entry = self._made.get(key)
        stands = entry is not None and entry[0] is item and entry[2] == known
        if entry is None or not stands or (entry[1] != item.span and entry[3] not in ([], (item, []))):
            entry = (item, item.span, known, make())
        self._made[key] = self._used[key] = entry
        return entry[3]

    def _forget(self) -> None:
        """Forget what was not asked for lately."""
        if len(self._made) > 4 * len(self._used):
            self._made, self._used = self._used, {}

    def _missing(self, document: Document) -> Iterator[Diagnostic]:
        for item in document.items:
            if isinstance(item, ast.Use) and self.document(document.path.parent / item.path) is None:
                yield Diagnostic("use-missing", f'`use "{item.path}"`: there is no such file', item.span)

    def types(self, document: Document, item: ast.Item) -> dict[str, Type]:
        """The types of the variables of an item."""
        start, _ = document.lines.range(item.span)
        key = (document.path, start)
        if key not in self._types:
            items, _ = self.items(document)
            chosen = [i for i in items if i.span == item.span]
            typing = infer(chosen, self.services.operators(), among=items)
            self._types[key] = typing.types
        return self._types[key].get(getattr(item, "name", ""), {})


def _typed_ops(items: Iterable[ast.Item]) -> list[ast.Op]:
    return [i for i in items if isinstance(i, ast.Op) and i.params is not None]


def _expanded(item: ast.Item, definitions: Mapping[str, ast.Def]) -> tuple[ast.Item, list[Diagnostic]]:
    found: list[Diagnostic] = []
    return expand(item, definitions, found), found


def path_of(uri: str) -> Path:
    """The path of a document; one that is on no disk has its address as its path."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return Path(path).resolve() if path else Path(uri.replace(":", "/"))
