"""The stand-in for ONNX Runtime's session, and single nodes through the ONNX backend interface."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rewrite.backend.sessions import onnx_backend
from rewrite.backend.sessions.inference_session import InferenceSession
from rewrite.errors import UserError

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def model() -> onnx.ModelProto:
    """relu(x + b) and the sum of its rows, for any number of rows."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axes"], ["total"], keepdims=0),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array([1, 0, -1], np.float32), "b"),
        onnx.numpy_helper.from_array(np.array([1]), "axes"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, ["N"]),
        ],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x + np.array([1, 0, -1], np.float32), 0)


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    return InferenceSession(model(), providers=["CPUExecutionProvider"])


def test_it_runs(session: InferenceSession) -> None:
    y, total = session.run(None, {"x": X})
    np.testing.assert_allclose(y, expected(X), rtol=1e-6)
    np.testing.assert_allclose(total, expected(X).sum(1), rtol=1e-6)


def test_outputs_are_given_in_the_order_asked_for(session: InferenceSession) -> None:
    total, y = session.run(["total", "y"], {"x": X})
    assert (total.shape, y.shape) == ((2,), (2, 3))
    [only] = session.run(["total"], {"x": X})
    np.testing.assert_array_equal(only, total)


def test_it_describes_itself(session: InferenceSession) -> None:
    [x] = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 3])
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("y", ["N", 3]), ("total", ["N"])]
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_wrong_names_are_reported(session: InferenceSession) -> None:
    with pytest.raises(UserError, match=r"(?s)no output 'totals'.*Did you mean 'total'"):
        session.run(["totals"], {"x": X})
    with pytest.raises(UserError, match="no input 'z'"):
        session.run(None, {"z": X})


def test_paths_bytes_and_bundles(session: InferenceSession, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(model(), file)
    bundle = session.program.save(tmp_path / "m.rewrite")
    want = session.run(None, {"x": X})
    for source in (file, str(file), file.read_bytes(), bundle):
        for a, b in zip(InferenceSession(source).run(None, {"x": X}), want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        InferenceSession(tmp_path / "none.onnx")


def test_the_number_of_threads_is_taken_from_the_options() -> None:
    assert InferenceSession(model(), SimpleNamespace(intra_op_num_threads=1)).program.threads == 1


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
