"""Expansion of definitions: graphs without declared operators, for software that does not know these."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import UserError
from ...grammar.syntax import ast
from ..cost.cost_model import CostModel
from ..egraph.egraph import EGraph
from ..egraph.encode import encode
from ..extraction.decode import decode
from ..extraction.extract import ExtractionError, extract
from ..ir import bodies
from ..ir.constants import SMALL
from ..ir.graph import Graph, Node
from ..ir.names import OWN_DOMAIN
from ..ir.values import Unprovable
from ..operators.inference import IllTyped, fresh_dims
from ..operators.schemas import STANDARD_DOMAINS, Declared, declared_operators
from .custom_operators import define
from .evaluate import Evaluator


def nonstandard_operators(graph: Graph) -> list[str]:
    """Return the operators of a graph, and of the graphs in it, that belong to no domain of the standard."""
    found = {node.op for node in graph.nodes if node.domain not in STANDARD_DOMAINS}
    bodies_ = [body for node in graph.nodes for _, body in node.subgraphs()]
    return sorted(found.union(*map(nonstandard_operators, bodies_)))


def expand_definitions(graph: Graph, declared: Mapping[str, Declared]) -> Graph:
    """Return a graph with every operator that has a definition replaced by it.

    Raises `UserError` where a definition does not apply or an operator has none."""
    for op in nonstandard_operators(graph):
        if op not in declared or declared[op].op.definition is None:
            raise UserError(f"{op} has no definition")
    with declared_operators(declared):
        return bodies.map_bodies(_expand(graph, declared), lambda body: expand_definitions(body, declared))


def _expand(graph: Graph, declared: Mapping[str, Declared]) -> Graph:
    if not any(node.op in declared for node in graph.nodes):
        return graph
    egraph = EGraph.scratch(fresh_dims("_x"))
    encode(graph, egraph)
    context = Evaluator(egraph, next(iter(declared.values())).defined)
    for handle, node in enumerate(list(egraph.nodes)):
        if node.op not in declared:
            continue
        try:
            define(context.for_match(egraph.origins[handle]), handle, declared[node.op].op)
        except (Unprovable, IllTyped) as why:
            raise UserError(f"the definition of {node.op} does not apply: {why}") from None
    nodes = egraph.nodes
    choice = extract(egraph, CostModel(model="nodes"), admissible=lambda handle: nodes[handle].op not in declared)
    return decode(egraph, choice, graph)


def definition_graph(graph: Graph, node: Node, defined: Mapping[str, ast.Op]) -> Graph | None:
    """Return a graph that computes a node of `graph` by the definition of its operator; None if it does not apply.

    Values keep their names, new names begin with that of the first output. Small constants that the node reads are
    part of the graph. `defined` are the definitions by the operator's name in rules."""
    name = node.op.removeprefix(f"{OWN_DOMAIN}.")
    alone = _alone(graph, node)
    egraph, handle = _alone_in_egraph(alone, node.op)
    context = Evaluator(egraph, defined).for_match(egraph.origins[handle])
    try:
        define(context, handle, defined[name])
        nodes = egraph.nodes
        choice = extract(egraph, CostModel(model="nodes"), admissible=lambda handle: nodes[handle].op != node.op)
    except (Unprovable, IllTyped, ExtractionError):
        return None
    return decode(egraph, choice, alone, prefix=f"{node.outputs[0]}_")


def why_not_defined(graph: Graph, node: Node, defined: Mapping[str, ast.Op]) -> str:
    """Return why the definition of a node's operator does not apply to it; empty if there is none, or it does."""
    op = defined.get(node.op.removeprefix(f"{OWN_DOMAIN}."))
    if op is None:
        return ""
    egraph, handle = _alone_in_egraph(_alone(graph, node), node.op)
    try:
        define(Evaluator(egraph, defined).for_match(egraph.origins[handle]), handle, op)
    except (Unprovable, IllTyped) as why:
        return str(why)
    return ""


def _alone(graph: Graph, node: Node) -> Graph:
    """Return a graph of one node of a graph; the small constants that it reads are part of it."""
    inputs = tuple(v for v in dict.fromkeys(node.inputs) if v)
    small = {v: c for v in inputs if (c := graph.constants.get(v)) is not None and c.array.size <= SMALL}
    return Graph(
        inputs=tuple(v for v in inputs if v not in small),
        outputs=tuple(v for v in node.outputs if v),
        nodes=[node],
        constants=small,
        types={v: graph.types[v] for v in (*inputs, *node.outputs) if v in graph.types},
        name=node.outputs[0],
        opset=graph.opset,
    )


def _alone_in_egraph(alone: Graph, op: str) -> tuple[EGraph, int]:
    """Return an e-graph of a graph of one node, and the handle of that."""
    egraph = EGraph.scratch(fresh_dims("_x"))
    encode(alone, egraph)
    return egraph, next(h for h, n in enumerate(egraph.nodes) if n.op == op)
