"""`precision`: products are lowered where that is faster, in the native graph only, and the report says how many."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper, numpy_helper
from rewrite.engine.cost import machine
from rewrite.engine.ir.graph import DType
from rewrite.engine.verification.compare import compare
from rewrite.errors import UserError


def mlp(width: int = 256) -> onnx.ModelProto:
    """Two layers with a softmax, and a product that is too small to gain anything."""
    rng = np.random.default_rng(0)
    weights = {
        "A": rng.standard_normal((width, width)).astype(np.float32) / 16,
        "B": rng.standard_normal((width, width)).astype(np.float32) / 16,
        "C": rng.standard_normal((width, 4)).astype(np.float32) / 16,
        "b": rng.standard_normal(width).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["p"]),
        helper.make_node("Mul", ["p", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("Gemm", ["r", "B", "b"], ["s"], transB=1),
        helper.make_node("Softmax", ["s"], ["t"]),
        helper.make_node("MatMul", ["t", "C"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 4])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture
def fast_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    if machine.rates()["bf16"] <= 1:
        pytest.skip("the machine has no product of bf16")


@pytest.mark.usefixtures("fast_bf16")
def test_products_are_lowered_in_the_native_graph_only() -> None:
    result = rewrite.optimize(mlp(), precision="bf16")
    native = [node.op for node in result.native.nodes]
    assert native.count("rewrite.MatMulBf16") == 2
    assert native.count("MatMul") == 1
    assert not [node for node in result.model.graph.node if node.domain == "rewrite"]
    assert result.report.precision == {"requested": "bf16", "lowered": 2, "in_f32": 1}
    assert {rule.name for rule in result.report.rules if rule.in_result} >= {"matmul_bf16", "gemm_bf16"}


def residual_network() -> onnx.ModelProto:
    """A first layer of three channels, a block with a residual, and a mean over all pixels."""
    rng = np.random.default_rng(2)
    shapes = {"A": (32, 3, 3, 3), "B": (64, 32, 1, 1), "C": (64, 64, 5, 5), "D": (64, 64, 1, 1)}
    weights = {k: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "A"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["p"]),
        helper.make_node("Conv", ["p", "B"], ["q"]),
        helper.make_node("Conv", ["q", "C"], ["c"], pads=[2] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "D"], ["d"]),
        helper.make_node("Add", ["d", "q"], ["s"]),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 1, 1])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.usefixtures("fast_bf16")
def test_images_are_kept_in_bf16_between_convolutions() -> None:
    result = rewrite.optimize(residual_network(), precision="bf16")
    native = result.native
    convolutions = [node for node in native.nodes if node.op == "rewrite.ChannelsLastConvBf16"]
    # tiles multiply the three channels of the first layer as well, vectors of pairs do not
    in_f32 = 0 if machine.rates()["bf16"] > machine.rates()["bf16 vectors"] else 1
    assert len(convolutions) == 3
    assert len([node for node in native.nodes if node.op == "rewrite.ImageConvBf16"]) == 1 - in_f32
    assert len([node for node in native.nodes if node.op in ("Conv", "rewrite.ChannelsLastConv")]) == in_f32
    read = {v for node in convolutions for v in (node.inputs[0], *node.inputs[3:]) if v}
    assert {native.type(v).dtype for v in read} == {DType.BF16}
    assert not [node for node in native.nodes if node.op == "Add"]  # the residual is an operand
    assert {rule.name for rule in result.report.rules if rule.in_result} >= {"channels_last_conv_bf16", "residual_bf16"}
    x = np.random.default_rng(3).standard_normal((1, 3, 64, 64)).astype(np.float32)
    exact = rewrite.compile(residual_network()).run({"x": x})["y"]
    program = rewrite.compile(residual_network(), precision="bf16")
    assert not program.fallbacks()
    error = np.abs(exact - program.run({"x": x})["y"]).max() / np.abs(exact).max()
    assert 1e-6 < error < 2e-2


def network_of_parts() -> onnx.ModelProto:
    """A pool and a Relu behind the first layer, a block that splits channels and collects them, a mean of pixels."""
    rng = np.random.default_rng(4)
    shapes = {"A": (32, 3, 3, 3), "B": (64, 32, 1, 1), "C": (32, 32, 3, 3), "D": (64, 96, 1, 1), "E": (32, 64, 1, 1)}
    weights = {k: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in shapes.items()}
    weights["sizes"] = np.array([32, 32])
    nodes = [
        helper.make_node("Conv", ["x", "A"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("MaxPool", ["a"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Conv", ["r", "B"], ["b"]),
        helper.make_node("Split", ["b", "sizes"], ["p", "q"], axis=1),
        helper.make_node("Conv", ["q", "C"], ["c"], pads=[1] * 4),
        helper.make_node("Sigmoid", ["c"], ["g"]),
        helper.make_node("Add", ["g", "q"], ["s"]),
        helper.make_node("Concat", ["p", "q", "s"], ["j"], axis=1),
        helper.make_node("Conv", ["j", "D"], ["d"]),
        helper.make_node("AveragePool", ["d"], ["n"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["n", "E"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "parts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 128, 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 16, 16])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.usefixtures("fast_bf16")
def test_what_lies_between_convolutions_is_kept_in_bf16() -> None:
    if machine.rates()["bf16"] <= machine.rates()["bf16 vectors"]:
        pytest.skip("the first layer and its pool stay f32 without tiles")
    native = rewrite.optimize(network_of_parts(), precision="bf16").native
    assert native.nodes[0].op == "rewrite.ImageConvBf16"
    moving = ("Split", "Concat", "rewrite.ChannelsLastMaxPool", "rewrite.ChannelsLastAveragePool")
    found = [node for node in native.nodes if node.op in moving]
    assert {node.op for node in found} == {*moving}
    assert {native.type(node.inputs[0]).dtype for node in found} == {DType.BF16}
    x = np.random.default_rng(5).standard_normal((1, 3, 128, 128)).astype(np.float32)
    exact = rewrite.compile(network_of_parts()).run({"x": x})["y"]
    program = rewrite.compile(network_of_parts(), precision="bf16")
    assert not program.fallbacks()
    error = np.abs(exact - program.run({"x": x})["y"]).max() / np.abs(exact).max()
    assert 1e-6 < error < 2e-2


def attention(queries: int, masked: bool) -> onnx.ModelProto:
    """Decomposed attention with `queries` queries and 512 keys."""
    shapes = {"q": [1, 4, queries, 64], "k": [1, 4, 512, 64], "v": [1, 4, 512, 64], "m": [1, 1, queries, 512]}
    nodes = [
        helper.make_node("Transpose", ["k"], ["r"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "r"], ["s"]),
        helper.make_node("Mul", ["s", "c"], ["t"]),
        *([helper.make_node("Add", ["t", "m"], ["u"])] if masked else []),
        helper.make_node("Softmax", ["u" if masked else "t"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items() if masked or n != "m"]
    graph = helper.make_graph(
        nodes,
        "attention",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes["q"])],
        [numpy_helper.from_array(np.float32(0.125), "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.usefixtures("fast_bf16")
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_lowered_where_many_queries_pay_for_rounding_the_keys(masked: bool) -> None:
    def chosen(queries: int) -> list[str]:
        result = rewrite.optimize(attention(queries, masked), precision="bf16")
        return [node.op for node in result.native.nodes if "Attention" in node.op]

    assert chosen(256) == ["rewrite.AttentionBf16"]
    assert chosen(1) == ["rewrite.ScaledDotProductAttention"]


@pytest.mark.usefixtures("fast_bf16")
def test_the_program_is_off_by_rounding_and_no_more() -> None:
    x = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
    exact = rewrite.compile(mlp()).run({"x": x})["y"]
    rounded = rewrite.compile(mlp(), precision="bf16").run({"x": x})["y"]
    error = np.abs(exact - rounded).max() / np.abs(exact).max()
    assert 1e-6 < error < 2e-2


def test_f32_and_unknown_precisions() -> None:
    result = rewrite.optimize(mlp())
    assert result.report.precision == {"requested": "f32", "lowered": 0, "in_f32": 3}
    with pytest.raises(UserError, match="unknown precision 'bf17'"):
        rewrite.optimize(mlp(), precision="bf17")


def test_what_a_lower_precision_may_change() -> None:
    a = np.array([1.0, 2.0], np.float32)
    assert not compare(a, a * np.float32(1.05), "bf16").problem
    assert compare(a, a * np.float32(1.5), "bf16").problem
    assert compare(a, np.array([1.0, np.nan], np.float32), "bf16").problem
    found = compare(np.array([3, 5]), np.array([3, 9]), "bf16")
    assert not found.problem
    assert found.max_abs == 4
