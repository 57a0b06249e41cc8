"""Comments of a rule file, attached to the parts of its syntax tree.

They are read from the text, so loading rules does not pay for them. A trailing comment belongs to the largest part
that ends before it, a comment on its own line to what follows. Spellings that the tree does not hold (`1e-5`,
redundant parentheses) are found here too.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ..builtins import CLAUSE_WORDS
from . import ast
from .tokens import CLOSERS, OPENERS, Lines, Token, tokens

_JOINING = frozenset(("and", "or", "not", "in", "is", "if", "for", "else"))


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its `#`. `line` and `column` count from 1; `own_line` if only spaces precede it."""

    text: str
    line: int
    column: int
    own_line: bool
    start: int = field(compare=False)


@dataclass(slots=True)
class Attached:
    """The comments of one part: on the lines before it, at its end, and on the lines after it."""

    before: list[Comment] = field(default_factory=list)
    end: list[Comment] = field(default_factory=list)
    after: list[Comment] = field(default_factory=list)


@dataclass(slots=True)
class _Anchor:
    """A part of the file that comments may belong to."""

    start: int
    end: int
    key: Hashable
    parts: list[_Anchor] = field(default_factory=list)


class Source:
    """Text of a file with its tree: comments by part, and spellings.

    By the `id` of an item: `clauses` holds the keywords that its author wrote, even for a default; `docstrings` its
    docstring with the quotes; `first_lines` the comment at the end of its first line, its doc without a docstring."""

    def __init__(self, text: str, file: ast.RuleFile) -> None:
        self.text, self.file = text, file
        self.lines = Lines(text)
        every = list(tokens(text))
        self.comments = [self._comment(t) for t in every if t.kind == "comment"]
        self._code = [t for t in every if t.kind != "comment"]
        self._starts = [t.start for t in self._code]
        self._closing = _matches(self._code)
        self._attached: dict[Hashable, Attached] = {}
        self.clauses: dict[int, frozenset[str]] = {}
        self.docstrings: dict[int, str] = {}
        self.first_lines: dict[Hashable, Comment] = {}
        self.file_docstring = self._code[0] if self._code and self._code[0].kind == "doc" else None
        self._attach(file)

    def _comment(self, token: Token) -> Comment:
        is_alone = self.lines.own_line(token.start)
        return Comment(token.text.rstrip(), *self.lines.place(token.start), is_alone, token.start)

    # --- queries of the printer

    def attached(self, key: Hashable) -> Attached:
        """Return the comments of a part: a node by its `id`, a clause by the item's `id` and keyword, or `"file"`."""
        return self._attached.get(key, _NOTHING)

    def spelling(self, number: ast.Number) -> str | None:
        """Return the spelling of a number, if the text at its span has that value."""
        start, end = self.lines.range(number.span)
        written = "".join(t.text for t in tokens(self.text, start, end) if t.kind in ("number", "sign"))
        written = written.replace("(", "").replace(")", "")
        try:
            value = int(written) if isinstance(number.value, int) else float(written)
        except ValueError:
            return None
        return written if value == number.value else None

    def is_parenthesized(self, expr: ast.Expr) -> bool:
        """Return whether an expression is parenthesized, necessarily or not."""
        start, end = self.lines.range(expr.span)
        return self._closing.get(start) == end - 1

    def has_blank_line(self, start: int, end: int) -> bool:
        """Return whether an empty line stands between two offsets."""
        return any(not line.strip() for line in self.text[start:end].split("\n")[1:-1])

    # --- attaching

    def _attach(self, file: ast.RuleFile) -> None:
        anchors = [self._item(item) for item in file.items]
        whole = _Anchor(0, len(self.text), "file", anchors)
        firsts = {self.lines.line(a.start): a for a in anchors}
        doc = self.file_docstring
        for comment in self.comments:
            item = firsts.get(comment.line)
            if item is not None and comment.start > item.start and not comment.own_line:
                self.first_lines[item.key] = comment
            elif doc is not None and comment.start < doc.start:
                self._at("docstring").before.append(comment)
            else:
                self._place(comment, whole)

    def _at(self, key: Hashable) -> Attached:
        return self._attached.setdefault(key, Attached())

    def _place(self, comment: Comment, anchor: _Anchor) -> None:
        before = next((p for p in reversed(anchor.parts) if p.end <= comment.start), None)
        inside = next((p for p in anchor.parts if p.start < comment.start < p.end), None)
        following = next((p for p in anchor.parts if p.start > comment.start), None)
        is_file = anchor.key == "file"
        if inside is not None:
            self._place(comment, inside)
        elif before is not None and not comment.own_line and self._only_closes(before.end, comment.start):
            self._at(before.key).end.append(comment)
        elif is_file and before is not None and self._is_below(comment, before):
            self._at(before.key).after.append(comment)
        elif following is not None:
            self._at(following.key).before.append(comment)
        elif is_file:
            self._at("file").after.append(comment)
        elif before is not None:
            self._at(before.key).after.append(comment)
        else:
            self._at(anchor.key).before.append(comment)

    def _only_closes(self, start: int, end: int) -> bool:
        return all(t.text == "," or t.text in CLOSERS for t in tokens(self.text, start, end) if t.kind != "comment")

    def _is_below(self, comment: Comment, item: _Anchor) -> bool:
        return comment.own_line and comment.column > 1 and not self.has_blank_line(item.end, comment.start)

    def _item(self, item: ast.Item) -> _Anchor:
        start, end = self.lines.range(item.span)
        at = [bisect.bisect_left(self._starts, offset) for offset in (start, end)]
        code = self._code[at[0] : at[1]]
        self.docstrings |= {id(item): t.text for t in code if t.kind == "doc"}
        arrow = next((i for i, t in enumerate(code) if t.text in ("=>", "<=>")), 0)
        openings = _openings(code[arrow:])
        self.clauses[id(item)] = frozenset(t.text for t in openings)
        nodes = self._nodes(item)
        bounds = [*(t.start for t in openings), end]
        first = bounds[0]
        lhs = getattr(item, "lhs", None)
        head_end = self.lines.range(lhs.span)[0] if isinstance(lhs, ast.Syntax) else first
        head = _Anchor(start, _last_end(code, head_end), (id(item), "head"), [a for a in nodes if a.start < head_end])
        parts = [head, *(a for a in nodes if head_end <= a.start < first)]
        for opening, limit in zip(openings, bounds[1:], strict=True):
            inner = [a for a in nodes if opening.start <= a.start < limit]
            stop = _last_end(code, limit)
            if len(inner) == 1 and (inner[0].start, inner[0].end) == (opening.start, stop):
                parts.append(inner[0])  # a `test` is a node of its own
            else:
                parts.append(_Anchor(opening.start, stop, (id(item), opening.text), inner))
        return _Anchor(start, end, id(item), parts)

    def _nodes(self, node: ast.Syntax) -> list[_Anchor]:
        below = [_Anchor(*self.lines.range(child.span), id(child), self._nodes(child)) for child in node.children()]
        return sorted(below, key=lambda a: (a.start, -a.end))


_NOTHING = Attached()


def _matches(code: Sequence[Token]) -> dict[int, int]:
    """Map the offset of each opening bracket to that of its closing one."""
    found: dict[int, int] = {}
    stack: list[Token] = []
    for token in code:
        if token.kind != "sign":
            continue
        if token.text in OPENERS:
            stack.append(token)
        elif stack and CLOSERS.get(token.text) == stack[-1].text:
            found[stack.pop().start] = token.start
    return found


def _openings(code: Sequence[Token]) -> list[Token]:
    found: list[Token] = []
    depth = 0
    for previous, token in itertools.pairwise(code):
        if token.kind == "sign":
            depth += (token.text in OPENERS) - (token.text in CLOSERS)
        elif token.kind == "name" and not depth and token.text in CLAUSE_WORDS:
            # A word after a sign or a joining word is a name in an expression.
            if previous.text in CLOSERS if previous.kind == "sign" else previous.text not in _JOINING:
                found.append(token)
    return found


def _last_end(code: Sequence[Token], limit: int) -> int:
    return max((t.end for t in code if t.start < limit), default=limit)
