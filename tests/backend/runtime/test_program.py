"""Programs: correct results, clear errors, several concurrent callers.

Length: all behavior of one class, over the same models.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.arrays import address, aligned, is_readable
from rewrite.backend.ir.kernel_graph import Fallback
from rewrite.backend.runtime import link
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Constant, DType, Graph, Node, TensorType
from rewrite.engine.ir.symbolic import symbol
from rewrite.errors import RewriteError, UserError

from .. import models

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


def test_hundreds_of_launches(long_chain: Program) -> None:
    x = RNG.standard_normal((64, 64), np.float32)
    expected = long_chain.run({"v0": x})["v12"]
    for _ in range(400):
        np.testing.assert_array_equal(long_chain.run({"v0": x})["v12"], expected)


def test_other_threads_are_left_asleep_where_there_is_little_to_do(long_chain: Program) -> None:
    for rows, threads in ((2, 1), (64, 2)):
        launches = long_chain.record({"v0": RNG.standard_normal((rows, 64), np.float32)})
        assert max(int(np.count_nonzero(launch.spans[:, 1])) for launch in launches) == threads


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


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [(0.0, 7.0, 1.0), (-1.5, 3.2, 0.3), (5.0, 5.0, 2.0), (2.0, -9.0, -2.5), (4, -7, -2), (1, 20, 3), (3, 0, 1)],
)
def test_ranges_of_numbers_that_only_data_tell(start: float, limit: float, delta: float) -> None:
    dtype = np.float32 if isinstance(start, float) else np.int64
    feeds = {name: np.array(v, dtype) for name, v in (("a", start), ("b", limit), ("c", delta))}
    nodes = [Node("Range", ("a", "b", "c"), ("r",), name="range"), Node("Add", ("r", "a"), ("y",))]
    kinds = {v: TensorType(DType.from_numpy(np.dtype(dtype)), (symbol("M"),)) for v in ("r", "y")}
    program = compile_graph(harness.make_graph(nodes, feeds, types=kinds), threads=1)
    assert program.fallbacks() == {}
    expected = np.arange(start, limit, delta) + start
    found = program.run(feeds)["y"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(RewriteError, match="range"):
        program.run({**feeds, "c": np.zeros((), dtype)})


@pytest.mark.parametrize(("start", "delta"), [(0.0, 1.0), (1.0, 2.0), (5.0, -3.0), (0.5, 1.0), (0, 1), (2, 3)])
def test_ranges_up_to_an_extent(start: float, delta: float) -> None:
    """The length follows from the sizes of the inputs, although the limit is a float: a kernel fills the range."""
    dtype = np.float32 if isinstance(start, float) else np.int64
    nodes = [
        Node("Shape", ("x",), ("s",), {"start": 1, "end": 2}, name="shape"),
        Node("Squeeze", ("s",), ("n",), name="squeeze"),
        Node("Cast", ("n",), ("limit",), {"to": DType.from_numpy(np.dtype(dtype)).onnx}, name="cast"),
        Node("Range", ("start", "limit", "delta"), ("r",), name="range"),
        Node("Neg", ("r",), ("y",), name="neg"),
    ]
    constants = {"start": np.array(start, dtype), "delta": np.array(delta, dtype)}
    feeds = {"x": np.zeros((2, 3), np.float32)}
    graph = harness.make_graph(nodes, feeds, constants=constants, symbolic_shapes={"x": ("N", "M")}, outputs=["y"])
    program = compile_graph(graph, threads=1)
    assert not any(isinstance(item, Fallback) for item in program.plan.items)
    for m in (3, 0, 1, 8, 100):
        found = program.run({"x": np.zeros((2, m), np.float32)})["y"]
        np.testing.assert_array_equal(found, -np.arange(start, m, delta, dtype=dtype))


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


@pytest.mark.parametrize("size", [1, 4096, 4096 * 16 - 32, 2 << 20, (2 << 20) - 16, (3 << 20) + 4032])
def test_results_can_be_written_again_in_place(size: int) -> None:
    """Kernels write into a caller's array only if 64 bytes behind its end are on its last page, as memory.h says."""
    array = aligned((size,), np.dtype(np.uint8))
    assert address(array) % 64 == 0
    assert 0 < (address(array) + size) % 4096 <= 4096 - 64
    array[...] = 1


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
def test_wrong_inputs_are_reported(chain: Program, feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UserError, match=message):
        chain.run(feeds)


@pytest.mark.parametrize("inputs", [None, [np.zeros((2, 8), np.float32)], np.zeros((2, 8), np.float32)])
def test_inputs_without_names_are_reported(chain: Program, inputs: object) -> None:
    with pytest.raises(
        UserError, match=f"must be a dict by name, not a {type(inputs).__name__}\nThe model's inputs: x: f32"
    ):
        chain.run(inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [0, -1, 257, 1.5, "2"])
def test_numbers_of_threads_that_are_none(threads: Any) -> None:
    with pytest.raises(UserError, match="threads must be 1 to 256, not"):
        compile_graph(models.long_chain(1), threads=threads)


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
    trace = Node("Einsum", ("x",), ("y",), {"equation": "ii->"}, name="the_trace")
    graph = harness.make_graph([trace], {"x": np.eye(2, dtype=np.float32)})
    with pytest.warns(FallbackWarning):
        program = compile_graph(graph, threads=1)
    assert program.run({"x": 3 * np.eye(2, dtype=np.float32)})["y"] == pytest.approx(6)
    bad = harness.make_graph([Node("StringSplit", ("x",), ("y", "n"), {}, name="s")], {"x": np.array(["a b"], object)})
    with pytest.warns(FallbackWarning):
        program = compile_graph(bad, threads=1)
    with pytest.raises((RewriteError, UserError)):
        program.run({"x": np.array([1.0], np.float32)})


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


def outputs_of(program: Program, feeds: dict[str, np.ndarray], runs: int = 3) -> list[dict[str, np.ndarray]]:
    """Return the last of several runs: the first plans, later ones go straight through the runtime."""
    found: list[dict[str, np.ndarray]] = []
    for _ in range(runs):
        found = [*found[-2:], program.run(feeds)]
    return found


def test_outputs_are_written_to_given_arrays(chain: Program) -> None:
    x = RNG.standard_normal((6, 8), np.float32)
    expected = models.chain_reference(x)
    for kind in (dict, list):
        for place in (harness.aligned((6, 8), np.float32), np.frombuffer(bytearray(6 * 32 + 4), np.float32)[1:]):
            y = place.reshape(6, 8)
            for _ in range(3):
                y[...] = 0
                found = chain.run({"x": x}, out={"y": y} if kind is dict else [y])
                assert np.shares_memory(found["y"], y)
                np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert chain.run({"x": x}, out=[None])["y"].shape == (6, 8)


def test_an_output_may_be_written_over_an_input(long_chain: Program) -> None:
    x = RNG.standard_normal((9, 64), np.float32)
    expected = models.long_chain_reference(x)
    for _ in range(3):
        both = harness.aligned((9, 64), np.float32)
        both[...] = x
        long_chain.run({"v0": both}, out={"v12": both})
        np.testing.assert_allclose(both, expected, rtol=1e-4, atol=1e-5)


def test_an_output_is_made_in_the_stage_that_makes_it() -> None:
    nodes = [
        Node("Softmax", ("x",), ("r",), {"axis": -1}, name="first"),
        Node("Cast", ("r",), ("h",), {"to": 10, "saturate": 1}, name="cast to f16, of which NonZero has no kernel"),
        Node("NonZero", ("h",), ("n",), name="cut"),
        Node("Softmax", ("r",), ("y",), {"axis": 0}, name="second"),
    ]
    x = RNG.standard_normal((3, 8), np.float32)
    graph = harness.make_graph(nodes, {"x": x}, outputs=["y", "n"], symbolic_shapes={"x": ("N", 8)})
    with pytest.warns(FallbackWarning, match="NonZero"):
        program = compile_graph(graph, threads=1)
    first = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    for found in outputs_of(program, {"x": x}):
        np.testing.assert_allclose(found["y"], np.exp(first) / np.exp(first).sum(0), rtol=1e-5, atol=1e-6)


def test_outputs_of_hosts_are_written_to_given_arrays() -> None:
    with pytest.warns(FallbackWarning, match="NonZero"):
        program = compile_graph(models.mixed(), threads=1)
    x = RNG.standard_normal((4, 8), np.float32)
    expected = program.run({"x": x})
    out = {name: np.zeros_like(array) for name, array in expected.items()}
    found = program.run({"x": x}, out=out)
    for name, array in expected.items():
        assert found[name] is out[name]
        np.testing.assert_array_equal(out[name], array)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"y": np.zeros((4, 8))}, r"'y' is float64\[4, 8\], the model's output is float32\[4, 8\]"),
        ({"y": np.zeros((4, 9), np.float32)}, r"'y' is float32\[4, 9\], the model's output is float32\[4, 8\]"),
        ({"y": np.zeros((8, 4), np.float32).T}, "'y' is not C-contiguous"),
        ({"z": np.zeros((4, 8), np.float32)}, "no output 'z'"),
        ([], "`out` has 0 arrays, but the model has 1 outputs"),
        ({"y": np.broadcast_to(np.float32(0), (4, 8))}, "'y' is read-only"),
    ],
)
def test_arrays_that_outputs_do_not_fit_are_reported(chain: Program, warm: bool, out: object, message: str) -> None:
    x = np.zeros((4, 8), np.float32)
    if warm:
        outputs_of(chain, {"x": x})
    with pytest.raises(UserError, match=message):
        chain.run({"x": x}, out=out)  # type: ignore[arg-type]


def test_two_outputs_cannot_be_one_array() -> None:
    nodes = [Node("Relu", ("x",), ("a",), name="a"), Node("Neg", ("x",), ("b",), name="b")]
    graph = harness.make_graph(nodes, {"x": np.zeros((3, 4), np.float32)}, outputs=["a", "b"])
    program = compile_graph(graph, threads=1)
    x, y = RNG.standard_normal((3, 4), np.float32), np.zeros((3, 4), np.float32)
    with pytest.raises(UserError, match="shares memory with that for another output"):
        program.run({"x": x}, out=[y, y])
    found = program.run({"x": x}, out={"b": y})
    np.testing.assert_array_equal(found["a"], np.maximum(x, 0))
    np.testing.assert_array_equal(y, -x)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": np.zeros((4, 8))}, "dtype float64"),
        ({"x": np.zeros((4, 8), ">f4")}, "dtype >f4"),
        ({"x": np.zeros((4, 8), np.int32)}, "dtype int32"),
        ({"x": np.zeros((4, 8, 1), np.float32)}, "rank 3"),
        ({"x": None}, "dtype object"),
        ({"x": np.zeros((4, 8), np.float32), "y": 1}, "no input 'y'"),
    ],
)
def test_wrong_inputs_are_reported_after_valid_runs(
    chain: Program, warm: bool, feeds: dict[str, np.ndarray], message: str
) -> None:
    if warm:
        outputs_of(chain, {"x": np.zeros((4, 8), np.float32)})
    with pytest.raises(UserError, match=message):
        chain.run(feeds)


class Foreign:
    """A tensor of another library: it exports its memory by DLPack."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


def test_tensors_of_other_libraries(chain: Program) -> None:
    x, y = harness.aligned((5, 8), np.float32), harness.aligned((5, 8), np.float32)
    x[...] = RNG.standard_normal((5, 8), np.float32)
    for _ in range(3):
        y[...] = 0
        chain.run({"x": Foreign(x)}, out={"y": Foreign(y)})
        np.testing.assert_allclose(y, models.chain_reference(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="input 'x' is not on the CPU"):
        chain.run({"x": Foreign(x, device=2)})
    with pytest.raises(UserError, match="output 'y' is not on the CPU"):
        chain.run({"x": x}, out={"y": Foreign(y, device=2)})


def test_torch_tensors_are_read_and_written_where_they_are(chain: Program) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.randn(5, 8), torch.zeros(5, 8)
    for _ in range(3):
        chain.run({"x": x}, out=[y])
    np.testing.assert_allclose(y.numpy(), models.chain_reference(x.numpy()), rtol=1e-5, atol=1e-6)
    assert torch.from_dlpack(chain.run({"x": x})["y"]).shape == (5, 8)
    with pytest.raises(UserError, match="input 'x' cannot be read as an array"):
        chain.run({"x": torch.randn(5, 8, requires_grad=True)})


def test_a_bound_run_reads_and_writes_the_same_arrays(long_chain: Program) -> None:
    x = RNG.standard_normal((7, 64), np.float32)
    bound = long_chain.bind({"v0": x})
    [y] = bound.outputs.values()
    for scale in (1, 2, 3):
        x *= scale
        assert bound()["v12"] is y
        np.testing.assert_allclose(y, models.long_chain_reference(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="rank 1"):
        long_chain.bind({"v0": x[0]})


def test_runs_of_several_sizes_alternate(long_chain: Program) -> None:
    for _ in range(3):
        for n in range(1, 40):  # more than are kept
            x = RNG.standard_normal((n, 64), np.float32)
            np.testing.assert_allclose(
                long_chain.run({"v0": x})["v12"], models.long_chain_reference(x), rtol=1e-4, atol=1e-5
            )


def test_memory_of_outputs_is_used_again_only_when_they_are_gone(long_chain: Program) -> None:
    x = RNG.standard_normal((33, 64), np.float32)
    kept = [long_chain.run({"v0": x * i})["v12"] for i in range(6)]
    views = [long_chain.run({"v0": x * i})["v12"][1:] for i in range(6)]
    for i in range(6):
        expected = models.long_chain_reference(x * i)
        np.testing.assert_allclose(kept[i], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(views[i], expected[1:], rtol=1e-4, atol=1e-5)
    address = views[-1].__array_interface__["data"][0]
    del kept, views
    addresses = {long_chain.run({"v0": x})["v12"].__array_interface__["data"][0] for _ in range(4)}
    assert len(addresses) <= 2
    assert address  # the memory is still the program's


def test_a_steady_state_takes_no_memory(long_chain: Program) -> None:
    x = RNG.standard_normal((64, 64), np.float32)
    bound = long_chain.bind({"v0": x})
    models.check_steady(bound)


def test_an_interrupt_leaves_the_program_usable(long_chain: Program) -> None:
    import signal

    x = RNG.standard_normal((64, 64), np.float32)
    expected = long_chain.run({"v0": x})["v12"]
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            outputs_of(long_chain, {"v0": x}, 1 << 30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(long_chain.run({"v0": x})["v12"], expected)


def test_more_threads_than_cores_under_several_callers() -> None:
    programs = {threads: compile_graph(models.long_chain(), threads=threads) for threads in (1, 2, 9)}
    wrong: list[tuple[int, tuple[int, ...]]] = []

    def call(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(150):
            x = rng.standard_normal((int(rng.integers(1, 500)), 64), np.float32)
            expected = programs[1].run({"v0": x})["v12"]
            wrong.extend(
                (t, x.shape) for t, p in programs.items() if not np.array_equal(p.run({"v0": x})["v12"], expected)
            )

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_another_caller_comes_in_while_sizes_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_graph(models.long_chain(1), threads=1)
    small, large = (np.full((rows, 64), rows, np.float32) for rows in (3, 200))
    program.run({"v0": large})
    cache = link.add_bounded

    def interrupted(known: dict[Any, Any], key: Any, value: Any) -> None:
        cache(known, key, value)
        if key == (3,):
            assert program._link.bind(0, {"N": 200}).outputs[0].shape == (200, 64)

    monkeypatch.setattr(link, "add_bounded", interrupted)
    assert program._link.bind(0, {"N": 3}).outputs[0].shape == (3, 64)
    np.testing.assert_allclose(program.run({"v0": small})["v1"], models.long_chain_reference(small, 1), rtol=1e-6)


@pytest.fixture
def page() -> Iterator[np.ndarray]:
    """Two pages of bytes after which no byte may be read."""
    size = mmap.PAGESIZE
    space = np.frombuffer(mmap.mmap(-1, 3 * size), np.uint8)
    protect = ctypes.CDLL(None).mprotect
    end = ctypes.c_void_p(space.ctypes.data + 2 * size)
    assert protect(end, ctypes.c_size_t(size), 0) == 0
    yield space[: 2 * size]
    assert protect(end, ctypes.c_size_t(size), 3) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no mprotect there")
@pytest.mark.parametrize("given", ["in", "out", "in and out"])
@pytest.mark.parametrize("space", [0, 4, 16, 20, 48, 60, 64, 76, 80, 128])
def test_arrays_may_begin_and_end_anywhere(chain: Program, page: np.ndarray, space: int, given: str) -> None:
    """There are `space` bytes between the end of an array and the end of its page."""
    values = RNG.standard_normal((5, 8), np.float32)
    at = page[len(page) - space - values.nbytes : len(page) - space].view(np.float32).reshape(values.shape)
    assert is_readable(at) == (space % 16 == 0 and space >= 64)
    for _ in range(3):  # from Python at first, then by the runtime
        x = values
        if given != "out":
            at[...] = values
            x = at
        found = chain.run({"x": x}, out={"y": at} if given != "in" else None)["y"]
        np.testing.assert_allclose(found, models.chain_reference(values), rtol=1e-5, atol=1e-6)
        assert np.shares_memory(found, at) == (given != "in")
