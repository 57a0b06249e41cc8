"""Files need no kernel that ONNX Runtime lacks, unless the model needs the same one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from rewrite.api import optimize
from rewrite.engine.ir.graph import DType, TensorType
from rewrite.engine.onnx_io.runtime_support import DATA, has_kernel

from ..models import run
from .runtime_kernels import lines

LEAKY = "a = Mul(x, c) y = Max(x, a)"
OPSET = {"": 17}
HARD = "a = Mul(x, c) b = Add(a, c) y = Clip(b, z, o)"


def model(body: str, dtype: str) -> Any:
    constants = ", ".join(f"{dtype} {name} = {{{value}}}" for name, value in (("c", 0.25), ("z", 0.0), ("o", 1.0)))
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({dtype}[N] x) => ({dtype}[N] y) <{constants}> {{ {body} }}'
    return onnx.parser.parse_model(text)


def operators(proto: Any) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def test_the_data_is_that_of_the_installed_version() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    stored = DATA.read_text(encoding="utf-8").splitlines()
    if f"ONNX Runtime {onnxruntime.__version__}:" not in stored[0]:
        pytest.skip("the data is of another version")
    assert stored == list(lines())


def test_types_with_and_without_a_kernel() -> None:
    assert has_kernel("LeakyRelu", [TensorType(DType.F32, (2,))], OPSET)
    assert not has_kernel("LeakyRelu", [TensorType(DType.F64, (2,))], OPSET)
    assert has_kernel("Where", [TensorType(DType.BOOL, (2,)), TensorType(DType.F64, (2,))], OPSET)
    assert not has_kernel("Where", [TensorType(DType.F64, (2,)), TensorType(DType.BOOL, (2,))], OPSET)
    assert has_kernel("com.acme.Foo", [TensorType(DType.F64, (2,))], OPSET)
    assert has_kernel("LeakyRelu", [TensorType()], OPSET)


def test_operators_that_are_newer_than_their_kernels() -> None:
    """ONNX Runtime has no kernel for the DequantizeLinear of opset 28, which mean pooling on bytes is written with."""
    kinds = [TensorType(DType.I8, (2,)), TensorType(DType.F32, ())]
    assert has_kernel("DequantizeLinear", kinds, {"": 27})
    assert not has_kernel("DequantizeLinear", kinds, {"": 28})
    text = """<ir_version: 11, opset_import: ["": 28, "com.microsoft": 1]> g (int8[2,5,N,7] x) => (int8[2,5,1,1] y)
      <float s = {0.05}, int8 z = {22}, float t = {0.04}, int8 u = {-31}> {
      y = com.microsoft.QLinearGlobalAveragePool<channels_last = 0>(x, s, z, t, u) }"""
    proto = onnx.parser.parse_model(text)
    written = optimize(proto).model
    assert operators(written) == ["QLinearGlobalAveragePool"]
    x = {"x": np.random.default_rng(0).integers(-128, 127, (2, 5, 3, 7), np.int8)}
    np.testing.assert_array_equal(run(written, x)[0], run(proto, x)[0])
    proto.opset_import[0].version = 21
    assert "DequantizeLinear" in operators(optimize(proto).model)


@pytest.mark.parametrize(("body", "fused"), [(LEAKY, "LeakyRelu"), (HARD, "HardSigmoid")])
def test_an_activation_is_fused_only_where_it_has_a_kernel(body: str, fused: str) -> None:
    assert operators(optimize(model(body, "float")).model) == [fused]
    proto = model(body, "double")
    written = optimize(proto).model
    assert fused not in operators(written)
    x = {"x": np.linspace(-5, 5, 11)}
    np.testing.assert_allclose(run(written, x)[0], run(proto, x)[0])


def test_rules_make_operators_without_a_kernel_only_where_the_model_has_them_itself() -> None:
    """PRelu of f64 counts as one without a kernel, though ONNX Runtime runs it up to opset 18 by its function."""
    fused = optimize(model("a = Mul(x, c) b = Max(x, a) y = LeakyRelu(b)", "double")).model
    assert operators(fused) == ["LeakyRelu", "LeakyRelu"]
    text = """<ir_version: 8, opset_import: ["": 18]> g (double[2,3,4,5] x, double[3,1,1] s) => (double[2,3,1,1] y)
      <int64[2] axes = {2, 3}> { a = PRelu(x, s) y = ReduceMean<keepdims = 1>(a, axes) }"""
    proto = onnx.parser.parse_model(text)
    written = optimize(proto).model
    assert operators(written) == ["PRelu", "ReduceMean"]
    x = {"x": np.random.default_rng(0).normal(size=(2, 3, 4, 5)), "s": np.full((3, 1, 1), 0.5)}
    np.testing.assert_allclose(run(written, x)[0], run(proto, x)[0])
