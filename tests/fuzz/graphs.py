"""Random ONNX graphs of operators that rules know, over few sizes, so that patterns occur often."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# continuous functions only: at a jump, results may differ by more than rounding
UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Exp", "Sqrt", "Erf", "Identity", "Softplus", "Softsign")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
SPECIAL = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-5, 6.0)


class Maker:
    """Builds one graph from a seed. Values are f32; shapes come from a few sizes, so that operands often fit."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.count = 0

    def pick(self, items: object) -> object:
        """Return one of the items."""
        listed = list(items)  # type: ignore[call-overload]
        return listed[int(self.rng.integers(len(listed)))]

    def name(self) -> str:
        """Return a fresh name."""
        self.count += 1
        return f"v{self.count}"

    def constant(self, array: np.ndarray) -> str:
        """Return the name of a new initializer."""
        name = self.name()
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: object) -> str:
        """Return the name of the output of a new node."""
        out = self.name()
        self.nodes.append(helper.make_node(op, inputs, [out], name=f"n_{out}", **attrs))
        self.shapes[out] = shape
        return out

    def weights(self, *shape: int) -> str:
        """Return a constant: random, or all of one special value."""
        if self.rng.random() < 0.4:
            return self.constant(np.full(shape, self.pick(SPECIAL), np.float32))
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))

    def step(self) -> None:
        """Add one node over a value that exists."""
        x = str(self.pick(self.shapes))
        shape = self.shapes[x]
        kind = self.rng.integers(12)
        if kind <= 1:
            self.node(str(self.pick(UNARY)), [x], shape)
        elif kind <= 4:
            self._binary(x, shape)
        elif kind == 5 and shape:
            perm = [int(i) for i in self.rng.permutation(len(shape))]
            self.node("Transpose", [x], tuple(shape[i] for i in perm), perm=perm)
        elif kind == 6:
            self._reshape(x, shape)
        elif kind == 7:
            self._matmul(x, shape)
        elif kind == 8:
            self._reduce(x, shape)
        elif kind == 9:
            self._slice(x, shape)
        elif kind == 10:
            self._concat(x, shape)
        elif len(shape) == 4:
            self._conv(x, shape)
        elif shape:
            self.node("Softmax", [x], shape, axis=int(self.rng.integers(-len(shape), len(shape))))

    def _binary(self, x: str, shape: tuple[int, ...]) -> None:
        op = str(self.pick(BINARY))
        same = [v for v, s in self.shapes.items() if s == shape]
        if self.rng.random() < 0.5:
            y = str(self.pick(same))
        else:
            y = self.weights(*(d if self.rng.random() < 0.6 else 1 for d in shape))
        if op == "Div":
            y = self.constant((self.rng.random(shape) + 0.5).astype(np.float32))
        pair = [x, y] if op in ("Pow", "Div") or self.rng.random() < 0.7 else [y, x]
        self.node(op, pair, shape)

    def _reshape(self, x: str, shape: tuple[int, ...]) -> None:
        total = int(np.prod(shape))
        options = [shape[::-1], (total,), (1, *shape), (*shape, 1), tuple(d for d in shape if d != 1)]
        if len(shape) > 1:
            options.append((shape[0] * shape[1], *shape[2:]))
        target = tuple(int(d) for d in self.pick(options))  # type: ignore[attr-defined]
        if len(target) <= 5:
            self.node("Reshape", [x, self.constant(np.array(target, np.int64))], target)

    def _matmul(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) < 2:
            return
        columns = int(self.pick((2, 3, 4)))  # type: ignore[call-overload]
        out = self.node("MatMul", [x, self.weights(shape[-1], columns)], (*shape[:-1], columns))
        if self.rng.random() < 0.5:
            self.node("Add", [out, self.weights(columns)], (*shape[:-1], columns))

    def _reduce(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis, keep = int(self.rng.integers(len(shape))), int(self.rng.integers(2))
        kept = tuple(1 if i == axis else d for i, d in enumerate(shape))
        result = kept if keep else shape[:axis] + shape[axis + 1 :]
        op = str(self.pick(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")))
        self.node(op, [x, self.constant(np.array([axis], np.int64))], result, keepdims=keep)

    def _slice(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape or 0 in shape:
            return
        axis = int(self.rng.integers(len(shape)))
        start = int(self.rng.integers(shape[axis]))
        end = int(self.rng.integers(start + 1, shape[axis] + 1))
        ints = [self.constant(np.array([v], np.int64)) for v in (start, end, axis)]
        self.node("Slice", [x, *ints], (*shape[:axis], end - start, *shape[axis + 1 :]))

    def _concat(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis = int(self.rng.integers(len(shape)))
        fits = [
            v for v, s in self.shapes.items()
            if len(s) == len(shape) and all(a == b for i, (a, b) in enumerate(zip(s, shape, strict=True)) if i != axis)
        ]  # fmt: skip
        parts = [x, *(str(self.pick(fits)) for _ in range(int(self.rng.integers(1, 3))))]
        total = sum(self.shapes[p][axis] for p in parts)
        if total <= 24:
            self.node("Concat", parts, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)

    def _conv(self, x: str, shape: tuple[int, ...]) -> None:
        batch, channels, height, width = shape
        filters, size = int(self.pick((2, 3))), int(self.pick((1, 3)))  # type: ignore[call-overload]
        pad = int(self.rng.integers(size // 2 + 1))
        if height + 2 * pad < size or width + 2 * pad < size:
            return
        result = (batch, filters, height + 2 * pad - size + 1, width + 2 * pad - size + 1)
        inputs = [x, self.weights(filters, channels, size, size)]
        if self.rng.random() < 0.5:
            inputs.append(self.weights(filters))
        out = self.node("Conv", inputs, result, kernel_shape=[size, size], pads=[pad] * 4)
        if self.rng.random() < 0.5:
            stats = [self.weights(filters) for _ in range(3)]
            positive = self.constant(np.abs(self.rng.standard_normal(filters)).astype(np.float32) + 0.5)
            self.node("BatchNormalization", [out, *stats, positive], result)


def make(seed: int, size: int = 14) -> onnx.ModelProto:
    """Return a random model: two or three inputs, `size` steps, and the unread values as outputs."""
    maker = Maker(seed)
    shapes = [(2, 3), (3, 4), (2, 3, 4), (1, 3, 5, 5), (2, 1, 4), (4,)]
    inputs = [f"x{i}" for i in range(int(maker.rng.integers(2, 4)))]
    for name in inputs:
        maker.shapes[name] = maker.pick(shapes)  # type: ignore[assignment]
    declared = dict(maker.shapes)
    for _ in range(size):
        maker.step()
    read = {i for n in maker.nodes for i in n.input}
    outputs = [v for v in maker.shapes if v not in read and v not in declared] or [maker.nodes[-1].output[0]]
    graph = helper.make_graph(
        maker.nodes,
        f"random_{seed}",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in declared.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, maker.shapes[n]) for n in outputs],
        maker.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
