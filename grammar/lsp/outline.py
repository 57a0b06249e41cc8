"""Outline, folding ranges and semantic tokens of a file; symbols of all files."""

from __future__ import annotations

import itertools
import re
from typing import Any

from lsprotocol import types as lsp

from ..builtins import DTYPES
from ..syntax import ast
from ..syntax.scope import Sort
from ..syntax.tokens import Token
from .document import Document
from .keyword_help import KEYWORDS, TYPE_WORDS, WORDS
from .occurrences import Occurrence, occurrences
from .workspace import Workspace

_SYMBOLS = {
    ast.Rule: lsp.SymbolKind.Event, ast.Op: lsp.SymbolKind.Class, ast.Fuse: lsp.SymbolKind.Interface,
    ast.Def: lsp.SymbolKind.Function, ast.Use: lsp.SymbolKind.File, ast.UseDomain: lsp.SymbolKind.Namespace,
    ast.Ruleset: lsp.SymbolKind.Module, ast.Schedule: lsp.SymbolKind.Constant,
}  # fmt: skip

TYPES = (
    "keyword", "class", "function", "variable", "parameter", "property", "type", "typeParameter", "number", "string",
    "comment", "operator", "event", "namespace",
)  # fmt: skip
LEGEND = lsp.SemanticTokensLegend(token_types=list(TYPES), token_modifiers=["definition"])

MAX_SYMBOLS = 500
"""Maximum number of answers to a search for symbols of all files; editors show the first few dozen."""

_SORTS = {
    Sort.INDEX: "parameter", Sort.DIM: "typeParameter", Sort.DIMS: "typeParameter", Sort.DTYPE: "typeParameter",
    Sort.ATTRIBUTE: "property", Sort.REST: "property", Sort.OPERATOR: "class",
}  # fmt: skip
_KINDS = {
    "op": "class", "def": "function", "rule": "event", "ruleset": "namespace", "schedule": "namespace",
    "attribute": "property", "dtype": "type", "use": "string",
}  # fmt: skip
_TOKENS = {"comment": "comment", "doc": "comment", "number": "number", "string": "string"}
_WORDS = {
    **dict.fromkeys(DTYPES, "type"),
    **dict.fromkeys((*KEYWORDS, *TYPE_WORDS, *WORDS), "keyword"),
    **dict.fromkeys(("=>", "<=>", "->"), "operator"),
}


def document_symbols(_: Workspace, document: Document, params: Any = None) -> list[lsp.DocumentSymbol]:
    """Return an outline: every item, with its tests below it."""
    found = []
    for item in document.items:
        name = _name_token(document, item)
        tests = [
            lsp.DocumentSymbol(
                name=f"test {test.verdict}",
                kind=lsp.SymbolKind.Method,
                range=document.span_range(test.span),
                selection_range=document.span_range(test.span),
            )
            for test in getattr(item, "tests", ())
        ]
        symbol = lsp.DocumentSymbol(
            name=name.text.strip('"'),
            detail=item.doc.partition("\n")[0] or None,
            kind=_SYMBOLS[type(item)],
            range=document.span_range(item.span),
            selection_range=document.range(name.start, name.end),
            children=tests,
        )
        found.append(symbol)
    return found


def _name_token(document: Document, item: ast.Item) -> Token:
    """Return the token that names an item: the second of its names and strings, or its only one."""
    return [t for t in document.tokens_in(*document.lines.range(item.span)) if t.kind in ("name", "string")][:2][-1]


def workspace_symbols(workspace: Workspace, query: str) -> list[lsp.SymbolInformation]:
    """Return the named items of all files whose names contain the letters of `query` in order, closest names first.

    At most `MAX_SYMBOLS`. An empty query matches every name."""
    letters = re.compile(".*?".join(map(re.escape, query)), re.IGNORECASE)
    ranked = []
    for document in workspace.everywhere():
        for item in document.items:
            name = getattr(item, "name", "")
            match = letters.search(name) if name else None
            if match is not None:
                ranked.append((len(match[0]), match.start(), name.lower(), document, item))
    ranked.sort(key=lambda entry: (*entry[:3], str(entry[3].path)))
    found = []
    for _, _, _, document, item in ranked[:MAX_SYMBOLS]:
        token = _name_token(document, item)
        place = document.location(token.start, token.end)
        kind = _SYMBOLS[type(item)]
        found.append(lsp.SymbolInformation(place, token.text, kind, container_name=document.path.name))
    return found


def folding_ranges(_: Workspace, document: Document, params: Any = None) -> list[lsp.FoldingRange]:
    """Return multi-line items, docstrings, and sections between headings such as `# --- signs`."""
    spans = [item.span for item in document.items]
    found = [lsp.FoldingRange(at.line - 1, at.end_line - 1) for at in spans if at.end_line > at.line]
    headings = []
    for token in document.tokens:
        first, last = document.lines.line(token.start), document.lines.line(token.end)
        if token.kind == "doc" and last > first:
            found.append(lsp.FoldingRange(first - 1, last - 1, kind=lsp.FoldingRangeKind.Comment))
        elif token.kind == "comment" and token.text.startswith("# ---") and document.lines.own_line(token.start):
            headings.append(first)
    lines = document.text.split("\n")
    for first, following in itertools.pairwise([*headings, len(lines) + 1]):
        last = max(n for n in range(first, following) if n == first or lines[n - 1].strip())
        if last > first:
            found.append(lsp.FoldingRange(first - 1, last - 1, kind=lsp.FoldingRangeKind.Region))
    return found


def semantic_tokens(_: Workspace, document: Document, params: Any = None) -> lsp.SemanticTokens:
    """Return all tokens in LSP encoding: five numbers each, positions relative to the previous token."""
    names = {o.start: o for o in occurrences(document)}
    data: list[int] = []
    line = column = 0
    for token in document.tokens:
        name = names.get(token.start)
        kind = _TOKENS.get(token.kind) or (_kind(name) if name is not None else _WORDS.get(token.text))
        if kind is None:
            continue
        start = token.start
        for part in token.text.split("\n"):  # LSP tokens do not span lines
            part = part.rstrip("\r")
            if part:
                at = document.position(start)
                length = document.position(start + len(part)).character - at.character
                data += [at.line - line, at.character - (column if at.line == line else 0), length]
                data += [TYPES.index(kind), int(name is not None and name.binds)]
                line, column = at.line, at.character
            start = document.text.find("\n", start) + 1
    return lsp.SemanticTokens(data=data)


def _kind(name: Occurrence) -> str:
    if name.symbol.kind != "variable":
        return _KINDS[name.symbol.kind]
    return _SORTS.get(name.sort, "variable") if name.sort is not None else "variable"
