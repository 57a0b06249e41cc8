"""Groups: matches of `{ y[i] = P }` that agree in all variables without an index, rewritten as one.

A group rule is applied once to each set of members, never to pairs of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ....grammar.syntax import ast
from ...egraph.egraph import EGraph
from ...ir.graph import content_text
from ...ir.values import TensorRef, Value
from ..evaluate import Evaluator
from ..notation import WHOLE, count_of
from ..rule_context import Bindings, require
from .compiled_patterns import CompiledRule

Members = Mapping[int, Bindings]
"""Bindings of the members of a group, by root class."""


@dataclass(slots=True)
class Groups:
    """Matches of group rules so far, by rule and by the values that the members of a group share."""

    egraph: EGraph
    _found: dict[str, dict[tuple[object, ...], dict[int, Bindings]]] = field(default_factory=lambda: defaultdict(dict))
    _done: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, rule: CompiledRule, env: Bindings, root: int) -> None:
        """Add a match to its group, unless its value is new or was itself made by the rule."""
        made_by = [self.egraph.made_by[h] for h in self.egraph.members(root)]
        if rule.name not in made_by and None in made_by:
            self._found[rule.name].setdefault(shared_values(self.egraph, rule, env), {})[root] = env

    def new(self, rule: CompiledRule) -> Iterator[dict[int, Bindings]]:
        """Enumerate the groups of a rule with two members or more that were not returned before."""
        find = self.egraph.find
        for shared, found in list(self._found[rule.name].items()):
            members = {find(root): env for root, env in sorted(found.items())}
            members = {root: env for root, env in members.items() if not self._superseded(root, members)}
            key = (rule.name, shared, tuple(members))
            if len(members) > 1 and key not in self._done:
                self._done.add(key)
                yield members

    def _superseded(self, root: int, members: Members) -> bool:
        """Return whether the model reads a value only to compute other members of the group.

        A convolution before its normalization is such a value: the folded one is a member too."""
        egraph = self.egraph
        users = [u for u in egraph.users(root) if egraph.made_by[u] is None]
        if not users or root in {egraph.find(r) for r in egraph.roots.values()}:
            return False
        return all(egraph.find(u) in members for u in users)


def shared_values(egraph: EGraph, rule: CompiledRule, env: Bindings) -> tuple[object, ...]:
    """Return a key of the values without an index, equal for all members of a group."""
    shared = ((name, value) for name, value in env.items() if name not in rule.indexed)
    return tuple(
        sorted((k, str(egraph.find(v.handle)) if isinstance(v, TensorRef) else content_text(v)) for k, v in shared)
    )


def bind_group(context: Evaluator, rule: CompiledRule, members: Members) -> tuple[list[int], Bindings]:
    """Return the roots of a group in order, and the bindings of its rule, with lists for variables with an index."""
    assert rule.index is not None
    roots = _ordered(context.egraph, rule, members)
    env = _bindings(rule, members, roots)
    if rule.rule.order is None:
        return roots, env
    keys = [context.evaluate(rule.rule.order, {**env, rule.index: i}) for i in range(len(roots))]
    numbers = all(isinstance(k, (int, float)) and not isinstance(k, bool) for k in keys)
    require(numbers, "the order of the members is not known")
    require(len(set(keys)) == len(keys), "two members have the same place in the order")
    roots = [root for _, root in sorted(zip(keys, roots, strict=True))]
    return roots, _bindings(rule, members, roots)


def _ordered(egraph: EGraph, rule: CompiledRule, members: Members) -> list[int]:
    """Return roots in the model's order; outputs of one node in the order of the node, which must be complete."""
    whole = next(iter(members.values())).get(WHOLE)
    if whole is None:
        return list(members)
    assert rule.index is not None
    at = {env[rule.index]: root for root, env in members.items()}
    count = len(egraph.types(whole.handle))
    complete = sorted(at) == list(range(count)) and len(members) == count
    require(complete, f"the node has {count} outputs, the group {len(members)} members")
    return [at[i] for i in range(count)]


def _bindings(rule: CompiledRule, members: Members, roots: list[int]) -> Bindings:
    assert rule.index is not None
    env = {k: v for k, v in members[roots[0]].items() if k not in rule.indexed}
    for name in rule.indexed - {rule.index}:
        env[name] = [members[root][name] for root in roots if name in members[root]]
    return {**env, count_of(rule.index): len(roots)}


def right_sides(context: Evaluator, rule: CompiledRule, env: Bindings, count: int) -> list[Value]:
    """Return the values of the right side `y[*] = Q` or `y[i] = Q`, one for each of `count` members."""
    assert isinstance(rule.rhs, ast.Roots)
    assert rule.index is not None
    binding = rule.rhs.bindings[0]
    if isinstance(binding.target.index, ast.All):
        built = context.all_outputs(binding.value, env, count)
    else:
        built = [context.evaluate(binding.value, {**env, rule.index: i}) for i in range(count)]
    require(len(built) == count, f"the right side has {len(built)} outputs, the group {count} members")
    return built
