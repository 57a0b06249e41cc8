"""Operands read in place before a move: splitting and joining heads makes no copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.iteration_space import sources
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.lower import Context
from rewrite.backend.ir.target import detect
from rewrite.benchmarks.harness import make_graph
from rewrite.engine.ir.graph import Graph, Node

from ..kernels.oracle import Array

RNG = np.random.default_rng(23)
HEADS, SIZE, LENGTH = 3, 20, 37
WIDTH = HEADS * SIZE


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def _heads(name: str) -> list[Node]:
    """Nodes from `name` to its heads, `name_h`."""
    return [
        Node("Reshape", (name, "parted"), (f"{name}_r",), name=f"{name}_r"),
        Node("Transpose", (f"{name}_r",), (f"{name}_h",), {"perm": (0, 2, 1, 3)}, name=f"{name}_h"),
    ]


def _attention(first: Sequence[Node], inputs: Mapping[str, Array], **more: object) -> Graph:
    own = Node(
        "rewrite.ScaledDotProductAttention", ("q_h", "k_h", "v_h"), ("y",), {"scale": 0.25, "rows": 1}, name="own"
    )
    nodes = [*first, *_heads("q"), *_heads("k"), *_heads("v"), own]
    constants = {"parted": ints(2, LENGTH, HEADS, SIZE), "lengths": ints(WIDTH, WIDTH, WIDTH)}
    constants |= {name: ints(n) for name, n in (("zero", 0), ("one", WIDTH), ("two", 2 * WIDTH), ("end", 3 * WIDTH))}
    return make_graph(nodes, inputs, constants={**constants, "axis": ints(2)}, **more)  # type: ignore[arg-type]


def _expected(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (a.reshape(2, LENGTH, HEADS, SIZE).swapaxes(1, 2).astype(np.float64) for a in (q, k, v))
    weights = np.exp(q @ k.swapaxes(2, 3) * 0.25)
    found: Array = (weights / weights.sum(3, keepdims=True) @ v).swapaxes(1, 2).astype(np.float32)
    return found


def _run(graph: Graph, feeds: Mapping[str, Array]) -> tuple[list[str], dict[str, Array]]:
    """Return the templates of the kernels, and the outputs."""
    program = compile_graph(graph, threads=2)
    return [item.kernel.template for item in program.plan.items if isinstance(item, Step)], program.run(feeds)


def test_parts_of_one_product_are_read_in_place() -> None:
    x = floats(2, LENGTH, 3 * WIDTH)
    split = [Node("Split", ("x", "lengths"), ("q", "k", "v"), {"axis": -1}, name="split")]
    slices = [
        Node("Slice", ("x", start, end, "axis"), (name,), name=name)
        for name, start, end in (("q", "zero", "one"), ("k", "one", "two"), ("v", "two", "end"))
    ]
    for first in (split, slices):
        kernels, found = _run(_attention(first, {"x": x}), {"x": x})
        assert kernels == ["attention"]
        np.testing.assert_allclose(found["y"], _expected(*np.split(x, 3, axis=2)), rtol=2e-5, atol=2e-6)


def test_what_others_read_is_still_made() -> None:
    feeds = {name: floats(2, LENGTH, WIDTH) for name in "qkv"}
    kernels, found = _run(_attention([], feeds, outputs=("y", "k_h")), feeds)
    assert sorted(kernels) == ["attention", "copy"]
    np.testing.assert_allclose(found["y"], _expected(**feeds), rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(found["k_h"], feeds["k"].reshape(2, LENGTH, HEADS, SIZE).swapaxes(1, 2))


def test_only_what_is_in_memory_is_read() -> None:
    """Values inside a kernel cannot be read; those that it writes can."""
    feeds = {"x": floats(2, LENGTH, HEADS, SIZE)}
    nodes = [Node("Relu", ("x",), ("a",)), Node("Transpose", ("a",), ("b",), {"perm": (0, 2, 1, 3)})]
    context = Context(make_graph(nodes, feeds), detect())
    assert [access.value for access in sources("b", context)] == []
    context.made.add("b")
    assert [access.value for access in sources("b", context)] == ["b"]
    context.made.add("a")
    seen = list(sources("b", context))
    assert [access.value for access in seen] == ["a", "b"]
    assert seen[0].strides == (LENGTH * WIDTH, SIZE, WIDTH, 1)


@pytest.mark.parametrize("length", [3, 5, 9])
def test_the_last_rows_of_any_number_are_read_in_place(length: int) -> None:
    """A sliding window over keys and values whose number is free, from the end on."""
    feeds = {"q": floats(2, HEADS, 4, SIZE), "k": floats(2, HEADS, length, SIZE), "v": floats(2, HEADS, length, SIZE)}
    nodes = [
        *(Node("Slice", (name, "first", "last", "axis"), (f"{name}_w",), name=name) for name in "kv"),
        Node("rewrite.ScaledDotProductAttention", ("q", "k_w", "v_w"), ("y",), {"scale": 0.25}, name="own"),
    ]
    constants = {"first": ints(-5), "last": ints(2**62), "axis": ints(2)}
    free = dict.fromkeys("kv", (2, HEADS, "T", SIZE))
    kernels, found = _run(make_graph(nodes, feeds, constants=constants, symbolic_shapes=free), feeds)
    assert kernels == ["attention"]
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    weights = np.exp(q @ k[:, :, -5:].swapaxes(2, 3) * 0.25)
    expected = weights / weights.sum(3, keepdims=True) @ v[:, :, -5:]
    np.testing.assert_allclose(found["y"], expected, rtol=2e-5, atol=2e-6)
