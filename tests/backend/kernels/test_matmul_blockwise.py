"""Products with weights of four and eight bits, against the definition in float64, on each instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import detect, make_target
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType

from .oracle import Case, check

Array = NDArray[Any]
RNG = np.random.default_rng(31)
LIMITS = {"u4": (0, 16), "i4": (-8, 8), "u8": (0, 256), "i8": (-128, 128)}
DTYPES = {"u4": ml_dtypes.uint4, "i4": ml_dtypes.int4, "u8": np.uint8, "i8": np.int8}


def integers(dtype: str, *shape: int) -> Array:
    return RNG.integers(*LIMITS[dtype], shape).astype(DTYPES[dtype])


def product(
    dtype: str, m: int, k: int, n: int, block: int, *, zeros: bool = False, bias: bool = False, symbolic: bool = False
) -> Case:
    """A product of [2, m, k] or [m, k], perhaps with zero points, a bias and a SiLU behind it."""
    shape = (m, k) if m % 2 else (2, m // 2, k)
    x = RNG.standard_normal(shape).astype(np.float32)
    constants = {
        "q": integers(dtype, k, n),
        "s": (RNG.random((-(-k // block), n)) + 0.5).astype(np.float32) / np.float32(k**0.5 * LIMITS[dtype][1]),
    }
    if zeros:
        constants["z"] = integers(dtype, -(-k // block), n)
    whole = constants["q"].astype(np.float64)
    if zeros:
        whole = whole - np.repeat(constants["z"].astype(np.float64), block, 0)[:k]
    y = x.astype(np.float64) @ (whole * np.repeat(constants["s"].astype(np.float64), block, 0)[:k])
    nodes = [Node("rewrite.MatMulBlockwise", ("x", "q", "s", "z")[: 3 + zeros], ("y",), {"block_size": block}, "p")]
    expected = {"y": y}
    if bias:
        constants["b"] = RNG.standard_normal(n).astype(np.float32)
        y = y + constants["b"]
        expected |= {"a": y, "b1": 1 / (1 + np.exp(-y)), "o": y / (1 + np.exp(-y))}
        nodes += [
            Node("Add", ("y", "b"), ("a",), {}, "add"),
            Node("Sigmoid", ("a",), ("b1",), {}, "sigmoid"),
            Node("Mul", ("a", "b1"), ("o",), {}, "mul"),
        ]
    dims = ("M", k) if symbolic else shape
    if symbolic:
        x = x.reshape(m, k)
        expected = {name: v.reshape(m, n) for name, v in expected.items()}
    types = {name: TensorType(DType.F32, (*_dims(dims)[:-1], n)) for name in expected}
    rounded = {name: v.astype(np.float32) for name, v in expected.items()}
    named = {"x": dims} if symbolic else {}
    return Case(
        nodes,
        {"x": x},
        constants,
        symbolic=named,
        types=types,
        expected=rounded,
        rtol=2e-5,
        atol=2e-5,
        threads=(2,),
    )


def _dims(shape: tuple[int | str, ...]) -> tuple[Any, ...]:
    from rewrite.engine.ir.dim_parser import parse

    return tuple(d if isinstance(d, int) else parse(d) for d in shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows(dtype: str) -> None:
    check(
        [
            product(dtype, 1, 64, 64, 16),
            product(dtype, 1, 100, 130, 32, zeros=True, bias=True),
            product(dtype, 2, 33, 17, 16, zeros=True),
            product(dtype, 3, 256, 70, 64, bias=True),
            product(dtype, 5, 20, 3, 32),
            product(dtype, 8, 300, 100, 128, zeros=True),
            product(dtype, 7, 512, 40, 512, zeros=True),
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows(dtype: str) -> None:
    check(
        [
            product(dtype, 9, 64, 64, 16, bias=True),
            product(dtype, 37, 100, 130, 32, zeros=True),
            product(dtype, 50, 33, 17, 16, zeros=True, bias=True),
            product(dtype, 14, 300, 100, 256),
            product(dtype, 11, 1000, 24, 1000, zeros=True),
        ]
    )


def test_rows_known_at_run_time_only() -> None:
    cases = []
    for m in (1, 6, 9, 40):
        cases += [
            product("u4", m, 100, 130, 32, zeros=True, bias=True, symbolic=True),
            product("i8", m, 600, 50, 600, symbolic=True),
        ]
    check(cases)


def test_single_row_of_blocks_of_any_length() -> None:
    cases = [(24, 24), (100, 40), (300, 96), (300, 64), (1000, 250)]
    check([product("u4", 1, k, 70, block, zeros=zeros) for k, block in cases for zeros in (False, True)])


@pytest.mark.parametrize("scale", [2.0**-110, 2.0**-20, 1.0, 2.0**108])
def test_single_row_of_whole_numbers_is_exact(scale: float) -> None:
    """Numbers of 16 bits are exact as integers of 24 bits in any binade, and so are their short sums."""
    x = RNG.integers(-(2**15), 2**15, (1, 32)).astype(np.float32)
    x[0, 3] = 2**15 - 1
    codes = RNG.integers(-8, 8, (32, 40))
    codes[np.arange(32) % 8 != 3] = 0
    y = x.astype(np.float64) @ codes * scale
    constants = {"q": codes.astype(ml_dtypes.int4), "s": np.ones((1, 40), np.float32)}
    nodes = [Node("rewrite.MatMulBlockwise", ("x", "q", "s"), ("y",), {"block_size": 32}, "p")]
    inputs = {"x": (x * scale).astype(np.float32)}
    check([Case(nodes, inputs, constants, expected={"y": y.astype(np.float32)}, rtol=0, atol=0)])


def test_a_single_row_stays_in_floats_where_rounding_may_not_change() -> None:
    case = product("u4", 1, 64, 70, 32)
    types = {"y": TensorType(DType.F32, case.expected["y"].shape)}
    graph = harness.make_graph(list(case.nodes), case.inputs, constants=case.constants, types=types)
    found = []
    for reassociate in (True, False):
        items, _ = harness.lower(graph, target=make_target("avx2"), reassociate=reassociate)
        assert items is not None
        found.append([item.kernel.params["single"] for item in items if isinstance(item, Step)])
    assert found == [[True], [False]]


def test_single_row_of_extreme_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers near the largest f32 are integers like others; NaN reaches every column.

    Targets that convert numbers where they are in a word overflow before."""
    monkeypatch.setenv("REWRITE_TEST_TARGETS", "avx512,avx2")
    codes = np.ones((64, 40), np.int8)
    codes[32:] = 0
    nodes = [Node("rewrite.MatMulBlockwise", ("x", "q", "s"), ("y",), {"block_size": 32}, "p")]
    constants = {"q": codes.astype(ml_dtypes.int4), "s": np.full((2, 40), 2.0**-10, np.float32)}
    cases = []
    for value in (np.finfo(np.float32).max * np.float32(0.998), np.nan):
        x = np.zeros((1, 64), np.float32)
        x[0, 5] = value
        y = np.full((1, 40), value * 2.0**-10, np.float32)
        cases.append(Case(nodes, {"x": x}, constants, expected={"y": y}, rtol=1e-6, atol=0))
    check(cases)


def test_numbers_of_threads() -> None:
    check([replace(product("u4", m, 64, 300, 32, zeros=True), threads=(1, 3, 5)) for m in (1, 40)])


def test_blocks_that_are_not_whole_words() -> None:
    cases = [("u4", 1, 12), ("u4", 20, 12), ("i8", 1, 7), ("i8", 20, 7)]
    check([product(dtype, m, 50, 20, block, zeros=True) for dtype, m, block in cases])


def test_a_deep_product_is_cut_into_blocks_of_k() -> None:
    """Partial sums are stored between blocks of rows that a panel is dequantized in.

    A panel of two vectors and `k` rows is larger than the second-level cache, for vectors of any width."""
    lanes, l2 = detect().lanes, detect().l2
    k = max(9000, l2 // (2 * lanes) // 32 * 32)
    case = product("u4", 12, k, 70, 32, zeros=True, bias=True, symbolic=True)
    items, _ = harness.lower(
        harness.make_graph(list(case.nodes), case.inputs, constants=case.constants, outputs=["o"],
                           symbolic_shapes=case.symbolic, types=case.types)
    )  # fmt: skip
    assert items is not None
    assert items[-1].kernel.params["kc"] < k
    check([case])


def test_what_is_not_constant_is_refused() -> None:
    case = product("u8", 3, 64, 16, 32)
    inputs = {**case.inputs, "q": case.constants["q"]}
    constants = {k: v for k, v in case.constants.items() if k != "q"}
    items, _ = harness.lower(harness.make_graph(list(case.nodes), inputs, constants=constants, types=case.types))
    assert items is None
