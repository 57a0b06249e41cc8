"""Predictions of the cost model beside measured times: of kernels, and of variants of whole models.

    python -m rewrite.benchmarks.cost_model prepare DIR MODEL… [--target avx2] [--variants]
    python -m rewrite.benchmarks.cost_model measure DIR [--target avx2] [--seconds 1] [--copies 3]

`prepare` optimizes and compiles models of the zoo for one thread into a directory; with `--variants` also without
channels-last layouts, without Winograd's algorithm, without some rules that move transpositions, and with the graphs of
some plans. `measure` runs them, and prints for each model how far predictions are off (geometric mean of the factors),
Spearman's rank correlation over its kernels, and the measured over the predicted time of a run: with the shipped
profile, and with the one that `rewrite calibrate` stored. Of variants it prints how much longer each takes than the
model as it is, predicted and measured, and the rank correlation over all of them. A kernel's time is the 20th
percentile over the runs, the median over `--copies` of the program: where one lies in memory is worth some percent.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.compile_model import compile_optimized
from rewrite.backend.ir.target import costs_of
from rewrite.engine.cost import fit, machine
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.machine import Machine
from rewrite.engine.ir.graph import Graph, TensorType, content_text
from rewrite.engine.ir.symbolic import symbol_name
from rewrite.engine.optimizer import optimize
from rewrite.engine.options import Options
from rewrite.system import scoped
from rewrite.tuning.calibration import ROUNDS, KernelTime, KernelTimer, Measured

from . import models

_LAYOUTS = ("channels_last_conv", "channels_last_max_pool", "channels_last_average_pool")
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "channels first": {"disabled": _LAYOUTS},
    "exact": {"numerics": "exact"},
    "concat first": {"disabled": ("last_of_concat",)},
    "binary first": {"disabled": ("last_of_binary", "last_of_unary")},
    "simplified": {"schedule": "simplify"},
    "all channels first": {"plan": "channels-first"},
    "all channels last": {"plan": "channels-last"},
    "many moves": {"plan": "many-moves"},
}
"""Options that make other programs of a model."""


@dataclass(frozen=True)
class Prepared:
    """A compiled model: its graph, its inputs, and the values of its free sizes."""

    name: str
    graph: Graph
    feeds: dict[str, Any]
    sizes: dict[str, int]
    bundle: Path

    def timer(self, copy: Path) -> KernelTimer:
        """Return a timer of the program's kernels, loaded from a new copy of its bundle."""
        return KernelTimer(load(shutil.copytree(self.bundle, copy), threads=1), self.graph, self.feeds)

    def predicted(self, found: Measured, on: Machine) -> list[float]:
        """Return the predicted times of these kernels."""
        exact = _base(self.name)[1] == "exact"
        return found.predicted(CostModel("latency", "native", on, hints=self.sizes, exact=exact))


def prepare(folder: Path, name: str, target: str, variant: str = "", options: Mapping[str, Any] | None = None) -> None:
    """Compile a model, or a variant of it, into a directory; leave a variant out whose graph is that of another one."""
    at = folder / "-".join(filter(None, (name, variant.replace(" ", "_"))))
    optimized = optimize(models.path(name), Options.of(threads=1, isa=costs_of(target), **(options or {})))
    text = content_text(optimized.native)
    others = (p.graph for p in _all(folder) if _base(p.name)[0] == name)
    if variant and any(content_text(other) == text for other in others):
        return
    at.mkdir(parents=True)
    compile_optimized(optimized, threads=1, target=target).save(at / "bundle")
    feeds = models.inputs(name)
    prepared = Prepared(at.name, optimized.native, feeds, _sizes(optimized.native, feeds), at / "bundle")
    (at / "prepared").write_bytes(pickle.dumps(prepared))


def _sizes(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, int]:
    """Return the values of the symbols in the shapes of inputs."""
    found = {}
    for name, array in feeds.items():
        type_ = graph.types.get(name)
        for dim, extent in zip((isinstance(type_, TensorType) and type_.shape) or (), array.shape, strict=False):
            if symbol := symbol_name(dim):
                found[symbol] = int(extent)
    return found


def _all(folder: Path) -> Iterator[Prepared]:
    for path in sorted(folder.glob("*/prepared")):
        yield pickle.loads(path.read_bytes())


def times_of(some: Sequence[Prepared], seconds: float, copies: int) -> list[Measured]:
    """Return the kernels' times of programs that take turns, the medians over copies of each."""
    with scoped.directory("copies") as at:
        timers = [[p.timer(at / f"{p.name}-{copy}") for copy in range(copies)] for p in some]
        for timer in [timer for own in timers for timer in own] * ROUNDS:
            timer.run(seconds / ROUNDS / copies)
    found = []
    for prepared, own in zip(some, timers, strict=True):
        times: dict[tuple[int, ...], list[float]] = {}
        for kernel in (kernel for timer in own for kernel in timer.times()):
            times.setdefault(kernel.nodes, []).append(kernel.seconds)
        found.append(Measured(prepared.graph, [KernelTime(nodes, median(took)) for nodes, took in times.items()]))
    return found


def measure(folder: Path, target: str, seconds: float, copies: int) -> None:
    """Print the tables."""
    isa = costs_of(target)
    shipped, stored = machine.default(isa), machine.load(isa=isa)
    machines = {"shipped": shipped, "peaks": replace(stored, constants=shipped.constants), "calibrated": stored}
    predicted: dict[str, list[float]] = {name: [] for name in machines}
    measured: list[float] = []
    totals: dict[str, tuple[float, float]] = {}
    print(f"| model | kernels | {' | '.join(f'{name}: error | rank | time' for name in machines)} |")
    print("|---|---:|" + "---:|---:|---:|" * len(machines))
    groups: dict[str, list[Prepared]] = {}
    for prepared in _all(folder):
        groups.setdefault(_base(prepared.name)[0], []).append(prepared)
    timed = (zip(some, times_of(some, seconds, copies), strict=True) for some in groups.values())
    for prepared, found in itertools.chain.from_iterable(timed):
        times = [kernel.seconds for kernel in found.kernels]
        cells = []
        for name, on in machines.items():
            own = prepared.predicted(found, on)
            ranks = f"{fit.mean_error(own, times):.2f} | {fit.rank_correlation(own, times):.3f}"
            cells.append(f"{ranks} | {sum(times) / sum(own):.2f}")
            totals[prepared.name] = sum(own), sum(times)
            if not _base(prepared.name)[1]:
                predicted[name] += own
        if not _base(prepared.name)[1]:
            measured += times
        print(f"| `{prepared.name}` | {len(times)} | {' | '.join(cells)} |", flush=True)
    cells = [
        f"{fit.mean_error(p, measured):.2f} | {fit.rank_correlation(p, measured):.3f} | " for p in predicted.values()
    ]
    print(f"| all | {len(measured)} | {' | '.join(cells)} |")
    _compare(totals)


def _base(name: str) -> tuple[str, str]:
    """Return the model and the variant of a name."""
    for variant in VARIANTS:
        if name.endswith(suffix := "-" + variant.replace(" ", "_")):
            return name.removesuffix(suffix), variant
    return name, ""


def _compare(totals: Mapping[str, tuple[float, float]]) -> None:
    """Print predicted and measured times of variants, relative to their models, by the calibrated profile."""
    rows = []
    for name, (expected, took) in totals.items():
        model, variant = _base(name)
        if variant and model in totals:
            rows.append((model, variant, expected / totals[model][0], took / totals[model][1]))
    if not rows:
        return
    print("\n| model | variant | predicted | measured |\n|---|---|---:|---:|")
    for model, variant, expected, took in rows:
        print(f"| `{model}` | {variant} | {expected:.2f} | {took:.2f} |")
    ratios: Sequence[Sequence[float]] = [[row[2] for row in rows], [row[3] for row in rows]]
    print(f"\nrank correlation over variants: {fit.rank_correlation(*ratios):.3f}")


def main() -> None:
    """Prepare or measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--target", default="native")
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--copies", type=int, default=1, help="copies of each program (default 1)")
    options = parser.parse_args()
    if options.action == "measure":
        measure(options.folder, options.target, options.seconds, options.copies)
        return
    for name in options.models:
        prepare(options.folder, name, options.target)
        for variant, more in VARIANTS.items() if options.variants else ():
            prepare(options.folder, name, options.target, variant, more)


if __name__ == "__main__":
    main()
