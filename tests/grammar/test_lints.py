"""Warnings: each where it belongs, and none for rules that only look similar."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewrite.engine.rewriting.rule_library import OperatorTable, load_rules
from rewrite.grammar.library import analysis_cache
from rewrite.grammar.library.load import load

COMMUTATIVE = "op Add kind elementwise commutative\nop Mul kind elementwise commutative\n"


def warned(folder: Path, text: str) -> list[str]:
    """Return the codes of the warnings about a file, in order."""
    file = folder / "a.rules"
    file.write_text(COMMUTATIVE + text, encoding="utf-8")
    return [w.code for w in load([file], OperatorTable()).warnings]


def test_the_standard_library_has_no_warnings() -> None:
    library = load_rules()
    assert library.warnings == ()
    assert len(library.rules) > 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rule a Relu(Relu(x)) => Relu(x)\nrule b Relu(Relu(y)) => Relu(y)", "duplicate"),
        ("rule a x + Neg(y) => x - y\nrule b Neg(b) + a => a - b", "duplicate"),
        ("rule a Relu(x) => Abs(x)\nrule b Relu(Exp(x)) => Abs(Exp(x)) where rank(x) == 1", "shadowed"),
        ("rule a x * c => x where all(c == 1)\nrule b x * x => x where all(x == 1)", "shadowed"),
        ("rule a Floor(x) => x where rank(x) >= 1\nrule b Floor(x) => Ceil(x) where rank(x) == 2", "overlap"),
        ("rule a Exp(Neg(x)) => Reciprocal(Exp(x))\nrule b Reciprocal(Exp(x)) => Exp(Neg(x))", "loop"),
        ("rule a Exp(x + y) => Exp(x) * Exp(Sin(x) + y)", "growth"),
        ("rule a Transpose(x, perm: [1, 0]) => x where rank(x) == 2", "redundant"),
        ("rule a Relu(x) => x where size(x) == 1, size(x) >= 1", "redundant"),
        ("rule a Relu(x) => x given x: f32[N]", "unused"),
        ("rule a Relu(x) => x given x: T[..s]", "unused"),
        ('rule a Relu(x) => x allow loop "nothing goes back"', "unused"),
    ],
)
def test_suspicious_rules_are_reported(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in warned(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "rule a x * c => x where all(c == 1)\nrule b x * c => Neg(x) where all(c == -1)",
        "rule a x - x => full(shape(x), 0, dtype(x)) given x: integer\nrule b x - x => x * 0 given x: float",
        "rule a Relu(x) => x where rank(x) == 1\nrule b Relu(x) => Abs(x) where rank(x) == 2",
        "rule a Softmax(x, axis: 0) => x\nrule b Softmax(x, axis: 1) => Abs(x)",
        "rule a Relu(x) => Abs(x) where rank(x) == 1\nrule b Relu(Exp(x)) => Abs(Exp(x))",
        "rule a Relu(x) => Abs(x) class fast\nrule b Relu(Exp(x)) => Abs(Exp(x)) class exact",
        "rule a Exp(Neg(x)) => Reciprocal(Exp(x)) direction explore\nrule b Reciprocal(Exp(x)) => Exp(Neg(x))",
        "rule a x + Neg(c) => x - c where not is_const(c)\nrule b x - c => x + Neg(c) given c: const",
        "rule a (x + a) + b => x + (a + b) given a, b: const where not is_const(x) direction canonical",
        "rule a Relu(x) => Abs(Relu(x))",
        "rule a { y[i] = x @ W[i] } => { y[*] = Split(x @ Concat(W[*], axis: 1), [dim(W[i], 1)], axis: 1) }"
        " given W[i]: const [K, _] direction explore",
        "rule a Relu(x) => x where rank(x) >= 1, rank(x) <= 4",
    ],
)
def test_what_is_well_is_not(tmp_path: Path, text: str) -> None:
    assert warned(tmp_path, text) == []


def test_a_rule_may_allow_a_warning(tmp_path: Path) -> None:
    forth = "rule a Exp(Neg(x)) => Reciprocal(Exp(x))\n"
    back = "rule b Reciprocal(Exp(x)) => Exp(Neg(x))\n"
    allowed = '  allow loop "cost picks"\n'
    assert warned(tmp_path, forth + back) == ["loop"]
    assert warned(tmp_path, forth + back + allowed) == []
    assert warned(tmp_path, forth + allowed + back) == []


def test_the_fix_removes_unused_names(tmp_path: Path) -> None:
    text = "rule a Relu(x) => x\n  given x: f32[N, ..s]"
    (tmp_path / "a.rules").write_text(text, encoding="utf-8")
    first, second = load([tmp_path], OperatorTable()).warnings
    assert first.fix is not None
    assert second.fix is not None
    assert (first.fix.replacement, second.fix.replacement) == ("_", "..")
    line = text.split("\n")[1]
    assert line[second.fix.span.column - 1 : second.fix.span.end_column - 1] == "..s"


def test_findings_are_cached_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "rule a Relu(x) => x given x: f32[N]"
    assert warned(tmp_path, text) == ["unused"]
    monkeypatch.setattr(analysis_cache, "_known_files", lambda *_, **__: pytest.fail("not from the cache"))
    assert warned(tmp_path, text) == ["unused"]
    with pytest.raises(pytest.fail.Exception):
        warned(tmp_path, text + " where rank(x) == 1")


def test_a_file_is_compared_with_files_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "std").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "std" / "a.rules").write_text("rule a Relu(Relu(x)) => Relu(x)\nrule n Abs(x) => x given x: f32[N]")
    (tmp_path / "own" / "b.rules").write_text("rule b Relu(Relu(y)) => Relu(y)")
    first = load([tmp_path / "std"], OperatorTable()).warnings
    assert [w.code for w in first] == ["unused"]
    both = load([tmp_path / "std", tmp_path / "own"], OperatorTable()).warnings
    assert sorted(w.code for w in both) == ["duplicate", "unused"]
