"""Encoding of a graph in an e-graph: every value becomes a class, every node an e-node.

A node with several outputs becomes one e-node with a tuple as its value, and a `Proj` for each output that is read. A
node with subgraphs (If, Loop, Scan) depends on what its bodies capture. Those values are appended to its children, and
attribute `CAPTURES` holds the names under which the bodies read them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ..ir.constants import ConstantInfo
from ..ir.graph import Graph, Node, TensorType, ValueType
from ..ir.names import ABSENT, CAPTURES
from ..ir.symbolic import symbol_name
from ..operators.schemas import signature
from .egraph import EGraph


def encode(
    graph: Graph, egraph: EGraph, constants: Mapping[str, ConstantInfo] | None = None, *, prefix: str = ""
) -> dict[str, int]:
    """Add a graph to an e-graph and return the class of every value by name; `egraph.roots` gets the outputs.

    `constants` may hold summaries that replace constants of the graph. Other values that the graph captures become
    inputs, their names prefixed by `prefix`."""
    at: dict[str, int] = {"": ABSENT}
    constants = constants or {}
    for name in (*graph.inputs, *(name for name in graph.captures() if name not in constants)):
        at[name] = egraph.add_input(prefix + name, graph.types.get(name, graph.type(name)))
    at |= {name: egraph.add_constant(info) for name, info in constants.items()}
    at |= {name: egraph.add_constant(constant) for name, constant in graph.constants.items()}
    read = {*graph.outputs, *graph.consumers()}
    for node in graph.nodes:
        types = tuple(graph.types.get(out, graph.type(out)) for out in node.outputs)
        add_node(egraph, node, at, read, types=types, given=True, origins=node.origins or (node.name,))
    egraph.roots = {name: at[name] for name in graph.outputs}
    return at


def add_node(
    egraph: EGraph, node: Node, at: dict[str, int], read: Container[str], *, origins: tuple[str, ...],
    made_by: str | None = None, types: tuple[ValueType, ...] | None = None, given: bool = False,
    outer: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Add a node of a graph, and to `at` the classes of its named outputs: of several, those in `read`.

    `outer` has the names in `at` of what bodies capture under other names. Raises `IllTyped` as `EGraph.add` does, that
    explains `types` and `given`, too."""
    bodies = [body for _, body in node.subgraphs()]
    captures = tuple(dict.fromkeys(c for body in bodies for c in body.captures()))
    children = [at[name] for name in node.inputs]
    found = signature(node.op)
    children += [ABSENT] * ((found.max_inputs or 0) - len(children) if found is not None else 0)
    children += [at[(outer or {}).get(name, name)] for name in captures]
    attrs = {**node.attrs, CAPTURES: captures} if bodies else node.attrs
    count = max(1, len(node.outputs))
    handle = egraph.add(node.op, attrs, children, count, made_by=made_by, origins=origins, types=types, given=given)
    if len(node.outputs) == 1:
        if node.outputs[0]:
            at[node.outputs[0]] = handle
        return
    for index, out in enumerate(node.outputs):
        if out and out in read:  # "" is an operand that is absent
            at[out] = egraph.add("Proj", {"index": index}, (handle,), made_by=made_by, origins=origins)


def input_symbols(egraph: EGraph) -> frozenset[str]:
    """Return the symbols that are extents of inputs, so known before the graph runs."""
    types = (egraph.types(handle)[0] for handle, node in enumerate(egraph.nodes) if node.op == "Input")
    shapes = [t.shape for t in types if isinstance(t, TensorType) and t.shape is not None]
    return frozenset(name for shape in shapes for dim in shape if (name := symbol_name(dim)) is not None)
