"""Models with weights of four and eight bits: against ONNX Runtime, in both of the forms that tools write."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.errors import UserError
from rewrite.system import installed_onnxruntime

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(41)
Array = NDArray[Any]
BITS = {
    TensorProto.INT4: (-8, 8),
    TensorProto.UINT4: (0, 16),
    TensorProto.INT8: (-128, 128),
    TensorProto.UINT8: (0, 256),
}


class Products:
    """A model of products of one or several inputs, with an output for each."""

    def __init__(self, rows: int | str) -> None:
        self.rows = rows
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, int] = {}

    def const(self, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return f"c{len(self.constants) - 1}"

    def scales(self, *shape: int) -> str:
        return self.const((RNG.random(shape) + 0.5).astype(np.float32) / 50)

    def x(self, k: int) -> str:
        self.inputs[f"x{k}"] = k
        return f"x{k}"

    def few_bits(self, k: int, n: int, block: int, *, bits: int = 4, zeros: bool = False, bias: bool = False) -> None:
        """Add a MatMulNBits."""
        blocks = -(-k // block)
        packed = RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        inputs = [self.x(k), self.const(packed), self.scales(n * blocks)]
        if zeros:
            inputs.append(self.const(RNG.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)))
        if bias:
            inputs += [""] * (5 - len(inputs)) + [self.const(RNG.standard_normal(n).astype(np.float32))]
        attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
        self.nodes.append(helper.make_node("MatMulNBits", inputs, [self.output()], domain="com.microsoft", **attrs))

    def dequantized(
        self, dtype: int, k: int, n: int, block: int, *, turned: bool = False, zeros: bool = False, bias: bool = False
    ) -> None:
        """Add a DequantizeLinear, by columns if `block` is 0, and a product: a Gemm for a bias or turned weights."""
        blocks = -(-k // block) if block else 0
        shape, grid = ((n, k), (n, blocks)) if turned else ((k, n), (blocks, n))
        grid = grid if block else (n,)
        weights, zero = f"w{len(self.nodes)}", f"z{len(self.nodes)}"
        for name, extents in ((weights, shape), (zero, grid)):
            values = RNG.integers(*BITS[dtype], extents)
            self.constants.append(helper.make_tensor(name, dtype, extents, values.ravel().tolist()))
        attrs = {"axis": int(turned), "block_size": block} if block else {"axis": int(not turned)}
        made = f"d{len(self.nodes)}"
        inputs = [weights, self.scales(*grid), *([zero] if zeros else [])]
        product = [self.x(k), made, *([self.const(RNG.standard_normal(n).astype(np.float32))] if bias else [])]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [made], **attrs))
        op, more = ("Gemm", {"transB": int(turned)}) if turned or bias else ("MatMul", {})
        self.nodes.append(helper.make_node(op, product, [self.output()], **more))

    def output(self) -> str:
        return f"y{len(self.nodes)}"

    def model(self) -> onnx.ModelProto:
        made = [name for node in self.nodes for name in node.output if name.startswith("y")]
        graph = helper.make_graph(
            self.nodes,
            "products",
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, [self.rows, k]) for x, k in self.inputs.items()],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, [self.rows, None]) for y in made],
            self.constants,
        )
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def feeds(self, rows: int) -> dict[str, Array]:
        return {x: RNG.standard_normal((rows, k)).astype(np.float32) for x, k in self.inputs.items()}


def is_right(products: Products, rows: int) -> list[str]:
    """Compare a program with ONNX Runtime; return the templates of its kernels."""
    model, feeds = products.model(), products.feeds(rows)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # its fusions round activations
    expected = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    program = rewrite.compile(model, threads=2)
    assert program.fallbacks() == {}
    found = program.run(feeds)
    for output, array in zip(expected.get_outputs(), expected.run(None, feeds), strict=True):
        np.testing.assert_allclose(found[output.name], array, rtol=1e-4, atol=1e-4, err_msg=output.name)
    return [item.kernel.template for item in program.plan.items if isinstance(item, Step)]


@pytest.mark.parametrize("rows", [1, 13])
def test_few_bits(rows: int) -> None:
    products = Products(rows)
    products.few_bits(256, 70, 16)
    products.few_bits(200, 64, 32, zeros=True)
    products.few_bits(320, 33, 64, bias=True)
    products.few_bits(256, 130, 128, zeros=True, bias=True)
    products.few_bits(512, 70, 256)
    products.few_bits(100, 70, 32, bits=8)
    products.few_bits(160, 70, 16, bits=8, zeros=True)
    assert set(is_right(products, rows)) == {"gemm_blockwise"}


def test_dequantized_by_blocks() -> None:
    products = Products("N")
    products.dequantized(TensorProto.INT4, 96, 64, 32)
    products.dequantized(TensorProto.UINT4, 512, 270, 16, zeros=True, bias=True)
    products.dequantized(TensorProto.INT8, 560, 233, 32, turned=True)
    products.dequantized(TensorProto.UINT8, 592, 264, 64, turned=True, zeros=True, bias=True)
    assert set(is_right(products, 5)) == {"gemm_blockwise"}


def test_dequantized_by_columns() -> None:
    products = Products(3)
    products.dequantized(TensorProto.INT8, 396, 264, 0)
    products.dequantized(TensorProto.UINT8, 600, 270, 0, zeros=True, turned=True)
    assert set(is_right(products, 3)) == {"gemm_blockwise"}


def test_products_of_one_operand_are_merged() -> None:
    products = Products(1)
    for n in (512, 128, 128):
        products.few_bits(512, n, 32, zeros=True)
    templates = is_right(products, 1)
    assert templates.count("gemm_blockwise") == 1


def test_a_file_keeps_the_packed_weights() -> None:
    products = Products(2)
    products.few_bits(64, 48, 32)
    result = rewrite.optimize(products.model())
    assert [node.op_type for node in result.model.graph.node] == ["MatMulNBits"]


def test_what_is_not_supported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    products = Products(2)
    products.few_bits(64, 48, 32, zeros=True)
    products.nodes[0].input.append(products.const(np.repeat(np.arange(2), 32).astype(np.int32)))
    model, feeds = products.model(), products.feeds(2)
    with pytest.warns(FallbackWarning, match=r"com\.microsoft\.MatMulNBits: run by ONNX Runtime"):
        program = rewrite.compile(model)
    want = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(next(iter(program.run(feeds).values())), want[0], rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)
    with pytest.raises(UserError, match="no implementation of operator com") as found:
        rewrite.compile(model)
    assert "com.microsoft.MatMulNBits does not apply: it requires g_idx is none" in str(found.value)
    assert [node.op_type for node in rewrite.optimize(model).model.graph.node] == ["MatMulNBits"]
