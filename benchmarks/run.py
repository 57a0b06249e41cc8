"""All measurements: latency, memory and errors against ONNX Runtime and OpenVINO, graphs against the graph optimizers.

    python -m benchmarks.run                                 everything; writes docs/measurements/benchmarks.md
    python -m benchmarks.run 'resnet*' --threads 1           some models; their rows are renewed, the others stay
    python -m benchmarks.run --only latency --passes 5       one kind of measurement
    python -m benchmarks.run --only bf16                     another: in bf16, compared with OpenVINO

Each model is measured in a separate process, with interleaved engines. The first pass goes over all models at
one and at two threads; more passes measure two threads again, later, since the machine may then be in another state.
Records are stored next to the models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rewrite.system.hardware import isa_limit

from . import models, quantized, report
from .bf16 import multiplies_bf16

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("latency", "bf16", "memory", "exact", "graphs", "kernels")


def records_file() -> Path:
    """File of the records of all runs."""
    return _limited("records")


def _limited(name: str) -> Path:
    """Return a file next to the models, another one for each limit of vector extensions."""
    return models.directory() / f"{name}{isa_limit() and '-'}{isa_limit()}.json"


def load_records() -> dict[str, dict[str, Any]]:
    """The records of earlier runs by model."""
    file = records_file()
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def start(module: str, arguments: list[str], limit: float) -> dict[str, Any]:
    """The record that a module of this package prints for one model, or the error it ended with."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {limit:.0f} s"}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": last[0][:300]}
    record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def main() -> None:
    """Measure the chosen models and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="shell patterns of model names; by default the measured set")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0, help="per engine and number of threads")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one model may take")
    parser.add_argument("--passes", type=int, default=3, help="of those with several threads")
    parser.add_argument("--only", choices=KINDS, action="append", help="some kinds of measurement; may be repeated")
    parser.add_argument(
        "--output", type=Path, help="default: docs/measurements/benchmarks.md, without a limit of vectors"
    )
    options = parser.parse_args()
    patterns = options.patterns
    kinds = set(options.only or KINDS)
    measured = models.BF16 if kinds == {"bf16"} else models.MEASURED
    names = [n for n in models.names() if any(fnmatch(n, p) for p in patterns)] if patterns else list(measured)
    if not names:
        raise SystemExit("no model of the zoo matches; see python -m benchmarks.models --list")
    if "bf16" in kinds and not multiplies_bf16():
        print("bf16 is not measured: this CPU does not multiply it (AVX512-BF16)", flush=True)
        kinds.remove("bf16")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    records = load_records()
    for name in names:
        models.path(name)
        record = records.setdefault(name, {})
        if "graphs" in kinds:
            record["graphs"] = start("graphs", [name], options.limit)
        if "latency" in kinds:
            record["latency"] = start("latency", [name, *_settings(options, options.threads)], options.limit)
            record["passes"] = [record["latency"]["threads"]] if "threads" in record["latency"] else []
        if "bf16" in kinds and name in models.BF16:
            record["bf16"] = start("bf16", [name, *_settings(options, options.threads)], options.limit)
        if "memory" in kinds:
            record["memory"] = start("memory", [name], options.limit)
        if "exact" in kinds and name not in quantized.NAMES:  # theirs is another function in f64: nothing is rounded
            record["exact"] = start("exact", [name], options.limit)
        _store(records)
        print(report.line(name, record), flush=True)
    several = ",".join(n for n in options.threads.split(",") if n != "1")
    for number in range(2, options.passes + 1 if "latency" in kinds and several else 0):
        for name in names:
            if records[name].get("passes"):
                found = start("latency", [name, *_settings(options, several)], options.limit)
                records[name]["passes"] += [found["threads"]] if "threads" in found else []
                _store(records)
                print(f"pass {number}: {report.line(name, {'latency': found})}", flush=True)
    if "kernels" in kinds and not patterns:
        layers = start("kernels", ["--json"], 4 * options.limit)
        _limited("kernels").write_text(json.dumps(layers, indent=1), encoding="utf-8")
    layers_file = _limited("kernels")
    layers = json.loads(layers_file.read_text(encoding="utf-8")) if layers_file.exists() else {}
    output = options.output or (None if isa_limit() else ROOT / "docs/measurements/benchmarks.md")
    if output is not None:
        output.write_text(report.render(records, layers), encoding="utf-8")
    print(f"written to {output or records_file()}")


def _settings(options: argparse.Namespace, threads: str) -> list[str]:
    return ["--threads", threads, "--seconds", str(options.seconds)]


def _store(records: dict[str, dict[str, Any]]) -> None:
    records_file().write_text(json.dumps(records, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
