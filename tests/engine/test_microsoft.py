"""The operators of ONNX Runtime's own domain mean what `rules/microsoft.rules` says: against ONNX Runtime itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from rewrite import compile, optimize
from rewrite.engine import pipeline
from rewrite.engine.onnx_io.exporter import write
from rewrite.engine.operators.reference_runtime import Unavailable, onnx_runtime
from rewrite.engine.options import Options
from rewrite.engine.rewriting.definition_expansion import expand_definitions
from rewrite.engine.rewriting.rule_library import load_rules, operators_of
from rewrite.errors import UserError

pytest.importorskip("onnxruntime")
X, C = "float[N, 5, 8] x", "float[8] c, float[8] d, float[8] e"

QKV = "float[N, 5, 8] x, float[8, 24] w, float[24] b"
BITS = "two = Constant<value = int32 {2}>() k = Mod(m, two)"
S, T, U = (f"Constant<value = float {{{scale}}}>()" for scale in (0.02, 0.05, 0.04))
BYTES = f"s = {S} t = {T} u = {U} z = Constant<value = uint8 {{60}}>()"
IMAGES = "uint8[N, 3, 6, 7] x"

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
    "conv_clip": (
        "float[N, 3, 7, 7] x, float[4, 3, 3, 3] w, float[4] b",
        'y = com.microsoft.FusedConv<activation = "Clip", activation_params = [-0.5, 0.75]>(x, w, b)',
    ),
    "conv_hard_sigmoid": (
        "float[N, 3, 7, 7] x, float[4, 3, 3, 3] w",
        'y = com.microsoft.FusedConv<activation = "HardSigmoid", activation_params = [0.25, 0.375]>(x, w)',
    ),
    "integer_product": (
        "uint8[4, 5] x, int8[5, 3] w, float s, float[3] t, uint8 z, float[3] b",
        "y = com.microsoft.MatMulIntegerToFloat(x, w, s, t, z, , b)",
    ),
    "dynamic_product": (
        "float[N, 5, 8] x, uint8[8, 6] w, float[6] s, uint8[6] z, float[6] b",
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, b)",
    ),
    "attention": (QKV, "y = com.microsoft.Attention<num_heads = 2>(x, w, b)"),
    "attention_keys": (f"{QKV}, int32[N, 5] m", f"{BITS} y = com.microsoft.Attention<num_heads = 2>(x, w, b, k)"),
    "attention_lengths": (
        f"{QKV}, int32[N] m",
        "five = Constant<value = int32 {5}>() k = Mod(m, five) y = com.microsoft.Attention<num_heads = 2>(x, w, b, k)",
    ),
    "attention_pairs": (f"{QKV}, int32[N, 5, 5] m", f"{BITS} y = com.microsoft.Attention<num_heads = 2>(x, w, b, k)"),
    "attention_causal": (
        QKV,
        "y = com.microsoft.Attention<num_heads = 2, unidirectional = 1, scale = 0.3>(x, w, b)",
    ),
    "attention_cache": (
        f"{QKV}, int32[N, 9] m, float[2, N, 2, 4, 4] p",
        f"{BITS} y, n = com.microsoft.Attention<num_heads = 2, unidirectional = 1>(x, w, b, k, p)",
    ),
    "attention_bias": (
        f"{QKV}, int32[N, 5] m, float[N, 2, 5, 5] e",
        f"{BITS} y = com.microsoft.Attention<num_heads = 2, unidirectional = 1>(x, w, b, k, , e)",
    ),
    "attention_present": (
        f"{QKV}, float[2, N, 2, 4, 4] p",
        "a, y = com.microsoft.Attention<num_heads = 2>(x, w, b, , p)",
    ),
    "attention_sizes": (
        "float[N, 5, 8] x, float[8, 28] w, float[28] b",
        "y = com.microsoft.Attention<num_heads = 2, qkv_hidden_sizes = [8, 8, 12]>(x, w, b)",
    ),
    "quantized_attention": (
        "uint8[N, 5, 8] x, uint8[8, 24] w, float[24] b, int32[N, 5] m",
        f"""{BITS} s = Constant<value = float {{0.01}}>() z = Constant<value = uint8 {{50}}>()
            y = com.microsoft.QAttention<num_heads = 2, unidirectional = 1>(x, w, b, s, s, k, z, z)""",
    ),
    "embedding": (
        f"int32[N, 5] i, int32[N, 5] g, float[100, 8] w, float[7, 8] p, float[100, 8] q, {C}",
        "y, n = com.microsoft.EmbedLayerNormalization<epsilon = 0.01>(i, g, w, p, q, c, d)",
    ),
    "embedding_plain": (
        f"int32[N, 5] i, int32[N, 5] g, float[100, 8] w, float[100, 8] p, {C}",
        "y, n = com.microsoft.EmbedLayerNormalization(i, , w, p, , c, d, , g)",
    ),
    "embedding_sum": (
        f"int32[N, 5] i, float[100, 8] w, float[7, 8] p, {C}",
        "a, n, y = com.microsoft.EmbedLayerNormalization(i, , w, p, , c, d)",
    ),
    "trilu": (X, "y = com.microsoft.Trilu<upper = 0>(x)"),
    "expand_dims": (X, "a = Constant<value = int32 {-1}>() y = com.microsoft.ExpandDims(x, a)"),
}
"""Inputs and body of a model for each case; `y` is its output."""


def model(inputs: str, body: str, output: str = "y") -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]> g ({inputs}) => (float {output}) {{ {body} }}'
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


QUANTIZED = {
    "add": ("uint8[N, 4] x, uint8[4] y", "o = com.microsoft.QLinearAdd(x, s, z, y, t, z, u, z)"),
    "mul": ("uint8[N, 4] x, uint8[4] y", "o = com.microsoft.QLinearMul(x, s, z, y, t, z, u, z)"),
    "sigmoid": (IMAGES, "o = com.microsoft.QLinearSigmoid(x, s, z, u, z)"),
    "leaky_relu": (IMAGES, "o = com.microsoft.QLinearLeakyRelu<alpha = 0.2>(x, s, z, u, z)"),
    "softmax": ("uint8[N, 5, 8] x", "o = com.microsoft.QLinearSoftmax<opset = 13, axis = 1>(x, s, z, u, z)"),
    "softmax_last": ("uint8[N, 5, 8] x", "o = com.microsoft.QLinearSoftmax<opset = 11, axis = 2>(x, s, z, u, z)"),
    "concat": (
        "uint8[N, 4] x, uint8[N, 3] y",
        "o = com.microsoft.QLinearConcat<axis = 1>(u, z, x, s, z, y, t, z, x, u, z)",
    ),
    "global_pool": (IMAGES, "o = com.microsoft.QLinearGlobalAveragePool(x, s, z, u, z)"),
    "pool": (
        IMAGES,
        """o = com.microsoft.QLinearAveragePool<kernel_shape = [3, 2], pads = [1, 0, 1, 0], strides = [2, 1]>
            (x, s, z, u, z)""",
    ),
    "where": (
        "bool[N, 1] c, uint8[N, 4] x, uint8[4] y",
        "o = com.microsoft.QLinearWhere(c, x, s, z, y, t, z, u, z)",
    ),
    "quantize": ("float[N, 4] x", "o = com.microsoft.QuantizeLinear(x, s, z)"),
    "max_pool": (
        "uint8[N, 6, 7, 3] x",
        "o = com.microsoft.NhwcMaxPool<kernel_shape = [3, 2], pads = [1, 0, 1, 0], strides = [2, 1]>(x)",
    ),
}
"""The same for operators whose output `o` is a tensor of bytes."""


@pytest.mark.parametrize("case", QUANTIZED)
def test_the_definition_on_bytes_is_what_onnx_runtime_computes(case: str) -> None:
    inputs, body = QUANTIZED[case]
    expected, found = both(model(inputs, f"{BYTES} {body} result = Cast<to = 1>(o)", "result"))
    assert np.abs(expected - found).max() <= 1
    assert (expected == found).mean() > 0.9
    assert np.ptp(expected) > 3


def test_bytes_dequantized_in_the_other_domain() -> None:
    inputs = "uint8[N, 4] x"
    expected, found = both(model(inputs, f"{BYTES} y = com.microsoft.DequantizeLinear(x, s, z)"))
    np.testing.assert_array_equal(found, expected)


def test_a_softmax_over_several_axes_has_no_definition() -> None:
    node = "o = com.microsoft.QLinearSoftmax<opset = 11, axis = 1>(x, s, z, u, z)"
    library = load_rules()
    graph = pipeline.read(model("uint8[N, 5, 8] x", f"{BYTES} {node} y = Cast<to = 1>(o)"), Options(), library).graph
    with pytest.raises(UserError, match="requires opset >= 13"):
        expand_definitions(graph, operators_of(library, graph.opset))


@pytest.mark.parametrize("case", CASES)
def test_the_definition_is_what_onnx_runtime_computes(case: str) -> None:
    expected, found = both(model(*CASES[case]))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def both(proto: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray]:
    """Return the output of a model by ONNX Runtime, and that of the model with its operators defined."""
    library = load_rules()
    graph = pipeline.read(proto, Options(), library).graph
    name = graph.outputs[0]
    assert graph.type(name).shape is not None
    plain = write(expand_definitions(graph, operators_of(library, graph.opset)))
    assert all(node.domain == "" for node in plain.graph.node)
    inputs = feeds(proto)
    try:
        expected = onnx_runtime(proto).run(inputs)[name]
    except Unavailable as error:
        pytest.skip(f"ONNX Runtime has no such operator here: {error}")
    try:
        found = onnx_runtime(plain).run(inputs)[name]
    except Unavailable:  # its Attention does not broadcast masks over queries, as the standard allows
        found = compile(plain).run(inputs)[name]
    assert found.shape == expected.shape
    return expected, found


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
        (
            "float[5, N, 8] x, int8[2, 8, 24] w, int8[2, 6, 24] r, float[2] s, int8[2] z",
            """y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 6, direction = "bidirectional">
                (x, w, r, , , , , , s, z, s, z)""",
            "[5, 2, N, 6]",
        ),
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


@pytest.mark.parametrize("activation", ["Clip", "HardSigmoid"])
def test_bounds_of_a_fused_activation_are_not_guessed(activation: str) -> None:
    attributes = f'activation = "{activation}", activation_params = [0.25]'
    proto = model("float[1, 3, 7, 7] x, float[4, 3, 3, 3] w", f"y = com.microsoft.FusedConv<{attributes}>(x, w)")
    assert [node.op for node in optimize(proto).native.nodes] == ["com.microsoft.FusedConv"]
