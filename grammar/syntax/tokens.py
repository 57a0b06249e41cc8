"""Tokens of rule files without the parser, for tools that need the text rather than its meaning.

The formatter finds comments and spellings here, the editor the word at the cursor, in any text, well formed or not.
For a text that the parser accepts the tokens are the parser's own.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .ast import Span

OPENERS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = {close: opened for opened, close in OPENERS.items()}

_TOKEN = re.compile(
    r'(?P<doc>"""(?:.|\n)*?(?:"""|\Z))'
    r'|(?P<string>"[^"\n]*"?)'
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<sign><=>|=>|->|==|!=|<=|>=|\.\.\.|\.\.|\*\*|[^\s])"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token: `kind` is `doc`, `string`, `comment`, `name`, `number` or `sign`; `start` is its offset in the text."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after its last character."""
        return self.start + len(self.text)


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Yield the tokens of a text, comments included; an unknown character is a `sign`."""
    for m in _TOKEN.finditer(text, start, len(text) if end is None else end):
        assert m.lastgroup is not None
        yield Token(m.lastgroup, m[0], m.start())


class Lines:
    """Line starts of a text: conversion between offsets and lines and columns (both from 1)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place; past the end of the text, its end."""
        if line > len(self.starts):
            return len(self.text)
        return min(self.starts[line - 1] + column - 1, len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset."""
        line = self.line(offset)
        return line, offset - self.starts[line - 1] + 1

    def line(self, offset: int) -> int:
        """Return the line of an offset."""
        return bisect.bisect_right(self.starts, offset)

    def range(self, span: Span) -> tuple[int, int]:
        """Return the offsets of a span, the end exclusive."""
        return self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)

    def span(self, path: str, start: int, end: int) -> Span:
        """Return the span between two offsets."""
        return Span(path, *self.place(start), *self.place(end))

    def own_line(self, offset: int) -> bool:
        """Return whether only white space precedes the offset on its line."""
        return not self.text[self.starts[self.line(offset) - 1] : offset].strip()
