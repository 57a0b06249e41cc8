"""What `rewrite.compile` and `rewrite.optimize` take as a model."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper, numpy_helper
from rewrite.errors import UserError
from rewrite.frontends.sources import as_source

WEIGHT = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096


def model() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
        "g", [x], [y], [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.ones(64, "f"), "b")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def runs(source: Any, **options: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    program = rewrite.compile(source, threads=1, **options)
    np.testing.assert_allclose(program.run({"x": x})["y"], x @ WEIGHT + 1, rtol=1e-4, atol=1e-5)


def test_paths_bytes_and_protos(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), model()):
        runs(source)
    assert isinstance(as_source(str(path)), Path)


def test_onnx_ir() -> None:
    ir = pytest.importorskip("onnx_ir", reason="onnx_ir is not installed; `make nightly` runs this test")
    source = ir.serde.deserialize_model(model())
    runs(source)
    assert isinstance(rewrite.optimize(source).model, onnx.ModelProto)
    assert set(as_source(source).tensors) == {"w"}  # `b` is small
    assert source.graph.initializers["w"].const_value.numpy().shape == (64, 64)  # and is not changed


def test_onnx_ir_without_weights() -> None:
    ir = pytest.importorskip("onnx_ir", reason="onnx_ir is not installed; `make nightly` runs this test")
    source = ir.serde.deserialize_model(model())
    source.graph.initializers["w"].const_value = None
    with pytest.raises(UserError, match="initializer 'w' has no contents"):
        as_source(source)


@pytest.mark.parametrize(
    ("source", "hint"),
    [(None, "A model is a path"), (3, "A model is a path"), (lambda x: x, "make the function the `forward`")],
)
def test_what_is_not_a_model(source: Any, hint: str) -> None:
    with pytest.raises(UserError, match="is not a model") as error:
        rewrite.compile(source)
    assert hint in error.value.hint


def test_arguments_of_modules_are_for_modules() -> None:
    with pytest.raises(UserError, match=r"`args`.* are for a torch.nn.Module, not for a str"):
        rewrite.compile("m.onnx", args=())
