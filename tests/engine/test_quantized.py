"""Quantized networks of images: 8-bit integers pass between kernels, and results agree with ONNX Runtime."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from rewrite.engine.cost import machine
from rewrite.engine.saturation import child_process

RNG = np.random.default_rng(3)


class Quantized:
    """A network in the form that quantizing tools write: integers around every operator."""

    def __init__(self, separate: bool) -> None:
        self.separate = separate
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, value: object, dtype: type) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, op: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], domain=domain, **attrs))
        return name

    def grid(self, scale: float, zero: int) -> tuple[str, str]:
        return self.const(scale, np.float32), self.const(zero, np.uint8)

    def conv(self, x: str, grid: tuple[str, str], shape: tuple[int, ...], stride: int = 1, group: int = 1) -> str:
        """Of bytes on a grid to bytes on the grid of 0.05 and 100."""
        m = shape[0]
        # of 7 bits: without VNNI, ONNX Runtime's sums of two products of bytes saturate at 16 bits
        w = self.const(RNG.integers(-63, 64, shape), np.int8)
        size = float(np.prod(shape[1:]))
        scales = self.const((RNG.random(m) + 0.5) * 0.04 / np.sqrt(size), np.float32)
        zeros = self.const(np.zeros(m), np.int8)
        bias = self.const(RNG.integers(-250, 250, m), np.int32)
        pads = [shape[2] // 2] * 4
        attrs = {"kernel_shape": shape[2:], "pads": pads, "strides": [stride] * 2, "group": group}
        out = self.grid(0.0517, 100)
        if not self.separate:
            return self.add("QLinearConv", x, *grid, w, scales, zeros, *out, bias, **attrs)
        array = next(numpy_helper.to_array(c) for c in self.constants if c.name == scales)
        step = next(numpy_helper.to_array(c) for c in self.constants if c.name == grid[0])
        fine = self.const(array * step, np.float32)
        whole = self.add("DequantizeLinear", bias, fine, axis=0)
        weights = self.add("DequantizeLinear", w, scales, zeros, axis=0)
        y = self.add("Conv", self.add("DequantizeLinear", x, *grid), weights, whole, **attrs)
        return self.add("QuantizeLinear", y, *out)


def network(separate: bool) -> onnx.ModelProto:
    net = Quantized(separate)
    image, inner = net.grid(0.04, 128), net.grid(0.0517, 100)
    x = net.add("QuantizeLinear", "x", *image)
    x = net.conv(x, image, (64, 3, 3, 3), stride=2)
    x = net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    y = net.conv(x, inner, (192, 64, 1, 1))
    y = net.conv(y, inner, (192, 1, 3, 3), group=192)
    y = net.conv(y, inner, (64, 192, 1, 1))
    both = net.add("Add", net.add("DequantizeLinear", x, *inner), net.add("DequantizeLinear", y, *inner))
    z = net.add("DequantizeLinear", net.add("QuantizeLinear", both, *net.grid(0.0831, 90)), *net.grid(0.0831, 90))
    net.nodes.append(helper.make_node("GlobalAveragePool", [z], ["y"]))
    graph = helper.make_graph(
        net.nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 96, 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 1, 1])],
        net.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("separate", [True, False], ids=["qdq", "qoperator"])
def test_bytes_go_from_kernel_to_kernel(separate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is that of a machine with fast products of bytes; the result is right on any."""
    import onnxruntime as ort

    # the profile is read here; the child process, where choices are made, imports this module first
    monkeypatch.setattr(machine, "isa_name", lambda isa="": isa or "avx512")
    (tmp_path / "fast_bytes.py").write_text("""
from rewrite.engine.cost import machine
machine.rates = lambda isa="": dict.fromkeys(("int8", "int8 vectors"), 4.0)
""")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(child_process, "start", partial(child_process.start, "fast_bytes"))

    model = network(separate)
    result = rewrite.optimize(model)
    ops = [node.op for node in result.native.nodes]
    name = "rewrite.ChannelsLastConvInteger" if separate else "rewrite.ChannelsLastQLinearConv"
    assert ops.count(name) == 4
    assert "rewrite.ChannelsLastMaxPool" in ops
    assert ops.count("Transpose") <= 2  # of the image, and of the means
    assert not {"Conv", "ConvInteger", "QLinearConv", "rewrite.ChannelsLastConv"} & set(ops)
    program = rewrite.compile(model, threads=2)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((1, 3, 96, 96)).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        assert np.ptp(expected) > 0.5
        # a byte off by one affects others; a mean of 576 of them stays within a tenth of a step
        np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=0, atol=0.1 * 0.0831)


def test_weights_stay_bytes_in_the_written_file() -> None:
    """Other runtimes compute on bytes where weights are dequantized in the file, be they few or many."""
    model = network(separate=True)
    written = rewrite.optimize(model).model
    makers = {name: node.op_type for node in written.graph.node for name in node.output}
    weights = [makers.get(node.input[1]) for node in written.graph.node if node.op_type == "Conv"]
    assert weights == ["DequantizeLinear"] * 4
    stored = [numpy_helper.to_array(t) for t in written.graph.initializer]
    assert not any(array.dtype == np.float32 and array.ndim == 4 for array in stored)


@pytest.mark.parametrize("size", [3, 0])
def test_weights_that_equal_their_scales(size: int) -> None:
    """A written file keeps the DequantizeLinear of weights, but these are the value that it would read."""
    constants = {"q": np.ones(size, np.uint8), "s": np.full(size, 0.5, np.float32), "z": np.zeros(size, np.uint8)}
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[{size}] x) => (float[{size}] y, float[{size}] d)
      {{ d = DequantizeLinear<axis = 0>(q, s, z) y = Sub(x, d) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    written = rewrite.optimize(model).model
    x = np.arange(size, dtype=np.float32)
    found = ReferenceEvaluator(written).run(None, {"x": x})
    np.testing.assert_array_equal(found, [x - 0.5, np.full(size, 0.5)])
