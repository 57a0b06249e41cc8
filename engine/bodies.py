"""The bodies of If, Loop and Scan: taken out of a graph to be optimised on their own, and put back.

A body is marked with a number in its metadata, by which its optimised form finds its place again wherever extraction
has put its node. Bodies inside bodies are bodies of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .graph import AttrValue, Graph, Node

_MARK = "$body"


def map_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with every direct subgraph replaced by `change` of it."""
    if not any(True for node in graph.nodes for _ in node.subgraphs()):
        return graph
    return replace(graph, nodes=[_node(node, change) for node in graph.nodes])


def _node(node: Node, change: Callable[[Graph], Graph]) -> Node:
    attrs: dict[str, AttrValue] = {}
    for name, value in node.attrs.items():
        if isinstance(value, Graph):
            attrs[name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            attrs[name] = tuple(change(g) for g in value if isinstance(g, Graph))
        else:
            attrs[name] = value
    return replace(node, attrs=attrs)


def mark_bodies(graph: Graph) -> Graph:
    """The graph with all bodies in it numbered, and the types of what they capture noted in them."""
    count = 0

    def mark(around: Graph) -> Callable[[Graph], Graph]:
        def change(body: Graph) -> Graph:
            nonlocal count
            types = {name: around.types.get(name, around.type(name)) for name in body.captures()}
            metadata = {**body.metadata, _MARK: str(count)}
            count += 1
            inner = replace(body, types={**types, **body.types}, metadata=metadata, opset=around.opset)
            return map_bodies(inner, mark(inner))

        return change

    return map_bodies(graph, mark(graph))


def all_bodies(graph: Graph) -> Iterator[Graph]:
    """The bodies in a graph, outer ones first."""
    for node in graph.nodes:
        for _, body in node.subgraphs():
            yield body
            yield from all_bodies(body)


def body_number(body: Graph) -> int:
    """The number that `mark_bodies` gave."""
    return int(body.metadata[_MARK])


def replace_bodies(graph: Graph, result: Callable[[int], Graph]) -> Graph:
    """The graph with every marked body, at any depth, replaced by the result for its number, unmarked."""

    def change(body: Graph) -> Graph:
        found = result(body_number(body))
        metadata = {k: v for k, v in body.metadata.items() if k != _MARK}
        return replace_bodies(replace(found, metadata=metadata), result)

    return map_bodies(graph, change)
