"""The formatter as edits of an open file."""

from __future__ import annotations

import difflib

from lsprotocol import types as lsp

from ..diagnostics import RuleErrors
from ..format import format_text
from .document import Document


def formatting(document: Document) -> list[lsp.TextEdit]:
    """The edits that bring a file into the project's layout; none while it is not well formed."""
    return [edit for edit, _, _ in _edits(document)]


def range_formatting(document: Document, where: lsp.Range) -> list[lsp.TextEdit]:
    """Those of the edits that touch a range."""
    return [edit for edit, first, last in _edits(document) if first <= where.end.line and last >= where.start.line]


def _edits(document: Document) -> list[tuple[lsp.TextEdit, int, int]]:
    """Each edit replaces whole lines, from a first to a last."""
    newline = "\r\n" if "\r\n" in document.text else "\n"
    try:
        result = format_text(document.text.replace("\r\n", "\n"), str(document.path))
    except RuleErrors:
        return []
    before = document.text.replace("\r\n", "\n").split("\n")
    after = result.split("\n")
    found = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        lines = [line + newline for line in after[c:d]]
        end = lsp.Position(b, 0)
        if b == len(before):  # the last line has no end
            end = document.position(len(document.text))
            if lines:
                lines[-1] = lines[-1].removesuffix(newline)
            elif a:  # lines at the end go with the newline before them
                start = document.position(document.lines.starts[a] - len(newline))
                found.append((lsp.TextEdit(lsp.Range(start, end), ""), a, b))
                continue
        found.append((lsp.TextEdit(lsp.Range(lsp.Position(a, 0), end), "".join(lines)), a, max(a, b - 1)))
    return found
