"""Graph → EGraph: every value of the graph becomes a class, every node an e-node.

A node with several outputs becomes one e-node with a tuple as its value and a `Proj` for each output that is read. A
node with subgraphs (If, Loop, Scan) depends on what its bodies capture: those values are appended to its children, and
attribute `CAPTURES` keeps the names under which the bodies read them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from .constants import ConstantInfo
from .egraph import ABSENT, CAPTURES, EGraph
from .graph import Graph, Node
from .operators import signature


def encode(
    graph: Graph, egraph: EGraph, constants: Mapping[str, ConstantInfo] | None = None, *, prefix: str = ""
) -> dict[str, int]:
    """Adds a graph to an e-graph and gives the class of every value by name; `egraph.roots` gets the outputs.

    `constants` may give summaries in place of the graph's constants. Values that the graph captures from around it
    become inputs, before whose names `prefix` is set."""
    at: dict[str, int] = {"": ABSENT}
    for name in (*graph.inputs, *graph.captures()):
        at[name] = egraph.add_input(prefix + name, graph.types.get(name, graph.type(name)))
    for name, info in (constants or {}).items():
        at[name] = egraph.add_constant(info)
    for name, constant in graph.constants.items():
        at[name] = egraph.add_constant(constant)
    read = {*graph.outputs, *graph.consumers()}
    for node in graph.nodes:
        _encode_node(node, graph, egraph, at, read)
    egraph.roots = {name: at[name] for name in graph.outputs}
    return at


def _encode_node(node: Node, graph: Graph, egraph: EGraph, at: dict[str, int], read: Container[str]) -> None:
    captures = tuple(dict.fromkeys(c for _, body in node.subgraphs() for c in body.captures()))
    attrs = {**node.attrs, CAPTURES: captures} if any(True for _ in node.subgraphs()) else node.attrs
    children = [at[name] for name in node.inputs]
    sig = signature(node.op)
    if sig is not None and sig.max_inputs is not None:
        children += [ABSENT] * (sig.max_inputs - len(children))
    children += [at[name] for name in captures]
    types = tuple(graph.types.get(out, graph.type(out)) for out in node.outputs)
    origins = node.origins or (node.name,)
    count = max(1, len(node.outputs))
    handle = egraph.add(node.op, attrs, children, count, origins=origins, types=types, given=True)
    if len(node.outputs) == 1:
        at[node.outputs[0]] = handle
        return
    for index, out in enumerate(node.outputs):
        if out in read:
            at[out] = egraph.add("Proj", {"index": index}, (handle,), origins=origins)
