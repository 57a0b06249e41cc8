"""`--precision`: what a run in lower precision reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewrite.engine.cost import machine

from .command import rewrite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 256])],
        [numpy_helper.from_array(weights, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save_model(model, tmp_path / "m.onnx")
    return tmp_path


def test_the_error_is_reported(folder: Path) -> None:
    done = rewrite("m.onnx", "--precision", "bf16", "--json", "r.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    data = json.loads((folder / "r.json").read_text())
    if machine.rates()["bf16"] > 1:
        assert data["precision"] == {"requested": "bf16", "lowered": 1, "in_f32": 0}
        error = data["verify"]["errors"]["program"]["max_rel"]
        assert 1e-6 < error < 2e-2
        assert "1 of 1 products in bf16: the program's largest error is" in done.stdout
        assert f"{error:.2g} scaled" in done.stdout
    else:
        assert "0 of 1 products in bf16: none is predicted to be faster on this machine" in done.stdout
    assert data["verify"]["errors"]["model"]["max_rel"] < 1e-6
    refused = rewrite("run", "m.rewrite", "--precision", "bf16", cwd=folder)
    assert refused.returncode == 2
    assert "the precision of a bundle is fixed when it is compiled" in refused.stderr


def test_bytes(folder: Path) -> None:
    done = rewrite("m.onnx", "--precision", "int8", "--json", "r.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    data = json.loads((folder / "r.json").read_text())
    if machine.rates()["int8"] > 2:
        assert data["precision"] == {"requested": "int8", "lowered": 1, "in_f32": 0}
        assert 1e-4 < data["verify"]["errors"]["program"]["max_rel"] < 5e-2
        assert "1 of 1 products in int8" in done.stdout


def test_other_precisions_are_refused(folder: Path) -> None:
    done = rewrite("m.onnx", "--precision", "f17", cwd=folder)
    assert done.returncode == 2
    assert "'f32', 'bf16', 'int8'" in done.stderr
