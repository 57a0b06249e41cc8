"""Diagnostics as editors show them, and the fixes that they bring along."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types as lsp

from ..diagnostics import Diagnostic, Fix
from .document import Document
from .workspace import Workspace

SOURCE = "rewrite"


def diagnostics(workspace: Workspace, document: Document, others: Sequence[Diagnostic] = ()) -> list[lsp.Diagnostic]:
    """All findings in a document, and of `others` those that are not among them."""
    found = workspace.problems(document)
    told = {(d.code, d.span.line, d.span.column) for d in found}
    more = [d for d in others if (d.code, d.span.line, d.span.column) not in told]
    return [_diagnostic(workspace, document, d) for d in [*found, *more]]


def _diagnostic(workspace: Workspace, document: Document, found: Diagnostic) -> lsp.Diagnostic:
    labels = []
    for label in found.labels:
        other = document if label.span.file == str(document.path) else _by_name(workspace, label.span.file)
        if other is not None:
            place = lsp.Location(other.uri, other.span_range(label.span))
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


def _by_name(workspace: Workspace, name: str) -> Document | None:
    return workspace.document(Path(name))


def fixes(workspace: Workspace, document: Document, where: lsp.Range) -> list[lsp.CodeAction]:
    """The fixes for what is wrong within a range."""
    start, end = document.offset(where.start), document.offset(where.end)
    found = []
    for problem in workspace.problems(document):
        first, last = document.lines.range(problem.span)
        if last < start or first > end:
            continue
        choices = [problem.fix] if problem.fix is not None else _meant(document, problem)
        for fix in choices:
            edit = lsp.TextEdit(document.span_range(fix.span), fix.replacement)
            found.append(
                lsp.CodeAction(
                    title=_title(document, fix),
                    kind=lsp.CodeActionKind.QuickFix,
                    diagnostics=[_diagnostic(workspace, document, problem)],
                    is_preferred=len(choices) == 1,
                    edit=lsp.WorkspaceEdit(changes={document.uri: [edit]}),
                )
            )
    return found


def _meant(document: Document, problem: Diagnostic) -> list[Fix]:
    """The fixes that a hint speaks of: names that may have been meant, for the one that was written."""
    meant = re.findall(r"`([^`]+)`", problem.hint) if problem.hint.startswith("did you mean") else []
    written = re.search(r"`([^`]+)`", problem.message)
    start, end = document.lines.range(problem.span)
    for token in document.tokens_in(start, end):
        if written is not None and token.text == written[1]:
            place = document.lines.span(problem.span.file, token.start, token.end)
            return [Fix(place, name) for name in meant]
    return []


def _title(document: Document, fix: Fix) -> str:
    start, end = document.lines.range(fix.span)
    before, after = document.text[start:end].strip(), fix.replacement.strip()
    if not after:
        return f"Remove `{before}`"
    return f"Replace `{before}` by `{after}`" if before else f"Insert `{after}`"
