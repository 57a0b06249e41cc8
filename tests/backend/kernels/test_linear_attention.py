"""LinearAttention against the reference: update rules, shared heads, widths of decay and rate, states, free sizes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from onnx.reference import ReferenceEvaluator
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(47)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) / 2, np.float32)


def attention(
    rule: str, batch: int, tokens: int, heads: tuple[int, int], sizes: tuple[int, int], *, past: bool = False,
    per_key: bool = False, shared_rate: bool = False, **attrs: Any,
) -> Case:  # fmt: skip
    (q_heads, kv_heads), (d_k, d_v) = heads, sizes
    inputs = {
        "q": floats(batch, tokens, q_heads * d_k),
        "k": floats(batch, tokens, kv_heads * d_k),
        "v": floats(batch, tokens, kv_heads * d_v),
    }
    names = ["q", "k", "v", "", "", ""]
    if past:
        names[3], inputs["s"] = "s", floats(batch, kv_heads, d_k, d_v)
    if "gated" in rule:
        names[4], inputs["g"] = "g", -np.abs(floats(batch, tokens, kv_heads * (d_k if per_key else 1)))
    if "delta" in rule:
        names[5], inputs["r"] = "r", np.abs(floats(batch, tokens, 1 if shared_rate else kv_heads))
    given = {"update_rule": rule, "q_num_heads": q_heads, "kv_num_heads": kv_heads, **attrs}
    node = Node("LinearAttention", tuple(names), ("y", "t"), given)
    case = Case([node], inputs, reference=True, rtol=1e-4, atol=1e-5)
    case.expected = dict(zip("yt", by_reference(node, inputs), strict=True))
    return case


def by_reference(node: Node, inputs: dict[str, Array]) -> list[Array]:
    ports = [onnx.helper.make_tensor_value_info(k, 1, v.shape) for k, v in inputs.items()]
    made = onnx.helper.make_node("LinearAttention", list(node.inputs), ["y", "t"], **node.attrs)
    outputs = [onnx.helper.make_tensor_value_info(name, 1, None) for name in "yt"]
    graph = onnx.helper.make_graph([made], "g", ports, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 27)])
    return list(ReferenceEvaluator(model).run(None, inputs))


def test_update_rules() -> None:
    cases = []
    for rule, past in itertools.product(("linear", "gated", "delta", "gated_delta"), (False, True)):
        cases.append(attention(rule, 2, 5, (4, 2), (6, 10), past=past, per_key=past, shared_rate=past))
        cases.append(attention(rule, 1, 3, (2, 2), (16, 16), past=past, scale=0.5))
    cases.append(attention("gated_delta", 2, 1, (3, 1), (1, 1)))
    cases.append(attention("gated_delta", 2, 0, (2, 1), (4, 3), past=True))
    check(cases)


def test_free_sizes() -> None:
    cases = []
    for batch, tokens in ((2, 4), (1, 1), (3, 9)):
        case = attention("gated_delta", batch, tokens, (4, 2), (8, 8), past=True)
        b, t = symbol("B"), symbol("T")
        case.symbolic = {
            **{name: ("B", "T", case.inputs[name].shape[2]) for name in "qkvgr"}, "s": ("B", 2, 8, 8),
        }  # fmt: skip
        case.types = {"y": TensorType(DType.F32, (b, t, 32)), "t": TensorType(DType.F32, (b, 2, 8, 8))}
        cases.append(case)
    check(cases)


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_a_model_without_a_state(dtype: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 27]>
        g ({dtype}[2, T, 8] q, {dtype}[2, T, 8] k, {dtype}[2, T, 6] v) => ({dtype}[2, T, 6] y) {{
            y, state = LinearAttention<update_rule = "linear", q_num_heads = 2, kv_num_heads = 2>(q, k, v)
        }}"""
    proto = onnx.parser.parse_model(text)
    kind = np.float32 if dtype == "float" else np.float16
    feeds = {name: floats(2, 5, width).astype(kind) for name, width in (("q", 8), ("k", 8), ("v", 6))}
    program = rewrite.compile(proto, threads=1)
    assert program.fallbacks() == {}
    found, (wanted,) = program.run(feeds)["y"], ReferenceEvaluator(proto).run(None, feeds)
    assert found.dtype == kind
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if kind == np.float32 else 3e-3, atol=1e-3)
