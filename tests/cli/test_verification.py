"""Comparison with the original on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import parser

from .command import rewrite


def test_an_operator_that_quantizes_by_thread_has_the_margin_of_bytes(tmp_path: Path) -> None:
    """ONNX Runtime's results of it differ by the number of threads: the original runs on all cores."""
    draw = np.random.default_rng(0)
    arrays = {
        "W": draw.integers(0, 255, (1, 8, 64)).astype(np.uint8),
        "R": draw.integers(0, 255, (1, 16, 64)).astype(np.uint8),
        "B": draw.normal(size=(1, 128)).astype(np.float32),
        "s": np.array([0.01], np.float32),
        "z": np.array([128], np.uint8),
    }
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
      g (float[5,2,8] x) => (float[d,1,2,16] y) {
        y = com.microsoft.DynamicQuantizeLSTM<hidden_size=16>(x, W, R, B, , , , , s, z, s, z) }"""
    model = parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(model, tmp_path / "m.onnx")
    done = rewrite("m.onnx", "--threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "verified against onnxruntime" in done.stdout
    assert "no native kernel" not in done.stderr
