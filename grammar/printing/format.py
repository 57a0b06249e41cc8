"""The formatter: whole files in the project's layout, with unchanged meaning and comments.

The result of formatting is parsed again and compared before it is returned.
"""

from __future__ import annotations

from collections import Counter

from ...errors import RewriteError
from ..syntax import ast
from ..syntax.comments import Source
from ..syntax.parse import parse_fresh
from .layout import align_comments, rendered
from .printer import Printer, print_rule

_PASSES = 6
"""Maximum number of passes. A comment may move a line break and so change its owner; two passes usually suffice."""
Lines = list[tuple[str, str]]
"""Lines as code and trailing comment."""


class FormatError(RewriteError):
    """The formatter would have changed the meaning of a file or lost a comment: an internal error."""

    exit_code = 3


def format_text(text: str, path: str = "<rules>") -> str:
    """Return the text of a rule file in the project's layout.

    Raises `RuleErrors` if it is not well formed, `FormatError` if the result would differ in meaning or comments."""
    source = Source(text, parse_fresh(text, path).checked(text))
    for _ in range(_PASSES):
        result = print_file(source.file, source)
        if result == source.text:
            return result
        parsed = parse_fresh(result, path)
        if parsed.diagnostics or parsed.file != source.file:
            raise FormatError("formatting would change the meaning of the rules; the file is unchanged", where=path)
        again = Source(result, parsed.file)
        if docs(again.file) != docs(source.file):
            raise FormatError("formatting would change the documentation of a rule; the file is unchanged", where=path)
        if Counter(c.text for c in source.comments) != Counter(c.text for c in again.comments):
            raise FormatError("formatting would lose a comment; the file is unchanged", where=path)
        source = again
    raise FormatError("formatting does not converge; the file is unchanged", where=path)


def docs(file: ast.RuleFile) -> list[str]:
    """Return the docs of a file and of its items, which equality of trees ignores."""
    return [file.doc, *(item.doc for item in file.items)]


def print_file(file: ast.RuleFile, source: Source | None = None) -> str:
    """Text of a whole file, ending in a newline; `source` supplies the author's comments and spellings."""
    if source is not None:
        return _FilePrinter(source).file(file)
    doc = [f'"""{file.doc}"""'] if file.doc else []
    return "\n\n".join([*doc, *map(print_rule, file.items)]) + "\n" if doc or file.items else ""


class _FilePrinter:
    """Prints a file. One blank line separates items; one-line items may be adjacent."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.printer = Printer(source)
        self.out: Lines = []

    def file(self, file: ast.RuleFile) -> str:
        """Return the text, ending in a newline unless it is empty."""
        self.out += [("", comment.text) for comment in self.source.attached("docstring").before]
        if self.source.file_docstring is not None:
            self.out += [(line.rstrip(), "") for line in self.source.file_docstring.text.split("\n")]
        previous: ast.Item | None = None
        was_single = False
        for item in file.items:
            lines = self._with_lost_comments(item, self._with_doc(item, rendered(self.printer.item(item))))
            is_single = len(lines) == 1
            self._before(item, previous, together=was_single and is_single)
            self.out += lines
            self._after(item, is_first_line=sum(bool(code.strip()) for code, _ in lines) == 1)
            previous, was_single = item, is_single
        self._end()
        return "\n".join(align_comments(self.out)) + "\n" if self.out else ""

    def _before(self, item: ast.Item, previous: ast.Item | None, *, together: bool) -> None:
        source = self.source
        start, _ = source.lines.range(item.span)
        at = source.file_docstring.end if source.file_docstring is not None else 0
        if previous is not None:
            below = source.attached(id(previous))
            at = max([source.lines.range(previous.span)[1], *(c.start for c in (*below.end, *below.after))])
        comments = source.attached(id(item)).before
        for i, comment in enumerate(comments):
            if (i == 0 and not together) or source.has_blank_line(at, comment.start):
                self._blank()
            self.out.append(("", comment.text))
            at = comment.start
        if (not comments and not together) or source.has_blank_line(at, start):
            self._blank()

    def _after(self, item: ast.Item, *, is_first_line: bool) -> None:
        """Emit the comments after an item; none goes to its first line, where it would become its doc."""
        found = self.source.attached(id(item))
        for comment in found.end:
            code, there = self.out[-1]
            if there or is_first_line:
                self.out.append(("", f"  {comment.text}"))
            else:
                self.out[-1] = (code, comment.text)
        self.out += [("", f"  {c.text}") for c in found.after]

    def _end(self) -> None:
        for i, comment in enumerate(self.source.attached("file").after):
            before = self.source.comments[self.source.comments.index(comment) - 1] if i else None
            if before is None or self.source.has_blank_line(before.start, comment.start):
                self._blank()
            self.out.append(("", comment.text))

    def _blank(self) -> None:
        if self.out:
            self.out.append(("", ""))

    def _with_doc(self, item: ast.Item, lines: Lines) -> Lines:
        """Return the lines of an item with exactly its own doc comment on the first line."""
        wanted = self.source.first_lines.get(id(item))
        text = wanted.text if wanted is not None else ""
        (code, comment), *more = lines
        if comment == text:
            return lines
        at = next((i for i, (_, c) in enumerate(more) if text and c == text), None)
        if at is not None:
            more[at : at + 1] = [(more[at][0], "")] if more[at][0].strip() else []
        if not more and not text:
            return [(code, ""), ("", f"  {comment}")]
        return [*([("", comment)] if comment else []), (code, text), *more]

    def _with_lost_comments(self, item: ast.Item, lines: Lines) -> Lines:
        """Return the lines of an item, preceded by comments that its printed form has no place for."""
        start, end = self.source.lines.range(item.span)
        around = self.source.attached(id(item))
        printed = Counter(comment.strip() for _, comment in lines)
        printed.update(comment.text for comment in (*around.before, *around.end, *around.after))
        lost: Lines = []
        for comment in self.source.comments:
            if start <= comment.start < end:
                printed[comment.text] -= 1
                lost += [("", comment.text)] if printed[comment.text] < 0 else []
        return lost + lines
