"""One model in bf16: our `--precision bf16` interleaved with OpenVINO at the same precision.

    python -m benchmarks.bf16 resnet50.dynamo.raw --threads 1,2

Prints one JSON object: medians by number of threads and engine, the number of our products in bf16, and the errors of
both against ONNX Runtime in f32. `--f32` measures our f32 as well. `--processor-time` counts the time that processors
spend on a run, for machines that are busy with other work; one thread then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rewrite.cli.measure import Runner, interleave, peer
from rewrite.engine.cost import machine
from rewrite.errors import RewriteError, UserError

from . import models
from .latency import difference, failure, run

PEER = "openvino-bf16"
F32 = "rewrite-f32"


def multiplies_bf16() -> bool:
    """Whether this machine multiplies bf16 faster than f32."""
    return machine.rates()["bf16"] > 1


def measure(
    name: str,
    threads: Sequence[int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    f32: bool = False,
) -> dict[str, Any]:
    """Medians by number of threads and engine, the numbers of products, and both errors. Raises UserError."""
    import rewrite
    from rewrite.backend.compile_graph import compile_graph

    if not multiplies_bf16():
        raise UserError(
            "this CPU does not multiply bf16 faster than f32", hint="Kernels for it want AMX, or AVX512-BF16 on a Zen."
        )
    file, feeds = models.path(name), models.inputs(name)
    optimized = rewrite.optimize(file, precision="bf16")
    reference = peer("onnxruntime", file, threads[0])(feeds)
    record: dict[str, Any] = {"products": optimized.report.precision, "threads": {}}
    for count in threads:
        program = compile_graph(optimized.native, threads=count)
        runners: dict[str, Runner] = {"rewrite": partial(run, program), PEER: peer(PEER, file, count)}
        record["rewrite"] = difference(list(runners["rewrite"](feeds).values()), reference)
        record[PEER] = difference(list(runners[PEER](feeds).values()), reference)
        if f32:
            runners[F32] = partial(run, compile_graph(rewrite.optimize(file).native, threads=count))
        timings = interleave(runners, feeds, seconds=seconds * len(runners), clock=clock)
        record["threads"][str(count)] = {engine: timing.median for engine, timing in timings.items()}
    return record


def main() -> None:
    """Measure one model and print the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--f32", action="store_true", help="measure our f32 as well")
    parser.add_argument("--processor-time", action="store_true", help="time of processors; one thread")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    with contextlib.redirect_stdout(sys.stderr):
        try:
            record: Mapping[str, Any] = measure(
                options.name,
                [int(n) for n in options.threads.split(",")],
                options.seconds,
                clock,
                options.f32,
            )
        except RewriteError as error:
            record = failure(error)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
