"""Inlay hints: the inferred type of each variable, behind the place that binds it."""

from __future__ import annotations

from lsprotocol import types as lsp

from ..syntax import ast
from ..syntax.scope import Sort
from ..types import Type
from .document import Document
from .occurrences import Occurrence, in_item
from .workspace import Workspace

_SHOWN = (Sort.TENSOR, Sort.VARIADIC, Sort.GROUP, Sort.ATTRIBUTE, Sort.ATTRIBUTES, Sort.ROOT, Sort.ROOTS)
"""What has a type worth a hint: that of a dim or of an element type is its name."""
_UNKNOWN = ("", "any", "tensor", "list of tensor", "list")
"""Types that say nothing."""


def inlay_hints(workspace: Workspace, document: Document, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    """Return hints for the items in a range: element type, and rank or dims, where something is known.

    A variable has one hint, where it is bound first; none where `given` states the same type."""
    start, end = document.offset(params.range.start), document.offset(params.range.end)
    found = []
    for item in document.items:
        first, last = document.lines.range(item.span)
        if first <= end and last >= start and isinstance(item, ast.Rule | ast.Fuse | ast.Op):
            types = workspace.types(document, item)
            stated = _stated(document, item)
            for name, place in _bound(document, item).items():
                known = types.get(name)
                text = str(known or "")
                if known is not None and text not in _UNKNOWN and text != stated.get(name):
                    found.append(_hint(document, known, place))
    return found


def _bound(document: Document, item: ast.Item) -> dict[str, Occurrence]:
    """Return the place that binds each variable of an item, except parameters with a type or a value beside them."""
    found: dict[str, Occurrence] = {}
    for occurrence in in_item(document, item):
        symbol = occurrence.symbol
        if symbol.kind == "variable" and len(symbol.scope) == 1 and occurrence.binds and occurrence.sort in _SHOWN:
            found.setdefault(symbol.name, occurrence)
    typed = {p.name for p in item.params or () if p.type or p.attribute} if isinstance(item, ast.Op) else set()
    return {name: place for name, place in found.items() if name not in typed}


def _stated(document: Document, item: ast.Rule | ast.Fuse | ast.Op) -> dict[str, str]:
    """Return the types that the `given` clauses of an item state, as text."""
    return {
        target.name: " ".join(document.text_of(given.type.span).split())
        for given in item.given
        for target in given.targets
    }


def _hint(document: Document, known: Type, place: Occurrence) -> lsp.InlayHint:
    end, text = place.end, str(known)
    if document.text[end : end + 1] == "[":  # the type of one `x[i]`, behind its index
        end, text = document.text.index("]", end) + 1, text.removeprefix("list of ")
    elements = sorted(known.dtypes or ())
    tooltip = f"possible element types: {', '.join(elements)}" if 1 < len(elements) < 12 else None
    return lsp.InlayHint(document.position(end), f": {text}", kind=lsp.InlayHintKind.Type, tooltip=tooltip)
