"""Free sizes that have one value in every run, since a node would refuse any other.

A model may call its batch free and reshape it away, to `[1, 3136, -1]`, say. The contracted dim of the next product is
then `32*batch`, and its weights have 32 rows: no run with another batch than 1 succeeds. Only nodes count that every
run computes: those of the main graph that an output depends on. Only operators count that accept no other extents.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.graph import Graph, Node
from ..ir.symbolic import Dim, solution, symbol_name


def forced_sizes(graph: Graph) -> dict[str, tuple[int, Node]]:
    """Return the free sizes of inputs that have one value, by place (`INPUT:AXIS`): the value, and a node that needs
    it."""
    places: dict[str, str] = {}
    for name in graph.inputs:
        for axis, dim in enumerate(graph.type(name).shape or ()):
            if (free := symbol_name(dim)) is not None:
                places.setdefault(free, f"{name}:{axis}")
    found: dict[str, tuple[int, Node]] = {}
    if not places:
        return found
    for node in _needed(graph):
        for a, b in _equal_dims(graph, node):
            solved = solution(a, b)
            if solved is not None and solved[0] in places:
                found.setdefault(places[solved[0]], (solved[1], node))
    return found


def _needed(graph: Graph) -> Iterator[Node]:
    """Iterate over the nodes that an output depends on, last ones first."""
    wanted = set(graph.outputs)
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.reads())
            yield node


def _equal_dims(graph: Graph, node: Node) -> Iterator[tuple[Dim, Dim]]:
    """Iterate over pairs of dims of a node's operands that are equal wherever it runs."""
    a, b = ([graph.type(v).shape for v in node.inputs[:2]] + [None, None])[:2]
    if a is None or b is None:
        return
    if node.op == "MatMul" and a and b:
        yield a[-1], b[-2 if len(b) > 1 else 0]
    elif node.op == "Gemm" and len(a) == len(b) == 2:
        yield a[0 if node.attrs.get("transA") else 1], b[1 if node.attrs.get("transB") else 0]
    elif node.op == "Conv" and min(len(a), len(b)) > 2:
        group = node.attrs.get("group", 1)
        assert isinstance(group, int)
        yield a[1], b[1] * group
    elif node.op in ("RNN", "GRU", "LSTM") and len(a) == len(b) == 3:
        yield a[2], b[2]
