"""Micro-kernels by C compiler: the time of each compiler's code, as a multiple of the fastest.

    python -m benchmarks.compilers gcc clang-14 [--targets avx512,avx2,portable] [--seconds 2] [--json FILE]

One layer for each kind of micro-kernel, on one thread. The programs of all compilers are interleaved in one process and
compared by the 10th percentile of their runs. Targets that this CPU does not run are left out."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rewrite
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.backend.runtime.program import Program
from rewrite.backend.toolchain.compiler import find_compiler
from rewrite.cli.measure import interleave
from rewrite.engine.optimizer import Optimized

from .kernels import Layer, add, as_model, attention, conv, conv_transpose, gemm, lstm, node, pool, resize

LAYERS = (
    lambda: gemm(196, 768, 768),
    lambda: gemm(1, 768, 768),
    lambda: conv(256, 128, 28, 1),
    lambda: conv(64, 128, 56, 3, 2),
    lambda: conv(128, 128, 28, 3),  # by Winograd's algorithm
    lambda: conv(128, 128, 56, 3, 1, 32),
    lambda: conv(144, 144, 56, 3, 1, 144),
    lambda: conv(96, 96, 56, 7, 1, 96),
    lambda: conv_transpose(128, 64, 28, 2, 2),
    lambda: pool("MaxPool", 64, 112, 3, 2),
    lambda: lstm(50, 1, 128, 128),
    lambda: attention(12, 128, 128, 64),
    lambda: node("Softmax", 12, 128, 128, axis=-1),
    lambda: node("Gelu", 128, 3072),
    lambda: add(1, 256, 56, 56),
    lambda: node("Transpose", 1, 96, 56, 56, perm=(0, 2, 3, 1)),
    lambda: resize("linear", 2, 1, 32, 32, 256, last=True),
)


def program_by(command: str, optimized: Optimized, target: str, cache: Path) -> Program:
    """Return the program of a graph that a compiler made."""
    os.environ["CC"] = command
    find_compiler.cache_clear()
    return compile_graph(optimized.native, threads=1, target=target, cache_dir=cache)


def measure(layer: Layer, compilers: Sequence[str], target: str, cache: Path, seconds: float) -> dict[str, float]:
    """Return the seconds of a fast run (10th percentile) by compiler."""
    optimized = rewrite.optimize(as_model(layer))
    programs = {command: program_by(command, optimized, target, cache) for command in compilers}
    times = interleave({n: p.run for n, p in programs.items()}, dict(layer.inputs), seconds=seconds, rounds=8)
    return {name: timing.low for name, timing in times.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all layers and print a table for each target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compilers", nargs="+", metavar="COMMAND")
    parser.add_argument("--targets", default="avx512,avx2,portable")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of all programs of one layer")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    compilers: list[str] = chosen.compilers
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        for target in chosen.targets.split(","):
            if not runs_here(make_target(target)):
                continue
            sys.stdout.write(f"\n| {target} | {' | '.join(compilers)} |\n|---|{'---|' * len(compilers)}\n")
            ratios: dict[str, list[float]] = {name: [] for name in compilers}
            for make in LAYERS:
                layer = make()
                times = measure(layer, compilers, target, Path(cache), chosen.seconds)
                best = min(times.values())
                for name, seconds in times.items():
                    ratios[name].append(seconds / best)
                    records.append({"layer": layer.label, "target": target, "compiler": name, "seconds": seconds})
                sys.stdout.write(f"| {layer.label} | {' | '.join(f'{t / best:.2f}' for t in times.values())} |\n")
                sys.stdout.flush()
            means = (f"{math.exp(sum(map(math.log, found)) / len(found)):.2f}" for found in ratios.values())
            sys.stdout.write(f"| geometric mean | {' | '.join(means)} |\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
