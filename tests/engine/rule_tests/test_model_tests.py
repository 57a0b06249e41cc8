"""Rule tests on pairs of terms and on model files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from rewrite.engine.rule_tests.run_tests import run_tests

RULE = """op Relu kind elementwise
op Add commutative
rule relu_relu
  Relu(Relu(x))  =>  Relu(x)
  class exact
"""


@pytest.fixture
def messages(tmp_path: Path):
    """Run test clauses on the rule above, and return the message of each."""
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y) {{ {} }}'
    three = onnx.parser.parse_model(text.format("a = Relu(x) b = Relu(a) c = Relu(b) y = Neg(c)"))
    none = onnx.parser.parse_model(text.format("a = Relu(x) y = Neg(a)"))
    folder = tmp_path / "rules"
    (folder / "models").mkdir(parents=True)
    onnx.save(three, folder / "models" / "three.onnx")
    onnx.save(none, folder / "none.onnx")
    onnx.save(three, tmp_path / "outside.onnx")
    (folder / "models" / "link.onnx").symlink_to(tmp_path / "outside.onnx")

    def run(clause: str, rule: str = RULE) -> str:
        (folder / "one.rules").write_text(f"{rule}  {clause}\n")
        (found,) = run_tests([folder / "one.rules"], std=False)
        assert found.ok == (not found.message)
        return found.message

    return run


@pytest.mark.parametrize(
    "clause",
    [
        "test equals Relu(Relu(Relu(x))) == Relu(x) for x: f32[2]",
        "test equals Relu(Relu(x)) + y == y + Relu(x) for x: f32[N], y: f32[N]",
        'test fires model "models/three.onnx"',
        'test fires model "models/three.onnx" times 2',
        'test refuses model "none.onnx"',
    ],
)
def test_claims_that_hold(messages, clause: str) -> None:
    assert messages(clause) == ""


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("test equals Relu(Relu(x)) == Neg(x) for x: f32[2]", "do not become equal: the rule was applied 1 times"),
        ("test equals Relu(x) == Neg(x) for x: f32[2]", "do not become equal: the rule was not applied"),
        ("test equals Relu(x) == Relu(x) for x: f32[2]", "no test of the rule"),
        ('test fires model "none.onnx"', "the pattern does not match"),
        ('test fires model "models/three.onnx" times 5', "not 5"),
        ('test refuses model "models/three.onnx"', "it was applied"),
        ('test fires model "models/four.onnx"', "no such file"),
        ('test fires model "models/link.onnx"', "leads outside the directory"),
    ],
)
def test_claims_that_do_not(messages, clause: str, message: str) -> None:
    assert message in messages(clause)


def test_a_wrong_rule_is_found_out_on_a_model(messages) -> None:
    wrong = "rule wrong  Relu(Relu(x)) => Neg(x)  class exact\n"
    assert "the two sides differ" in messages('test fires model "models/three.onnx"', wrong)
