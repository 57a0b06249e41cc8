"""Laying text out on lines: documents that say where a line may end, and the renderer that decides where it does.

A document is a string, a tuple of documents, or one of the classes below. The renderer follows Oppen and Wadler: a
group stays on one line if it fits there, else its `Line`s become newlines. A comment ends its line in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

WIDTH = 120
"""Where lines end if they can."""
COMMENT_COLUMN = 55
"""Where comments at the ends of lines begin if the code before them is shorter."""
_FARTHEST = 110


@dataclass(frozen=True, slots=True)
class Line:
    """A place where a line may end; `flat` is what stands there if it does not."""

    flat: str = " "


@dataclass(frozen=True, slots=True)
class Newline:
    """A place where a line ends; with `blank` even if nothing stands on it."""

    blank: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A document to be kept on one line if it fits."""

    body: Doc


@dataclass(frozen=True, slots=True)
class Nest:
    """A document whose further lines are indented by `by` more."""

    by: int
    body: Doc


@dataclass(frozen=True, slots=True)
class Align:
    """A document whose further lines begin where it begins."""

    body: Doc


@dataclass(frozen=True, slots=True)
class EndComment:
    """A comment at the end of the line being written, which it ends; if it `waits`, it stands where the line ends."""

    text: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class LineComment:
    """A comment on a line of its own."""

    text: str


Doc: TypeAlias = str | tuple["Doc", ...] | Line | Newline | Group | Nest | Align | EndComment | LineComment


def fill(parts: Sequence[Doc], before: str = "", after: str = ",") -> Doc:
    """The parts one after the other, as many on a line as fit.

    Between two of them stand `after` at the end of a line and `before` at the beginning of the next."""
    out: list[Doc] = []
    for i, part in enumerate(parts):
        if i:
            out.append(Group((Line(), before, Group(part))))
        else:
            out.append(Group(part))
        if i < len(parts) - 1:
            out.append(after)
    return tuple(out)


def joined(docs: Iterable[Doc], separator: Doc) -> Doc:
    """The documents with a separator between them."""
    out: list[Doc] = []
    for doc in docs:
        out += [separator, doc] if out else [doc]
    return tuple(out)


def flat(doc: Doc) -> str:
    """A document on one line, without its comments."""
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
    """Whether a document has no newline or comment and fits a width."""
    left = _measure([doc], width)
    return left is not None and left >= 0


def _measure(todo: list[Doc], width: int) -> int | None:
    """What is left of the width after documents on one line, less than 0 if it is too little; None for a newline."""
    todo = todo[::-1]
    while todo and width >= 0:
        match todo.pop():
            case str() as text:
                width -= len(text)
            case tuple() as parts:
                todo += reversed(parts)
            case Line(flat=text):
                width -= len(text)
            case Group(body=body) | Nest(body=body) | Align(body=body):
                todo.append(body)
            case EndComment(waits=True):
                pass
            case _:
                return None
    return width


class _Renderer:
    """The lines of one document; each is its code and the comment at its end."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[tuple[str, str]] = []
        self.code = ""
        self.comments: list[str] = []
        self.waiting: list[str] = []
        self.indent = 0  # of the line being written, as long as nothing stands on it

    def run(self, doc: Doc) -> list[tuple[str, str]]:
        """Lay the document out."""
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
        """End the line if anything stands on it."""
        if self.code.strip() or self.comments or self.waiting or always:
            first, *more = [*self.waiting, *self.comments] or [""]
            self.lines.append((self.code.rstrip() or " " * self.indent if first else self.code.rstrip(), first))
            self.lines += [(" " * indent, comment) for comment in more]
        self.code, self.comments, self.waiting, self.indent = "", [], [], indent

    def _fits(self, body: Doc, rest: list[tuple[int, bool, Doc]]) -> bool:
        """Whether a group and what follows it up to the next place for a newline fit the line."""
        left = self.width - (len(self.code) or self.indent)
        measured = _measure([body], left)
        if measured is None:  # a comment ends the line wherever it stands; what is before it must fit
            return False
        if measured < 0:
            return False
        for _, is_flat, doc in reversed(rest):
            end = _until_line(doc, measured, is_flat)
            if end is None:
                return True
            measured = end
            if measured < 0:
                return False
        return True


def _until_line(doc: Doc, width: int, is_flat: bool) -> int | None:
    """What is left of the width after a document without places for a newline; None where it has one that fits."""
    todo: list[tuple[bool, Doc]] = [(is_flat, doc)]
    while todo and width >= 0:
        is_flat, part = todo.pop()
        match part:
            case str():
                width -= len(part)
            case tuple():
                todo += [(is_flat, p) for p in reversed(part)]
            case Line():
                if not is_flat:
                    return None
                width -= len(part.flat)
            case Group(body=body) | Nest(body=body) | Align(body=body):
                todo.append((is_flat, body))
            case EndComment(waits=True):
                pass
            case _:
                return None
    return width


def render(doc: Doc, width: int = WIDTH) -> list[str]:
    """The lines of a document, comments at the ends of neighbouring lines below each other."""
    return align_comments(_Renderer(width).run(doc))


def rendered(doc: Doc, width: int = WIDTH) -> list[tuple[str, str]]:
    """The lines of a document as code and comment, for `align_comments` over several of them."""
    return _Renderer(width).run(doc)


def align_comments(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of code and comment as text. Comments of lines that follow each other begin in one column."""
    out: list[str] = []
    i = 0
    while i < len(lines):
        run = 0
        while i + run < len(lines) and lines[i + run][0].strip() and lines[i + run][1]:
            run += 1
        if not run:
            code, comment = lines[i]
            out.append((code + comment).rstrip())
            i += 1
            continue
        longest = max(len(code) for code, _ in lines[i : i + run])
        column = max(COMMENT_COLUMN, longest + 2)
        for code, comment in lines[i : i + run]:
            here = column if column <= _FARTHEST else max(COMMENT_COLUMN, len(code) + 2)
            out.append(code.ljust(here) + comment)
        i += run
    return out
