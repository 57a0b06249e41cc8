"""Whole models in f16, bf16 and f64: no step runs in the reference implementation, and results lie within rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import rewrite
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from rewrite.backend.ir.kernel_graph import Fallback, ModelPlan, bodies

from .float_models import NETS, NUMPY, Array, converted, mixed

RNG = np.random.default_rng(11)


def references(plan: ModelPlan) -> list[str]:
    """The operators that run in the reference implementation, in bodies too."""
    found = [item.node.op for item in plan.all_items() if isinstance(item, Fallback)]
    return found + [op for item in plan.all_items() for body in bodies(item) for op in references(body)]


def feeds(model: ModelProto) -> dict[str, Array]:
    [x] = model.graph.input
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    dtype = next(d for number, d in NUMPY.values() if number == x.type.tensor_type.elem_type)
    return {x.name: RNG.standard_normal(shape).astype(dtype)}


def expected(model: ModelProto, name: str, inputs: dict[str, Array]) -> dict[str, Array]:
    """What the model means, in f64: ONNX Runtime where it has the kernels, else the reference implementation."""
    exact = converted(model, "f64", name)
    wide = {k: v.astype(np.float64) for k, v in inputs.items()}
    found = ReferenceEvaluator(exact).run(None, wide)
    return dict(zip((o.name for o in exact.graph.output), found, strict=True))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("net", NETS)
def test_halves(net: str, name: str) -> None:
    model = converted(NETS[net](), name)
    program = rewrite.compile(model)
    assert references(program.plan) == []
    inputs = feeds(model)
    found = program.run(inputs)
    step = float(ml_dtypes.finfo(NUMPY[name][1]).eps)
    for output, value in expected(model, name, inputs).items():
        assert found[output].dtype == NUMPY[name][1]
        error = np.abs(found[output].astype(np.float64) - value).max()
        allowed = 2 * step * np.abs(value).max()
        assert error < (0.126 if net == "quantized" else allowed), output  # a value may become its neighbor, 1/8 away


@pytest.mark.parametrize("net", ["convolutional", "control"])
def test_halves_rounded_after_each_operator(net: str) -> None:
    model = converted(NETS[net](), "f16")
    program = rewrite.compile(model, numerics="exact")
    assert references(program.plan) == []
    inputs = feeds(model)
    found = program.run(inputs)
    for output, value in expected(model, "f16", inputs).items():
        assert np.abs(found[output].astype(np.float64) - value).max() < 8e-3 * np.abs(value).max()


def test_islands_of_another_type() -> None:
    model = mixed()
    program = rewrite.compile(model)
    assert references(program.plan) == []
    inputs = feeds(model)
    for output, value in expected(model, "f16", inputs).items():
        assert np.abs(program.run(inputs)[output].astype(np.float64) - value).max() < 1e-3 * np.abs(value).max()
