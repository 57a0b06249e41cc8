"""Why a rule did not fire: the closest miss names the part of the rule that failed, the node, and the reason."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import rewrite
from rewrite.engine.saturation.why_not import WhyNot
from rewrite.errors import UserError

MODEL = """
<ir_version: 10, opset_import: ["": 20]>
agraph (float[1,3,8,8] x, float[1,4,6,6] k) => (float[1,4,6,6] y)
<float[4,3,3,3] W = {%s}, float[4] g = {1,2,3,4}, float[4] b = {1,1,1,1}, float[4] m = {0,0,0,0},
 float[4] v = {1,1,1,1}>
{
   c = Conv(x, W)
   r = %s(c)
   n = BatchNormalization(r, g, b, m, v)
   y = Mul(n, k)
}
""".replace("%s", ",".join(str(i % 7) for i in range(108)), 1)


def why(rules: str, tmp_path: Path, name: str, model: str = MODEL % "Relu") -> WhyNot:
    file = tmp_path / "my.rules"
    file.write_text(rules)
    found = rewrite.optimize(onnx.parser.parse_model(model), rules=[file], std_rules=False, why_not=name).why_not
    assert found is not None
    return found


CONV_BN = """
rule conv_bn
  BatchNormalization(Conv(x, W, B = 0, ..a), gamma, beta, mu, var, epsilon: e, training_mode: 0, ..)
    =>
  Conv(x, W * expand_dims(k, 1 .. rank(W) - 1), (B - mu) * k + beta, ..a)
  let k = gamma / sqrt(var + e)
  given W, B, gamma, beta, mu, var: const
  class reassoc
"""


def test_another_operator_stands_where_the_pattern_has_one(tmp_path: Path) -> None:
    answer = why(CONV_BN, tmp_path, "conv_bn")
    assert not answer.fires
    miss = answer.misses[0]
    assert "Conv is expected here, found Relu" in miss.reason
    assert (miss.span.line, miss.span.column) == (3, 22)
    assert "BatchNormalization" in miss.node
    assert 0 < miss.matched < miss.total


def test_it_holds_where_it_fires(tmp_path: Path) -> None:
    answer = why(CONV_BN, tmp_path, "conv_bn", MODEL.replace("r = %s(c)", "r = Identity(c)"))
    assert len(answer.fires) == 1
    assert "BatchNormalization" in answer.fires[0]


def test_a_failed_condition_shows_both_values(tmp_path: Path) -> None:
    rules = "rule r\n  Relu(Conv(x, W, ..a)) => Conv(x, W, ..a)\n  where dim(W, 0) == dim(x, 1)\n  class fast\n"
    file = tmp_path / "my.rules"
    file.write_text(rules)
    found = rewrite.optimize(
        onnx.parser.parse_model(MODEL % "Relu"), rules=[file], std_rules=False, numerics="fast", why_not="r"
    ).why_not
    assert found is not None
    assert "dim(W, 0) is 4, dim(x, 1) is 3" in found.misses[0].reason
    assert found.misses[0].span.line == 3


def test_what_is_not_constant(tmp_path: Path) -> None:
    answer = why("rule r\n  x * c => c * x + 0 * c\n  given c: const\n", tmp_path, "r")
    assert any("not constant" in m.reason and "the input k" in m.reason for m in answer.misses)


def test_an_attribute(tmp_path: Path) -> None:
    rules = "rule r\n  Conv(x, W, group: 3, ..a) => Conv(x, W, group: 1, ..a)\n  class reassoc\n"
    assert any("group is 1" in m.reason for m in why(rules, tmp_path, "r").misses)


def test_a_literal(tmp_path: Path) -> None:
    model = MODEL.replace("y = Mul(n, k)", "y = Mul(n, t)").replace("float[4] g", "float t = {2}, float[4] g") % "Relu"
    assert any("1 is expected" in m.reason for m in why("rule r\n  x * 1 => x\n", tmp_path, "r", model).misses)


def test_a_group_of_one(tmp_path: Path) -> None:
    right = "Split(Conv(x, Concat(W[*], axis: 0)), [dim(W[i], 0)], axis: 1)"
    rules = f"rule r\n  {{ y[i] = Conv(x, W[i]) }} => {{ y[*] = {right} }}\n"
    assert "no other match" in why(rules, tmp_path, "r").misses[0].reason


def test_equal_misses_are_reported_once(tmp_path: Path) -> None:
    nodes = "\n".join(f"r{i + 1} = Relu(r{i})" for i in range(6))
    model = f'<ir_version: 10, opset_import: ["": 20]>\nagraph (float[3] r0) => (float[3] r6) {{\n{nodes}\n}}'
    answer = why("rule r\n  Relu(Exp(x)) => Exp(x)\n", tmp_path, "r", model)
    assert [len(m.others) for m in answer.misses if "found Relu" in m.reason] == [4]


def test_a_rule_that_is_not_there_or_not_admitted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="conv_bn"):
        why(CONV_BN, tmp_path, "conv_bnn")
    with pytest.raises(UserError, match="--numerics fast"):
        why("rule r\n  Relu(x) => x\n  class fast\n", tmp_path, "r")
