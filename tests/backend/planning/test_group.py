"""Grouping: which nodes become one kernel, the order of groups, and its speed on large graphs."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrite.backend.ir.lower import Group
from rewrite.backend.planning.group import MAX_NODES, FusePolicy, Uses, group_nodes, join_groups, split, standard_policy
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Graph, Node, TensorType

X = np.zeros((4, 8), np.float32)
POLICY = FusePolicy(
    {"Relu": "elementwise", "Add": "elementwise", "Exp": "elementwise", "MatMul": "complex", "Softmax": "reduction"},
    frozenset({("elementwise", "elementwise"), ("complex", "elementwise"), ("elementwise", "reduction")}),
)


def graph(nodes: list[Node], outputs: list[str], **constants: np.ndarray) -> Graph:
    return harness.make_graph(nodes, {"x": X}, constants=constants, outputs=outputs)


def grouped(g: Graph, policy: FusePolicy = POLICY) -> list[tuple[str, ...]]:
    return [
        tuple(n.name for n in part.nodes) if isinstance(part, Group) else (part.name,)
        for part in group_nodes(g, g.nodes, policy)
    ]


def node(op: str, inputs: str, output: str) -> Node:
    attrs = {"axis": -1} if op == "Softmax" else {}
    return Node(op, tuple(inputs.split()), (output,), dict(attrs), name=output)


def test_a_chain_is_one_group() -> None:
    g = graph([node("Relu", "x", "a"), node("Exp", "a", "b"), node("Add", "a b", "c")], ["c"])
    assert grouped(g) == [("a", "b", "c")]


def test_values_that_others_need_are_outputs_of_the_group() -> None:
    g = graph([node("Relu", "x", "a"), node("Exp", "a", "b"), node("Softmax", "a", "s")], ["b", "s"])
    [first, *_] = group_nodes(g, g.nodes, POLICY)
    assert isinstance(first, Group)
    assert (first.inputs, first.outputs) == (("x",), ("a", "b"))


def test_an_epilogue_joins_its_anchor() -> None:
    g = graph([node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a", "r")], ["r"],
              w=np.ones((8, 8), np.float32), b=np.ones(8, np.float32))  # fmt: skip
    [group] = group_nodes(g, g.nodes, POLICY)
    assert isinstance(group, Group)
    assert (group.op, [n.name for n in group.epilogue], group.prologue) == ("MatMul", ["a", "r"], ())


def test_groups_with_anchors_join_where_a_kernel_computes_both() -> None:
    """Not if something else reads the first result, if the policy lacks the pair, or a third group would join."""
    w = np.ones((8, 8), np.float32)
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b w", "c"), node("Relu", "c", "d")]
    nodes += [node("MatMul", "d w", "e")]
    both = FusePolicy(POLICY.kinds, POLICY.pairs | {("complex", "complex")})

    def joined(outputs: list[str], policy: FusePolicy, joins: bool = True) -> list[str]:
        g = graph(nodes, outputs, w=w)
        parts = join_groups(group_nodes(g, g.nodes, policy), Uses(g), policy, lambda first, second: joins)
        groups = [part for part in parts if isinstance(part, Group)]
        return ["".join(n.name for n in one.prologue) + f"[{one.node.name}]" for one in groups]

    assert joined(["e"], both) == ["ab[c]", "[e]"]
    assert joined(["e", "b"], both) == ["[a]", "cd[e]"]
    assert joined(["e"], both, joins=False) == joined(["e"], POLICY) == ["[a]", "[c]", "[e]"]


def test_an_anchor_without_operands_joins_nothing() -> None:
    policy = FusePolicy({"MatMul": "complex"}, frozenset({("complex", "complex")}))
    noise = Node("RandomNormal", (), ("n",), {"shape": (8, 8)}, name="n")
    g = graph([noise, node("MatMul", "x n", "a")], ["a"])
    parts = join_groups(group_nodes(g, g.nodes, policy), Uses(g), policy, lambda first, second: True)
    assert [part.node.op for part in parts if isinstance(part, Group)] == ["RandomNormal", "MatMul"]


def test_two_anchors_do_not_share_a_group() -> None:
    w = np.ones((8, 8), np.float32)
    g = graph([node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Softmax", "r", "s")], ["s"], w=w)
    assert grouped(g) == [("m", "r"), ("s",)]


def test_a_prologue_joins_only_without_other_readers() -> None:
    alone = graph([node("Relu", "x", "r"), node("Softmax", "r", "s")], ["s"])
    assert grouped(alone) == [("r", "s")]
    shared = graph([node("Relu", "x", "r"), node("Softmax", "r", "s")], ["s", "r"])
    assert grouped(shared) == [("r",), ("s",)]


def test_no_group_around_a_path_that_leaves_it() -> None:
    nodes = [node("Relu", "x", "r"), node("Softmax", "r", "s"), node("Add", "r s", "a")]
    assert grouped(graph(nodes, ["a"])) == [("r",), ("s",), ("a",)]  # r and a may share a group, were there no s


def test_groups_keep_to_the_limit() -> None:
    steps = 3 * MAX_NODES
    nodes = [node("Relu", f"v{i}" if i else "x", f"v{i + 1}") for i in range(steps)]
    sizes = [len(names) for names in grouped(graph(nodes, [f"v{steps}"]))]
    assert sum(sizes) == steps
    assert max(sizes) <= MAX_NODES


def test_different_shapes_do_not_share_a_group() -> None:
    nodes = [node("Relu", "b", "r"), node("Add", "x r", "a")]
    g = harness.make_graph(nodes, {"x": X, "b": np.zeros(8, np.float32)}, outputs=["a"])
    assert grouped(g) == [("r",), ("a",)]


def test_splits_end_with_each_node_alone() -> None:
    g = graph([node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a", "r")], ["r"],
              w=np.ones((8, 8), np.float32), b=np.ones(8, np.float32))  # fmt: skip
    [group] = group_nodes(g, g.nodes, POLICY)
    assert isinstance(group, Group)
    ways = [[[n.name for n in part.nodes] for part in way] for way in split(Uses(g), group, POLICY)]
    assert ways == [[["m", "a"], ["r"]], [["m"], ["a", "r"]], [["m"], ["a"], ["r"]]]


def random_graph(choices: list[tuple[int, int, int]]) -> Graph:
    """Nodes that each read two earlier ones; the last results are the outputs."""
    values, nodes = ["x"], []
    for i, (kind, a, b) in enumerate(choices):
        left, right = values[-1 - a % len(values)], values[-1 - b % len(values)]
        op = ("Add", "Add", "Relu", "Softmax", "MatMul")[kind % 5]
        inputs = f"{left} {right}" if op == "Add" else f"{left} w" if op == "MatMul" else left
        nodes.append(node(op, inputs, f"v{i}"))
        values.append(f"v{i}")
    read = {v for n in nodes for v in n.inputs}
    outputs = [v for v in values[1:] if v not in read]
    types = {v: TensorType(harness.make_graph([], {"x": X}, outputs=[]).type("x").dtype, (4, 8)) for v in values}
    return harness.make_graph(
        nodes, {"x": X}, constants={"w": np.ones((8, 8), np.float32)}, outputs=outputs, types=types
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_groups_are_a_partition_that_can_be_run_in_order(choices: list[tuple[int, int, int]]) -> None:
    g = random_graph(choices)
    groups = grouped(g)
    assert sorted(name for names in groups for name in names) == sorted(n.name for n in g.nodes)
    inputs = {n.name: n.inputs for n in g.nodes}
    there = {"x", "w"}
    for names in groups:
        needed = {v for name in names for v in inputs[name]} - set(names)
        assert needed <= there
        there |= set(names)
        assert sum(POLICY.kind(n.op) != "elementwise" for n in g.nodes if n.name in names) <= 1


@pytest.mark.parametrize("reach", [1, 40])
def test_work_grows_with_the_graph_not_with_its_square(reach: int) -> None:
    def calls(count: int) -> int:
        g, kinds, made = random_graph([(i % 5, 0, i % reach) for i in range(count)]), standard_policy(), 0

        def seen(*_: object) -> None:
            nonlocal made
            made += 1

        sys.setprofile(seen)
        try:
            found = group_nodes(g, g.nodes, kinds)
        finally:
            sys.setprofile(None)
        assert len(found) < count
        return made

    assert calls(2000) < 2.5 * calls(1000)
