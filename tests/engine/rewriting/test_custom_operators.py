"""Operators that rule files declare: parsed, imported, typed, rewritten, exported, expanded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from rewrite import compile as compile_model
from rewrite import optimize
from rewrite.engine import pipeline
from rewrite.engine.ir.graph import DType, Graph, TensorType
from rewrite.engine.ir.symbolic import symbol
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.errors import UserError

N = symbol("N")

ACME = """
use com.acme(1)
op com.acme.Foo(x: float[N, C], w: T[C, K], b: T[K] = none, alpha: 1.0) -> T[N, K]
op com.acme.Scale(x: T[..s], alpha: 2.0) -> T[..s] = x * alpha
  given x: float
  class exact
op com.acme.Pair(x: T[N, ..s], k: 2) -> (T[N*k, ..s], i64[N]) = [Concat(x, x, axis: 0), none]
op com.acme.Join(xs[*]: T[N, _], pads: [1, 1]) -> T[N + pads[0] + pads[1], _]
op com.acme.Guess(x) = Concat(x, x, axis: 0)
op com.acme.Random(x: T[..s]) -> T[..s]  impure
rule foo_of_scaled
  com.acme.Foo(com.acme.Scale(x, alpha: a), w, alpha: b)  =>  com.acme.Foo(x, w, alpha: a * b)
  class reassoc
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "acme.rules"
    path.write_text(ACME)
    return path


def model(body: str, outputs: str = "float[a, b] y", version: int = 1) -> onnx.ModelProto:
    text = (
        f'<ir_version: 8, opset_import: ["": 18, "com.acme": {version}]> g (float[N, 3] x) => ({outputs}) {{ {body} }}'
    )
    return onnx.parser.parse_model(text)


@pytest.fixture
def read(rules: Path) -> Callable[..., Graph]:
    return lambda body, **how: pipeline.read(model(body, **how), Options(), load_rules([rules], std=False)).graph


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "w = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>() y = com.acme.Foo(x, w)",
            TensorType(DType.F32, (N, 2)),
        ),
        ("y = com.acme.Scale(x)", TensorType(DType.F32, (N, 3))),
        ("y, z = com.acme.Pair<k = 5>(x)", TensorType(DType.F32, (5 * N, 3))),
        ("y = com.acme.Guess(x)", TensorType(DType.F32, (2 * N, 3))),
    ],
)
def test_types_follow_from_the_declaration(read: Callable[..., Graph], body: str, expected: TensorType) -> None:
    assert read(body).type("y") == expected


def test_dims_may_be_computed_of_attributes_and_stay_unknown(read: Callable[..., Graph]) -> None:
    shape = read("y = com.acme.Join<pads = [2, 5]>(x, x, x)").type("y").shape
    assert shape is not None
    assert shape[0] == N + 7
    assert str(shape[1]).startswith("_")


def test_operators_of_another_version_are_not_those_declared(read: Callable[..., Graph]) -> None:
    assert read("y = com.acme.Scale<beta = 3.0>(x)", version=2).type("y").dtype is DType.F32  # by what the model states
    with pytest.raises(UserError, match="no attribute 'beta'"):
        read("y = com.acme.Scale<beta = 3.0>(x)")
    with pytest.raises(UserError, match="has 3 inputs"):
        read("y = com.acme.Scale(x, x, x)")


def test_rules_rewrite_operators_without_a_definition(rules: Path) -> None:
    before = model("""w = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>()
        s = com.acme.Scale<alpha = 3.0>(x) y = com.acme.Foo<alpha = 0.5>(s, w)""")
    result = optimize(before, rules=[rules], std_rules=False)
    (node,) = result.model.graph.node
    assert (node.domain, node.op_type) == ("com.acme", "Foo")
    assert onnx.helper.get_attribute_value(node.attribute[0]) == 1.5
    found = result.verify(before)
    assert found.compared == 0
    assert "com.acme.Foo has no definition" in str(found)
    with pytest.raises(UserError, match=r"com\.acme\.Foo"):
        compile_model(before, rules=[rules], std_rules=False)


def test_a_definition_is_compiled_and_verified_by(rules: Path) -> None:
    before = model("s = com.acme.Scale<alpha = 3.0>(x) p, q = com.acme.Pair(s) y = Neg(p)")
    result = optimize(before, rules=[rules])
    found = result.verify(before)
    assert found.ok
    assert found.compared
    assert "by definition" in found.oracle
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs = compile_model(before, rules=[rules]).run({"x": x})
    np.testing.assert_array_equal(outputs["y"], np.concatenate([x, x]) * -3)


def test_a_definition_that_is_less_exact_than_the_run_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "inexact.rules"
    path.write_text("op com.acme.Half(x: T[..s]) -> T[..s] = x / 2  class reassoc")
    before = model("y = com.acme.Half(x)")
    ops = [
        [n.op for n in optimize(before, rules=[path], numerics=numerics).native.nodes]
        for numerics in ("exact", "reassoc")
    ]
    assert ops[0] == ["com.acme.Half"]
    assert ops[1] in (["Div"], ["Mul"])


def test_impure_operators_are_not_shared(rules: Path) -> None:
    before = model("a = com.acme.Random(x) b = com.acme.Random(x) y = Sub(a, b)")
    result = optimize(before, rules=[rules])
    assert [n.op_type for n in result.model.graph.node] == ["Random", "Random", "Sub"]
    pure = model("a = com.acme.Scale(x) b = com.acme.Scale(x) y = Mul(a, b)")
    assert len(optimize(pure, rules=[rules], std_rules=False).model.graph.node) == 2


def test_a_definition_is_recognized_where_the_model_knows_the_domain(tmp_path: Path) -> None:
    path = tmp_path / "fused.rules"
    path.write_text("op com.acme.Fused(x: T[..s], y: T[..s]) -> T[..s] = Relu(x + y)  class exact\nop Add commutative")
    text = """<ir_version: 8, opset_import: ["": 18{}]>
        g (float[4] x, float[4] z) => (float[4] y) {{ a = Add(z, x) y = Relu(a) }}"""
    found = []
    for domains in ("", ', "com.acme": 1'):
        before = onnx.parser.parse_model(text.format(domains))
        found.append([n.op_type for n in optimize(before, rules=[path], std_rules=False).model.graph.node])
    assert found == [["Add", "Relu"], ["Fused"]]
