"""The records of `run` as tables in Markdown."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("onnxruntime", "openvino", "onnxsim", "onnxslim", "onnxoptimizer", "onnxscript", "onnx", "torch")
OPTIMIZERS = ("rewrite", "onnxruntime basic", "onnxsim", "onnxslim", "onnxoptimizer", "onnxscript")
LEVELS = ("L1", "L2", "L3", "DRAM")
Records = Mapping[str, Mapping[str, Any]]


def line(name: str, record: Mapping[str, Any]) -> str:
    """Summary of one model's record, for the terminal."""
    words = []
    graphs, latency = record.get("graphs", {}), record.get("latency", {})
    if "optimizers" in graphs:
        nodes = {key: found.get("nodes", "-") for key, found in graphs["optimizers"].items()}
        words.append(f"nodes {graphs['before']} -> " + " ".join(f"{key} {n}" for key, n in nodes.items()))
    for count, medians in latency.get("threads", {}).items():
        words.append(f"{count} threads " + " ".join(f"{key} {t * 1e3:.2f} ms" for key, t in medians.items()))
    memory, exact = record.get("memory", {}), record.get("exact", {})
    if "rewrite" in memory:
        words.append(" ".join(f"{key} {memory[key] >> 20} MiB" for key in ("rewrite", "onnxruntime")))
    if "rewrite" in exact:
        words.append(f"error {exact['rewrite']:.1e} ({exact['onnxruntime']:.1e})")
    bf16 = record.get("bf16", {})
    for count, medians in bf16.get("threads", {}).items():
        words.append(f"bf16, {count} threads " + " ".join(f"{key} {t * 1e3:.2f} ms" for key, t in medians.items()))
    words += [part["error"] for part in (graphs, latency, bf16, memory, exact) if "error" in part]
    return f"{name:30} " + "; ".join(words)


def render(records: Records, layers: Mapping[str, Any] | None = None) -> str:
    """The whole document: models, and `layers` as `kernels` gives them."""
    measured = (
        found for r in records.values() for found in (r.get("latency", {}).get("threads", {}), *r.get("passes", []))
    )
    counts = sorted({count for found in measured for count in found}, key=int)
    parts = [_head(), *(_latency(records, n) for n in counts), _bf16(records), _memory(records)]
    parts += [_exact(records), _compile(records), _kernels(layers or {}), _nodes(records), _times(records)]
    return "\n".join(part for part in parts if part)


def _passes(record: Mapping[str, Any], count: str) -> list[Mapping[str, float]]:
    """The medians by engine of each pass at `count` threads."""
    found = [p[count] for p in record.get("passes", []) if count in p]
    alone = record.get("latency", {}).get("threads", {})
    return found or ([alone[count]] if count in alone else [])


def _middle(values: Iterable[float]) -> float:
    return statistics.median(list(values))


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
`raw` with the exporter's own optimization off, `opt` on, `dyn` raw with symbolic sizes, all with seeded random weights;
`light_*` are the `onnx` package's networks with random weights; `*.qdq` and `bert_mini.dynamic` are
quantized, and run so by all engines; the others are trained models.

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
    several = max((len(_passes(record, count)) for record in records.values()), default=0) > 1
    for name, record in records.items():
        found = record.get("latency", {})
        passes = _passes(record, count)
        if not passes:
            if "error" in found:
                rows.append([name, f"failed: {_cell(found['error'])}", *[""] * (4 + several)])
            continue
        row = [name, f"{_middle(p['rewrite'] for p in passes) * 1e3:.3f}"]
        for peer in ratios:
            times = [p[peer] for p in passes if peer in p]
            row.append(f"{_middle(times) * 1e3:.3f}" if times else "cannot run it")
        for peer, values in ratios.items():
            each = [p[peer] / p["rewrite"] for p in passes if peer in p]
            row.append(f"{_middle(each):.2f}" if each else "")
            values += [_middle(each)] if each else []
        if several:
            row.append(
                "; ".join(" ".join(f"{p[q] / p['rewrite']:.2f}" if q in p else "-" for q in ratios) for p in passes)
            )
        rows.append(row)
    mean = ["**geometric mean**", "", "", "", *(f"**{_mean(values):.2f}**" for values in ratios.values())]
    rows.append([*mean, *([""] if several else [])])
    head = ["model", "rewrite, ms", "ONNX Runtime, ms", "OpenVINO, ms", "vs ONNX Runtime", "vs OpenVINO"]
    note = ""
    if several:
        head.append("each pass: vs ONNX Runtime, vs OpenVINO")
        note = "Passes are minutes apart; times and ratios are medians over them.\n\n"
    return f"## Latency, f32, {count} thread{'s' * (count != '1')}\n\n{note}{_table(head, rows)}"


def _bf16(records: Records) -> str:
    """Our bf16 compared with OpenVINO's; empty if it was not measured."""
    found = {name: record["bf16"] for name, record in records.items() if "bf16" in record}
    counts = sorted({count for record in found.values() for count in record.get("threads", {})}, key=int)
    rows: list[list[str]] = []
    behind: list[str] = []
    ratios: dict[str, list[float]] = {count: [] for count in counts}
    for name, record in found.items():
        if "error" in record:
            rows.append([name, f"failed: {_cell(record['error'])}", *[""] * (3 * len(counts) + 2)])
            continue
        products = record["products"]
        in_f32 = products["in_f32"] if "in_f32" in products else products["kept"]  # the key of older records
        row = [name, f"{products['lowered']} of {products['lowered'] + in_f32}"]
        for count in counts:
            medians = record["threads"].get(count)
            if medians is None:
                row += ["", "", ""]
                continue
            ours, theirs = medians["rewrite"], medians["openvino-bf16"]
            ratios[count].append(theirs / ours)
            if theirs < ours:
                behind.append(f"{name} at {count} thread{'s' * (count != '1')}")
            row += [f"{ours * 1e3:.3f}", f"{theirs * 1e3:.3f}", f"{theirs / ours:.2f}"]
        rows.append([*row, f"{record['rewrite']:.1e}", f"{record['openvino-bf16']:.1e}"])
    if not any(ratios.values()):
        return ""
    means = [cell for count in counts for cell in ("", "", f"**{_mean(ratios[count]):.2f}**")]
    rows.append(["**geometric mean**", "", *means, "", ""])
    head = ["model", "products in bf16"]
    for count in counts:
        wide = f"{count} thread{'s' * (count != '1')}"
        head += [f"rewrite, {wide}, ms", f"OpenVINO, {wide}, ms", f"ratio, {wide}"]
    note = (
        "`--precision bf16` interleaved with OpenVINO at its bf16 hint. Errors are the largest differences from what "
        "ONNX Runtime computes in f32, relative to the largest value of the output; products are those with constants, "
        "of which some stay f32 where that is faster (Winograd's algorithm, first layers).\n\n"
    )
    if behind:
        note += (
            f"Behind OpenVINO: {', '.join(behind)}. Most activations are f32 between layers, where OpenVINO's are "
            "bf16: convolutions by Winograd's algorithm and what is between products move twice the bytes, and memory "
            "is what threads share.\n\n"
        )
    return f"## Latency, bf16\n\n{note}{_table([*head, 'error', 'OpenVINO, error'], rows)}"


def _memory(records: Records) -> str:
    """Peaks of memory; empty if they were not measured."""
    rows: list[list[str]] = []
    ratios: list[float] = []
    above: list[str] = []
    for name, record in records.items():
        found = record.get("memory", {})
        latency = record.get("latency", {})
        if "rewrite" in found and "onnxruntime" in found:
            ours, theirs = found["rewrite"], found["onnxruntime"]
            ratios.append(theirs / ours)
            if ours >= theirs:
                run = f", of which the reference implementation runs {found.get('fallbacks')} nodes"
                above.append(name + (run if found.get("fallbacks") else ""))
            sizes = found if "arena" in found else latency
            bound = sizes.get("arena_bound", 0)
            over = f"{100 * (sizes['arena'] / bound - 1):.1f} %" if bound else ""
            rows.append([name, f"{ours / 2**20:.0f}", f"{theirs / 2**20:.0f}", f"{theirs / ours:.2f}", over])
        elif "error" in found:
            rows.append([name, f"failed: {_cell(found['error'])}", "", "", ""])
    if not rows:
        return ""
    rows.append(["**geometric mean**", "", "", f"**{_mean(ratios):.2f}**", ""])
    base = [r["memory"]["nothing"] for r in records.values() if "nothing" in r.get("memory", {})]
    note = (
        "The largest resident set of a process that loads the compiled bundle, or the model, and runs it three times "
        f"at one thread, Python and NumPy ({_middle(base) / 2**20:.0f} MiB) and mapped files included. The arena "
        "is what intermediate values take; its bound is the most that is alive at once. Besides these two a process "
        "takes 10 MiB for what loading a bundle imports, and the weights as kernels read them, mapped.\n\n"
    )
    if above:
        note += f"Not below ONNX Runtime: {'; '.join(above)}.\n\n"
    head = ["model", "rewrite, MiB", "ONNX Runtime, MiB", "ratio", "arena above its bound"]
    return f"## Memory of a run\n\n{note}{_table(head, rows)}"


def _exact(records: Records) -> str:
    """Errors against f64; empty if they were not measured."""
    rows = []
    for name, record in records.items():
        found = record.get("exact", {})
        if "rewrite" in found:
            rows.append([name, f"{found['rewrite']:.1e}", f"{found['onnxruntime']:.1e}"])
        elif "error" in found:
            rows.append([name, f"not computed: {_cell(found['error'])}", ""])
    note = (
        "The largest difference from the model's own graph computed in f64, relative to the largest value of the "
        "output. ONNX's reference evaluator computes it, with convolutions and pooling by PyTorch in f64 "
        "(`benchmarks/exact.py`). T5 puts distances into buckets by their logarithms, and some lie on the border: f64 "
        "takes another one than both engines.\n\n"
    )
    return f"## Errors\n\n{note}{_table(['model', 'rewrite', 'ONNX Runtime'], rows)}" if rows else ""


def _kernels(layers: Mapping[str, Any]) -> str:
    """Single layers compared with the peers; empty if they were not measured."""
    found = layers.get("layers", [])
    parts = []
    for threads in sorted({layer["threads"] for layer in found}):
        rows = []
        ratios: dict[str, list[float]] = {"onnxruntime": [], "openvino": []}
        for layer in (one for one in found if one["threads"] == threads):
            row = [layer["layer"], f"{layer['rewrite'] * 1e6:.1f}", _of_limit(layer)]
            for peer, values in ratios.items():
                ratio = layer[peer] / layer["rewrite"] if peer in layer else None
                row.append(f"{ratio:.2f}" if ratio else "")
                values += [ratio] if ratio else []
            rows.append([*row, f"{layer['difference']:.0e}"])
        rows.append(["**geometric mean**", "", "", *(f"**{_mean(values):.2f}**" for values in ratios.values()), ""])
        head = ["layer", "rewrite, µs", "of the limit", "vs ONNX Runtime", "vs OpenVINO", "error"]
        parts.append(f"### {threads} thread{'s' * (threads != 1)}\n\n{_table(head, rows)}")
    if not parts:
        return ""
    machine = layers["machine"]
    rates = ", ".join(f"{level} {rate / 1e9:.0f}" for level, rate in zip(LEVELS, machine["bandwidths"], strict=True))
    note = (
        f"The limit of a layer is the peak of fused multiply-adds ({machine['flops'] / 1e9:.0f} GFLOP/s a thread) or "
        f"the bandwidth (GB/s: {rates}) of the smallest memory that holds its operands, whichever takes longer. "
        "Winograd's algorithm may pass the first. Errors are against f64, relative to the largest value.\n"
    )
    return "\n".join(["## Single layers, f32\n", note, *parts])


def _of_limit(layer: Mapping[str, Any]) -> str:
    share = max(layer["least_compute"], layer["least_memory"]) / layer["rewrite"]
    return f"{share:.0%} {'compute' if layer['least_compute'] >= layer['least_memory'] else layer['level']}".replace(
        "%", " %"
    )


def _compile(records: Records) -> str:
    rows = []
    for name, record in records.items():
        found = record.get("latency", {})
        if "optimize" in found:
            fallbacks = ", ".join(f"{op} ×{n}" for op, n in sorted(found.get("fallbacks", {}).items())) or "-"
            difference = f"{found['difference']:.1e}" if "difference" in found else ""
            rows.append([name, f"{found['optimize']:.2f}", f"{found.get('compile', 0):.2f}", difference, fallbacks])
    head = ["model", "optimize, s", "compile, s", "largest difference to ONNX Runtime", "without native kernel"]
    return f"## Compile time and numerics\n\n{_table(head, rows)}"


def _nodes(records: Records) -> str:
    rows = []
    for name, record in records.items():
        found = record.get("graphs", {})
        if "optimizers" in found:
            cells = []
            for optimizer in OPTIMIZERS:
                result = found["optimizers"].get(optimizer, {})
                verdict = result.get("verdict", "same")
                wrong = "" if verdict == "same" else f" ({verdict})"
                cells.append(f"{result['nodes']}{wrong}" if "nodes" in result else "failed")
            rows.append([name, str(found["before"]), *cells])
        elif "error" in found:
            rows.append([name, f"failed: {_cell(found['error'])}", *[""] * len(OPTIMIZERS)])
    head = ["model", "before", *OPTIMIZERS]
    note = (
        "*wrong*: the result computes other values than the model did; *does not run*: ONNX Runtime refuses it. "
        "`Constant` nodes are not counted, nodes inside If, Loop and Scan are.\n\n"
    )
    return f"## Nodes after graph optimization\n\n{note}{_table(head, rows)}"


def _times(records: Records) -> str:
    rows = []
    for name, record in records.items():
        found = record.get("graphs", {}).get("optimizers")
        if found:
            cells = (found.get(optimizer, {}).get("seconds") for optimizer in OPTIMIZERS)
            rows.append([name, *(f"{seconds:.2f}" if seconds is not None else "failed" for seconds in cells)])
    return f"## Seconds for graph optimization\n\n{_table(['model', *OPTIMIZERS], rows)}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
