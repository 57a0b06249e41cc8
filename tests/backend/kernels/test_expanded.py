"""Pointwise convolutions in the kernels of the depthwise ones that read them, beside two kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.backend.kernels.conv import depthwise_lines_nhwc, expanded
from rewrite.backend.planning import plan
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Graph, Node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
CONV = "rewrite.ChannelsLastConv"


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def block(
    x: Sequence[int], channels: int, kernel: Sequence[int], first: str = "Relu", second: str = "Relu", *,
    symbolic: Sequence[int | str] = (), bias: bool = True, residual: bool = False, **attrs: Any,
) -> tuple[Graph, dict[str, Array]]:  # fmt: skip
    """Return a graph of both convolutions, each with an activation, and its inputs."""
    constants = {"w": floats(channels, x[-1], 1, 1), "v": floats(channels, 1, *kernel)}
    constants |= {"b": floats(channels), "c": floats(channels)} if bias else {}
    nodes = [Node(CONV, ("x", "w", *(("b",) if bias else ())), ("t",), {})]
    value = "t"
    for name in filter(None, first.split()):
        operands = (value, "t") if name == "Mul" else (value,)
        nodes.append(Node(name, operands, (f"{value}_{name}",), {}))
        value = nodes[-1].outputs[0]
    nodes.append(Node(CONV, (value, "v", *(("c",) if bias else ())), ("u",), {"group": channels, **attrs}))
    value, feeds = "u", {"x": floats(*x)}
    if residual:
        feeds["r"] = floats(*x[:3], channels)
        nodes.append(Node("Add", ("u", "r"), ("s",), {}))
        value = "s"
    if second:
        nodes.append(Node(second, (value,), ("y",), {}))
    shapes = {"x": symbolic} if symbolic else None
    return harness.make_graph(nodes, feeds, constants=constants, symbolic_shapes=shapes), feeds


def kernels(graph: Graph, **options: Any) -> list[str]:
    items = compile_graph(graph, **options).plan.items
    return [item.kernel.template for item in items if isinstance(item, Step)]


def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small images expanded, too."""
    monkeypatch.setattr(expanded, "_least_bytes", lambda ctx: 0)


PADS = {"pads": (1, 1, 1, 1)}
BLOCKS: Mapping[str, tuple[Graph, dict[str, Array]]] = {
    "stride 1": block((1, 13, 19, 16), 96, (3, 3), **PADS),
    "stride 2": block((1, 14, 30, 24), 144, (3, 3), **PADS, strides=(2, 2)),
    "narrow chunk": block((1, 9, 40, 8), 72, (3, 3), "HardSwish", "HardSwish", **PADS),
    "partial vector": block((2, 12, 11, 5), 37, (5, 5), "Sigmoid Mul", "", pads=(2, 2, 2, 2)),
    "uneven": block((1, 17, 9, 16), 64, (3, 5), "", "Relu", pads=(2, 0, 1, 3), strides=(1, 2), dilations=(2, 1)),
    "no bias": block((3, 6, 7, 3), 32, (3, 3), "Relu", "", bias=False),
    "residual": block((1, 10, 21, 12), 48, (3, 3), "Relu", "Relu", residual=True, **PADS),
    "one line": block((1, 1, 50, 8), 48, (1, 3), pads=(0, 1, 0, 1)),
    "any size": block((2, 11, 23, 16), 96, (3, 3), symbolic=("N", "H", "W", 16), strides=(2, 2), **PADS),
    "any size, small": block((1, 1, 2, 16), 96, (3, 3), symbolic=("N", "H", "W", 16), **PADS),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_one_kernel_computes_what_two_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, feeds = BLOCKS[name]
    with monkeypatch.context() as apart:
        apart.setattr(plan, "expands", lambda first, second, ctx: False)
        wanted = compile_graph(graph, threads=1).run(feeds)
    every_size(monkeypatch)
    for target in filter(_runs, ("avx512", "avx2", "portable")):
        assert kernels(graph, threads=1, target=target) == ["depthwise_lines_nhwc"]
        for threads in (1, 2, 3, 5):
            found = compile_graph(graph, threads=threads, target=target).run(feeds)
            for value, array in wanted.items():
                scale = max(1.0, float(np.abs(array).max(initial=0)))
                np.testing.assert_allclose(
                    found[value], array, rtol=0, atol=2e-6 * scale, err_msg=f"{target}, {threads}"
                )


def test_strips_of_wide_images_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    every_size(monkeypatch)
    monkeypatch.setattr(depthwise_lines_nhwc, "RING", 1 << 10)
    dilated = {"pads": (2, 2, 2, 2), "dilations": (2, 2)}
    for attrs in (PADS, dilated, {"pads": (0, 1, 1, 0), "strides": (2, 2)}):
        graph, feeds = block((1, 7, 211, 8), 48, (3, 3), **attrs)
        with monkeypatch.context() as apart:
            apart.setattr(plan, "expands", lambda first, second, ctx: False)
            [wanted] = compile_graph(graph, threads=1).run(feeds).values()
        program = compile_graph(graph, threads=1)
        [step] = [item for item in program.plan.items if isinstance(item, Step)]
        assert step.kernel.params["strip"] < step.kernel.params["counts"][1][1]
        [found] = program.run(feeds).values()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))


def test_what_the_epilogues_may_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole tensor in the first one; in the second one the expanded image, which is not stored."""
    every_size(monkeypatch)
    graph, feeds = BLOCKS["stride 1"]
    weights = {name: constant.array for name, constant in graph.constants.items()}
    first, relu, second, last = graph.nodes
    added = Node("Add", ("t", "r"), relu.outputs, {})
    both = {**feeds, "r": floats(1, 13, 19, 96)}
    assert len(kernels(harness.make_graph([first, added, second, last], both, constants=weights), threads=1)) == 2
    again = Node("Add", ("u", relu.outputs[0]), ("y",), {})
    assert len(kernels(harness.make_graph([first, relu, second, again], feeds, constants=weights), threads=1)) == 2


def _runs(name: str) -> bool:
    return runs_here(make_target(name))


def test_only_where_it_saves_memory_and_nothing_else_reads_the_expanded_image(monkeypatch: pytest.MonkeyPatch) -> None:
    small, _ = BLOCKS["stride 1"]
    assert kernels(small, threads=1) == ["gemm", "depthwise_pool_nhwc"]
    every_size(monkeypatch)
    shown = harness.make_graph(
        small.nodes, {"x": floats(1, 13, 19, 16)}, constants={n: c.array for n, c in small.constants.items()},
        outputs=["y", "t_Relu"],
    )  # fmt: skip
    assert len(kernels(shown, threads=1)) == 2
    many, _ = block((1, 7, 9, 1024), 1024, (3, 3), **PADS)  # products take longer than memory
    assert len(kernels(many, threads=1)) == 2


def test_large_images_are_expanded_by_default() -> None:
    graph, _ = block((1, 112, 112, 16), 768, (3, 3), strides=(2, 2), **PADS)
    assert kernels(graph, threads=1) == ["depthwise_lines_nhwc"]
