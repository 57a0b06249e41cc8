"""Kernels that a machine is calibrated with: short networks of layers as they occur in real ones.

A layer reads what the one before wrote, as in a model, so inputs are in the caches where a model has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.ir.graph import Constant, DType, Graph, Node, TensorType

_SCALE = 0.1  # of weights: results stay far from overflow and from denormal numbers


@dataclass
class _Networks:
    """A graph in the making. Methods add a layer to the value at hand and return its result.

    `last`: images have their channels last."""

    last: bool = False
    graph: Graph = field(default_factory=lambda: Graph(opset={"": 23}))
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def input(self, *shape: int) -> str:
        """Add an input. An image is given as (images, channels, height, width), whatever the layout."""
        name = f"x{len(self.graph.inputs)}"
        self.graph.inputs += (name,)
        self.graph.types[name] = TensorType(DType.F32, self._laid_out(shape))
        return name

    def shape(self, value: str) -> tuple[int, ...]:
        """Return the shape of a value, images as (images, channels, height, width)."""
        found = tuple(d for d in self.graph.type(value).shape or () if isinstance(d, int))
        return (found[0], found[3], found[1], found[2]) if self.last and len(found) == 4 else found

    def conv(self, x: str, filters: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        """Convolution, padded so that stride 1 keeps the size."""
        weights, bias = self.constant(filters, self.shape(x)[1] // group, kernel, kernel), self.constant(filters)
        attrs, out = self._filter(x, filters, kernel, stride, group)
        return self._image("Conv", (x, weights, bias), out, attrs)

    def conv_transpose(self, x: str, filters: int) -> str:
        """Transposed convolution, 2 x 2, that doubles an image."""
        n, channels, h, w = self.shape(x)
        attrs: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (2, 2)}
        weights = self.constant(channels, filters, 2, 2)
        return self._image("ConvTranspose", (x, weights), (n, filters, 2 * h, 2 * w), attrs)

    def pool(self, x: str, op: str = "MaxPool", kernel: int = 3, stride: int = 2) -> str:
        """Pool, padded so that stride 1 keeps the size."""
        n, channels, h, w = self.shape(x)
        pad = kernel // 2
        attrs: dict[str, Any] = {"kernel_shape": (kernel, kernel), "strides": (stride, stride), "pads": (pad,) * 4}
        out = (n, channels, *((s + 2 * pad - kernel) // stride + 1 for s in (h, w)))
        return self._image(op, (x,), out, attrs)

    def resize(self, x: str, mode: str) -> str:
        """Image of twice the size."""
        n, channels, h, w = self.shape(x)
        scales = self._add(np.array(self._laid_out((1, 1, 2, 2)), np.float32))
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
        if mode == "nearest":
            attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", (x, "", scales), self._laid_out((n, channels, 2 * h, 2 * w)), attrs)

    def squeezed(self, x: str, channels: int) -> str:
        """Squeeze-and-excitation: a factor for each channel, computed from the means of all."""
        gate = self.conv(self.conv(self.mean(x), channels), self.shape(x)[1])
        return self.node("Mul", (x, gate), self._own(x))

    def mean(self, x: str) -> str:
        """Mean of each channel of an image."""
        n, channels, _, _ = self.shape(x)
        axes = self._add(np.array([1, 2] if self.last else [2, 3], np.int64))
        return self.node("ReduceMean", (x, axes), self._laid_out((n, channels, 1, 1)), {"keepdims": 1})

    def matmul(self, x: str, columns: int) -> str:
        """Product of rows with a constant."""
        *rows, depth = self.shape(x)
        return self.node("MatMul", (x, self.constant(depth, columns)), (*rows, columns))

    def layer_norm(self, x: str) -> str:
        """Normalization of rows."""
        shape = self.graph.type(x).shape or ()
        width = int(shape[-1]) if isinstance(shape[-1], int) else 0
        factors, bias = self.constant(width), self.constant(width)
        return self.node("LayerNormalization", (x, factors, bias), self._own(x), {"axis": -1})

    def elementwise(self, op: str, *values: str) -> str:
        """Elementwise operator on values of one shape."""
        return self.node(op, values, self._own(values[0]))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """Permutation of axes, of shapes as they are in memory."""
        shape = self._own(x)
        return self.node("Transpose", (x,), tuple(shape[p] for p in perm), {"perm": tuple(perm)})

    def padded(self, x: str) -> str:
        """Image with a border, as it is in memory."""
        shape = self._own(x)
        pads = self._add(np.array([0, 0, 1, 1] * 2, np.int64))
        return self.node("Pad", (x, pads), (*shape[:2], shape[2] + 2, shape[3] + 2))

    def concat(self, axis: int, *values: str) -> str:
        """Concatenation, of shapes as they are in memory."""
        shape = list(self._own(values[0]))
        shape[axis] = sum(self._own(value)[axis] for value in values)
        return self.node("Concat", values, tuple(shape), {"axis": axis})

    def attention(self, heads: int, length: int, width: int) -> str:
        """Attention of queries, keys and values that are inputs."""
        self.last = False
        q, k, v = (self.input(1, heads, length, width) for _ in range(3))
        attrs: dict[str, Any] = {"scale": 1 / math.sqrt(width)}
        return self.node("rewrite.ScaledDotProductAttention", (q, k, v), (1, heads, length, width), attrs)

    def product(self, heads: int, rows: int, depth: int, columns: int) -> str:
        """Products of matrices that are both computed."""
        left, right = self.input(1, heads, rows, depth), self.input(1, heads, depth, columns)
        return self.node("MatMul", (left, right), (1, heads, rows, columns))

    def lstm(self, steps: int, width: int, hidden: int) -> str:
        """Forward LSTM over one sequence."""
        x = self.input(steps, 1, width)
        w, r, b = (self.constant(1, *shape) for shape in ((4 * hidden, width), (4 * hidden, hidden), (8 * hidden,)))
        return self.node("LSTM", (x, w, r, b), (steps, 1, 1, hidden), {"hidden_size": hidden})

    def quantize(self, x: str) -> str:
        """Bytes that stand for some numbers."""
        scale, zero = self._add(np.array(_SCALE, np.float32)), self._add(np.array(128, np.uint8))
        return self.node("QuantizeLinear", (x, scale, zero), self._own(x), dtype=DType.U8)

    def conv_of_bytes(self, x: str, filters: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        """Convolution of bytes, whose results are scaled and quantized again."""
        weights = self._bytes(filters, self.shape(x)[1] // group, kernel, kernel)
        attrs, out = self._filter(x, filters, kernel, stride, group)
        sums = self._image("ConvInteger", (x, weights), out, attrs, DType.I32)
        scales, bias = (self._add(self._random(*self._laid_out((1, filters, 1, 1)))) for _ in range(2))
        scaled = self.node("Mul", (self._floats(sums), scales), self._own(sums))
        return self.quantize(self.node("Add", (scaled, bias), self._own(sums)))

    def matmul_of_bytes(self, x: str, columns: int) -> str:
        """Product of rows, quantized by their extremes, with a constant."""
        *rows, depth = self.shape(x)
        shape = (*rows, columns)
        bytes_ = self.node("DynamicQuantizeLinear", (x,), self._own(x), dtype=DType.U8, more=(DType.F32, DType.U8))
        _, scale, zero = self.graph.nodes[-1].outputs
        sums = self.node("MatMulInteger", (bytes_, self._bytes(depth, columns), zero), shape, dtype=DType.I32)
        factor = self.node("Mul", (scale, self._add(np.array(_SCALE, np.float32))), ())
        scaled = self.node("Mul", (self._floats(sums), factor), shape)
        return self.node("Add", (scaled, self.constant(columns)), shape)

    def constant(self, *shape: int) -> str:
        """Add random weights."""
        return self._add(self._random(*shape))

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attrs: dict[str, Any] | None = None,
        dtype: DType = DType.F32,
        more: Sequence[DType] = (),
    ) -> str:
        """Add a node and return its result, whose shape is as in memory; `more` results that are numbers follow it."""
        name = f"v{len(self.graph.nodes)}"
        others = {f"{name}_{i}": TensorType(kind, ()) for i, kind in enumerate(more)}
        self.graph.nodes.append(Node(op, tuple(inputs), (name, *others), attrs or {}, name=name))
        self.graph.types |= {name: TensorType(dtype, tuple(shape))} | others
        return name

    def finished(self) -> Graph:
        """Return the graph, whose outputs are the values that no node reads."""
        read = {v for node in self.graph.nodes for v in node.inputs}
        self.graph.outputs = tuple(v for node in self.graph.nodes for v in node.outputs if v not in read)
        return self.graph

    def _image(
        self, op: str, inputs: Sequence[str], out: tuple[int, ...], attrs: dict[str, Any], dtype: DType = DType.F32
    ) -> str:
        return self.node(f"rewrite.ChannelsLast{op}" if self.last else op, inputs, self._laid_out(out), attrs, dtype)

    def _filter(
        self, x: str, filters: int, kernel: int, stride: int, group: int
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return the attributes of a padded convolution, and the shape of its result."""
        n, _, h, w = self.shape(x)
        pad = kernel // 2
        attrs: dict[str, Any] = {
            "kernel_shape": (kernel, kernel), "strides": (stride, stride), "pads": (pad,) * 4, "group": group,
        }  # fmt: skip
        return attrs, (n, filters, *((s + 2 * pad - kernel) // stride + 1 for s in (h, w)))

    def _floats(self, x: str) -> str:
        return self.node("Cast", (x,), self._own(x), {"to": DType.F32.onnx})

    def _random(self, *shape: int) -> NDArray[np.float32]:
        return (_SCALE * self.random.standard_normal(shape)).astype(np.float32)

    def _bytes(self, *shape: int) -> str:
        return self._add(self.random.integers(-127, 128, shape, np.int8))

    def _laid_out(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], *shape[2:], shape[1]) if self.last and len(shape) == 4 else shape

    def _own(self, value: str) -> tuple[int, ...]:
        return tuple(d for d in self.graph.type(value).shape or () if isinstance(d, int))

    def _add(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.graph.constants)}"
        self.graph.constants[name] = Constant(array)
        self.graph.types[name] = self.graph.constants[name].type
        return name


def suite() -> list[Graph]:
    """Return the graphs of all networks."""
    found = []
    for networks, last in ((_IMAGES, False), (_IMAGES, True), (_QUANTIZED, True), (_OTHERS, False)):
        for add in networks:
            made = _Networks(last=last)
            add(made)
            found.append(made.finished())
    return found


def _mobile(n: _Networks) -> None:
    """Add depthwise filters between products, and squeeze-and-excitation."""
    x = n.conv(n.input(1, 3, 160, 160), 32, 3, 2)
    x = n.conv(n.squeezed(n.conv(x, 32, 3, group=32), 8), 16)
    x = n.conv(n.conv(x, 96), 96, 3, 2, group=96)
    x = n.conv(n.conv(x, 24), 144)
    x = n.conv(n.squeezed(n.conv(x, 144, 5, group=144), 8), 40)
    x = n.conv(n.conv(x, 240), 240, 3, 2, group=240)
    x = n.conv(n.squeezed(x, 10), 80)
    x = n.conv(n.conv(x, 480), 480, 5, 2, group=480)
    x = n.conv(n.squeezed(x, 20), 112)
    x = n.conv(n.conv(x, 672), 672, 5, group=672)
    x = n.conv(n.conv(x, 192), 960)
    n.mean(x)


def _residual(n: _Networks) -> None:
    """Add 3 x 3 filters, and products between few and many channels."""
    x = n.conv(n.input(1, 64, 28, 28), 128, 3)
    x = n.conv(n.conv(x, 128, 3), 512)
    x = n.conv(n.conv(x, 128), 128, 3, 2)
    x = n.conv(n.conv(x, 256, 3), 256, 3)
    x = n.conv(n.conv(x, 1024), 256)
    x = n.conv(x, 512, 3, 2)
    x = n.conv(n.conv(x, 512, 3), 128)
    n.mean(n.conv(x, 32, 3))


def _first_layers(n: _Networks) -> None:
    """Add first layers, pools, patches and wide depthwise filters."""
    x = n.conv(n.input(1, 3, 224, 224), 64, 7, 2)
    x = n.conv(n.pool(x), 64, 3)
    x = n.conv(n.conv(x, 192, 3), 32)
    n.conv(n.pool(n.conv(x, 96, 3), stride=1), 64)
    n.conv(n.input(1, 3, 224, 224), 16, 3, 2)
    x = n.conv(n.input(1, 3, 96, 96), 48, 4, 4)
    x = n.conv(x, 96, 7, group=48)
    x = n.conv(n.conv(x, 192, 2, 2), 192, 7, group=192)
    n.pool(n.conv(x, 384), "AveragePool", 2)


def _narrow(n: _Networks) -> None:
    """Add grouped filters, squeezed layers, decoders, and large images of few channels."""
    x = n.conv(n.input(1, 128, 28, 28), 128, 3, group=32)
    x = n.conv(n.conv(x, 256, 3, 2, group=32), 256, 3, group=4)
    n.conv(x, 128, group=4)
    x = n.conv(n.input(1, 48, 13, 13), 192, 3)
    n.pool(n.conv(n.conv(x, 32), 128, 3), stride=1)
    x = n.conv_transpose(n.input(1, 128, 14, 14), 64)
    x = n.resize(n.conv(x, 32, 3), "linear")
    n.resize(n.conv(x, 16, 3), "nearest")
    x = n.conv(n.input(1, 16, 160, 160), 16, 3)
    n.conv(n.conv(x, 32, 3), 3, 3)


def _quantized(n: _Networks) -> None:
    """Add layers of bytes: a first layer, 3 x 3 filters, products, and depthwise filters."""
    x = n.conv_of_bytes(n.quantize(n.input(1, 3, 112, 112)), 32, 3, 2)
    x = n.conv_of_bytes(n.conv_of_bytes(x, 32, 3, group=32), 16)
    x = n.conv_of_bytes(n.conv_of_bytes(x, 96), 96, 3, 2, group=96)
    x = n.conv_of_bytes(n.conv_of_bytes(x, 64), 64, 3)
    x = n.conv_of_bytes(n.conv_of_bytes(x, 128, 3, 2), 128, 3)
    x = n.conv_of_bytes(n.conv_of_bytes(x, 512), 128)
    x = n.conv_of_bytes(n.conv_of_bytes(x, 256, 3, 2), 256, 3)
    n.conv_of_bytes(n.conv_of_bytes(x, 960), 960, 3, group=960)


def _rows(n: _Networks) -> None:
    """Add products, normalizations and attention."""
    x = n.layer_norm(n.matmul(n.input(128, 256), 768))
    x = n.layer_norm(n.matmul(n.matmul(x, 1536), 256))
    n.elementwise("Softmax", n.matmul(x, 128))
    x = n.layer_norm(n.matmul(n.input(1, 784, 96), 384))
    n.layer_norm(n.matmul(x, 96))
    n.matmul(n.matmul(n.matmul(n.input(196, 384), 1152), 100), 10)
    n.attention(4, 128, 64)
    n.attention(6, 197, 32)
    n.elementwise("Softmax", n.product(4, 128, 64, 128))
    n.product(4, 128, 128, 64)
    n.product(6, 197, 32, 197)


def _packed(n: _Networks) -> None:
    """Add layers of bytes in NCHW layout, whose channels are packed into words first."""
    x = n.conv_of_bytes(n.quantize(n.input(1, 64, 28, 28)), 128)
    n.conv_of_bytes(n.conv_of_bytes(x, 128, 3), 64, 3, 2)


def _rows_of_bytes(n: _Networks) -> None:
    """Add products of quantized rows."""
    x = n.matmul_of_bytes(n.input(64, 256), 256)
    x = n.matmul_of_bytes(n.matmul_of_bytes(x, 1024), 256)
    n.matmul_of_bytes(n.input(128, 768), 768)


def _few_rows(n: _Networks) -> None:
    """Add products of few rows, whose time is that of reading weights, and a recurrent layer."""
    n.matmul(n.matmul(n.matmul(n.input(8, 512), 1280), 512), 1)
    n.matmul(n.matmul(n.input(1, 256), 256), 1024)
    n.matmul(n.input(1, 1280), 1000)
    n.layer_norm(n.input(8, 256))
    n.attention(4, 8, 64)
    n.lstm(32, 128, 128)


def _small(n: _Networks) -> None:
    """Add elementwise operators, reductions and movement of what the inner caches hold."""
    for channels, side in ((544, 7), (240, 14), (128, 28)):
        _moved(n, channels, side)
        x = n.transpose(n.input(1, 4, channels // 4, side, side), (0, 2, 1, 3, 4))
        n.transpose(n.transpose(x, (0, 2, 1, 3, 4)), (0, 2, 3, 4, 1))


def _large(n: _Networks) -> None:
    """Add the same of what they do not hold."""
    for channels, side in ((64, 56), (64, 112)):
        _moved(n, channels, side)


def _moved(n: _Networks, channels: int, side: int) -> None:
    one, other = (n.padded(n.input(1, channels, side, side)) for _ in range(2))
    n.mean(one)
    added = n.elementwise("Add", one, other)
    x = n.transpose(n.elementwise("Softmax", added), (0, 2, 3, 1))
    x = n.elementwise("Exp", n.concat(3, x, x))
    x = n.transpose(x, (0, 3, 1, 2))
    n.mean(n.elementwise("Relu", n.padded(n.concat(1, x, x))))


_IMAGES = (_mobile, _residual, _first_layers, _narrow)
"""Networks of images, in both layouts."""
_QUANTIZED = (_quantized,)
"""Networks of images whose channels are last."""
_OTHERS = (_packed, _rows_of_bytes, _rows, _few_rows, _small, _large)
