"""The items of a file as an outline, and what can be folded."""

from __future__ import annotations

import itertools

from lsprotocol import types as lsp

from .. import ast
from .document import Document

_KINDS = {
    ast.Rule: lsp.SymbolKind.Event,
    ast.Op: lsp.SymbolKind.Class,
    ast.Fuse: lsp.SymbolKind.Interface,
    ast.Def: lsp.SymbolKind.Function,
    ast.Use: lsp.SymbolKind.File,
    ast.UseDomain: lsp.SymbolKind.Namespace,
    ast.Ruleset: lsp.SymbolKind.Module,
    ast.Schedule: lsp.SymbolKind.Constant,
}


def document_symbols(document: Document) -> list[lsp.DocumentSymbol]:
    """An outline: every item, with its tests below it."""
    found = []
    for item in document.items:
        whole = document.span_range(item.span)
        start, end = document.lines.range(item.span)
        names = [t for t in document.tokens_in(start, end) if t.kind in ("name", "string")][:2]
        tests = [
            lsp.DocumentSymbol(
                name=f"test {test.verdict}",
                kind=lsp.SymbolKind.Method,
                range=document.span_range(test.span),
                selection_range=document.span_range(test.span),
            )
            for test in getattr(item, "tests", ())
        ]
        found.append(
            lsp.DocumentSymbol(
                name=names[-1].text.strip('"'),
                detail=item.doc.partition("\n")[0] or None,
                kind=_KINDS[type(item)],
                range=whole,
                selection_range=document.range(names[-1].start, names[-1].end),
                children=tests,
            )
        )
    return found


def folding_ranges(document: Document) -> list[lsp.FoldingRange]:
    """Items of several lines, docstrings, and sections between headings such as `# --- signs`."""
    found = []
    for item in document.items:
        if item.span.end_line > item.span.line:
            found.append(lsp.FoldingRange(item.span.line - 1, item.span.end_line - 1))
    headings = []
    for token in document.tokens:
        first, last = document.lines.line(token.start), document.lines.line(token.end)
        if token.kind == "doc" and last > first:
            found.append(lsp.FoldingRange(first - 1, last - 1, kind=lsp.FoldingRangeKind.Comment))
        elif token.kind == "comment" and token.text.startswith("# ---") and document.lines.own_line(token.start):
            headings.append(first)
    for first, following in itertools.pairwise([*headings, len(document.lines.starts) + 1]):
        last = following - 1
        while last > first and not document.text[slice(*_line(document, last))].strip():
            last -= 1
        if last > first:
            found.append(lsp.FoldingRange(first - 1, last - 1, kind=lsp.FoldingRangeKind.Region))
    return found


def _line(document: Document, line: int) -> tuple[int, int]:
    starts = [*document.lines.starts, len(document.text)]
    return starts[line - 1], starts[line]
