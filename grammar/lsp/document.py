"""One open file: its text, its items, and places in it as editors count them.

Editors send a text after each keystroke. Only the items whose text has changed are parsed again, so that the time it
takes does not grow with the file, and an item that is broken hides no other.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from lsprotocol import types as lsp

from .. import ast
from ..ast import Span
from ..diagnostics import Diagnostic, Fix, Label
from ..parse import Parsed, parse_item, parse_leniently, split_items
from ..tokens import Lines, Token, tokens

T = TypeVar("T")


@dataclass(slots=True)
class Chunk:
    """The text of an item with what was parsed of it; `line` is how many lines stand before."""

    word: str
    start: int
    end: int
    line: int
    parsed: Parsed


class Document:
    """The current text of a file and what is known of it."""

    def __init__(self, path: Path, uri: str, text: str, encoding: str = "utf-16", *, is_open: bool = True) -> None:
        self.path = path
        self.is_open = is_open
        self.uri = uri
        self.encoding = encoding
        self.version: int | None = None
        self._made: dict[int, tuple[ast.Item, Any]] = {}
        self._parsed: dict[tuple[str, str], list[tuple[int, Parsed]]] = {}
        self.update(text)

    def update(self, text: str) -> None:
        """Take a new text."""
        self.text = text
        self.lines = Lines(text)
        self._tokens: list[Token] | None = None
        self._starts: list[int] = []
        self._items: list[ast.Item] | None = None
        self._kept, self._made = self._made, {}
        if self.is_open:
            self.chunks = list(self._parse())
        else:  # it will not change: in one go, from the cache if it can be
            self.chunks = [Chunk("", 0, len(text), 0, parse_leniently(text, str(self.path)))]

    @property
    def tokens(self) -> list[Token]:
        """All tokens, comments among them."""
        if self._tokens is None:
            self._tokens = list(tokens(self.text))
            self._starts = [t.start for t in self._tokens]
        return self._tokens

    def _parse(self) -> Iterator[Chunk]:
        """The chunks of the text; those that stood in the last text are not parsed again."""
        known, self._parsed = self._parsed, {}
        for word, start, end in split_items(self.text):
            part = self.text[start:end]
            line = self.lines.line(start) - 1
            before = known.get((word, part))
            at, parsed = before.pop(0) if before else (0, parse_item(part, str(self.path), word))
            parsed = _moved(parsed, line - at)
            self._parsed.setdefault((word, part), []).append((line, parsed))
            yield Chunk(word, start, end, line, parsed)

    # --- what is in it

    @property
    def items(self) -> list[ast.Item]:
        """All items that are well formed, in order."""
        if self._items is None:
            self._items = [item for chunk in self.chunks for item in chunk.parsed.file.items]
        return self._items

    @property
    def file(self) -> ast.RuleFile:
        """The items as a file."""
        doc = next((chunk.parsed.file.doc for chunk in self.chunks if chunk.parsed.file.doc), "")
        path = str(self.path)
        return ast.RuleFile(span=Span(path, 1, 1, 1, 1), path=path, doc=doc, items=tuple(self.items))

    @property
    def syntax_errors(self) -> list[Diagnostic]:
        """What is not well formed."""
        return [diagnostic for chunk in self.chunks for diagnostic in chunk.parsed.diagnostics]

    @property
    def is_closed(self) -> bool:
        """Whether all that other items may refer to is there."""
        return all(chunk.parsed.is_closed for chunk in self.chunks)

    def chunk_at(self, offset: int) -> Chunk:
        """The chunk in which an offset lies."""
        return next((c for c in reversed(self.chunks) if c.start <= offset), self.chunks[0])

    def item_at(self, offset: int) -> ast.Item | None:
        """The item in which an offset lies."""
        for item in self.items:
            start, end = self.lines.range(item.span)
            if start <= offset <= end:
                return item
        return None

    def item_named(self, name: str) -> ast.Item | None:
        """The rule, fuse or operator of that name."""
        return next((i for i in self.items if getattr(i, "name", None) == name), None)

    def tokens_in(self, start: int, end: int) -> list[Token]:
        """The tokens that begin between two offsets."""
        every = self.tokens
        return every[bisect.bisect_left(self._starts, start) : bisect.bisect_left(self._starts, end)]

    def token_at(self, offset: int) -> Token | None:
        """The token that holds an offset, or ends there; a name or number rather than a sign."""
        every = self.tokens
        i = bisect.bisect_right(self._starts, offset) - 1
        around = [t for t in every[max(i - 1, 0) : i + 1] if t.start <= offset <= t.end]
        return max(around, key=lambda t: (t.kind != "sign", t.start)) if around else None

    def kept(self, item: ast.Item, make: Callable[[Document, ast.Item], T]) -> T:
        """What was made of an item, from the last text if its own text has not changed since."""
        entry = self._made.get(id(item)) or self._kept.get(id(item))
        if entry is None or entry[0] is not item:
            entry = (item, make(self, item))
        self._made[id(item)] = entry
        return cast(T, entry[1])

    # --- places

    def position(self, offset: int) -> lsp.Position:
        """An offset as editors count: from 0, columns in the units that were agreed upon."""
        line = self.lines.line(offset) - 1
        return lsp.Position(line, self._units(self.text[self.lines.starts[line] : offset]))

    def offset(self, position: lsp.Position) -> int:
        """The offset of an editor's place; past the end of a line it is its end."""
        if position.line >= len(self.lines.starts):
            return len(self.text)
        start = self.lines.starts[position.line]
        left = position.character
        for i in range(start, len(self.text)):
            if left <= 0 or self.text[i] == "\n":
                return i
            left -= self._units(self.text[i])
        return len(self.text)

    def _units(self, text: str) -> int:
        if self.encoding == "utf-8":
            return len(text.encode())
        if self.encoding == "utf-16":
            return len(text) + sum(c > "\uffff" for c in text)
        return len(text)

    def range(self, start: int, end: int) -> lsp.Range:
        """The range between two offsets."""
        return lsp.Range(self.position(start), self.position(end))

    def span_range(self, span: Span) -> lsp.Range:
        """A span as editors count."""
        return self.range(*self.lines.range(span))


def _moved(parsed: Parsed, lines: int) -> Parsed:
    """What was parsed, some lines further down. The tree is moved in place: nobody else has it."""
    if not lines:
        return parsed
    for item in parsed.file.items:
        for node in item.walk():
            object.__setattr__(node, "span", _down(node.span, lines))
    return replace(parsed, diagnostics=tuple(_diagnostic_down(d, lines) for d in parsed.diagnostics))


def _down(span: Span, lines: int) -> Span:
    return Span(span.file, span.line + lines, span.column, span.end_line + lines, span.end_column)


def _diagnostic_down(diagnostic: Diagnostic, lines: int) -> Diagnostic:
    fix = diagnostic.fix
    return replace(
        diagnostic,
        span=_down(diagnostic.span, lines),
        labels=tuple(Label(_down(label.span, lines), label.text) for label in diagnostic.labels),
        fix=Fix(_down(fix.span, lines), fix.replacement) if fix else None,
    )
