"""Resize with antialiasing against the oracle: modes, coordinates, edges, axes one by one, element types; of bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_resize import _cubic_coeffs_antialias, _linear_coeffs_antialias
from rewrite.backend.kernels.movement.resize_filtered import filter_table
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(41)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def resized(x: Array, sizes: tuple[int, ...], **attrs: Any) -> Case:
    node = Node("Resize", ("x", "", "", "s"), ("y",), {"antialias": 1, "mode": "linear", **attrs})
    return Case([node], {"x": x}, {"s": np.array(sizes)}, rtol=1e-4, atol=2e-5)


def test_modes_and_coordinates() -> None:
    cases = []
    for mode, coordinates, exclude in itertools.product(
        ("linear", "cubic"), ("half_pixel", "asymmetric", "align_corners"), (0, 1)
    ):
        attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "exclude_outside": exclude}
        cases.append(resized(floats(1, 2, 23, 31), (1, 2, 7, 12), **attrs))
        cases.append(resized(floats(1, 2, 9, 31), (1, 2, 20, 12), **attrs))
    for case in cases:
        case.threads = (1, 2)
    check(cases)


def test_axes_scales_and_types() -> None:
    cases = [resized(floats(2, 3, 40, 50), (2, 3, 1, 50)), resized(floats(2, 3, 40, 50), (2, 3, 40, 11))]
    scaled = Node("Resize", ("x", "", "s"), ("y",), {"antialias": 1, "mode": "linear"})
    scales = {"s": np.array([1, 1, 0.37, 0.61], np.float32)}
    cases.append(Case([scaled], {"x": floats(1, 2, 30, 40)}, scales, rtol=1e-4, atol=2e-5))
    corners = replace(scaled, attrs={**scaled.attrs, "coordinate_transformation_mode": "align_corners"})
    cases.append(replace(cases[-1], nodes=[corners], reference=True))  # ONNX Runtime leaves out fractions of lengths
    double = resized(floats(1, 2, 12, 14).astype(np.float64), (1, 2, 5, 6), mode="cubic")
    double.reference = True
    cases.append(double)
    cases.append(resized(floats(0, 2, 12, 14), (0, 2, 5, 6)))
    cases[-1].expected = {"y": np.zeros((0, 2, 5, 6), np.float32)}
    free = resized(floats(3, 2, 12, 14), (3, 2, 5, 6))
    free.symbolic = {"x": ("N", 2, 12, 14)}
    free.types = {"y": TensorType(DType.F32, (symbol("N"), 2, 5, 6))}
    free.nodes = [Node("Resize", ("x", "", "", "s"), ("y",), {"antialias": 1, "mode": "linear", "axes": (2, 3)})]
    free.constants = {"s": np.array([5, 6])}
    check([*cases, free])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_filters_are_the_standards(mode: str) -> None:
    node = Node("Resize", ("x",), ("y",), {"mode": mode, "antialias": 1})
    first, weights = filter_table(node, 1000, 300, 0.3)
    at = (150 + 0.5) / 0.3 - 0.5
    of = _linear_coeffs_antialias if mode == "linear" else _cubic_coeffs_antialias
    wanted = of(at - np.floor(at), 0.3)
    start = int(np.floor(at)) - (len(wanted) // 2 - 1)
    row = np.zeros(1000)
    row[first[150] : first[150] + weights.shape[1]] = weights[150]
    np.testing.assert_allclose(row[start : start + len(wanted)], wanted, atol=1e-7)
    assert row.sum() == pytest.approx(1)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 3, 21, 17), (1, 3, 5, 4)])
def test_bytes_are_interpolated_and_rounded_as_the_standard_says(dtype: str, mode: str, sizes: Sequence[int]) -> None:
    """In f64, to the nearest: ONNX Runtime cuts off instead."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 19]>
        g ({dtype}[1, 3, 10, 9] x) => ({dtype}[1, 3, {sizes[2]}, {sizes[3]}] y)
        <int64[4] n = {{{", ".join(map(str, sizes))}}}> {{ y = Resize<mode = "{mode}">(x, "", "", n) }}""")
    limits = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(limits.min, limits.max + 1, (1, 3, 10, 9)).astype(dtype)
    program = rewrite.compile(model, threads=1)
    assert program.fallbacks() == {}
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    away = np.abs(program.run({"x": x})["y"].astype(int) - expected.astype(int))
    assert away.max() <= 1  # in the middle between two
    assert (away > 0).mean() < 0.005
