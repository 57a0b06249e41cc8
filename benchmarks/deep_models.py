"""Time and memory of compiling models of many nodes: `python -m rewrite.benchmarks.deep_models [NAME...] [--nodes N]`.

    chain         pointwise operators, one after the other
    ladder        sums of the last two values
    transformer   layers of width 16
    residual      blocks of two convolutions of 8 channels
    unrolled      a recurrent cell, unrolled in time

`rewrite MODEL` runs on each in a process of its own, with an empty cache. Prints a Markdown table: nodes, seconds, and
the peak of the resident set of the largest process, that of saturation included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from .large_models import measure

WIDTH, HEADS, CHANNELS = 16, 2, 8


class Builder:
    """A graph that grows by nodes; weights are seeded."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: NDArray[Any] | np.generic) -> str:
        """Return the name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        """Return the name of a random weight."""
        return self.constant(self.random.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def linear(self, x: str, inner: int, outer: int) -> str:
        """Add a product with weights, and a bias."""
        return self.add("Add", self.add("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def model(self, shape: Sequence[int | str], output: str, result: Sequence[int | str] = ()) -> onnx.ModelProto:
        """Return the model of one input `x` and one output, of the same shape unless another is given."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, result or shape)
        graph = helper.make_graph(self.nodes, "deep", [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(nodes: int) -> onnx.ModelProto:
    """Pointwise operators, one after the other."""
    graph, x = Builder(), "x"
    for number in range(nodes):
        x = graph.add(("Sin", "Tanh", "Sigmoid", "Cos", "Softplus")[number % 5], x)
    return graph.model(["N", WIDTH], x)


def ladder(nodes: int) -> onnx.ModelProto:
    """Sums of the last two values."""
    graph = Builder()
    before, x = "x", graph.add("Tanh", "x")
    for _ in range(nodes // 2):
        before, x = x, graph.add("Tanh", graph.add("Add", x, before))
    return graph.model(["N", WIDTH], x)


def transformer(nodes: int) -> onnx.ModelProto:
    """Layers of attention and a gated projection, of 30 nodes each."""
    graph, x = Builder(), "x"
    split = graph.constant(np.array([0, 0, HEADS, WIDTH // HEADS]))
    merged = graph.constant(np.array([0, 0, WIDTH]))
    scale = graph.constant(np.float32((WIDTH // HEADS) ** -0.5))

    def normalized(x: str) -> str:
        return graph.add("LayerNormalization", x, graph.weight(WIDTH), graph.weight(WIDTH))

    for _ in range(nodes // 30):
        y = normalized(x)
        q, k, v = (
            graph.add("Transpose", graph.add("Reshape", graph.linear(y, WIDTH, WIDTH), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = graph.add("Softmax", graph.add("Mul", graph.add("MatMul", q, k), scale), axis=-1)
        rows = graph.add("Transpose", graph.add("MatMul", scores, v), perm=[0, 2, 1, 3])
        x = graph.add("Add", x, graph.linear(graph.add("Reshape", rows, merged), WIDTH, WIDTH))
        y = graph.linear(normalized(x), WIDTH, 2 * WIDTH)
        x = graph.add("Add", x, graph.linear(graph.add("Mul", y, graph.add("Sigmoid", y)), 2 * WIDTH, WIDTH))
    return graph.model(["N", "S", WIDTH], x)


def residual(nodes: int) -> onnx.ModelProto:
    """Blocks of two convolutions with normalizations, of 7 nodes each."""
    graph, x = Builder(), "x"

    def convolved(x: str) -> str:
        y = graph.add("Conv", x, graph.weight(CHANNELS, CHANNELS, 3, 3), pads=[1] * 4)
        statistics = [graph.constant(np.full(CHANNELS, value, np.float32)) for value in (1, 0, 0, 1)]
        return graph.add("BatchNormalization", y, *statistics)

    for _ in range(nodes // 7):
        x = graph.add("Relu", graph.add("Add", convolved(graph.add("Relu", convolved(x))), x))
    return graph.model([1, CHANNELS, 8, 8], x)


def unrolled(nodes: int) -> onnx.ModelProto:
    """A recurrent cell, unrolled in time: 6 nodes for each step."""
    graph, steps = Builder(), nodes // 6
    h = graph.constant(np.zeros((1, WIDTH), np.float32))
    w, u, b = graph.weight(WIDTH, WIDTH), graph.weight(WIDTH, WIDTH), graph.weight(WIDTH)
    for step in range(steps):
        x = graph.add("Gather", "x", graph.constant(np.array(step)), axis=0)
        both = graph.add("Add", graph.add("MatMul", x, w), graph.add("MatMul", h, u))
        h = graph.add("Tanh", graph.add("Add", both, b))
    return graph.model([steps, 1, WIDTH], h, [1, WIDTH])


KINDS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain, "ladder": ladder, "transformer": transformer, "residual": residual, "unrolled": unrolled,
}  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--nodes", type=int, default=20_000)
    given = parser.parse_args()
    if unknown := set(given.names) - set(KINDS):
        parser.error(f"unknown model {min(unknown)!r}")
    sys.stdout.write("| model | nodes | seconds | peak MiB |\n|---|--:|--:|--:|\n")
    for name in given.names or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            model = KINDS[name](given.nodes)
            onnx.save(model, place / "m.onnx")
            command: list[str | Path] = [
                Path(sys.executable).with_name("rewrite"),
                place / "m.onnx",
                "-o",
                place / "o.onnx",
            ]
            seconds, peak = measure(command, place / "cache")
            sys.stdout.write(f"| {name} | {len(model.graph.node)} | {seconds:.0f} | {peak >> 20} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
