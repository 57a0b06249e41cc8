"""Friendly words for what the parser did not expect."""

from __future__ import annotations

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from .ast import Span
from .diagnostics import Diagnostic


def explain(error: UnexpectedInput, text: str, path: str, *, is_head: bool) -> Diagnostic:
    """A diagnostic for the parser's `error` in `text`; `is_head` when no item has begun yet."""
    line, column = max(error.line, 1), max(error.column, 1)
    if isinstance(error, UnexpectedCharacters):
        return Diagnostic(
            "unknown-character", f"`{error.char}` means nothing here", Span(path, line, column, line, column + 1)
        )
    assert isinstance(error, UnexpectedToken)
    token = error.token
    span = Span(path, line, column, token.end_line or line, token.end_column or column + 1)
    return Diagnostic("syntax", f"unexpected `{token}`; expected one of {sorted(error.expected)}", span)
