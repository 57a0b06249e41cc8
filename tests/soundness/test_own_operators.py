"""Rules with operators that rule files declare: with a definition, with a function in Python, with neither."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewrite.engine.rewriting.rule_library import load_rules, recognitions
from rewrite.engine.verification.reference_functions import load_references
from rewrite.errors import UserError
from rewrite.soundness import Budget, RuleReport, check
from rewrite.testing import assert_sound

DEFINED = """use com.acme(1)

op com.acme.Swish(x, beta: 1.0) = x * Sigmoid(beta * x)
  kind elementwise
  given x: f32
  class reassoc
  test equals com.acme.Swish(x, beta: 2.0) == x * Sigmoid(2 * x) for x: f32[2,3]

rule between_signs
  -com.acme.Swish(-x, beta: b)  =>  com.acme.Swish(x, beta: SIGN b)
  class exact
  test refuses in com.acme.Swish(-x) for x: f32[2,3]
"""
UNDEFINED = """use com.acme(1)

op com.acme.Rotate(x: T[..s], by: 0) -> T[..s]

rule twice
  com.acme.Rotate(com.acme.Rotate(x, by: a), by: b)  =>  com.acme.Rotate(x, by: a SIGN b)
  class exact
  test refuses in com.acme.Rotate(x) for x: f32[2,3]
"""
OVERFLOWING = """use com.acme(1)

op com.acme.Project(x: T[..s, C], w: T[C, K], scale: 1.0) -> T[..s, K] = x @ w * scale
  kind complex
  given x: float

rule project_of_scaled
  com.acme.Project(x * c, w, scale: a)  =>  com.acme.Project(x, w * c, scale: a)
  given x: f32, c: const scalar
  class reassoc
  test fires  x: f32[3] = [-3.4e38, -3.4e38, 3.4e38], w: f32[3,4], c: f32 = 2, a = 1.0
  test refuses  x: f32[3], w: f32[3,4], c: f32, a = 1.0
"""


def swish(x: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """Return what the definition says."""
    return (x / (1 + np.exp(-np.float32(beta) * x))).astype(x.dtype)


def slightly_wrong_swish(x: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """Return a percent more."""
    return swish(x, beta) * np.float32(1.01)


def rotate(x: np.ndarray, by: int = 0) -> np.ndarray:
    """Return the elements moved along the last axis; scalars are refused."""
    if x.ndim == 0:
        raise ValueError("no axis")
    return np.roll(x, by, axis=-1)


def doubles(x: np.ndarray, by: int = 0) -> np.ndarray:
    """Return another element type than the declaration's."""
    return x.astype(np.complex64)


def flat(x: np.ndarray, by: int = 0) -> np.ndarray:
    """Return another shape than the declaration's."""
    return np.append(x.ravel(), x.ravel())


def broken(x: np.ndarray, by: int = 0) -> np.ndarray:
    """Raise an exception that is no refusal."""
    raise KeyError("by")


def verdict(folder: Path, text: str, *references: str, rule: str = "") -> RuleReport:
    file = folder / "own.rules"
    file.write_text(text)
    library = load_rules([file], std=False)
    every = [*library.rules, *recognitions(library)]
    [chosen] = [r for r in every if r.name == (rule or library.rules[0].name)]
    [report] = check(library, [chosen], budget=Budget(instances=96), workers=1, prove=False, references=references)
    return report


def test_an_operand_that_overflows_may_stay_finite(tmp_path: Path) -> None:
    """As with operators of ONNX: the definition sees -inf, but that it was a large number still counts."""
    assert verdict(tmp_path, OVERFLOWING).verdict == "sound"


def test_operators_with_a_definition_are_drawn(tmp_path: Path) -> None:
    right, wrong = (verdict(tmp_path, DEFINED.replace("SIGN", sign)) for sign in ("-", ""))
    assert right.ok, right
    assert right.fired > 20
    assert wrong.verdict == "unsound"


def test_a_definition_is_compared_with_a_function(tmp_path: Path) -> None:
    text, name = DEFINED.replace("SIGN", "-"), "recognize_com.acme.Swish"
    assert verdict(tmp_path, text, f"com.acme.Swish={__name__}:swish", rule=name).ok
    wrong = verdict(tmp_path, text, f"com.acme.Swish={__name__}:slightly_wrong_swish", rule=name)
    assert wrong.verdict == "unsound"
    assert wrong.counterexample is not None
    assert "com.acme.Swish <beta" in wrong.counterexample.rewritten


def test_operators_without_a_definition_are_computed_by_a_function(tmp_path: Path) -> None:
    reference = f"com.acme.Rotate={__name__}:rotate"
    right, wrong = (verdict(tmp_path, UNDEFINED.replace("SIGN", sign), reference) for sign in "+-")
    assert right.ok, right
    assert wrong.verdict == "unsound"


def test_without_either_the_report_says_what_to_add(tmp_path: Path) -> None:
    report = verdict(tmp_path, UNDEFINED.replace("SIGN", "+"))
    assert report.verdict == "failed"
    assert "--reference com.acme.Rotate=MODULE:FUNCTION" in report.problems[0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("doubles", "returns complex64 where the declaration says"),
        ("flat", "where the declaration says"),
        ("broken", "fails: KeyError"),
    ],
)
def test_a_function_that_contradicts_the_declaration_is_named(tmp_path: Path, function: str, message: str) -> None:
    report = verdict(tmp_path, UNDEFINED.replace("SIGN", "+"), f"com.acme.Rotate={__name__}:{function}")
    assert report.verdict == "failed"
    assert message in report.problems[0]
    assert report.problems[0].startswith("the reference of com.acme.Rotate")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("com.acme.Swish", "no reference"),
        ("com.acme.Swish=module", "no reference"),
        ("com.acme.Swish=no_such_module:f", "cannot import"),
        (f"com.acme.Swish={__name__}:nothing", "cannot import"),
        (f"com.acme.Swish={__name__}:DEFINED", "is no function"),
    ],
)
def test_bad_references_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_references([text])


def test_modules_of_the_working_directory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_of_acme.py").write_text("def swish(x, beta=1.0):\n    return x\n")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    assert load_references(["com.acme.Swish=operators_of_acme:swish"])["com.acme.Swish"](3) == 3


def test_assertions_take_functions() -> None:
    functions: dict[str, Any] = {"com.acme.Swish": swish}
    assert_sound(DEFINED.replace("SIGN", "-"), instances=96, references=functions)
    with pytest.raises(AssertionError, match="unsound"):
        assert_sound(DEFINED.replace("SIGN", "-"), instances=96, references={"com.acme.Swish": slightly_wrong_swish})


def test_reports_with_functions_are_not_cached(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    file.write_text(UNDEFINED.replace("SIGN", "+"))
    library = load_rules([file], std=False)
    options: dict[str, Any] = {"budget": Budget(instances=96), "workers": 1, "prove": False, "cache": tmp_path / "c"}
    assert check(library, references=[f"com.acme.Rotate={__name__}:rotate"], **options)[0].ok
    assert not check(library, **options)[0].ok
