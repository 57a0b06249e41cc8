"""GridSample, RoiAlign, MaxRoiPool and DeformConv against the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
from onnx import helper
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol
from rewrite.engine.operators.reference_runtime import onnx_runtime

from .oracle import Array, Case, check

RNG = np.random.default_rng(29)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def _grid_sample(x: Array, grid: Array, **attrs: Any) -> Case:
    node = Node("GridSample", ("x", "grid"), ("y",), attrs)
    return Case([node], {"x": x, "grid": grid}, rtol=1e-4, atol=1e-4, reference=x.ndim == 3)


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
        if (mode, padding) != ("cubic", "border"):  # the reference evaluator differs from ONNX Runtime
            cases.append(_grid_sample(floats(1, 2, 5), _grid(1, 9, 1), **attrs))
        if mode != "cubic":
            cases.append(_grid_sample(floats(2, 3, 3, 5, 4), _grid(2, 4, 2, 3, 3), **attrs))
    cases.append(_grid_sample(floats(2, 0, 5, 7), _grid(2, 4, 6, 2)))
    cases.append(_grid_sample(floats(2, 3, 5, 7), _grid(2, 0, 6, 2)))
    cases.append(_grid_sample(floats(2, 3, 5, 7).astype(np.float64), _grid(2, 4, 6, 2).astype(np.float64)))
    check(cases)


def test_a_border_moves_each_tap_of_a_cubic_sample() -> None:
    x, n = floats(1, 1, 4), np.array([1.3], np.float32)
    position = (n[0] + 1) / 2 * 3  # 3.45: the taps are pixels 2, 3, 3, 3, not 3 alone
    s, a = position - 3, -0.75
    weight = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a
    expected = x[:, :, 2:3] * weight + x[:, :, 3:] * (1 - weight)
    node = Node("GridSample", ("x", "grid"), ("y",), {"mode": "cubic", "padding_mode": "border", "align_corners": 1})
    inputs = {"x": x, "grid": n.reshape(1, 1, 1)}
    check([Case([node], inputs, expected={"y": expected.astype(np.float32)}, rtol=1e-5)])


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


def _max_roi_pool(x: Array, regions: Array, **attrs: Any) -> Case:
    """Return a case with what ONNX Runtime computes at opset 21; later it lacks the operator, as the reference does."""
    ports = [helper.make_tensor_value_info(name, 1, value.shape) for name, value in (("x", x), ("rois", regions))]
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], **attrs)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    case = Case([Node("MaxRoiPool", ("x", "rois"), ("y",), attrs)], {"x": x, "rois": regions})
    if regions[:, 0].min(initial=0) >= 0 and regions[:, 0].max(initial=0) < len(x):
        case.expected = onnx_runtime(model).run({"x": x, "rois": regions})
    return case


def test_max_roi_pool() -> None:
    cases = []
    for scale, pooled in ((1.0, (3, 5)), (0.5, (2, 2)), (0.75, (1, 7))):
        images = RNG.integers(0, 2, (9, 1)).astype(np.float32)
        regions = np.concatenate((images, _regions(9, 20)), 1)
        cases.append(_max_roi_pool(floats(2, 3, 16, 20), regions, pooled_shape=pooled, spatial_scale=scale))
    backward = np.array([[0, 6, 6, 2, 2], [0, -90, -90, 90, 90], [0, 50, 50, 60, 60]], np.float32)
    cases.append(_max_roi_pool(floats(1, 2, 8, 9), backward, pooled_shape=(2, 3)))
    cases.append(_max_roi_pool(floats(1, 2, 8, 9), np.zeros((0, 5), np.float32), pooled_shape=(2, 3)))
    free = _max_roi_pool(floats(2, 3, 7, 5), np.array([[1, 0, 0, 4, 6]], np.float32), pooled_shape=(2, 2))
    free.symbolic = {"x": ("N", 3, "H", "W"), "rois": ("R", 5)}
    free.types = {"y": TensorType(DType.F32, (symbol("R"), 3, 2, 2))}
    check([*cases, free])


def test_regions_of_no_image_and_no_number_read_nothing_outside() -> None:
    x = floats(2, 1, 4, 4)
    regions = np.array([[9, 0, 0, 3, 3], [-4, 0, 0, 3, 3], [np.nan, 0, 0, 3, 3], [0, np.nan, np.inf, -np.inf, 1e30]])
    case = _max_roi_pool(x, regions.astype(np.float32), pooled_shape=(1, 1))
    largest = [x[1].max(), x[0].max(), x[0].max(), 0]
    case.expected = {"y": np.array(largest, np.float32).reshape(4, 1, 1, 1)}
    check([case])


def deformed(
    x: Array, w: Array, offset: Array, bias: Array | None = None, mask: Array | None = None, *, constant: bool = True,
    **attrs: Any,
) -> Case:  # fmt: skip
    """Return a case whose weights are constants or inputs."""
    names = ["x", "w", "o", "" if bias is None else "b", "" if mask is None else "m"]
    inputs, weights = {"x": x, "o": offset}, {"w": w} | ({} if bias is None else {"b": bias})
    if mask is not None:
        inputs["m"] = mask
    node = Node("DeformConv", tuple(names), ("y",), {"kernel_shape": w.shape[2:], **attrs})
    cases = (inputs, weights) if constant else (inputs | weights, {})
    return Case([node], *cases, rtol=1e-4, atol=1e-4, reference=x.dtype == np.float64)


def test_deform_conv() -> None:
    cases = [
        deformed(floats(2, 4, 9, 8), floats(6, 4, 3, 3), floats(2, 18, 7, 6)),
        deformed(floats(1, 4, 9, 8), floats(6, 2, 3, 2), 3 * floats(1, 24, 7, 7), floats(6), group=2, offset_group=2),
    ]
    attrs = {"pads": (1, 2, 1, 2), "strides": (2, 3), "dilations": (2, 1)}
    cases.append(deformed(floats(2, 3, 11, 12), floats(9, 3, 3, 3), 5 * floats(2, 18, 5, 5), floats(9),
                          floats(2, 9, 5, 5), **attrs))  # fmt: skip
    cases.append(deformed(floats(1, 2, 6, 6), floats(3, 2, 1, 1), floats(1, 2, 6, 6), constant=False))
    double = [floats(*s).astype(np.float64) for s in ((1, 2, 5, 6), (3, 2, 2, 2), (1, 8, 4, 5))]
    cases.append(deformed(*double))
    cases.append(deformed(floats(0, 2, 6, 6), floats(3, 2, 1, 1), floats(0, 2, 6, 6)))
    cases[-1].expected = {"y": np.zeros((0, 3, 6, 6), np.float32)}
    check(cases)


def test_deform_conv_far_outside_and_of_infinite_pixels() -> None:
    """What is not sampled is not read: pixels beside one at an edge, and offsets that are no numbers."""
    x = np.array([[[[1, 2], [np.inf, 4]]]], np.float32)
    offset = np.zeros((1, 2, 2, 2), np.float32)
    offset[0, :, 0, 0], offset[0, :, 0, 1] = (-0.5, 0), (np.nan, 0)
    offset[0, :, 1, 0], offset[0, :, 1, 1] = (1e30, -1e30), (0.5, 0.5)
    case = deformed(x, np.ones((1, 1, 1, 1), np.float32), offset)
    case.expected = {"y": np.array([[[[0.5, 0], [0, 1]]]], np.float32)}
    check([case])


def test_deform_conv_of_free_sizes() -> None:
    cases = []
    for n, h, w in ((2, 5, 7), (1, 1, 1), (0, 4, 4)):
        case = deformed(floats(n, 3, h, w), floats(4, 3, 3, 3), floats(n, 18, h, w), pads=(1, 1, 1, 1))
        case.symbolic = {"x": ("N", 3, "H", "W"), "o": ("N", 18, "H", "W")}
        case.types = {"y": TensorType(DType.F32, (symbol("N"), 4, symbol("H"), symbol("W")))}
        if n == 0:
            case.expected = {"y": np.zeros((0, 4, h, w), np.float32)}
        cases.append(case)
    check(cases)
