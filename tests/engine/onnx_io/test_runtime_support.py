"""Files need no kernel that ONNX Runtime lacks, unless the model already does."""

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
    assert has_kernel("LeakyRelu", [TensorType(DType.F32, (2,))])
    assert not has_kernel("LeakyRelu", [TensorType(DType.F64, (2,))])
    assert has_kernel("Where", [TensorType(DType.BOOL, (2,)), TensorType(DType.F64, (2,))])
    assert not has_kernel("Where", [TensorType(DType.F64, (2,)), TensorType(DType.BOOL, (2,))])
    assert has_kernel("com.acme.Foo", [TensorType(DType.F64, (2,))])
    assert has_kernel("LeakyRelu", [TensorType()])


@pytest.mark.parametrize(("body", "fused"), [(LEAKY, "LeakyRelu"), (HARD, "HardSigmoid")])
def test_an_activation_is_fused_only_where_it_has_a_kernel(body: str, fused: str) -> None:
    assert operators(optimize(model(body, "float")).model) == [fused]
    proto = model(body, "double")
    written = optimize(proto).model
    assert fused not in operators(written)
    x = {"x": np.linspace(-5, 5, 11)}
    np.testing.assert_allclose(run(written, x)[0], run(proto, x)[0])


def test_a_model_that_needs_other_kernels_itself_is_not_bound() -> None:
    proto = model("a = Mul(x, c) b = Max(x, a) y = Softsign(b)", "double")
    assert operators(optimize(proto).model) == ["LeakyRelu", "Softsign"]
