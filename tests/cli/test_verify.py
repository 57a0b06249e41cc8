"""`rewrite explain --trail` and `rewrite verify` as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from .command import rewrite


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model, its optimized form, and the trail."""
    folder = tmp_path_factory.mktemp("trail")
    weights = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32)
    vectors = {name: np.full(4, value, np.float32) for name, value in zip("sbmv", (1.5, 0.5, 0.1, 2.0), strict=True)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "W"], ["conv"], "Conv_0", kernel_shape=[3, 3]),
            helper.make_node("BatchNormalization", ["conv", *"sbmv"], ["bn"], "Norm_0"),
            helper.make_node("Relu", ["bn"], ["y"], "Relu_0"),
        ],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in {"W": weights, **vectors}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    assert rewrite("model.onnx", "--emit", "onnx", "-q", cwd=folder).returncode == 0
    done = rewrite("explain", "model.onnx", "--trail", "-o", "trail.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "1 step written to trail.json" in done.stdout
    return folder


def test_a_trail_is_shown(files: Path) -> None:
    done = rewrite("explain", "model.onnx", "--trail", "--node", "Relu_0", cwd=files)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("1. conv_bn  (conv.rules:")
    assert any("BatchNormalization(conv, s, b, m, v)" in line for line in rest)


def test_a_trail_holds(files: Path) -> None:
    done = rewrite("verify", "model.onnx", "model.opt.onnx", "--trail", "trail.json", cwd=files)
    assert done.returncode == 0, done.stderr
    assert "trail: 1 step repeated, each holds" in done.stdout
    assert "verified against" in done.stdout


def test_a_trail_that_was_changed_is_refused(files: Path) -> None:
    data = json.loads((files / "trail.json").read_text())
    step = next(step for step in data["graphs"][0]["stages"][0]["steps"] if "rule" in step)
    step["bindings"]["gamma"] = step["bindings"]["beta"]
    (files / "changed.json").write_text(json.dumps(data))
    done = rewrite("verify", "model.onnx", "model.opt.onnx", "--trail", "changed.json", "--no-run", cwd=files)
    assert done.returncode == 1
    assert "the trail does not hold, step" in done.stderr
    assert "gamma stands for something else" in done.stderr


def test_models_that_differ_are_refused(files: Path) -> None:
    model = onnx.load(files / "model.opt.onnx")
    weights = next(i for i in model.graph.initializer if len(i.dims) == 4)
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(1.01), weights.name))
    onnx.save(model, files / "wrong.onnx")
    done = rewrite("verify", "model.onnx", "wrong.onnx", cwd=files)
    assert done.returncode == 1
    assert "verification failed" in done.stderr
    done = rewrite("verify", "model.onnx", "wrong.onnx", "--trail", "trail.json", "--no-run", cwd=files)
    assert done.returncode == 1
    assert "the trail does not hold, at the end" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "model.onnx", "missing.onnx"), "no such file"),
        (("verify", "model.onnx", "model.opt.onnx", "--no-run"), "nothing to check"),
        (("verify", "model.onnx", "model.opt.onnx", "--trail", "missing.json"), "cannot be read"),
        (("verify", "model.onnx", "model.opt.onnx", "--trail", "model.onnx"), "explain MODEL --trail --output FILE"),
        (
            ("verify", "model.onnx", "model.opt.onnx", "--trail", "trail.json", "--numerics", "exact"),
            "of class reassoc",
        ),
        (("verify", "model.onnx", "model.opt.onnx", "--trail", "trail.json", "--shape", "n=2"), "other sizes"),
        (("explain", "model.onnx", "--trail", "--node", "Rel_0"), "Did you mean"),
        (("explain", "model.onnx", "-o", "trail.json"), "--output takes a whole trail"),
    ],
)
def test_what_cannot_be_used_is_named(files: Path, arguments: tuple[str, ...], message: str) -> None:
    done = rewrite(*arguments, cwd=files)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
