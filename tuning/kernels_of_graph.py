"""The kernels of a graph that have schedules, each as a graph of its own that is measured by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..backend.ir.kernel_graph import Step
from ..backend.ir.lower import Group
from ..backend.ir.schedule import DEFAULT, Point, Space, Tunable
from ..backend.ir.target import Target
from ..backend.planning.denormal_weights import without_denormals
from ..backend.planning.group import FusePolicy
from ..backend.planning.plan import PlanSettings, group, lower
from ..engine.ir.graph import Graph, TensorType, ValueType
from ..engine.ir.symbolic import substitute
from .strategies.loop_features import Features, loop_features


@dataclass
class Collector:
    """Schedules that formulas decide; `found` has the kernels that asked, by key, with all groups that compute each."""

    found: dict[str, list[Tunable]] = field(default_factory=dict)

    def point(self, kernel: Tunable) -> Point:
        """Note a kernel."""
        self.found.setdefault(kernel.key, []).append(kernel)
        return DEFAULT


@dataclass(frozen=True)
class Fixed:
    """Schedules of kernels by key; formulas decide about the others."""

    points: Mapping[str, Point]

    def point(self, kernel: Tunable) -> Point:
        """Return the given point."""
        return self.points.get(kernel.key, DEFAULT)


@dataclass(frozen=True)
class Lowered:
    """The steps of a kernel at a point: templates with the parameters that they are rendered with."""

    steps: tuple[Step, ...]
    target: Target

    @cached_property
    def code(self) -> str:
        """Hash of the rendered code: equal for points between which nothing differs."""
        text = "".join(f"{step.kernel.canonical}{step.dims}" for step in self.steps)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @cached_property
    def features(self) -> Features:
        """Features of the loop nest, for models of its time."""
        return loop_features(self.steps, self.target)


@dataclass(frozen=True)
class TunableKernel:
    """A kernel with a schedule to search: `graph` computes it alone; `nodes` are those of all groups that it computes.

    Each name in `nodes` is that of a node as reports show it. `settings` are those of its plan, without schedules."""

    key: str
    label: str
    space: Space
    graph: Graph
    nodes: tuple[tuple[str, ...], ...]
    settings: PlanSettings

    def lowered(self, point: Point) -> Lowered:
        """Return what a point renders: some milliseconds of work."""
        settings = replace(self.settings, schedules=Fixed({self.key: point}))
        items = lower(group(self.graph, settings)).items
        return Lowered(tuple(item for item in items if isinstance(item, Step)), self.settings.target)


def tunable_kernels(
    graph: Graph, policy: FusePolicy, target: Target, threads: int, reassociate: bool
) -> list[TunableKernel]:
    """Return the distinct kernels of a graph whose schedules can be searched, in order of first use.

    Kernels with sizes of run time have none, nor have those that are another kernel when they stand alone."""
    found, settings = [], PlanSettings(policy, target, threads, reassociate)
    if reassociate:
        graph = without_denormals(graph)  # groups have the constants of this one
    for key, uses in _collected(graph, settings).items():
        alone = _graph_of(uses[0].group, graph)
        if key in _collected(alone, settings):
            nodes = tuple(tuple(node.name or node.outputs[0] for node in use.group.nodes) for use in uses)
            found.append(TunableKernel(key, uses[0].label, uses[0].space, alone, nodes, settings))
    return found


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph whose free sizes have these values; bodies keep theirs."""

    def fixed(kind: ValueType) -> ValueType:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return kind
        return replace(kind, shape=tuple(substitute(dim, sizes) for dim in kind.shape))

    return replace(graph, types={value: fixed(kind) for value, kind in graph.types.items()})


def _collected(graph: Graph, settings: PlanSettings) -> dict[str, list[Tunable]]:
    collector = Collector()
    lower(group(graph, replace(settings, schedules=collector)))
    return collector.found


def _graph_of(found: Group, graph: Graph) -> Graph:
    """Return the graph of one group."""
    values = {v for node in found.nodes for v in (*node.inputs, *node.outputs) if v}
    constants = {v: graph.constants[v] for v in found.inputs if v in graph.constants}
    inputs = tuple(v for v in found.inputs if v not in constants)
    types = {v: graph.types[v] for v in values if v in graph.types}
    return Graph(inputs, found.outputs, list(found.nodes), constants, types, "kernel", dict(graph.opset))
