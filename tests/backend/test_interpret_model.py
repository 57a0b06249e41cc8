"""Programs that NumPy runs, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser
from rewrite.backend.interpret_model import interpret_model
from rewrite.engine.options import Options
from rewrite.errors import UserError
from rewrite.system import installed_onnxruntime

R = np.random.default_rng(0)
HEAD = '<ir_version: 8, opset_import: ["": 18]>'

CONV = f"""{HEAD} agraph (float[N, 8, H, W] x, float[12, 8, 3, 3] w, float[12] b, float[12, 1, 3, 3] v,
    float[6, 4, 1, 1] u) => (float y) {{
    c = Conv<pads: ints = [1, 1, 1, 1], strides: ints = [2, 2]>(x, w, b)
    r = Relu(c)
    d = Conv<group: int = 12, pads: ints = [2, 2, 2, 2], dilations: ints = [2, 2]>(r, v)
    m = MaxPool<kernel_shape: ints = [3, 3], strides: ints = [2, 2], pads: ints = [1, 1, 1, 1]>(d)
    g = Conv<group: int = 3>(m, u)
    a = AveragePool<kernel_shape: ints = [2, 2]>(g)
    p = GlobalAveragePool(a)
    y = Flatten(p)
}}"""
LAYERS = f"""{HEAD} agraph (float[N, 6, 8] x, float[8, 8] w, float[8] s) => (float y) {{
    q = MatMul(x, w)
    t = Transpose<perm: ints = [0, 2, 1]>(x)
    k = MatMul(q, t)
    p = Softmax(k)
    v = MatMul(p, x)
    n = LayerNormalization(v, s, s)
    e = Erf(n)
    f = Sigmoid(e)
    g = Shape(f)
    z = Reshape(f, g)
    y = Clip(z)
}}"""
LOOP = f"""{HEAD} agraph (float[4] x, int64 n, bool c) => (float y, float z) {{
    t = Constant<value = bool {{1}}>()
    y = Loop(n, t, x) <body = body (int64 i, bool go, float[4] a) => (bool keep, float[4] b) {{
        keep = Identity(go)
        b = Add(a, x)
    }}>
    z = If(c) <then_branch = yes () => (float[4] p) {{ p = Neg(y) }},
               else_branch = no () => (float[4] q) {{ q = Tanh(y) }}>
}}"""


def f(*shape: int) -> Any:
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (
            CONV,
            {"x": f(2, 8, 13, 11), "w": f(12, 8, 3, 3), "b": f(12), "v": f(12, 1, 3, 3), "u": f(6, 4, 1, 1)},
        ),
        (LAYERS, {"x": f(3, 6, 8), "w": f(8, 8), "s": f(8)}),
        (LOOP, {"x": f(4), "n": np.array(3), "c": np.array(True)}),
        (LOOP, {"x": f(4), "n": np.array(0), "c": np.array(False)}),
    ],
    ids=["convolutions", "layers", "loop", "no iterations"],
)
def test_results(text: str, feeds: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = parser.parse_model(text).SerializeToString()
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, dict(feeds))
    monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)
    program = interpret_model(data, Options(), threads=1)
    assert not program.plan.kernels
    for value, expected in zip(program.run(feeds).values(), want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


def test_unknown_operators_are_refused() -> None:
    text = '<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]> agraph (float[4] x) => (float[4] y)'
    data = parser.parse_model(text + " { y = com.microsoft.QuickGelu(x) }").SerializeToString()
    with pytest.raises(UserError, match="QuickGelu"):
        interpret_model(data, Options(), threads=1)
