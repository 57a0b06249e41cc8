"""The models of the benchmark of loops compute what ONNX Runtime does."""

from __future__ import annotations

from rewrite.benchmarks.loops import MODELS, compare


def test_models_of_loops_are_right() -> None:
    for make in MODELS.values():
        found = compare(*make(), runs=1)
        assert found["ours"] > 0
        assert found["ratio"] > 0
