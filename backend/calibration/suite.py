"""Networks whose kernels are timed: a few layers of each template, at sizes that real networks have.

The layers form chains, as in a network: a kernel reads what the one before it wrote, and weights that were last read
one run ago. So caches are in the state that they have in a model. Nothing is optimized, so layouts are as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.graph import Constant, DType, Graph, Node, TensorType
from ...engine.operators import inference
from ...engine.operators.schemas import normalize_attrs

Array = NDArray[Any]
_OPSET = 23


class Network:
    """A graph in the making, with weights that are reproducible."""

    def __init__(self) -> None:
        self.graph = Graph((), (), opset={"": _OPSET})
        self._random = np.random.default_rng(7)
        self._count = 0

    def input(self, *shape: int) -> str:
        """Add an input of floats and return its name."""
        name = self._name()
        self.graph.inputs = (*self.graph.inputs, name)
        self.graph.types[name] = TensorType(DType.F32, shape)
        return name

    def constant(self, array: Array) -> str:
        """Add a constant and return its name."""
        name = self._name()
        self.graph.constants[name] = Constant(array)
        self.graph.types[name] = self.graph.constants[name].type
        return name

    def weights(self, *shape: int) -> str:
        """Add random floats that keep the size of results about constant."""
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:])))
        return self.constant(np.asarray(self._random.standard_normal(shape) * scale, np.float32))

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node and return its first output."""
        attrs = normalize_attrs(op, attributes)
        found = inference.infer(
            op,
            attrs,
            [self.graph.types[v] if v else None for v in inputs],
            [None] * len(inputs),
            1,
            constants=[self.graph.constants.get(v) for v in inputs],
        )
        name = self._name()
        self.graph.types[name] = found.types[0]
        self.graph.nodes.append(Node(op, tuple(inputs), (name,), attrs, name=name))
        return name

    def output(self, value: str) -> None:
        """Make a value an output."""
        self.graph.outputs = (*self.graph.outputs, value)

    def shape(self, value: str) -> tuple[int, ...]:
        """Return the shape of a value, which is static."""
        shape = self.graph.type(value).shape
        assert shape is not None
        return tuple(int(d) for d in shape if isinstance(d, int))

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"


class Images:
    """Layers of images in one layout: `last` is NHWC."""

    def __init__(self, net: Network, last: bool) -> None:
        self._net, self.last = net, last

    def input(self, channels: int, size: int) -> str:
        """Add an image as an input."""
        return self._net.input(*((1, size, size, channels) if self.last else (1, channels, size, size)))

    def channels(self, x: str) -> int:
        """Return the number of channels of an image."""
        return self._net.shape(x)[-1 if self.last else 1]

    def conv(self, x: str, filters: int, size: int, stride: int = 1, groups: int = 1) -> str:
        """Add a padded convolution with a bias and Relu."""
        inputs = [x, self._net.weights(filters, self.channels(x) // groups, size, size), self._net.weights(filters)]
        op = "rewrite.ChannelsLastConv" if self.last else "Conv"
        return self._net.add("Relu", [self._net.add(op, inputs, group=groups, **_window(size, stride, size // 2))])

    def depthwise(self, x: str, size: int, stride: int = 1) -> str:
        """Add a convolution of each channel by itself."""
        return self.conv(x, self.channels(x), size, stride, self.channels(x))

    def transposed(self, x: str, filters: int) -> str:
        """Add a transposed convolution that doubles the height and width."""
        op = "rewrite.ChannelsLastConvTranspose" if self.last else "ConvTranspose"
        inputs = [x, self._net.weights(self.channels(x), filters, 2, 2), self._net.weights(filters)]
        return self._net.add(op, inputs, **_window(2, 2, 0))

    def pool(self, x: str, op: str, size: int, stride: int) -> str:
        """Add a pool."""
        op = f"rewrite.ChannelsLast{op}" if self.last else op
        return self._net.add(op, [x], **_window(size, stride, size // 2 if stride < size else 0))

    def resize(self, x: str, mode: str) -> str:
        """Double the height and width."""
        scales = self._net.constant(np.array([1, 2, 2, 1] if self.last else [1, 1, 2, 2], np.float32))
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
        return self._net.add("Resize", [x, "", scales], mode=mode, **how)

    def concat(self, x: str, y: str) -> str:
        """Concatenate the channels of two images."""
        return self._net.add("Concat", [x, y], axis=3 if self.last else 1)


def _window(size: int, stride: int, pad: int) -> dict[str, Any]:
    sides: dict[str, Any] = {"kernel_shape": (size, size), "strides": (stride, stride), "pads": (pad,) * 4}
    return sides


def classic(net: Network, *, last: bool) -> None:
    """Add full convolutions: few and many channels and pixels, with and without strides, and pools."""
    image = Images(net, last)
    x = image.conv(image.input(3, 224), 64, 7, 2)
    x = image.conv(image.pool(x, "MaxPool", 3, 2), 64, 1)
    x = image.conv(image.conv(x, 64, 3), 128, 1)
    x = image.conv(image.conv(image.conv(x, 32, 1), 48, 3), 128, 3, 2)
    x = image.conv(image.conv(x, 128, 3), 256, 3, 2)
    x = image.conv(image.conv(image.conv(x, 256, 3), 64, 1), 512, 1)
    x = image.conv(image.conv(image.conv(x, 128, 1, 2), 160, 3), 512, 1)
    x = image.pool(image.conv(x, 512, 3, 2, 8), "AveragePool", 3, 1)
    net.output(net.add("GlobalAveragePool", [x]) if not last else x)
    x = image.conv(image.conv(image.input(3, 192), 24, 3), 24, 3)
    x = image.pool(image.conv(image.conv(x, 8, 3), 64, 1), "MaxPool", 2, 2)
    net.output(image.transposed(image.transposed(x, 32), 16))


def mobile(net: Network, *, last: bool) -> None:
    """Add depthwise and grouped convolutions between narrow ones, and layers that change sizes."""
    image = Images(net, last)
    x = image.conv(image.input(3, 160), 32, 3, 2)
    x = image.conv(image.conv(image.depthwise(x, 3), 16, 1), 96, 1)
    x = image.conv(image.conv(image.depthwise(x, 3, 2), 24, 1), 144, 1)
    x = image.conv(image.conv(image.depthwise(x, 5, 2), 40, 1), 240, 1)
    x = image.conv(image.depthwise(image.depthwise(x, 3), 7), 96, 1)
    y = image.conv(image.conv(image.resize(image.pool(x, "MaxPool", 2, 2), "nearest"), 128, 1), 128, 3, 1, 32)
    y = image.conv(image.conv(image.concat(x, y), 192, 1), 192, 3, 1, 3)
    y = image.conv(image.resize(image.conv(y, 24, 1), "linear"), 8, 1)
    z = image.conv(image.resize(image.pool(x, "AveragePool", 2, 2), "linear"), 16, 3)
    net.output(z)
    net.output(y)


def text(net: Network) -> None:
    """Add products, attention, normalizations and elementwise functions of sequences."""
    width, heads, length = 256, 4, 128
    x = net.input(1, length, width)
    for wide in (width, 2 * width):
        x = net.add("LayerNormalization", [x, net.weights(width), net.weights(width)], axis=-1)
        parts = [net.add("MatMul", [x, net.weights(width, width)]) for _ in range(3)]
        split = [_heads(net, part, heads) for part in parts]
        x = _joined(net, net.add("rewrite.ScaledDotProductAttention", split))
        x = net.add("MatMul", [x, net.weights(width, 2 * wide)])
        x = net.add("Gelu", [net.add("Add", [x, net.weights(2 * wide)])])
        x = net.add("MatMul", [x, net.weights(2 * wide, width)])
    net.output(x)
    for batch, heads, length in ((32, 3, 49), (1, 2, 512)):
        parts = [net.input(batch, heads, length, 32) for _ in range(3)]
        net.output(net.add("ReduceMax", [net.add("rewrite.ScaledDotProductAttention", parts)], keepdims=0))
    net.output(net.add("Softmax", [net.add("Gelu", [net.input(8, 196, 49)])], axis=-1))
    scores = net.add("MatMul", [net.input(heads, length, 64), net.input(heads, 64, length)])
    net.output(net.add("Softmax", [net.add("Transpose", [scores], perm=(0, 2, 1))], axis=-1))
    for rows, k, n in ((1, 2048, 1000), (1, 512, 512), (8, 512, 1024), (49, 512, 512), (3136, 64, 128)):
        net.output(net.add("ReduceMax", [net.add("MatMul", [net.input(rows, k), net.weights(k, n)])], keepdims=0))


def _heads(net: Network, x: str, heads: int) -> str:
    batch, length, width = net.shape(x)
    shape = net.constant(np.array([batch, length, heads, width // heads]))
    return net.add("Transpose", [net.add("Reshape", [x, shape])], perm=(0, 2, 1, 3))


def _joined(net: Network, x: str) -> str:
    batch, heads, length, width = net.shape(x)
    shape = net.constant(np.array([batch, length, heads * width]))
    return net.add("Reshape", [net.add("Transpose", [x], perm=(0, 2, 1, 3)), shape])


def moves(net: Network) -> None:
    """Add what moves and combines numbers: elementwise functions, transposes, copies, reductions, at several sizes."""
    for channels, size in ((64, 14), (64, 28), (64, 56), (128, 112)):
        x = net.add("Transpose", [net.input(1, size, size, channels)], perm=(0, 3, 1, 2))
        y = net.add("Transpose", [x], perm=(0, 2, 3, 1))
        z = net.add("Add", [y, net.input(1, size, size, channels)])
        z = net.add("Sigmoid", [net.add("Transpose", [z], perm=(0, 3, 1, 2))])
        z = net.add("Concat", [z, x], axis=1)
        net.output(net.add("ReduceMean", [z, net.constant(np.array([2, 3]))], keepdims=0))
    x = net.add("Transpose", [net.input(1, 3, 224, 224)], perm=(0, 2, 3, 1))
    net.output(net.add("Slice", [x, *(net.constant(np.array([n])) for n in (8, 200, 1))]))
    x = net.input(8, 8, 8, 8, 96)
    x = net.add("Transpose", [net.add("Gelu", [x])], perm=(0, 2, 1, 3, 4))
    net.output(net.add("LayerNormalization", [x, net.weights(96), net.weights(96)], axis=-1))
    x = net.input(784, 96)
    x = net.add("Softmax", [net.add("Transpose", [x], perm=(1, 0))], axis=-1)
    x = net.add("RMSNormalization", [net.add("Transpose", [x], perm=(1, 0)), net.weights(96)], axis=-1)
    net.output(net.add("ReduceSum", [x, net.constant(np.array([1]))], keepdims=0))
    rows = net.constant(np.arange(128, dtype=np.int64) * 31 % 1000)
    x = net.add("Gather", [net.weights(1000, 256), rows], axis=0)
    net.output(net.add("Slice", [x, *(net.constant(np.array([n])) for n in (8, 248, 1))]))


def recurrent(net: Network) -> None:
    """Add recurrent layers."""
    for steps, width, hidden in ((24, 64, 128), (8, 128, 256)):
        x = net.input(steps, 1, width)
        for op, gates in (("LSTM", 4), ("GRU", 3)):
            weights = [net.weights(1, gates * hidden, n) for n in (width, hidden)]
            net.output(net.add(op, [x, *weights], hidden_size=hidden))


NETWORKS: Mapping[str, Callable[[Network], None]] = {
    "classic": lambda net: classic(net, last=False),
    "classic, channels last": lambda net: classic(net, last=True),
    "mobile": lambda net: mobile(net, last=False),
    "mobile, channels last": lambda net: mobile(net, last=True),
    "text": text,
    "moves": moves,
    "recurrent": recurrent,
}
"""The networks of a calibration, by name."""


def graph(name: str) -> Graph:
    """Return a network of `NETWORKS` as a graph."""
    net = Network()
    NETWORKS[name](net)
    return net.graph
