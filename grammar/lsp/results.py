"""What the last runs of tests and checks said of rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .. import ast
from .document import Document
from .services import Outcome

RUN_TESTS = "rewrite.runTests"
CHECK = "rewrite.checkRule"
"""The commands of the lenses; outcomes are kept by them."""


@dataclass(slots=True)
class Results:
    """Outcomes by rule, as long as the rule's text is the same."""

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

    def told(self, document: Document, item: ast.Item) -> str:
        """The same as a sentence for each run."""
        said = []
        tests = self.of(document, item, RUN_TESTS)
        if tests:
            passed = sum(o.ok for o in tests)
            said.append(f"last run: {passed} of {len(tests)} tests passed")
        said += [f"last check: {o.message.partition(chr(10))[0]}" for o in self.of(document, item, CHECK)]
        return "\n\n".join(said)


def _text(document: Document, item: ast.Item) -> str:
    start, end = document.lines.range(item.span)
    return document.text[start:end]
