"""A whole file in the project's layout: items one below the other, with the blank lines between them."""

from __future__ import annotations

from . import ast
from .comments import Source
from .layout import align_comments, rendered
from .printer import Printer

Lines = list[tuple[str, str]]
"""Lines as code and the comment after it."""


class FilePrinter:
    """Prints files. One blank line stands between items; single lines may stand together."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self.printer = Printer(source)
        self.out: Lines = []

    def file(self, file: ast.RuleFile) -> str:
        """The text, ending in a newline if there is any."""
        self._docstring(file)
        previous: ast.Item | None = None
        was_single = False
        for item in file.items:
            lines = self._with_lost_comments(item, self._with_doc(item, rendered(self.printer.item(item))))
            is_single = len(lines) == 1
            together = self.source is not None and previous is not None and was_single and is_single
            self._before(item, previous, together)
            self.out += lines
            self._after(item, sum(bool(code.strip()) for code, _ in lines) == 1)
            previous, was_single = item, is_single
        self._end(file)
        return "\n".join(align_comments(self.out)) + "\n" if self.out else ""

    def _docstring(self, file: ast.RuleFile) -> None:
        if self.source is None:
            if file.doc:
                self._verbatim(f'"""{file.doc}"""')
            return
        for comment in self.source.attached("docstring").before:
            self.out.append(("", comment.text))
        if self.source.file_docstring is not None:
            self._verbatim(self.source.file_docstring.text)

    def _verbatim(self, text: str) -> None:
        self.out += [(line.rstrip(), "") for line in text.split("\n")]

    def _before(self, item: ast.Item, previous: ast.Item | None, together: bool) -> None:
        """The comments before an item and the blank lines around them."""
        source = self.source
        if source is None:
            self._blank()
            return
        start, _ = source.lines.range(item.span)
        at = source.lines.range(previous.span)[1] if previous is not None else 0
        if previous is not None:
            below = source.attached(id(previous))
            at = max([at, *(c.start for c in (*below.end, *below.after))])
        elif source.file_docstring is not None:
            at = source.file_docstring.end
        comments = source.attached(id(item)).before
        for i, comment in enumerate(comments):
            if (i == 0 and not together) or source.has_blank_line(at, comment.start):
                self._blank()
            self.out.append(("", comment.text))
            at = comment.start
        if (not comments and not together) or source.has_blank_line(at, start):
            self._blank()

    def _after(self, item: ast.Item, is_first_line: bool) -> None:
        """The comments at the end of an item and below it; none comes to its first line, where it would be the doc."""
        if self.source is None:
            return
        found = self.source.attached(id(item))
        for comment in found.end:
            code, there = self.out[-1]
            if there or is_first_line:
                self.out.append(("", f"  {comment.text}"))
            else:
                self.out[-1] = (code, comment.text)
        self.out += [("", f"  {c.text}") for c in found.after]

    def _end(self, file: ast.RuleFile) -> None:
        """The comments after the last item."""
        if self.source is None:
            return
        for i, comment in enumerate(self.source.attached("file").after):
            before = self.source.comments[self.source.comments.index(comment) - 1] if i else None
            if before is None or self.source.has_blank_line(before.start, comment.start):
                self._blank()
            self.out.append(("", comment.text))

    def _blank(self) -> None:
        if self.out:
            self.out.append(("", ""))

    def _with_doc(self, item: ast.Item, lines: Lines) -> Lines:
        """The lines of an item, its first one with the comment that it had and no other: there it is the doc."""
        if self.source is None:
            return lines
        wanted = self.source.on_first_line(item)
        text = wanted.text if wanted is not None else ""
        (code, comment), *more = lines
        if comment == text:
            return lines
        if text:
            at = next((i for i, (_, c) in enumerate(more) if c == text), None)
            if at is not None:
                more[at : at + 1] = [(more[at][0], "")] if more[at][0].strip() else []
        if not more and not text:
            return [(code, ""), ("", f"  {comment}")]
        moved = [("", comment)] if comment else []
        return [*moved, (code, text), *more]

    def _with_lost_comments(self, item: ast.Item, lines: Lines) -> Lines:
        """The lines of an item, led by comments that stood where its printed form has no place for them."""
        if self.source is None:
            return lines
        start, end = self.source.lines.range(item.span)
        around = self.source.attached(id(item))
        kept = [comment.strip() for _, comment in lines]
        kept += [comment.text for comment in (*around.before, *around.end, *around.after)]
        lost: Lines = []
        for comment in self.source.comments:
            if start <= comment.start < end:
                if comment.text in kept:
                    kept.remove(comment.text)
                else:
                    lost.append(("", comment.text))
        return lost + lines
