"""Pretty-printing: documents with optional line breaks, and a renderer in the style of Oppen and Wadler.

A document is a string, a tuple of documents, or one of the classes below. A group stays on one line if it fits;
otherwise its `Line`s become newlines. A comment always ends its line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

WIDTH = 120
"""Maximum line length in columns, where breaks allow."""
COMMENT_COLUMN = 55
"""Column of trailing comments after shorter code."""
_FARTHEST = 110


@dataclass(frozen=True, slots=True)
class Line:
    """An optional line break; `flat` stands there if the line goes on."""

    flat: str = " "


@dataclass(frozen=True, slots=True)
class Newline:
    """A line break; with `blank` even for an empty line."""

    blank: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A document that stays on one line if it fits."""

    body: Doc


@dataclass(frozen=True, slots=True)
class Nest:
    """A document whose further lines are indented by `by` more columns."""

    by: int
    body: Doc


@dataclass(frozen=True, slots=True)
class Align:
    """A document whose further lines begin in its first column."""

    body: Doc


@dataclass(frozen=True, slots=True)
class EndComment:
    """A trailing comment, which ends the line; if it `waits`, at the next break."""

    text: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class LineComment:
    """A comment on its own line."""

    text: str


Doc: TypeAlias = str | tuple["Doc", ...] | Line | Newline | Group | Nest | Align | EndComment | LineComment


def fill(parts: Sequence[Doc], before: str = "", after: str = ",") -> Doc:
    """Return the parts in sequence, as many per line as fit.

    Between two parts, `after` ends the line and `before` begins the next."""
    out: list[Doc] = []
    for part in map(Group, parts):
        out += [Group((Line(), before, part)) if out else part, after]
    return tuple(out[:-1])


def joined(docs: Iterable[Doc], separator: Doc) -> Doc:
    """Return the documents with a separator between them."""
    out: list[Doc] = []
    for doc in docs:
        out += [separator, doc] if out else [doc]
    return tuple(out)


def flat(doc: Doc) -> str:
    """Return a document on one line, without its comments."""
    match doc:
        case str():
            return doc
        case tuple():
            return "".join(map(flat, doc))
        case Line():
            return doc.flat
        case Newline():
            return " "
        case Group() | Nest() | Align():
            return flat(doc.body)
    return ""


def fits(doc: Doc, width: int) -> bool:
    """Return whether a document has no newline or comment and fits the width."""
    left = _left(doc, width, is_flat=True)
    return left is not None and left >= 0


def _left(doc: Doc, width: int, *, is_flat: bool) -> int | None:
    """Return the width left after a document on one line, negative if it is too long; None if it has a break."""
    todo = [doc]
    while todo and width >= 0:
        match todo.pop():
            case str() as text:
                width -= len(text)
            case tuple() as parts:
                todo += reversed(parts)
            case Line(flat=text) if is_flat:
                width -= len(text)
            case Group(body=body) | Nest(body=body) | Align(body=body):
                todo.append(body)
            case EndComment(waits=True):
                pass
            case _:
                return None
    return width


class _Renderer:
    """Lines of one document, each as code and trailing comment."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.code = ""
        self.comments: list[str] = []
        self.waiting: list[str] = []
        self.indent = 0  # of the current line while it is empty

    def run(self, doc: Doc) -> list[tuple[str, str]]:
        """Lay out the document."""
        todo: list[tuple[int, bool, Doc]] = [(0, False, doc)]
        while todo:
            indent, is_flat, part = todo.pop()
            match part:
                case str():
                    self._write(part)
                case tuple():
                    todo += [(indent, is_flat, p) for p in reversed(part)]
                case Nest():
                    todo.append((indent + part.by, is_flat, part.body))
                case Align():
                    todo.append((len(self.code) if self.code else self.indent, is_flat, part.body))
                case Group():
                    todo.append((indent, is_flat or self._fits(part.body, todo), part.body))
                case Line():
                    if self.comments or not is_flat:
                        self._end(indent)
                    else:
                        self._write(part.flat)
                case Newline():
                    self._end(indent, always=part.blank)
                case EndComment():
                    (self.waiting if part.waits else self.comments).append(part.text)
                case LineComment():
                    self._end(indent)
                    self.comments.append(part.text)
                    self._end(indent, always=True)
        self._end(0)
        return self.lines

    def _write(self, text: str) -> None:
        if text and not self.code:
            text = text.lstrip(" ")
            self.code = " " * self.indent if text else ""
        self.code += text

    def _end(self, indent: int, *, always: bool = False) -> None:
        if self.code.strip() or self.comments or self.waiting or always:
            first, *more = [*self.waiting, *self.comments] or [""]
            self.lines.append((self.code.rstrip() or " " * self.indent if first else self.code.rstrip(), first))
            self.lines += [(" " * indent, comment) for comment in more]
        self.code, self.comments, self.waiting, self.indent = "", [], [], indent

    def _fits(self, body: Doc, rest: list[tuple[int, bool, Doc]]) -> bool:
        """Return whether a group, and what follows it up to the next possible break, fit the line."""
        left = _left(body, WIDTH - (len(self.code) or self.indent), is_flat=True)
        if left is None:  # a comment ends the line in any case
            return False
        for _, is_flat, doc in reversed(rest):
            end = _left(doc, left, is_flat=is_flat)
            if end is None:
                return True
            left = end
        return left >= 0


def rendered(doc: Doc) -> list[tuple[str, str]]:
    """Return the lines of a document as code and comment."""
    return _Renderer().run(doc)


def align_comments(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return lines of code and comment as text; comments of adjacent lines begin in one column."""
    out: list[str] = []
    for is_run, group in itertools.groupby(lines, lambda line: bool(line[0].strip() and line[1])):
        run = list(group)
        column = max(COMMENT_COLUMN, max(len(code) for code, _ in run) + 2)
        for code, comment in run:
            here = column if column <= _FARTHEST else max(COMMENT_COLUMN, len(code) + 2)
            out.append(code.ljust(here) + comment if is_run else (code + comment).rstrip())
    return out
