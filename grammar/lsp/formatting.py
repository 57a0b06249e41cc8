"""The formatter as text edits of an open file."""

from __future__ import annotations

import difflib
from typing import Any

from lsprotocol import types as lsp

from ..diagnostics import RuleErrors
from ..printing.format import format_text
from .document import Document
from .workspace import Workspace


def formatting(_: Workspace, document: Document, params: Any = None) -> list[lsp.TextEdit]:
    """Return the edits that format a file; none while it is not well formed."""
    return [edit for edit, _, _ in _edits(document)]


def range_formatting(_: Workspace, document: Document, params: lsp.DocumentRangeFormattingParams) -> list[lsp.TextEdit]:
    """Return the formatting edits that touch a range."""
    where = params.range
    return [edit for edit, first, last in _edits(document) if first <= where.end.line and last >= where.start.line]


def _edits(document: Document) -> list[tuple[lsp.TextEdit, int, int]]:
    """Return edits that each replace whole lines, with their first and last line."""
    newline = "\r\n" if "\r\n" in document.text else "\n"
    text = document.text.replace("\r\n", "\n")
    try:
        after = format_text(text, str(document.path)).split("\n")
    except RuleErrors:
        return []
    before = text.split("\n")
    found = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        lines = [line + newline for line in after[c:d]]
        end = lsp.Position(b, 0)
        if b == len(before):  # the last line has no newline
            end = document.position(len(document.text))
            if lines:
                lines[-1] = lines[-1].removesuffix(newline)
            elif a:  # deleting the last lines also deletes the newline before them
                start = document.position(document.lines.starts[a] - len(newline))
                found.append((lsp.TextEdit(lsp.Range(start, end), ""), a, b))
                continue
        found.append((lsp.TextEdit(lsp.Range(lsp.Position(a, 0), end), "".join(lines)), a, max(a, b - 1)))
    return found
