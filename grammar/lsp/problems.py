"""Diagnostics, quick fixes, and code lenses with the results of tests and checks, in LSP form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from ..diagnostics import Diagnostic, Fix
from ..syntax import ast
from .document import Document
from .services import CHECK, RUN_TESTS, Outcome
from .workspace import Workspace

SOURCE = "rewrite"
FIX_OPTIONS = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
TITLES = {RUN_TESTS: "Run tests", CHECK: "Check soundness"}


def diagnostics(workspace: Workspace, document: Document, others: Sequence[Diagnostic] = ()) -> list[lsp.Diagnostic]:
    """Return the findings in a document, those of `others` that are not among them, and failures of the last runs."""
    found = workspace.problems(document)
    known = {(d.code, d.span.line, d.span.column) for d in found}
    more = [d for d in others if (d.code, d.span.line, d.span.column) not in known]
    failures = [
        _failure(document, outcome, command)
        for item in document.items
        for command in TITLES
        for outcome in workspace.results.of(document, item, command)
        if not outcome.ok
    ]
    return [*(_diagnostic(workspace, document, d) for d in (*found, *more)), *failures]


def _failure(document: Document, outcome: Outcome, command: str) -> lsp.Diagnostic:
    start = document.lines.offset(outcome.line, 1)
    line = document.text[start : document.lines.offset(outcome.line + 1, 1)]
    return lsp.Diagnostic(
        range=document.range(start + len(line) - len(line.lstrip()), start + len(line.rstrip())),
        message=outcome.message,
        severity=lsp.DiagnosticSeverity.Error,
        code="test-failed" if command == RUN_TESTS else "unsound",
        source=SOURCE,
    )


def _diagnostic(workspace: Workspace, document: Document, found: Diagnostic) -> lsp.Diagnostic:
    labels = []
    for label in found.labels:
        other = document if label.span.file == str(document.path) else workspace.document(Path(label.span.file))
        if other is not None:
            place = other.location(*other.lines.range(label.span))
            labels.append(lsp.DiagnosticRelatedInformation(place, label.text or found.message))
    severity = lsp.DiagnosticSeverity.Warning if found.severity == "warning" else lsp.DiagnosticSeverity.Error
    faded = found.code in ("unused-let", "dead-alternative")
    return lsp.Diagnostic(
        range=document.span_range(found.span),
        message=f"{found.message}\n{found.hint}" if found.hint else found.message,
        severity=severity,
        code=found.code,
        source=SOURCE,
        related_information=labels or None,
        tags=[lsp.DiagnosticTag.Unnecessary] if faded else None,
    )


def fixes(workspace: Workspace, document: Document, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """Return the quick fixes for findings within a range."""
    start, end = document.offset(params.range.start), document.offset(params.range.end)
    found = []
    for problem in workspace.problems(document):
        first, last = document.lines.range(problem.span)
        if last < start or first > end:
            continue
        choices = [problem.fix] if problem.fix is not None else _meant(document, problem)
        for fix in choices:
            edit = lsp.TextEdit(document.span_range(fix.span), fix.replacement)
            action = lsp.CodeAction(
                title=_title(document, fix),
                kind=lsp.CodeActionKind.QuickFix,
                diagnostics=[_diagnostic(workspace, document, problem)],
                is_preferred=len(choices) == 1,
                edit=lsp.WorkspaceEdit(changes={document.uri: [edit]}),
            )
            found.append(action)
    return found


def _meant(document: Document, problem: Diagnostic) -> list[Fix]:
    """Return fixes for a "did you mean" hint with several candidates."""
    meant = re.findall(r"`([^`]+)`", problem.hint) if problem.hint.startswith("did you mean") else []
    written = re.search(r"`([^`]+)`", problem.message)
    for token in document.tokens_in(*document.lines.range(problem.span)):
        if written is not None and token.text == written[1]:
            place = document.lines.span(problem.span.file, token.start, token.end)
            return [Fix(place, name) for name in meant]
    return []


def _title(document: Document, fix: Fix) -> str:
    before, after = document.text_of(fix.span).strip(), fix.replacement.strip()
    if not after:
        return f"Remove `{before}`"
    return f"Replace `{before}` with `{after}`" if before else f"Insert `{after}`"


def lenses(workspace: Workspace, document: Document, _: Any = None) -> list[lsp.CodeLens]:
    """Return the code lenses of a file."""
    found = []
    for item in document.items:
        if not isinstance(item, ast.Rule | ast.Op) or (isinstance(item, ast.Op) and item.definition is None):
            continue
        start, _ = document.lines.range(item.span)
        for command, title in TITLES.items():
            if command == RUN_TESTS and not item.tests:
                continue
            outcomes = workspace.results.of(document, item, command)
            failed = sum(not o.ok for o in outcomes)
            shown = f"{title}: {failed} failed" if failed else f"{title}: passed" if outcomes else title
            action = lsp.Command(title=shown, command=command, arguments=[document.uri, item.name])
            found.append(lsp.CodeLens(range=document.range(start, start), command=action))
    return found


def summary(rule: str, command: str, outcomes: list[Outcome]) -> tuple[lsp.MessageType, str]:
    """Summarize outcomes in one sentence."""
    failed = [o for o in outcomes if not o.ok]
    if failed:
        return lsp.MessageType.Error, f"{rule}: {failed[0].message}"
    if command == CHECK:
        return lsp.MessageType.Info, f"{rule}: {outcomes[0].message if outcomes else 'nothing to check'}"
    count = len(outcomes)
    return lsp.MessageType.Info, f"{rule}: {count} test{'s' * (count != 1)} passed"
