"""`rewrite.testing` on rules that are right, wrong, and never used."""

from pathlib import Path

import pytest
from rewrite.testing import assert_rewrites, assert_sound, assert_unchanged

TWICE = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { t = Relu(x) y = Relu(t) }'
ONCE = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "my.rules"
    file.write_text("rule relu_relu\n  Relu(Relu(x))  =>  Relu(x)\n  class exact\n  test fires  x: f32[2, 3]\n")
    return file


def test_a_rule_that_fires(rules: Path) -> None:
    model = assert_rewrites(TWICE, rules=[rules], by="relu_relu", to=["Relu"])
    assert [node.op_type for node in model.graph.node] == ["Relu"]
    assert_rewrites(TWICE, rules=[rules], to={"Relu": 1})
    assert_unchanged(ONCE, rules=[rules])


def test_expectations_that_are_not_met(rules: Path) -> None:
    with pytest.raises(AssertionError, match="rule 'abs_abs' was not applied; no such rule was loaded"):
        assert_rewrites(TWICE, rules=[rules], by="abs_abs")
    with pytest.raises(AssertionError, match="expected the operators Abs, found Relu"):
        assert_rewrites(TWICE, rules=[rules], to=["Abs"])
    with pytest.raises(AssertionError, match="the model was not changed"):
        assert_rewrites(ONCE, rules=[rules])
    with pytest.raises(AssertionError, match=r"the model was changed|had the operators"):
        assert_unchanged(TWICE, rules=[rules])


def test_a_rule_that_changes_values_is_caught(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule drop\n  Relu(Relu(x))  =>  Neg(x)\n  class exact\n")
    with pytest.raises(AssertionError, match="computes different values"):
        assert_rewrites(TWICE, rules=[wrong])
    with pytest.raises(AssertionError, match="drop: unsound"):
        assert_sound(wrong)


def test_text_of_rules_is_sound_or_not() -> None:
    assert_sound("rule abs_abs  Abs(Abs(x)) => Abs(x)  class exact", instances=40)
    with pytest.raises(AssertionError, match=r"neg_abs: unsound(.|\n)*the two sides are not equal as exact promises"):
        assert_sound("rule neg_abs  Abs(Neg(x)) => Neg(x)  class exact", instances=40)
    with pytest.raises(AssertionError, match="it fired on none"):
        assert_sound("rule never  Abs(x) => x  where size(x) == 123457  class exact", instances=40)


def test_rule_files_are_sound_if_their_tests_pass(rules: Path, tmp_path: Path) -> None:
    assert_sound(rules)
    assert_sound(rules, "relu_relu")
    with pytest.raises(AssertionError, match="has no rule 'other'"):
        assert_sound(rules, "other")
    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule drop\n  Relu(Relu(x))  =>  Neg(x)\n  class exact\n  test fires  x: f32[2, 3]\n")
    with pytest.raises(AssertionError, match=r"wrong.rules:4 drop fires: the two sides differ"):
        assert_sound(wrong)
