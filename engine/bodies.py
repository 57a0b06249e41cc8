"""The bodies of If, Loop and Scan: taken out of a graph to be optimised on their own, and put back.

A body is marked with a number in its metadata, by which its optimised form finds its place again wherever extraction
has put its node, and with the new names of what it captures, where that has been renamed since. Bodies inside bodies
are bodies of their own. A body that a rule has made has no mark until it is optimised in its turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from .graph import AttrValue, Graph, Node

_MARK = "$body"
_RENAMED = "$renamed"


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


def unmarked(graph: Graph) -> Graph:
    """A body that a rule has made of a marked one, which is none of those numbered."""
    return replace(graph, metadata={k: v for k, v in graph.metadata.items() if k not in (_MARK, _RENAMED)})


def rename_captures(body: Graph, names: Mapping[str, str]) -> Graph:
    """A body that reads what is around it by other names; marked ones keep note of these."""
    changed = {old: names[old] for old in body.captures() if names.get(old, old) != old}
    if not changed:
        return body
    found = substitute(body, changed)
    if _MARK not in body.metadata:
        return found
    before: dict[str, str] = json.loads(body.metadata.get(_RENAMED, "{}"))
    after = {first: changed.get(name, name) for first, name in before.items()}
    after |= {old: new for old, new in changed.items() if old not in before.values()}
    return replace(found, metadata={**found.metadata, _RENAMED: json.dumps(after, sort_keys=True)})


def substitute(body: Graph, names: Mapping[str, str]) -> Graph:
    """A body in which other values are read in place of some that are made outside of its nodes.

    An output that was one of these becomes a copy, since it keeps its name."""
    nodes = [
        replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
        for node in map_bodies(body, lambda inner: rename_captures(inner, names)).nodes
    ]
    copies = [Node("Identity", (names[v],), (v,)) for v in dict.fromkeys(body.outputs) if v in names]
    types = {**body.types, **{new: body.types[old] for old, new in names.items() if old in body.types}}
    return replace(body, nodes=[*nodes, *copies], types=types)


class Numbering:
    """The graphs of a model: its main graph, the bodies marked when it was read by number, those that rules made."""

    def __init__(self, graph: Graph) -> None:
        """`graph` has marked bodies."""
        self.graphs = [graph, *sorted(all_bodies(graph), key=body_number)]
        self._made: list[tuple[int, Graph]] = []

    def mark(self, graph: Graph) -> Graph:
        """A graph in which bodies that rules have made are numbered, and equal ones with one number."""
        return map_bodies(graph, self._marked)

    def _marked(self, body: Graph) -> Graph:
        if _MARK in body.metadata:
            return body
        number = next((n for n, made in self._made if made == body), None)
        if number is None:
            number = len(self.graphs) - 1
            self._made.append((number, body))
            self.graphs.append(body)
        return replace(body, metadata={**body.metadata, _MARK: str(number)})


def replace_bodies(graph: Graph, result: Callable[[int], Graph]) -> Graph:
    """The graph with every marked body, at any depth, replaced by the result for its number, unmarked."""

    def change(body: Graph) -> Graph:
        found = result(body_number(body)) if _MARK in body.metadata else body
        found = rename_captures(unmarked(found), json.loads(body.metadata.get(_RENAMED, "{}")))
        return replace_bodies(replace(found, metadata=unmarked(body).metadata), result)

    return map_bodies(graph, change)
