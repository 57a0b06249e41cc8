"""One model, measured by turns on all engines: what `run` starts in a process of its own for each model.

    python -m benchmarks.latency resnet50.dynamo.raw --threads 1,2

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from rewrite.cli.measure import PEERS, Runner, interleave, peer
from rewrite.errors import RewriteError

from . import models


def measure(name: str, threads: list[int], seconds: float) -> dict[str, Any]:
    """Medians by number of threads and engine, our stages' times, and how far our results are from ONNX Runtime's."""
    import rewrite
    from rewrite.backend.pipeline import compile_graph

    file, feeds = models.path(name), models.inputs(name)
    start = time.perf_counter()
    optimized = rewrite.optimize(file)
    record: dict[str, Any] = {
        "optimize": time.perf_counter() - start,
        "stages": optimized.report.seconds,
        "threads": {},
    }
    for count in threads:
        start = time.perf_counter()
        program = compile_graph(optimized.native, threads=count)
        record.setdefault("compile", time.perf_counter() - start)
        record["fallbacks"] = program.fallbacks()
        runners: dict[str, Runner] = {"rewrite": partial(_run, program)}
        missing: dict[str, str] = {}
        for engine in PEERS:
            try:
                runners[engine] = peer(engine, file, count)
                runners[engine](feeds)
            except Exception as error:  # a peer that cannot run a model is a result, not an end
                runners.pop(engine, None)
                missing[engine] = " ".join(str(error).split())[:200]
        if "onnxruntime" in runners:
            record["difference"] = difference(list(runners["rewrite"](feeds).values()), runners["onnxruntime"](feeds))
        timings = interleave(runners, feeds, seconds=seconds)
        record["threads"][str(count)] = {engine: timing.median for engine, timing in timings.items()}
        record["missing"] = missing
    return record


def _run(program: Any, feeds: Mapping[str, np.ndarray]) -> Any:
    return program.run(dict(feeds))


def difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest absolute difference, relative to the largest value of each output."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if b.dtype.kind == "f" and b.size:
            scale = float(np.abs(b).max()) or 1.0
            worst = max(worst, float(np.abs(a - b).max()) / scale)
    return worst


def failure(error: BaseException) -> Mapping[str, str]:
    """What to report of a model that did not get through."""
    return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    """Measure one model and print the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            record: Mapping[str, Any] = measure(
                options.name, [int(n) for n in options.threads.split(",")], options.seconds
            )
        except RewriteError as error:
            record = failure(error)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
