"""Operators that carry graphs and are imported as others: Scan of opset 8, which has a batch, and FlexAttention."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from numpy.typing import NDArray
from onnx import parser
from onnx.reference import ReferenceEvaluator
from rewrite.engine.onnx_io import exporter, importer
from rewrite.engine.operators.reference_runtime import onnx_runtime

RNG = np.random.default_rng(7)
BODY = """body (float[2] s, float[2] a, float[2] b) => (float[2] t, float[2] y) {
    p = Mul(s, w) q = Sub(a, b) t = Add(p, q) y = Neg(t) }"""
FLEX = """<ir_version: 13, opset_import: ["": 26, "ai.onnx.preview": 1]>
    g (float[2, 4, L, 8] q, float[2, 2, S, 8] k, float[2, 2, S, 8] v, float c) => (float[2, 4, L, 8] y) {
    y = ai.onnx.preview.FlexAttention<
        score_mod = soft_cap (float[B, H, M, N] x) => (float[B, H, M, N] z) { d = Div(x, c) t = Tanh(d) z = Mul(t, c) },
        prob_mod = half (float[B, H, M, N] x) => (float[B, H, M, N] z) <float f = {0.5}> { z = Mul(x, f) }
    >(q, k, v) }"""


def floats(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("directions", ["", "directions = [0, 1], "])
@pytest.mark.parametrize("batch", [1, 3])
def test_scan_over_a_batch(directions: str, batch: int) -> None:
    text = f"""<ir_version: 3, opset_import: ["": 8]>
        g (float[B, 2] i, float[B, N, 2] x, float[B, N, 2] z, float[2] w) => (float[B, 2] f, float[B, N, 2] y) {{
        f, y = Scan<{directions}num_scan_inputs = 2, body = {BODY}>("", i, x, z) }}"""
    model = parser.parse_model(text)
    feeds = {"i": floats(batch, 2), "x": floats(batch, 5, 2), "z": floats(batch, 5, 2), "w": floats(2)}
    program = rewrite.compile(model, threads=1)
    assert program.fallbacks() == {}
    found, expected = program.run(feeds), onnx_runtime(model).run(feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_scan_over_a_batch_is_optimized() -> None:
    """The file is written at opset 9: none before can express what it has become."""
    model = parser.parse_model(
        f"""<ir_version: 3, opset_import: ["": 8]>
        g (float[B, 2] i, float[B, N, 2] x, float[2] w) => (float[B, 2] h) {{
        f, y = Scan<num_scan_inputs = 2, body = {BODY}>("", i, x, x) h = Neg(f) }}"""
    )
    written = exporter.write(rewrite.optimize(model).portable)
    assert [o.version for o in written.opset_import if not o.domain] == [9]
    feeds = {"i": floats(3, 2), "x": floats(3, 4, 2), "w": floats(2)}
    expected, found = onnx_runtime(model).run(feeds), onnx_runtime(written).run(feeds)
    np.testing.assert_allclose(found["h"], expected["h"], rtol=1e-5, atol=1e-6)


def test_values_of_a_scan_that_is_made_have_plain_names() -> None:
    model = parser.parse_model(
        f"""<ir_version: 3, opset_import: ["": 8]>
        g (float[B, 2] i, float[B, N, 2] x, float[2] w) => (float[B, 2] h) {{
        f, y = Scan<num_scan_inputs = 2, body = {BODY}>("", i, x, x) h = Neg(f) }}"""
    )
    written = exporter.write(importer.read(model))
    (body,) = (a.g for node in written.graph.node for a in node.attribute if a.name == "body")
    names = [name for node in (*written.graph.node, *body.node) for name in (*node.input, *node.output)]
    assert names
    assert all(name.isprintable() for name in names)


def test_attention_with_graphs_of_its_own() -> None:
    model = parser.parse_model(FLEX)
    program = rewrite.compile(model, threads=1)
    assert program.fallbacks() == {}
    feeds = {"q": floats(2, 4, 5, 8), "k": floats(2, 2, 7, 8), "v": floats(2, 2, 7, 8), "c": np.float32(1.5)}
    (expected,) = ReferenceEvaluator(inlined(model)).run(None, feeds)
    np.testing.assert_allclose(program.run(feeds)["y"], expected, rtol=1e-5, atol=1e-6)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with FlexAttention replaced by the function that defines it."""
    from onnx import inliner

    return inliner.inline_selected_functions(
        model, [("ai.onnx.preview", "FlexAttention")], inline_schema_functions=True
    )
