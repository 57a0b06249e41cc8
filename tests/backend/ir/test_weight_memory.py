"""Memory for packed weights: in blocks, and provided ahead of its use."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from rewrite import compile as compile_
from rewrite.backend import compile_model
from rewrite.backend.ir.arrays import address, usable
from rewrite.backend.ir.kernel import SLACK
from rewrite.backend.ir.lower import Context
from rewrite.backend.ir.target import detect
from rewrite.backend.ir.weight_memory import ReadyMemory, WeightMemory, expected_sizes
from rewrite.backend.kernels.gemm.matmul import pack_columns
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

HUGE_PAGE = 2 << 20
BLOCK = 32 << 20


def context() -> Context:
    return Context(harness.make_graph([Node("Relu", ("x",), ("y",))], {"x": np.zeros((2, 3), np.float32)}), detect())


def test_weights_lie_one_behind_the_other_on_huge_pages() -> None:
    memory = WeightMemory()
    first = memory.copy(np.full(10_000, 2.0, np.float32))
    memory._block[:] = 1
    arrays = [memory.copy(np.full(n, float(n), np.float32)) for n in (8192, 30_000)]
    assert address(first) % HUGE_PAGE <= 64
    assert [address(a) for a in arrays] == [
        address(first) + first.nbytes + SLACK,
        address(arrays[0]) + 8192 * 4 + SLACK,
    ]
    for array in arrays:
        assert (array == array.size).all()
        assert ctypes.string_at(address(array) + array.nbytes, SLACK) == bytes(SLACK)
        assert usable(array) is array
    for size in (8191, (8 << 20) // 4 + 1):  # small ones would take a huge page, large ones have their own
        alone = np.zeros(size, np.float32)
        assert memory.copy(alone) is alone
    for _ in range(4):  # the last one begins another block
        array = memory.copy(np.zeros(8 << 20, np.uint8))
    assert address(array) % HUGE_PAGE <= 64
    assert (arrays[1] == 30_000).all()


def test_a_program_has_its_weights_in_one_block() -> None:
    """Equal ones once; what they were packed in is given back."""
    ctx = context()
    packed = [np.full(20_000, n, np.float32) for n in (1, 2, 1)]
    names = [ctx.add_constant(array) for array in packed]
    assert names[2] == names[0] != names[1]
    first, second = (ctx.added_constants[name].array for name in names[:2])
    assert address(second) == address(first) + first.nbytes + SLACK


def test_what_is_packed_in_a_block_stays_there() -> None:
    """It is not copied, and the place of what equals an earlier weight is used again."""
    ctx = context()
    matrices = [np.full((1, 100, 160), n, np.float32) for n in (1, 2, 2, 3)]
    packed = [pack_columns(matrix, 32, 16, ctx.memory.new) for matrix in matrices[:2]]
    names = [ctx.add_constant(array) for array in packed]
    assert all(ctx.added_constants[name].array is array for name, array in zip(names, packed, strict=True))
    again = pack_columns(matrices[2], 32, 16, ctx.memory.new)
    assert ctx.add_constant(again) == names[1]
    other = pack_columns(matrices[3], 32, 16, ctx.memory.new)
    assert address(other) == address(again) != address(packed[1])
    assert [array.reshape(-1)[0] for array in packed] == [1, 2]


def test_weights_lie_in_memory_that_was_provided_ahead() -> None:
    ready = ReadyMemory([(9 << 20) + 4096, BLOCK])
    ready.fill()
    large, block = ready._ready
    memory = WeightMemory(ready)
    arrays = [memory.new((n,), np.dtype(np.float32)) for n in (20_000, 9 << 18, 30_000, 9 << 18)]
    assert [np.may_share_memory(array, large if array.nbytes > 1 << 20 else block) for array in arrays] == [
        *(True, True, True),
        False,  # nobody expected a second one
    ]
    assert not ready._ready
    for array in arrays:
        assert ctypes.string_at(address(array) + array.nbytes, SLACK) == bytes(SLACK)
        assert usable(array) is array


def test_memory_that_is_needed_before_it_is_ready_is_not_provided_twice() -> None:
    ready = ReadyMemory([9 << 20, BLOCK, BLOCK])
    assert ready.take(BLOCK) is None
    ready.fill()
    assert [block.nbytes for block in ready._ready] == [9 << 20, BLOCK]
    assert ready.take(BLOCK // 2) is None  # much smaller
    ready.close()
    assert ready.take(BLOCK) is None
    closed = ReadyMemory([BLOCK])
    closed.close()
    closed.fill()
    assert not closed._ready


def test_weights_are_expected_where_they_are_packed() -> None:
    """Small ones together; not those that are small enough for an array, or tables."""
    table, small, bias = (np.zeros(n, np.float32) for n in ((5000, 1024), (1024, 1024), (1024,)))
    large, integers = np.zeros((1024, 3000), np.float32), np.zeros(3, np.int64)
    nodes = [
        Node("Gather", ("table", "i"), ("a",)),
        Node("MatMul", ("a", "small"), ("b",)),
        Node("Add", ("b", "bias"), ("c",)),
        Node("MatMul", ("c", "small"), ("d",)),
        Node("MatMul", ("d", "large"), ("e",)),
    ]
    constants = {"table": table, "small": small, "bias": bias, "large": large}
    graph = harness.make_graph(nodes, {"i": integers}, constants=constants)
    block, alone = expected_sizes(graph)
    assert block == BLOCK
    assert large.nbytes + SLACK <= alone < large.nbytes * 1.1
    many = {f"w{i}": np.zeros((1024, 1024), np.float32) for i in range(10)}
    products = [Node("MatMul", (f"x{i}", f"w{i}"), (f"x{i + 1}",)) for i in range(10)]
    graph = harness.make_graph(products, {"x0": np.zeros((1, 1024), np.float32)}, constants=many)
    assert expected_sizes(graph) == [BLOCK, BLOCK]  # eight in the first one


@pytest.mark.parametrize("cores", [1, 2])
def test_a_model_is_compiled_into_memory_provided_ahead(
    cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_model, "_MANY_BYTES", 1)
    monkeypatch.setattr(compile_model, "usable_cores", lambda: cores)
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path))
    made: list[WeightMemory] = []
    make = WeightMemory.__init__

    def noted(memory: WeightMemory, ready: ReadyMemory | None = None) -> None:
        made.append(memory)
        make(memory, ready)

    monkeypatch.setattr(WeightMemory, "__init__", noted)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((40, 200), (200, 300)))
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    values = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", None))
    ]
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[1:], [onnx.numpy_helper.from_array(w, "w")])
    program = compile_(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), threads=1)
    np.testing.assert_allclose(program.run({"x": x})["y"], x @ w, rtol=1e-4, atol=1e-4)
    assert [memory._ready is not None for memory in made] == [cores > 1] * len(made) != []
