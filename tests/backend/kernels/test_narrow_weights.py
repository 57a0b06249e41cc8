"""Products of few rows read weights that are exact in 16 bits in 16 bits; results are those of the weights in f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
import rewrite
from numpy.typing import NDArray
from rewrite.backend.ir.target import make_target

ROWS, K, N = 3, 1500, 1203  # weights outgrow the second-level cache


def _product(
    weights: NDArray[np.float32], rows: int, target: str
) -> tuple[NDArray[np.float32], NDArray[np.float32], str]:
    """Return the operand, the product, and the type of the weights in memory."""
    graph = f"g (float[{rows},{K}] x) => (float[{rows},{N}] y) {{ y = MatMul(x, w) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 21]> {graph}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    program = rewrite.compile(model, target=target, threads=1)
    [kernel] = program.plan.kernels
    x = np.random.default_rng(1).standard_normal((rows, K)).astype(np.float32)
    return x, program.run({"x": x})["y"], kernel.params["tiles"].get("stored", "real")


@pytest.mark.parametrize("target", ["native", "portable"])
@pytest.mark.parametrize(("dtype", "name"), [(np.float16, "v_f16"), (ml_dtypes.bfloat16, "v_bf16")])
def test_weights_of_16_bits(dtype: type, name: str, target: str) -> None:
    w = np.random.default_rng(2).standard_normal((K, N)).astype(dtype).astype(np.float32)
    w[5, 7], w[6, 8] = np.inf, dtype(1e-7)
    x, found, stored = _product(w, ROWS, target)
    narrow = name == "v_bf16" or make_target(target).isa != "portable"  # which has no instruction that widens f16
    assert stored == (name if narrow else "real")
    w[5, 7] = 0
    expected = x.astype(np.float64) @ w
    assert np.isinf(found[:, 7]).all()
    np.testing.assert_allclose(np.delete(found, 7, 1), np.delete(expected, 7, 1), rtol=1e-4, atol=1e-4)


def test_other_weights_stay_in_32_bits() -> None:
    w = np.random.default_rng(3).standard_normal((K, N)).astype(np.float16).astype(np.float32)
    w[-1, -1] = 0.1
    assert _product(w, ROWS, "native")[2] == "real"


def test_many_rows_read_weights_in_32_bits() -> None:
    w = np.random.default_rng(4).standard_normal((K, N)).astype(np.float16).astype(np.float32)
    assert _product(w, 64, "native")[2] == "real"
