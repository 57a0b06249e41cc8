"""Bodies of If, Loop and Scan: taken out of a graph to be optimized on their own, and put back.

A body is marked with a number in its metadata. The number identifies the body after extraction, wherever its node is
then. The mark also records the new names of captured values that were renamed since. Bodies inside bodies are bodies of
their own. A body made by a rule has no mark until it is optimized itself.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .graph import Graph, Node

_MARK = "$body"
_RENAMED = "$renamed"


def map_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with every direct subgraph replaced by `change` of it."""
    nodes = [change_bodies(node, change) for node in graph.nodes]
    return graph if all(map(operator.is_, nodes, graph.nodes)) else replace(graph, nodes=nodes)


def change_bodies(node: Node, change: Callable[[Graph], Graph]) -> Node:
    """Return the node with each of its bodies replaced by `change` of it."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return change(value) if isinstance(value, Graph) else value

    if not any(True for _ in node.subgraphs()):
        return node
    return replace(node, attrs={name: changed(value) for name, value in node.attrs.items()})


def mark_bodies(graph: Graph) -> Graph:
    """Return the graph with all bodies in it numbered, and the types of what they capture recorded in them."""
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
    """Iterate over the bodies in a graph, outer ones first."""
    for node in graph.nodes:
        for _, body in node.subgraphs():
            yield body
            yield from all_bodies(body)


def is_marked(body: Graph) -> bool:
    """Return whether a body has a number."""
    return _MARK in body.metadata


def new_names(body: Graph) -> dict[str, str]:
    """Return the captured values of a marked body that were renamed since, by their names then."""
    found: dict[str, str] = json.loads(body.metadata.get(_RENAMED, "{}"))
    return found


def body_number(body: Graph) -> int:
    """Return the number that `mark_bodies` gave."""
    return int(body.metadata[_MARK])


def unmarked(graph: Graph) -> Graph:
    """Return a body without its mark, required for a body that a rule changes: it is no longer the numbered one."""
    return replace(graph, metadata={k: v for k, v in graph.metadata.items() if k not in (_MARK, _RENAMED)})


def rename_captures(body: Graph, names: Mapping[str, str]) -> Graph:
    """Rename what a body captures; marked bodies record the new names."""
    changed = {old: names[old] for old in body.captures() if names.get(old, old) != old}
    if not changed:
        return body
    found = substitute(body, changed)
    if not is_marked(body):
        return found
    before = new_names(body)
    after = {first: changed.get(name, name) for first, name in before.items()}
    after |= {old: new for old, new in changed.items() if old not in before.values()}
    return replace(found, metadata={**found.metadata, _RENAMED: json.dumps(after, sort_keys=True)})


def substitute(body: Graph, names: Mapping[str, str]) -> Graph:
    """Substitute values from outside the nodes of a body.

    An output that is substituted becomes a copy, since it must keep its name."""
    nodes = [
        replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
        for node in map_bodies(body, lambda inner: rename_captures(inner, names)).nodes
    ]
    copies = [Node("Identity", (names[v],), (v,)) for v in dict.fromkeys(body.outputs) if v in names]
    types = {**body.types, **{new: body.types[old] for old, new in names.items() if old in body.types}}
    return replace(body, nodes=[*nodes, *copies], types=types)


def originals(body: Graph) -> Callable[[str], str]:
    """Return a function from each value of a body to the one that it is a copy of, through any number of copies."""
    copied = {node.outputs[0]: node.inputs[0] for node in body.nodes if node.op == "Identity"}

    def original(value: str) -> str:
        while value in copied:
            value = copied[value]
        return value

    return original


def rename_values(node: Node, names: Mapping[str, str]) -> Node:
    """Rename values of a node, in its bodies too, where they do not define a value of that name."""

    def inside(body: Graph) -> Graph:
        shadowed = {*body.inputs, *body.constants, *(v for n in body.nodes for v in n.outputs)}
        outer = {a: b for a, b in names.items() if a not in shadowed}
        types = {outer.get(v, v): kind for v, kind in body.types.items()}
        nodes = [rename_values(n, outer) for n in body.nodes]
        return replace(body, nodes=nodes, outputs=tuple(outer.get(v, v) for v in body.outputs), types=types)

    inputs, outputs = (tuple(names.get(v, v) for v in values) for values in (node.inputs, node.outputs))
    return replace(change_bodies(node, inside), inputs=inputs, outputs=outputs)


class Numbering:
    """The graphs of a model by number: its main graph, the bodies marked on import, those that rules made."""

    def __init__(self, graph: Graph) -> None:
        """Collect the graphs of a graph with marked bodies."""
        self.graphs = [graph, *sorted(all_bodies(graph), key=body_number)]
        self._made: list[tuple[int, Graph]] = []

    def mark(self, graph: Graph) -> Graph:
        """Number the bodies that rules have made; equal ones share a number."""
        return map_bodies(graph, self._marked)

    def _marked(self, body: Graph) -> Graph:
        if is_marked(body):
            return body
        number = next((n for n, made in self._made if made == body), None)
        if number is None:
            number = len(self.graphs) - 1
            self._made.append((number, body))
            self.graphs.append(body)
        return replace(body, metadata={**body.metadata, _MARK: str(number)})


def replace_bodies(graph: Graph, result: Callable[[int], Graph]) -> Graph:
    """Replace every marked body, at any depth, by the result for its number, without marks."""

    def change(body: Graph) -> Graph:
        found = result(body_number(body)) if is_marked(body) else body
        found = rename_captures(unmarked(found), new_names(body))
        return replace_bodies(replace(found, metadata=unmarked(body).metadata), result)

    return map_bodies(graph, change)
