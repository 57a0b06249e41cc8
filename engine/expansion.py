"""Graphs in which declared operators stand as their definitions, for software that does not know the operators."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UserError
from ..grammar import ast
from . import bodies
from .constants import SMALL
from .cost import CostModel
from .declared import define
from .decode import decode
from .egraph import EGraph
from .encode import encode
from .evaluate import Evaluator
from .extract import ExtractionError, extract
from .graph import Graph, Node
from .operators import OWN_DOMAIN, STANDARD_DOMAINS, Declared, declaring
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


def meaning(graph: Graph, node: Node, defined: Mapping[str, ast.Op]) -> Graph | None:
    """A graph that computes the outputs of a node of `graph` from its inputs by the definition of its operator.

    Values keep their names, new ones begin with that of the first output. The graph has what small constants it reads.
    None where the definition is not known to apply. `defined` are definitions by the operator's name in rules."""
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
    evaluator = Evaluator(egraph)
    evaluator.declared = defined
    handle = next(h for h, n in enumerate(egraph.nodes) if n.op == node.op)
    evaluator.origins = egraph.origins[handle]
    try:
        define(evaluator, handle, defined[name])
        choice = extract(egraph, CostModel(model="nodes"), admissible=lambda n: n.op != node.op)
    except (Unprovable, IllTyped, ExtractionError):
        return None
    return decode(egraph, choice, alone, prefix=f"{node.outputs[0]}_")


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
