"""Single nodes through the ONNX backend interface."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from rewrite.backend.sessions import onnx_backend

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def test_run_node_takes_lists_and_mappings() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    [y] = onnx_backend.run_node(node, [X])
    np.testing.assert_allclose(y.sum(1), [1, 1], rtol=1e-6)
    [again] = onnx_backend.run_node(node, {"x": X})
    np.testing.assert_array_equal(again, y)


def test_run_node_with_absent_inputs_and_several_outputs() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    [y] = onnx_backend.run_node(node, [X, np.array(0.5, np.float32)])
    np.testing.assert_array_equal(y, np.minimum(X, np.float32(0.5)))
    node = helper.make_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2)
    a, b = onnx_backend.run_node(node, [X])
    np.testing.assert_array_equal(np.concatenate([a, b]), X)


def test_run_node_at_an_older_opset() -> None:
    node = helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)
    [y] = onnx_backend.run_node(node, [X], opset_version=11)
    np.testing.assert_allclose(y, X.sum(1), rtol=1e-6)


def test_run_node_with_the_wrong_number_of_arrays() -> None:
    with pytest.raises(ValueError, match="zip"):
        onnx_backend.run_node(helper.make_node("Add", ["x", "z"], ["y"]), [X])
