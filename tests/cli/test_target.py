"""`rewrite MODEL --target NAME`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.system.hardware import architecture

from .command import rewrite

MODEL = '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y) { t = Relu(x) y = Relu(t) }'


@pytest.mark.skipif(architecture() != "x86_64" or not runs_here(make_target("avx2")), reason="limits a CPU to less")
def test_a_bundle_for_a_better_cpu(tmp_path: Path) -> None:
    """The verdict says which kernels were verified."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    limited = {"REWRITE_MAX_ISA": "portable"}
    done = rewrite("m.onnx", "--target", "avx2", cwd=tmp_path, env=limited)
    assert done.returncode == 0, done.stderr
    assert "with kernels for this CPU in the place of those for avx2" in done.stdout
    variants = json.loads((tmp_path / "m.rewrite" / "manifest.json").read_text())["variants"]
    assert [variant["target"]["isa"] for variant in variants] == ["avx2"]
    refused = rewrite("run", "m.rewrite", cwd=tmp_path, env=limited)
    assert refused.returncode == 2
    assert "this CPU (portable) cannot run the bundle's kernels, which are for avx2" in refused.stderr
    assert load(tmp_path / "m.rewrite").run({"x": np.ones((2, 4), np.float32)})["y"].shape == (2, 4)


def test_an_unknown_target(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    done = rewrite("m.onnx", "--target", "avx9", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown target 'avx9'" in done.stderr
    assert "neon" in done.stderr
