from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from rewrite.engine import pipeline
from rewrite.engine.cost import conv_cycles
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.machine import Machine
from rewrite.engine.graph_job import Job
from rewrite.engine.ir.graph import Constant, DType, Graph, Node, TensorType
from rewrite.engine.onnx_io import exporter
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.engine.options import Options
from rewrite.engine.rewriting.definition_expansion import definition_graph
from rewrite.engine.rewriting.rule_library import load_rules

RNG = np.random.default_rng(5)
OWN = "rewrite."
MACHINE = Machine(isa="avx512", flops=260e9, bandwidths=(500e9, 250e9, 100e9, 37e9))


def window(size: int, stride: int, dims: int) -> dict[str, tuple[int, ...]]:
    sides, pads = {"kernel_shape": (size,) * dims, "strides": (stride,) * dims}, (size // 2,) * 2 * dims
    return {**sides, "dilations": (1,) * dims, "pads": pads}


class Net:
    """A network of images, built layer by layer."""

    def __init__(self, *shape: int) -> None:
        self.graph = Graph(("x",), (), types={"x": TensorType(DType.F32, shape)}, opset={"": 21}, ir_version=10)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: object) -> str:
        names = tuple(f"v{len(self.graph.nodes)}_{i}" for i in range(outputs))
        normal = normalize_attrs(op, attrs)  # type: ignore[arg-type]
        self.graph.nodes.append(Node(op, inputs, names, normal, f"{op}{len(self.graph.nodes)}"))
        return names[0]

    def const(self, array: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.graph.constants)}"
        self.graph.constants[name] = Constant(np.array(array, dtype))
        return name

    def conv(self, x: str, channels: int, filters: int, size: int = 3, group: int = 1, stride: int = 1) -> str:
        w = self.const(RNG.standard_normal((filters, channels // group, size, size)) / size)
        b = self.const(RNG.standard_normal(filters))
        return self.add("Conv", x, w, b, **window(size, stride, 2), group=group)

    def volume_conv(self, x: str, channels: int, filters: int, stride: int = 1) -> str:
        w = self.const(RNG.standard_normal((filters, channels, 3, 3, 3)) / 6)
        return self.add("Conv", x, w, self.const(RNG.standard_normal(filters)), **window(3, stride, 3), group=1)

    def done(self, *outputs: str) -> Graph:
        self.graph.outputs = outputs
        return self.graph


def optimized(graph: Graph) -> dict[str, Graph]:
    """Optimized graphs by target, on a machine with much faster channels-last convolutions."""
    costs = [CostModel(target="portable", machine=MACHINE), CostModel(target="native", machine=MACHINE)]
    usual = conv_cycles.conv_nhwc
    with mock.patch.object(conv_cycles, "conv_nhwc", lambda c: 0.2 * usual(c)):
        (outcome,) = Job.of(graph, Options(time_limit=600), costs)()
    return {target: pipeline.decode(chosen, graph).graph for target, chosen in outcome.chosen.items()}


def plain(graph: Graph) -> Graph:
    """The graph with custom operators replaced by their definitions."""
    defined = {op.name: op for op in load_rules().ops if op.definition is not None}
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        meant = definition_graph(graph, node, defined) if node.op.startswith(OWN) else None
        nodes += [node] if meant is None else meant.nodes
        constants |= {} if meant is None else meant.constants
        types |= {} if meant is None else meant.types
    return replace(graph, nodes=nodes, constants=constants, types=types)


def compare(graph: Graph, native: Graph) -> None:
    from onnx.reference import ReferenceEvaluator

    x = RNG.standard_normal(graph.type("x").shape).astype(np.float32)
    for wanted, found in zip(
        ReferenceEvaluator(exporter.write(graph)).run(None, {"x": x}),
        ReferenceEvaluator(exporter.write(plain(native))).run(None, {"x": x}),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max())


def classifier(net: Net, y: str, channels: int) -> Graph:
    pooled = net.add("GlobalAveragePool", y)
    flat = net.add("Flatten", pooled)
    return net.done(net.add("Gemm", flat, net.const(RNG.standard_normal((10, channels))), transB=1))


def residual() -> Graph:
    net = Net(1, 32, 14, 14)
    y = net.add("Relu", net.conv("x", 32, 64, stride=2))
    y = net.add("MaxPool", y, kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1))
    for _ in range(2):
        side = net.add("Relu", net.conv(y, 64, 64))
        y = net.add("Relu", net.add("Add", net.conv(side, 64, 64, 1), y))
    return classifier(net, y, 64)


def squeeze_excite() -> Graph:
    net = Net(2, 32, 9, 11)
    y = net.add("HardSwish", net.conv("x", 32, 96, 1))
    y = net.add("Relu", net.conv(y, 96, 96, 5, group=96, stride=2))
    mean = net.add("ReduceMean", y, net.const([2, 3], np.int64), keepdims=1)
    gate = net.add("HardSigmoid", net.conv(net.add("Relu", net.conv(mean, 96, 16, 1)), 16, 96, 1))
    y = net.add("Clip", net.add("Mul", y, gate), net.const(0), net.const(6))
    return classifier(net, net.conv(y, 96, 64, 1), 64)


def dense() -> Graph:
    net = Net(1, 32, 12, 12)
    y = net.conv("x", 32, 32)
    for layer in range(3):
        channels = 32 * (layer + 1)
        scaled = net.add("Mul", y, net.const(RNG.random((channels, 1, 1)) + 0.5))
        y = net.add("Concat", y, net.conv(net.add("Relu", scaled), channels, 32), axis=1)
    y = net.add("AveragePool", y, kernel_shape=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))
    return classifier(net, net.conv(y, 128, 64, 1), 64)


def shuffled() -> Graph:
    net = Net(1, 32, 8, 10)
    left = net.add("Relu", net.conv("x", 32, 64, 1))
    left = net.conv(left, 64, 64, 3, group=64)
    apart = net.add("Reshape", left, net.const([1, 4, 16, 8, 10], np.int64))
    turned = net.add("Transpose", apart, perm=(0, 2, 1, 3, 4))
    y = net.add("Reshape", turned, net.const([1, 64, 8, 10], np.int64))
    y = net.add("Add", net.conv(net.add("Relu", y), 64, 64, 3, group=64), left)
    scale, bias = net.const(RNG.random(64) + 0.5), net.const(RNG.standard_normal(64))
    y = net.add("GroupNormalization", y, scale, bias, num_groups=8, epsilon=1e-5)
    return classifier(net, net.conv(y, 64, 64), 64)


def pyramid() -> Graph:
    net = Net(1, 32, 16, 12)
    fine = net.add("Sigmoid", net.conv("x", 32, 64, 3))
    coarse = net.add("Relu", net.conv(fine, 64, 64, 3, stride=2))
    up = net.add(
        "Resize", coarse, "", net.const([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    y = net.conv(net.add("Concat", fine, up, axis=1), 128, 64)
    half = net.add("Split", y, net.const([32, 32], np.int64), outputs=2, axis=1)
    cut = net.add("Slice", half, *(net.const(v, np.int64) for v in ([1], [9], [2], [1])))
    padded = net.add("Pad", cut, net.const([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
    return net.done(net.conv(padded, 32, 64), net.conv(net.graph.nodes[-3].inputs[0], 32, 64))


def volume() -> Graph:
    net = Net(1, 32, 6, 8, 7)
    scale, bias = net.const(RNG.random(32) + 0.5), net.const(RNG.standard_normal(32))
    normal = net.add("InstanceNormalization", net.volume_conv("x", 32, 32), scale, bias, epsilon=1e-5)
    fine = net.add("Relu", normal)
    coarse = net.add("AveragePool", fine, **window(3, 1, 3))
    coarse = net.add("MaxPool", coarse, kernel_shape=(2, 2, 2), pads=(0,) * 6, strides=(2, 2, 2))
    coarse = net.add("Mul", net.volume_conv(coarse, 32, 32), net.const(RNG.random((32, 1, 1, 1))))
    up = net.add(
        "Resize", coarse, "", "", net.const([1, 32, 6, 8, 7], np.int64), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    w = net.const(RNG.standard_normal((32, 32, 2, 2, 2)) / 6)
    wide = net.add("ConvTranspose", coarse, w, strides=(2, 2, 2), output_padding=(0, 0, 1), group=1)
    y = net.volume_conv(net.add("Concat", fine, up, wide, axis=1), 96, 64, 2)
    padded = net.add("Pad", y, net.const([0, 0, 1, 0, 0, 0, 0, 2, 0, 1], np.int64))
    return classifier(net, net.volume_conv(padded, 64, 64), 64)


@pytest.mark.parametrize("make", [residual, squeeze_excite, dense, shuffled, pyramid, volume])
def test_a_network_runs_with_its_channels_last_from_end_to_end(make: object) -> None:
    graph = make()  # type: ignore[operator]
    found = optimized(graph)
    native = found["native"]
    ops = Counter(node.op for node in native.nodes)
    assert not ops["Conv"] + ops["ConvTranspose"], ops
    rank = len(graph.type("x").shape)  # type: ignore[arg-type]
    moved = [n for n in native.nodes if n.op == "Transpose" and len(n.attrs["perm"]) == rank]  # type: ignore[arg-type]
    real = [n for n in moved if native.type(n.inputs[0]).shape[1:3] != (1, 1)]  # type: ignore[index]
    assert len(real) <= 1 + len(graph.outputs) * (make is pyramid), [str(n) for n in real]
    assert not any(node.op.startswith(OWN) for node in found["portable"].nodes)
    assert all(any("channels_last" in rule for rule in n.rules) for n in native.nodes if n.op.startswith(OWN))
    compare(graph, native)


def test_automatic_padding_keeps_no_convolution_from_channels_last() -> None:
    net = Net(1, 32, 16, 12)
    w, steps = net.const(RNG.standard_normal((32, 1, 5, 5))), {"strides": (1, 1), "dilations": (1, 1)}
    y = net.add("Conv", net.conv("x", 32, 32), w, auto_pad="SAME_UPPER", kernel_shape=(5, 5), group=32, **steps)
    graph = classifier(net, net.conv(net.add("Relu", y), 32, 64), 64)
    native = optimized(graph)["native"]
    assert not any(node.op == "Conv" for node in native.nodes)
    compare(graph, native)


def test_rules_that_made_a_node_before_are_still_named() -> None:
    net = Net(1, 32, 8, 8)
    y = net.conv("x", 32, 64)
    graph = classifier(net, net.add("Mul", y, net.const(RNG.random((64, 1, 1)) + 1)), 64)
    native = optimized(graph)["native"]
    (conv,) = [n for n in native.nodes if n.op == "rewrite.ChannelsLastConv"]
    assert {"conv_bias_mul", "channels_last_conv"} <= set(conv.rules)
    assert {"Conv0", "Mul1"} <= set(conv.origins)


def price(op: str, channels: int, filters: int, size: int, kernel: int = 1, group: int = 1) -> float:
    w = TensorType(DType.F32, (filters, channels // group, kernel, kernel))
    first = op == "Conv"
    shapes = [(1, c, size, size) if first else (1, size, size, c) for c in (channels, filters)]
    attrs = {"group": group, "strides": (1, 1), "dilations": (1, 1), "kernel_shape": (kernel, kernel)}
    x, y = (TensorType(DType.F32, s) for s in shapes)
    return CostModel("latency", "native", MACHINE).node_cost(op, attrs, [x, w], [y], [False, True])


@pytest.mark.parametrize(
    ("sizes", "kernel", "group", "last"),
    [
        ((144, 24, 56), 1, 1, False),  # a vector and a half of filters
        ((160, 960, 7), 1, 1, True),  # three vectors and a bit of pixels
        ((576, 576, 14), 3, 576, True),  # depthwise
        ((256, 1024, 14), 1, 1, True),
    ],
)
def test_layouts_are_priced_as_they_were_measured(
    sizes: tuple[int, int, int], kernel: int, group: int, last: bool
) -> None:
    ours = price("rewrite.ChannelsLastConv", *sizes, kernel, group)
    assert (ours < price("Conv", *sizes, kernel, group)) is last


def test_winograds_algorithm_takes_much_less_than_the_direct_one() -> None:
    shape = conv_cycles.Convolution(1, 56 * 56, 56, 1, 64, 64, 9, 1, True, 3, 16)
    assert conv_cycles.conv_nhwc(shape) < 0.5 * conv_cycles.conv_nhwc(replace(shape, square=0))
    assert conv_cycles.conv_nchw(replace(shape, channels=60)) > 2 * conv_cycles.conv_nchw(shape)
