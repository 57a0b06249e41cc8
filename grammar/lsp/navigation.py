"""Go to definition, find references, highlight, rename."""

from __future__ import annotations

import re

from lsprotocol import types as lsp

from ..builtins import functions
from ..syntax.scope import is_word
from .document import Document
from .keyword_help import KEYWORDS
from .occurrences import GLOBAL, Occurrence, Symbol, at, occurrences
from .occurrences import definition as definition_in
from .workspace import Workspace

Params = lsp.TextDocumentPositionParams


def definition(workspace: Workspace, document: Document, found: Occurrence) -> tuple[Document, Occurrence] | None:
    """Return where a name is defined: in its file or one that the file refers to."""
    files = [document, *(workspace.context(document) if found.symbol.kind in GLOBAL else ())]
    places = ((file, definition_in(file, found.symbol)) for file in files)
    return next(((file, place) for file, place in places if place is not None), None)


def go_to_definition(workspace: Workspace, document: Document, params: Params) -> lsp.Location | None:
    """Return the definition of the name under the cursor."""
    found = at(document, params.position)
    if found is not None and found.symbol.kind == "use":
        other = workspace.document(document.path.parent / found.symbol.name)
        return other.location(0, 0) if other is not None else None
    place = definition(workspace, document, found) if found is not None else None
    return place[0].location(place[1].start, place[1].end) if place is not None else None


def references(workspace: Workspace, document: Document, params: lsp.ReferenceParams) -> list[lsp.Location]:
    """Return all places that name the symbol under the cursor, in every file that may name it."""
    return [
        other.location(o.start, o.end)
        for other, o in _everywhere(workspace, document, at(document, params.position))
        if params.context.include_declaration or not o.binds
    ]


def highlights(_: Workspace, document: Document, params: Params) -> list[lsp.DocumentHighlight]:
    """Return the places in this file that name the symbol under the cursor."""
    found = at(document, params.position)
    kinds = {True: lsp.DocumentHighlightKind.Write, False: lsp.DocumentHighlightKind.Read}
    return [
        lsp.DocumentHighlight(document.range(o.start, o.end), kinds[o.binds])
        for o in occurrences(document)
        if found is not None and o.symbol == found.symbol
    ]


def _everywhere(
    workspace: Workspace, document: Document, found: Occurrence | None
) -> list[tuple[Document, Occurrence]]:
    if found is None:
        return []
    symbol = found.symbol
    files = workspace.related(document) if symbol.kind in GLOBAL else [document]
    return [
        (other, o) for other in files if symbol.name in other.text for o in occurrences(other) if o.symbol == symbol
    ]


class CannotRename(Exception):
    """The reason why a name cannot be renamed, or not to the given one."""


def prepare_rename(workspace: Workspace, document: Document, params: Params) -> lsp.Range:
    """Return the range of the name to rename."""
    found = _renamable(workspace, document, params.position)
    return document.range(found.start, found.end)


def _renamable(workspace: Workspace, document: Document, position: lsp.Position) -> Occurrence:
    """Return the name at a position. Raises `CannotRename` if it has to stay."""
    found = at(document, position)
    if found is None:
        raise CannotRename("There is no name here.")
    symbol = found.symbol
    if symbol.kind == "variable":
        return found
    if symbol.kind not in GLOBAL:
        raise CannotRename(f"`{symbol.name}` has a fixed meaning.")
    if symbol.kind == "op" and workspace.services.operators().schema(symbol.name) is not None:
        raise CannotRename(f"`{symbol.name}` is an operator of the standard.")
    place = definition(workspace, document, found)
    if place is None:
        raise CannotRename(f"`{symbol.name}` is not defined in a rule file.")
    if not workspace.is_ours(place[0]):
        raise CannotRename(f"`{symbol.name}` is defined in {place[0].path.name}, which is outside this workspace.")
    return found


def rename(workspace: Workspace, document: Document, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
    """Return the edits that rename the symbol under the cursor."""
    found = _renamable(workspace, document, params.position)
    places = _everywhere(workspace, document, found)
    _check_name(found.symbol, params.new_name, places)
    changes: dict[str, list[lsp.TextEdit]] = {}
    for other, o in places:
        if workspace.is_ours(other):
            changes.setdefault(other.uri, []).append(lsp.TextEdit(other.range(o.start, o.end), params.new_name))
    return lsp.WorkspaceEdit(changes=changes)


def _check_name(symbol: Symbol, name: str, places: list[tuple[Document, Occurrence]]) -> None:
    dotted = r"(\.[A-Za-z][A-Za-z0-9_]*)*" if symbol.kind == "op" else ""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*" + dotted, name):
        raise CannotRename(f"`{name}` is not a valid name: use letters, digits and `_`, beginning with a letter.")
    if name in KEYWORDS or is_word(name):
        raise CannotRename(f"`{name}` is a reserved word.")
    if symbol.kind == "op" and not name.rpartition(".")[2][:1].isupper():
        raise CannotRename("The name of an operator must begin with a capital letter.")
    if symbol.kind == "def" and (name[:1].isupper() or name in functions()):
        raise CannotRename("The name of a definition must begin with a lowercase letter and not be a library function.")
    for document in {id(d): d for d, _ in places}.values():
        for other in occurrences(document):
            same_kind = other.symbol.kind == symbol.kind and other.symbol.scope[:1] == symbol.scope[:1]
            if same_kind and other.symbol.name == name:
                line = document.lines.line(other.start)
                raise CannotRename(f"`{name}` is already used: line {line} of {document.path.name}.")
