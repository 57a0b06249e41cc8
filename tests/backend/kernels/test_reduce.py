"""Reductions against the oracle: every operator over every choice of axes, accuracy, prologues and epilogues."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.kernels.rowwise.reduce import side_by_side
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(5)
OPS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 2, np.float32)


def _reduce(op: str, x: Array, axes: tuple[int, ...] | None, keep: int = 1, **attrs: int) -> Case:
    constants = {} if axes is None else {"axes": np.array(axes, np.int64)}
    node = Node(f"Reduce{op}", ("x", *constants), ("y",), {"keepdims": keep, **attrs})
    return Case([node], {"x": x}, constants)


@pytest.mark.parametrize("keep", [0, 1])
def test_every_operator(keep: int) -> None:
    cases = []
    for op in OPS:
        x = np.abs(floats(3, 5, 37)) + 0.1
        cases += [_reduce(op, x, axes, keep) for axes in ((2,), (1,), (0, 2), None)]
    check(cases)


def test_every_choice_of_axes() -> None:
    cases = []
    for shape in ((4, 3, 5, 70), (2, 1, 9, 1)):
        for count in range(1, 5):
            cases += [_reduce("Sum", np.abs(floats(*shape)), axes, count % 2) for axes in combinations(range(4), count)]
    cases += [_reduce("Max", floats(4, 3, 19), axes) for axes in ((-1,), (-3, 1))]
    check(cases)


def test_odd_inputs() -> None:
    special = floats(5, 40)
    special[0, 3], special[1, 20], special[2, 1], special[3, :] = np.nan, np.inf, -np.inf, -np.inf
    cases = [_reduce(op, special, axes) for op in ("Max", "Min", "Sum") for axes in ((1,), (0,))]
    cases += [_reduce("LogSumExp", special[:3], axes) for axes in ((1,), (0,))]
    for case in cases:
        case.reference = True  # ONNX Runtime may lose a NaN
    cases += [
        _reduce("Sum", floats(2, 0, 3), (1,)),
        _reduce("Sum", floats(0, 3), (1,)),
        _reduce("Mean", floats(7), (0,), 0),
    ]
    cases += [
        _reduce("Sum", floats(3, 4), (), noop_with_empty_axes=1),
        _reduce("L2", floats(3, 4), (), noop_with_empty_axes=1),
    ]
    cases += [_reduce("LogSumExp", floats(3, 4) * 100, (1,))]
    check(cases)


def test_rows_of_few_elements() -> None:
    """Lanes reduce a row each: loads of elements apart, with operands of rows and of results, and a tail."""
    cases = []
    for count in (2, 3, 8, 9):
        for dtype in (np.float32, np.float64):
            x = (np.abs(floats(3, 53, count)) + 0.1).astype(dtype)
            cases += [_reduce(op, x, (-1,), keep) for op in OPS for keep in (0, 1)]
        cases.append(replace(_reduce("SumSquare", floats(2, 40, count), (2,), 0), symbolic={"x": ("B", "N", count)}))
    nodes = [
        Node("Mul", ("x", "w"), ("p",)),
        Node("ReduceSum", ("p", "axes"), ("r",), {"keepdims": 0}),
        Node("Add", ("r", "bias"), ("t",)),
        Node("Relu", ("t",), ("y",)),
    ]
    axes = {"axes": np.array([2], np.int64)}
    for bias in (floats(3, 40), floats(40), floats(1)):
        cases.append(Case(nodes, {"x": floats(3, 40, 2), "w": floats(2)}, {**axes, "bias": bias}, outputs=["y"]))
    check(cases)
    for count, kernel in ((2, "reduce_columns"), (9, "reduce_rows")):
        case = _reduce("Sum", floats(3, 40, count), (2,))
        graph = harness.make_graph(list(case.nodes), case.inputs, constants=case.constants)
        items, _ = harness.lower(graph)
        assert items is not None
        assert [item.kernel.template for item in items if isinstance(item, Step)] == [kernel]


def test_element_types() -> None:
    cases = []
    for dtype in (np.int32, np.int64, np.float64):
        x = np.clip(floats(4, 6, 9) * 5, -9, 9).astype(dtype)  # the product of nine numbers fits 32 bits
        x[0, 0, 0] = 0  # and that of all
        cases += [_reduce(op, x, axes) for op in ("Sum", "Max", "Min", "Prod") for axes in ((2,), (0,), None)]
    cases += [
        _reduce("Mean", floats(4, 6).astype(np.float64), (0,)),
        _reduce("Max", (floats(4, 6) * 9).astype(np.int8), (1,)),
    ]
    check(cases)


def test_long_sums_stay_accurate() -> None:
    x = np.random.default_rng(9).uniform(0.5, 1.5, (2, 1_000_003)).astype(np.float32)
    rows = {"y": x.astype(np.float64).sum(1, keepdims=True).astype(np.float32)}
    tall = np.ascontiguousarray(x.T)
    columns = {"y": tall.astype(np.float64).sum(0, keepdims=True).astype(np.float32)}
    # the sums of 2,000 chunks in a row are off by their rounding errors, about one in 10^6
    for array, axes, expected, rtol in ((x, (1,), rows, 1e-6), (tall, (0,), columns, 3e-6)):
        case = _reduce("Sum", array, axes)
        check([Case(case.nodes, case.inputs, case.constants, expected=expected, rtol=rtol, threads=(1,))])


def test_prologue_and_epilogue() -> None:
    axes = {"axes": np.array([1], np.int64)}
    cases = []
    for keep, bias in ((1, floats(3, 1, 40)), (0, floats(40)), (0, floats(3, 40))):
        nodes = [
            Node("Sub", ("x", "m"), ("d",)),
            Node("Mul", ("d", "d"), ("q",)),
            Node("ReduceMean", ("q", "axes"), ("r",), {"keepdims": keep}),
            Node("Add", ("r", "bias"), ("t",)),
            Node("Sqrt", ("t",), ("s",)),
        ]
        inputs = {"x": floats(3, 9, 40), "m": floats(3, 1, 40)}
        cases.append(Case(nodes, inputs, {**axes, "bias": np.abs(bias)}, outputs=["r", "s"]))
    last = [
        Node("Mul", ("x", "k"), ("q",)),
        Node("ReduceSum", ("q", "axes"), ("r",), {"keepdims": 0}),
        Node("Sigmoid", ("r",), ("s",)),
        Node("Mul", ("s", "g"), ("t",)),
    ]
    inputs = {"x": floats(6, 100), "k": floats(100), "g": floats(6)}
    cases.append(Case(last, inputs, axes, outputs=["t"]))
    check(cases)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_bytes_are_dequantized_and_results_quantized_on_vectors(dtype: Any) -> None:
    """Rows and columns, with ends of vectors; results of bytes, and of floats."""
    cases = []
    for shape, axes in (
        ((2, 30, 70), (1,)),
        ((2, 30, 70), (2,)),
        ((3, 7, 9, 33), (1, 2)),
        ((5, 1000), (1,)),
        ((4, 9), (0,)),
    ):
        x = RNG.integers(0, 256, shape).astype(np.uint8).view(dtype)
        constants: dict[str, Array] = {
            "s": np.array(0.1, np.float32), "z": np.array(7, dtype), "axes": np.array(axes, np.int64),
            "t": np.array(0.13, np.float32), "o": np.array(-3 if dtype is np.int8 else 100, dtype),
        }  # fmt: skip
        for op in ("ReduceMean", "ReduceMax"):
            nodes = [
                Node("DequantizeLinear", ("x", "s", "z"), ("f",)),
                Node(op, ("f", "axes"), ("r",)),
                Node("QuantizeLinear", ("r", "t", "o"), ("y",)),
            ]
            cases += [Case(nodes, {"x": x}, constants), Case(nodes[:2], {"x": x}, constants)]
    for each in cases:
        items, _ = harness.lower(harness.make_graph(each.nodes, each.inputs, constants=each.constants))
        assert [item.kernel.params["vector"] for item in items or () if isinstance(item, Step)] == [True]
    check([replace(each, atol=1 if len(each.nodes) == 3 else 1e-5) for each in cases])  # in the middle between two


def test_arg_max_and_min() -> None:
    cases = []
    x = np.round(floats(4, 7, 33))
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1, 2, -1):
            for last in (0, 1):
                attrs: dict[str, Any] = {"axis": axis, "keepdims": last, "select_last_index": last}
                cases.append(Case([Node(op, ("x",), ("y",), attrs)], {"x": x}))
        cases.append(Case([Node(op, ("x",), ("y",), {"axis": 0})], {"x": x.astype(np.int32)}))
        cases.append(Case([Node(op, ("x",), ("y",), {"axis": 1})], {"x": floats(3, 5000)}))
    check(cases)


def test_arg_max_of_ties_nan_and_infinities() -> None:
    """Rows of several parts and of less than a vector, columns that fill no vector; the extremum at each place."""
    cases = []
    for shape, axis in (((7, 600), 1), ((2, 600, 37), 1), ((9, 5), 1), ((3, 17, 5), 1)):
        x = np.round(floats(*shape))
        flat = x.reshape(-1)
        flat[:: x.shape[axis] + 1] = np.inf
        flat[5 :: 3 * x.shape[axis] - 2] = -np.inf
        nan = x.copy()
        nan.reshape(-1)[3 :: 2 * x.shape[axis] + 7] = np.nan
        for op in ("ArgMax", "ArgMin"):
            for last in (0, 1):
                node = Node(op, ("x",), ("y",), {"axis": axis, "select_last_index": last})
                cases += [Case([node], {"x": a}) for a in (x, np.full(shape, -np.inf, np.float32))]
                cases.append(Case([node], {"x": nan}, reference=True))  # ONNX Runtime ignores NaN
    check(cases)


def test_dims_known_at_run_time() -> None:
    n, s = symbol("N"), symbol("S")
    cases = []
    for a, b in ((3, 70), (1, 1), (2, 5)):
        for axes, shape in (((2,), (n, s, 1)), ((1,), (n, 1, 6)), ((0, 1), (1, 1, 6)), ((1, 2), (n, 1, 1))):
            case = _reduce("Mean", floats(a, b, 6), axes)
            kind = {"y": TensorType(DType.F32, shape)}
            cases.append(Case(case.nodes, case.inputs, case.constants, symbolic={"x": ("N", "S", 6)}, types=kind))
    check(cases)


def test_long_runs_of_rows_are_read_where_few_columns_are_left_over() -> None:
    assert [side_by_side(columns, 8) for columns in (64, 320, 2048, 80)] == [8, 8, 8, 8]
    assert [side_by_side(columns, 8) for columns in (32, 63, 96, symbol("n"))] == [4, 4, 4, 4]
    check([_reduce("Mean", floats(9, columns), (0,)) for columns in (64, 80, 127, 133, 200, 260)])
