"""Optimising with rules that are checked meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from rewrite.engine import pipeline
from rewrite.engine.library import load_rules
from rewrite.errors import UserError
from rewrite.grammar.ast import Span
from rewrite.grammar.diagnostics import Diagnostic, RuleErrors
from rewrite.grammar.library import Library

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> one (float[2] x) => (float[2] y) { y = Relu(x) }'
)


class Wrong:
    """The standard library, of which checks say that it is wrong."""

    def __init__(self) -> None:
        self.checked = 0

    def begin(self) -> tuple[Library, Callable[[], None]]:
        return load_rules(), self.check

    def check(self) -> None:
        self.checked += 1
        raise RuleErrors([Diagnostic("odd", "this is wrong", Span("a.rules", 1, 1, 1, 2))], {})


def test_wrong_standard_rules_are_told_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Wrong()
    monkeypatch.setattr(pipeline, "begin_standard", wrong.begin)
    with pytest.raises(RuleErrors, match="this is wrong"):
        pipeline.optimize(MODEL)
    with pytest.raises(RuleErrors, match="this is wrong"):
        pipeline.optimize(b"no model")  # what goes wrong meanwhile may come of them
    assert wrong.checked == 2
    monkeypatch.undo()
    with pytest.raises(UserError):
        pipeline.optimize(b"no model")
