"""Denormal weights: products multiply by normal numbers, and give the same bits as with the weights of the model."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.planning.denormal_weights import without_denormals
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Graph, Node

Array = np.ndarray
TINY = np.finfo(np.float32).tiny
LEAST = float(np.float32(1e-45))
"""The smallest positive f32."""
LAST = "rewrite.ChannelsLastConv"


def weights(shape: tuple[int, ...]) -> Array:
    """Weights of which some are denormals of either sign, the smallest among them, and some are zeros."""
    values = np.random.default_rng(3).normal(size=shape).astype(np.float32).reshape(-1)
    values[1::5] *= np.float32(1e-39)
    values[2::7] = 0.0
    values[3] = LEAST
    return values.reshape(shape)


def graph(op: str, x: Array, *others: Array, **attrs: int | float | tuple[int, ...]) -> Graph:
    names = [f"c{k}" for k in range(len(others))]
    nodes = [Node(op, ("x", *names), ("p",), attrs, name="p"), Node("Relu", ("p",), ("y",), name="y")]
    return harness.make_graph(nodes, {"x": x}, constants=dict(zip(names, others, strict=True)), outputs=["y"])


def denormals(found: Graph) -> int:
    read = {v for node in found.nodes for v in node.inputs} & set(found.constants)
    arrays = [found.constants[v].array for v in read]
    return sum(int(((a != 0) & (np.abs(a) < TINY)).sum()) for a in arrays)


def image(*shape: int) -> Array:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


CASES = {
    "matmul": graph("MatMul", image(6, 20), weights((20, 17))),
    "gemm": graph("Gemm", image(6, 20), weights((17, 20)), image(17), transB=1, alpha=0.5),
    "conv": graph("Conv", image(1, 8, 9, 9), weights((24, 8, 3, 3)), image(24), pads=(1, 1, 1, 1)),
    "conv last": graph(LAST, image(1, 9, 9, 8), weights((24, 8, 3, 3)), image(24), pads=(1, 1, 1, 1)),
    "pointwise": graph("Conv", image(1, 16, 9, 9), weights((24, 16, 1, 1))),
    "depthwise": graph("Conv", image(1, 24, 9, 9), weights((24, 1, 3, 3)), group=24),
    "transposed": graph("ConvTranspose", image(1, 8, 5, 5), weights((8, 6, 2, 2)), image(6), strides=(2, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_products_multiply_by_normal_numbers(name: str) -> None:
    g = CASES[name]
    found = without_denormals(g)
    assert denormals(g)
    assert not denormals(found)
    assert [n.op for n in found.nodes] == [g.nodes[0].op, "Mul", "Relu"]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_models_weights(name: str) -> None:
    g = CASES[name]
    feeds = {"x": image(*(int(d) for d in g.type("x").shape or ()))}  # type: ignore[call-overload]
    [plain] = compile_graph(g, threads=1, reassociate=False).run(feeds).values()
    [scaled] = compile_graph(g, threads=1).run(feeds).values()
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=2e-6 * np.abs(plain).max())


def test_a_denormal_weight_counts() -> None:
    """One large input meets the smallest weight alone: a program that takes denormals for zeros gives 0."""
    w = weights((20, 17))
    at, column = 0, 3
    assert w[at, column] == np.float32(LEAST)
    x = np.zeros((1, 20), np.float32)
    x[0, at] = 2.0**120
    [found] = compile_graph(graph("MatMul", x, w), threads=1).run({"x": x}).values()
    assert found[0, column] == 2.0**-29


def test_groups_have_one_kernel_each() -> None:
    """Scaling back joins the kernel of the product."""
    plan = compile_graph(CASES["conv last"], threads=1).plan
    assert len(plan.kernels) == 1


def test_a_graph_without_denormals_is_not_changed() -> None:
    g = graph("MatMul", image(6, 20), image(20, 17))
    assert without_denormals(g) is g


@pytest.mark.parametrize("largest", [3e38, np.inf, np.nan])
def test_weights_that_cannot_be_scaled_stay(largest: float) -> None:
    w = weights((20, 17))
    w[0, 0] = largest
    g = graph("MatMul", image(6, 20), w)
    assert without_denormals(g) is g


def test_a_bias_that_is_no_constant_prevents_it() -> None:
    nodes = [Node("Gemm", ("x", "w", "b"), ("y",), {}, name="y")]
    inputs = {"x": image(6, 20), "b": image(17)}
    g = harness.make_graph(nodes, inputs, constants={"w": weights((20, 17))}, outputs=["y"])
    assert without_denormals(g) is g


def test_weights_that_two_products_share_are_scaled_alike() -> None:
    w = weights((20, 20))
    nodes = [Node("MatMul", ("x", "w"), ("a",), {}, name="a"), Node("MatMul", ("a", "w"), ("y",), {}, name="y")]
    g = harness.make_graph(nodes, {"x": image(6, 20)}, constants={"w": w}, outputs=["y"])
    found = without_denormals(g)
    first, back, second, again = found.nodes
    assert (first.op, back.op, second.op, again.op) == ("MatMul", "Mul", "MatMul", "Mul")
    assert (back.outputs, again.outputs) == (("a",), ("y",))
    assert first.inputs[1] == second.inputs[1]
    assert not denormals(found)
