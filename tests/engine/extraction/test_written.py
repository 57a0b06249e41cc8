"""Operators that an opset lacks are written by parts that ONNX Runtime recognizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import parser

INITIALIZERS = """<float two = {2.0}, float eps = {0.00001}, float[8] s = {1, 2, 3, 4, 5, 6, 7, 8},
  float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}, float one = {1.0}, float half = {0.5}, float root = {1.4142135},
  double two64 = {2.0}, double eps64 = {0.00001}, double[8] s64 = {1, 2, 3, 4, 5, 6, 7, 8},
  double[8] b64 = {8, 7, 6, 5, 4, 3, 2, 1}>"""
GELU = "d = Div(x, root) e = Erf(d) p = Add(e, one) q = Mul(x, p) y = Mul(q, half)"
LAYER_NORM = """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) p = Pow(d, two) v = ReduceMean<axes=[-1]>(p) e = Add(v, eps)
  q = Sqrt(e) n = Div(d, q) t = Mul(n, s) y = Add(t, b)"""
DOUBLES = """m64 = ReduceMean<axes=[-1]>(u) d64 = Sub(u, m64) p64 = Pow(d64, two64) v64 = ReduceMean<axes=[-1]>(p64)
  e64 = Add(v64, eps64) q64 = Sqrt(e64) n64 = Div(d64, q64) t64 = Mul(n64, s64) w = Add(t64, b64)"""
RMS_NORM = """p = Pow(x, two) v = ReduceMean<axes=[-1]>(p) e = Add(v, eps) q = Sqrt(e) r = Div(one, q) n = Mul(x, r)
  y = Mul(s, n)"""
FORMS = {
    "Gelu": (GELU, 17), "LayerNormalization": (LAYER_NORM, 13), "LayerNormalization, opset 11": (LAYER_NORM, 11),
    "SimplifiedLayerNormalization": (RMS_NORM, 17),
}  # fmt: skip


def model(body: str, opset: int, ports: str = "(float[2,5,8] x) => (float[2,5,8] y)") -> Any:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g {ports} {INITIALIZERS} {{ {body} }}'
    return parser.parse_model(text)


def fused(proto: Any, place: Path) -> list[str]:
    """Return the operators that ONNX Runtime runs after its extended optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(place / "optimized.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


@pytest.mark.parametrize("name", FORMS)
def test_onnx_runtime_fuses_what_is_written(name: str, tmp_path: Path) -> None:
    body, opset = FORMS[name]
    proto = rewrite.optimize(model(body, opset)).model
    assert proto.opset_import[0].version == opset
    assert fused(proto, tmp_path) == [name.partition(",")[0]]
    assert any("write_" in p.value for node in proto.graph.node for p in node.metadata_props)


def test_an_opset_that_has_the_operator_keeps_it() -> None:
    for body, opset, op in ((GELU, 20, "Gelu"), (LAYER_NORM, 17, "LayerNormalization")):
        proto = rewrite.optimize(model(body, opset)).model
        assert [node.op_type for node in proto.graph.node] == [op]


def test_the_report_counts_rules_that_write() -> None:
    [rule] = [rule for rule in rewrite.optimize(model(GELU, 17)).report.rules if rule.name == "write_gelu"]
    assert (rule.matches, rule.applied) == (1, 1)
    assert rule.in_result


def test_a_node_that_no_rule_writes_does_not_hinder_others() -> None:
    """A normalization in f64 keeps its parts, since the rule is for f32."""
    ports = "(float[2,5,8] x, double[2,5,8] u) => (float[2,5,8] y, double[2,5,8] w)"
    proto = rewrite.optimize(model(f"{GELU} {DOUBLES}", 13, ports)).model
    made = Counter(p.value for node in proto.graph.node for p in node.metadata_props if p.key == "rewrite.rules")
    assert any("write_gelu" in rules for rules in made)
    assert proto.opset_import[0].version == 13


def test_the_program_is_the_same() -> None:
    """The native graph has the operators themselves."""
    assert [node.op for node in rewrite.optimize(model(RMS_NORM, 17)).native.nodes] == ["RMSNormalization"]
    assert [node.op for node in rewrite.optimize(model(LAYER_NORM, 13)).native.nodes] == ["LayerNormalization"]


CONVOLUTIONS = """a = Conv(x, v) b = Conv(u, w) p = Relu(a) q = Relu(b) y = Concat<axis=1>(p, q)"""
DYNAMIC = """q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z, wz) f = Cast<to=1>(i) t = Mul(s, ws)
  y = Mul(f, t)"""
CLASSIFIER = """q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) g = GlobalAveragePool(d)
  gq = QuantizeLinear(g, t, z) gd = DequantizeLinear(gq, t, z) f = Flatten(gd) fq = QuantizeLinear(f, t, z)
  fd = DequantizeLinear(fq, t, z) wd = DequantizeLinear(w, s, wz) h = Gemm<transB=1>(fd, wd)
  hq = QuantizeLinear(h, t, z) y = DequantizeLinear(hq, t, z)"""


@pytest.mark.parametrize(
    ("body", "ports", "initializers", "want"),
    [
        pytest.param(
            CONVOLUTIONS, "(float[1,4,20,20] x, float[1,4,20,20] u) => (float[1,n,18,18] y)",
            {"v": np.ones((8, 4, 3, 3), np.float32), "w": np.ones((6, 4, 3, 3), np.float32)},
            {"FusedConv"}, id="an activation stays at its convolution",
        ),
        pytest.param(
            DYNAMIC, "(float[2,8,16] x) => (float[2,8,m] y)",
            {"w": np.ones((16, 32), np.int8), "wz": np.int8(1), "ws": np.float32(0.25)},
            {"DynamicQuantizeMatMul"}, id="a constant is the second factor",
        ),
        pytest.param(
            CLASSIFIER, "(float[1,16,8,8] x) => (float[1,m] y)",
            {"w": np.arange(160, dtype=np.int8).reshape(10, 16), "s": np.float32(0.25), "t": np.float32(0.125),
             "z": np.uint8(3), "wz": np.int8(0)},
            {"QGemm", "QLinearGlobalAveragePool"}, id="a view is one of bytes",
        ),
    ],
)  # fmt: skip
def test_what_onnx_runtime_fuses_stays_together(
    body: str, ports: str, initializers: dict[str, Any], want: set[str], tmp_path: Path
) -> None:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {ports} {{ {body} }}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    before = fused(proto, tmp_path)
    after = fused(rewrite.optimize(proto).model, tmp_path)
    assert want <= set(before)
    assert want <= set(after)
    assert len(after) <= len(before)
