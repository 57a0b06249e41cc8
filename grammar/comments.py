"""The comments of a rule file, beside its syntax tree: what the author wrote that the tree does not hold.

They are found in the text, so they cost nothing where only rules are loaded. Each is attached to the part of the tree
that it speaks of: a comment at the end of a line to the largest part that ends there, a comment on a line of its own to
what follows. Spellings that the tree forgets (`1e-5`, parentheses for the reader's sake) are found here too.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from . import ast
from .tokens import CLOSERS, OPENERS, Lines, Token, tokens

CLAUSE_WORDS = frozenset(
    ("given", "where", "let", "class", "direction", "joins", "order", "allow", "test", "kind", "commutative", "impure")
)
"""Words that open a clause."""
_JOINING = frozenset(("and", "or", "not", "in", "is", "if", "for", "else"))


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its `#`. `line` and `column` count from 1; `own_line` if nothing stands before it."""

    text: str
    line: int
    column: int
    own_line: bool
    start: int = field(compare=False)


@dataclass(slots=True)
class Attached:
    """The comments of one part: on lines before it, at its end, and on lines after it."""

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


def find_comments(text: str) -> list[Comment]:
    """All comments of a text, in order."""
    lines = Lines(text)
    return [_comment(token, lines) for token in tokens(text) if token.kind == "comment"]


def _comment(token: Token, lines: Lines) -> Comment:
    line, column = lines.place(token.start)
    return Comment(token.text.rstrip(), line, column, lines.own_line(token.start), token.start)


class Source:
    """A file's text together with its tree: comments by the part they belong to, and spellings."""

    def __init__(self, text: str, file: ast.RuleFile) -> None:
        self.text = text
        self.lines = Lines(text)
        every = list(tokens(text))
        self.comments = [_comment(t, self.lines) for t in every if t.kind == "comment"]
        self._code = [t for t in every if t.kind != "comment"]
        self._starts = [t.start for t in self._code]
        self._closing = _matches(self._code)
        self._attached: dict[Hashable, Attached] = {}
        self._clauses: dict[int, frozenset[str]] = {}
        self._docstrings: dict[int, Token] = {}
        self._first_lines: dict[Hashable, Comment] = {}
        self.file_docstring = self._code[0] if self._code and self._code[0].kind == "doc" else None
        self._attach(file)

    # --- what the printer asks

    def attached(self, key: Hashable) -> Attached:
        """The comments of a part: a node by its `id`, a clause by the item's `id` and its word, or `"file"`."""
        return self._attached.get(key, _NOTHING)

    def has_clause(self, item: ast.Item, word: str) -> bool:
        """Whether the author wrote a clause, though it may say what holds without it."""
        return word in self._clauses[id(item)]

    def docstring(self, item: ast.Item) -> str | None:
        """The docstring of an item as written, quotes included."""
        token = self._docstrings.get(id(item))
        return token.text if token else None

    def on_first_line(self, item: ast.Item) -> Comment | None:
        """The comment at the end of an item's first line: its doc, if it has no docstring."""
        return self._first_lines.get(id(item))

    def spelling(self, number: ast.Number) -> str | None:
        """How a number is written, if what stands there has its value."""
        start, end = self.lines.range(number.span)
        written = "".join(t.text for t in tokens(self.text, start, end) if t.kind in ("number", "sign"))
        written = written.replace("(", "").replace(")", "")
        try:
            value = int(written) if isinstance(number.value, int) else float(written)
        except ValueError:
            return None
        return written if value == number.value else None

    def is_parenthesised(self, expr: ast.Expr) -> bool:
        """Whether parentheses stand around an expression, needed or not."""
        start, end = self.lines.range(expr.span)
        return self._closing.get(start) == end - 1

    def has_blank_line(self, start: int, end: int) -> bool:
        """Whether an empty line stands between two offsets."""
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
                self._first_lines[item.key] = comment  # its doc, where it has no docstring
            elif doc is not None and comment.start < doc.start:
                self._at("docstring").before.append(comment)
            else:
                self._place(comment, whole, doc.end if doc else 0)

    def _at(self, key: Hashable) -> Attached:
        return self._attached.setdefault(key, Attached())

    def _place(self, comment: Comment, anchor: _Anchor, after: int) -> None:
        """Attach a comment that stands within an anchor."""
        before = next((p for p in reversed(anchor.parts) if p.end <= comment.start), None)
        inside = next((p for p in anchor.parts if p.start < comment.start < p.end), None)
        following = next((p for p in anchor.parts if p.start > comment.start), None)
        if inside is not None:
            self._place(comment, inside, after)
        elif before is not None and not comment.own_line and self._only_closes(before.end, comment.start):
            self._at(before.key).end.append(comment)
        elif anchor.key == "file" and before is not None and self._is_below(comment, before):
            self._at(before.key).after.append(comment)
        elif following is not None:
            self._at(following.key).before.append(comment)
        elif before is not None and anchor.key != "file":
            self._at(before.key).after.append(comment)
        elif anchor.key == "file":
            self._at("file").after.append(comment)
        else:
            self._at(anchor.key).before.append(comment)

    def _only_closes(self, start: int, end: int) -> bool:
        """Whether only commas and closing brackets stand between two offsets."""
        return all(t.text == "," or t.text in CLOSERS for t in tokens(self.text, start, end) if t.kind != "comment")

    def _is_below(self, comment: Comment, item: _Anchor) -> bool:
        """Whether an indented comment stands right below an item."""
        return comment.own_line and comment.column > 1 and not self.has_blank_line(item.end, comment.start)

    def _item(self, item: ast.Item) -> _Anchor:
        start, end = self.lines.range(item.span)
        at = [bisect.bisect_left(self._starts, offset) for offset in (start, end)]
        code = self._code[at[0] : at[1]]
        docs = [t for t in code if t.kind == "doc"]
        if docs:
            self._docstrings[id(item)] = docs[0]
        arrow = next((i for i, t in enumerate(code) if t.text in ("=>", "<=>")), 0)
        openings = _openings(code[arrow:])
        self._clauses[id(item)] = frozenset(t.text for t in openings)
        nodes = sorted((self._node(child) for child in item.children()), key=lambda a: (a.start, -a.end))
        bounds = [t.start for t in openings] + [end]
        limits = list(zip(openings, bounds[1:], strict=True))
        first = bounds[0]
        lhs = getattr(item, "lhs", None)
        head_end = self.lines.range(lhs.span)[0] if isinstance(lhs, ast.Syntax) else first
        head = _Anchor(start, _last_end(code, head_end), (id(item), "head"), [a for a in nodes if a.start < head_end])
        parts = [head, *(a for a in nodes if head_end <= a.start < first)]
        for opening, limit in limits:
            inner = [a for a in nodes if opening.start <= a.start < limit]
            stop = _last_end(code, limit)
            if len(inner) == 1 and (inner[0].start, inner[0].end) == (opening.start, stop):
                parts.append(inner[0])  # a `test` is a node of its own
            else:
                parts.append(_Anchor(opening.start, stop, (id(item), opening.text), inner))
        return _Anchor(start, end, id(item), parts)

    def _node(self, node: ast.Syntax) -> _Anchor:
        start, end = self.lines.range(node.span)
        parts = sorted((self._node(child) for child in node.children()), key=lambda a: (a.start, -a.end))
        return _Anchor(start, end, id(node), parts)


_NOTHING = Attached()


def _matches(code: Sequence[Token]) -> dict[int, int]:
    """The offset of the closing bracket for each offset of an opening one."""
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
    """The tokens among an item's that open its clauses."""
    found: list[Token] = []
    depth = 0
    for previous, token in itertools.pairwise(code):
        if token.kind == "sign":
            depth += (token.text in OPENERS) - (token.text in CLOSERS)
        elif token.kind == "name" and not depth and token.text in CLAUSE_WORDS and _ends_expression(previous):
            found.append(token)
    return found


def _ends_expression(token: Token) -> bool:
    if token.kind == "sign":
        return token.text in CLOSERS
    return token.text not in _JOINING


def _last_end(code: Sequence[Token], limit: int) -> int:
    """The end of the last token that begins before an offset."""
    return max((t.end for t in code if t.start < limit), default=limit)
