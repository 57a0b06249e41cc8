"""16-bit floats in memory: every value is widened exactly; f32 and f64 are rounded to the nearest, ties to even."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from rewrite.engine.ir.graph import DType, Node

from .oracle import Array, Case, check

RNG = np.random.default_rng(5)
HALVES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def cast(x: Array, dtype: np.dtype, *, threads: tuple[int, ...] = (1, 3)) -> Case:
    """Conversion of an array; NumPy is the oracle."""
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
    node = Node("Cast", ("x",), ("y",), {"to": DType.from_numpy(dtype).onnx, "saturate": 1})
    return Case([node], {"x": x}, expected={"y": expected}, rtol=0, atol=0, threads=threads)


def every(dtype: np.dtype) -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def between(dtype: np.dtype) -> Array:
    """The numbers halfway between neighbors, those next to them, and random bits."""
    with np.errstate(invalid="ignore"):
        values = every(dtype).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    middle = np.append((values[1:] + values[:-1]) / 2, [-65520, 65520, np.inf, -np.inf, np.nan, 0.0, -0.0])
    with np.errstate(over="ignore"):
        near = middle.astype(np.float32)
    random = RNG.integers(0, 1 << 32, 1 << 15, dtype=np.uint64).astype(np.uint32).view(np.float32)
    above, below = (np.nextafter(near, np.float32(end)) for end in (np.inf, -np.inf))
    return np.concatenate([near, above, below, random])


@pytest.mark.parametrize("name", HALVES)
def test_all_values_are_widened_exactly(name: str) -> None:
    x = every(HALVES[name])
    f32, f64 = np.dtype(np.float32), np.dtype(np.float64)
    check([cast(x, f32), cast(x[:13], f32), cast(x[:, None][::7], f64)])


@pytest.mark.parametrize("name", HALVES)
def test_floats_are_rounded_to_the_nearest(name: str) -> None:
    x = between(HALVES[name])
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        beside = np.concatenate([np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf), wide])
    doubles = cast(beside, HALVES[name])
    if name == "bf16":  # ml_dtypes rounds by way of f32: twice
        doubles = cast(wide, HALVES[name])
    check([cast(x, HALVES[name]), cast(x[:11], HALVES[name]), doubles])


@pytest.mark.parametrize("name", HALVES)
def test_other_types(name: str) -> None:
    dtype, whole = HALVES[name], np.array([0, 1, -1, 2049, 2051, 65519, 65520, -70000, 3], np.int64)
    small = np.array([0.0, -0.0, 1.5, -2.75, 300.0, np.nan], np.float32).astype(dtype)
    check(
        [
            cast(whole, dtype),
            cast(whole.astype(np.int32), dtype),
            cast(np.arange(256, dtype=np.uint8), dtype),
            cast(np.array([True, False, True]), dtype),
            cast(small[:5], np.dtype(np.int64)),
            cast(small[1:4], np.dtype(np.int8)),
            cast(small, np.dtype(bool)),
        ]
    )


@pytest.mark.parametrize("name", HALVES)
def test_neighbors_in_a_kernel(name: str) -> None:
    """Operands that are broadcast, strided or short, an intermediate rounding, and results of two types."""
    dtype = HALVES[name]
    x, row = (RNG.standard_normal(s).astype(dtype) for s in ((5, 19), (19,)))
    to, back = {"to": DType.from_numpy(dtype).onnx, "saturate": 1}, {"to": 1, "saturate": 1}
    nodes = [
        Node("Cast", ("x",), ("a",), back),
        Node("Cast", ("row",), ("b",), back),
        Node("Mul", ("a", "b"), ("p",)),
        Node("Cast", ("p",), ("q",), to),
        Node("Cast", ("q",), ("r",), back),
        Node("Add", ("r", "a"), ("s",)),
        Node("Cast", ("s",), ("y",), to),
    ]
    a, b = x.astype(np.float32), row.astype(np.float32)
    q = (a * b).astype(dtype)
    s = q.astype(np.float32) + a
    values = {"a": a, "b": b, "p": a * b, "q": q, "r": q.astype(np.float32), "s": s, "y": s.astype(dtype)}
    check([Case(nodes, {"x": x, "row": row}, outputs=["y", "s", "q"], expected=values, rtol=0, atol=0)])


@pytest.mark.parametrize("name", HALVES)
def test_reductions_and_normalizations_read_and_write_halves(name: str) -> None:
    dtype = HALVES[name]
    to, back = {"to": DType.from_numpy(dtype).onnx, "saturate": 1}, {"to": 1, "saturate": 1}
    cases = []
    for shape in ((3, 21), (2, 700)):
        x = RNG.standard_normal(shape).astype(dtype)
        a = x.astype(np.float32)
        total, power = a.sum(1, keepdims=True), np.exp(a - a.max(1, keepdims=True))
        soft = power / power.sum(1, keepdims=True)
        ulp = float(ml_dtypes.finfo(dtype).eps)
        cast_in = Node("Cast", ("x",), ("a",), back)
        sum_of = Node("ReduceSum", ("a",), ("t",), {"axes": (1,), "keepdims": 1})
        values = {"a": a, "t": total, "y": total.astype(dtype)}
        cases.append(
            Case([cast_in, sum_of, Node("Cast", ("t",), ("y",), to)], {"x": x}, expected=values, rtol=ulp, atol=1e-4)
        )
        softmax, values = Node("Softmax", ("a",), ("p",), {"axis": -1}), {"a": a, "p": soft, "y": soft.astype(dtype)}
        cases.append(Case([cast_in, softmax], {"x": x}, outputs=["p"], expected=values, rtol=ulp, atol=1e-6))
        if shape[1] < 100:  # a longer row is not held in registers and needs memory for floats
            group = [cast_in, softmax, Node("Cast", ("p",), ("y",), to)]
            cases.append(Case(group, {"x": x}, expected=values, rtol=ulp, atol=1e-6))
    check(cases)


@pytest.mark.parametrize("name", HALVES)
def test_products_write_halves(name: str) -> None:
    dtype, ulp = HALVES[name], float(ml_dtypes.finfo(HALVES[name]).eps)
    x, w = (RNG.standard_normal(s).astype(np.float32) for s in ((7, 33), (33, 37)))
    bias = RNG.standard_normal(37).astype(dtype)
    nodes = [
        Node("MatMul", ("x", "w"), ("p",)),
        Node("Cast", ("bias",), ("b",), {"to": 1, "saturate": 1}),
        Node("Add", ("p", "b"), ("s",)),
        Node("Cast", ("s",), ("y",), {"to": DType.from_numpy(dtype).onnx, "saturate": 1}),
    ]
    b = bias.astype(np.float32)
    values = {"p": x @ w, "b": b, "s": x @ w + b, "y": (x @ w + b).astype(dtype)}
    check([Case(nodes, {"x": x, "bias": bias}, {"w": w}, expected=values, rtol=ulp, atol=1e-4)])
