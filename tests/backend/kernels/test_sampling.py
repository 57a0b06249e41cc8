"""GridSample and RoiAlign against the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(29)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def _grid_sample(x: Array, grid: Array, **attrs: Any) -> Case:
    reference = x.ndim == 3 or (attrs.get("mode") == "cubic" and attrs.get("padding_mode") == "border")
    node = Node("GridSample", ("x", "grid"), ("y",), attrs)
    return Case([node], {"x": x, "grid": grid}, rtol=1e-4, atol=1e-4, reference=reference)


def _grid(*shape: int) -> Array:
    """Positions inside and outside of the image, none of them between two pixels."""
    return np.asarray(RNG.uniform(-2.1, 2.1, shape), np.float32)


def test_grid_sample() -> None:
    cases = []
    for mode, padding, corners in itertools.product(
        ("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        cases.append(_grid_sample(floats(2, 3, 5, 7), _grid(2, 4, 6, 2), **attrs))
        cases.append(_grid_sample(floats(1, 2, 1, 4), _grid(1, 9, 17, 2), **attrs))
        cases.append(_grid_sample(floats(1, 2, 5), _grid(1, 9, 1), **attrs))
        if mode != "cubic":
            cases.append(_grid_sample(floats(2, 3, 3, 5, 4), _grid(2, 4, 2, 3, 3), **attrs))
    cases.append(_grid_sample(floats(2, 0, 5, 7), _grid(2, 4, 6, 2)))
    cases.append(_grid_sample(floats(2, 3, 5, 7), _grid(2, 0, 6, 2)))
    cases.append(_grid_sample(floats(2, 3, 5, 7).astype(np.float64), _grid(2, 4, 6, 2).astype(np.float64)))
    check(cases)


def test_grid_sample_far_outside_and_between_pixels() -> None:
    x = floats(1, 1, 4, 4)
    grid = np.array([[0.5, 0.5], [0.0, 1e30], [-np.inf, 0.0], [np.nan, np.nan]], np.float32).reshape(1, 1, 4, 2)
    node = Node("GridSample", ("x", "grid"), ("y",), {"mode": "nearest", "align_corners": 0})
    expected = np.array([[[[x[0, 0, 2, 2], 0, 0, 0]]]], np.float32)
    cases = [Case([node], {"x": x, "grid": grid}, expected={"y": expected})]
    inf = np.full((1, 1, 2, 2), np.inf, np.float32)
    outside = np.full((1, 1, 1, 2), -3, np.float32)
    zero = np.zeros((1, 1, 1, 1), np.float32)
    cases.append(Case([Node("GridSample", ("x", "grid"), ("y",))], {"x": inf, "grid": outside}, expected={"y": zero}))
    check(cases)


def test_grid_sample_of_free_sizes() -> None:
    n, h, w = map(symbol, "NHW")
    sizes = {"x": ("N", 3, "H", "W"), "grid": ("N", "H", "W", 2)}
    cases = [_grid_sample(floats(*s), _grid(s[0], *s[2:], 2)) for s in ((2, 3, 5, 7), (1, 3, 1, 1), (0, 3, 4, 4))]
    for case in cases:
        case.symbolic, case.types = sizes, {"y": TensorType(DType.F32, (n, 3, h, w))}
    check(cases)


def _regions(count: int, size: int) -> Array:
    corners = RNG.uniform(-2, size + 2, (count, 2, 2))
    return np.asarray(np.concatenate((corners.min(1), corners.max(1)), 1), np.float32)


def _roi_align(x: Array, regions: Array, **attrs: Any) -> Case:
    images = RNG.integers(0, len(x), len(regions))
    node = Node("RoiAlign", ("x", "rois", "images"), ("y",), attrs)
    return Case([node], {"x": x, "rois": regions, "images": images}, rtol=1e-4, atol=1e-5)


def test_roi_align() -> None:
    cases = []
    for mode, transformation, ratio in itertools.product(
        ("avg", "max"), ("half_pixel", "output_half_pixel"), (0, 1, 2)
    ):
        attrs = {"mode": mode, "coordinate_transformation_mode": transformation, "sampling_ratio": ratio}
        attrs |= {"output_height": 3, "output_width": 5, "spatial_scale": 0.75}
        cases.append(_roi_align(floats(2, 3, 16, 20), _regions(7, 20), **attrs))
    cases.append(_roi_align(floats(1, 2, 1, 1), _regions(3, 2), output_height=2, output_width=2))
    cases.append(_roi_align(floats(1, 2, 8, 8), _regions(0, 8), output_height=2, output_width=2))
    cases.append(_roi_align(floats(1, 2, 8, 8), np.array([[6, 6, 2, 2]], np.float32)))  # ends before it begins
    wide = np.array([[-100, 0, 3000, 9]], np.float32)  # more positions than are tabulated
    cases += [_roi_align(floats(1, 2, 8, 9), wide, output_height=2, output_width=2, mode=m) for m in ("avg", "max")]
    cases.append(_roi_align(floats(2, 3, 9, 9).astype(np.float64), _regions(4, 9).astype(np.float64), output_width=2))
    check(cases)


def test_roi_align_of_free_sizes() -> None:
    names = {"x": ("N", 3, "H", "W"), "rois": ("R", 4), "images": ("R",)}
    cases = [
        _roi_align(floats(2, 3, *s), _regions(r, 8), output_width=2) for *s, r in ((5, 7, 4), (1, 9, 1), (4, 4, 0))
    ]
    for case in cases:
        case.symbolic, case.types = names, {"y": TensorType(DType.F32, (symbol("R"), 3, 1, 2))}
    check(cases)
