"""Small networks of every kind in f32, and their conversion to another float type."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

NUMPY = {
    "f16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bf16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "f32": (TensorProto.FLOAT, np.dtype(np.float32)),
    "f64": (TensorProto.DOUBLE, np.dtype(np.float64)),
}
"""ONNX's number of each float type, and its NumPy type."""
Array = NDArray[np.generic]


def converted(model: ModelProto, name: str, source: str = "f32") -> ModelProto:
    """Return a model with all values of one float type in another."""
    before, (after, dtype) = NUMPY[source][0], NUMPY[name]

    def tensor(proto: TensorProto) -> None:
        if proto.data_type == before:
            array = numpy_helper.to_array(proto).astype(dtype)
            proto.CopyFrom(helper.make_tensor(proto.name, after, array.shape, array.tobytes(), raw=True))

    def graph(part: GraphProto) -> None:
        for constant in part.initializer:
            tensor(constant)
        for value in (*part.input, *part.output, *part.value_info):
            if value.type.tensor_type.elem_type == before:
                value.type.tensor_type.elem_type = after
        for attribute in (a for node in part.node for a in node.attribute):
            if attribute.type == AttributeProto.TENSOR:
                tensor(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                graph(attribute.g)
            elif attribute.name in ("to", "dtype") and attribute.i == before:
                attribute.i = after

    found = ModelProto()
    found.CopyFrom(model)
    graph(found.graph)
    return found


def _model(
    nodes: Sequence[NodeProto], shape: Sequence[int], outputs: Sequence[str], weights: dict[str, Array], opset: int = 21
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    known = {v.name: v for v in (*inferred.graph.output, *inferred.graph.value_info)}
    for output in model.graph.output:
        output.CopyFrom(known[output.name])
    return model


def _weights(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def convolutional() -> ModelProto:
    """Convolutions of several kinds with batch normalization, pools, a residual, and a classifier."""
    rng, node = np.random.default_rng(1), helper.make_node
    weights = {
        "A": _weights(rng, 16, 3, 3, 3),
        "B": _weights(rng, 16, 1, 3, 3),
        "C": _weights(rng, 24, 16, 1, 1),
        "D": _weights(rng, 24, 24, 3, 3),
        "T": _weights(rng, 24, 6, 2, 2),
        "W": _weights(rng, 10, 6),
        "b": _weights(rng, 10, 1)[:, 0],
        **{k: rng.uniform(0.5, 1.5, 16).astype(np.float32) for k in ("scale", "shift", "mean", "var")},
    }
    nodes = [
        node("Conv", ["x", "A"], ["a"], pads=[1] * 4, strides=[2, 2]),
        node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "B"], ["d"], pads=[1] * 4, group=16),
        node("HardSwish", ["d"], ["h"]),
        node("MaxPool", ["h"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["p", "C"], ["c"]),
        node("Conv", ["c", "D"], ["e"], pads=[1] * 4),
        node("Add", ["c", "e"], ["s"]),
        node("AveragePool", ["s"], ["v"], kernel_shape=[2, 2], strides=[1, 1]),
        node("ConvTranspose", ["v", "T"], ["t"], strides=[2, 2]),
        node("Sigmoid", ["t"], ["g"]),
        node("GlobalAveragePool", ["g"], ["m"]),
        node("Flatten", ["m"], ["f"]),
        node("Gemm", ["f", "W", "b"], ["l"], transB=1),
        node("Softmax", ["l"], ["y"]),
    ]
    return _model(nodes, [2, 3, 24, 24], ["y", "g"], weights)


def transformer() -> ModelProto:
    """A layer of a transformer by its parts: masked attention, layer normalizations, Gelu by Erf, positions."""
    rng, node = np.random.default_rng(2), helper.make_node
    weights = {
        "position": _weights(rng, 12, 32),
        **{k: _weights(rng, 32, 32) for k in ("Q", "K", "V", "O")},
        "U": _weights(rng, 32, 64),
        "D": _weights(rng, 64, 32),
        "bias": _weights(rng, 64, 1)[:, 0],
        **{k: rng.uniform(0.5, 1.5, 32).astype(np.float32) for k in ("g1", "b1", "g2", "b2")},
        "mask": np.triu(np.full((12, 12), -60000, np.float32), 1),
        "heads": np.array([2, 12, 4, 8]),
        "joined": np.array([2, 12, 32]),
        "root": np.float32(8**-0.5),
        "half": np.float32(0.5),
        "one": np.float32(1),
        "r2": np.float32(0.5**0.5),
    }
    nodes = [
        node("Add", ["x", "position"], ["e"]),
        node("LayerNormalization", ["e", "g1", "b1"], ["n"]),
    ]
    for k in "QKV":
        nodes += [node("MatMul", ["n", k], [f"{k}p"]), node("Reshape", [f"{k}p", "heads"], [f"{k}h"])]
        nodes.append(node("Transpose", [f"{k}h"], [f"{k}t"], perm=[0, 2, 3, 1] if k == "K" else [0, 2, 1, 3]))
    nodes += [
        node("MatMul", ["Qt", "Kt"], ["s"]),
        node("Mul", ["s", "root"], ["z"]),
        node("Add", ["z", "mask"], ["w"]),
        node("Softmax", ["w"], ["p"]),
        node("MatMul", ["p", "Vt"], ["c"]),
        node("Transpose", ["c"], ["ct"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ct", "joined"], ["j"]),
        node("MatMul", ["j", "O"], ["o"]),
        node("Add", ["o", "e"], ["r"]),
        node("LayerNormalization", ["r", "g2", "b2"], ["m"]),
        node("MatMul", ["m", "U"], ["u"]),
        node("Add", ["u", "bias"], ["ub"]),
        node("Mul", ["ub", "r2"], ["t"]),
        node("Erf", ["t"], ["f"]),
        node("Add", ["f", "one"], ["f1"]),
        node("Mul", ["ub", "f1"], ["g"]),
        node("Mul", ["g", "half"], ["h"]),
        node("MatMul", ["h", "D"], ["d"]),
        node("Add", ["d", "r"], ["y"]),
    ]
    return _model(nodes, [2, 12, 32], ["y"], weights)


def recurrent() -> ModelProto:
    """A bidirectional LSTM, a GRU, and a plain RNN, one after the other."""
    rng, node = np.random.default_rng(3), helper.make_node
    weights = {
        "W": _weights(rng, 2, 64, 8) * 4,
        "R": _weights(rng, 2, 64, 16) * 4,
        "B": _weights(rng, 2, 128),
        "W2": _weights(rng, 1, 36, 32) * 3,
        "R2": _weights(rng, 1, 36, 12) * 3,
        "B2": _weights(rng, 1, 72),
        "W3": _weights(rng, 1, 7, 12) * 2,
        "R3": _weights(rng, 1, 7, 7) * 2,
        "shape": np.array([9, 2, 32]),
        "axis": np.array([1]),
    }
    nodes = [
        node("LSTM", ["x", "W", "R", "B"], ["a"], hidden_size=16, direction="bidirectional"),
        node("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "shape"], ["j"]),
        node("GRU", ["j", "W2", "R2", "B2"], ["g"], hidden_size=12, linear_before_reset=1),
        node("Squeeze", ["g", "axis"], ["q"]),
        node("RNN", ["q", "W3", "R3"], ["y", "last"], hidden_size=7),
    ]
    return _model(nodes, [9, 2, 8], ["y", "last"], weights)


def control() -> ModelProto:
    """A loop that carries a state and stacks results, a scan with a product inside, and a choice by a sum."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    net (float[6,5] x) => (float[5] y, float[4,5] ys, float[6,5] zs, float[6,5] c) <int64[1] axes = {0}>
    {
      n = Constant <value = int64 {4}> ()
      yes = Constant <value = bool {1}> ()
      zero = Constant <value = float {0.0}> ()
      quarter = Constant <value = float {0.25}> ()
      start = ReduceMean <keepdims = 0> (x, axes)
      y, ys = Loop(n, yes, start) <body = step (int64 i, bool on, float[5] h) => (bool again, float[5] g, float[5] s) {
        again = Identity(on) m = Mul(h, quarter) e = Tanh(m) g = Add(e, start) s = Exp(g) }>
      last, zs = Scan <num_scan_inputs = 1, body = cell (float[5] h, float[5] r) => (float[5] k, float[5] o) {
        p = MatMul(h, W) q = Add(p, r) k = Tanh(q) o = Identity(k) }> (start, x)
      all = ReduceSum <keepdims = 0> (x)
      is = Greater(all, zero)
      c = If(is) <then_branch = positive () => (float[6,5] a) { a = Sigmoid(x) },
                  else_branch = other () => (float[6,5] b) { b = Neg(x) }>
    }"""
    model: ModelProto = onnx.parser.parse_model(text)
    weights = _weights(np.random.default_rng(4), 5, 5)
    model.graph.initializer.append(numpy_helper.from_array(weights, "W"))
    return model


def quantized() -> ModelProto:
    """A convolution on quantized values between operators on floats: scales have the model's float type."""
    rng, node = np.random.default_rng(5), helper.make_node
    weights = {
        "scale": np.float32(1 / 32),
        "zero": np.uint8(128),
        "W": rng.integers(-100, 100, (8, 4, 3, 3)).astype(np.int8),
        "step": rng.uniform(0.002, 0.004, 8).astype(np.float32),
        "wide": np.float32(1 / 8),
        "wz": np.uint8(100),
    }
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("QuantizeLinear", ["t", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("DequantizeLinear", ["W", "step"], ["w"], axis=0),
        node("Conv", ["d", "w"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "wide", "wz"], ["p"]),
        node("DequantizeLinear", ["p", "wide", "wz"], ["e"]),
        node("Neg", ["e"], ["y"]),
    ]
    return _model(nodes, [1, 4, 9, 9], ["y"], weights)


def varied() -> ModelProto:
    """Data movement, reductions, resizing and elementwise functions."""
    node = helper.make_node
    weights = {
        "sizes": np.array([1, 3, 12, 10]),
        "pads": np.array([0, 0, 1, 2, 0, 0, 0, 1]),
        "value": np.float32(0.25),
        "low": np.float32(-0.5),
        "high": np.float32(2),
        "slope": np.array([[[0.1]], [[0.2]], [[0.3]]], np.float32),
        "axes": np.array([2, 3]),
        "last": np.array([-1]),
        "starts": np.array([1]),
        "ends": np.array([9]),
        "rows": np.array([2, 0, 1]),
        "three": np.float32(3),
    }
    nodes = [
        node("Pad", ["x", "pads", "value"], ["p"]),
        node("Resize", ["p", "", "", "sizes"], ["z"], mode="linear"),
        node("Clip", ["z", "low", "high"], ["c"]),
        node("PRelu", ["c", "slope"], ["r"]),
        node("InstanceNormalization", ["r", "one3", "zero3"], ["n"]),
        node("Slice", ["n", "starts", "ends", "last"], ["s"]),
        node("Gather", ["s", "rows"], ["g"], axis=1),
        node("Concat", ["s", "g"], ["k"], axis=1),
        node("ReduceL2", ["k", "axes"], ["l"], keepdims=1),
        node("Div", ["k", "l"], ["d"]),
        node("LogSoftmax", ["d"], ["o"], axis=1),
        node("CumSum", ["o", "axis"], ["u"]),
        node("Pow", ["d", "three"], ["w"]),
        node("Sin", ["w"], ["i"]),
        node("ReduceLogSumExp", ["i", "last"], ["e"], keepdims=0),
        node("LRN", ["x"], ["h"], size=3),
        node("MatMul", ["h", "x"], ["y"]),
    ]
    weights |= {"one3": np.ones(3, np.float32), "zero3": np.zeros(3, np.float32), "axis": np.array(3)}
    return _model(nodes, [1, 3, 6, 6], ["y", "e", "u"], weights)


NETS = {make.__name__: make for make in (convolutional, transformer, recurrent, control, quantized, varied)}


def mixed() -> ModelProto:
    """f16 with a softmax in f32, as exporters write it."""
    rng, node = np.random.default_rng(6), helper.make_node
    weights = {"W": _weights(rng, 24, 24), "V": _weights(rng, 24, 8), "g": rng.uniform(0.5, 1.5, 24).astype(np.float32)}
    nodes = [
        node("MatMul", ["x", "W"], ["a"]),
        node("Cast", ["a"], ["b"], to=TensorProto.DOUBLE),
        node("Softmax", ["b"], ["p"]),
        node("Cast", ["p"], ["q"], to=TensorProto.FLOAT),
        node("Mul", ["q", "g"], ["r"]),
        node("MatMul", ["r", "V"], ["y"]),
    ]
    return converted(converted(_model(nodes, [5, 24], ["y"], weights), "f16"), "f32", "f64")
