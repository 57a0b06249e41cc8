"""One model through all graph optimizers: nodes left and time taken. `run` starts this in a separate process.

    python -m benchmarks.graphs bert_base.ts.raw

Prints one JSON object. Nodes are counted without `Constant`, which is another way to write an initializer, and with
those inside the bodies of If, Loop and Scan.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import models

Optimizer = Callable[[Path], Any]


def count(graph: Any) -> int:
    """The nodes of an ONNX graph and of the graphs inside it, `Constant` left out."""
    total = 0
    for node in graph.node:
        total += node.op_type != "Constant"
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            total += sum(count(body) for body in bodies)
    return total


def _rewrite(path: Path) -> Any:
    import rewrite

    return rewrite.optimize(path).model


def _onnxsim(path: Path) -> Any:
    import onnx
    import onnxsim

    model, _ = onnxsim.simplify(onnx.load(path), check_n=0)
    return model


def _onnxslim(path: Path) -> Any:
    import onnx
    import onnxslim

    return onnxslim.slim(onnx.load(path))


def _onnxoptimizer(path: Path) -> Any:
    import onnx
    import onnxoptimizer

    return onnxoptimizer.optimize(onnx.load(path), onnxoptimizer.get_fuse_and_elimination_passes())


def _onnxscript(path: Path) -> Any:
    import onnx
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(onnx.load(path))


def _onnxruntime_basic(path: Path) -> Any:
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = f"{folder}/basic.onnx"
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


OPTIMIZERS: dict[str, Optimizer] = {
    "rewrite": _rewrite,
    "onnxruntime basic": _onnxruntime_basic,
    "onnxsim": _onnxsim,
    "onnxslim": _onnxslim,
    "onnxoptimizer": _onnxoptimizer,
    "onnxscript": _onnxscript,
}


def measure(name: str, only: list[str] | None = None) -> dict[str, Any]:
    """Nodes and seconds by optimizer, or the error it ended with, and whether its result still computes the same."""
    import onnx

    path, feeds = models.path(name), models.inputs(name)
    expected = run(onnx.load(path), feeds)
    record: dict[str, Any] = {"before": count(onnx.load(path).graph), "optimizers": {}}
    for optimizer, work in OPTIMIZERS.items():
        if only and optimizer not in only:
            continue
        start = time.perf_counter()
        try:
            result = work(path)
            seconds = time.perf_counter() - start
            found = {"nodes": count(result.graph), "seconds": seconds, "verdict": verdict(result, feeds, expected)}
        except Exception as error:  # peers fail on models in many ways; each is a result
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        record["optimizers"][optimizer] = found
    return record


def run(model: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
    """The outputs of a model in ONNX Runtime, without optimizations of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs: list[Any] = session.run(None, feeds)
    return outputs


def verdict(model: Any, feeds: dict[str, np.ndarray], expected: list[Any]) -> str:
    """`same`, `wrong`, or `does not run` if the optimizer broke the model."""
    try:
        found = run(model, feeds)
    except Exception:  # whatever ONNX Runtime raises, the model is not usable
        return "does not run"
    return "same" if same(expected, found) else "wrong"


def same(expected: list[Any], found: list[Any]) -> bool:
    """Whether outputs agree as far as reordered f32 arithmetic does in networks of this depth."""
    return len(expected) == len(found) and all(
        a.shape == b.shape
        and (a.dtype.kind != "f" or bool(np.abs(a - b).max(initial=0) <= 1e-3 * np.abs(a).max(initial=1e-3)))
        for a, b in zip(expected, found, strict=True)
    )


def main() -> None:
    """Optimize one model with all optimizers and print the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--only", help="names of optimizers, separated by commas")
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        record = measure(options.name, options.only.split(",") if options.only else None)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
