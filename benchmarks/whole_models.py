"""Whole models as other tools write them, beside ONNX Runtime: what a service runs, from its inputs to its outputs.

    python -m rewrite.benchmarks.whole_models [NAME...] [--threads N] [--markdown FILE]

One row for each kind: a detector with its NonMaxSuppression, small models whose sizes depend on data, a quantized
network in the style of TFLite's converter, a model that ONNX Runtime's transformer optimizer wrote, a language model of
4-bit weights, a model with DynamicQuantizeLSTM, pipelines of scikit-learn and an ensemble of trees.

Runs are interleaved in rounds; a row has the medians of the rounds. ONNX Runtime optimizes at its highest level. Kinds
whose tools are not installed (`skl2onnx`, `torch`) are left out, and named.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Feeds = Mapping[str, Array]
ROUNDS = 41
ROUND = 0.02
"""Seconds that a round takes of each model, and at least one run."""


class Missing(Exception):
    """A tool that a model needs is not installed."""


class Builder:
    """A graph that grows by nodes; weights are seeded."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Array | np.generic) -> str:
        """Return the name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; return the name of its output, or of all."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"n{len(self.nodes)}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def normal(self, *shape: int, fan_in: int) -> Array:
        """Return weights for sums of `fan_in` products."""
        return (self.rng.standard_normal(shape) * (2 / fan_in) ** 0.5).astype(np.float32)

    def conv(self, x: str, ins: int, outs: int, kernel: int = 3, stride: int = 1, *, act: bool = True) -> str:
        """Add a convolution with a bias and SiLU."""
        w = self.constant(self.normal(outs, ins, kernel, kernel, fan_in=ins * kernel * kernel))
        bias = self.constant(np.zeros(outs, np.float32))
        y = self.add("Conv", x, w, bias, strides=[stride] * 2, pads=[kernel // 2] * 4)
        return str(self.add("Mul", y, self.add("Sigmoid", y))) if act else str(y)

    def model(self, inputs: Mapping[str, tuple[int, Sequence[int | str]]], outputs: Sequence[str]) -> onnx.ModelProto:
        """Return the model; the types of its outputs are left to be inferred."""
        declared = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "whole", declared, results, self.constants)
        domains = ("", "com.microsoft") if any(n.domain for n in self.nodes) else ("",)
        imports = [helper.make_opsetid(domain, 1 if domain else 17) for domain in domains]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def detector() -> tuple[onnx.ModelProto, Feeds]:
    """A detector of one stage on 320 x 320 pixels: three scales, decoded boxes, the best of 20 classes, suppression."""
    b = Builder()
    x, widths, levels = b.conv("image", 3, 16, stride=2), (16, 32, 64, 128, 128), []
    for ins, outs in itertools.pairwise(widths):
        x = b.conv(x, ins, outs, stride=2)
        x = b.add("Add", x, b.conv(b.conv(x, outs, outs // 2, 1), outs // 2, outs))
        levels.append((x, outs))
    boxes, scores, count = [], [], 0
    for (level, width), cells, stride in zip(levels[1:], (40, 20, 10), (8, 16, 32), strict=True):
        head = b.conv(b.conv(level, width, 64), 64, 24, 1, act=False)
        flat = b.add("Transpose", b.add("Reshape", head, b.constant(np.array([1, 24, -1]))), perm=[0, 2, 1])
        place, size, classes = b.add("Split", flat, b.constant(np.array([2, 2, 20])), outputs=3, axis=2)
        grid = np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1).reshape(1, -1, 2).astype(np.float32)
        steps = [b.constant(np.array(v, np.float32)) for v in (stride, 2 * stride)]
        center = b.add("Mul", b.add("Add", b.add("Sigmoid", place), b.constant(grid)), steps[0])
        half = b.add("Mul", b.add("Sigmoid", size), steps[1])
        corners = b.add("Sub", center, half), b.add("Add", center, half)
        boxes.append(b.add("Concat", *corners, axis=2))
        scores.append(b.add("Sigmoid", classes))
        count += cells * cells
    every = b.add("Concat", *boxes, axis=1)
    confidence = b.add("Transpose", b.add("Concat", *scores, axis=1), perm=[0, 2, 1])
    limits = [b.constant(np.array([v], d)) for v, d in ((50, np.int64), (0.5, np.float32), (0.72, np.float32))]
    chosen = b.add("NonMaxSuppression", every, confidence, *limits)
    places = b.add("Gather", chosen, b.constant(np.array(2)), axis=1)
    kept = b.add("Gather", b.add("Squeeze", every, b.constant(np.array([0]))), places, axis=0)
    values = b.add("GatherND", confidence, chosen)
    image = {"image": (TensorProto.FLOAT, (1, 3, 320, 320))}
    return b.model(image, [kept, values, chosen]), {"image": b.rng.random((1, 3, 320, 320), np.float32)}


def compress(rows: int) -> tuple[onnx.ModelProto, Feeds]:
    """Rows of 16 numbers, of which every other one stays."""
    b = Builder()
    x, keep = (TensorProto.FLOAT, ("rows", 16)), (TensorProto.BOOL, ("rows",))
    found = b.add("Compress", "x", "keep", axis=0)
    feeds = {"x": b.rng.random((rows, 16), np.float32), "keep": np.arange(rows) % 2 == 0}
    return b.model({"x": x, "keep": keep}, [found]), feeds


def suppression(classes: int, count: int) -> tuple[onnx.ModelProto, Feeds]:
    """Suppression alone: at most 20 boxes of each class that overlap by half at most, with their corners."""
    b = Builder()
    limits = [b.constant(np.array([v], d)) for v, d in ((20, np.int64), (0.5, np.float32), (0.1, np.float32))]
    chosen = b.add("NonMaxSuppression", "boxes", "scores", *limits)
    places = b.add("Gather", chosen, b.constant(np.array(2)), axis=1)
    kept = b.add("Gather", b.add("Squeeze", "boxes", b.constant(np.array([0]))), places, axis=0)
    corners = b.rng.random((1, count, 2), np.float32) * 100
    sides = b.rng.random((1, count, 2), np.float32) * 60 + 10
    scores = b.rng.random((1, classes, count), np.float32)
    boxes = (TensorProto.FLOAT, (1, "boxes", 4)), (TensorProto.FLOAT, (1, classes, "boxes"))
    feeds = {"boxes": np.concatenate((corners, corners + sides), 2), "scores": scores}
    return b.model(dict(zip(feeds, boxes, strict=True)), [kept, chosen]), feeds


def tflite() -> tuple[onnx.ModelProto, Feeds]:
    """Inverted residuals on bytes as converters of TFLite's files write them: NHWC outside, scales of each filter."""
    b = Builder()

    def quantized(x: str, scale: float, zero: int) -> str:
        marks = b.constant(np.float32(scale)), b.constant(np.int8(zero))
        return str(b.add("DequantizeLinear", b.add("QuantizeLinear", x, *marks), *marks))

    def conv(x: str, ins: int, outs: int, kernel: int, stride: int, group: int, *, act: bool) -> str:
        w = np.clip(b.normal(outs, ins // group, kernel, kernel, fan_in=ins // group * kernel**2), -1, 1)
        scales = np.abs(w).max((1, 2, 3)) / np.float32(127)
        codes = np.rint(w / scales[:, None, None, None]).astype(np.int8)
        zeros = b.constant(np.zeros(outs, np.int8))
        weights = b.add("DequantizeLinear", b.constant(codes), b.constant(scales), zeros, axis=0)
        bias = b.constant(b.rng.integers(-900, 900, outs).astype(np.int32))
        added = b.add("DequantizeLinear", bias, b.constant(scales * np.float32(0.0235)), axis=0)
        pad = [0, 0, 1, 1] if stride == 2 else [kernel // 2] * 4
        y = b.add("Conv", x, weights, added, strides=[stride] * 2, pads=pad, group=group)
        if not act:
            return quantized(str(y), 0.0613, 3)  # sums of residuals, in steps of 0.08, are seldom halves
        six = [b.constant(np.float32(v)) for v in (0, 6)]
        return quantized(str(b.add("Clip", y, *six)), 0.0235, -128)

    x = quantized(str(b.add("Transpose", "image", perm=[0, 3, 1, 2])), 0.0078, -1)
    x, width = conv(x, 3, 32, 3, 2, 1, act=True), 32
    for outs, stride in ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1), (96, 1), (96, 1)):
        hidden = width * 6
        y = conv(conv(x, width, hidden, 1, 1, 1, act=True), hidden, hidden, 3, stride, hidden, act=True)
        y = conv(y, hidden, outs, 1, 1, 1, act=False)
        x = quantized(str(b.add("Add", x, y)), 0.08, 2) if stride == 1 and outs == width else y
        width = outs
    x = quantized(str(b.add("GlobalAveragePool", conv(x, width, 640, 1, 1, 1, act=True))), 0.0235, -128)
    w = b.constant(b.rng.integers(-127, 128, (640, 100)).astype(np.int8))
    weights = b.add("DequantizeLinear", w, b.constant(np.float32(0.002)), b.constant(np.int8(0)))
    y = b.add("MatMul", b.add("Reshape", x, b.constant(np.array([1, 640]))), weights)
    feeds = {"image": b.rng.random((1, 192, 192, 3), np.float32) * 2 - 1}
    image = {"image": (TensorProto.FLOAT, (1, 192, 192, 3))}
    return b.model(image, [b.add("Softmax", quantized(str(y), 0.1, 0), axis=-1)]), feeds


def _from_zoo(name: str) -> tuple[Path, Feeds]:
    try:
        from . import models

        return models.path(name), models.inputs(name)
    except (ImportError, SystemExit) as error:
        raise Missing(f"torch and transformers, which export {name}") from error


def optimized_transformer() -> tuple[onnx.ModelProto, Feeds]:
    """BERT (mini) as ONNX Runtime's transformer optimizer writes it: Attention, SkipLayerNormalization, BiasGelu."""
    from onnxruntime.transformers import optimizer

    source, feeds = _from_zoo("bert_mini.ts.opt")
    logging.disable(logging.WARNING)
    found = optimizer.optimize_model(str(source), model_type="bert", num_heads=4, hidden_size=256, opt_level=0)
    with tempfile.TemporaryDirectory() as folder:
        found.save_model_to_file(str(Path(folder, "optimized.onnx")))
        logging.disable(logging.NOTSET)
        return onnx.load(Path(folder, "optimized.onnx")), feeds


def language_model() -> tuple[onnx.ModelProto, Feeds]:
    """One token of a decoder of four layers with 4-bit weights, 512 wide, after 64 others."""
    from . import decoding

    shape = decoding.Decoder(layers=4, width=512, heads=8, groups=4, hidden=1408, vocabulary=4096, bits=4)
    model = decoding.make(shape)
    feeds: dict[str, Array] = {}
    rng = np.random.default_rng(0)
    for value in model.graph.input:
        dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        if value.name == "input_ids":
            feeds[value.name] = np.array([[7]])
        elif value.name == "attention_mask":
            feeds[value.name] = (np.arange(dims[1]) < 65).astype(np.int64)[None]
        else:
            feeds[value.name] = rng.standard_normal(dims, np.float32)
    return model, feeds


def dynamic_lstm() -> tuple[onnx.ModelProto, Feeds]:
    """Two layers of LSTM, quantized by ONNX Runtime's dynamic quantizer: DynamicQuantizeLSTM."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    b, x = Builder(), "x"
    for ins, hidden in ((80, 256), (256, 256)):
        w, r = b.normal(1, 4 * hidden, ins, fan_in=2 * ins), b.normal(1, 4 * hidden, hidden, fan_in=2 * hidden)
        bias = np.zeros((1, 8 * hidden), np.float32)
        y = b.add("LSTM", x, *map(b.constant, (w, r, bias)), hidden_size=hidden)
        x = b.add("Squeeze", y, b.constant(np.array([1])))
    model = b.model({"x": (TensorProto.FLOAT, (40, 1, 80))}, [x])
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "whole.onnx"), Path(folder, "quantized.onnx")
        source.write_bytes(model.SerializeToString())
        logging.disable(logging.WARNING)
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
        logging.disable(logging.NOTSET)
        return onnx.load(target), {"x": b.rng.standard_normal((40, 1, 80), np.float32)}


def _sklearn(make: Callable[[], Any], rows: int) -> tuple[onnx.ModelProto, Feeds]:
    try:
        from skl2onnx import to_onnx
    except ImportError as error:
        raise Missing("scikit-learn and skl2onnx") from error
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 20)).astype(np.float32)
    y = (x[:, :3].sum(1) > 0).astype(int) + (x[:, 3] > 0.5)
    return to_onnx(make().fit(x, y), x[:1], target_opset=17), {"X": x[rng.integers(0, 600, rows)]}


def pipeline(rows: int, *, projected: bool = False) -> tuple[onnx.ModelProto, Feeds]:
    """StandardScaler, or a projection by PCA, before LogisticRegression, with the maps (ZipMap) of its converter."""

    def make() -> Any:
        from sklearn.decomposition import PCA
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(PCA(8) if projected else StandardScaler(), LogisticRegression())

    return _sklearn(make, rows)


def forest(rows: int) -> tuple[onnx.ModelProto, Feeds]:
    """100 trees of RandomForestClassifier."""

    def make() -> Any:
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(100, max_depth=8, random_state=0)

    return _sklearn(make, rows)


def trees(rows: int) -> tuple[onnx.ModelProto, Feeds]:
    """A boosted ensemble of 200 trees of depth 6 on 30 features, as converters of XGBoost and LightGBM write it."""
    rng, count, depth, features = np.random.default_rng(0), 200, 6, 30
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    number = np.arange(nodes)
    leaf = number >= inner
    attributes: dict[str, Any] = {
        "nodes_treeids": np.repeat(np.arange(count), nodes),
        "nodes_nodeids": np.tile(number, count),
        "nodes_featureids": rng.integers(0, features, count * nodes),
        "nodes_values": rng.standard_normal(count * nodes).astype(np.float32),
        "nodes_modes": ["LEAF" if end else "BRANCH_LT" for end in np.tile(leaf, count)],
        "nodes_truenodeids": np.tile(np.where(leaf, 0, 2 * number + 1), count),
        "nodes_falsenodeids": np.tile(np.where(leaf, 0, 2 * number + 2), count),
        "target_treeids": np.repeat(np.arange(count), nodes - inner),
        "target_nodeids": np.tile(number[leaf], count),
        "target_ids": np.zeros(count * (nodes - inner), np.int64),
        "target_weights": (rng.standard_normal(count * (nodes - inner)) / 10).astype(np.float32),
    }
    given = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    node = helper.make_node("TreeEnsembleRegressor", ["X"], ["y"], domain="ai.onnx.ml", n_targets=1, **given)
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", features])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([node], "trees", [x], [y]), opset_imports=imports, ir_version=8)
    return model, {"X": rng.standard_normal((rows, features)).astype(np.float32)}


MODELS: dict[str, Callable[[], tuple[onnx.ModelProto, Feeds]]] = {
    "detector with NonMaxSuppression": detector,
    "NonMaxSuppression, 3 x 500 boxes": partial(suppression, 3, 500),
    "Compress, 8 rows": partial(compress, 8),
    "quantized as by TFLite's converter": tflite,
    "BERT of ONNX Runtime's optimizer": optimized_transformer,
    "language model of 4-bit weights": language_model,
    "DynamicQuantizeLSTM": dynamic_lstm,
    "scaler + logistic regression, 1 row": partial(pipeline, 1),
    "scaler + logistic regression, 1,000 rows": partial(pipeline, 1000),
    "PCA + logistic regression, 1,000 rows": partial(pipeline, 1000, projected=True),
    "random forest, 1 row": partial(forest, 1),
    "random forest, 1,000 rows": partial(forest, 1000),
    "200 boosted trees, 1 row": partial(trees, 1),
    "200 boosted trees, 1,000 rows": partial(trees, 1000),
}


def _numbers(value: Any) -> Array:
    """Return an output as an array; of maps their numbers."""
    return np.array([list(row.values()) for row in value]) if isinstance(value, list) else np.asarray(value)


def _error(ours: Mapping[str, Any], theirs: Sequence[Any]) -> float:
    """Return the largest difference of floats over their largest magnitude; infinite where shapes differ.

    Caches are left out: what is behind the positions in use is undefined."""
    worst = 0.0
    pairs = zip(ours.items(), theirs, strict=True)
    for a, b in ((_numbers(a), _numbers(b)) for (name, a), b in pairs if not name.startswith("present.")):
        if a.shape != b.shape:
            return float("inf")
        if a.size and a.dtype.kind == "f":
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def measure(name: str, threads: int) -> dict[str, Any]:
    """Return the medians in seconds of a model by ours and by ONNX Runtime, their difference, and what runs outside."""
    import onnxruntime
    import rewrite

    model, feeds = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = rewrite.compile(model, threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    runs = [partial(program.run, dict(feeds)), partial(session.run, None, dict(feeds))]
    found, expected = runs[0](), runs[1]()
    samples: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for run, seconds in zip(runs, samples, strict=True):
            count, start = 0, time.perf_counter()
            while not count or time.perf_counter() - start < ROUND:
                run()
                count += 1
            seconds.append((time.perf_counter() - start) / count)
    ours, theirs = map(statistics.median, samples)
    outside = program.fallbacks()
    return {
        "ours": ours, "theirs": theirs, "error": _error(found, expected),
        "outside": ", ".join(op.rpartition(".")[2] for op in outside),
    }  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Print a table of the models, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; all by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, help="file that the table is written to")
    given = parser.parse_args(arguments)
    lines = [
        "| model | ours, ms | ONNX Runtime, ms | times as fast | outside | error |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for name in MODELS:
        if given.names and not any(part in name for part in given.names):
            continue
        try:
            row = measure(name, given.threads)
        except Missing as error:
            sys.stderr.write(f"{name}: left out, it needs {error}\n")
            continue
        times = f"{row['ours'] * 1e3:.4g} | {row['theirs'] * 1e3:.4g} | {row['theirs'] / row['ours']:.2f}"
        lines.append(f"| {name} | {times} | {row['outside']} | {row['error']:.0e} |")
        sys.stderr.write(lines[-1] + "\n")
    text = "\n".join(lines) + "\n"
    if given.markdown:
        given.markdown.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
