"""Interleaved measurement of several engines on the same inputs in one process.

The speed of a machine changes from minute to minute, so engines are compared within one run, in short alternating
bursts. Threads of an engine may spin for a while after its last run; a pause before the next burst lets them sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    import numpy as np

Feeds = Mapping[str, "np.ndarray"]
Runner = Callable[[Feeds], Any]

PAUSE = 0.03
PEERS = ("onnxruntime", "openvino", "openvino-bf16", "onnxruntime-exact", "openvino-exact")
"""Engines to compare with. One computes in bf16 if the machine supports it, the others in f32. The exact ones do not
add products of bytes in 16 bits, as they would do on CPUs without VNNI: ONNX Runtime has slower kernels for that,
OpenVINO computes in f32 then."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run: median, 10th and 90th percentile; and the number of runs."""

    median: float
    low: float
    high: float
    runs: int


def interleave(
    runners: Mapping[str, Runner],
    feeds: Feeds,
    *,
    seconds: float = 3.0,
    rounds: int = 8,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each of `runners` on `feeds` for about `seconds` in total by a `clock`, in `rounds` bursts.

    The first run of each burst warms up caches and threads, and is not counted.
    """
    for runner in runners.values():
        runner(feeds)
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            time.sleep(PAUSE)
            runner(feeds)
            stop = clock()
            end = stop + seconds / rounds
            while stop < end:
                start = clock()
                runner(feeds)
                stop = clock()
                times[name].append(stop - start)
    return {name: _timing(sorted(found)) for name, found in times.items()}


def _timing(times: Sequence[float]) -> Timing:
    import statistics  # imported here: it would slow down every start of the command line

    last = len(times) - 1
    return Timing(statistics.median(times), times[round(0.1 * last)], times[round(0.9 * last)], len(times))


def check_peers(names: Sequence[str]) -> None:
    """Raise `UserError` for an engine that is unknown or not installed, before any work."""
    from importlib.util import find_spec

    for name in names:
        if name not in PEERS:
            raise UserError(f"unknown engine {name!r}", hint=f"Choose from {', '.join(PEERS)}.")
        package = name.partition("-")[0]
        if find_spec(package) is None:
            hint = f"pip install {package}, or leave it out: --against none"
            raise UserError(f"{package} is not installed", hint=hint)


def peer(name: str, model: Path | bytes, threads: int) -> Runner:
    """Return a runner for an engine of `PEERS` with its defaults for low latency.

    Raises `UserError` if the engine cannot load the model."""
    try:
        package, _, mode = name.partition("-")
        if package == "onnxruntime":
            return _onnxruntime(model, threads, exact=mode == "exact")
        return _openvino(model, threads, "bf16" if mode == "bf16" else "f32", exact=mode == "exact")
    except Exception as error:
        where = str(model) if isinstance(model, Path) else ""
        raise UserError(f"{name} cannot load the model: {error}", where=where) from error


def _onnxruntime(model: Path | bytes, threads: int, exact: bool) -> Runner:
    import onnxruntime

    from ..system.installed_onnxruntime import EXACT

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails raises an error
    if exact:
        options.add_session_config_entry(*EXACT)
    source = str(model) if isinstance(model, Path) else model
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))


def _openvino(model: Path | bytes, threads: int, precision: str, exact: bool) -> Runner:
    import openvino

    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": precision,  # its default is bf16 on machines that have it
        "INFERENCE_NUM_THREADS": str(threads),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        **({"LP_TRANSFORMS_MODE": False} if exact else {}),
    }
    core = openvino.Core()
    network = core.read_model(model if isinstance(model, Path) else bytes(model))
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda feeds: request.infer(dict(feeds), share_inputs=True, share_outputs=True)
