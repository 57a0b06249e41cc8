"""Times of the kernels of a program."""

from __future__ import annotations

import numpy as np

from ...engine.cost.samples import Application, Sample
from ...engine.ir import symbolic
from ...engine.ir.graph import Graph, TensorType, ValueType
from ..compile_graph import compile_graph
from ..ir.kernel_graph import Step
from ..runtime import profile as profiling
from ..runtime.link import Launch
from ..runtime.profile import Profile, launch_groups
from . import suite

EVICTED = 48 << 20
"""Bytes that are written before each run, as a model with more layers would: nothing stays in caches."""


def time_network(name: str, seconds: float) -> list[Sample]:
    """Compile a network of the suite for one thread, run it for about some seconds, and return its kernels."""
    graph = suite.graph(name)
    program = compile_graph(graph, threads=1)
    random = np.random.default_rng(3)
    shapes = {v: tuple(int(d) for d in graph.type(v).shape or () if isinstance(d, int)) for v in graph.inputs}
    feeds = {v: random.standard_normal(shape).astype(np.float32) for v, shape in shapes.items()}
    others = np.zeros(EVICTED, np.uint8)

    def record() -> list[Launch]:
        np.add(others, 1, out=others)
        return program.record(feeds)

    return samples(profiling.profile(record, 1, seconds=seconds))


def samples(profile: Profile) -> list[Sample]:
    """Return the kernels of a profile with their median times, without loops and nodes that Python runs."""
    found = []
    for row, launches in zip(profile.rows, launch_groups(profile.launches), strict=True):
        nodes = _applications(launches[0])
        if nodes and row.seconds > 0 and not any(isinstance(a, Graph) for node in nodes for a in node.attrs.values()):
            found.append(Sample("+".join(dict.fromkeys(row.kernels)), row.seconds, nodes))
    return found


def _applications(launch: Launch) -> list[Application]:
    """Return the nodes that a launch computes, with their types in numbers."""

    def number(type_: ValueType | None) -> ValueType | None:
        if not isinstance(type_, TensorType) or type_.shape is None:
            return type_
        try:
            return TensorType(type_.dtype, tuple(symbolic.evaluate(d, launch.extents) for d in type_.shape))
        except (KeyError, ValueError):
            return TensorType(type_.dtype)

    origins = launch.item.origins if isinstance(launch.item, Step) else ()
    return [Application(o.op, dict(o.attrs), [*map(number, o.inputs)], [*map(number, o.outputs)]) for o in origins]
