"""Denormal weights: products multiply by normal numbers, and give what they give with the weights of the model."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Control, ModelPlan
from rewrite.backend.ir.target import detect
from rewrite.backend.planning import plan as planning
from rewrite.backend.planning.denormal_weights import without_denormals
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Graph, Node
from rewrite.system.compiler import c_compilers
from rewrite.tuning.kernels_of_graph import tunable_kernels

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


def arrays_of(plan: ModelPlan) -> list[Array]:
    return [c.array for c in plan.constants.values() if c.array.dtype == np.float32]


def stored(program: Program) -> list[Array]:
    return arrays_of(program.plan)


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
def test_results_are_those_of_the_models_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors are powers of two: the same algorithm gives the same bits but for denormal sums."""
    g = CASES[name]
    feeds = {"x": image(*(int(d) for d in g.type("x").shape or ()))}  # type: ignore[call-overload]
    program = compile_graph(g, threads=1)
    assert not any(((a != 0) & (np.abs(a) < TINY)).any() for a in stored(program))
    monkeypatch.setattr(planning, "without_denormals", lambda graph: graph)
    plain = compile_graph(g, threads=1)
    assert any(((a != 0) & (np.abs(a) < TINY)).any() for a in stored(plain))
    [scaled], [expected] = program.run(feeds).values(), plain.run(feeds).values()
    np.testing.assert_allclose(scaled, expected, rtol=2e-7, atol=1e-44)


def test_a_body_multiplies_by_normal_numbers() -> None:
    branches = {
        name: Graph((), (f"{name}_y",), [Node("MatMul", ("x", "w"), (f"{name}_y",), {}, name=name)])
        for name in ("then_branch", "else_branch")
    }
    nodes = [Node("If", ("c",), ("y",), dict(branches), name="if")]
    inputs = {"x": image(6, 20), "c": np.array(True)}
    g = harness.make_graph(nodes, inputs, constants={"w": weights((20, 17))}, outputs=["y"])
    program = compile_graph(g, threads=1)
    [control] = [item for item in program.plan.items if isinstance(item, Control)] or [None]
    plans = [program.plan] if control is None else control.bodies
    assert not any(((a != 0) & (np.abs(a) < TINY)).any() for plan in plans for a in arrays_of(plan))
    np.testing.assert_allclose(program.run(inputs)["y"], image(6, 20) @ weights((20, 17)), rtol=1e-4, atol=1e-5)


def test_a_body_may_give_the_name_of_a_weight_to_another_value() -> None:
    body = Graph(("i", "k", "w"), ("k", "p"), [Node("MatMul", ("w", "w"), ("p",), {}, name="p")])
    nodes = [Node("Loop", ("n", "", "x"), ("y",), {"body": body}, name="loop")]
    inputs = {"n": np.array(2), "x": image(20, 20)}
    g = harness.make_graph(nodes, inputs, constants={"w": weights((20, 20))}, outputs=["y"])
    assert without_denormals(g) is g


def test_a_loop_multiplies_by_normal_numbers() -> None:
    body = Graph(("i", "k", "s"), ("k", "p"), [Node("MatMul", ("s", "w"), ("p",), {}, name="p")])
    nodes = [Node("Loop", ("n", "", "x"), ("y",), {"body": body}, name="loop")]
    inputs = {"n": np.array(2), "x": image(6, 20)}
    g = harness.make_graph(nodes, inputs, constants={"w": weights((20, 20))}, outputs=["y"])
    changed = without_denormals(g).nodes[0].attrs["body"]
    assert isinstance(changed, Graph)
    assert [node.op for node in changed.nodes] == ["MatMul", "Mul"]
    expected = inputs["x"] @ weights((20, 20)) @ weights((20, 20))
    np.testing.assert_allclose(compile_graph(g, threads=1).run(inputs)["y"], expected, rtol=1e-4, atol=1e-4)


def test_scaled_kernels_can_be_tuned() -> None:
    """Their groups have constants that the model's graph has not."""
    w = np.random.default_rng(3).normal(size=(320, 170)).astype(np.float32)
    plain = graph("MatMul", image(64, 320), w.copy())
    w[0, 0] = LEAST
    scaled = graph("MatMul", image(64, 320), w)
    found = [len(tunable_kernels(g, standard_policy(), detect(), 1, reassociate=True)) for g in (plain, scaled)]
    assert found == [1, 1]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets the control register of x86")
def test_a_processor_that_takes_denormals_for_zeros(tmp_path: Path) -> None:
    """As `torch.set_flush_denormal` sets it for a thread, which may compile afterwards."""
    source = tmp_path / "mode.c"
    source.write_text(
        "#include <immintrin.h>\nvoid set(unsigned m) { _mm_setcsr(m); } unsigned get(void) { return _mm_getcsr(); }"
    )
    subprocess.run([*c_compilers()[0], "-shared", "-fPIC", str(source), "-o", str(tmp_path / "mode.so")], check=True)
    mode = ctypes.CDLL(str(tmp_path / "mode.so"))
    expected = without_denormals(CASES["matmul"])
    before = mode.get()
    mode.set(before | 0x8040)
    try:
        found = without_denormals(CASES["matmul"])
    finally:
        mode.set(before)
    assert {n: c.array.tobytes() for n, c in found.constants.items()} == {
        n: c.array.tobytes() for n, c in expected.constants.items()
    }
    assert not denormals(found)


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
