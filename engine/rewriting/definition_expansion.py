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
    choice = extract(egraph, CostModel(model="nodes"), admissible=lambda node: node.op not in declared)
    return decode(egraph, choice, graph)


def definition_graph(graph: Graph, node: Node, defined: Mapping[str, ast.Op]) -> Graph | None:
    """Return a graph that computes a node of `graph` by the definition of its operator; None if it does not apply.

    Values keep their names, new names begin with that of the first output. Small constants that the node reads are
    part of the graph. `defined` are the definitions by the operator's name in rules."""
    name = node.op.removeprefix(f"{OWN_DOMAIN}.")
    inputs = tuple(v for v in dict.fromkeys(node.inputs) if v)
    small = {v: c for v in inputs if (c := graph.constants.get(v)) is not None and c.array.size <= SMALL}
    alone = Graph(
        inputs=tuple(v for v in inputs if v not in small),
        outputs=tuple(v for v in node.outputs if v),
        nodes=[node],
        constants=small,
        types={v: graph.types[v] for v in (*inputs, *node.outputs) if v in graph.types},
        name=node.outputs[0],
        opset=graph.opset,
    )
    egraph = EGraph.scratch(fresh_dims("_x"))
    encode(alone, egraph)
    handle = next(h for h, n in enumerate(egraph.nodes) if n.op == node.op)
    context = Evaluator(egraph, defined).for_match(egraph.origins[handle])
    try:
        define(context, handle, defined[name])
        choice = extract(egraph, CostModel(model="nodes"), admissible=lambda n: n.op != node.op)
    except (Unprovable, IllTyped, ExtractionError):
        return None
    return decode(egraph, choice, alone, prefix=f"{node.outputs[0]}_")
