"""Loops without repeated results: what every iteration makes equal to another carried value is taken from that one.

Converters from PaddlePaddle carry variables that the body writes before it reads them. They begin as scalars and become
tensors, so that the Loop had values without one type. Once a Loop has run, its initial values do not matter for them.

No rule does this: bodies are optimized after the graph around them, and show only then that results are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...engine.ir.bodies import map_bodies, originals
from ...engine.ir.graph import Constant, Graph, Node
from ..ir.arrays import element
from .loop_plan import body_of, n_states, starts_true


def without_repeated_results(graph: Graph) -> Graph:
    """Return a graph whose Loops, also those in bodies, carry no repeated results if they are known to run."""
    graph = map_bodies(graph, without_repeated_results)
    return replace(graph, nodes=[one for node in graph.nodes for one in _separated(node, graph.constants)])


def _separated(node: Node, constants: Mapping[str, Constant]) -> list[Node]:
    """Return a Loop without repeated results, and copies that give them."""
    body = body_of(node) if node.op == "Loop" and _runs(node, constants) else None
    repeats = {} if body is None else _repeats(body, n_states(node))
    repeats = {i: first for i, first in repeats.items() if all(node.outputs[j : j + 1] != ("",) for j in (i, first))}
    if body is None or not repeats or max(repeats.values()) >= len(node.outputs):
        return [node]
    inner = replace(body, inputs=_kept(body.inputs, repeats, 2), outputs=_kept(body.outputs, repeats, 1))
    inputs, outputs = _kept(node.inputs, repeats, 2), _kept(node.outputs, repeats, 0)
    copies = [
        Node("Identity", (node.outputs[first],), (node.outputs[i],), name=node.name)
        for i, first in repeats.items()
        if i < len(node.outputs)
    ]
    return [replace(node, inputs=inputs, outputs=outputs, attrs={**node.attrs, "body": inner}), *copies]


def _runs(node: Node, constants: Mapping[str, Constant]) -> bool:
    """Return whether a Loop is known to run at least once."""
    count = node.inputs[0] if node.inputs else ""
    return starts_true(node, constants) and (not count or (element(constants.get(count)) or 0) >= 1)


def _repeats(body: Graph, states: int) -> dict[int, int]:
    """Return the positions of carried values that no node reads, with that of another one that is always the result."""
    original = originals(body)
    read = {original(name) for node in body.nodes if node.op != "Identity" for name in node.reads()}
    carried = [original(name) for name in body.inputs[2 : 2 + states]]
    results = [original(name) for name in body.outputs]
    free = [i for i in range(states) if carried[i] not in read and carried[i] not in results]
    first = {results[1 + i]: i for i in reversed(range(states)) if i not in free}
    return {i: first[results[1 + i]] for i in free if results[1 + i] in first}


def _kept(values: tuple[str, ...], repeats: Mapping[int, int], begin: int) -> tuple[str, ...]:
    """Return values without those of repeated results, the first of which is at `begin`."""
    return tuple(v for i, v in enumerate(values, -begin) if i not in repeats)
