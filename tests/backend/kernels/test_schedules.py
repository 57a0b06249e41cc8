"""Schedules: at every point of its space a kernel computes the same, and each value of a knob changes the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random

import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.schedule import DEFAULT, Knob, Point, Space, Tunable
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Graph, Node

Array = harness.Array


@dataclass
class At:
    """Schedules with one point for every kernel; `asked` are those that asked."""

    at: Point = field(default_factory=dict)
    asked: list[Tunable] = field(default_factory=list)

    def point(self, kernel: Tunable) -> Point:
        self.asked.append(kernel)
        return self.at


def floats(*shape: int) -> Array:
    return np.asarray(np.random.default_rng(5).standard_normal(shape) / 4, np.float32)


def conv(
    channels: int, filters: int, size: int, kernel: int, stride: int = 1, group: int = 1, nhwc: bool = False
) -> Graph:
    image = (1, size, size, channels) if nhwc else (1, channels, size, size)
    attrs = {"strides": (stride, stride), "pads": (kernel // 2,) * 4, "group": group}
    op = "rewrite.ChannelsLastConv" if nhwc else "Conv"
    nodes = [Node(op, ("x", "w", "b"), ("c",), attrs, name="conv"), Node("Relu", ("c",), ("y",), name="relu")]
    constants = {"w": floats(filters, channels // group, kernel, kernel), "b": floats(filters)}
    return harness.make_graph(nodes, {"x": floats(*image)}, constants=constants)


def product(m: int, k: int, n: int) -> Graph:
    node = Node("MatMul", ("x", "w"), ("y",), name="product")
    return harness.make_graph([node], {"x": floats(m, k)}, constants={"w": floats(k, n)})


CASES: Mapping[str, Graph] = {
    "gemm": product(45, 70, 100),
    "dot": product(19, 300, 3),
    "conv": conv(32, 40, 13, 3),
    "conv, few channels": conv(3, 33, 13, 5, stride=2),
    "conv, pointwise": conv(24, 48, 10, 1),
    "conv, NHWC": conv(32, 40, 13, 3, nhwc=True),
    "conv, NHWC, stride": conv(20, 50, 13, 3, stride=2, nhwc=True),
    "depthwise": conv(12, 12, 19, 3, group=12),
    "depthwise, 7x7": conv(6, 6, 19, 7, group=6),
    "depthwise, NHWC": conv(40, 40, 19, 3, group=40, nhwc=True),
    "depthwise, NHWC, of shared sets": conv(1024, 1024, 7, 3, group=1024, nhwc=True),
    "depthwise, NHWC, 5x5": conv(40, 40, 14, 5, stride=2, group=40, nhwc=True),
}
TARGETS = [target for target in map(make_target, ("avx512", "avx2")) if runs_here(target)]


@cache
def space_of(name: str, isa: str) -> Space:
    schedules = At()
    harness.lower(CASES[name], target=make_target(isa), schedules=schedules)
    [kernel] = schedules.asked
    return kernel.space


def feeds(graph: Graph) -> dict[str, Array]:
    return {name: floats(*(int(d) for d in graph.type(name).shape or ())) for name in graph.inputs}


def rendered(name: str, isa: str, point: Point) -> list[str]:
    items, _ = harness.lower(CASES[name], target=make_target(isa), schedules=At(point))
    return [item.kernel.canonical for item in items or () if isinstance(item, Step)]


@pytest.mark.parametrize("isa", [target.isa for target in TARGETS])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_the_same_at_any_point(name: str, isa: str) -> None:
    graph, space, random, target = CASES[name], space_of(name, isa), Random(name), make_target(isa)
    wanted = harness.run(graph, feeds(graph), target=target)
    points = {str(point): point for point in (space.sample(random, formula=0.3) for _ in range(7))}
    assert len(points) > 3
    for point in points.values():
        assert space.accepts(point)
        found = harness.run(graph, feeds(graph), target=target, threads=2, schedules=At(point))
        for output, array in wanted.items():
            np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=2e-5, err_msg=str(point))


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("name", CASES)
def test_every_value_of_a_knob_makes_a_kernel_of_its_own(name: str, isa: str) -> None:
    """Two values may agree by chance, as all blocks of k do that are longer than k; but no knob is without effect."""
    space = space_of(name, isa)
    for knob in space.knobs:
        if len(knob.values) < 2:
            continue
        found = set()
        for value in knob.values:
            for condition in knob.only[1] if knob.only else ("",):
                base: dict[str, int | str] = {knob.only[0]: condition} if knob.only else {}
                form = {"form": "rolled"} if knob.name == "tile" and "depthwise" in name and "NHWC" in name else {}
                point = {**base, **form, knob.name: value}
                if knob.name == "form":
                    point["tile"] = "1x2"
                if space.accepts(point):
                    found.add(tuple(rendered(name, isa, point)))
        assert len(found) > 1, f"{knob.name} has no effect"


@pytest.mark.parametrize("name", CASES)
def test_the_default_point_is_the_formula(name: str) -> None:
    plain, _ = harness.lower(CASES[name], target=make_target("avx2"))
    assert rendered(name, "avx2", DEFAULT) == [i.kernel.canonical for i in plain or () if isinstance(i, Step)]


def test_sizes_of_run_time_follow_the_formula() -> None:
    schedules = At()
    nodes = [Node("MatMul", ("x", "w"), ("y",), name="product")]
    shapes: dict[str, Sequence[int | str]] = {"x": ("N", 70)}
    graph = harness.make_graph(nodes, {"x": floats(4, 70)}, constants={"w": floats(70, 90)}, symbolic_shapes=shapes)
    harness.lower(graph, schedules=schedules)
    assert schedules.asked == []


def test_equal_problems_have_equal_keys_and_different_ones_do_not() -> None:
    def key(graph: Graph, threads: int = 1) -> str:
        schedules = At()
        harness.lower(graph, threads=threads, schedules=schedules)
        return schedules.asked[0].key

    assert key(conv(32, 40, 13, 3)) == key(conv(32, 40, 13, 3))
    others = [conv(32, 40, 12, 3), conv(32, 48, 13, 3), conv(32, 40, 13, 3, stride=2), conv(32, 40, 13, 5)]
    assert len({key(conv(32, 40, 13, 3)), key(conv(32, 40, 13, 3), 2), *map(key, others)}) == 6


SMALL = Space(
    ("gemm",),
    (Knob("algorithm", ("direct", "other")), Knob("size", (1, 2, 4), ("algorithm", ("direct",)))),
    lambda point: point.get("size") != 4,
)


@pytest.mark.parametrize(
    ("point", "valid"),
    [
        ({}, True),
        ({"algorithm": "direct", "size": 2}, True),
        ({"algorithm": "direct", "size": 4}, False),  # the constraint
        ({"algorithm": "other", "size": 2}, False),  # a knob of another algorithm
        ({"size": 2}, False),
        ({"algorithm": "direct", "size": 3}, False),
        ({"algorithm": "direct", "size": True}, False),
        ({"algorithm": "direct", "size": "2"}, False),
        ({"algorithm": "unknown"}, False),
        ({"depth": 1}, False),
    ],
)
def test_only_points_of_the_space_are_accepted(point: Point, valid: bool) -> None:
    assert SMALL.accepts(point) is valid


def test_samples_and_neighbors_are_points_of_the_space() -> None:
    random = Random(1)
    point: Point = DEFAULT
    seen = set()
    for _ in range(200):
        assert SMALL.accepts(SMALL.sample(random))
        moved = SMALL.mutated(point, random)
        assert SMALL.accepts(moved)
        assert moved != point
        seen.add(str(sorted(moved.items())))
        point = moved
    assert len(seen) == 5  # all there are: the default, both algorithms, two sizes of one
