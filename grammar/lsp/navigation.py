"""From a name to where it is defined, to all places where it stands, and to another name."""

from __future__ import annotations

import re

from lsprotocol import types as lsp

from ..builtins import functions
from ..scope import is_word
from .document import Document
from .occurrences import GLOBAL, Occurrence, Symbol, at, occurrences
from .occurrences import definition as definition_in
from .words import KEYWORDS
from .workspace import Workspace


def definition(workspace: Workspace, document: Document, found: Occurrence) -> tuple[Document, Occurrence] | None:
    """Where a name is defined, in its file or in one that the file refers to."""
    here = definition_in(document, found.symbol)
    if here is not None:
        return document, here
    if found.symbol.kind in GLOBAL:
        for other in workspace.context(document):
            there = definition_in(other, found.symbol)
            if there is not None:
                return other, there
    return None


def go_to_definition(workspace: Workspace, document: Document, position: lsp.Position) -> lsp.Location | None:
    """The place that defines what stands under the cursor."""
    found = at(document, document.offset(position))
    if found is None:
        return None
    if found.symbol.kind == "use":
        other = workspace.document(document.path.parent / found.symbol.name)
        return lsp.Location(other.uri, other.range(0, 0)) if other is not None else None
    place = definition(workspace, document, found)
    if place is None:
        return None
    other, occurrence = place
    return lsp.Location(other.uri, other.range(occurrence.start, occurrence.end))


def references(
    workspace: Workspace, document: Document, position: lsp.Position, include_definition: bool
) -> list[lsp.Location]:
    """All places where the symbol under the cursor stands, in all files that may name it."""
    found = at(document, document.offset(position))
    if found is None:
        return []
    return [
        lsp.Location(other.uri, other.range(o.start, o.end))
        for other, o in _everywhere(workspace, document, found.symbol)
        if include_definition or not o.binds
    ]


def highlights(document: Document, position: lsp.Position) -> list[lsp.DocumentHighlight]:
    """The places in this file where the symbol under the cursor stands."""
    found = at(document, document.offset(position))
    if found is None:
        return []
    kinds = {True: lsp.DocumentHighlightKind.Write, False: lsp.DocumentHighlightKind.Read}
    return [
        lsp.DocumentHighlight(document.range(o.start, o.end), kinds[o.binds])
        for o in occurrences(document)
        if o.symbol == found.symbol
    ]


def _everywhere(workspace: Workspace, document: Document, symbol: Symbol) -> list[tuple[Document, Occurrence]]:
    files = workspace.related(document) if symbol.kind in GLOBAL else [document]
    return [
        (other, o) for other in files if symbol.name in other.text for o in occurrences(other) if o.symbol == symbol
    ]


class CannotRename(Exception):
    """Why a name cannot be changed, or not to this one."""


def prepare_rename(workspace: Workspace, document: Document, position: lsp.Position) -> lsp.Range:
    """The range of the name to be changed."""
    found = at(document, document.offset(position))
    if found is None:
        raise CannotRename("There is no name here.")
    _renamable(workspace, document, found)
    return document.range(found.start, found.end)


def _renamable(workspace: Workspace, document: Document, found: Occurrence) -> None:
    symbol = found.symbol
    if symbol.kind == "variable":
        return
    if symbol.kind not in GLOBAL:
        raise CannotRename(f"`{symbol.name}` has a fixed meaning.")
    if symbol.kind == "op" and workspace.services.operators().signature(symbol.name) is not None:
        raise CannotRename(f"`{symbol.name}` is an operator of the standard.")
    place = definition(workspace, document, found)
    if place is None:
        raise CannotRename(f"`{symbol.name}` is not defined in a rule file.")
    if not workspace.is_ours(place[0]):
        raise CannotRename(f"`{symbol.name}` is defined in {place[0].path.name}, which is not in this workspace.")


def rename(workspace: Workspace, document: Document, position: lsp.Position, name: str) -> lsp.WorkspaceEdit:
    """The edits that give the symbol under the cursor another name."""
    found = at(document, document.offset(position))
    if found is None:
        raise CannotRename("There is no name here.")
    _renamable(workspace, document, found)
    places = _everywhere(workspace, document, found.symbol)
    _check_name(found.symbol, name, places)
    changes: dict[str, list[lsp.TextEdit]] = {}
    for other, o in places:
        if workspace.is_ours(other):
            changes.setdefault(other.uri, []).append(lsp.TextEdit(other.range(o.start, o.end), name))
    return lsp.WorkspaceEdit(changes=changes)


def _check_name(symbol: Symbol, name: str, places: list[tuple[Document, Occurrence]]) -> None:
    dotted = r"(\.[A-Za-z][A-Za-z0-9_]*)*" if symbol.kind == "op" else ""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*" + dotted, name):
        raise CannotRename(f"`{name}` is no name: letters, digits and `_`, a letter first.")
    if name in KEYWORDS or is_word(name):
        raise CannotRename(f"`{name}` is a word of the language.")
    if symbol.kind == "op" and not name.rpartition(".")[2][:1].isupper():
        raise CannotRename("An operator's name begins with a capital.")
    if symbol.kind == "def" and (name[:1].isupper() or name in functions()):
        raise CannotRename("A definition's name begins with a small letter and is no function of the library.")
    for document in {id(d): d for d, _ in places}.values():
        for other in occurrences(document):
            same_kind = other.symbol.kind == symbol.kind and other.symbol.scope[:1] == symbol.scope[:1]
            if same_kind and other.symbol.name == name:
                line = document.lines.line(other.start)
                raise CannotRename(f"`{name}` is taken: line {line} of {document.path.name}.")
