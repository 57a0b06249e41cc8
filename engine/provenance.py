"""Where a node of the result comes from: the rules that made it and the original nodes that it stands for."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..errors import UserError
from .extract import ABSENT, EGraphLike, dependencies
from .graph import Graph, Node


class Provenance:
    """Answers for the classes of an extraction. `live` are those that run or are stored, `folded` the stored ones."""

    def __init__(
        self, egraph: EGraphLike, choice: Mapping[int, int], live: Sequence[int], folded: Container[int]
    ) -> None:
        self._egraph = egraph
        self._choice = choice
        self._live = set(live)
        self._folded = folded
        self._originals: dict[int, list[int]] = {}
        for handle, origins in enumerate(egraph.origins):
            if origins and egraph.made_by[handle] is None:
                self._originals.setdefault(egraph.find(handle), []).append(handle)
        self._earlier: dict[str, list[str]] = {}
        """The rules that had already made what stands for an original node, by its name."""
        for handle, rules in getattr(egraph, "earlier", {}).items():
            for origin in egraph.origins[handle]:
                self._earlier.setdefault(origin, []).extend(rules)
        self._merges: dict[int, list[tuple[int, str | None]]] = {}
        for a, b, rule in egraph.unions:
            self._merges.setdefault(a, []).append((b, rule))
            self._merges.setdefault(b, []).append((a, rule))

    def of(self, c: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The rules that made a class's node and the constants it reads, and the original nodes that it stands for."""
        return self._rules(c), self._origins(c)

    def _rules(self, c: int) -> tuple[str, ...]:
        rules: dict[str, None] = dict.fromkeys(self._before(c))
        rules.update(dict.fromkeys(self._way(c)))
        for child in dependencies(self._egraph, self._choice[c]):
            # an operand that a rule only put another original value in place of has no node to carry the rule's name
            if child in self._choice and self._egraph.made_by[self._choice[child]] is None:
                rules.update(dict.fromkeys(self._way(child)))
        pending = [self._choice[c]]
        seen: set[int] = set()
        while pending:
            handle = pending.pop()
            made = self._egraph.made_by[handle]
            if made is not None:
                rules[made] = None
            # what a constant operand was computed by belongs to the node, and so does the operator of a projection
            for child in reversed(dependencies(self._egraph, handle)):
                constant = child in self._folded or (handle != self._choice[c] and self._egraph.is_const(child))
                if child in seen or child not in self._choice:
                    continue
                if constant:
                    seen.add(child)
                    pending.append(self._choice[child])
        return tuple(rules)

    def _before(self, c: int) -> list[str]:
        """The rules that had made what a class's node stands for before the e-graph was narrowed."""
        handles = (*self._originals.get(c, ()), self._choice[c])
        origins = dict.fromkeys(origin for handle in handles for origin in self._egraph.origins[handle])
        return [rule for origin in origins for rule in self._earlier.get(origin, ())]

    def _way(self, c: int) -> tuple[str, ...]:
        """The rules on the shortest way of merges from the original form of a class to the chosen one."""
        goal = self._choice[c]
        start = self._originals.get(c, [goal])[0]
        reached: dict[int, tuple[int, str | None]] = {start: (start, None)}
        pending = [start]
        while pending and goal not in reached:
            ahead = []
            for at in pending:
                for to, rule in self._merges.get(at, ()):
                    if to not in reached:
                        reached[to] = (at, rule)
                        ahead.append(to)
            pending = ahead
        rules = []
        while goal != start and goal in reached:
            goal, rule = reached[goal]
            if rule is not None:
                rules.append(rule)
        return tuple(dict.fromkeys(reversed(rules)))

    def _origins(self, c: int) -> tuple[str, ...]:
        """The original nodes between a class and the classes that are computed before it.

        A fused node stands for all that it replaces: from the original nodes of its class one goes on to their
        operands, as long as those are not computed by themselves in the result."""
        found: dict[str, None] = {}
        egraph = self._egraph
        found.update(dict.fromkeys(egraph.origins[self._choice[c]]))
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
    """What became of an original node, or where a node of the result comes from, as lines of text.

    `name` is the name of a node or of a value in either graph. Raises `UserError` if there is none of that name."""
    new = [n for n in _walk(after) if _answers(n, name)]
    old = [n for n in _walk(before) if _answers(n, name)]
    if not new and not old:
        import difflib

        known = [v for g in (after, before) for n in _walk(g) for v in (n.name, *n.outputs) if v]
        close = difflib.get_close_matches(name, list(dict.fromkeys(known)), 3)
        raise UserError(
            f"no node or value is called {name!r}", hint=f"Did you mean {', '.join(close)}?" if close else ""
        )
    lines: list[str] = []
    names = {n.name for n in old}
    for node in old:
        lines.append(f"original   {_line(before, node)}")
    heirs = [n for n in _walk(after) if n in new or names & set(n.origins)]
    for node in heirs:
        lines.append(f"result     {_line(after, node)}")
        lines.append(f"  made by  {', '.join(node.rules) if node.rules else 'no rule: it is as in the original'}")
        if node.origins:
            lines.append(f"  stands for {', '.join(_origin(before, o) for o in node.origins)}")
    if not heirs:
        lines.append("result     nothing is left of it: its value is constant, or it is the same as another, or unused")
    return lines


def _walk(graph: Graph) -> list[Node]:
    return [n for node in graph.nodes for n in (node, *(m for _, body in node.subgraphs() for m in _walk(body)))]


def _answers(node: Node, name: str) -> bool:
    return bool(name) and (node.name == name or name in node.outputs)


def _line(graph: Graph, node: Node) -> str:
    def operand(value: str) -> str:
        return value or "-"

    attrs = ", ".join(f"{k}: {_attr(v)}" for k, v in node.attrs.items())
    inside = ", ".join([*map(operand, node.inputs), *([attrs] if attrs else [])])
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
