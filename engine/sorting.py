"""The order of nodes: ONNX asks for a topological one, models do not always have it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from ..errors import UserError


def free_names(graph: Any) -> list[str]:
    """The values that a `GraphProto` reads from around it, in order of first use."""
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    known |= {t.values.name for t in graph.sparse_initializer}
    known |= {name for node in graph.node for name in node.output}
    found: dict[str, None] = {}
    for node in graph.node:
        found.update(dict.fromkeys(name for name in node_reads(node) if name not in known))
    found.update(dict.fromkeys(v.name for v in graph.output if v.name not in known))
    return list(found)


def node_reads(node: Any) -> Iterator[str]:
    """The values that a `NodeProto` reads, captured ones among them."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            yield from free_names(graph)


def describe(node: Any, index: int) -> str:
    """A node's name for people: its own, or else its operator and place."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"node {index} ({node.op_type})"


def sorted_nodes(graph: Any, around: frozenset[str], where: str) -> list[Any]:
    """The nodes of a `GraphProto` in topological order, the given one where it is.

    `around` are the values of the graphs around it. Raises `UserError` for a cycle, a value that nothing makes or two
    nodes make."""
    nodes = list(graph.node)
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer}
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in maker or name in defined:
                other = describe(nodes[maker[name]], maker[name]) if name in maker else "an input or initialiser"
                raise UserError(
                    f"the value {name!r} is made twice, also by {other}", where=f"{where}: {describe(node, i)}"
                )
            maker[name] = i
    waiting: list[int] = []
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        needs = set()
        for name in dict.fromkeys(node_reads(node)):
            if name in maker:
                needs.add(maker[name])
            elif name not in defined and name not in around:
                raise UserError(
                    f"reads the value {name!r}, which no input, initialiser or node provides",
                    where=f"{where}: {describe(node, i)}",
                )
        waiting.append(len(needs))
        for j in needs:
            readers.setdefault(j, []).append(i)
    for value in graph.output:
        if value.name not in maker and value.name not in defined and value.name not in around:
            raise UserError(f"the output {value.name!r} is made by no node", where=where)
    ready = [i for i, n in enumerate(waiting) if n == 0]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in readers.get(i, ()):
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(order) < len(nodes):
        cycle = _cycle(nodes, maker, set(order))
        names = " → ".join(describe(nodes[i], i) for i in cycle)
        raise UserError(
            f"the graph is cyclic: {names}", where=where, hint="A graph must not use a value to make itself."
        )
    return [nodes[i] for i in order]


def _cycle(nodes: list[Any], maker: dict[str, int], done: set[int]) -> list[int]:
    """The nodes of one cycle among those that could not be sorted, the first again at the end."""
    at = min(i for i in range(len(nodes)) if i not in done)
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = next(maker[name] for name in node_reads(nodes[at]) if name in maker and maker[name] not in done)
    path = path[path.index(at) :]
    path.reverse()  # readers were followed back to makers
    return [*path, path[0]]
