"""Versions of a graph by the sizes of its inputs: each for the sizes on which its `If`s go one way.

The condition of an `If` that only asks for sizes (`x.shape[0] == 1`) is decided by the extents that are known before
anything is run. For each way that these conditions can turn out the graph is compiled with them settled: ranks are
known that depend on them, and a dim that must be 1 is the number 1. All versions are made at compile time, so that
bundles need no compiler; which one runs is looked up by the extents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..engine import symbolic
from ..engine.graph import Constant, DType, Graph, Node
from ..engine.shapes import SymbolicValue
from .branches import Settled, settle, substitute, with_bodies
from .carried import REPEATED
from .kernel_graph import Guard

MAX_VERSIONS = 8
"""More are not made of a graph: its other `If`s are left to be decided when they are met."""

_SAME = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})


@dataclass(frozen=True)
class VersionGraph:
    """A graph for the sizes on which all guards hold; `fails` if its operators are not defined on these."""

    guards: tuple[Guard, ...]
    graph: Graph
    contents: Mapping[str, SymbolicValue]
    fails: bool


def versions_of(graph: Graph, symbols: Collection[str]) -> list[VersionGraph]:
    """The versions of a graph, of which exactly one is for any sizes; `symbols` are the extents known when it starts.

    A graph with nothing to decide has one version, without guards."""
    if not any(node.op == "If" or node.op in REPEATED for node in graph.nodes):
        return [VersionGraph((), graph, {}, False)]
    done: list[VersionGraph] = []
    todo: list[tuple[tuple[Guard, ...], Graph]] = [((), graph)]
    while todo:
        guards, here = todo.pop()
        settled = settle(here)
        full = len(done) + len(todo) + 2 > MAX_VERSIONS
        guard = None if full else _choice(_outermost(settled), settled, set(symbols))
        if guard is None:
            done.append(VersionGraph(guards, settled.graph, settled.contents, settled.fails))
            continue
        for holds in (False, True):  # the last is taken up next
            fact = guard if holds else replace(guard, equal=not guard.equal)
            todo.append(((*guards, fact), _assume(settled, guard, holds)))
    return done


@dataclass(frozen=True)
class _Scope:
    """A graph with what is known of its values, those that it captures among them."""

    graph: Graph
    makers: Mapping[str, Node]
    constants: Mapping[str, Constant]
    contents: Mapping[str, SymbolicValue]

    def inside(self, body: Graph, settled: Settled) -> _Scope:
        """The scope of a branch of one of the graph's `If`s, or of the body of a loop."""
        contents = settled.inside.get(id(body), self.contents)
        return _Scope(body, {**self.makers, **body.producers()}, {**self.constants, **body.constants}, contents)


def _outermost(settled: Settled) -> _Scope:
    return _Scope(settled.graph, settled.graph.producers(), settled.graph.constants, settled.contents)


def _choice(scope: _Scope, settled: Settled, symbols: set[str]) -> Guard | None:
    """What the condition of the first `If` that sizes decide asks, those in branches of other `If`s and in bodies of
    loops among them."""
    for node in scope.graph.nodes:
        if node.op == "If":
            guard = _guard(node.inputs[0], scope, symbols)
            if guard is not None and _is_single(scope.graph, node.inputs[0]):
                return guard
        elif node.op not in REPEATED:
            continue
        for _, body in node.subgraphs():
            guard = _choice(scope.inside(body, settled), settled, symbols)
            if guard is not None:
                return guard
    return None


def _guard(value: str, scope: _Scope, symbols: set[str]) -> Guard | None:
    """What a condition asks for, if that is whether two numbers made of these symbols are equal."""
    node = scope.makers.get(value)
    if node is None:
        return None
    if node.op == "Not":
        inner = _guard(node.inputs[0], scope, symbols)
        return None if inner is None else replace(inner, equal=not inner.equal)
    if node.op in _SAME:
        return _guard(node.inputs[0], scope, symbols)
    if node.op != "Equal":
        return None
    sides = [_number(v, scope) for v in node.inputs]
    if sides[0] is None or sides[1] is None or not (symbolic.symbols(sides[0]) | symbolic.symbols(sides[1])) <= symbols:
        return None
    return Guard(sides[0], sides[1], True)


def _number(value: str, scope: _Scope) -> symbolic.Dim | None:
    """The one element of an integer tensor in terms of dims."""
    constant = scope.constants.get(value)
    if constant is not None:
        array = constant.array
        return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
    found = scope.contents.get(value)
    return found.dims[0] if found is not None and len(found.dims) == 1 else None


def _is_single(graph: Graph, value: str) -> bool:
    """Whether a value is one boolean, of known rank."""
    kind = graph.type(value)
    return kind.dtype is DType.BOOL and kind.shape is not None and all(d == 1 for d in kind.shape)


def _assume(settled: Settled, guard: Guard, holds: bool) -> Graph:
    """The graph with all conditions that ask the same made constants, and what follows for the dims."""
    symbols = set(symbolic.symbols(guard.left) | symbolic.symbols(guard.right))
    result = _answered(_outermost(settled), settled, guard, holds, symbols)
    if holds == guard.equal:
        for name, number in ((guard.left, guard.right), (guard.right, guard.left)):
            symbol = symbolic.symbol_name(name)
            if symbol is not None and isinstance(number, int):
                return substitute(result, {symbol: number})
    return result


def _answered(scope: _Scope, settled: Settled, guard: Guard, holds: bool, symbols: set[str]) -> Graph:
    """The scope's graph with the answer in place of what asks for it, in branches too."""
    graph = scope.graph
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        answers: dict[str, Constant] = {}
        for out in node.outputs:
            other = _guard(out, scope, symbols) if _is_single(graph, out) else None
            if other is not None and {other.left, other.right} == {guard.left, guard.right}:
                shape = tuple(1 for _ in graph.type(out).shape or ())
                answers[out] = Constant(np.full(shape, holds == (other.equal == guard.equal)))
        constants.update(answers)
        if node.op == "If" or node.op in REPEATED:
            node = with_bodies(node, lambda b: _answered(scope.inside(b, settled), settled, guard, holds, symbols))
        if not answers:
            nodes.append(node)
    return replace(graph, nodes=nodes, constants=constants)
