"""Single layers compared with ONNX Runtime and OpenVINO, and with the limits of the machine.

    python -m benchmarks.kernels [gemm resnet50 mobile depthwise pool rows attention] --threads 1,2 [--seconds 0.5]

Each line is one layer, with its bias and activation:

- our time;
- its share of the limit: the peak of fused multiply-adds, or the bandwidth of the smallest memory that holds the
  operands, whichever takes longer (see `rewrite bench --profile`);
- the time of the peers as a multiple of ours;
- our error against the layer computed in f64.

Layers go through the whole optimizer and are measured through `Program.run`; engines are interleaved in one process.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rewrite.backend.compile_model import compile_optimized
from rewrite.cli import profiling
from rewrite.errors import UserError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray
    from rewrite.engine.cost.machine import Machine
    from rewrite.engine.ir.graph import Node

    Array = NDArray[Any]

RNG = np.random.default_rng(11)


@dataclass(frozen=True)
class Layer:
    """Some nodes from the value `x` (and other inputs) to the value `y`."""

    label: str
    nodes: Sequence[Node]
    inputs: dict[str, Array]
    constants: dict[str, Array]


def _floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def gemm(m: int, n: int, k: int) -> Layer:
    """relu(x W + b)."""
    from rewrite.engine.ir.graph import Node

    nodes = [
        Node("MatMul", ("x", "w"), ("product",)),
        Node("Add", ("product", "b"), ("sum",)),
        Node("Relu", ("sum",), ("y",)),
    ]
    return Layer(f"gemm {m}x{n}x{k}", nodes, {"x": _floats(m, k)}, {"w": _floats(k, n), "b": _floats(n)})


def conv(c: int, m: int, size: int, kernel: int, stride: int = 1, group: int = 1, dims: int = 2) -> Layer:
    """relu(conv(x) + b) on an image (or signal, or volume) of equal sides, padded so that stride 1 keeps its size."""
    from rewrite.engine.ir.graph import Node

    pad = kernel // 2
    attrs: Any = {"kernel_shape": (kernel,) * dims, "strides": (stride,) * dims, "pads": (pad,) * 2 * dims}
    nodes = [Node("Conv", ("x", "w", "b"), ("sum",), {**attrs, "group": group}), Node("Relu", ("sum",), ("y",))]
    kind = "conv" if group == 1 else "depthwise" if group == c else f"conv/{group}"
    label = f"{kind} {_sides(kernel, dims)}/{stride} {c}->{m} {_sides(size, dims)}"
    weights = {"w": _floats(m, c // group, *(kernel,) * dims), "b": _floats(m)}
    return Layer(label, nodes, {"x": _floats(1, c, *(size,) * dims)}, weights)


def conv_transpose(c: int, m: int, size: int, kernel: int, stride: int, dims: int = 2) -> Layer:
    """relu(conv_transpose(x) + b), padded so that each side grows `stride` times."""
    from rewrite.engine.ir.graph import Node

    pad, extra = divmod(max(kernel - stride, 0) + 1, 2)
    attrs: Any = {"kernel_shape": (kernel,) * dims, "strides": (stride,) * dims, "pads": (pad,) * 2 * dims}
    attrs["output_padding"] = (1 - extra if kernel > stride else 0,) * dims
    nodes = [Node("ConvTranspose", ("x", "w", "b"), ("sum",), attrs), Node("Relu", ("sum",), ("y",))]
    label = f"transposed {_sides(kernel, dims)}/{stride} {c}->{m} {_sides(size, dims)}"
    return Layer(
        label, nodes, {"x": _floats(1, c, *(size,) * dims)}, {"w": _floats(c, m, *(kernel,) * dims), "b": _floats(m)}
    )


def pool(op: str, c: int, size: int, kernel: int, stride: int, dims: int = 2) -> Layer:
    """A pooling layer on an image (or signal, or volume) of equal sides."""
    from rewrite.engine.ir.graph import Node

    attrs: Any = {"kernel_shape": (kernel,) * dims, "strides": (stride,) * dims}
    label = f"{op} {_sides(kernel, dims)}/{stride} {c} {_sides(size, dims)}"
    return Layer(label, [Node(op, ("x",), ("y",), attrs)], {"x": _floats(1, c, *(size,) * dims)}, {})


def _sides(size: int, dims: int) -> str:
    return "x".join([str(size)] * dims)


def resize(mode: str, scale: float, *shape: int, last: bool = False) -> Layer:
    """An image whose rows and columns are scaled; `last`: its channels are the last axis."""
    scales = np.array([1, scale, scale, 1] if last else [1, 1, scale, scale], np.float32)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
    if mode == "nearest":
        attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    from rewrite.engine.ir.graph import Node

    label = f"resize {mode} x{scale:g} {'x'.join(map(str, shape))}"
    nodes = [Node("Resize", ("x", "", "scales"), ("y",), attrs)]
    return Layer(label, nodes, {"x": _floats(*shape)}, {"scales": scales})


def lstm(time: int, batch: int, width: int, hidden: int) -> Layer:
    """One forward layer."""
    from rewrite.engine.ir.graph import Node

    scale = np.float32(1 / math.sqrt(hidden))  # larger weights make a chaotic system of it, and errors grow
    weights = {
        "w": _floats(1, 4 * hidden, width) * scale,
        "r": _floats(1, 4 * hidden, hidden) * scale,
        "b": _floats(1, 8 * hidden),
    }
    nodes = [Node("LSTM", ("x", "w", "r", "b"), ("y",), {"hidden_size": hidden})]
    return Layer(f"lstm {time}x{batch} {width}->{hidden}", nodes, {"x": _floats(time, batch, width)}, weights)


def node(op: str, *shape: int, constants: dict[str, Array] | None = None, note: str = "", **attributes: Any) -> Layer:
    """One operator on `x`, with further operands that are constants; its label ends with the note."""
    from rewrite.engine.ir.graph import Node

    further = constants or {}
    label = f"{op} {'x'.join(map(str, shape))}{note}"
    return Layer(label, [Node(op, ("x", *further), ("y",), attributes)], {"x": _floats(*shape)}, further)


def add(*shape: int) -> Layer:
    """relu(x + z), both from memory."""
    from rewrite.engine.ir.graph import Node

    nodes = [Node("Add", ("x", "z"), ("sum",)), Node("Relu", ("sum",), ("y",))]
    return Layer(f"Add Relu {'x'.join(map(str, shape))}", nodes, {"x": _floats(*shape), "z": _floats(*shape)}, {})


def attention(heads: int, queries: int, keys: int, width: int) -> Layer:
    """softmax(Q Kᵀ / √d) V for every head, as exporters write it."""
    from rewrite.engine.ir.graph import Node

    nodes = [
        Node("Transpose", ("k",), ("kt",), {"perm": (0, 1, 3, 2)}),
        Node("MatMul", ("x", "kt"), ("scores",)),
        Node("Mul", ("scores", "scale"), ("scaled",)),
        Node("Softmax", ("scaled",), ("weights",), {"axis": -1}),
        Node("MatMul", ("weights", "v"), ("y",)),
    ]
    inputs = {"x": _floats(1, heads, queries, width), **{n: _floats(1, heads, keys, width) for n in ("k", "v")}}
    scale = {"scale": np.array(1 / math.sqrt(width), np.float32)}
    return Layer(f"attention {heads} heads {queries}x{keys}x{width}", nodes, inputs, scale)


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
_LARGE_DEPTHWISE = (
    (96, 56, 7, 1), (192, 28, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1), (768, 32, 7, 1), (256, 32, 9, 1), (512, 16, 5, 1),
)  # fmt: skip
_GROUPED = (
    (128, 128, 56, 3, 1, 32), (256, 256, 56, 3, 2, 32), (256, 256, 28, 3, 1, 32), (512, 512, 14, 3, 1, 32),
    (1024, 1024, 7, 3, 1, 32), (48, 48, 56, 3, 1, 6), (104, 104, 28, 3, 1, 13), (208, 208, 28, 3, 2, 26),
    (440, 440, 14, 3, 1, 55), (64, 64, 56, 3, 1, 4), (168, 168, 28, 3, 1, 7), (60, 60, 28, 3, 1, 20),
    (256, 256, 28, 3, 1, 4), (136, 136, 28, 1, 1, 4), (240, 240, 28, 1, 1, 3),
)  # fmt: skip
_TRANSPOSED = (
    (64, 32, 56, 2, 2), (512, 256, 14, 2, 2), (256, 128, 28, 4, 2), (64, 64, 64, 3, 2), (128, 64, 32, 5, 2),
    (56, 1, 85, 9, 3), (64, 3, 64, 4, 2), (32, 16, 112, 4, 2),
)  # fmt: skip
SETS: dict[str, Callable[[], list[Layer]]] = {
    "gemm": lambda: [gemm(*s) for s in _MATRICES],
    "resnet50": lambda: [conv(*s) for s in _RESNET50],
    "mobile": lambda: [conv(*s) for s in _MOBILE],
    "depthwise": lambda: [
        conv(c, c, size, kernel, stride, c) for c, size, kernel, stride in _DEPTHWISE + _LARGE_DEPTHWISE
    ],
    "grouped": lambda: [conv(*s) for s in _GROUPED],
    "transposed": lambda: [
        *(conv_transpose(*s) for s in _TRANSPOSED),
        conv_transpose(256, 128, 64, 16, 8, dims=1),
        conv_transpose(64, 32, 16, 2, 2, dims=3),
    ],
    "resize": lambda: [
        resize("nearest", 2, 1, 256, 26, 26),
        resize("nearest", 2, 1, 26, 26, 256, last=True),
        resize("nearest", 2, 1, 80, 80, 64, last=True),
        resize("nearest", 4, 1, 40, 40, 24, last=True),
        resize("linear", 2, 1, 256, 32, 32),
        resize("linear", 2, 1, 32, 32, 256, last=True),
        resize("linear", 4, 1, 21, 128, 128),
        resize("linear", 0.5, 1, 64, 128, 128),
        resize("linear", 4, 1, 128, 128, 21, last=True),
        resize("cubic", 2, 1, 3, 256, 256),
        resize("cubic", 2, 1, 64, 64, 64, last=True),
    ],
    "volume": lambda: [
        conv(32, 32, 32, 3, dims=3),
        conv(64, 64, 16, 3, dims=3),
        conv(64, 128, 16, 3, 2, dims=3),
        conv(1, 16, 48, 3, dims=3),
        conv(3, 64, 40, 7, 2, dims=3),
        conv(128, 128, 16, 1, dims=3),
        conv(64, 64, 16, 3, 1, 64, dims=3),
        pool("MaxPool", 32, 48, 2, 2, dims=3),
        pool("MaxPool", 64, 24, 3, 2, dims=3),
        pool("AveragePool", 64, 24, 2, 2, dims=3),
    ],
    "signal": lambda: [
        conv(80, 384, 3000, 3, dims=1),
        conv(512, 512, 400, 3, 2, dims=1),
        conv(256, 256, 1000, 1, dims=1),
        conv(64, 64, 4000, 7, dims=1),
        conv(1, 512, 16000, 10, 5, dims=1),
        conv(256, 256, 1000, 31, 1, 256, dims=1),
        conv(768, 768, 199, 128, 1, 16, dims=1),
        pool("MaxPool", 64, 8000, 2, 2, dims=1),
    ],
    "global": lambda: [
        node("GlobalAveragePool", 1, 64, 112, 112),
        node("GlobalAveragePool", 1, 256, 56, 56),
        node("GlobalAveragePool", 1, 2048, 7, 7),
        node("GlobalMaxPool", 1, 256, 28, 28),
    ],
    "pool": lambda: [
        pool("MaxPool", 64, 112, 3, 2),
        pool("MaxPool", 64, 112, 2, 2),
        pool("AveragePool", 256, 28, 2, 2),
        lstm(50, 1, 128, 128),
        lstm(20, 16, 256, 256),
    ],
    "rows": lambda: [
        node("Softmax", 12, 128, 128, axis=-1),
        node("LayerNormalization", 128, 768, constants={"scale": _floats(768), "bias": _floats(768)}, axis=-1),
        node("LayerNormalization", 3136, 96, constants={"scale": _floats(96), "bias": _floats(96)}, axis=-1),
        node("Gelu", 128, 3072),
        node("Sigmoid", 1, 96, 56, 56),
        add(1, 256, 56, 56),
        node("ReduceMean", 1, 1280, 7, 7, constants={"axes": np.array([2, 3])}, keepdims=1),
        node("Transpose", 1, 12, 128, 64, perm=(0, 2, 1, 3)),
        node("Transpose", 1, 96, 56, 56, perm=(0, 2, 3, 1)),
    ],
    "narrow": lambda: [gemm(m, n, k) for m, n, k in ((4096, 1, 512), (1024, 2, 256), (1024, 4, 256), (256, 6, 1000))],
    "functions": lambda: [node(op, 64, 4096) for op in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Log")],
    "axes": lambda: [
        *(
            node("ReduceSum", 16, 128, 128, constants={"axes": np.array([axis])}, note=f" axis {axis}", keepdims=1)
            for axis in (0, 1, 2)
        ),
        *(node("CumSum", 1024, 64, constants={"axis": np.array(axis)}, note=f" axis {axis}") for axis in (0, 1)),
    ],
    "attention": lambda: [attention(*s) for s in ((12, 128, 128, 64), (6, 1500, 1500, 64), (12, 1, 512, 64))],
}


def as_model(layer: Layer) -> onnx.ModelProto:
    """The layer as a model in ONNX."""
    import onnx

    made = [onnx.helper.make_node(n.op, n.inputs, n.outputs, **dict[str, Any](n.attrs)) for n in layer.nodes]
    infos = [onnx.helper.make_tensor_value_info(k, 1, v.shape) for k, v in layer.inputs.items()]
    stored = [onnx.numpy_helper.from_array(v, k) for k, v in layer.constants.items()]
    graph = onnx.helper.make_graph(made, "layer", infos, [onnx.helper.make_tensor_value_info("y", 1, None)], stored)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    shape = onnx.shape_inference.infer_shapes(model).graph.output[0]
    model.graph.output[0].CopyFrom(shape)
    return model


def measure(layer: Layer, counts: Sequence[int], seconds: float, machine: Machine) -> list[dict[str, Any]]:
    """For each number of threads all engines' median seconds for a layer, the lower bound of the machine, and our
    error against f64, relative to the largest value."""
    import rewrite
    from rewrite.benchmarks import harness
    from rewrite.cli.measure import Runner, interleave, peer

    from . import exact

    feeds = {name: harness.aligned(array.shape, array.dtype) for name, array in layer.inputs.items()}
    for name, array in layer.inputs.items():  # aligned ones are read where they lie
        feeds[name][...] = array
    model = as_model(layer)
    expected = exact.evaluate(model, layer.inputs)
    optimized = rewrite.optimize(model)
    records = []
    for threads in counts:
        program = compile_optimized(optimized, threads=threads)
        runners: dict[str, Runner] = {"rewrite": program.run}
        for engine in ("onnxruntime", "openvino"):
            try:
                runners[engine] = peer(engine, model.SerializeToString(), threads)
            except UserError:
                continue  # not installed, or it does not have the operator
        times = interleave(runners, feeds, seconds=seconds, rounds=4)
        rows = program.profile(feeds, seconds=seconds / 10, machine=machine).rows
        records.append(
            {
                "layer": layer.label,
                "threads": threads,
                **{engine: timing.median for engine, timing in times.items()},
                "difference": exact.error([program.run(feeds)["y"]], expected),
                "least_compute": sum(row.compute for row in rows),
                "least_memory": sum(row.memory for row in rows),
                "level": max(rows, key=lambda row: row.memory).level,
            }
        )
    return records


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the sets named and prints a line for each layer, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"some of {', '.join(SETS)}; all by default")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each layer, engine and number of threads")
    parser.add_argument("--json", action="store_true", help="one object, as `report` takes it")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        parser.error(f"no set {unknown[0]!r}; there are {', '.join(SETS)}")
    machine = profiling.machine()
    counts = [int(n) for n in options.threads.split(",")]
    records: list[dict[str, Any]] = []
    for name in options.sets:
        for layer in SETS[name]():
            for record in measure(layer, counts, options.seconds, machine):
                records.append(record)
                print(_line(record), flush=True, file=sys.stderr if options.json else sys.stdout)
    if options.json:
        limits = {"flops": machine.flops, "sizes": machine.sizes, "bandwidths": machine.bandwidths}
        print(json.dumps({"machine": limits, "layers": records}))
        return
    for threads in counts:
        for engine in ("onnxruntime", "openvino"):
            found = [r[engine] / r["rewrite"] for r in records if r["threads"] == threads and engine in r]
            if found:
                mean = math.exp(sum(map(math.log, found)) / len(found))
                print(f"{threads} threads, vs {engine}: geometric mean {mean:.2f}")


def _line(record: dict[str, Any]) -> str:
    ours = record["rewrite"]
    least, level = max((record["least_compute"], "compute"), (record["least_memory"], record["level"]))
    peers = (f"{engine} {record[engine] / ours:5.2f}x" for engine in ("onnxruntime", "openvino") if engine in record)
    return (
        f"{record['layer']:38} {record['threads']} threads {ours * 1e6:9.1f} us {least / ours:6.0%} of {level:8}"
        f" {'  '.join(peers)}  error {record['difference']:.0e}"
    )


if __name__ == "__main__":
    main()
