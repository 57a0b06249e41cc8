"""All measurements: latency against ONNX Runtime and OpenVINO, graphs against the graph optimisers.

    python -m benchmarks.run                          everything; writes docs/benchmarks.md
    python -m benchmarks.run 'resnet*' --threads 1    some models; their rows are renewed, the others stay

Each model is measured in a process of its own, in which the engines take turns. Records are kept beside the models.
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

from . import models, report

ROOT = Path(__file__).resolve().parent.parent


def records_file() -> Path:
    """Where the records of all runs are kept."""
    return models.directory() / "records.json"


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
    parser.add_argument("--only", choices=("latency", "graphs"))
    parser.add_argument("--output", type=Path, default=ROOT / "docs/benchmarks.md")
    options = parser.parse_args()
    patterns = options.patterns
    names = [n for n in models.names() if any(fnmatch(n, p) for p in patterns)] if patterns else list(models.MEASURED)
    if not names:
        raise SystemExit("no model of the zoo matches; see python -m benchmarks.models --list")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    records = load_records()
    for name in names:
        models.path(name)
        record = records.setdefault(name, {})
        if options.only != "latency":
            record["graphs"] = start("graphs", [name], options.limit)
        if options.only != "graphs":
            settings = ["--threads", options.threads, "--seconds", str(options.seconds)]
            record["latency"] = start("latency", [name, *settings], options.limit)
        records_file().write_text(json.dumps(records, indent=1), encoding="utf-8")
        print(report.line(name, record), flush=True)
    options.output.write_text(report.render(records), encoding="utf-8")
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
