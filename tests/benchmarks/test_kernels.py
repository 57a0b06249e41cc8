"""Single layers as models: each is what it says, and is measured against f64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")

from rewrite.benchmarks import exact, kernels
from rewrite.engine.cost.machine import Machine


@pytest.mark.parametrize("name", list(kernels.SETS))
def test_every_layer_is_a_valid_model(name: str) -> None:
    layers = kernels.SETS[name]()
    assert len({layer.label for layer in layers}) == len(layers)
    for layer in layers:
        onnx.checker.check_model(kernels.as_model(layer))


def test_a_layer_is_measured() -> None:
    layer = kernels.gemm(5, 16, 24)
    [record] = kernels.measure(layer, [1], 0.05, Machine())
    assert record["layer"] == "gemm 5x16x24"
    assert record["rewrite"] > 0
    assert record["difference"] < 1e-5
    assert record["least_compute"] >= 2 * 5 * 16 * 24 / Machine().flops


def test_attention_is_what_its_name_says() -> None:
    layer = kernels.attention(2, 3, 5, 4)
    q, k, v = (layer.inputs[n].astype(np.float64) for n in ("x", "k", "v"))
    scores = np.exp(q @ k.swapaxes(2, 3) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(exact.evaluate(kernels.as_model(layer), layer.inputs)[0], expected, rtol=1e-9)
