"""Shares of single layers: of the limit that takes longer, measured on buffers of the layer's sizes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.benchmarks import harness, kernels, layers
from rewrite.engine.cost import machine


@pytest.mark.parametrize(
    ("kernel", "of", "expected"),
    [("gemm", "peak", 0.88), ("winograd_nhwc", "peak", 1.8), ("gemm", "28 GB/s", 0.8), ("winograd", "30 GB/s", 0.8)],
)
def test_mark(kernel: str, of: str, expected: float) -> None:
    assert layers.mark({"kernels": kernel, "of": of}) == expected


def test_limits_of_a_layer(tmp_path: Path) -> None:
    """The traffic of a run leaves its arrays alone, and a share is one of the peak or of a bandwidth."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    profile = machine.default()
    limits = layers.Limits.compiled(profile.lanes, tmp_path)
    assert limits.peak() > 0
    layer = kernels.add(1, 4, 8, 8)
    program = compile_graph(harness.make_graph(layer.nodes, layer.inputs, outputs=["y"]), threads=1)
    before = {name: array.copy() for name, array in layer.inputs.items()}
    assert limits.traffic(program.record(layer.inputs))() >= 0
    assert all((layer.inputs[name] == array).all() for name, array in before.items())
    record = layers.measure(layer, profile, limits, 0.001)
    assert record["share"] > 0
    assert record["of"] == "peak" or record["of"].endswith(" GB/s")
