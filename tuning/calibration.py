"""Calibration: the constants of the cost model, fitted to measured kernels of this machine.

The kernels of `calibration_suite` are compiled and run one after the other, many times. The cost model predicts their
times by its constants (`KernelConstants`), which are fitted so that predictions and times agree. Programs are loaded
from bundles, as they are where they are deployed: weights in mapped files take longer to read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.bundle.load_bundle import load
from ..backend.compile_graph import compile_graph
from ..backend.ir.target import make_target, runs_here
from ..backend.runtime.profile import launch_groups
from ..backend.runtime.program import Program
from ..engine.cost import fit, microbench
from ..engine.cost.cost_model import CostModel, NodeArguments
from ..engine.cost.machine import Machine
from ..engine.ir.graph import Graph
from ..errors import UserError
from ..system import scoped
from ..system.progress import Progress, ignore
from .calibration_suite import suite

QUANTILE = 0.2
"""Quantile of a kernel's times that counts: another program's turn on the core only lengthens them."""
_TURN = 1e-3
"""Seconds of a kernel that another program's turn is likely to fall into: of longer ones the fastest run counts."""
ROUNDS = 5
"""Rounds in which all networks are measured: where the machine's speed changes, it changes for all of them. One after
the other, a slow second made one layout of images look slower than the other."""
_MOST_RUNS = 80  # in a round
_LEAST = 1e-9  # seconds; a prediction of none has no logarithm
_STREAMS = 0.4  # share of the time that peak and streams are measured for


@dataclass(frozen=True)
class KernelTime:
    """Measured seconds of the kernels that compute some nodes of a graph, given by their positions."""

    nodes: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Measured:
    """A graph with the times of its kernels."""

    graph: Graph
    kernels: Sequence[KernelTime]

    def predicted(self, cost: CostModel) -> list[float]:
        """Return the seconds that a cost model predicts for the kernels."""
        return [max(_LEAST, sum(cost.node_cost(*node) for node in nodes)) for nodes in self.arguments(cost)]

    def arguments(self, cost: CostModel) -> list[list[NodeArguments]]:
        """Return the arguments of `node_cost` for the nodes of each kernel."""
        found = cost.node_arguments(self.graph)
        return [[node for i in kernel.nodes if (node := found[i]) is not None] for kernel in self.kernels]


@dataclass(frozen=True)
class Calibration:
    """A fitted machine, with the kernels it was fitted to: their `labels`, `predicted` and `measured` seconds."""

    machine: Machine
    before: Machine
    labels: tuple[str, ...]
    predicted: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def error(self) -> float:
        """Geometric mean of the factors by which predictions are wrong."""
        return fit.mean_error(self.predicted, self.measured)

    @property
    def correlation(self) -> float:
        """Rank correlation of predictions and measured times."""
        return fit.rank_correlation(self.predicted, self.measured)


def calibrate(target: str = "native", *, seconds: float = 10.0, progress: Progress = ignore) -> Calibration:
    """Measure this machine with kernels for a target, in about that many seconds besides compiling.

    The result is not stored. Raises UserError for a target that this CPU does not run, and without a C compiler."""
    kind = make_target(target)
    if not runs_here(kind):
        raise UserError(f"this CPU cannot run kernels for {target!r}", hint="Calibrate for a target that runs here.")
    progress("calibrate", {})
    machine = microbench.calibrate(_STREAMS * seconds, kind.isa)
    progress("compile", {})
    graphs = suite()
    with scoped.directory("calibrate") as folder:
        bundles = [
            compile_graph(graph, threads=1, target=target).save(folder / str(number))
            for number, graph in enumerate(graphs)
        ]
        progress("calibrate", {})
        timers = [
            KernelTimer(load(bundle, threads=1), graph, random_feeds(graph), 2 * kind.l2)
            for graph, bundle in zip(graphs, bundles, strict=True)
        ]
        for timer in timers * ROUNDS:
            timer.run((1 - _STREAMS) * seconds / len(timers) / ROUNDS)
        times = [Measured(timer.graph, timer.times()) for timer in timers]
    return fitted(machine, times)


def fitted(machine: Machine, measured: Sequence[Measured]) -> Calibration:
    """Fit a machine's constants to the times of kernels."""
    kernels = [nodes for found in measured for nodes in found.arguments(CostModel("latency", "native", machine))]

    def predict(candidate: Machine, some: Sequence[int]) -> list[float]:
        cost = CostModel("latency", "native", candidate)
        return [max(_LEAST, sum(cost.node_cost(*node) for node in kernels[i])) for i in some]

    seconds = [kernel.seconds for found in measured for kernel in found.kernels]
    labels = [label(found.graph, kernel.nodes) for found in measured for kernel in found.kernels]
    machine_found = fit.fit(machine, predict, seconds)
    return Calibration(
        machine_found, machine, tuple(labels), tuple(predict(machine_found, range(len(seconds)))), tuple(seconds)
    )


class KernelTimer:
    """Times of the kernels of a program with fixed inputs, over runs that may take turns with those of other programs.

    Before each run `evicted` bytes are read, so that weights come from beyond the cache of this size."""

    def __init__(self, program: Program, graph: Graph, feeds: Mapping[str, Any], evicted: int = 0) -> None:
        self.graph = graph
        self._program, self._feeds = program, feeds
        self._evicting = np.zeros(evicted // 4, np.float32)
        self._position = {node.name or node.outputs[0]: i for i, node in enumerate(graph.nodes)}
        self._samples: dict[tuple[int, ...], list[float]] = {}
        program.record(feeds)  # binds the extents

    def run(self, seconds: float) -> None:
        """Run the program for about some seconds, once at least."""
        end = time.monotonic() + seconds
        for _ in range(_MOST_RUNS):
            self._evicting.sum()
            for launches in launch_groups(self._program.record(self._feeds)):
                names = [origin.name for origin in getattr(launches[0].item, "origins", ())]
                spans = [launch.spans[launch.spans[:, 1] > 0] for launch in launches]
                took = sum(float(ran[:, 1].max() - ran[:, 0].min()) for ran in spans if len(ran))
                if names and took and all(name in self._position for name in names):
                    self._samples.setdefault(tuple(self._position[name] for name in names), []).append(took)
            if time.monotonic() > end:
                break

    def times(self) -> list[KernelTime]:
        """Return the time of the kernels of each group of nodes."""
        return [KernelTime(nodes, undisturbed(took)) for nodes, took in self._samples.items()]


def undisturbed(seconds: Sequence[float]) -> float:
    """Return the time that counts of a kernel's times in several runs."""
    fastest = min(seconds)
    return fastest if fastest > _TURN else float(np.quantile(seconds, QUANTILE))


def random_feeds(graph: Graph) -> dict[str, Any]:
    """Return inputs of a graph of fixed sizes."""
    random = np.random.default_rng(1)
    shapes = {name: tuple(d for d in graph.type(name).shape or () if isinstance(d, int)) for name in graph.inputs}
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def label(graph: Graph, nodes: Sequence[int]) -> str:
    """Return a group of nodes for people: operators, and the types of the first one."""
    ops = "+".join(graph.nodes[i].op.rpartition(".")[2] for i in nodes)
    first = graph.nodes[nodes[0]]
    inputs = ", ".join(str(graph.type(v)) for v in first.inputs if v)
    return f"{ops}({inputs}) -> {graph.type(first.outputs[0])}"
