"""Graphs in which declared operators stand as their definitions, for software that does not know the operators."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UserError
from . import bodies
from .cost import CostModel
from .declared import define
from .decode import decode
from .egraph import EGraph
from .encode import encode
from .evaluate import Evaluator
from .extract import extract
from .graph import Graph
from .operators import STANDARD_DOMAINS, Declared, declaring
from .shapes import IllTyped, fresh_dims
from .values import Unprovable


def foreign(graph: Graph) -> list[str]:
    """The operators of a graph, and of the graphs in it, that are in no domain of the standard."""
    found = {node.op for node in graph.nodes if node.domain not in STANDARD_DOMAINS}
    for node in graph.nodes:
        for _, body in node.subgraphs():
            found.update(foreign(body))
    return sorted(found)


def expanded(graph: Graph, declared: Mapping[str, Declared]) -> Graph:
    """The graph with every operator that has a definition replaced by it.

    Raises `UserError` where a definition does not apply, or some operator has none."""
    for op in foreign(graph):
        if op not in declared or declared[op].op.definition is None:
            raise UserError(f"{op} has no definition")
    with declaring(declared):
        return bodies.map_bodies(_expanded(graph, declared), lambda body: expanded(body, declared))


def _expanded(graph: Graph, declared: Mapping[str, Declared]) -> Graph:
    if not any(node.op in declared for node in graph.nodes):
        return graph
    egraph = EGraph.scratch(fresh_dims("_x"))
    encode(graph, egraph)
    evaluator = Evaluator(egraph)
    evaluator.declared = next(iter(declared.values())).defined
    for handle, node in enumerate(list(egraph.nodes)):
        if node.op not in declared:
            continue
        evaluator.origins = egraph.origins[handle]
        try:
            define(evaluator, handle, declared[node.op].op)
        except (Unprovable, IllTyped) as why:
            raise UserError(f"the definition of {node.op} does not apply: {why}") from None
    choice = extract(egraph, CostModel(model="nodes"), admissible=lambda node: node.op not in declared)
    return decode(egraph, choice, graph)
