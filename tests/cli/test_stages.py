"""`rewrite explain MODEL --stages`: a summary of the value after each stage."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

from .command import rewrite

MODEL = '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y) { t = Relu(x) y = Relu(t) }'


def test_each_stage_is_shown(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    done = rewrite("explain", "m.onnx", "--stages", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    names = [line.partition("  ")[0] for line in lines if not line.startswith(" ")]
    needed = ["read", "encode", "saturate", "extract portable", "extract native", "decode", "export"]
    assert [name for name in dict.fromkeys(names) if name in needed] == needed
    assert lines[0].split() == ["read", "2", "nodes,", "0", "constants,", "x", "→", "y"]
    assert "rules applied: " in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]
