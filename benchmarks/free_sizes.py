"""Latency of programs for any size, beside programs of the same networks for one size.

    python -m rewrite.benchmarks.free_sizes [MODEL...] [--target avx2] [--copies 3] [--profile]

One thread; minima of interleaved bursts, and medians over copies of a program: where its weights and buffers lie in
memory makes some 4 % of its time. All run on the same inputs: ours with free sizes over ours with fixed ones, and ONNX
Runtime with free sizes over ours with free sizes. The last column counts the nodes without a kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import numpy as np
import onnx
import onnxruntime
import rewrite

from . import models
from .inputs import make_inputs

ROUNDS = 15
BURST = 0.1  # seconds

NETS: dict[str, Mapping[str, int]] = {
    "nudenet": {"height": 320, "width": 320},
    "ocr_det": {"p2o.DynamicDimension.1": 480, "p2o.DynamicDimension.2": 640},
    "ocr_rec": {"x.2": 48, "p2o.DynamicDimension.1": 320},
    "resnet18.ts.free": {"height": 224, "width": 224},
    "resnet50.ts.free": {"height": 256, "width": 320},
    "mobilenet_v2.ts.free": {"height": 224, "width": 224},
    "efficientnet_b0.ts.free": {"height": 240, "width": 240},
    "regnet.ts.free": {"height": 224, "width": 224},
    "convnext_tiny.ts.free": {"height": 224, "width": 288},
    "swin_tiny.ts.free": {"height": 224, "width": 224},
    "segformer.ts.free": {"height": 320, "width": 256},
    "pvt_v2.ts.free": {"height": 224, "width": 224},
    "mobilevit.ts.free": {"height": 256, "width": 256},
    "yolo.ts.free": {"height": 480, "width": 640},
    "unet.ts.free": {"height": 256, "width": 256},
    "unet_3d.ts.free": {"depth": 32, "height": 48, "width": 48},
    "fsrcnn.ts.free": {"height": 96, "width": 96},
    "edsr.ts.free": {"height": 48, "width": 48},
    "bert_base.ts.dyn": {"sequence": 128},
    "gpt2.ts.dyn": {"sequence": 64},
    "llama.ts.dyn": {"sequence": 64},
    "wav2vec2.ts.free": {"samples": 16000},
    "conformer.ts.free": {"samples": 16000},
    "silero_vad_16k": {"sequence": 576},
}
"""Networks, and the sizes that they are run at; batches are 1."""


def minima(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least seconds of each call, in bursts that take turns."""
    for call in calls.values():
        call()
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            end = time.perf_counter() + BURST
            while (start := time.perf_counter()) < end:
                call()
                least[name] = min(least[name], time.perf_counter() - start)
    return least


def measure(name: str, target: str, copies: int, profile: bool) -> list[str]:
    """Return the row of a network."""
    model = onnx.load(models.path(name))
    fixed = {"batch": 1, "p2o.DynamicDimension.0": 1, **NETS[name]}
    symbols = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    feeds = make_inputs(model, fixed)
    shapes = {n: s for n, s in fixed.items() if n in symbols}
    free = [rewrite.compile(model, threads=1, target=target) for _ in range(copies)]
    exact = [rewrite.compile(model, threads=1, target=target, shapes=shapes) for _ in range(copies)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = peer.run(None, dict(feeds))
    for got, want in zip(free[0].run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-3 * max(1.0, float(np.abs(want).max())))
    calls: dict[str, Callable[[], object]] = {"peer": lambda: peer.run(None, dict(feeds))}
    for i, pair in enumerate(zip(free, exact, strict=True)):
        for kind, program in zip(("free", "fixed"), pair, strict=True):
            calls[f"{kind} {i}"] = partial(program.run, feeds)
    least = minima(calls)
    times = {kind: median(least[f"{kind} {i}"] for i in range(copies)) for kind in ("free", "fixed")}
    if profile:
        for size, program in (("free", free[0]), ("fixed", exact[0])):
            print(size, file=sys.stderr)
            for kernel in program.profile(feeds).rows:
                print(
                    f"  {kernel.seconds * 1e6:9.1f} us {'+'.join(kernel.kernels)} {kernel.ops} {kernel.shape}",
                    file=sys.stderr,
                )
    ratios = (times["free"] / times["fixed"], least["peer"] / times["free"])
    at = " x ".join(str(n) for n in next(iter(feeds.values())).shape)
    return [name, at, *(f"{ratio:.2f}" for ratio in ratios), str(sum(free[0].fallbacks().values()))]


def main() -> None:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(NETS))
    parser.add_argument("--target", default="native")
    parser.add_argument("--copies", type=int, default=3, help="copies of each program (default 3)")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    print("| network | input | free / fixed, ours | ONNX Runtime / ours, free | nodes without a kernel |")
    print("|---|---|---:|---:|---:|")
    for name in given.models:
        print(f"| {' | '.join(measure(name, given.target, given.copies, given.profile))} |", flush=True)


if __name__ == "__main__":
    main()
