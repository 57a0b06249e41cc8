"""Interface of the language server to the engine: operators, tests, soundness checks, and their last results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..operator_info import OperatorInfo
from ..syntax import ast

if TYPE_CHECKING:
    from .document import Document

RUN_TESTS = "rewrite.runTests"
CHECK = "rewrite.checkRule"
"""Commands of the lenses; results are stored under them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one test or check of a rule: its line, and a message if it failed."""

    line: int
    ok: bool
    message: str


class Services(Protocol):
    """Implemented above the grammar, by the command `rewrite lsp`."""

    def operators(self) -> OperatorInfo:
        """Return the table of ONNX operators."""

    def operator_doc(self, op: str) -> str | None:
        """Return the Markdown documentation of an operator; None if there is none."""

    def standard_files(self) -> Sequence[Path]:
        """Return the rule files whose operators and definitions every file may use."""

    def run_tests(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Run the tests of a rule. `texts` holds unsaved contents of files."""

    def check(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Check the soundness of a rule."""


@dataclass(slots=True)
class Results:
    """Outcomes by rule, valid as long as the rule's text is unchanged."""

    by_rule: dict[tuple[Path, str, str], tuple[str, list[Outcome]]] = field(default_factory=dict)

    def store(self, document: Document, rule: str, command: str, outcomes: list[Outcome]) -> None:
        """Store outcomes, with line numbers relative to the rule's first line."""
        item = next((i for i in document.items if getattr(i, "name", None) == rule), None)
        if item is not None:
            moved = [replace(o, line=o.line - item.span.line) for o in outcomes]
            self.by_rule[document.path, rule, command] = (document.text_of(item.span), moved)

    def of(self, document: Document, item: ast.Item, command: str) -> list[Outcome]:
        """Return the outcomes that still apply to an item."""
        text, outcomes = self.by_rule.get((document.path, getattr(item, "name", ""), command), ("", []))
        if text != document.text_of(item.span):
            return []
        return [replace(o, line=o.line + item.span.line) for o in outcomes]

    def summary(self, document: Document, item: ast.Item) -> str:
        """Summarize the outcomes that still apply, one sentence per run."""
        tests = self.of(document, item, RUN_TESTS)
        passed = sum(o.ok for o in tests)
        sentences = [f"last run: {passed} of {len(tests)} tests passed"] if tests else []
        sentences += [f"last check: {o.message.partition(chr(10))[0]}" for o in self.of(document, item, CHECK)]
        return "\n\n".join(sentences)
