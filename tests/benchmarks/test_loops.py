"""The models of the benchmark of loops compute what ONNX Runtime does."""

from __future__ import annotations

import pytest
from rewrite.benchmarks.loops import MODELS, compare


@pytest.mark.parametrize("name", MODELS)
def test_models_of_loops_are_right(name: str) -> None:
    """`compare` raises if results differ; how long a single run takes is not asserted."""
    found = compare(*MODELS[name](), runs=1)
    assert found.keys() == {"ours", "onnxruntime", "ratio"}
