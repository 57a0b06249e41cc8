"""Replay of a trail in plain tables: each step is repeated from the model's own facts, and refused where it does not
follow.

A step names a rule, the classes at which it applies, what its variables stand for and what it builds. It holds if the
classes have the form of the rule's left side, the types and conditions of the rule follow from what is known by then,
and the right side is what the step says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...grammar.syntax import ast
from ...grammar.syntax.scope import Scope, Sort, bind_pattern, indices_in
from ..egraph import encode as encoding
from ..egraph.egraph import EGraph
from ..egraph.reasons import Applied
from ..ir.constants import ConstantInfo
from ..ir.graph import AttrValue, Graph
from ..ir.names import ABSENT, CAPTURES, OWN_DOMAIN
from ..ir.values import OpRef, TensorRef, Unprovable, Value
from ..operators.inference import IllTyped
from ..rewriting.build_nodes import build_node
from ..rewriting.custom_operators import define
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.compiled_patterns import CompiledRule
from ..rewriting.matching.indexed_groups import right_sides
from ..rewriting.matching.type_constraints import check_given
from ..rewriting.notation import count_of
from ..rewriting.rule_context import Bindings
from ..rewriting.rule_library import RuleSet
from ..saturation.saturate import built, equalities, prove
from .coding import BodyDigest, body_digest
from .instances import Equalities, Instances, NotAnInstance

MEANINGLESS = (
    IllTyped, Unprovable, AssertionError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
"""Errors of a term or step that does not make sense, since files may say anything: it is refused."""


class Gap(Exception):
    """A step that does not follow from the ones before it; the message is the reason."""


class Tables(EGraph):
    """E-graph without an egglog side. `looked_up` are operands with which nodes were asked for, each with the one that
    the node has: equal ones, as far as is known by then. Equal bodies are one graph here."""

    __slots__ = ("_bodies", "looked_up")

    def __init__(self, commutative: Iterable[str]) -> None:
        super().__init__(commutative=frozenset(commutative))
        self.looked_up: list[tuple[int, int]] = []
        self._bodies: dict[BodyDigest, Graph] = {}

    def add(self, op: str, attrs: Mapping[str, AttrValue], children: Iterable[int], *args: Any, **options: Any) -> int:
        """Return the class of a node, as `EGraph.add` does. Absent operands at the end of an operator without a schema
        do not count: graphs leave them out."""
        wanted = tuple(children)
        while wanted and wanted[-1] == ABSENT and op.startswith(f"{OWN_DOMAIN}."):
            wanted = wanted[:-1]
        if CAPTURES in attrs:
            attrs = {name: self._shared(value) for name, value in attrs.items()}
        handle = super().add(op, attrs, wanted, *args, **options)
        self.looked_up += paired(self, wanted, self.nodes[handle].children)
        return handle

    def _shared(self, value: AttrValue) -> AttrValue:
        if isinstance(value, tuple) and value and isinstance(value[0], Graph):
            return tuple(map(self._shared, value))  # type: ignore[return-value]
        return self._bodies.setdefault(body_digest(value), value) if isinstance(value, Graph) else value

    def take(self) -> Equalities:
        """Return what was looked up since the last call."""
        found, self.looked_up = self.looked_up, []
        return tuple(dict.fromkeys((a, b) for a, b in found if a != b))


@dataclass(slots=True)
class Replay:
    """An e-graph in which steps are repeated; `context` evaluates the rules."""

    rules: RuleSet
    egraph: Tables
    context: Evaluator = field(init=False)
    _by_name: dict[tuple[str, bool], list[CompiledRule]] = field(default_factory=dict)
    _names: dict[tuple[str, bool], frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.context = Evaluator(self.egraph, self.rules.declared, self.rules.kinds)
        for rule in self.rules.rules:
            self._by_name.setdefault((rule.name, rule.backward), []).append(rule)

    @classmethod
    def of(
        cls, rules: RuleSet, graph: Graph, constants: Mapping[str, ConstantInfo] | None = None
    ) -> tuple[Replay, dict[str, int]]:
        """Return a replay that begins with a graph, and the class of each of its values by name."""
        egraph = Tables(rules.commutative)
        names = encoding.encode(graph, egraph, constants)
        egraph.close()
        return cls(rules, egraph), names

    def add(self, op: str, attrs: Mapping[str, AttrValue], children: Sequence[int], outputs: int) -> int:
        """Return the class of a node, which gets its types from its definition if rule files have one. Raises `Gap`."""
        name = op.removeprefix(f"{OWN_DOMAIN}.")
        bodies = [g for value in attrs.values() for g in (value if isinstance(value, tuple) else (value,))]
        captured = {capture for body in bodies if isinstance(body, Graph) for capture in body.captures()}
        names = attrs.get(CAPTURES, ())
        if not isinstance(names, tuple) or set(names) != captured or len(names) > min(len(captured), len(children)):
            raise Gap(f"{op} captures other values than its bodies read")
        try:
            if name != op and name in self.context.declared:
                inputs = [None if c == ABSENT else TensorRef(c) for c in children]
                while inputs and inputs[-1] is None:
                    inputs.pop()
                handle = build_node(self.context, name, attrs, inputs, outputs).handle
            else:
                handle = self.egraph.add(op, attrs, children, outputs)
        except MEANINGLESS as why:
            raise Gap(f"{op} has no meaning on these operands: {why}") from why
        self.egraph.close()
        return handle

    def define(self, node: int) -> None:
        """Equate the outputs of a node with the definition of its operator. Raises `Gap`."""
        op = self.context.declared.get(self.egraph.nodes[node].op.removeprefix(f"{OWN_DOMAIN}."))
        if op is None:
            raise Gap(f"{self.egraph.nodes[node].op} is not an operator that rule files define")
        try:
            define(replace(self.context, made_by=f"define_{op.name}"), node, op)
        except MEANINGLESS as why:
            raise Gap(f"the definition of {op.name} does not apply: {why}") from why
        self.egraph.close()

    def rule(self, name: str, backward: bool) -> list[CompiledRule]:
        """Return the rules of a name and direction. Raises `Gap` if there is none."""
        found = self._by_name.get((name, backward))
        if not found:
            raise Gap(f"no admitted rule is called {name}{' and holds right to left' if backward else ''}")
        return found

    def names(self, name: str, backward: bool) -> frozenset[str]:
        """Return the names that the left sides of the rules of a name and direction bind. Raises `Gap`."""
        if (name, backward) not in self._names:
            self._names[name, backward] = frozenset(v for rule in self.rule(name, backward) for v in variables(rule))
        return self._names[name, backward]

    def apply(self, step: Applied, values: Callable[[], Sequence[int]] | None = None) -> Equalities:
        """Repeat a step, merge what it equates, and return the equalities that its left side rests on.

        `values` returns the classes that the step builds, in place of those in it, once it has built bodies that they
        have. Raises `Gap` if the step does not hold."""
        last = Gap("")
        for rule in self.rule(step.rule, step.backward):
            try:
                return self._apply(rule, step, values or (lambda: step.values))
            except Gap as gap:
                last = gap
        raise last

    def _apply(self, rule: CompiledRule, step: Applied, said: Callable[[], Sequence[int]]) -> Equalities:
        context = self.context.for_rule(rule.rule, rule.name, rule.indices).for_match(())
        env: Bindings = dict(step.env)
        sorts = variables(rule)
        for name, value in env.items():
            if name not in sorts or isinstance(value, OpRef) != (sorts[name] is Sort.OPERATOR):
                raise Gap(f"{name} is not a variable of the left side of {rule.name}")
        try:
            if rule.index is not None:
                rests_on = self._members(context, rule, step.roots, env)
                for condition in rule.rule.where:
                    context.prove(condition, env)
                pairs = list(zip(step.roots, right_sides(context, rule, env, len(step.roots)), strict=True))
            else:
                check_given(context, rule.rule.given, env)
                roots = self._in_order(rule, step.roots, env)
                rests_on = self._left_side(context, rule, roots, env)
                prove(context, rule, env)
                pairs = equalities(context, rule, env, roots)
            values = built(context, pairs)
        except NotAnInstance as why:
            raise Gap(f"the left side of {rule.name} is not what stands there: {why}") from why
        except (Unprovable, IllTyped) as why:
            raise Gap(f"{rule.name} does not apply: {why}") from why
        except MEANINGLESS as why:
            raise Gap(f"{rule.name} has no value for a variable: {why}") from why
        self.egraph.close()
        find = self.egraph.find
        at = [find(root) for root, _ in pairs]
        if at != list(map(find, step.roots)) or list(map(find, values)) != list(map(find, said())):
            raise Gap(f"{rule.name} builds another value than the step says")
        for root, value in zip(at, values, strict=True):
            self.egraph.union(root, value, rule.name, step)
        self.egraph.close()
        return rests_on

    def _left_side(self, context: Evaluator, rule: CompiledRule, roots: Sequence[int], env: Bindings) -> Equalities:
        instances = Instances(context, rule.rule.numerics == "exact", rule.lhs)
        if not isinstance(rule.lhs, ast.Roots):
            return instances.check(rule.lhs, roots[0], env)
        pairs = zip(rule.lhs.bindings, roots, strict=True)
        return tuple(pair for b, root in pairs for pair in instances.check(b.value, root, env))

    def _in_order(self, rule: CompiledRule, roots: Sequence[int], env: Bindings) -> Sequence[int]:
        """Return the roots of a step in the order of the left side; the step has those of the right side, in its
        order."""
        if not isinstance(rule.lhs, ast.Roots):
            return roots
        found = [env.get(b.target.name) for b in rule.lhs.bindings]
        if not all(isinstance(root, TensorRef) for root in found):
            raise NotAnInstance("a root is not named")
        return [root.handle for root in found if root is not None]

    def _members(self, context: Evaluator, rule: CompiledRule, roots: Sequence[int], env: Bindings) -> Equalities:
        """Compare each member of a group with the pattern, with the values that it has of the indexed variables."""
        assert isinstance(rule.lhs, ast.Roots)
        assert rule.index is not None
        if env.get(count_of(rule.index)) != len(roots):
            raise NotAnInstance("the group has another number of members")
        pattern = rule.lhs.bindings[0].value
        found: list[tuple[int, int]] = []
        for i, root in enumerate(roots):
            own = {name: value[i] for name, value in env.items() if name in rule.indexed and isinstance(value, list)}
            member = {**env, **own, rule.index: i}
            check_given(context, rule.rule.given, member)
            found += Instances(context, rule.rule.numerics == "exact", rule.lhs).check(pattern, root, member)
            env.update({name: value for name, value in member.items() if name not in (*rule.indexed, *env)})
        return tuple(found)


def variables(rule: CompiledRule) -> dict[str, Sort]:
    """Return the names that the left side of a rule binds, and the keys of how many members an index has."""
    scope = Scope()
    bind_pattern(rule.lhs, scope)
    found = {name: sort for name, (sort, _) in scope.variables.items()}
    many = {indices_in(each)[0] for each in rule.lhs.walk() if isinstance(each, ast.Each)}
    many |= {rule.index} - {None}  # type: ignore[arg-type]
    if isinstance(rule.lhs, ast.Roots) and rule.index is None:
        found |= {binding.target.name: Sort.ROOT for binding in rule.lhs.bindings}
    return {name: sort for name, sort in found.items() if name not in many} | {
        count_of(index): Sort.INDEX for index in many
    }


class ProofForest:
    """Forest of the equalities of an e-graph, each with the step that it came from.

    The path between two e-nodes of a class is unique, since only classes that differ were merged (Nieuwenhuis and
    Oliveras, 2005, section 3)."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._to: dict[int, tuple[int, int]] = {}
        """By e-node the next one towards the root of its tree, and the number of the union between them."""
        for number, (a, b, _) in enumerate(egraph.unions):
            self._link(a, b, number)

    def _link(self, a: int, b: int, number: int) -> None:
        at, after = a, self._to.pop(a, None)
        while after is not None:  # make `a` the root of its tree
            above, between = after
            after = self._to.pop(above, None)
            self._to[above] = (at, between)
            at = above
        self._to[a] = (b, number)

    def path(self, a: int, b: int) -> list[int]:
        """Return the numbers of the unions between two e-nodes of one class."""
        above: dict[int, list[int]] = {a: []}
        at = a
        numbers: list[int] = []
        below: list[int] = []
        while at in self._to:
            at, number = self._to[at]
            numbers = [*numbers, number]
            above[at] = numbers
        at = b
        while at not in above:
            at, number = self._to[at]
            below.append(number)
        return above[at] + below[::-1]

    def needed(self, goals: Iterable[tuple[int, int]], premises: Callable[[int], Equalities]) -> set[int]:
        """Return the numbers of the unions that some equalities follow from; `premises` are those of a union."""
        pending, seen, found = list(goals), set[tuple[int, int]](), set[int]()
        while pending:
            a, b = pending.pop()
            if a == b or (a, b) in seen:
                continue
            seen.add((a, b))
            for number in self.path(a, b):
                if number not in found:
                    found.add(number)
                    pending += premises(number)
        return found


def paired(egraph: EGraph, first: Sequence[int], second: Sequence[int]) -> Equalities:
    """Return the pairs of equal operands of two congruent nodes, whose order may differ."""
    if len(first) == 2 and egraph.find(first[0]) != egraph.find(second[0]):
        second = second[::-1]
    return tuple(zip(first, second, strict=True))


def values_of(env: Mapping[str, Value]) -> set[int]:
    """Return the classes that variables stand for."""
    found: set[int] = set()
    for value in env.values():
        items = value if isinstance(value, list) else [value]
        found |= {item.handle for item in items if isinstance(item, TensorRef)}
    return found
