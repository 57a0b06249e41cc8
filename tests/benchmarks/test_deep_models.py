"""Models of many nodes: valid, and of the size that was asked for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from rewrite.benchmarks.deep_models import KINDS


@pytest.mark.parametrize("name", KINDS)
def test_models_are_valid_and_of_the_size_asked_for(name: str) -> None:
    model = KINDS[name](120)
    onnx.checker.check_model(model, full_check=True)
    assert 110 <= len(model.graph.node) <= 121
    shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    [found] = ReferenceEvaluator(model).run(None, {"x": np.ones(shape, np.float32)})
    assert np.isfinite(found).all()
