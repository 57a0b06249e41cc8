"""Einsum of one or two operands is a product, transposition or sum, whatever letters name its axes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from rewrite.api import compile, optimize

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


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("bi,bj,ij,j->b", [(2, 3), (2, 4), (3, 4), (4,)]),
        ("a,b,c,d,e", [(2,), (3,), (1,), (2,), (3,)]),
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("b...d,de", [(2, 3, 4), (4, 5)]),
        ("ii", [(3, 3)]),
        ("iji,jk->ik", [(3, 2, 3), (2, 4)]),
        ("ij->", [(2, 3)]),
        ("ij,jk->k", [(2, 3), (3, 4)]),
    ],
)
def test_no_einsum_is_left(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    node = onnx.helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in zip(names, shapes, strict=True)]
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    result = optimize(proto)
    assert "Einsum" not in {node.op for node in result.native.nodes}
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}
    expected = np.einsum(equation, *feeds.values())
    np.testing.assert_allclose(run(result.model, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_small_integers_stay() -> None:
    """MatMul has no types for them."""
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.INT8, s) for n, s in (("a", (2, 3)), ("b", (3, 4)))
    ]
    node = onnx.helper.make_node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik")
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")])
    result = optimize(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8))
    assert [node.op for node in result.native.nodes] == ["Einsum"]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhwc,hkc->bhwk", [("b", "h", "w", 4), ("h", 5, 4)]),
        ("nkctv,kvw->nctw", [("n", 3, 4, "t", 5), (3, 5, 6)]),
        ("bij,bkij->bk", [("b", "i", "j"), ("b", "k", "i", "j")]),
    ],
)
def test_sizes_of_a_run(equation: str, shapes: list[tuple[str | int, ...]]) -> None:
    """Several rows or summed labels of any size are one axis of a product."""
    names = [f"x{i}" for i in range(len(shapes))]
    node = onnx.helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in zip(names, shapes, strict=True)]
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    program = compile(proto, threads=1)
    assert not program.fallbacks()
    rng = np.random.default_rng(1)
    for sizes in ({"b": 2, "h": 3, "w": 5, "n": 1, "t": 7, "i": 4, "j": 3, "k": 6}, dict.fromkeys("bhwntijk", 1)):
        arrays = [
            rng.standard_normal([d if isinstance(d, int) else sizes[d] for d in s]).astype(np.float32) for s in shapes
        ]
        found = program.run(dict(zip(names, arrays, strict=True)))["y"]
        np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5)
