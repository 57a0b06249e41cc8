"""Operators without a kernel: in ONNX Runtime where it has them, else in the reference implementation."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import rewrite
from onnx import parser
from onnx.reference import ReferenceEvaluator
from rewrite.backend.runtime.fallback import FallbackWarning, Runner
from rewrite.backend.runtime.program import Program
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.errors import UserError
from rewrite.system import installed_onnxruntime

DET = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 4, 4] x) => (float[N] y) { y = Det(x) }'
DISTANCE = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[N, 4] x) => (float[N, M] y)
{ y = com.microsoft.CDist(x, x) }"""
X = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)


def compiled(text: str) -> Program:
    with pytest.warns(FallbackWarning, match="no native kernel for .* run by"):
        return rewrite.compile(parser.parse_model(text), threads=1)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)


def test_both_implementations_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(FallbackWarning, match="run by ONNX Runtime where it follows the standard"):
        program = rewrite.compile(parser.parse_model(DET), threads=1)
    calls = []
    run = onnxruntime.InferenceSession.run

    def counted(session: object, *arguments: object) -> object:
        calls.append(session)
        return run(session, *arguments)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", counted)
    found = program.run({"x": X})["y"]
    assert len(calls) == 1
    np.testing.assert_allclose(found, np.linalg.det(X), rtol=1e-5)
    without(monkeypatch)
    with pytest.warns(FallbackWarning, match="reference implementation"):
        other = rewrite.compile(parser.parse_model(DET), threads=1)
    np.testing.assert_allclose(other.run({"x": X})["y"], found, rtol=1e-5)
    assert len(calls) == 1


def test_an_operator_that_onnx_runtime_has_at_an_earlier_opset() -> None:
    """That of opset 22 differs in its element types only, and the reference is 150 times slower."""
    types = {
        "x": TensorType(DType.F32, (1, 2, 9, 9)),
        "rois": TensorType(DType.F32, (1, 4)),
        "images": TensorType(DType.I64, (1,)),
    }
    node = Node("RoiAlign", ("x", "rois", "images"), ("y",), {"output_height": 3, "output_width": 3})
    runner = Runner(node, types)
    assert isinstance(runner.evaluator, onnxruntime.InferenceSession)
    x = np.arange(162, dtype=np.float32).reshape(1, 2, 9, 9)
    operands = [x, np.array([[1, 1, 7, 6]], np.float32), np.zeros(1, np.int64)]
    [found] = runner.run(operands)
    [expected] = ReferenceEvaluator(runner._model()).run(None, dict(zip(node.inputs, operands, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_operator_that_only_onnx_runtime_has(monkeypatch: pytest.MonkeyPatch) -> None:
    x = X[0]
    found = compiled(DISTANCE).run({"x": x})["y"]
    np.testing.assert_allclose(found, np.linalg.norm(x[:, None] - x[None], axis=2) ** 2, rtol=1e-4, atol=1e-5)
    without(monkeypatch)
    with pytest.raises(UserError, match=r"(?s)no implementation of operator com\.microsoft\.CDist.*pip install"):
        rewrite.compile(parser.parse_model(DISTANCE), threads=1)


def test_a_type_that_onnx_runtime_lacks() -> None:
    text = DET.replace("float[", "float16[")
    found = compiled(text).run({"x": X.astype(np.float16)})["y"]
    np.testing.assert_allclose(found, np.linalg.det(X), rtol=2e-2, atol=2e-2)
