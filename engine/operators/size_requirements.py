"""What the sizes of a model's inputs have to meet: operands that fit, for sizes that are not known before a run."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.graph import Graph, Node, Requirement, symbols_of
from ..ir.symbolic import symbols
from .inference.inference_call import Required
from .type_inference import FreshSymbols, TypeEnvironment


def size_requirements(graph: Graph) -> tuple[Requirement, ...]:
    """Return the requirements of the nodes that the outputs of a graph need, in terms of the sizes of its inputs.

    Those of bodies are left out: they hold where a body runs."""
    fresh = FreshSymbols("v", {s for kind in graph.types.values() for s in symbols_of(kind)})
    types = {**graph.types, **{name: constant.type for name, constant in graph.constants.items()}}
    known, wanted = TypeEnvironment(fresh, types, graph.constants), needed_nodes(graph)
    given = {s for value in graph.inputs for s in symbols_of(graph.types.get(value))}
    found: list[Requirement] = []
    for node in graph.nodes:
        if id(node) in wanted:
            inferred = known.infer(node, requirements=True)
            known.record(node, inferred, lambda value, kind: types.get(value, kind))
            found += named(node, inferred.required)
    return distinct(r for r in found if symbols(r.excess) <= given)


def named(node: Node, required: Iterable[Required]) -> list[Requirement]:
    """Return what inference required of a node as requirements that name it."""
    where = f"node {node.name or node.outputs[0]!r} ({node.op})"
    return [Requirement(excess, f"{where}: {reason}") for excess, reason in required]


def distinct(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Return requirements without those that ask for the same, of which the first is kept."""
    found: dict[object, Requirement] = {}
    for r in requirements:
        if (-r.excess, r.when) not in found:
            found.setdefault((r.excess, r.when), r)
    return tuple(found.values())


def needed_nodes(graph: Graph) -> set[int]:
    """Return the identities of the nodes that the outputs of a graph need."""
    wanted, found = set(graph.outputs), set[int]()
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            found.add(id(node))
            wanted.update(node.reads())
    return found
