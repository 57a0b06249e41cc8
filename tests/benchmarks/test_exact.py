"""The evaluator in f64 that results are compared with, against ONNX's own on small graphs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

pytest.importorskip("torch")

from rewrite.benchmarks import exact

RNG = np.random.default_rng(1)


def model(op: str, *shapes: tuple[int, ...], opset: int = 20, **attributes: object) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, names, ["y"], **attributes)
    infos = [helper.make_tensor_value_info(n, exact.FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", exact.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("Conv", ((2, 4, 7, 9), (6, 2, 3, 2), (6,)), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ("Conv", ((1, 2, 8, 8), (3, 2, 3, 3)), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
        ("Conv", ((1, 2, 8, 7), (3, 2, 2, 2)), {"auto_pad": "SAME_LOWER"}),
        ("Conv", ((1, 2, 11), (3, 2, 3)), {"dilations": [2], "pads": [2, 1]}),
        ("MaxPool", ((1, 2, 9, 8),), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
        ("MaxPool", ((1, 2, 8, 8),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", ((1, 2, 9, 8),), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
        (
            "AveragePool", ((1, 2, 9, 9),),
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        ),
        ("AveragePool", ((1, 1, 8, 8),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("Erf", ((3, 5),), {}),
        ("Gelu", ((3, 5),), {}),
        ("Gelu", ((3, 5),), {"approximate": "tanh"}),
    ],
)  # fmt: skip
def test_the_faster_operators_are_those_of_the_reference(
    op: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, object]
) -> None:
    made = model(op, *shapes, **attributes)
    feeds = {f"x{i}": RNG.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}
    [expected] = ReferenceEvaluator(made).run(None, feeds)
    [found] = exact.evaluate(made, feeds)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_numbers_types_and_casts_become_double() -> None:
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {0.1, 0.2}> {"
        " k = Constant <value: tensor = float[1] {0.3}> ()"
        " i = Cast <to = 7> (x) f = Cast <to = 1> (i)"
        " s = Add(f, w)"
        " y = If (c) <then_branch: graph = t () => (float[2] a) { a = Mul(s, k) },"
        "             else_branch: graph = e () => (float[2] b) { b = Div(s, k) }> }"
    )
    for taken in (True, False):
        [found] = exact.evaluate(made, {"x": np.array([1.5, 2.5], np.float32), "c": np.array(taken)})
        assert found.dtype == np.float64
        k, w = np.float64(np.float32(0.3)), np.array([0.1, 0.2], np.float32).astype(np.float64)
        s = np.array([1.0, 2.0]) + w
        np.testing.assert_array_equal(found, s * k if taken else s / k)


def test_errors_are_relative_to_the_largest_value() -> None:
    assert exact.error([np.array([1.0, 4.0])], [np.array([1.0, 4.0])]) == 0
    assert exact.error([np.array([1.0, 4.5])], [np.array([1.0, 4.0])]) == 0.125
    assert exact.error([np.array([1.0, np.nan])], [np.array([1.0, 4.0])]) == float("inf")
    assert exact.error([np.array([1.0, np.nan])], [np.array([1.0, np.nan])]) == 0
