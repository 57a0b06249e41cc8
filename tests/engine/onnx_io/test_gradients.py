"""Gradient of ONNX's training domain: each derivative is compared with central differences in f64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import rewrite
from numpy.typing import NDArray
from onnx import parser
from rewrite.engine.onnx_io import gradients, importer
from rewrite.errors import UserError

STEP = 1e-6
GRADIENT = "ai.onnx.preview.training.Gradient"
CASES = (
    "y = Identity(a)",
    "f = CastLike(a, b) y = Mul(f, a)",
    "i = Floor(a) j = Ceil(a) k = Round(a) l = Sign(a) t = Sum(i, j, k, l) y = Mul(t, a)",
    "y = Neg(a)",
    "y = Abs(a)",
    "p = Abs(a) s = Sqrt(p) r = Reciprocal(s) y = Mul(r, a)",
    "y = Exp(a)",
    "p = Abs(a) y = Log(p)",
    "s = Sin(a) c = Cos(a) y = Mul(s, c)",
    "y = Erf(a)",
    "t = Tanh(a) y = Sigmoid(t)",
    "y = Softplus(a)",
    "r = Relu(a) l = LeakyRelu<alpha = 0.3>(a) y = Sub(r, l)",
    "low = Constant<value = double {-0.5}>() y = Clip(a, low)",
    "low = Constant<value = double {-0.5}>() high = Constant<value = double {0.5}>() y = Clip(a, low, high)",
    "s = Softmax<axis = 1>(a) y = Mul(s, a)",
    "s = LogSoftmax<axis = 0>(a) y = Mul(s, b)",
    "s = Add(a, b) y = Mul(s, a)",
    "y = Sum(a, b, a)",
    "y = Sub(b, a)",
    "y = Div(a, b)",
    "p = Abs(b) y = Pow(p, a)",
    "z = Constant<value = double {0}>() q = Greater(a, z) n = Neg(a) y = Where(q, b, n)",
    "t = Transpose<perm = [1, 0]>(a) y = MatMul(t, a)",
    "h = MatMul(a, W) y = MatMul(h, V)",
    "y = Gemm<alpha = 0.5, beta = 2.0>(a, W, R)",
    "y = Gemm<transA = 1, transB = 1>(a, U)",
    "t = Transpose(a) y = Gemm<alpha = 0.5, beta = 2.0>(t, a, b)",
    "y = Gemm<transA = 1>(a, S)",
    "y = Gemm<transB = 1>(a, a)",
    "s = ReduceSum(a, one) q = Mul(s, s) y = ReduceMean(q, one)",
    "s = ReduceMean<keepdims = 0>(a, one) y = Mul(s, s)",
    "s = ReduceSum<noop_with_empty_axes = 1>(a) t = ReduceSum<keepdims = 0>(a) y = Mul(s, t)",
    "n = Constant<value_ints = [2, 6]>() f = Flatten(a) r = Reshape(f, n) t = Transpose(r) y = MatMul(r, t)",
    "u = Unsqueeze(a, one) q = Mul(u, u) y = Squeeze(q, one)",
    "n = Constant<value_ints = [2, 3, 4]>() e = Expand(a, n) y = Mul(e, e)",
)
"""Nodes that compute y by inputs a [3, 4] and b [4]. They may use weights and `one`, a list of the number 1."""
WEIGHTS = {"W": (4, 5), "V": (5, 2), "R": (5,), "U": (6, 3), "S": (3, 6)}


def model(nodes: str, gradient: str = "", *, opset: int = 18, size: str = "3") -> Any:
    """Return a model with results y, da and db. By default, these are the derivatives of y."""
    gradient = gradient or f'da, db = {GRADIENT}<xs = ["a", "b"], y = "y">(a, b)'
    random = np.random.default_rng(1)
    constants = ["int64[1] one = {1}"]
    for name, shape in WEIGHTS.items():
        if re.search(rf"[(, ]{name}[,)]", nodes):
            values = ", ".join(map(str, random.standard_normal(shape).ravel()))
            constants.append(f"double[{', '.join(map(str, shape))}] {name} = {{{values}}}")
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}, "ai.onnx.preview.training": 1]>'
        f"g (double[{size}, 4] a, double[4] b) => (double y, double da, double db)"
        f"<{', '.join(constants)}> {{ {nodes} {gradient} }}"
    )


def inputs() -> dict[str, NDArray[np.float64]]:
    random = np.random.default_rng(2)
    return {"a": random.standard_normal((3, 4)), "b": random.standard_normal(4) + 3}


def differences(program: Any, feeds: dict[str, NDArray[np.float64]], name: str, y: str = "y") -> NDArray[np.float64]:
    """Return the central differences of the sum of `y` with respect to the elements of an input."""
    found = np.empty(feeds[name].shape)
    for at in np.ndindex(*found.shape):
        sums = []
        for step in (STEP, -STEP):
            moved = feeds[name].copy()
            moved[at] += step
            sums.append(program.run({**feeds, name: moved})[y].sum())
        found[at] = (sums[0] - sums[1]) / (2 * STEP)
    return found


@pytest.mark.parametrize("nodes", CASES)
def test_derivative(nodes: str) -> None:
    program = rewrite.compile(model(nodes), threads=1)
    assert program.fallbacks() == {}
    feeds = inputs()
    found = program.run(feeds)
    for name in ("a", "b"):
        np.testing.assert_allclose(found[f"d{name}"], differences(program, feeds, name), rtol=1e-4, atol=1e-4)


def test_each_derivative_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    called = {"Cast_0"}  # by a test of its own
    call = gradients._Expansion.call

    def noted(self: Any, name: str, *arguments: Any) -> str:
        called.add(name)
        return call(self, name, *arguments)

    monkeypatch.setattr(gradients._Expansion, "call", noted)
    for nodes in CASES:
        importer.read(model(nodes))
    assert {name for name in gradients.functions() if name[0].isupper()} <= called


def test_cast_to_a_smaller_type() -> None:
    program = rewrite.compile(model("f = Cast<to = 1>(a) h = Cast<to = 11>(f) y = Mul(h, b)"), threads=1)
    found, b = program.run(inputs()), inputs()["b"]
    np.testing.assert_allclose(found["da"], np.broadcast_to(b.astype(np.float32), (3, 4)))


@pytest.mark.parametrize("opset", [9, 12, 13, 21])
def test_opset(opset: int) -> None:
    """What is made is of opset 18, whatever the model's is."""
    found = rewrite.compile(model("s = Add(a, b) y = Mul(s, a)", opset=opset), threads=1).run(inputs())
    a, b = inputs().values()
    np.testing.assert_allclose(found["da"], 2 * a + b)
    np.testing.assert_allclose(found["db"], a.sum(axis=0))


def test_free_size() -> None:
    program = rewrite.compile(model("s = Add(a, b) y = Mul(s, a)", size="N"), threads=1)
    assert program.fallbacks() == {}
    for size in (1, 5):
        a, b = np.random.default_rng(size).standard_normal((size, 4)), inputs()["b"]
        found = program.run({"a": a, "b": b})
        np.testing.assert_allclose(found["da"], 2 * a + b)
        np.testing.assert_allclose(found["db"], a.sum(axis=0))


@pytest.mark.parametrize("sizes", [(3, 3), (3, 1), (1, 3), (1, 1)])
def test_free_sizes_that_may_broadcast(sizes: tuple[int, int]) -> None:
    """The axes that are summed are known when it runs: one element may stand for several."""
    original = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18, "ai.onnx.preview.training": 1]>
        g (double[N, 4] a, double[M, 4] c) => (double[N, 4] da, double[M, 4] dc) {{
        y = Mul(a, c) da, dc = {GRADIENT}<xs = ["a", "c"], y = "y">(a, c) }}"""
    )
    random = np.random.default_rng(4)
    a, c = (random.standard_normal((n, 4)) for n in sizes)
    found = rewrite.compile(original, threads=1).run({"a": a, "c": c})
    for name, own, other in (("da", a, c), ("dc", c, a)):
        expected = np.broadcast_to(other, np.broadcast_shapes(a.shape, c.shape))
        expected = expected.sum(axis=0, keepdims=True) if len(own) < len(expected) else expected
        np.testing.assert_allclose(found[name], expected)


def test_derivatives_at_other_values() -> None:
    """The inputs of Gradient are other values than those that its attributes name."""
    gradient = f'c = Neg(a) da = {GRADIENT}<xs = ["a"], zs = ["b"], y = "y">(c, b) db = Identity(b)'
    found = rewrite.compile(model("s = Mul(a, b) y = Mul(s, a)", gradient), threads=1).run(inputs())
    a, b = inputs().values()
    np.testing.assert_allclose(found["y"], a * a * b)
    np.testing.assert_allclose(found["da"], -2 * a * b)


def test_derivative_with_respect_to_an_intermediate_value() -> None:
    gradient = f'da, db = {GRADIENT}<xs = ["h", "b"], y = "y">(h, b)'
    found = rewrite.compile(model("h = Identity(a) s = Mul(h, b) y = Mul(s, h)", gradient), threads=1).run(inputs())
    a, b = inputs().values()
    np.testing.assert_allclose(found["da"], 2 * a * b)
    np.testing.assert_allclose(found["db"], (a * a).sum(axis=0))


def test_second_derivative() -> None:
    gradient = f'd = {GRADIENT}<xs = ["a"], y = "y">(a) da = {GRADIENT}<xs = ["a"], y = "d">(a) db = Identity(b)'
    program = rewrite.compile(model("q = Mul(a, a) c = Mul(q, a) t = Tanh(a) y = Sub(c, t)", gradient), threads=1)
    found = program.run(inputs())
    a = inputs()["a"]
    np.testing.assert_allclose(found["da"], 6 * a + 2 * np.tanh(a) * (1 - np.tanh(a) ** 2))


def test_derivatives_of_derivatives_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "MOST_INLINED", 2_000)
    chain = [f'd{i + 1} = {GRADIENT}<xs = ["a"], y = "d{i}">(a)' for i in range(12)]
    gradient = f"d0 = Tanh(a) {' '.join(chain)} da = Neg(d12) db = Neg(b)"
    with pytest.raises(UserError, match="its derivatives are more than 2,000 nodes"):
        importer.read(model("y = Neg(a)", gradient))


def test_verification_by_the_expanded_model() -> None:
    """No program but ours runs Gradient."""
    original = model("s = Add(a, b) y = Mul(s, a)")
    found = rewrite.optimize(original).verify(original)
    assert found.ok
    assert found.compared
    assert "Gradient by definition" in str(found)


def test_a_value_that_does_not_matter() -> None:
    found = rewrite.compile(model("y = Exp(a)"), threads=1).run(inputs())
    np.testing.assert_array_equal(found["db"], np.zeros(4))


BRANCHES = (
    "If<then_branch = n () => (double z) { z = Neg(a) }, else_branch = e () => (double z) { z = Exp(a) }>(condition)"
)


def test_a_branch_that_is_known() -> None:
    nodes = f"condition = Constant<value = bool {{0}}>() y = {BRANCHES}"
    found = rewrite.compile(model(nodes), threads=1).run(inputs())
    np.testing.assert_allclose(found["da"], np.exp(inputs()["a"]))


@pytest.mark.parametrize(
    ("nodes", "gradient", "message"),
    [
        ("y = CumSum(a, one)", "", "'y' is a result of CumSum, which has no derivative here"),
        ("p, q = Split<num_outputs = 2>(a) y = Mul(p, q)", "", "a result of Split, which has no derivative here"),
        ("y = Neg(a)", f'da, db = {GRADIENT}<xs = ["a", "b"], y = "y">(a)', "has 1 inputs; xs and zs name 2 values"),
        (
            "y = Neg(a)",
            f'da, db = {GRADIENT}<xs = ["a", "b"], y = "y">(a, "")',
            "has 1 inputs; xs and zs name 2 values",
        ),
        ("y = Neg(a)", f'da, db = {GRADIENT}<xs = ["a", "c"], y = "y">(a, b)', "reads the value 'c'"),
        (f"m = ReduceMax<keepdims = 0>(b) condition = Greater(m, m) y = {BRANCHES}", "", "a result of If"),
    ],
)
def test_what_has_no_derivative_is_an_error(nodes: str, gradient: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        importer.read(model(nodes, gradient))
