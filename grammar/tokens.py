"""Rule files as tokens, without the parser: for what needs the text and not its meaning.

The formatter finds comments and spellings here, the editor what stands at the cursor, in any text, broken or not. For a
text that the parser accepts the tokens are the parser's own.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .ast import Span

ITEM_WORDS = frozenset(("rule", "op", "fuse", "def", "use", "ruleset", "schedule"))
"""Words that open an item."""
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
    """A token: `kind` is `doc`, `string`, `comment`, `name`, `number` or `sign`; `start` its offset in the text."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after its last character."""
        return self.start + len(self.text)


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """The tokens of a text, comments among them; a character that means nothing is a `sign`."""
    for m in _TOKEN.finditer(text, start, len(text) if end is None else end):
        assert m.lastgroup is not None
        yield Token(m.lastgroup, m[0], m.start())


class Lines:
    """Where the lines of a text begin: offsets to lines and columns (both from 1) and back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def offset(self, line: int, column: int) -> int:
        """The offset of a place; past the end of the text it is the end."""
        if line > len(self.starts):
            return len(self.text)
        return min(self.starts[line - 1] + column - 1, len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset."""
        line = bisect.bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def line(self, offset: int) -> int:
        """The line of an offset."""
        return bisect.bisect_right(self.starts, offset)

    def range(self, span: Span) -> tuple[int, int]:
        """The offsets of a span, the end exclusive."""
        return self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)

    def span(self, path: str, start: int, end: int) -> Span:
        """The span between two offsets."""
        return Span(path, *self.place(start), *self.place(end))

    def own_line(self, offset: int) -> bool:
        """Whether nothing but white space stands before the offset on its line."""
        return not self.text[self.starts[self.line(offset) - 1] : offset].strip()
