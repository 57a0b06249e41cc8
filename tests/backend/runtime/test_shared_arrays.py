"""Programs that get one array as input and as output: a cache that each run updates in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.memory.buffer_assignment import assign_buffers, shareable
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

Array = NDArray[Any]
RNG = np.random.default_rng(41)
POSITIONS, ROW = 12, 16


def _program(nodes: Sequence[Node], outputs: Sequence[str], **inputs: Array) -> Program:
    return compile_graph(harness.make_graph(nodes, inputs, outputs=outputs), threads=2)


def _floats(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


def _inputs() -> dict[str, Array]:
    return {"past": _floats(1, 2, POSITIONS, ROW), "new": _floats(1, 2, 1, ROW), "at": np.array([3])}


_WRITE = Node("TensorScatter", ("past", "new", "at"), ("present",), {}, "write")


def _expected(past: Array, new: Array, at: int) -> Array:
    found = past.copy()
    found[:, :, at : at + 1] = new
    return found


@pytest.mark.parametrize("op", ["TensorScatter", "ScatterND"])
def test_a_cache_is_written_in_place(op: str) -> None:
    inputs = _inputs()
    if op == "ScatterND":
        inputs = {"past": _floats(POSITIONS, ROW), "new": _floats(1, ROW), "at": np.array([[3]])}
    order = ("past", "new", "at") if op == "TensorScatter" else ("past", "at", "new")
    program = _program([Node(op, order, ("present",), {}, "write")], ["present"], **inputs)
    assert shareable(assign_buffers(program.plan)) == [("past", "present")]
    cache = inputs["past"].copy()
    bound = program.bind({**inputs, "past": cache}, {"present": cache})
    expected = inputs["past"]
    for step in range(4):
        inputs["new"][...] = _floats(*inputs["new"].shape)
        inputs["at"][...] = step + 4
        bound()
        if step == 0:  # the run that bound the arrays
            first = np.flatnonzero((cache != expected).any(-1).reshape(-1, POSITIONS).any(0))
            assert set(first) == {3, 4}
            expected = np.where((cache != expected).any(-1, keepdims=True), cache, expected)
        elif op == "TensorScatter":
            expected = _expected(expected, inputs["new"], step + 4)
        else:
            expected = expected.copy()
            expected[step + 4] = inputs["new"]
        np.testing.assert_array_equal(cache, expected)


def test_steps_before_and_after_the_write_see_what_they_should() -> None:
    inputs = _inputs()
    before = Node("ReduceMax", ("past",), ("old",), {}, "before")
    after = Node("ReduceMax", ("present",), ("y",), {}, "after")
    program = _program([before, _WRITE, after], ["present", "old", "y"], **inputs)
    assert ("past", "present") in shareable(assign_buffers(program.plan))
    cache = inputs["past"].copy()
    for step in range(3):
        old, inputs["new"] = cache.copy(), _floats(1, 2, 1, ROW) * (step + 1)
        found = program.run({**inputs, "past": cache}, out={"present": cache})
        np.testing.assert_array_equal(cache, _expected(old, inputs["new"], 3))
        assert found["old"] == old.max()
        assert found["y"] == cache.max()


def test_an_input_that_is_read_later_is_copied() -> None:
    inputs = _inputs()
    later = Node("Sub", ("past", "present"), ("difference",), {}, "later")
    program = _program([_WRITE, later], ["present", "difference"], **inputs)
    assert ("past", "present") not in shareable(assign_buffers(program.plan))
    cache = inputs["past"].copy()
    for _ in range(3):
        old, inputs["new"] = cache.copy(), _floats(1, 2, 1, ROW)
        found = program.run({**inputs, "past": cache}, out={"present": cache})
        np.testing.assert_array_equal(cache, _expected(old, inputs["new"], 3))
        np.testing.assert_array_equal(found["difference"], old - cache)


def test_arrays_that_overlap_in_part_are_copied() -> None:
    inputs = _inputs()
    program = _program([_WRITE], ["present"], **inputs)
    whole = np.zeros((1, 2, POSITIONS, ROW), np.float32)
    around = np.zeros(whole.size + ROW, np.float32)
    past, present = around[ROW:].reshape(whole.shape), around[: whole.size].reshape(whole.shape)
    for _ in range(3):
        past[...] = inputs["past"]
        program.run({**inputs, "past": past}, out={"present": present})
        np.testing.assert_array_equal(present, _expected(inputs["past"], inputs["new"], 3))


def test_another_input_in_the_same_array_keeps_its_contents() -> None:
    """The update lies inside the cache, which its own write must not disturb."""
    cache = _floats(1, 2, POSITIONS, ROW)
    inputs = {"past": cache, "new": cache.copy(), "at": np.array([0])}
    program = _program([_WRITE], ["present"], **inputs)
    for _ in range(3):
        old = cache.copy()
        program.run({"past": cache, "new": cache, "at": np.array([0])}, out={"present": cache})
        np.testing.assert_array_equal(cache, old)


def test_an_output_may_replace_an_input_that_nothing_reads_any_more() -> None:
    """A state that several steps lead to."""
    state, weights = _floats(4, 32), _floats(32, 32)
    nodes = [
        Node("MatMul", ("state", "w"), ("a",), {}, "first"),
        Node("Softmax", ("a",), ("b",), {}, "second"),
        Node("MatMul", ("b", "w"), ("next",), {}, "third"),
    ]
    graph = harness.make_graph(nodes, {"state": state}, constants={"w": weights})
    program = compile_graph(graph, threads=2)
    assert shareable(assign_buffers(program.plan)) == [("state", "next")]
    expected = state.copy()
    for _ in range(4):
        expected = program.run({"state": expected.copy()})["next"].copy()
        program.run({"state": state}, out={"next": state})
        np.testing.assert_array_equal(state, expected)


def test_an_input_that_is_an_output_is_never_overwritten() -> None:
    inputs = _inputs()
    program = _program([_WRITE, Node("Identity", ("past",), ("same",), {}, "id")], ["present", "same"], **inputs)
    assert ("past", "present") not in shareable(assign_buffers(program.plan))
