"""The records of `run` as tables in Markdown."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("onnxruntime", "openvino", "onnxsim", "onnxslim", "onnxoptimizer", "onnxscript", "onnx", "torch")
OPTIMISERS = ("rewrite", "onnxruntime basic", "onnxsim", "onnxslim", "onnxoptimizer", "onnxscript")
Records = Mapping[str, Mapping[str, Any]]


def line(name: str, record: Mapping[str, Any]) -> str:
    """One model's record in a line, for the terminal."""
    words = []
    graphs, latency = record.get("graphs", {}), record.get("latency", {})
    if "optimisers" in graphs:
        nodes = {key: found.get("nodes", "-") for key, found in graphs["optimisers"].items()}
        words.append(f"nodes {graphs['before']} -> " + " ".join(f"{key} {n}" for key, n in nodes.items()))
    for count, medians in latency.get("threads", {}).items():
        words.append(f"{count} threads " + " ".join(f"{key} {t * 1e3:.2f} ms" for key, t in medians.items()))
    words += [part["error"] for part in (graphs, latency) if "error" in part]
    return f"{name:30} " + "; ".join(words)


def render(records: Records) -> str:
    """The whole document."""
    counts = sorted({n for r in records.values() for n in r.get("latency", {}).get("threads", {})}, key=int)
    parts = [_head(), *(_latency(records, n) for n in counts), _compile(records), _nodes(records), _times(records)]
    return "\n".join(parts)


def _head() -> str:
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} (not installed)")
    return f"""# Benchmarks

Written by `make bench`. Every model is measured in one process in which the engines take turns in short bursts, on the
same inputs; times are medians. ONNX Runtime and OpenVINO run at their defaults for low latency, OpenVINO with its f32
hint (its default would be bf16 where the machine has it). A ratio above 1 means that `rewrite` is faster.

The models (`benchmarks/models.py`): `NET.ts.*` and `NET.dynamo.*` are exports by PyTorch's older and newer exporter,
`raw` with the exporter's own optimisation off, `opt` on, `dyn` raw with symbolic sizes, all with seeded random weights;
`light_*` are the `onnx` package's networks with random weights; the others are trained models.

Machine: {_cpu()}. Python {platform.python_version()}, {", ".join(versions)}.
"""


def _cpu() -> str:
    import os

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _latency(records: Records, count: str) -> str:
    rows: list[list[str]] = []
    ratios: dict[str, list[float]] = {"onnxruntime": [], "openvino": []}
    for name, record in records.items():
        found = record.get("latency", {})
        medians = found.get("threads", {}).get(count)
        if medians is None:
            if "error" in found:
                rows.append([name, f"failed: {_cell(found['error'])}", "", "", "", ""])
            continue
        row = [name, f"{medians['rewrite'] * 1e3:.3f}"]
        for peer in ratios:
            row.append(f"{medians[peer] * 1e3:.3f}" if peer in medians else "cannot run it")
        for peer, values in ratios.items():
            ratio = medians[peer] / medians["rewrite"] if peer in medians else None
            row.append(f"{ratio:.2f}" if ratio else "")
            values += [ratio] if ratio else []
        rows.append(row)
    rows.append(["**geometric mean**", "", "", "", *(f"**{_mean(values):.2f}**" for values in ratios.values())])
    head = ["model", "rewrite, ms", "ONNX Runtime, ms", "OpenVINO, ms", "vs ONNX Runtime", "vs OpenVINO"]
    return f"## Latency, f32, {count} thread{'s' * (count != '1')}\n\n{_table(head, rows)}"


def _compile(records: Records) -> str:
    rows = []
    for name, record in records.items():
        found = record.get("latency", {})
        if "optimize" in found:
            fallbacks = ", ".join(f"{op} ×{n}" for op, n in sorted(found.get("fallbacks", {}).items())) or "-"
            difference = f"{found['difference']:.1e}" if "difference" in found else ""
            rows.append([name, f"{found['optimize']:.2f}", f"{found.get('compile', 0):.2f}", difference, fallbacks])
    head = ["model", "optimise, s", "compile, s", "largest difference to ONNX Runtime", "without native kernel"]
    return f"## Compile time and numerics\n\n{_table(head, rows)}"


def _nodes(records: Records) -> str:
    rows = []
    for name, record in records.items():
        found = record.get("graphs", {})
        if "optimisers" in found:
            cells = []
            for optimiser in OPTIMISERS:
                result = found["optimisers"].get(optimiser, {})
                verdict = result.get("verdict", "same")
                wrong = "" if verdict == "same" else f" ({verdict})"
                cells.append(f"{result['nodes']}{wrong}" if "nodes" in result else "failed")
            rows.append([name, str(found["before"]), *cells])
        elif "error" in found:
            rows.append([name, f"failed: {_cell(found['error'])}", *[""] * len(OPTIMISERS)])
    head = ["model", "before", *OPTIMISERS]
    note = (
        "*wrong*: the result computes other values than the model did; *does not run*: ONNX Runtime refuses it. "
        "`Constant` nodes are not counted, nodes inside If, Loop and Scan are.\n\n"
    )
    return f"## Nodes after graph optimisation\n\n{note}{_table(head, rows)}"


def _times(records: Records) -> str:
    rows = []
    for name, record in records.items():
        found = record.get("graphs", {}).get("optimisers")
        if found:
            cells = (found.get(optimiser, {}).get("seconds") for optimiser in OPTIMISERS)
            rows.append([name, *(f"{seconds:.2f}" if seconds is not None else "failed" for seconds in cells)])
    return f"## Seconds for graph optimisation\n\n{_table(['model', *OPTIMISERS], rows)}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
