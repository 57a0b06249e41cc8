"""What ONNX Runtime and OpenVINO make of the optimized ONNX model, compared with the model itself.

    python -m benchmarks.portable [MODEL...] [--time] [--markdown FILE]

ONNX Runtime fuses what it recognizes: counted are the nodes that it runs, and its fused operators, after its levels
`extended` and `all`. A model loses where the optimized one has more nodes, or fewer fused operators that other fused
operators do not account for. With `--time`, both models are measured on one thread, interleaved, with either created
first; the ratio is the model's time over the optimized one's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import rewrite
from rewrite.cli.measure import peer

from . import models

LEVELS = {
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
FUSED = (
    "Attention", "BiasGelu", "BiasSoftmax", "DynamicQuantizeMatMul", "EmbedLayerNormalization", "FastGelu", "FusedConv",
    "FusedGemm", "FusedMatMul", "Gelu", "Gemm", "GroupQueryAttention", "LayerNormalization", "MatMulIntegerToFloat",
    "MultiHeadAttention", "QAttention", "QLinearConv", "QLinearMatMul", "QuickGelu", "RMSNormalization",
    "RotaryEmbedding", "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
)  # fmt: skip
"""Operators that stand for several of the standard's, or that ONNX Runtime has one kernel for."""
ENGINES = ("onnxruntime", "openvino")
ORDERS = ((0, 1), (1, 0)) * 2
SECONDS = 1.0
RUNS = 8


@dataclass(frozen=True, slots=True)
class Counts:
    """Operators of a model as ONNX Runtime runs it, each with the number of its nodes."""

    operators: Counter[str]

    @property
    def nodes(self) -> int:
        """Number of nodes, those in bodies included."""
        return self.operators.total()

    @property
    def fused(self) -> Counter[str]:
        """The fused operators among them."""
        return Counter({op: n for op, n in self.operators.items() if op in FUSED})


@dataclass(slots=True)
class Record:
    """Result for one model: counts by level before and after, and the speed-up by engine."""

    name: str
    counts: dict[str, tuple[Counts, Counts]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)

    def loses(self, level: str) -> bool:
        """Whether ONNX Runtime runs more nodes of the optimized model than of the model itself."""
        before, after = self.counts[level]
        return after.nodes > before.nodes


def operators(graph: onnx.GraphProto) -> Counter[str]:
    """Count the operators of a graph and of the graphs in it, `Constant` left out."""
    found: Counter[str] = Counter()
    for node in graph.node:
        found[node.op_type] += node.op_type != "Constant"
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                found += operators(body)
    return +found


def count(path: Path, level: str) -> Counts:
    """Return what ONNX Runtime runs for a model at one of its levels of optimization."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = LEVELS[level]
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        options.log_severity_level = 4
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        model = onnx.load(options.optimized_model_filepath, load_external_data=False)
    return Counts(operators(model.graph))


def speed_up(engine: str, before: Path, after: Path, feeds: Mapping[str, np.ndarray]) -> float:
    """Return the time of one model over that of another in an engine, on one thread, interleaved.

    Which of two equal sessions was created first makes up to 7 %, since their memory lies elsewhere. So both orders are
    measured, twice: the ratio is the geometric mean of those of medians."""
    ratios = []
    for order in ORDERS:
        runners = {i: peer(engine, (before, after)[i], 1) for i in order}
        times: dict[int, list[float]] = {0: [], 1: []}
        for run in runners.values():
            run(feeds)
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times[0]) < RUNS:
            for i, run in runners.items():
                run(feeds)  # brings the weights back into the caches
                for _ in range(2):
                    start = time.perf_counter()
                    run(feeds)
                    times[i].append(time.perf_counter() - start)
        ratios.append(statistics.median(times[0]) / statistics.median(times[1]))
    return statistics.geometric_mean(ratios)


def optimized(name: str, folder: Path | None) -> Path:
    """Return the optimized model, made if `folder` does not have it yet."""
    target = (folder or Path(tempfile.mkdtemp())) / f"{name}.opt.onnx"
    if not target.exists():
        from rewrite.engine.onnx_io.exporter import save

        save(rewrite.optimize(models.path(name)).model, target)
    return target


def measure(name: str, *, timed: bool, folder: Path | None) -> Record:
    """Return the counts of one model, and its speed-ups if `timed`."""
    before, after = models.path(name), optimized(name, folder)
    found = Record(name, {level: (count(before, level), count(after, level)) for level in LEVELS})
    if timed:
        feeds = models.inputs(name)
        found.ratios = {engine: speed_up(engine, before, after, feeds) for engine in ENGINES}
    return found


def differences(before: Counter[str], after: Counter[str]) -> str:
    """Describe how two counts differ, such as `Gelu 8 → 12`."""
    changed = sorted(op for op in before | after if before[op] != after[op])
    return ", ".join(f"{op} {before[op]} → {after[op]}" for op in changed)


def markdown(records: Sequence[Record]) -> str:
    """Return the table of docs/measurements/portable.md."""
    lines = [
        "| model | nodes, extended | nodes, all | fused operators that differ, extended | ONNX Runtime | OpenVINO |",
        "|---|---|---|---|---|---|",
    ]
    for r in records:
        nodes = [f"{before.nodes} → {after.nodes}" for before, after in r.counts.values()]
        before, after = r.counts["extended"]
        speed = [f"{r.ratios[engine]:.2f}" if engine in r.ratios else "" for engine in ENGINES]
        lines.append(f"| {' | '.join([r.name, *nodes, differences(before.fused, after.fused), *speed])} |")
    return "\n".join(lines)


def main() -> None:
    """Count, measure if asked to, and print a line for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="shell patterns of names; those that `make bench` measures")
    parser.add_argument("--time", action="store_true", help="measure both models in ONNX Runtime and OpenVINO")
    parser.add_argument("--folder", type=Path, help="where optimized models are kept, and looked for")
    parser.add_argument("--operators", action="store_true", help="print all operators whose number differs")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    records = []
    for name in models.select(options.patterns) if options.patterns else models.MEASURED:
        record = measure(name, timed=options.time, folder=options.folder)
        records.append(record)
        marks = {level: "!" if record.loses(level) else " " for level in LEVELS}
        nodes = " ".join(f"{a.nodes:5} -> {b.nodes:5} {marks[level]}" for level, (a, b) in record.counts.items())
        speed = " ".join(f"{engine} {ratio:.3f}" for engine, ratio in record.ratios.items())
        before, after = record.counts["extended"]
        kinds = (before.operators, after.operators) if options.operators else (before.fused, after.fused)
        print(f"{name:28} {nodes} {speed} {differences(*kinds)}", flush=True)
    if options.markdown:
        options.markdown.write_text(markdown(records) + "\n", encoding="utf-8")
    sys.exit(any(record.loses(level) for record in records for level in LEVELS))


if __name__ == "__main__":
    main()
