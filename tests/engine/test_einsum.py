"""Einsum of one or two operands is a product, transposition or sum, whatever letters name its axes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from rewrite.api import optimize

from .models import run


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ab,bc->ac", [(2, 3), (3, 4)], {"MatMul"}),
        ("zy,yx", [(2, 3), (3, 4)], {"MatMul", "Gemm", "Transpose"}),
        ("ab->ba", [(2, 3)], {"Transpose"}),
        ("pqr->rpq", [(2, 3, 4)], {"Transpose"}),
        ("ba", [(2, 3)], {"Transpose"}),
        ("XY->XY", [(2, 3)], {"Identity"}),
        ("uvw->wu", [(2, 3, 4)], {"ReduceSum", "Transpose"}),
    ],
)
def test_any_letters(equation: str, shapes: list[tuple[int, ...]], expected: set[str]) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in zip(names, shapes, strict=True))
    body = f'y = Einsum<equation = "{equation}">({", ".join(names)})'
    head = '<ir_version: 8, opset_import: ["": 17]>'
    proto = onnx.parser.parse_model(f"{head} g ({inputs}) => (float[A] y) {{ {body} }}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = optimize(proto)
    assert {node.op for node in result.native.nodes} <= expected
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}
    np.testing.assert_allclose(run(result.model, feeds)[0], run(proto, feeds)[0], rtol=1e-5, atol=1e-6)
