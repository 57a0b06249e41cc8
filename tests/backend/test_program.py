"""Programs: right results, clear errors, several callers at once."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend import harness
from rewrite.backend.pipeline import FallbackWarning, compile_graph
from rewrite.backend.program import Program
from rewrite.engine.graph import Constant, Graph, Node
from rewrite.errors import RewriteError, UserError

from . import models

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def chain() -> Program:
    return compile_graph(models.chain(), threads=2)


@pytest.fixture(scope="module")
def long_chain() -> Program:
    return compile_graph(models.long_chain(), threads=2)


def test_one_kernel_for_an_elementwise_graph(chain: Program) -> None:
    assert len(chain.plan.items) == 1
    assert chain.fallbacks() == {}


@pytest.mark.parametrize("n", [1, 2, 3, 17, 0, 300])
def test_any_extent(chain: Program, n: int) -> None:
    x = RNG.standard_normal((n, 8), np.float32)
    np.testing.assert_allclose(chain.run({"x": x})["y"], models.chain_reference(x), rtol=1e-5, atol=1e-6)


def test_inputs_that_are_not_contiguous_or_aligned(chain: Program) -> None:
    x = RNG.standard_normal((8, 9), np.float32).T[:5]
    np.testing.assert_allclose(chain.run({"x": x})["y"], models.chain_reference(x), rtol=1e-5, atol=1e-6)
    shifted = np.frombuffer(b"\0" + np.ones((4, 8), np.float32).tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 8)
    np.testing.assert_allclose(chain.run({"x": shifted})["y"], models.chain_reference(shifted), rtol=1e-5)


def test_outputs_are_the_callers(chain: Program) -> None:
    x = RNG.standard_normal((4, 8), np.float32)
    first = chain.run({"x": x})["y"]
    kept = first.copy()
    first[...] = 0
    second = chain.run({"x": x})["y"]
    np.testing.assert_array_equal(second, kept)
    chain.run({"x": x * 2})
    np.testing.assert_array_equal(second, kept)


def test_the_input_is_not_written_to(long_chain: Program) -> None:
    x = harness.aligned((64, 64), np.float32)
    x[...] = RNG.standard_normal((64, 64), np.float32)
    before = x.copy()
    long_chain.run({"v0": x})
    np.testing.assert_array_equal(x, before)


def test_intermediate_values_share_memory(long_chain: Program) -> None:
    x = RNG.standard_normal((64, 64), np.float32)
    np.testing.assert_allclose(long_chain.run({"v0": x})["v12"], models.long_chain_reference(x), rtol=1e-4, atol=1e-5)
    found = long_chain.memory()
    assert found is not None
    assert found[0] <= 2 * 64 * 64 * 4
    assert found[0] == found[1]


def test_threads_do_not_change_the_result(long_chain: Program) -> None:
    x = RNG.standard_normal((64, 64), np.float32)
    one = compile_graph(models.long_chain(), threads=1).run({"v0": x})["v12"]
    many = compile_graph(models.long_chain(), threads=7).run({"v0": x})["v12"]
    np.testing.assert_array_equal(one, long_chain.run({"v0": x})["v12"])
    np.testing.assert_array_equal(one, many)


def test_thousands_of_launches(long_chain: Program) -> None:
    x = RNG.standard_normal((5, 64), np.float32)
    expected = long_chain.run({"v0": x})["v12"]
    for _ in range(3000):
        np.testing.assert_array_equal(long_chain.run({"v0": x})["v12"], expected)


def test_several_callers_at_once(long_chain: Program) -> None:
    failures: list[str] = []

    def call(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.standard_normal((int(rng.integers(1, 80)), 64), np.float32)
            found = long_chain.run({"v0": x})["v12"]
            if not np.allclose(found, models.long_chain_reference(x), rtol=1e-4, atol=1e-5):
                failures.append(f"caller {seed}, {x.shape}")

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []


def test_a_forked_child_can_run(long_chain: Program) -> None:
    x = RNG.standard_normal((9, 64), np.float32)
    expected = long_chain.run({"v0": x})["v12"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
        child = os.fork()
    if child == 0:
        same = all(np.array_equal(long_chain.run({"v0": x})["v12"], expected) for _ in range(50))
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(long_chain.run({"v0": x})["v12"], expected)


def test_fallbacks_views_and_extents_that_depend_on_data() -> None:
    with pytest.warns(FallbackWarning, match="NonZero"):
        program = compile_graph(models.mixed(), threads=2)
    assert program.fallbacks() == {"NonZero": 1}
    for n in (1, 4, 2, 0, 4):
        x = RNG.standard_normal((n, 8), np.float32)
        for name, expected in models.mixed_reference(x).items():
            found = program.run({"x": x})[name]
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_an_input_that_is_an_output_is_copied() -> None:
    graph = models.chain()
    graph = harness.make_graph(
        graph.nodes, {"x": np.zeros((2, 8), np.float32)}, constants={"b": models.B}, outputs=["y", "x", "b"]
    )
    x = np.ones((2, 8), np.float32)
    found = compile_graph(graph, threads=1).run({"x": x})
    assert found["x"] is not x
    assert not np.shares_memory(found["x"], x)
    assert not np.shares_memory(found["b"], models.B)
    np.testing.assert_array_equal(found["b"], models.B)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"z": np.zeros((2, 8), np.float32)}, "no input 'z'"),
        ({}, "no value given for input 'x'"),
        ({"x": np.zeros((2, 8))}, "dtype float64, the model wants float32"),
        ({"x": np.zeros(8, np.float32)}, "rank 1, the model wants 2"),
        ({"x": np.zeros((2, 9), np.float32)}, "dim 1 of input 'x' is 9, the model wants 8"),
    ],
)
def test_wrong_inputs_are_told(chain: Program, feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UserError, match=message):
        chain.run(feeds)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    program = compile_graph(models.long_chain(1), threads=1)
    with pytest.raises(UserError, match="Did you mean 'v0'"):
        program.run({"v00": np.zeros((4, 64), np.float32)})
    with pytest.raises(UserError, match="Did you mean 'v1'"):
        program.run({"v0": np.zeros((4, 64), np.float32)}, ["v11"])


def test_dims_of_one_name_must_agree() -> None:
    nodes = [Node("Add", ("a", "b"), ("y",), name="add")]
    zeros = np.zeros((2, 3), np.float32)
    graph = harness.make_graph(nodes, {"a": zeros, "b": zeros}, symbolic_shapes={"a": ("N", 3), "b": ("N", 3)})
    with pytest.raises(UserError, match="N is 2 by an earlier input"):
        compile_graph(graph, threads=1).run({"a": zeros, "b": np.zeros((1, 3), np.float32)})


def test_an_operator_that_fails_is_named() -> None:
    graph = harness.make_graph([Node("Det", ("x",), ("y",), name="the_det")], {"x": np.eye(2, dtype=np.float32)})
    with pytest.warns(FallbackWarning):
        program = compile_graph(graph, threads=1)
    assert program.run({"x": 3 * np.eye(2, dtype=np.float32)})["y"] == pytest.approx(9)
    bad = harness.make_graph([Node("StringSplit", ("x",), ("y", "n"), {}, name="s")], {"x": np.array(["a b"], object)})
    with pytest.warns(FallbackWarning):
        program = compile_graph(bad, threads=1)
    with pytest.raises((RewriteError, UserError)):
        program.run({"x": np.array([1.0], np.float32)})


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rewrite.backend import compiler

    compiler.find_compiler.cache_clear()
    try:
        monkeypatch.setattr(compiler, "_candidates", list)
        monkeypatch.delenv("CC", raising=False)
        with pytest.raises(UserError, match="no C compiler found") as caught:
            compile_graph(models.chain(), cache_dir=tmp_path)
        assert "onnx-rewrite[zig]" in str(caught.value)
        monkeypatch.undo()
        compiler.find_compiler.cache_clear()
        monkeypatch.setenv("CC", "/no/such/compiler")
        with pytest.raises(UserError, match="does not run"):
            compile_graph(models.chain(), cache_dir=tmp_path)
    finally:
        monkeypatch.undo()
        compiler.find_compiler.cache_clear()


def branches() -> Graph:
    """If over a captured value, inside it a Loop that doubles."""
    then = harness.make_graph(
        [Node("Relu", ("r",), ("t",), name="t")], {"r": np.zeros((4,), np.float32)}, outputs=["t"]
    )
    then.inputs = ()
    body = harness.make_graph(
        [Node("Add", ("s", "s"), ("s2",), name="dbl"), Node("Relu", ("s2",), ("scan",), name="out")],
        {"i": np.int64(0), "c": np.bool_(True), "s": np.zeros(4, np.float32)},
        outputs=["c", "s2", "scan"],
    )
    other = Graph(
        inputs=(),
        outputs=("last",),
        nodes=[Node("Loop", ("three", "", "r"), ("last", "all"), {"body": body}, name="loop")],
    )
    other.types = {"last": then.types["t"]}
    graph = harness.make_graph(
        [Node("Neg", ("x",), ("r",), name="neg")],
        {"x": np.zeros(4, np.float32), "go": np.bool_(True)},
        constants={"three": np.int64(3)},
        outputs=["r"],
    )
    graph.nodes.append(Node("If", ("go",), ("y",), {"then_branch": then, "else_branch": other}, name="if"))
    graph.types["y"] = then.types["t"]
    graph.outputs = ("y",)
    return graph


def test_if_and_loop_run_over_compiled_bodies() -> None:
    program = compile_graph(branches(), threads=1)
    x = np.array([1, -2, 3, -4], np.float32)
    np.testing.assert_array_equal(program.run({"x": x, "go": np.bool_(True)})["y"], np.maximum(-x, 0))
    np.testing.assert_array_equal(program.run({"x": x, "go": np.bool_(False)})["y"], -8 * x)


def test_an_input_with_a_default_need_not_be_given() -> None:
    graph = harness.make_graph(
        [Node("Add", ("x", "c"), ("y",), name="n")],
        {"x": np.ones(3, np.float32), "c": np.ones(3, np.float32)},
        outputs=["y"],
    )
    x = np.ones(3, np.float32)
    graph.defaults = {"c": Constant(x * 2)}
    program = compile_graph(graph)
    assert program.run({"x": x})["y"].tolist() == [3.0, 3.0, 3.0]
    assert program.run({"x": x, "c": x})["y"].tolist() == [2.0, 2.0, 2.0]
