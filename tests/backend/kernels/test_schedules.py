"""Schedules: at every point of its space a kernel computes the same, and each value of a knob changes the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.schedule import DEFAULT, Knob, Point, Space, Tunable
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType

from .test_lstm_int8 import lstm

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


def int8(product: bool = False, channels: int = 40, group: int = 1, nhwc: bool = False) -> Graph:
    """Quantized product, or a convolution by filters of 3 x 3, with numbers up to 20 so that few results saturate."""
    random = np.random.default_rng(3)
    image = (1, 13, 13, channels) if nhwc else (1, channels, 13, 13)
    shape = (45, 70) if product else image
    weights = (70, 100) if product else (channels, channels // group, 3, 3)
    constants = {
        "w": random.integers(-20, 21, weights).astype(np.int8),
        "zero": np.array(7, np.uint8),
        "zeros": np.array(0, np.int8),
        "scale": np.array(0.05, np.float32),
    }
    x = {"x": random.integers(0, 256, shape).astype(np.uint8)}
    if product:
        return harness.make_graph([Node("MatMulInteger", ("x", "w", "zero"), ("y",), name="p")], x, constants=constants)
    op = "rewrite.ChannelsLastQLinearConv" if nhwc else "QLinearConv"
    values = ("x", "scale", "zero", "w", "scale", "zeros", "scale", "zero")
    node = Node(op, values, ("y",), {"pads": (1,) * 4, "group": group}, name="conv")
    return harness.make_graph([node], x, constants=constants, types={"y": TensorType(DType.U8, image)})


def attention(queries: int, keys: int, masked: bool = False) -> Graph:
    inputs = {name: floats(1, 3, length, 40) for name, length in (("q", queries), ("k", keys), ("v", keys))}
    if masked:
        inputs["mask"] = floats(1, 1, queries, keys)
    node = Node("Attention", tuple(inputs), ("y",), {"is_causal": int(masked)}, name="attention")
    return harness.make_graph([node], inputs)


def recurrent(op: str, batch: int) -> Graph:
    gates, k, units = {"LSTM": 4, "GRU": 3}[op], 20, 70
    shapes = (("w", (gates * units, k)), ("r", (gates * units, units)))
    constants = {name: floats(1, *shape) for name, shape in shapes}
    node = Node(op, ("x", "w", "r"), ("y",), {"hidden_size": units}, name="layer")
    return harness.make_graph([node], {"x": floats(4, batch, k)}, constants=constants)


def recurrent_int8() -> Graph:
    case = lstm(4, 3, 20, 70, outputs=("y",))
    types = {"y": TensorType(DType.F32, (4, 1, 3, 70))}
    return harness.make_graph(case.nodes, case.inputs, constants=case.constants, types=types)


def alone(op: str, *shape: int, constants: Mapping[str, Array] | None = None, **attrs: Any) -> Graph:
    node = Node(op, ("x", *(constants or {})), ("y",), attrs, name="node")
    return harness.make_graph([node], {"x": floats(*shape)}, constants=constants)


def bf16() -> Graph:
    node = Node("rewrite.MatMulBf16", ("x", "w"), ("y",), name="product")
    x = TensorType(DType.BF16, (45, 70))
    return harness.make_graph([node], {"x": x}, constants={"w": floats(70, 100)})


CASES: Mapping[str, Graph] = {
    "gemm": product(45, 70, 100),
    "dot": product(19, 300, 3),
    "conv": conv(32, 40, 13, 3),
    "conv, few channels": conv(3, 33, 13, 5, stride=2),
    "conv, pointwise": conv(24, 48, 10, 1),
    "conv, NHWC": conv(32, 40, 13, 3, nhwc=True),
    "conv, NHWC, stride": conv(20, 50, 13, 3, stride=2, nhwc=True),
    "depthwise": conv(12, 12, 19, 3, group=12),
    "depthwise, stride 2": conv(12, 12, 39, 3, stride=2, group=12),
    "depthwise, 7x7": conv(6, 6, 19, 7, group=6),
    "depthwise, NHWC": conv(40, 40, 19, 3, group=40, nhwc=True),
    "depthwise, NHWC, of shared sets": conv(1024, 1024, 7, 3, group=1024, nhwc=True),
    "depthwise, NHWC, 5x5": conv(40, 40, 14, 5, stride=2, group=40, nhwc=True),
    "int8": int8(product=True),
    "int8, conv": int8(),
    "int8, conv, NHWC": int8(nhwc=True),
    "int8, each channel, NHWC": int8(group=40, nhwc=True),
    "bf16": bf16(),
    "attention": attention(70, 90),
    "attention, causal": attention(70, 90, masked=True),
    "attention, one query": attention(1, 90),
    "LSTM": recurrent("LSTM", 3),
    "GRU": recurrent("GRU", 1),
    "LSTM, int8": recurrent_int8(),
    "softmax": alone("Softmax", 12, 500),
    "softmax, short": alone("Softmax", 40, 50),
    "layer norm": alone("LayerNormalization", 12, 500, constants={"scale": floats(500)}),
    "mean of rows": alone("ReduceMean", 12, 500, constants={"axes": np.array([1])}),
    "mean of columns": alone("ReduceMean", 50, 200, constants={"axes": np.array([0])}),
    "transpose": alone("Transpose", 70, 90, perm=(1, 0)),
    "resize": alone(
        "Resize", 1, 3, 20, 30, constants={"": floats(0), "scales": np.array([1, 1, 2, 3], np.float32)}, mode="linear"
    ),
}
TARGETS = [target for target in map(make_target, ("avx512", "avx2", "portable")) if runs_here(target)]


@cache
def space_of(name: str, isa: str) -> Space:
    schedules = At()
    harness.lower(CASES[name], target=make_target(isa), schedules=schedules)
    *_, kernel = schedules.asked  # a layer of units asks for its product first
    return kernel.space


def feeds(graph: Graph) -> dict[str, Array]:
    def random(kind: TensorType) -> Array:
        assert kind.dtype is not None
        numbers = floats(*(int(d) for d in kind.shape or ()))
        return (numbers * 400 % 256 if kind.dtype is DType.U8 else numbers).astype(kind.dtype.numpy)

    return {name: random(graph.type(name)) for name in graph.inputs}


def rendered(name: str, isa: str, point: Point) -> list[str]:
    items, _ = harness.lower(CASES[name], target=make_target(isa), schedules=At(point))
    return [item.kernel.canonical for item in items or () if isinstance(item, Step)]


@pytest.mark.parametrize("isa", [target.isa for target in TARGETS])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_the_same_at_any_point(name: str, isa: str) -> None:
    graph, space, random, target = CASES[name], space_of(name, isa), Random(name), make_target(isa)
    wanted = harness.run(graph, feeds(graph), target=target)
    points = {str(point): point for point in (space.sample(random, formula=0.3) for _ in range(7))}
    assert len(points) >= min(3, math.prod(len(knob.values) or 1 for knob in space.knobs) - 1)
    for point in points.values():
        assert space.accepts(point)
        found = harness.run(graph, feeds(graph), target=target, threads=2, schedules=At(point))
        for output, array in wanted.items():
            np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=2e-5, err_msg=str(point))


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
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


def test_both_algorithms_of_a_convolution_in_narrow_groups_agree() -> None:
    graph, target = conv(32, 32, 13, 3, group=8, nhwc=True), make_target("avx2")
    found, templates = [], []
    for algorithm in ("window", "product"):
        point: Point = {"algorithm": algorithm}
        items, _ = harness.lower(graph, target=target, schedules=At(point))
        templates += [item.kernel.template for item in items or () if isinstance(item, Step)]
        found.append(harness.run(graph, feeds(graph), target=target, schedules=At(point)))
    assert templates == ["depthwise_pool_nhwc", "conv_nhwc"]
    np.testing.assert_allclose(found[0]["y"], found[1]["y"], rtol=1e-4, atol=2e-5)


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
