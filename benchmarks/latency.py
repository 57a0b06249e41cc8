"""One model, measured interleaved on all engines; `run` starts this in a separate process.

    python -m benchmarks.latency resnet50.dynamo.raw --threads 1,2
    python -m benchmarks.latency --models 'resnet*' 'bert*' --threads 2 --passes 3

The first form prints one JSON object. The second measures the models that match, one process each, all of them once in
a pass, and prints a line for each. Times at two threads depend on the state of the machine, which changes within
minutes. So passes are spread out, and all are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from rewrite.cli.measure import PEERS, Runner, interleave, peer
from rewrite.errors import RewriteError, UserError
from rewrite.system.hardware import saturates_pairs

from . import equal_terms, models

F32 = tuple(name for name in PEERS if "-" not in name)
EXACT = tuple(name for name in PEERS if name.endswith("exact"))
QUANTIZED = (".qdq", ".dynamic")
"""Names of quantized models end so."""


def measure(name: str, threads: Sequence[int], seconds: float, engines: Sequence[str] = F32) -> dict[str, Any]:
    """Medians by number of threads and engine, our stages' times, and how far our results are from ONNX Runtime's.

    On a CPU without VNNI, quantized models are measured on exact peers as well."""
    import rewrite
    from rewrite.backend.compile_graph import compile_graph

    file, feeds = models.path(name), models.inputs(name)
    if name.endswith(QUANTIZED) and saturates_pairs():
        engines = (*engines, *EXACT)
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
        runners: dict[str, Runner] = {"rewrite": partial(run, program)}
        missing: dict[str, str] = {}
        for engine in engines:
            try:
                runners[engine] = peer(engine, file, count)
                runners[engine](feeds)
            except Exception as error:  # a peer that cannot run a model is a result, not an end
                runners.pop(engine, None)
                missing[engine] = " ".join(str(error).split())[:200]
        ours = list(runners["rewrite"](feeds).values())
        if "onnxruntime" in runners:
            record["difference"] = difference(ours, runners["onnxruntime"](feeds))
        timings = interleave(runners, feeds, seconds=seconds)
        record["threads"][str(count)] = {engine: timing.median for engine, timing in timings.items()}
        record["missing"] = missing
    arena = program.memory()
    if arena is not None:
        record["arena"], record["arena_bound"] = arena
    return record


def run(program: Any, feeds: Mapping[str, np.ndarray]) -> Any:
    """A run of our program, as the other engines are run."""
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


def passes(names: Sequence[str], threads: str, seconds: float, count: int, limit: float = 600.0) -> None:
    """Measures models in processes of their own, `count` times over, and prints ratios (above 1: we are faster)."""
    from .run import start

    settings = ["--threads", threads, "--seconds", str(seconds)]
    for number in range(count):
        for name in names:
            record = start("latency", [name, *settings], limit)
            words = [record["error"]] if "error" in record else []
            for wide, medians in record.get("threads", {}).items():
                ours = medians["rewrite"]
                ratios = (f"{engine} {t / ours:.2f}×" for engine, t in medians.items() if engine != "rewrite")
                words.append(f"{wide} thread{'s' * (wide != '1')}: {ours * 1e3:.3f} ms, {', '.join(ratios)}")
            print(f"pass {number + 1} {name:28} " + "; ".join(words), flush=True)


def main() -> None:
    """Measure one model and print the record, or several and print lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--models", nargs="+", metavar="PATTERN", help="shell patterns: several models, in passes")
    parser.add_argument("--passes", type=int, default=1, help="with --models")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    if (options.name is None) == (options.models is None):
        parser.error("give a model, or --models")
    if options.models:
        names = models.select(options.models)
        passes(names, options.threads, options.seconds, options.passes)
        return
    with contextlib.redirect_stdout(sys.stderr):
        try:
            if not equal_terms.begin():
                raise UserError(
                    "REWRITE_MAX_ISA does not bind the peers here", hint="Unset it; avx2 needs cpuid_fault."
                )
            threads = [int(n) for n in options.threads.split(",")]
            record: Mapping[str, Any] = measure(options.name, threads, options.seconds)
        except RewriteError as error:
            record = failure(error)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
