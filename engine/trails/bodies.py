"""Bodies of If, Loop and Scan in trails: each is a graph with steps of its own, from a body of the model, or one that a
step built, to what stands in the result.

The e-graph of the graph around a body has the body as it was before its own steps. So a result is compared with that
e-graph as if its bodies were those, and each body with the end of its own steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..egraph import encode as encoding
from ..egraph.egraph import EGraph
from ..ir.bodies import all_bodies, change_bodies, rename_captures
from ..ir.graph import Graph, Node, TensorType, content_text
from ..ir.names import ABSENT
from .coding import BodyDigest, body_digest
from .replay import Gap
from .trail import GraphTrail, Trail

Bodies = MutableMapping[BodyDigest, Graph]
"""Bodies by digest: those of the model, and those that steps built."""


@dataclass(frozen=True, slots=True)
class Result:
    """A graph to which steps lead.

    `bodies` has for each body directly in it, in order, the one that stands in the e-graph, with the names in the graph
    of what that captures. `captured` has for each value that the graph captures its names where the steps start: of
    several, the values are one here. Inputs and outputs of a body may have other names than where the steps start."""

    graph: Graph
    bodies: Sequence[tuple[Graph, Mapping[str, str]]] = ()
    captured: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_body: bool = False

    def encode(self, egraph: EGraph, start: Graph) -> dict[str, int]:
        """Add the graph to an e-graph that began with `start`, and return the class of every value by name.

        Types that the graph states are left out, since a file may say anything. Raises `Gap`."""
        graph = replace(self.graph, types={})
        at = {"": ABSENT}
        inputs = zip(graph.inputs, ([v] for v in start.inputs), strict=True)
        for name, every in (*inputs, *self.captured.items()):
            first, *others = (egraph.add_input(v, start.types.get(v, TensorType())) for v in every)
            for other in others:
                egraph.union(first, other)
            at[name] = first
        at |= {name: egraph.add_constant(constant) for name, constant in graph.constants.items()}
        nodes = list(self._nodes())
        read = {*graph.outputs, *(v for node, outer in nodes for v in (*node.inputs, *outer.values()))}
        for node, outer in nodes:
            unknown = [v for v in (*node.inputs, *outer.values()) if v not in at]
            if unknown:
                raise Gap(f"{unknown[0]!r} is neither computed here nor captured where the steps start")
            types = tuple(graph.type(out) for out in node.outputs)
            encoding.add_node(
                egraph, node, at, read, types=types, given=True, origins=node.origins or (node.name,), outer=outer
            )
        return at

    def _nodes(self) -> Iterator[tuple[Node, Mapping[str, str]]]:
        """Yield the nodes with the bodies that stand in the e-graph, and what these capture."""
        bodies = iter(self.bodies)
        for node in self.graph.nodes:
            outer: dict[str, str] = {}
            taken = [next(bodies) for _ in node.subgraphs()]
            for body, names in taken:
                for name in body.captures():
                    new = names.get(name, name)
                    if outer.setdefault(name, new) != new:
                        raise Gap("bodies of a node capture different values under one name")
            rest = iter([body for body, _ in taken])
            yield change_bodies(node, lambda _, rest=rest: next(rest)), outer  # type: ignore[misc]


def direct_bodies(graph: Graph) -> list[Graph]:
    """Return the bodies of a graph's own nodes, in order."""
    return [body for node in graph.nodes for _, body in node.subgraphs()]


def with_inner(bodies: Bodies, graph: Graph) -> None:
    """Add the bodies in a graph to those known."""
    bodies.update({body_digest(body): body for body in all_bodies(graph)})


def start_of(part: GraphTrail, bodies: Bodies) -> Graph:
    """Return the body with which the steps of a part start. Raises `Gap` if it is not known."""
    base = _known(part.body, bodies)
    start = rename_captures(base, _not_shadowed(base, part.names)) if part.names else base
    with_inner(bodies, start)
    return start


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A body in a result that has to follow from the graph with number `number` of a trail, which starts as `start`;
    `names` are those in the result of what `start` captures."""

    number: int
    start: Graph
    end: Graph
    names: Mapping[str, str]
    is_body: bool = True

    @property
    def captured(self) -> dict[str, list[str]]:
        """The names where the steps start by the name in the result."""
        found: dict[str, list[str]] = {}
        for name in self.start.captures():
            found.setdefault(self.names.get(name, name), []).append(name)
        return found


def occurrences(
    trail: Trail, part: GraphTrail, here: Occurrence, bodies: Bodies
) -> tuple[list[tuple[Graph, Mapping[str, str]]], list[Occurrence]]:
    """Return the bodies of a result as `Result` has them, and what has to follow from other graphs of the trail.

    A body in the e-graph and the start of a graph of the trail are the same if they are once their captured values have
    the names of the result. Raises `Gap`."""
    ends = direct_bodies(here.end)
    if len(ends) != len(part.inner):
        raise Gap(f"the result has {len(ends)} bodies here, the trail {len(part.inner)}")
    standing: list[tuple[Graph, Mapping[str, str]]] = []
    found: list[Occurrence] = []
    for inner, end in zip(part.inner, ends, strict=True):
        body, start = _known(inner.body, bodies), start_of(trail.graphs[inner.graph], bodies)
        captures, names = (_outer(here, graph, new) for graph, new in ((body, inner.captures), (start, inner.names)))
        if _form(rename_captures(body, captures)) != _form(rename_captures(start, names)):
            raise Gap("a body is another one than that from which its steps start")
        standing.append((body, captures))
        found.append(Occurrence(inner.graph, start, end, names))
    return standing, found


def _outer(here: Occurrence, body: Graph, names: Mapping[str, str]) -> dict[str, str]:
    """Return the names in a result of all that a body in it captures: inputs of the graph around it among them."""
    found = {name: names.get(name, name) for name in body.captures()}
    around = {**dict(zip(here.start.inputs, here.end.inputs, strict=False)), **here.names}
    return dict(_not_shadowed(body, {name: around.get(new, new) for name, new in found.items()}))


def _not_shadowed(body: Graph, names: Mapping[str, str]) -> Mapping[str, str]:
    """Return new names of captured values, none of which stands for another value inside. Raises `Gap`."""
    inside = (body, *all_bodies(body))
    made = {v for graph in inside for node in graph.nodes for v in node.outputs}
    own = made.union(*((*graph.inputs, *graph.constants) for graph in inside))
    captured = {*body.captures()}
    for name, new in names.items():
        if name in captured and new != name and new in own:
            raise Gap(f"{new!r} stands for two values in a body")
    for graph in inside:
        types: dict[str, Any] = {}
        for name in graph.captures():
            known = graph.types.get(name)
            if types.setdefault(names.get(name, name), known) != known:
                raise Gap(f"captured values of two types are both called {names.get(name, name)!r}")
    return names


def _known(digest: str, bodies: Bodies) -> Graph:
    found = bodies.get(BodyDigest(digest))
    if found is None:
        raise Gap("a body is neither the model's nor built by a step")
    return found


def _form(graph: Graph) -> Any:
    """Return what a body computes: its nodes without names and marks, and the types of its values, which steps read."""

    def attribute(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(attribute, value))
        return _form(value) if isinstance(value, Graph) else content_text(value)

    nodes = [
        (node.op, node.inputs, node.outputs, {name: attribute(value) for name, value in node.attrs.items()})
        for node in graph.nodes
    ]
    values = {*graph.inputs, *graph.captures(), *(v for node in graph.nodes for v in node.outputs)}
    types = {v: graph.types.get(v) for v in values}
    return graph.inputs, graph.outputs, {name: c.digest for name, c in graph.constants.items()}, nodes, types
