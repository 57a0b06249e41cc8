"""Models of 16-bit floats on the command line: they are verified, run natively, and keep their types."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from .command import rewrite


def model(kind: int) -> onnx.ModelProto:
    """A normalized product and its largest elements, in one float type."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weights = np.random.default_rng(0).standard_normal((32, 32)).astype(dtype)
    gain = np.ones(32, dtype)
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["p"]),
        helper.make_node("LayerNormalization", ["p", "gain"], ["n"]),
        helper.make_node("Softmax", ["n"], ["y"]),
    ]
    constants = [
        helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)
        for name, array in (("W", weights), ("gain", gain))
    ]
    x, y = (helper.make_tensor_value_info(name, kind, ["N", 32]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_model_of_16_bit_floats(kind: int, tmp_path: Path) -> None:
    onnx.save_model(model(kind), tmp_path / "m.onnx")
    done = rewrite("m.onnx", "--json", "r.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reference implementation" not in done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["fallbacks"] == {}
    assert report["verify"]["ok"]
    written = onnx.load(tmp_path / "m.opt.onnx").graph
    assert {v.type.tensor_type.elem_type for v in (*written.input, *written.output)} == {kind}
    assert {t.data_type for t in written.initializer} <= {kind, TensorProto.INT64}
    if kind == TensorProto.FLOAT16:  # .npy has no bf16
        np.save(tmp_path / "x.npy", np.ones((3, 32), np.float16))
        run = rewrite("run", "m.rewrite", "--input", "x=x.npy", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert "float16" in run.stdout


def test_stages_name_the_promotion(tmp_path: Path) -> None:
    onnx.save_model(model(TensorProto.FLOAT16), tmp_path / "m.onnx")
    done = rewrite("explain", "m.onnx", "--stages", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "promote" in done.stdout
