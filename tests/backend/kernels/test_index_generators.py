"""Resize, and tensors computed from positions, against the oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from rewrite.engine.ir.graph import Constant, DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check, unary

RNG = np.random.default_rng(17)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 2, np.float32)


def _resize(x: Array, *, scales: tuple[float, ...] = (), sizes: tuple[int, ...] = (), **attrs: Any) -> Case:
    if scales:
        return Case([Node("Resize", ("x", "", "s"), ("y",), attrs)], {"x": x}, {"s": np.array(scales, np.float32)})
    return Case([Node("Resize", ("x", "", "", "s"), ("y",), attrs)], {"x": x}, {"s": np.array(sizes, np.int64)})


def test_resize() -> None:
    x = floats(2, 3, 5, 7)
    cases = []
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
    for mode in modes:
        coordinates: dict[str, Any] = {"coordinate_transformation_mode": mode}
        for kind in ("nearest", "linear"):
            cases.append(_resize(x, scales=(1, 1, 2, 2), mode=kind, **coordinates))
            cases.append(_resize(x, sizes=(2, 3, 3, 11), mode=kind, **coordinates))
    for mode in modes[:3]:
        case = _resize(x, scales=(1, 1, 2, 1.5), mode="cubic", coordinate_transformation_mode=mode)
        cases.append(replace(case, reference=mode == "align_corners"))
    for kind in ("nearest", "linear", "cubic"):  # of a length that is no integer, ONNX Runtime aligns other corners
        corners = {"mode": kind, "coordinate_transformation_mode": "align_corners"}
        cases.append(replace(_resize(x, scales=(1, 1, 0.7, 1.625), **corners), reference=True))
    for rounding in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor"):
        attrs: dict[str, Any] = {"nearest_mode": rounding, "coordinate_transformation_mode": "asymmetric"}
        cases.append(_resize(x, scales=(1, 1, 1.6, 0.6), mode="nearest", **attrs))
    cases.append(_resize((x * 9).astype(np.uint8), scales=(1, 1, 3, 3), mode="nearest"))
    for kind in ("nearest", "linear", "cubic"):  # channels are last, or the last axis stays as it is
        cases.append(_resize(x, scales=(1, 1, 2, 1), mode=kind))
        if kind != "cubic":  # ONNX Runtime does no other axes
            cases.append(_resize(x, scales=(1, 2, 1.5, 1), mode=kind, coordinate_transformation_mode="asymmetric"))
            cases.append(_resize(x, sizes=(2, 7, 3, 7), mode=kind))
    cases.append(_resize(x, scales=(2, 1, 1, 1), mode="nearest"))
    for kind in ("nearest", "linear"):
        space = floats(2, 3, 4, 5, 6)
        cases.append(_resize(space, scales=(1, 1, 2, 2, 2), mode=kind))
        cases.append(_resize(space, sizes=(2, 3, 7, 3, 11), mode=kind, coordinate_transformation_mode="align_corners"))
        cases.append(_resize(space, scales=(1, 1, 2, 1, 1.5), mode=kind))
    cases.append(_resize((space * 9).astype(np.uint8), scales=(1, 2, 2, 3, 1), mode="nearest"))
    cases.append(_resize((x * 9).astype(np.uint8), scales=(1, 2, 2, 1), mode="nearest"))
    check([replace(c, rtol=1e-4, atol=1e-5) for c in cases])


def test_resize_by_exact_scales() -> None:
    """Positions on an element or in the middle between two, by rational arithmetic: both oracles round them."""
    roundings: dict[str, Callable[[Fraction], int]] = {
        "floor": math.floor,
        "ceil": math.ceil,
        "round_prefer_floor": lambda at: math.ceil(at - Fraction(1, 2)),
        "round_prefer_ceil": lambda at: math.floor(at + Fraction(1, 2)),
    }
    cases = []
    for (rounding, nearest), size in itertools.product(roundings.items(), (5, 8, 10, 11)):
        x = np.arange(size, dtype=np.float32)[None]
        for scale in map(np.float32, (0.5, 0.625, 0.75, 1.25, 2.5, 0.6)):
            exact = Fraction(float(scale))
            resized = math.floor(size * exact)
            offset = Fraction(size, 2) * (1 - resized / (exact * size))
            at = [offset + (i + Fraction(1, 2)) / exact - Fraction(1, 2) for i in range(resized)]
            expected = x[:, [min(max(nearest(position), 0), size - 1) for position in at]]
            attrs = {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": rounding}
            case = _resize(x, scales=(1.0, float(scale)), mode="nearest", **attrs)
            cases.append(replace(case, expected={"y": expected}, threads=(1,)))
    check(cases)


def test_resize_of_long_rows() -> None:
    """Windows of sources that fit one vector, two, or neither; rows that vectors do not divide; channels last."""
    x, attrs = floats(2, 3, 9, 70), {"coordinate_transformation_mode": "half_pixel"}
    cases = []
    for across in (0.11, 0.4, 0.7, 1.0, 1.3, 2.0, 5.0):
        for kind in ("linear", "cubic"):
            cases.append(_resize(x, scales=(1, 1, 1.5, across), mode=kind, **attrs))
    cases.append(_resize(floats(1, 2, 4, 3), sizes=(1, 2, 11, 50), mode="cubic", exclude_outside=1, **attrs))
    for inner in (1, 5, 16, 24, 37):
        last = floats(1, 4, 5, inner)
        cases.append(_resize(last, scales=(1, 2, 3, 1), mode="nearest", **attrs))
        cases.append(_resize((last * 9).astype(np.uint8), scales=(1, 2, 3, 1), mode="nearest", **attrs))
        cases.append(_resize(last, scales=(1, 2, 3, 1), mode="linear", **attrs))
    cases.append(_resize(x, sizes=(2, 3, 18, 140), mode="nearest", **attrs))
    check([Case(c.nodes, c.inputs, c.constants, rtol=1e-4, atol=2e-5) for c in cases])


def test_triangles() -> None:
    cases = [unary("Trilu", floats(2, 5, 7), upper=upper) for upper in (0, 1)]
    for k in (-2, 1, 9):
        cases.append(Case([Node("Trilu", ("x", "k"), ("y",), {"upper": 1})], {"x": floats(4, 4)}, {"k": np.array(k)}))
    x = {"x": RNG.integers(0, 9, (3, 6)), "k": np.array(-1)}
    cases.append(Case([Node("Trilu", ("x", "k"), ("y",), {"upper": 0})], x))
    cases.append(unary("EyeLike", floats(4, 6), k=1, dtype=DType.F32.onnx))
    check(cases)


def test_ranges_and_fills() -> None:
    numbers = {"a": np.array(3, np.int64), "b": np.array(20, np.int64), "c": np.array(4, np.int64)}
    reals = {"a": np.array(5, np.float32), "b": np.array(-1, np.float32), "c": np.array(-0.5, np.float32)}
    cases = [Case([Node("Range", ("a", "b", "c"), ("y",))], values) for values in (numbers, reals)]
    for value in (np.array([7], np.int64), np.array([1.5], np.float32), np.array([True])):
        fill = Node("ConstantOfShape", ("s",), ("y",), {"value": Constant(value)})
        expected = {"y": np.full((3, 4), value[0])}
        cases.append(Case([fill], {}, {"s": np.array([3, 4])}, expected=expected))
    for values in (np.array([0, 1], np.float32), np.array([5, 9], np.int64)):
        index = RNG.integers(-4, 4, (3, 5))
        for axis in (-1, 0, 1):
            node = Node("OneHot", ("x", "d", "v"), ("y",), {"axis": axis})
            cases.append(Case([node], {"x": index}, {"d": np.array(4), "v": values}))
    check(cases)


def test_running_sums() -> None:
    cases = []
    for axis in (0, 1, -1):
        for exclusive in (0, 1):
            attrs: dict[str, Any] = {"exclusive": exclusive, "reverse": axis % 2}
            node = Node("CumSum", ("x", "a"), ("y",), attrs)
            cases += [
                Case([node], {"x": x}, {"a": np.array(axis)})
                for x in (floats(3, 4, 9), floats(2, 5, 29), RNG.integers(0, 9, (3, 4, 9)))
            ]
    check(cases)


def test_cumulative_products() -> None:
    cases = []
    for axis, exclusive, reverse in itertools.product((0, 1, -1), (0, 1), (0, 1)):
        node = Node("CumProd", ("x", "a"), ("y",), {"exclusive": exclusive, "reverse": reverse})
        for x in (floats(3, 4, 9), floats(2, 0, 3), np.asarray(RNG.integers(1, 4, (3, 4, 5)), np.int64)):
            along = np.flip(x, axis) if reverse else x
            found = np.cumprod(along, axis, dtype=np.float64 if x.dtype.kind == "f" else None)
            if exclusive:
                found = np.concatenate((np.ones_like(along.take([0] * (along.shape[axis] > 0), axis)), found), axis)
                found = found.take(range(along.shape[axis]), axis)
            expected = (np.flip(found, axis) if reverse else found).astype(x.dtype)
            cases.append(Case([node], {"x": x}, {"a": np.array(axis)}, expected={"y": expected}))
    check(cases)


def test_dims_known_at_run_time() -> None:
    h, w = symbol("H"), symbol("W")
    cases = []
    for a, b in ((5, 7), (1, 1), (8, 3)):
        case = _resize(floats(1, 2, a, b), scales=(1, 1, 2, 2), mode="linear")
        kind = {"y": TensorType(DType.F32, (1, 2, 2 * h, 2 * w))}
        cases.append(Case(case.nodes, case.inputs, case.constants, symbolic={"x": (1, 2, "H", "W")}, types=kind))
        case = unary("Trilu", floats(a, b))
        kind = {"y": TensorType(DType.F32, (h, w))}
        cases.append(Case(case.nodes, case.inputs, symbolic={"x": ("H", "W")}, types=kind))
    check(cases)
