"""“Run tests” and “Check soundness” above each rule, and what came out."""

from __future__ import annotations

from lsprotocol import types as lsp

from .. import ast
from .diagnostics import SOURCE
from .document import Document
from .results import CHECK, RUN_TESTS, Results
from .services import Outcome

_TITLES = {RUN_TESTS: "Run tests", CHECK: "Check soundness"}


def failures(document: Document, results: Results) -> list[lsp.Diagnostic]:
    """What the last runs found wrong, each on the line of its test."""
    return [
        _failure(document, outcome, command)
        for item in document.items
        for command in _TITLES
        for outcome in results.of(document, item, command)
        if not outcome.ok
    ]


def _failure(document: Document, outcome: Outcome, command: str) -> lsp.Diagnostic:
    start = document.lines.offset(outcome.line, 1)
    end = document.lines.offset(outcome.line + 1, 1)
    line = document.text[start:end]
    first = start + len(line) - len(line.lstrip())
    return lsp.Diagnostic(
        range=document.range(first, start + len(line.rstrip())),
        message=outcome.message,
        severity=lsp.DiagnosticSeverity.Error,
        code="test-failed" if command == RUN_TESTS else "unsound",
        source=SOURCE,
    )


def lenses(document: Document, results: Results) -> list[lsp.CodeLens]:
    """The lenses of a file."""
    found = []
    for item in document.items:
        if not isinstance(item, ast.Rule | ast.Op) or (isinstance(item, ast.Op) and item.definition is None):
            continue
        for command, title in _TITLES.items():
            if command == RUN_TESTS and not item.tests:
                continue
            outcomes = results.of(document, item, command)
            failed = sum(not o.ok for o in outcomes)
            shown = f"{title}: {failed} failed" if failed else f"{title}: passed" if outcomes else title
            action = lsp.Command(title=shown, command=command, arguments=[document.uri, item.name])
            found.append(lsp.CodeLens(range=document.range(*_head(document, item)), command=action))
    return found


def _head(document: Document, item: ast.Item) -> tuple[int, int]:
    start, _ = document.lines.range(item.span)
    return start, start


def summary(rule: str, command: str, outcomes: list[Outcome]) -> tuple[lsp.MessageType, str]:
    """The outcomes in a sentence."""
    failed = [o for o in outcomes if not o.ok]
    if failed:
        return lsp.MessageType.Error, f"{rule}: {failed[0].message}"
    if command == CHECK:
        return lsp.MessageType.Info, f"{rule}: {outcomes[0].message if outcomes else 'nothing to check'}"
    count = len(outcomes)
    return lsp.MessageType.Info, f"{rule}: {count} test{'s' * (count != 1)} passed"
