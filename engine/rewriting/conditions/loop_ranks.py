"""Carried values of a Loop whose rank changes from iteration to iteration although they have one element throughout.

Converters from PaddlePaddle make flags so: a scalar at first, a vector of one element after an iteration or a branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.bodies import unmarked
from ...ir.graph import Constant, Graph, Node, TensorType
from ...ir.names import unique_name
from ...ir.values import BodyRef, TensorRef, Value
from ..rule_context import RuleContext, require
from .function_registry import body_function
from .loop_transforms import FIRST_INPUT, FIRST_OUTPUT, loop_body, transformed

_ONE = (1,)
_RANKED = frozenset({"Clip", "Dropout", "PRelu"})
"""Elementwise operators whose operands behind the first do not broadcast whatever their rank."""


@body_function
def flags(context: RuleContext, body: BodyRef, values: Sequence[Value]) -> list[int]:
    """Return the positions of a Loop's carried scalars that an iteration may return with another rank, if none matters.

    The Loop's output is not read. In the body, what is computed from the scalar has one element, comes from elementwise
    operators and branches of an If, and is read by such alone, as a condition, or carried on to the same position."""
    graph, count = loop_body(body)
    require(len(values) == count and all(isinstance(v, TensorRef) for v in values), "the carried values are not known")
    found = []
    for p, value in enumerate(values):
        following = graph.outputs[FIRST_OUTPUT + p]
        if p in body.read or context.type(value).shape != () or graph.type(following).shape == ():
            continue
        reached = _reached(context, body, graph, {graph.inputs[FIRST_INPUT + p]})
        others = {v for i, v in enumerate(graph.outputs[FIRST_OUTPUT:]) if i != p}
        if reached is not None and following in reached and reached.isdisjoint(others):
            found.append(p)
    return found


@body_function
def flagged(context: RuleContext, body: BodyRef, positions: Sequence[int]) -> BodyRef:
    """Return a Loop's body that carries these `flags` as vectors of one element, as do the branches that make them."""
    graph, count = loop_body(body)
    require(positions and set(positions) <= {*range(count)}, "these are no carried values")
    carried = {graph.inputs[FIRST_INPUT + p] for p in positions}
    reached = _reached(context, body, graph, carried)
    require(reached is not None, "another operator reads a flag")
    assert reached is not None
    types = {v: TensorType(graph.type(v).dtype, _ONE) for v in carried}
    graph = _with_vectors_in_branches(context, body, replace(graph, types={**graph.types, **types}), reached)
    graph = _as_vectors(graph, [FIRST_OUTPUT + p for p in positions])
    return transformed(context, body, graph, {}, {})


def _reached(context: RuleContext, body: BodyRef, graph: Graph, first: set[str]) -> set[str] | None:
    """Return these values of one element and all that are computed from them, in branches too.

    None if one of them may have more elements, or is read as more than an element."""
    reached = set(first)
    for node in graph.nodes:
        if reached.isdisjoint(node.reads()):
            continue
        if node.op == "If":
            branches = [(branch, _reached(context, body, branch, reached)) for _, branch in node.subgraphs()]
            made: set[str] = set()
            for branch, inside in branches:
                if inside is None:
                    return None
                made.update(o for o, v in zip(node.outputs, branch.outputs, strict=True) if v in inside)
            for branch, inside in branches:
                results = [v for o, v in zip(node.outputs, branch.outputs, strict=True) if o in made]
                if not all(v in (inside or ()) or _is_single(context, body, branch, v) for v in results):
                    return None
            reached |= made
        elif context.kinds.get(node.op) == "elementwise" and not (
            node.op in _RANKED and reached.intersection(node.inputs[1:])
        ):
            if not all(v in reached or _is_single(context, body, graph, v) for v in node.inputs if v):
                return None
            reached.update(filter(None, node.outputs))
        else:
            return None
    return reached


def _is_single(context: RuleContext, body: BodyRef, graph: Graph, value: str) -> bool:
    """Return whether a value is known to have one element whatever its rank."""
    known = [graph.type(value), *(context.type(body.captures[v]) for v in (value,) if v in body.captures)]
    if value in graph.constants:
        known.append(graph.constants[value].type)
    return any(kind.shape is not None and all(dim == 1 for dim in kind.shape) for kind in known)


def _with_vectors_in_branches(context: RuleContext, body: BodyRef, graph: Graph, reached: set[str]) -> Graph:
    """Return a body whose branches return vectors for the values in `reached`."""

    def changed(node: Node) -> Node:
        wide = [i for i, o in enumerate(node.outputs) if o in reached]
        if node.op != "If" or not wide:
            return node
        branches = {}
        for name, branch in node.subgraphs():
            inside = _reached(context, body, branch, reached) or set()
            branches[name] = unmarked(_as_vectors(_with_vectors_in_branches(context, body, branch, inside), wide))
        return replace(node, attrs={**node.attrs, **branches})

    nodes = [changed(node) for node in graph.nodes]
    wide = {o for node in nodes if node.op == "If" for o in node.outputs if o in reached}
    types = {v: TensorType(graph.type(v).dtype, _ONE) for v in wide}
    return replace(graph, nodes=nodes, types={**graph.types, **types})


def _as_vectors(graph: Graph, positions: Sequence[int]) -> Graph:
    """Return a body with these outputs reshaped to vectors of one element, where they are not known to be such."""
    outputs, nodes, types, constants = list(graph.outputs), list(graph.nodes), dict(graph.types), dict(graph.constants)
    taken = {*types, *constants, *graph.inputs, *graph.captures()}
    for p in positions:
        kind = graph.type(outputs[p])
        if kind.shape == _ONE:
            continue
        shape = unique_name(f"{outputs[p]}_shape", taken)
        vector = unique_name(f"{outputs[p]}_vector", taken)
        constants[shape] = Constant(np.array(_ONE, np.int64))
        nodes.append(Node("Reshape", (outputs[p], shape), (vector,), {"allowzero": 0}))
        types[shape], types[vector] = constants[shape].type, TensorType(kind.dtype, _ONE)
        outputs[p] = vector
    return replace(graph, outputs=tuple(outputs), nodes=nodes, types=types, constants=constants)
