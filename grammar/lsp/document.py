"""Text, items and positions of one file in the editor.

Editors send the text after each keystroke. Only items whose text changed are parsed again, so the delay does not grow
with the file and a broken item hides no other.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from ..diagnostics import Diagnostic, Fix, Label
from ..syntax import ast
from ..syntax.ast import Span
from ..syntax.parse import Parsed, parse_item, parse_leniently, split_items
from ..syntax.tokens import Lines, Token, tokens


@dataclass(slots=True)
class Chunk:
    """Text of one item and its parse result."""

    word: str
    start: int
    end: int
    parsed: Parsed


class Document:
    """Current text of a file, its items and its tokens."""

    def __init__(self, path: Path, uri: str, text: str, encoding: str = "utf-16", *, is_open: bool = True) -> None:
        self.path = path
        self.is_open = is_open
        self.uri = uri
        self.encoding = encoding
        self.version: int | None = None
        self._derived: dict[tuple[str, int], tuple[ast.Item, Span, Hashable, Any]] = {}
        self._parsed: dict[tuple[str, str], list[tuple[int, Parsed]]] = {}
        self.update(text)

    def update(self, text: str) -> None:
        """Replace the text."""
        self.text = text
        self.lines = Lines(text)
        for name in ("tokens", "_starts", "items"):
            self.__dict__.pop(name, None)
        self._previous, self._derived = self._derived, {}
        if self.is_open:
            self.chunks = list(self._parse())
        else:  # a file on disk: parse it at once, from the cache if possible
            self.chunks = [Chunk("", 0, len(text), parse_leniently(text, str(self.path)))]

    @cached_property
    def tokens(self) -> list[Token]:
        """All tokens, comments included."""
        return list(tokens(self.text))

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    def _parse(self) -> Iterator[Chunk]:
        """Yield the chunks of the text; chunks of the previous text are reused."""
        known, self._parsed = self._parsed, {}
        for word, start, end in split_items(self.text):
            part = self.text[start:end]
            line = self.lines.line(start) - 1
            before = known.get((word, part))
            at, parsed = before.pop(0) if before else (0, parse_item(part, str(self.path), word))
            parsed = _moved(parsed, line - at)
            self._parsed.setdefault((word, part), []).append((line, parsed))
            yield Chunk(word, start, end, parsed)

    # --- what is in it

    @cached_property
    def items(self) -> list[ast.Item]:
        """All well-formed items, in order."""
        return [item for chunk in self.chunks for item in chunk.parsed.file.items]

    @property
    def syntax_errors(self) -> list[Diagnostic]:
        """Diagnostics of the items that are not well formed."""
        return [diagnostic for chunk in self.chunks for diagnostic in chunk.parsed.diagnostics]

    @property
    def is_closed(self) -> bool:
        """Whether everything that other items may refer to could be parsed."""
        return all(chunk.parsed.is_closed for chunk in self.chunks)

    def chunk_at(self, offset: int) -> Chunk:
        """Return the chunk that holds an offset."""
        return next((c for c in reversed(self.chunks) if c.start <= offset), self.chunks[0])

    def item_at(self, offset: int) -> ast.Item | None:
        """Return the item that holds an offset."""
        places = ((item, *self.lines.range(item.span)) for item in self.items)
        return next((item for item, start, end in places if start <= offset <= end), None)

    def text_of(self, span: Span) -> str:
        """Return the text of a span."""
        return self.text[slice(*self.lines.range(span))]

    def tokens_in(self, start: int, end: int) -> list[Token]:
        """Return the tokens that begin between two offsets."""
        return self.tokens[bisect.bisect_left(self._starts, start) : bisect.bisect_left(self._starts, end)]

    def token_at(self, offset: int) -> Token | None:
        """Return the token that holds an offset or ends there; a name or number rather than a sign."""
        i = bisect.bisect_right(self._starts, offset) - 1
        around = [t for t in self.tokens[max(i - 1, 0) : i + 1] if t.start <= offset <= t.end]
        return max(around, key=lambda t: (t.kind != "sign", t.start), default=None)

    def cached(
        self, what: str, item: ast.Item, make: Callable[[], Any], known: Hashable = (), *, is_relative: bool = False
    ) -> Any:
        """Return `make()`, reused as long as neither the text of the item nor what is `known` of others changes.

        A result that is neither empty nor relative to the item holds positions: it is recomputed if the item moves."""
        entry = self._derived.get((what, id(item))) or self._previous.get((what, id(item)))
        is_valid = entry is not None and entry[0] is item and entry[2] == known
        if entry is None or not is_valid or (entry[1] != item.span and entry[3] and not is_relative):
            entry = (item, item.span, known, make())
        self._derived[what, id(item)] = entry
        return entry[3]

    # --- places

    def position(self, offset: int) -> lsp.Position:
        """Convert an offset to an LSP position: zero-based, in the negotiated code units."""
        line = self.lines.line(offset) - 1
        return lsp.Position(line, self._units(self.text[self.lines.starts[line] : offset]))

    def offset(self, position: lsp.Position) -> int:
        """Convert an LSP position to an offset; past the end of a line, to its end."""
        if position.line >= len(self.lines.starts):
            return len(self.text)
        left = position.character
        for i in range(self.lines.starts[position.line], len(self.text)):
            if left <= 0 or self.text[i] == "\n":
                return i
            left -= self._units(self.text[i])
        return len(self.text)

    def _units(self, text: str) -> int:
        if self.encoding == "utf-8":
            return len(text.encode())
        return len(text) + (sum(c > "\uffff" for c in text) if self.encoding == "utf-16" else 0)

    def range(self, start: int, end: int) -> lsp.Range:
        """Return the LSP range between two offsets."""
        return lsp.Range(self.position(start), self.position(end))

    def span_range(self, span: Span) -> lsp.Range:
        """Convert a span to an LSP range."""
        return self.range(*self.lines.range(span))

    def location(self, start: int, end: int) -> lsp.Location:
        """Return the LSP location between two offsets."""
        return lsp.Location(self.uri, self.range(start, end))


def _moved(parsed: Parsed, lines: int) -> Parsed:
    """Shift a parse result down by some lines, in place: the tree is not shared."""
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
