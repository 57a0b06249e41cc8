"""Writing what tests of rules give into the rule files, in place of what they expected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import transient
from ..errors import UserError
from ..grammar.ast import Span
from ..grammar.parse import parse_text, read
from .rule_tests import TestResult


def bless(results: Sequence[TestResult]) -> list[TestResult]:
    """Replaces the expression after `gives` of each test that gave another; the tests that this mends.

    A file is replaced as a whole, once its new text parses. Raises `UserError` if it cannot be written."""
    edits: dict[str, list[tuple[Span, str]]] = {}
    mended = [r for r in results if not r.ok and r.actual and r.expected is not None]
    for result in mended:
        assert result.expected is not None
        edits.setdefault(result.file, []).append((result.expected, result.actual))
    for file, changes in edits.items():
        text = replaced(read(file), changes)
        parse_text(text, file)
        try:
            with transient.replacing(Path(file)) as out:
                out.write(text.encode())
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", where=file) from error
    return mended


def replaced(text: str, changes: Sequence[tuple[Span, str]]) -> str:
    """A text with the stretches at some spans, which do not overlap, replaced."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for span, new in sorted(changes, key=lambda change: (change[0].line, change[0].column), reverse=True):
        start = starts[span.line - 1] + span.column - 1
        end = starts[span.end_line - 1] + span.end_column - 1
        text = text[:start] + new + text[end:]
    return text
