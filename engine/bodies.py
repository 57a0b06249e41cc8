"""Optimising the bodies of If, Loop and Scan, innermost first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .graph import AttrValue, Graph, Node


def optimise_bodies(graph: Graph, optimise: Callable[[Graph], Graph]) -> Graph:
    """The graph with every subgraph in it replaced by `optimise` of it. What a body captures stays captured."""
    if not any(True for node in graph.nodes for _ in node.subgraphs()):
        return graph
    return replace(graph, nodes=[_node(node, graph, optimise) for node in graph.nodes])


def _node(node: Node, around: Graph, optimise: Callable[[Graph], Graph]) -> Node:
    attrs: dict[str, AttrValue] = {}
    for name, value in node.attrs.items():
        if isinstance(value, Graph):
            attrs[name] = _body(value, around, optimise)
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            attrs[name] = tuple(_body(g, around, optimise) for g in value if isinstance(g, Graph))
        else:
            attrs[name] = value
    return replace(node, attrs=attrs)


def _body(body: Graph, around: Graph, optimise: Callable[[Graph], Graph]) -> Graph:
    types = {name: around.types.get(name, around.type(name)) for name in body.captures()}
    inner = replace(body, types={**types, **body.types}, opset=around.opset)
    return optimise_bodies(optimise(inner), optimise)
