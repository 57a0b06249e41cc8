"""Single layers against ONNX Runtime's same operators, with the fraction of the machine's peak.

    python -m benchmarks.kernels [gemm resnet50 mobile depthwise pool] --threads 1,2 [--seconds 0.5]

Each line is one layer with its bias and activation: our time, its share of the peak (or the bytes moved per second for
layers bound by memory), ONNX Runtime's time, and their ratio (more than 1: we are faster). The peak is measured first,
by a large GEMM. Engines run by turns in one process.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rewrite.engine.graph import Node

    Array = NDArray[Any]

RNG = np.random.default_rng(11)


@dataclass(frozen=True)
class Layer:
    """Some nodes from the value `x` (and other inputs) on, and the multiply-adds and bytes that they take."""

    label: str
    nodes: Sequence[Node]
    inputs: dict[str, Array]
    constants: dict[str, Array]
    macs: int


def _floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def gemm(m: int, n: int, k: int) -> Layer:
    """relu(x W + b)."""
    from rewrite.engine.graph import Node

    nodes = [
        Node("MatMul", ("x", "w"), ("product",)),
        Node("Add", ("product", "b"), ("sum",)),
        Node("Relu", ("sum",), ("y",)),
    ]
    return Layer(f"gemm {m}x{n}x{k}", nodes, {"x": _floats(m, k)}, {"w": _floats(k, n), "b": _floats(n)}, m * n * k)


def conv(c: int, m: int, size: int, kernel: int, stride: int = 1, group: int = 1) -> Layer:
    """relu(conv(x) + b) on a square image, padded so that stride 1 keeps its size."""
    from rewrite.engine.graph import Node

    pad = kernel // 2
    attrs: Any = {"kernel_shape": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4, "group": group}
    nodes = [Node("Conv", ("x", "w", "b"), ("sum",), attrs), Node("Relu", ("sum",), ("y",))]
    out = (size + 2 * pad - kernel) // stride + 1
    label = f"{'depthwise' if group > 1 else 'conv'} {kernel}x{kernel}/{stride} {c}->{m} {size}x{size}"
    weights = {"w": _floats(m, c // group, kernel, kernel), "b": _floats(m)}
    return Layer(label, nodes, {"x": _floats(1, c, size, size)}, weights, m * out * out * (c // group) * kernel**2)


def pool(op: str, c: int, size: int, kernel: int, stride: int) -> Layer:
    """A pooling layer on a square image."""
    from rewrite.engine.graph import Node

    attrs: Any = {"kernel_shape": (kernel,) * 2, "strides": (stride,) * 2}
    label = f"{op} {kernel}x{kernel}/{stride} {c} {size}x{size}"
    return Layer(label, [Node(op, ("x",), ("y",), attrs)], {"x": _floats(1, c, size, size)}, {}, 0)


def lstm(time: int, batch: int, width: int, hidden: int) -> Layer:
    """One forward layer."""
    from rewrite.engine.graph import Node

    scale = np.float32(1 / math.sqrt(hidden))  # larger weights make a chaotic system of it, and errors grow
    weights = {
        "w": _floats(1, 4 * hidden, width) * scale,
        "r": _floats(1, 4 * hidden, hidden) * scale,
        "b": _floats(1, 8 * hidden),
    }
    nodes = [Node("LSTM", ("x", "w", "r", "b"), ("y",), {"hidden_size": hidden})]
    macs = time * batch * 4 * hidden * (width + hidden)
    return Layer(f"lstm {time}x{batch} {width}->{hidden}", nodes, {"x": _floats(time, batch, width)}, weights, macs)


_MATRICES = (
    (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (1024, 1024, 1024), (3136, 256, 64), (196, 256, 1024),
    (49, 512, 2048), (1, 1000, 4096), (1, 768, 768), (8, 1000, 1280),
)  # fmt: skip
_RESNET50 = (
    (3, 64, 224, 7, 2), (64, 64, 56, 1), (64, 64, 56, 3), (64, 256, 56, 1), (256, 64, 56, 1), (256, 128, 56, 1),
    (128, 128, 56, 3, 2), (128, 512, 28, 1), (256, 512, 56, 1, 2), (512, 128, 28, 1), (128, 128, 28, 3),
    (512, 256, 28, 1), (256, 256, 28, 3, 2), (256, 1024, 14, 1), (1024, 256, 14, 1), (256, 256, 14, 3),
    (512, 512, 14, 3, 2), (512, 2048, 7, 1), (1024, 2048, 14, 1, 2), (2048, 512, 7, 1), (512, 512, 7, 3),
)  # fmt: skip
_MOBILE = (
    (32, 16, 112, 1), (16, 96, 112, 1), (24, 144, 56, 1), (144, 24, 56, 1), (192, 32, 28, 1), (64, 384, 14, 1),
    (384, 96, 14, 1), (96, 576, 14, 1), (160, 960, 7, 1), (960, 160, 7, 1), (320, 1280, 7, 1), (1152, 192, 7, 1),
)  # fmt: skip
_DEPTHWISE = (
    (32, 112, 3, 1), (64, 112, 3, 2), (144, 56, 3, 1), (144, 56, 3, 2), (192, 28, 3, 1), (384, 14, 3, 1),
    (576, 14, 3, 2), (960, 7, 3, 1), (240, 28, 5, 1), (672, 14, 5, 1), (1152, 7, 5, 1),
)  # fmt: skip
SETS: dict[str, Callable[[], list[Layer]]] = {
    "gemm": lambda: [gemm(*s) for s in _MATRICES],
    "resnet50": lambda: [conv(*s) for s in _RESNET50],
    "mobile": lambda: [conv(*s) for s in _MOBILE],
    "depthwise": lambda: [conv(c, c, size, kernel, stride, c) for c, size, kernel, stride in _DEPTHWISE],
    "pool": lambda: [
        pool("MaxPool", 64, 112, 3, 2),
        pool("MaxPool", 64, 112, 2, 2),
        pool("AveragePool", 256, 28, 2, 2),
        lstm(50, 1, 128, 128),
        lstm(20, 16, 256, 256),
    ],
}


def measure(layer: Layer, threads: int, seconds: float) -> dict[str, Any]:
    """Both engines' median seconds for a layer, and how far the results are apart, relative to the largest."""
    import onnx
    from rewrite.backend import harness
    from rewrite.backend.pipeline import compile_graph
    from rewrite.cli.measure import interleave, peer

    feeds = {name: harness.aligned(array.shape, array.dtype) for name, array in layer.inputs.items()}
    for name, array in layer.inputs.items():  # aligned ones are read where they lie
        feeds[name][...] = array
    graph = harness.make_graph(layer.nodes, layer.inputs, constants=layer.constants)
    program = compile_graph(graph, threads=threads)
    made = [onnx.helper.make_node(n.op, n.inputs, n.outputs, **dict[str, Any](n.attrs)) for n in layer.nodes]
    infos = [onnx.helper.make_tensor_value_info(k, 1, v.shape) for k, v in layer.inputs.items()]
    stored = [onnx.numpy_helper.from_array(v, k) for k, v in layer.constants.items()]
    result = onnx.helper.make_graph(made, "layer", infos, [onnx.helper.make_tensor_value_info("y", 1, None)], stored)
    model = onnx.helper.make_model(result, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    theirs = peer("onnxruntime", model.SerializeToString(), threads)
    ours: Any = program.run
    expected = theirs(feeds)
    expected = next(iter(expected.values())) if isinstance(expected, dict) else expected[0]
    got = ours(feeds)["y"]
    times = interleave({"rewrite": ours, "onnxruntime": theirs}, feeds, seconds=seconds, rounds=4)
    return {
        "layer": layer.label,
        "threads": threads,
        "rewrite": times["rewrite"].median,
        "onnxruntime": times["onnxruntime"].median,
        "difference": float(np.abs(got - expected).max() / max(1e-30, np.abs(expected).max())),
        "bytes": sum(a.nbytes for a in (*layer.inputs.values(), *layer.constants.values(), got)),
        "flops": 2 * layer.macs,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the sets named and prints a line for each layer, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"some of {', '.join(SETS)}; all by default")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each layer and number of threads")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        parser.error(f"no set {unknown[0]!r}; there are {', '.join(SETS)}")
    for threads in (int(t) for t in options.threads.split(",")):
        top = measure(gemm(128, 1536, 768), threads, options.seconds)
        peak = top["flops"] / top["rewrite"]
        ratios = []
        for name in options.sets:
            for layer in SETS[name]():
                record = measure(layer, threads, options.seconds)
                ratios.append(record["onnxruntime"] / record["rewrite"])
                print(json.dumps(record) if options.json else _line(record, peak, ratios[-1]), flush=True)
        if not options.json:
            print(f"{threads} threads: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


def _line(record: dict[str, Any], peak: float, ratio: float) -> str:
    ours = record["rewrite"]
    share = record["flops"] / ours / peak
    return (
        f"{record['layer']:34} {record['threads']} threads {ours * 1e6:9.1f} us {share:6.0%} of peak"
        f" {record['bytes'] / ours * 1e-9:6.1f} GB/s | onnxruntime {record['onnxruntime'] * 1e6:9.1f} us"
        f"  {ratio:5.2f}x  difference {record['difference']:.0e}"
    )


if __name__ == "__main__":
    main()
