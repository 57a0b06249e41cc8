"""Versions of a graph by the sizes of its inputs: each for the sizes on which its `If`s take one branch.

The condition of an `If` that depends only on sizes (`x.shape[0] == 1`) is decided by extents known before the run. For
each combination of these decisions the graph is compiled with them settled: ranks that depend on them are known, and a
dim that must be 1 is the number 1. All versions are compiled ahead of time, so that bundles need no compiler; the
extents choose the version that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...engine.ir import symbolic
from ...engine.ir.bodies import change_bodies
from ...engine.ir.graph import Constant, DType, Graph, Node
from ...engine.ir.symbolic import Dim
from ...engine.operators.inference import SymbolicValue
from ..ir.arrays import element
from ..ir.dataflow import is_single
from ..ir.iteration_space import RESHAPES
from ..ir.kernel_graph import Guard
from .constant_branches import Resolved, resolve, substitute
from .loop_plan import REPEATED

MAX_VERSIONS = 8
"""Maximum number of versions of a graph; its other `If`s are decided at run time."""
_SAME = RESHAPES | {"Cast"}
"""Operators that pass the one element of a tensor on."""
_WIDE = frozenset({DType.F32, DType.F64, DType.I32, DType.I64})
"""Types that hold every extent; narrower ones do not."""


@dataclass(frozen=True)
class VersionGraph:
    """A graph for the sizes on which all guards hold; `fails` if its operators are not defined on these."""

    guards: tuple[Guard, ...]
    graph: Graph
    fails: bool


def versions_of(graph: Graph, symbols: Collection[str]) -> list[VersionGraph]:
    """Return the versions of a graph; exactly one of them fits any sizes.

    `symbols` are the extents known when it starts. A graph without such conditions has one version, without guards."""
    if not any(node.op == "If" or node.op in REPEATED for node in graph.nodes):
        return [VersionGraph((), graph, False)]
    done: list[VersionGraph] = []
    todo: list[tuple[tuple[Guard, ...], Graph]] = [((), graph)]
    while todo:
        guards, here = todo.pop()
        settled = resolve(here)
        full = len(done) + len(todo) + 2 > MAX_VERSIONS
        guard = None if full else _choice(_outermost(settled), settled, set(symbols))
        if guard is None:
            done.append(VersionGraph(guards, settled.graph, settled.fails))
            continue
        for holds in (False, True):  # the last one is visited next
            fact = guard if holds else replace(guard, equal=not guard.equal)
            todo.append(((*guards, fact), _assume(settled, guard, holds)))
    return done


@dataclass(frozen=True)
class _Scope:
    """A graph with what is known of its values, captured ones included."""

    graph: Graph
    makers: Mapping[str, Node]
    constants: Mapping[str, Constant]
    contents: Mapping[str, SymbolicValue]

    def inside(self, body: Graph, settled: Resolved) -> _Scope:
        """Return the scope of a branch of one of the graph's `If`s, or of the body of a loop."""
        contents = settled.inside.get(id(body), self.contents)
        return _Scope(body, {**self.makers, **body.producers()}, {**self.constants, **body.constants}, contents)


def _outermost(settled: Resolved) -> _Scope:
    return _Scope(settled.graph, settled.graph.producers(), settled.graph.constants, settled.contents)


def _choice(scope: _Scope, settled: Resolved, symbols: set[str]) -> Guard | None:
    """Return the condition of the first `If` that sizes decide, also in branches of other `If`s and in loop bodies."""
    for node in scope.graph.nodes:
        if node.op == "If" and is_single(scope.graph.types.get(node.inputs[0]), DType.BOOL):
            if guard := _guard(node.inputs[0], scope, symbols):
                return guard
        for _, body in node.subgraphs() if node.op == "If" or node.op in REPEATED else ():
            if guard := _choice(scope.inside(body, settled), settled, symbols):
                return guard
    return None


def _guard(value: str, scope: _Scope, symbols: set[str]) -> Guard | None:
    """Return a condition as an equation of two numbers over these symbols; None if it is not one."""
    node = scope.makers.get(value)
    if node is None:
        return None
    if node.op == "Not":
        inner = _guard(node.inputs[0], scope, symbols)
        return inner and replace(inner, equal=not inner.equal)
    if node.op in RESHAPES:
        return _guard(node.inputs[0], scope, symbols)
    left, right = (_number(v, scope) for v in node.inputs) if node.op == "Equal" else (None, None)
    if left is None or right is None or not symbolic.symbols(left) | symbolic.symbols(right) <= symbols:
        return None
    return Guard(left, right)


def _number(value: str, scope: _Scope) -> Dim | None:
    """Return the one element of an integer tensor in terms of dims."""
    constant, found = scope.constants.get(value), scope.contents.get(value)
    if constant is not None:
        number = element(constant) if constant.array.dtype.kind in "iu" else None
        return None if number is None else int(number)
    return found.dims[0] if found is not None and len(found.dims) == 1 else None


def _assume(settled: Resolved, guard: Guard, holds: bool) -> Graph:
    """Return the graph with all equivalent conditions made constants, and the consequences for its dims."""
    symbols = set(symbolic.symbols(guard.left) | symbolic.symbols(guard.right))
    result = _answered(_outermost(settled), settled, guard, holds, symbols)
    for name, number in ((guard.left, guard.right), (guard.right, guard.left)):
        symbol = symbolic.symbol_name(name)
        if holds == guard.equal and symbol is not None and isinstance(number, int):
            return substitute(result, {symbol: number})
    return result


def _answered(scope: _Scope, settled: Resolved, guard: Guard, holds: bool, symbols: set[str]) -> Graph:
    """Return the scope's graph, branches included, with the constant in place of each equivalent condition."""
    graph = scope.graph
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        answers: dict[str, Constant] = {}
        for out in node.outputs:
            kind = graph.type(out)
            other = _guard(out, scope, symbols) if is_single(kind, DType.BOOL) else None
            if other is not None and {other.left, other.right} == {guard.left, guard.right}:
                answers[out] = Constant(np.full((1,) * (kind.rank or 0), holds == (other.equal == guard.equal)))
        constants.update(answers)
        if node.op == "If" or node.op in REPEATED:
            node = change_bodies(node, lambda b: _answered(scope.inside(b, settled), settled, guard, holds, symbols))
        if not answers:
            nodes.append(node)
    return replace(graph, nodes=nodes, constants=constants)
