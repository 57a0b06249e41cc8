"""Provenance of the nodes of a result: the rules that made them and the original nodes that they stand for."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ...errors import UserError
from ..egraph.egraph import EGraph
from ..ir.graph import Graph, Node
from ..ir.names import ABSENT
from .priced_egraph import dependencies


class Provenance:
    """Rules and origins of the classes of an extraction.

    `live` are the classes that run or are stored, `folded` the stored ones."""

    def __init__(self, egraph: EGraph, choice: Mapping[int, int], live: Sequence[int], folded: Container[int]) -> None:
        self._egraph = egraph
        self._choice = choice
        self._live = set(live)
        self._folded = folded
        self._originals: defaultdict[int, list[int]] = defaultdict(list)
        for handle, origins in enumerate(egraph.origins):
            if origins and egraph.made_by[handle] is None:
                self._originals[egraph.find(handle)].append(handle)
        self._earlier: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Rules that made a node in an earlier e-graph, by the name of an original node that it stands for."""
        for handle, rules in egraph.earlier.items():
            for origin in egraph.origins[handle]:
                self._earlier[origin] |= dict.fromkeys(rules)  # each once: many nodes stand for the same original
        self._merges: defaultdict[int, list[tuple[int, str | None]]] = defaultdict(list)
        for a, b, rule in egraph.unions:
            self._merges[a].append((b, rule))
            self._merges[b].append((a, rule))

    def of(self, c: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the rules that made a class's node and its constants, and the original nodes that it stands for."""
        return self._rules(c), self._origins(c)

    def _rules(self, c: int) -> tuple[str, ...]:
        egraph, choice = self._egraph, self._choice
        made = egraph.made_by
        # made before the e-graph was restricted
        handles = (*self._originals.get(c, ()), choice[c])
        origins = dict.fromkeys(origin for handle in handles for origin in egraph.origins[handle])
        rules = [rule for origin in origins for rule in self._earlier.get(origin, ())] + self._path(c)
        for child in dependencies(egraph, choice[c]):
            # a rule that replaced an operand by another original value made no node that could carry its name
            if child in choice and made[choice[child]] is None:
                rules += self._path(child)
        pending = [choice[c]]
        seen: set[int] = set()
        while pending:
            handle = pending.pop()
            rules += filter(None, [made[handle]])
            # the rules and origins of constant operands count as the node's, and so does the operator of a projection
            for child in reversed(dependencies(egraph, handle)):
                constant = child in self._folded or (handle != choice[c] and egraph.is_const(child))
                if constant and child not in seen and child in choice:
                    seen.add(child)
                    pending.append(choice[child])
        return tuple(dict.fromkeys(rules))

    def _path(self, c: int) -> list[str]:
        """Return the rules on the shortest path of merges from the original form of a class to the chosen one."""
        goal = self._choice[c]
        start = self._originals.get(c, [goal])[0]
        reached: dict[int, tuple[int, str | None]] = {start: (start, None)}
        pending = deque([start])
        while pending and goal not in reached:
            at = pending.popleft()
            for to, rule in self._merges.get(at, ()):
                if to not in reached:
                    reached[to] = (at, rule)
                    pending.append(to)
        rules: list[str] = []
        while goal != start and goal in reached:
            goal, rule = reached[goal]
            rules[:0] = filter(None, [rule])
        return rules

    def _origins(self, c: int) -> tuple[str, ...]:
        """Return the original nodes between a class and the classes that are computed before it.

        A fused node stands for all that it replaces: the original nodes of its class and, transitively, of their
        operands that the result does not compute separately."""
        egraph = self._egraph
        found = dict.fromkeys(egraph.origins[self._choice[c]])
        pending = [c]
        seen = {c, egraph.find(ABSENT)}
        while pending:
            at = pending.pop()
            for handle in self._originals.get(at, ()):
                found.update(dict.fromkeys(egraph.origins[handle]))
                for child in dependencies(egraph, handle):
                    if child not in seen and (child not in self._live or child in self._folded):
                        seen.add(child)
                        pending.append(child)
        return tuple(found)


def explain(before: Graph, after: Graph, name: str) -> list[str]:
    """Return lines of text: what became of an original node, or where a node of the result comes from.

    `name` is the name of a node or of a value in either graph. Raises `UserError` if neither has it."""
    new = [n for n in _walk(after) if _answers(n, name)]
    old = [n for n in _walk(before) if _answers(n, name)]
    if not new and not old:
        import difflib

        known = [v for g in (after, before) for n in _walk(g) for v in (n.name, *n.outputs) if v]
        close = difflib.get_close_matches(name, list(dict.fromkeys(known)), 3)
        raise UserError(
            f"no node or value is called {name!r}", hint=f"Did you mean {', '.join(close)}?" if close else ""
        )
    names = {n.name for n in old}
    lines = [f"original   {_line(before, node)}" for node in old]
    heirs = [n for n in _walk(after) if n in new or names & set(n.origins)]
    for node in heirs:
        lines.append(f"result     {_line(after, node)}")
        lines.append(f"  made by  {', '.join(node.rules) if node.rules else 'no rule: it is as in the original'}")
        if node.origins:
            lines.append(f"  stands for {', '.join(_origin(before, o) for o in node.origins)}")
    if not heirs:
        lines.append("result     nothing is left of it: its value is constant, equal to another, or unused")
    return lines


def _walk(graph: Graph) -> list[Node]:
    return [n for node in graph.nodes for n in (node, *(m for _, body in node.subgraphs() for m in _walk(body)))]


def _answers(node: Node, name: str) -> bool:
    return bool(name) and (node.name == name or name in node.outputs)


def _line(graph: Graph, node: Node) -> str:
    attrs = ", ".join(f"{k}: {_attr(v)}" for k, v in node.attrs.items())
    inside = ", ".join([*(value or "-" for value in node.inputs), *([attrs] if attrs else [])])
    types = ", ".join(f"{v}: {graph.type(v)}" for v in node.outputs if v)
    return f"{node.name}:  {types} = {node.op}({inside})"


def _attr(value: Any) -> str:
    if isinstance(value, Graph):
        return f"<graph of {len(value.nodes)} nodes>"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_attr, value))}]"
    return str(value)


def _origin(graph: Graph, name: str) -> str:
    found = next((n for n in _walk(graph) if n.name == name), None)
    return name if found is None else f"{name} ({found.op})"
