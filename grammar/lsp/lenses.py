"""“Run tests” and “Check soundness” above each rule, and what came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lsprotocol import types as lsp

from .. import ast
from .diagnostics import SOURCE
from .document import Document
from .services import Outcome

RUN_TESTS = "rewrite.runTests"
CHECK = "rewrite.checkRule"
_TITLES = {RUN_TESTS: "Run tests", CHECK: "Check soundness"}


@dataclass(slots=True)
class Results:
    """What the last runs of tests and checks said, as long as the rule's text is the same."""

    by_rule: dict[tuple[Path, str, str], tuple[str, list[Outcome]]] = field(default_factory=dict)

    def keep(self, document: Document, rule: str, command: str, outcomes: list[Outcome]) -> None:
        """Keep the outcomes, with lines counted from the rule's first."""
        item = document.item_named(rule)
        if item is not None:
            start = item.span.line
            moved = [Outcome(o.line - start, o.ok, o.message) for o in outcomes]
            self.by_rule[document.path, rule, command] = (_text(document, item), moved)

    def of(self, document: Document, item: ast.Item, command: str) -> list[Outcome]:
        """What is still true of an item."""
        text, outcomes = self.by_rule.get((document.path, getattr(item, "name", ""), command), ("", []))
        if text != _text(document, item):
            return []
        return [Outcome(o.line + item.span.line, o.ok, o.message) for o in outcomes]

    def diagnostics(self, document: Document) -> list[lsp.Diagnostic]:
        """The failures among them, each on the line of its test."""
        found = []
        for item in document.items:
            for command in _TITLES:
                for outcome in self.of(document, item, command):
                    if not outcome.ok:
                        found.append(_failure(document, outcome, command))
        return found


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


def _text(document: Document, item: ast.Item) -> str:
    start, end = document.lines.range(item.span)
    return document.text[start:end]


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
