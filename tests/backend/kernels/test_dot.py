"""Products with few columns, as dot products: edges of rows and of k, batches, epilogues, element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

from .oracle import Array, Case, check

RNG = np.random.default_rng(11)
MATMUL = Node("MatMul", ("x", "w"), ("y",), name="product")


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) / 8, np.float32)


def case(
    nodes: Sequence[Node], inputs: Mapping[str, Array], constants: Mapping[str, Array] | None = None,
    symbolic: Mapping[str, Sequence[int | str]] | None = None, outputs: Sequence[str] | None = None,
) -> Case:  # fmt: skip
    types = {}
    if symbolic:
        types = dict(harness.make_graph(nodes, inputs, constants=constants, symbolic_shapes=symbolic).types)
    return Case(nodes, inputs, constants or {}, outputs, symbolic or {}, types, rtol=1e-4, atol=3e-5, threads=(1, 2, 3))


def product(
    a: Sequence[int], b: Sequence[int], constant: str = "", symbolic: dict[str, Sequence[int | str]] | None = None
) -> Case:
    arrays = {"x": floats(*a), "w": floats(*b)}
    constants = {name: arrays.pop(name) for name in constant}
    return case([MATMUL], arrays, constants, symbolic)


def templates(node: Node, inputs: Mapping[str, Array], constants: Mapping[str, Array] | None = None) -> list[str]:
    graph = harness.make_graph([node], inputs, constants=constants or {})
    items, _ = harness.lower(graph, target=make_target("avx512"))
    return [item.kernel.template for item in items or () if isinstance(item, Step)]


def test_which_products_are_dot_products() -> None:
    row, column, matrix = floats(1, 300), floats(300, 1), floats(40, 300)
    assert templates(MATMUL, {"x": matrix}, {"w": column}) == ["dot"]
    assert templates(MATMUL, {"w": column}, {"x": matrix}) == ["dot"]
    assert templates(MATMUL, {"x": matrix, "w": column}) == ["dot"]
    assert templates(MATMUL, {"x": matrix}, {"w": floats(300, 6)}) == ["dot"]
    assert templates(MATMUL, {"x": matrix}, {"w": floats(300, 7)}) == ["gemm"]
    assert templates(MATMUL, {"x": floats(40, 100)}, {"w": floats(100, 5)}) == ["gemm"]
    assert templates(MATMUL, {"x": matrix, "w": floats(300, 3)}) == ["pack", "dot"]
    assert templates(MATMUL, {"x": floats(40, 20)}, {"w": floats(20, 1)}) == ["gemm"]
    assert templates(MATMUL, {"x": row}, {"w": floats(300, 40)}) == ["gemm"]
    turned = Node("Gemm", ("x", "w"), ("y",), {"transB": 1})
    assert templates(turned, {"x": row, "w": matrix}) == ["dot"]
    assert templates(turned, {"x": row}, {"w": matrix}) == ["gemm"]
    columns = Node("Gemm", ("x", "w"), ("y",), {"transA": 1})
    assert templates(columns, {"x": floats(300, 40), "w": column}) == ["gemm"]


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 6])
def test_edges_of_rows_and_depth(columns: int) -> None:
    sizes = [(m, k) for m in (1, 3, 4, 16, 37) for k in (64, 129, 300)]
    cases = [product((m, k), (k, columns), "w") for m, k in sizes]
    cases += [product((m, k), (k, columns)) for m, k in sizes if m > 3]
    check(cases)


def test_batches() -> None:
    check(
        [
            product((2, 3, 9, 80), (2, 3, 80, 1)),
            product((2, 1, 9, 80), (3, 80, 2)),
            product((2, 1, 19, 80), (3, 80, 2)),
            product((7, 3, 80), (1, 80, 3)),
            product((2, 7, 3, 80), (1, 1, 80, 3)),
            product((5, 9, 80), (5, 80, 1), "x"),
            product((9, 80), (5, 80, 3), "w"),
            product((31, 80), (80,)),
            product((2, 31, 80), (80,), "w"),
            product((80,), (80,)),
            product((0, 80), (80, 1)),
        ]
    )


def test_extents_of_run_time() -> None:
    every: dict[str, Sequence[int | str]] = {"x": ("N", "M", "K"), "w": ("N", "K", 1)}
    wide: dict[str, Sequence[int | str]] = {"x": ("N", "M", "K"), "w": ("N", "K", 3)}
    cases = [product((2, m, k), (2, k, 1), symbolic=every) for m, k in ((1, 1), (17, 100), (5, 0), (0, 7))]
    cases += [product((2, m, k), (2, k, 3), symbolic=wide) for m, k in ((1, 1), (17, 100))]
    check(cases)


def test_one_row_times_rows() -> None:
    """Both orders of the same product, as one query times all keys."""
    turned = Node("Gemm", ("x", "w", "c"), ("y",), {"transB": 1, "alpha": 0.5, "beta": 2.0})
    check([case([turned], {"x": floats(1, 90), "w": floats(n, 90), "c": floats(1, n)}) for n in (1, 5, 33)])


@pytest.mark.parametrize("columns", [1, 3])
def test_epilogues(columns: int) -> None:
    x, w = floats(37, 100), floats(100, columns)
    for shape in ((columns,), (37, 1), (1,), (37, columns)):
        nodes = [
            Node("MatMul", ("x", "w"), ("p",)),
            Node("Add", ("p", "c"), ("s",)),
            Node("Tanh", ("s",), ("y",)),
        ]
        check(
            [case(nodes, {"x": x, "c": floats(*shape)}, {"w": w}), case(nodes, {"x": x, "w": w, "c": floats(*shape)})]
        )


def test_doubles() -> None:
    x, w = floats(21, 70).astype(np.float64), floats(70, 2).astype(np.float64)
    check([case([MATMUL], {"x": x}, {"w": w}), case([MATMUL], {"x": x, "w": w[:, :1]})])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_of_16_bits_is_read_in_16_bits(dtype: type, columns: int) -> None:
    a = floats(1030, 1100).astype(dtype).astype(np.float32)
    nodes, x = [MATMUL], floats(1100, columns)
    check([case(nodes, {"w": x}, {"x": a})])
    items, _ = harness.lower(harness.make_graph(nodes, {"w": x}, constants={"x": a}), target=make_target("avx2"))
    dots = [i.kernel for i in items or () if isinstance(i, Step) and i.kernel.template == "dot"]
    assert [k.params["stored"] for k in dots] == ["v_f16" if dtype is np.float16 else "v_bf16"]
