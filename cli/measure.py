"""Measuring engines side by side: the same inputs, in turns, within one process.

Machines change their speed from minute to minute, so engines are compared only within one run, in short bursts by
turns. An engine's own threads may spin for a while after its last run; a pause before the next burst lets them sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    import numpy as np

Feeds = Mapping[str, "np.ndarray"]
Runner = Callable[[Feeds], Any]

PAUSE = 0.03
PEERS = ("onnxruntime", "openvino", "openvino-bf16")
"""Engines to compare with; the last computes in bf16 where the machine has it, the others in f32."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one run in seconds: the median, the 10th and 90th percentile, and how many runs there were."""

    median: float
    low: float
    high: float
    runs: int


def interleave(
    runners: Mapping[str, Runner], feeds: Feeds, *, seconds: float = 3.0, rounds: int = 8
) -> dict[str, Timing]:
    """Time each of `runners` on `feeds` for about `seconds` in total, in `rounds` turns.

    The first run of each burst warms caches and threads and is not counted.
    """
    for runner in runners.values():
        runner(feeds)
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            time.sleep(PAUSE)
            runner(feeds)
            end = time.perf_counter() + seconds / rounds
            while True:
                start = time.perf_counter()
                runner(feeds)
                stop = time.perf_counter()
                times[name].append(stop - start)
                if stop >= end:
                    break
    return {name: _timing(found) for name, found in times.items()}


def _timing(times: Sequence[float]) -> Timing:
    import statistics  # not at the top: every start of the command line would pay for it

    ordered = sorted(times)
    last = len(ordered) - 1
    return Timing(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))


def check_peers(names: Sequence[str]) -> None:
    """Refuse, before any work, an engine that is not known or not installed; a UserError."""
    from importlib.util import find_spec

    for name in names:
        if name not in PEERS:
            raise UserError(f"no engine {name!r} to compare with", hint=f"Known are: {', '.join(PEERS)}")
        package = name.partition("-")[0]
        if find_spec(package) is None:
            raise UserError(
                f"{package} is not installed", hint=f"pip install {package}, or leave it out: --against none"
            )


def peer(name: str, model: Path | bytes, threads: int) -> Runner:
    """A runner for the engine `name` of `PEERS` at its defaults for low latency.

    Raises:
        UserError: the engine cannot load the model.
    """
    makers: dict[str, Callable[[Path | bytes, int], Runner]] = {
        "onnxruntime": _onnxruntime,
        "openvino": _openvino,
        "openvino-bf16": partial(_openvino, precision="bf16"),
    }
    try:
        return makers[name](model, threads)
    except Exception as error:
        where = str(model) if isinstance(model, Path) else ""
        raise UserError(f"{name} cannot load the model: {error}", where=where) from error


def _onnxruntime(model: Path | bytes, threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))


def _openvino(model: Path | bytes, threads: int, precision: str = "f32") -> Runner:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": precision,  # its default is bf16 on machines that have it
        "INFERENCE_NUM_THREADS": str(threads),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
    }
    core = openvino.Core()
    network = core.read_model(model if isinstance(model, Path) else bytes(model))
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda feeds: request.infer(dict(feeds), share_inputs=True, share_outputs=True)
