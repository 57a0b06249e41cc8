"""What each word of a file is, for editors that colour by meaning."""

from __future__ import annotations

from lsprotocol import types as lsp

from ..builtins import DTYPES
from ..scope import Sort
from .document import Document
from .occurrences import Occurrence, occurrences
from .words import KEYWORDS, TYPE_WORDS, WORDS

TYPES = (
    "keyword", "class", "function", "variable", "parameter", "property", "type", "typeParameter", "number", "string",
    "comment", "operator", "event", "namespace",
)  # fmt: skip
MODIFIERS = ("definition",)
LEGEND = lsp.SemanticTokensLegend(token_types=list(TYPES), token_modifiers=list(MODIFIERS))

_SORTS = {
    Sort.INDEX: "parameter", Sort.DIM: "typeParameter", Sort.DIMS: "typeParameter", Sort.DTYPE: "typeParameter",
    Sort.ATTRIBUTE: "property", Sort.REST: "property", Sort.OPERATOR: "class",
}  # fmt: skip
_KINDS = {
    "op": "class", "def": "function", "rule": "event", "ruleset": "namespace", "schedule": "namespace",
    "attribute": "property", "dtype": "type", "use": "string",
}  # fmt: skip


def semantic_tokens(document: Document) -> lsp.SemanticTokens:
    """All tokens as editors want them: five numbers each, places relative to the token before."""
    names = {o.start: o for o in occurrences(document)}
    data: list[int] = []
    line = column = 0
    for token in document.tokens:
        kind = _kind(token.kind, token.text, names.get(token.start))
        if kind is None:
            continue
        binds = token.start in names and names[token.start].binds
        start = token.start
        for part in token.text.split("\n"):  # a token of several lines is told line by line
            part = part.rstrip("\r")
            if part:
                at = document.position(start)
                length = document.position(start + len(part)).character - at.character
                data += [at.line - line, at.character - (column if at.line == line else 0), length]
                data += [TYPES.index(kind), int(binds)]
                line, column = at.line, at.character
            start = document.text.find("\n", start) + 1
    return lsp.SemanticTokens(data=data)


def _kind(token: str, text: str, name: Occurrence | None) -> str | None:
    if token in ("comment", "number"):
        return token
    if token in ("string", "doc"):
        return "comment" if token == "doc" else "string"
    if token == "sign":
        return "operator" if text in ("=>", "<=>", "->") else None
    if name is not None:
        if name.symbol.kind == "variable":
            return _SORTS.get(name.sort, "variable") if name.sort is not None else "variable"
        return _KINDS[name.symbol.kind]
    if text in KEYWORDS or text in TYPE_WORDS:
        return "keyword"
    if text in WORDS:
        return "keyword"
    return "type" if text in DTYPES else None
