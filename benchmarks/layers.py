"""Single layers of real networks as a share of what the machine allows, by vector extension and layout.

    python -m benchmarks.layers [gemm resnet50 mobile depthwise pool rows] [--targets avx512,avx2] [--only 1x1]

Each line is one layer of `benchmarks.kernels`, compiled for each layout of images without the choice that a network
makes between them. A layer takes at least as long as its multiply-adds at the peak of the *same* vector extension, and
as reading and writing its operands once. The peak is measured before and after each run, since clocks change. Reading
and writing is measured after the runs, on buffers of the same sizes, so its rate is that of the layer's working set.
The share is that of the one that takes longer. Winograd's algorithm may exceed the peak. Times are those of kernels,
10th percentiles: the interpreter takes 10 to 50 µs more to return where a layer has filled the caches.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rewrite.backend.compile_graph import compile_graph
from rewrite.cli import profiling
from rewrite.engine.cost import microbench
from rewrite.system import scoped
from rewrite.system.compiler import c_compilers

from . import harness, kernels

if TYPE_CHECKING:
    from rewrite.backend.runtime.link import Launch
    from rewrite.engine.cost.machine import Machine

DEFAULT = ("gemm", "resnet50", "mobile", "depthwise", "pool", "rows", "attention")
_LAST = {
    "Conv": "rewrite.ChannelsLastConv",
    "ConvTranspose": "rewrite.ChannelsLastConvTranspose",
    "MaxPool": "rewrite.ChannelsLastMaxPool",
    "AveragePool": "rewrite.ChannelsLastAveragePool",
}


def layouts(layer: kernels.Layer) -> Iterator[tuple[str, kernels.Layer]]:
    """Yield the layer as it is, and if it is one of images, with their channels last."""
    yield "", layer
    if layer.nodes[0].op in _LAST:
        first, *others = layer.nodes
        nodes = [dataclasses.replace(first, op=_LAST[first.op]), *others]
        inputs = {name: np.ascontiguousarray(np.moveaxis(x, 1, -1)) for name, x in layer.inputs.items()}
        yield "last", dataclasses.replace(layer, nodes=nodes, inputs=inputs)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The functions of `microbench.c` that measure what a machine allows, with vectors of this process's extension."""

    library: ctypes.CDLL

    @classmethod
    def compiled(cls, lanes: int, folder: Path) -> Limits:
        """Compile the functions for vectors of `lanes` floats."""
        library = folder / "limits.so"
        source = Path(microbench.__file__).with_suffix(".c")
        flags = ["-O3", "-march=native", "-ffp-contract=fast", f"-DWIDTH={lanes}", "-pthread", "-shared", "-fPIC"]
        subprocess.run([*c_compilers()[0], *flags, str(source), "-o", str(library)], check=True)
        found = ctypes.CDLL(str(library))
        for function in (found.peak, found.traffic):
            function.restype = ctypes.c_double
        found.peak.argtypes = [ctypes.c_double]
        return cls(found)

    def peak(self) -> float:
        """Measure the flop/s of multiply-adds of vectors, for a third of a millisecond."""
        return float(self.library.peak(1e-5))

    def traffic(self, launches: Sequence[Launch]) -> Callable[[], float]:
        """Return a function that measures the seconds of reading and writing once what kernels read and wrote."""
        sizes: dict[int, int] = {}
        used = [buffer for launch in launches for buffer in launch.buffers if buffer[1] > 0]
        for address, size, _ in used:
            sizes[address] = max(size, sizes.get(address, 0))
        copies = {address: harness.aligned((size,), np.uint8) for address, size in sizes.items()}
        count = len(used)
        places = (ctypes.c_void_p * count)(*(copies[address].ctypes.data for address, _, _ in used))
        lengths = (ctypes.c_size_t * count)(*(size for _, size, _ in used))
        written = (ctypes.c_int * count)(*(out for _, _, out in used))

        def measured() -> float:
            assert copies  # alive as long as they are used
            return float(self.library.traffic(count, places, lengths, written))

        return measured


def measure(layer: kernels.Layer, machine: Machine, limits: Limits, seconds: float) -> dict[str, Any]:
    """Return the kernels of a layer, the microseconds of a run, and its share of what limits it."""
    graph = harness.make_graph(layer.nodes, layer.inputs, constants=layer.constants, outputs=["y"])
    program = compile_graph(graph, threads=1)
    feeds = {name: harness.aligned(array.shape, array.dtype) for name, array in layer.inputs.items()}
    for name, array in layer.inputs.items():  # aligned ones are read where they lie
        feeds[name][...] = array
    profile = program.profile(feeds, seconds=0.0, machine=machine)
    flops, nbytes = (sum(getattr(row, name) for row in profile.rows) for name in ("flops", "nbytes"))
    times: list[float] = []
    shares: list[float] = []
    end = time.thread_time() + seconds
    while len(times) < 20 or time.thread_time() < end:
        before = limits.peak()
        program.record(feeds)
        spans = [span for launch in program.record(feeds) for span in launch.spans]
        times.append(max(end for _, end in spans) - min(start for start, _ in spans))
        shares.append(flops / times[-1] / max(before, limits.peak()))
    traffic = limits.traffic(profile.launches)
    least: list[float] = []
    end = time.thread_time() + seconds / 4
    while len(least) < 20 or time.thread_time() < end:  # by itself, as its buffers would evict those of a run
        least.append(traffic())
    fast, memory = (sorted(found)[len(found) // 10] for found in (times, least))
    computing = sorted(shares)[-1 - len(shares) // 10]
    bound = computing >= memory / fast
    return {
        "kernels": "+".join(kernel for row in profile.rows for kernel in row.kernels),
        "us": fast * 1e6,
        "share": max(computing, memory / fast),
        "of": "peak" if bound else f"{nbytes / memory / 1e9:.0f} GB/s",
    }


def mark(record: dict[str, Any]) -> float:
    """Return the share that a layer should reach: of the peak where its kernel multiplies, else of the bandwidth.

    Of depthwise filters it is the same share of whichever limits them."""
    if record["of"] != "peak" or record["kernels"].startswith("depthwise"):
        return 0.8
    return 1.8 if "winograd" in record["kernels"] else 0.88


def table(sets: Sequence[str], only: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure the layers with the vector extension of this process, and yield a record for each layer and layout."""
    machine = profiling.machine()
    yield {"machine": machine.cpu, "flops": machine.flops, "bandwidths": machine.bandwidths}
    with scoped.directory("layers") as folder:
        limits = Limits.compiled(machine.lanes, folder)
        for name in sets:
            for layer in kernels.SETS[name]():
                for layout, variant in layouts(layer) if only in layer.label else ():
                    yield {"layer": layer.label, "layout": layout, **measure(variant, machine, limits, seconds)}


def main() -> None:
    """Measure with each target in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(DEFAULT), help=f"some of {', '.join(kernels.SETS)}")
    parser.add_argument(
        "--targets", default="avx512,avx2", help="vector extensions; the machine's best must come first"
    )
    parser.add_argument("--only", default="", help="layers whose label contains this")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each layer, layout and target")
    parser.add_argument("--json", action="store_true", help="one object per layer, with this process's extension")
    options = parser.parse_args()
    if unknown := [name for name in options.sets if name not in kernels.SETS]:
        parser.error(f"no set {unknown[0]!r}; there are {', '.join(kernels.SETS)}")
    if options.json:
        for record in table(options.sets, options.only, options.seconds):
            print(json.dumps(record), flush=True)
        return
    command = [sys.executable, "-m", "rewrite.benchmarks.layers", *options.sets, "--json", "--only", options.only]
    command += ["--seconds", str(options.seconds)]
    found: dict[tuple[str, str], list[str]] = {}
    targets = options.targets.split(",")
    for target in targets:
        limit = {} if target == "avx512" else {"REWRITE_MAX_ISA": target}
        done = subprocess.run(command, env=os.environ | limit, capture_output=True, text=True, check=True)
        head, *records = map(json.loads, done.stdout.splitlines())
        below = sum(record["share"] < mark(record) for record in records)
        rates = ", ".join(f"{rate / 1e9:.0f}" for rate in head["bandwidths"])
        print(f"{target}: {head['machine']}, {head['flops'] / 1e9:.0f} GFLOP/s; L1, L2, L3, DRAM {rates} GB/s")
        print(f"{target}: {below} of {len(records)} below the mark, in bold")
        for record in records:
            bold = "**" if record["share"] < mark(record) else ""
            cell = f"{record['us']:.0f} | {bold}{record['share']:.0%}{bold} {record['of']} | {record['kernels']}"
            found.setdefault((record["layer"], record["layout"]), []).append(cell)
    print("\n| layer | layout |" + "".join(f" {t}, µs | share of | kernels |" for t in targets))
    print("| --- | --- |" + " ---: | ---: | --- |" * len(targets))
    for (layer, layout), cells in found.items():
        print(f"| {layer} | {layout} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
