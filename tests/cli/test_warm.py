"""`rewrite warm`: the cache is filled before a deployment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from rewrite import ort

from .command import rewrite

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, 8] y) { s = Exp(x) y = Softmax(s) }'


def test_a_session_starts_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    onnx.save(parser.parse_model(TEXT), tmp_path / "m.onnx")
    done = rewrite("warm", "m.onnx", "--threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "m.onnx: compiled in" in done.stdout + done.stderr
    again = rewrite("warm", "m.onnx", "--threads", "1", cwd=tmp_path)
    assert "m.onnx: already cached" in again.stdout + again.stderr
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    assert ort.InferenceSession(tmp_path / "m.onnx", options).program is not None
    options.add_free_dimension_override_by_name("N", 3)
    session = ort.InferenceSession(tmp_path / "m.onnx", options)
    assert session.program is None  # it is another program
    assert session.run(None, {"x": np.zeros((3, 8), np.float32)})[0].shape == (3, 8)
    assert rewrite("warm", "m.onnx", "--threads", "1", "--shape", "N=3", cwd=tmp_path).returncode == 0
    assert ort.InferenceSession(tmp_path / "m.onnx", options).program is not None


def test_what_cannot_be_cached_is_reported(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) <float[4] k = {1, 2, 3, 4}>
        { y = Mul(x, k) }"""
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "k"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=1)
    done = rewrite("warm", "m.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be cached" in done.stderr
    assert rewrite("warm", "none.onnx", cwd=tmp_path).returncode == 2
