"""Operators of older opsets in the reference evaluator, compared with ONNX Runtime; verification without the latter."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from rewrite.engine.onnx_io.importer import read
from rewrite.engine.operators.reference_replacements import replacements
from rewrite.engine.verification.verify import check_model

from ..models import run

R = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return R.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return R.integers(0, 255, shape, np.uint8)


X, SCALES, FOUR = f(2, 3, 4, 4), np.array([1, 1, 2, 3], np.float32), abs(f(4, 3))
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 3, 1, 4]]], np.float32)
Case = tuple[tuple[int, ...], str, dict[str, Any], tuple[Any, ...]]
CASES: list[Case] = [
    *[((7, 11, 12), op, attrs, (X,)) for op in ("Softmax", "LogSoftmax", "Hardmax") for attrs in ({}, {"axis": 2})],
    ((11,), "Softmax", {"axis": -1}, (X,)),
    ((7, 9, 13), "BatchNormalization", {"epsilon": 0.1}, (X, *FOUR)),
    ((10, 12, 17), "DequantizeLinear", {}, (u8(2, 3), np.float32(0.1), np.uint8(7))),
    ((10, 17), "DequantizeLinear", {}, (np.array([-70000, 5], np.int32), np.float32(0.1))),
    ((13, 17), "DequantizeLinear", {"axis": -2}, (u8(2, 3, 4), FOUR[0], u8(3))),
    ((7, 8), "Upsample", {"mode": "linear", "scales": [1.0, 1.0, 2.0, 3.0]}, (X,)),
    ((7, 8), "Upsample", {"scales": [1.0, 1.0, 2.0, 3.0]}, (X,)),
    *[((opset,), op, {"mode": mode}, (X, SCALES)) for opset, op in ((9, "Upsample"), (10, "Resize"))
      for mode in ("nearest", "linear")],
    ((9, 10), "Scatter", {"axis": 1}, (f(3, 3), np.array([[1, 0, 2]]), f(1, 3))),
    ((10, 15), "RoiAlign", {"output_height": 2, "output_width": 2},
     (X, np.array([[0, 0, 3, 3]], np.float32), np.array([0]))),
    ((9, 13), "OneHot", {}, (np.array([0, 2]), np.array([3]), np.array([0, 1], np.float32))),
    ((10, 11), "NonMaxSuppression", {}, (BOXES, np.array([[[0.5, -1, 0.25]]], np.float32), np.array([3]))),
    ((7, 13), "LRN", {"size": 3, "alpha": 0.5}, (f(1, 7, 2, 2),)),
    ((7,), "MaxRoiPool", {"pooled_shape": [2, 3], "spatial_scale": 0.5},
     (X, np.array([[1, 1, 1, 6, 7], [0, 3, 3, 3, 3]], np.float32))),
    ((7, 17), "GlobalLpPool", {"p": 3}, (X,)),
    ((11, 18), "Pad", {}, (X, np.array([1, -1, 3, 0, -1, 2, -4, -2]))),
    ((13,), "Pad", {"mode": "edge"}, (X, np.array([0, 0, -1, 2, 0, 0, 1, -3]))),
    ((18,), "Pad", {}, (X, np.array([-1, 2, 1, -1]), np.float32(7), np.array([-1, 1]))),
    *[((11,), "Unique", {"axis": axis, "sorted": 0}, (np.array([[2, 2, 2, 1], [3, 3, 1, 1]], np.float32),))
      for axis in (0, 1, -1)],
    ((11,), "Unique", {"sorted": 0}, (np.array([[2, 2, 1], [3, 3, 1]], np.float32),)),
]  # fmt: skip


def one(opset: int, op: str, attrs: dict[str, Any], arrays: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    feeds = {f"i{n}": np.asarray(array) for n, array in enumerate(arrays)}
    node = helper.make_node(op, list(feeds), ["y"], **attrs)
    ports = [numpy_helper.from_array(array, name) for name, array in feeds.items()]
    inputs = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in ports]
    kind = onnx.TensorProto.INT64 if op == "NonMaxSuppression" else onnx.TensorProto.FLOAT
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", kind, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6), feeds


@pytest.mark.parametrize(
    ("opset", "op", "attrs", "arrays"),
    [pytest.param(opset, *case, id=f"{case[0]}-{opset}") for opsets, *case in CASES for opset in opsets],
)
def test_old_operators_as_in_onnx_runtime(opset: int, op: str, attrs: dict[str, Any], arrays: tuple[Any, ...]) -> None:
    proto, feeds = one(opset, op, attrs, arrays)
    (found,) = ReferenceEvaluator(proto, new_ops=replacements(opset)).run(None, feeds)
    (expected,) = run(proto, feeds)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attrs", [{}, {"axis": 1}, {"sorted": 0}, {"axis": 1, "sorted": 0}])
def test_places_and_numbers_of_what_is_unique(attrs: dict[str, Any]) -> None:
    proto, feeds = one(11, "Unique", attrs, (np.array([[2, 2, 1, 2], [3, 3, 1, 1]], np.float32),))
    proto.graph.node[0].output.extend("abc")
    proto.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in "abc")
    for found, expected in zip(
        ReferenceEvaluator(proto, new_ops=replacements(11)).run(None, feeds), run(proto, feeds), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_outputs_without_a_name_are_not_wanted() -> None:
    proto, feeds = one(9, "BatchNormalization", {}, (X, *FOUR))
    (expected,) = run(proto, feeds)
    proto.graph.node[0].output.extend(["", ""])
    (found,) = ReferenceEvaluator(proto, new_ops=replacements(9)).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_runtimes_do_otherwise_is_refused() -> None:
    shrinking, feeds = one(10, "Resize", {"mode": "nearest"}, (X, np.array([1, 1, 0.5, 0.5], np.float32)))
    with pytest.raises(NotImplementedError, match="this resizing"):
        ReferenceEvaluator(shrinking, new_ops=replacements(10)).run(None, feeds)
    training, feeds = one(9, "BatchNormalization", {}, (X, *FOUR))
    training.graph.node[0].output.extend(["m", "v"])
    with pytest.raises(NotImplementedError, match="3 outputs of BatchNormalization at opset 9"):
        ReferenceEvaluator(training, new_ops=replacements(9)).run(None, feeds)


@pytest.mark.parametrize(
    ("opset", "text"),
    [
        (13, "q = QuantizeLinear(x, s, z) h = DequantizeLinear(q, s, z) y = Relu(h)"),
        (9, "h = Softmax<axis = 1>(x) y = Mul(h, h)"),
        (11, "y = If(c) <then_branch = t () => (float[2, 3, 4] a) { a = Softmax<axis = 1>(x) },"
             " else_branch = e () => (float[2, 3, 4] b) { b = Neg(x) }>"),
    ],
)  # fmt: skip
def test_old_models_are_verified_without_onnx_runtime(monkeypatch: pytest.MonkeyPatch, opset: int, text: str) -> None:
    inputs = "float[2, 3, 4] x, bool c" if "If" in text else "float[2, 3, 4] x"
    proto = onnx.parser.parse_model(
        f'<ir_version: 6, opset_import: ["" : {opset}]> main ({inputs}) => (float[2, 3, 4] y)'
        f" <float s = {{0.05}}, uint8 z = {{128}}> {{ {text} }}"
    )
    optimized, program = rewrite.optimize(proto).model, rewrite.compile(proto)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = check_model(proto, optimized, read(proto), others={"the program": program.run})
    assert (found.ok, found.compared, found.oracle) == (True, 1, "onnx.reference")
