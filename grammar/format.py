"""The formatter: a file in the project's one layout, its meaning and its comments as they were.

What it gives is parsed again and compared before anyone sees it.
"""

from __future__ import annotations

from collections import Counter

from ..errors import RewriteError
from .ast import RuleFile
from .comments import Source, find_comments
from .diagnostics import RuleErrors
from .parse import parse_fresh
from .printer import print_file

_PASSES = 6
"""A comment may move a line break and so be nearer to another part; after a pass or two nothing moves any more."""


class FormatError(RewriteError):
    """The formatter would have changed what a file means or lost a comment: a mistake of its own."""

    exit_code = 3


def format_text(text: str, path: str = "<rules>") -> str:
    """The text of a rule file in the project's layout.

    Raises:
        RuleErrors: the text is not well formed.
        FormatError: the result would not mean the same, or not hold the same comments.
    """
    parsed = parse_fresh(text, path)
    if parsed.diagnostics:
        raise RuleErrors(parsed.diagnostics, {path: text})
    result, file = text, parsed.file
    for _ in range(_PASSES):
        before, source = result, Source(result, file)
        result = print_file(file, source)
        if result == before:
            return result
        file = _same(file, source, result, path)
    raise FormatError("formatting comes to no end; nothing was written", where=path)


def _same(file: RuleFile, source: Source, result: str, path: str) -> RuleFile:
    """What was printed as a tree, if it is equal and no comment is lost."""
    again = parse_fresh(result, path)
    if again.diagnostics or again.file != file:
        raise FormatError("formatting would change what the rules mean; nothing was written", where=path)
    if docs(again.file) != docs(file):
        raise FormatError("formatting would change what documents a rule; nothing was written", where=path)
    if Counter(c.text for c in source.comments) != Counter(c.text for c in find_comments(result)):
        raise FormatError("formatting would lose a comment; nothing was written", where=path)
    return again.file


def docs(file: RuleFile) -> list[str]:
    """The docs of a file and of its items, which take no part in the equality of trees."""
    return [file.doc, *(item.doc for item in file.items)]
