"""Groups: the matches of `{ y[i] = P }` that agree in all that has no index, gathered to be rewritten as one.

However many members a group has, its rule is applied once for each set of members, never to pairs of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..grammar import ast
from .evaluate import Evaluator, count_of
from .patterns import WHOLE, CompiledRule
from .values import TensorRef, Unprovable, Value

Environment = dict[str, Value]
Members = Mapping[int, Environment]


@dataclass(slots=True)
class Groups:
    """The matches found so far, by rule and by what the members of a group share."""

    evaluator: Evaluator
    _found: dict[str, dict[tuple[object, ...], dict[int, Environment]]] = field(default_factory=dict)
    _done: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, rule: CompiledRule, env: Environment, root: int) -> None:
        """Adds a match to its group. What the rule itself has made is not merged again, nor are values that the model
        does not have."""
        egraph = self.evaluator.egraph
        made = [egraph.made_by[h] for h in egraph.members(root)]
        if rule.name in made or None not in made:
            return
        shared = tuple(sorted((k, self._key(v)) for k, v in env.items() if k not in rule.indexed))
        self._found.setdefault(rule.name, {}).setdefault(shared, {})[root] = env

    def _key(self, value: Value) -> object:
        return self.evaluator.egraph.find(value.handle) if isinstance(value, TensorRef) else repr(value)

    def new(self, rule: CompiledRule) -> Iterator[dict[int, Environment]]:
        """The groups of a rule with two members or more that were not given before, members by root."""
        find = self.evaluator.egraph.find
        for shared, found in list(self._found.get(rule.name, {}).items()):
            members = {find(root): env for root, env in sorted(found.items())}
            members = {root: env for root, env in members.items() if not self._superseded(root, members)}
            key = (rule.name, shared, tuple(members))
            if len(members) > 1 and key not in self._done:
                self._done.add(key)
                yield members

    def _superseded(self, root: int, members: Members) -> bool:
        """Whether the model reads a value only to make other members of the group of it.

        A convolution before its normalisation is: the folded one is in the group too, and merging both is waste."""
        egraph = self.evaluator.egraph
        users = [u for u in egraph.users(root) if egraph.made_by[u] is None]
        if not users or root in {egraph.find(r) for r in egraph.roots.values()}:
            return False
        return all(egraph.find(u) in members for u in users)

    def together(self, rule: CompiledRule, members: Members) -> tuple[list[int], Environment]:
        """The roots of a group in order, and one environment with lists for what has an index."""
        assert rule.index is not None
        roots = self._ordered(rule, members)
        env = self._environment(rule, members, roots)
        if rule.rule.order is None:
            return roots, env
        keys = [self.evaluator.evaluate(rule.rule.order, {**env, rule.index: i}) for i in range(len(roots))]
        if not all(isinstance(k, (int, float)) and not isinstance(k, bool) for k in keys):
            raise Unprovable("the order of the members is not known")
        if len(set(keys)) < len(keys):
            raise Unprovable("two members have the same place in the order")
        roots = [root for _, root in sorted(zip(keys, roots, strict=True))]
        return roots, self._environment(rule, members, roots)

    def _ordered(self, rule: CompiledRule, members: Members) -> list[int]:
        """Roots in the order of the model; where they are made from the outputs of one node, in the order of these,
        of which none may be missing."""
        whole = next(iter(members.values())).get(WHOLE)
        if whole is None:
            return list(members)
        assert rule.index is not None
        at = {env[rule.index]: root for root, env in members.items()}
        count = len(self.evaluator.egraph.types(whole.handle))
        if sorted(at) != list(range(count)) or len(members) != count:
            raise Unprovable(f"the node has {count} outputs, the group {len(members)} members")
        return [at[i] for i in range(count)]

    def _environment(self, rule: CompiledRule, members: Members, roots: list[int]) -> Environment:
        assert rule.index is not None
        env = {k: v for k, v in members[roots[0]].items() if k not in rule.indexed}
        for name in rule.indexed - {rule.index}:
            env[name] = [members[root][name] for root in roots if name in members[root]]
        return {**env, count_of(rule.index): len(roots)}

    def right_sides(self, rule: CompiledRule, env: Environment, roots: list[int]) -> list[Value]:
        """The values of the right side `y[*] = Q` or `y[i] = Q`, one for each member."""
        assert isinstance(rule.rhs, ast.Roots)
        assert rule.index is not None
        binding = rule.rhs.bindings[0]
        if isinstance(binding.target.index, ast.All):
            built = self.evaluator.all_outputs(binding.value, env, len(roots))
        else:
            built = [self.evaluator.evaluate(binding.value, {**env, rule.index: i}) for i in range(len(roots))]
        if len(built) != len(roots):
            raise Unprovable("it has another number of outputs than the group has members")
        return built
