"""The operators of ONNX Runtime's own domain mean what `rules/microsoft.rules` says: against ONNX Runtime itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from rewrite import optimize
from rewrite.engine import pipeline
from rewrite.engine.onnx_io.exporter import write
from rewrite.engine.operators.reference_runtime import onnx_runtime
from rewrite.engine.options import Options
from rewrite.engine.rewriting.definition_expansion import expand_definitions
from rewrite.engine.rewriting.rule_library import load_rules, operators_of

pytest.importorskip("onnxruntime")
X, C = "float[N, 5, 8] x", "float[8] c, float[8] d, float[8] e"

CASES = {
    "gelu": (X, "y = com.microsoft.Gelu(x)"),
    "bias_gelu": (f"{X}, {C}", "y = com.microsoft.BiasGelu(x, c)"),
    "fast_gelu": (X, "y = com.microsoft.FastGelu(x)"),
    "fast_gelu_bias": (f"{X}, {C}", "y = com.microsoft.FastGelu(x, c)"),
    "quick_gelu": (X, "y = com.microsoft.QuickGelu<alpha = 1.5>(x)"),
    "skip_norm": (f"{X}, float[N, 5, 8] z, {C}", "y = com.microsoft.SkipLayerNormalization(x, z, c, d, e)"),
    "skip_norm_plain": (
        f"{X}, float[N, 5, 8] z, {C}",
        "y = com.microsoft.SkipLayerNormalization<epsilon=0.1>(x, z, c)",
    ),
    "skip_norm_sum": (
        f"{X}, float[N, 5, 8] z, {C}",
        "a,,, s = com.microsoft.SkipLayerNormalization(x, z, c, d) y = Mul(a, s)",
    ),
    "skip_rms": (f"{X}, float[N, 5, 8] z, {C}", "y = com.microsoft.SkipSimplifiedLayerNormalization(x, z, c, e)"),
    "matmul": (f"{X}, float[8, 3] w", "y = com.microsoft.FusedMatMul<alpha = 0.5>(x, w)"),
    "matmul_turned": (f"{X}, float[5, 5] w", "y = com.microsoft.FusedMatMul<transA = 1, transB = 1>(x, w)"),
    "transpose_matmul": (f"{X}, float[3, 8] w", "y = com.microsoft.TransposeMatMul<transB = 1, alpha = 2.0>(x, w)"),
    "gemm": ("float[4, 5] x, float[5, 3] w, float[3] b", 'y = com.microsoft.FusedGemm<activation = "Relu">(x, w, b)'),
    "gemm_leaky": (
        "float[5, 4] x, float[3, 5] w, float[3] b",
        """y = com.microsoft.FusedGemm
            <activation="LeakyRelu", activation_alpha=0.3, transA=1, transB=1, beta=0.5>(x, w, b)""",
    ),
    "conv": (
        "float[N, 3, 7, 7] x, float[4, 3, 3, 3] w, float[4] b",
        'y = com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)',
    ),
    "conv_sum": (
        "float[N, 3, 7, 7] x, float[4, 3, 3, 3] w, float[4] b, float[N, 4, 5, 5] z",
        'y = com.microsoft.FusedConv<activation = "LeakyRelu", activation_params = [0.2]>(x, w, b, z)',
    ),
    "integer_product": (
        "uint8[4, 5] x, int8[5, 3] w, float s, float[3] t, uint8 z, float[3] b",
        "y = com.microsoft.MatMulIntegerToFloat(x, w, s, t, z, , b)",
    ),
    "trilu": (X, "y = com.microsoft.Trilu<upper = 0>(x)"),
    "expand_dims": (X, "a = Constant<value = int32 {-1}>() y = com.microsoft.ExpandDims(x, a)"),
}
"""Inputs and body of a model for each case; `y` is its output."""


def model(inputs: str, body: str) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]> g ({inputs}) => (float y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def feeds(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    found = {}
    for value in proto.graph.input:
        shape = [d.dim_value or 3 for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 100, shape)
        found[value.name] = np.asarray(drawn).astype(dtype)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_definition_is_what_onnx_runtime_computes(case: str) -> None:
    proto = model(*CASES[case])
    library = load_rules()
    graph = pipeline.read(proto, Options(), library).graph
    assert graph.type("y").shape is not None
    plain = write(expand_definitions(graph, operators_of(library, graph.opset)))
    assert all(node.domain == "" for node in plain.graph.node)
    inputs = feeds(proto)
    try:
        expected = onnx_runtime(proto).run(inputs)["y"]
    except Exception as error:
        pytest.skip(f"ONNX Runtime has no such operator here: {error}")
    found = onnx_runtime(plain).run(inputs)["y"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        (
            f"{X}, uint8[6, 1, 8] w, float[6] s",
            "y = com.microsoft.MatMulNBits<K = 8, N = 6, block_size = 16>(x, w, s)",
            "[N, 5, 6]",
        ),
        (
            f"{X}, float[N, 4, 8] k, float[N, 4, 6] v",
            "y = com.microsoft.MultiHeadAttention<num_heads = 2>(x, k, v)",
            "[N, 5, 6]",
        ),
        (f"{X}, float[8, 24] w, float[24] b", "y = com.microsoft.Attention<num_heads = 2>(x, w, b)", "[N, 5, 8]"),
        ("float[4, 3] x, float[6, 3] z", "y = com.microsoft.CDist(x, z)", "[4, 6]"),
    ],
)
def test_what_has_no_definition_has_types(inputs: str, body: str, expected: str) -> None:
    graph = pipeline.read(model(inputs, body), Options(), load_rules()).graph
    assert str(graph.type("y")) == f"f32{expected}"


@pytest.mark.parametrize("attributes", ['activation = "Relu"', 'activation = "Relu", activation_params: floats = []'])
def test_a_convolution_without_parameters_of_its_activation_stays_valid(attributes: str) -> None:
    proto = model("float[1, 3, 7, 7] x, float[4, 3, 3, 3] w", f"y = com.microsoft.FusedConv<{attributes}>(x, w)")
    written = optimize(proto).model
    assert [node.op_type for node in written.graph.node] == ["FusedConv"]
    inputs = feeds(proto)
    np.testing.assert_array_equal(onnx_runtime(written).run(inputs)["y"], onnx_runtime(proto).run(inputs)["y"])


def test_models_that_use_them_are_simplified() -> None:
    proto = model(
        "float[4, 8] x, float[8] c", "a = com.microsoft.BiasGelu(x, c) b = Identity(a) r = Relu(b) y = Relu(r)"
    )
    result = optimize(proto)
    assert [node.op_type for node in result.model.graph.node] == ["BiasGelu", "Relu"]
    assert all("com.microsoft" not in node.op for node in result.native.nodes)
