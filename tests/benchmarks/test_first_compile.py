"""The measurement of a first compile: an empty cache, its parts, and the same process with the cache that it left."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite.benchmarks import first_compile


def test_a_first_compile_has_parts(tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 8]) for name in "xy")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["t"]), onnx.helper.make_node("Relu", ["t"], ["y"])]
    weights = [onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")]
    model = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], weights)), model)
    cache = str(tmp_path / "cache")
    first, again = (first_compile.run("rewrite", model, cache) for _ in range(2))
    assert first is not None
    assert again is not None
    assert sum(first["parts"].values()) == pytest.approx(first["seconds"])
    assert {"start", "saturate", "plan", "compile"} <= first["parts"].keys()
    assert first["kernels"] == again["kernels"] > 0
    assert again["parts"].keys() == {"start"}
    assert first_compile.run("onnxruntime", tmp_path / "missing.onnx", cache) is None


def test_what_is_measured_may_keep_its_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}

    def run(*_: Any, env: dict[str, str], **__: Any) -> subprocess.CompletedProcess[str]:
        found.update(env)
        return subprocess.CompletedProcess([], 0, "{}\n", "")

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(subprocess, "run", run)
    assert first_compile.run("rewrite", Path("model.onnx"), "cache") == {}
    assert found["REWRITE_CACHE_DIR"] == "cache"
    assert "PYTHONDONTWRITEBYTECODE" not in found
