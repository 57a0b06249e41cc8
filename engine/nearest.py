"""Why a rule did not fire: the places of an e-graph where it came nearest, and what was missing there.

A rule's queries (`compile_rules`) are joined with the e-graph's tables atom by atom from the root down, by plain
backtracking. Where no way goes on, the furthest one tells which part of the pattern failed, on which node, and why.
Once all atoms match, attributes, `given` and `where` clauses are tried one by one. The idea of keeping the best partial
match is that of onnxscript's matching tracer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..grammar import ast
from ..grammar.diagnostics import Diagnostic
from ..grammar.printer import print_expr
from .bind import bind
from .compile_rules import Compiler, heads
from .egraph import ABSENT, EGraph
from .evaluate import Evaluator
from .given import check_given
from .groups import Groups
from .matcher import Atom, Query, Spread
from .operators import graph_name
from .patterns import CompiledRule, Demand, Variant
from .shapes import IllTyped
from .values import TensorRef, Unprovable, Value

_STEPS = 4000
"""How many ways to go on are tried from one root; more would be a pattern of many interchangeable operands."""
_ROOTS = 2000
"""How many nodes are tried as the root of a pattern."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A place where a rule came near to firing.

    `node` names the root there, `matched` of `total` parts of the rule were found; `span` is the part that was not.
    `others` are nodes where it is the same."""

    rule: str
    node: str
    matched: int
    total: int
    reason: str
    span: ast.Span
    others: tuple[str, ...] = ()

    def diagnostic(self) -> Diagnostic:
        """The miss as a message with the source line."""
        count = len(self.others)
        hint = f"the same at {count} other node{'s' * (count != 1)}: {', '.join(self.others[:3])}" if count else ""
        hint += ", …" if count > 3 else ""
        return Diagnostic("near-miss", f"{self.rule} at {self.node}: {self.reason}", self.span, hint=hint)


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Where a rule holds, and where it nearly does, the nearest first."""

    rule: str
    fires: tuple[str, ...]
    misses: tuple[Miss, ...]


def why_not(
    egraph: EGraph,
    rules: Sequence[CompiledRule],
    evaluator: Evaluator,
    kinds: Mapping[str, str],
    *,
    most: int = 5,
    constants: bool = False,
) -> WhyNot:
    """Where the directions of one rule hold in an e-graph that has its matcher, and the `most` nearest misses.

    A place where it has already been applied counts as one where it holds. With `constants` terms over constants are
    looked at too; saturation leaves them as they are."""
    search = _Search(egraph, evaluator, kinds, constants)
    for number, rule in enumerate(rules):
        search.rule(rule, f"why{number}")
    misses = sorted((m for root, m in search.best.items() if root not in search.fired), key=_nearest_first)
    alike: dict[tuple[int, str], list[Miss]] = {}
    for miss in misses:  # a large model has the same miss a hundred times
        alike.setdefault((miss.matched, _without_names(miss.reason)), []).append(miss)
    kept = [replace(m[0], others=tuple(dict.fromkeys(o.node for o in m[1:]))) for m in alike.values()]
    fires = tuple(dict.fromkeys(search.fired.values()))
    return WhyNot(rules[0].name, fires, tuple(kept)[:most])


def _nearest_first(miss: Miss) -> tuple[float, bool]:
    return -miss.matched / miss.total, " made by " in miss.node  # sorted() keeps the model's order of what is alike


def _without_names(reason: str) -> str:
    return re.sub(r" \([^)]*\)|(?<=constant )\S+", "", reason)


def combined(found: Sequence[WhyNot]) -> WhyNot | None:
    """The answers for a model's graphs, the bodies inside it among them, as one; None if there are none."""
    if not found:
        return None
    misses = sorted((m for one in found for m in one.misses), key=lambda m: -m.matched / m.total)
    return WhyNot(found[0].rule, tuple(f for one in found for f in one.fires), tuple(misses))


class _Search:
    """Tries every node as the root of the rules' patterns; `best` holds the furthest failure of each."""

    def __init__(self, egraph: EGraph, evaluator: Evaluator, kinds: Mapping[str, str], constants: bool) -> None:
        self.constants = constants
        self.egraph = egraph
        self.evaluator = evaluator
        self.kinds = kinds
        self.best: dict[int, Miss] = {}
        self.fired: dict[int, str] = {}
        self._steps = 0

    def rule(self, rule: CompiledRule, prefix: str) -> None:
        egraph = self.egraph
        ops = {node.op: egraph.op_id(node.op) for node in list(egraph.nodes)}
        for op in (*heads(rule), "Proj"):
            ops[op] = egraph.op_id(op)
        for name in self.evaluator.declared:
            ops[name] = egraph.op_id(graph_name(name))
        for variant in Compiler(ops, egraph.commutative, prefix, self.evaluator.declared).variants(rule, set()):
            tries = _Tries(self, rule, variant)
            tries.run()
            for members in tries.groups.values():
                tries.group(members)


class _Tries:
    """The tries of one variant of a rule's pattern."""

    def __init__(self, search: _Search, rule: CompiledRule, variant: Variant) -> None:
        self.search = search
        self.egraph = search.egraph
        self.rule = rule
        self.variant = variant
        self.atoms = _top_down(variant.query, variant.roots[0]) if variant.roots else []
        self.literals = {d.variable: d.literal for d in variant.demands if d.literal is not None}
        self.of_attrs = {d.variable: d for d in variant.demands if d.literal is None}
        self.absent = set(variant.query.absent)
        self.fixed = set(variant.query.fixed)
        source = rule.rule
        self.total = len(self.atoms) + 2 + len(source.given) + len(source.where)
        self.at = 0
        self.name = ""
        self.groups: dict[tuple[object, ...], dict[int, tuple[str, dict[str, Value]]]] = {}

    def run(self) -> None:
        if not self.atoms:
            return
        first = self.atoms[0]
        tried = 0
        for handle in range(len(self.egraph.nodes)):
            root = self.egraph.find(handle)
            if self.egraph.made_by[handle] == self.rule.name or not self._is(first, handle, {}):
                continue
            if not self.search.constants and self.egraph.is_const(root):
                continue  # no rule is applied to terms over constants: they are evaluated
            tried += 1
            if tried > _ROOTS:
                break
            self.at, self.name, self.search._steps = root, self._describe_node(handle), 0
            for after in self._node(first, handle, {first.root: root}):
                if self._go(1, after):
                    break

    def _go(self, done: int, found: dict[str, int]) -> bool:
        """Matches the atoms from number `done` on; whether the whole rule holds."""
        self.search._steps += 1
        if self.search._steps > _STEPS:
            return False
        if done == len(self.atoms):
            return self._whole(found)
        atom = self.atoms[done]
        bound = found.get(atom.root)
        handles: Sequence[int] = range(len(self.egraph.nodes)) if bound is None else self.egraph.members(bound)
        matching = [h for h in handles if self._is(atom, h, found)]
        if not matching and bound is not None:
            wanted = self._wanted(atom)
            self._fail(done, f"{wanted} is wanted here, found {self._describe(bound)}", self._span(atom))
        for handle in matching:
            for after in self._node(atom, handle, {**found, atom.root: self.egraph.find(handle)}, done):
                if self._go(done + 1, after):
                    return True
        return False

    def _is(self, atom: Atom | Spread, handle: int, found: Mapping[str, int]) -> bool:
        """Whether a node has the operator that an atom asks for."""
        node = self.egraph.nodes[handle]
        if isinstance(atom.op, int):
            return self.egraph.op_id(node.op) == atom.op
        if atom.op in found and self.egraph.op_id(node.op) != found[atom.op]:
            return False
        kinds = [kind for variable, kind in self.variant.query.kinds if variable == atom.op]
        return all(self.search.kinds.get(node.op) == kind for kind in kinds)

    def _node(self, atom: Atom | Spread, handle: int, found: dict[str, int], done: int = 0) -> Iterator[dict[str, int]]:
        """The ways to match an atom with a node."""
        node = self.egraph.nodes[handle]
        after = dict(found)
        after[atom.attrs] = self.egraph.attrs_id(handle)
        if isinstance(atom.op, str):
            after[atom.op] = self.egraph.op_id(node.op)
        demand = self.of_attrs.get(atom.attrs)
        if demand is not None and demand.index is not None and node.attrs.get("index") != demand.index:
            return self._fail(done, f"it is output {node.attrs.get('index')!r}, not {demand.index}", self._span(atom))
        if isinstance(atom, Spread):
            yield from self._spread(atom, handle, after, done)
            return
        kids = tuple(map(self.egraph.find, node.children))
        if len(kids) != len(atom.children):
            reason = f"it has {len(kids)} inputs where the pattern has {len(atom.children)}"
            return self._fail(done, reason, self._span(atom))
        orders = [kids, kids[::-1]] if atom.commutative and kids[0] != kids[-1] else [kids]
        for order in orders:
            joined = self._join(zip(atom.children, order, strict=True), after, done, atom)
            if joined is not None:
                yield joined

    def _spread(self, atom: Spread, handle: int, found: dict[str, int], done: int) -> Iterator[dict[str, int]]:
        kids = [self.egraph.find(c) for c in self.egraph.nodes[handle].children]
        places = itertools.combinations(range(len(kids)), len(atom.picks))
        for chosen in itertools.islice(places, 200):
            after = {**found, atom.node: handle}
            after.update({position: i for (position, _), i in zip(atom.picks, chosen, strict=True)})
            pairs = ((child, kids[i]) for (_, child), i in zip(atom.picks, chosen, strict=True))
            joined = self._join(pairs, after, done, atom)
            if joined is not None:
                yield joined

    def _join(
        self, pairs: Iterator[tuple[str, int]] | zip[tuple[str, int]], found: dict[str, int], done: int,
        atom: Atom | Spread,
    ) -> dict[str, int] | None:  # fmt: skip
        """Binds class variables to classes; None, with the reason noted, where that cannot be."""
        found = dict(found)
        for variable, c in pairs:
            if found.setdefault(variable, c) != c:
                name = variable.removeprefix("v_")
                here, there = self._describe(c), self._describe(found[variable])
                self._fail(done, f"{name} stands for two values: {there} and {here}", self._span(atom))
                return None
            if variable in self.absent and c != ABSENT:
                self._fail(done, f"an input is given that the pattern does not name: {self._describe(c)}",
                           self._span(atom))  # fmt: skip
                return None
            if c == ABSENT:
                continue
            literal = self.literals.get(variable)
            if literal is not None:
                try:
                    exact = self.rule.rule.numerics == "exact"
                    self.search.evaluator.match_literal(literal, c, exact=exact)
                except Unprovable as why:
                    self._fail(done, f"{print_expr(literal)} is wanted: {why}", literal.span)
                    return None
            elif variable in self.fixed and not self.egraph.is_const(c):
                name = variable.removeprefix("v_")
                self._fail(done, f"{name} is not constant: it is {self._describe(c)}", self._span(atom))
                return None
        return found

    # --- the rest of a rule, once its pattern's structure is found ---

    def _whole(self, found: Mapping[str, int]) -> bool:
        query, rule, evaluator = self.variant.query, self.rule, self.search.evaluator
        row = tuple(found.get(name, ABSENT) for name in (*query.classes, *query.integers))
        done = len(self.atoms)
        evaluator.lets = {b.target.name: b.value for b in rule.rule.let}
        evaluator.indices = rule.indices
        try:
            env = bind(rule, self.variant, row, evaluator)
        except (Unprovable, IllTyped) as why:
            self._fail(done, str(why), self._side().span)
            return False
        done += 1
        for clause in rule.rule.given:
            try:
                check_given([clause], env, evaluator)
            except (Unprovable, IllTyped) as why:
                self._fail(done, str(why), clause.span)
                return False
            done += 1
        if rule.index is not None:
            shared = tuple(sorted((k, self._key(v)) for k, v in env.items() if k not in rule.indexed))
            self.groups.setdefault(shared, {})[self.at] = (self.name, env)
            return True
        return self._conditions(done, env)

    def _conditions(self, done: int, env: dict[str, Value]) -> bool:
        """Tries `where` and the right side; whether the rule holds at `self.at`."""
        for condition in self.rule.rule.where:
            try:
                self.search.evaluator.prove(condition, env)
            except (Unprovable, IllTyped) as why:
                self._fail(done, self._condition(condition, env, str(why)), condition.span)
                return False
            done += 1
        reason = self._right_side(env)
        if reason:
            self._fail(done, reason, self._side(right=True).span)
            return False
        self.search.fired.setdefault(self.at, self.name)
        return True

    def group(self, members: Mapping[int, tuple[str, dict[str, Value]]]) -> None:
        """Tries the rest of a group rule on matches that agree in all that is not indexed."""
        rule = self.rule
        done = len(self.atoms) + 1 + len(rule.rule.given)
        groups = Groups(self.search.evaluator)
        found = {root: env for root, (_, env) in members.items()}
        for self.at, (self.name, _) in members.items():
            if len(members) == 1:
                self._fail(done, "no other match agrees with it in what is not indexed", self._side().span)
                continue
            try:
                _, env = groups.together(rule, found)
            except (Unprovable, IllTyped) as why:
                self._fail(done, str(why), (rule.rule.order or self._side()).span)
                continue
            self._conditions(done, env)

    def _key(self, value: Value) -> str:
        return str(self.egraph.find(value.handle)) if isinstance(value, TensorRef) else repr(value)

    def _condition(self, condition: ast.Expr, env: dict[str, Value], why: str) -> str:
        """What a condition is about, with the values on its two sides where it compares any."""
        text = f"`{print_expr(condition)}` is not known to hold: {why}"
        if not isinstance(condition, ast.Compare):
            return text
        shown = []
        for side in (condition.left, condition.right):
            if isinstance(side, (ast.Number, ast.String, ast.ListExpr)):
                continue
            try:
                value = self.search.evaluator.in_condition(side, dict(env))
            except (Unprovable, IllTyped):
                continue
            if not isinstance(value, TensorRef):
                shown.append(f"{print_expr(side)} is {_value(value)}")
        return f"`{print_expr(condition)}` does not hold: {', '.join(shown)}" if shown else text

    def _right_side(self, env: dict[str, Value]) -> str:
        """Why the right side cannot take the place of the left; empty if it can."""
        if isinstance(self.rule.rhs, ast.Roots):
            return ""
        evaluator, egraph = self.search.evaluator, self.egraph
        try:
            value = evaluator.evaluate(self.rule.rhs, env)
            if not isinstance(value, TensorRef):
                value = TensorRef(evaluator.constant(value, egraph.type(self.at).dtype))
        except (Unprovable, IllTyped) as why:
            return f"the right side cannot be built: {why}"
        if egraph.can_union(self.at, value.handle):
            return ""
        return f"the right side is {egraph.type(value.handle)} where the left is {egraph.type(self.at)}"

    # --- words ---

    def _fail(self, done: int, reason: str, span: ast.Span) -> None:
        known = self.search.best.get(self.at)
        if known is None or done > known.matched:
            self.search.best[self.at] = Miss(self.rule.name, self.name, done, self.total, reason, span)

    def _side(self, right: bool = False) -> ast.Syntax:
        return self.rule.rhs if right else self.rule.lhs

    def _span(self, atom: Atom | Spread) -> ast.Span:
        demand: Demand | None = self.of_attrs.get(atom.attrs)
        return demand.call.span if demand is not None and demand.call is not None else self._side().span

    def _wanted(self, atom: Atom | Spread) -> str:
        if isinstance(atom.op, int):
            return self.egraph.op_name(atom.op)
        kinds = [kind for variable, kind in self.variant.query.kinds if variable == atom.op]
        return f"{' '.join(kinds)} operator".strip()

    def _describe(self, c: int) -> str:
        """A value as the model has it: the node that computes it, an input, or a constant."""
        egraph = self.egraph
        nodes = [(h, egraph.nodes[h]) for h in egraph.members(c)]
        for handle, node in nodes:
            if node.op == "Input":
                return f"the input {node.attrs['name']!s}"
            if node.op == "Const":
                return f"a constant {egraph.type(handle)}"
        for handle, node in nodes:
            if egraph.made_by[handle] is None and egraph.origins[handle]:
                return f"{node.op} ({', '.join(egraph.origins[handle])})"
        return self._describe_node(nodes[0][0])

    def _describe_node(self, handle: int) -> str:
        egraph = self.egraph
        op, made, origins = egraph.nodes[handle].op, egraph.made_by[handle], ", ".join(egraph.origins[handle])
        if made:
            return f"{op} made by {made}" + f" for {origins}" * bool(origins)
        return f"{op} ({origins})" if origins else op


def _value(value: Value) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


def _top_down(query: Query, root: str) -> list[Atom | Spread]:
    """The atoms of a query in an order in which each one's class is known from those before it, as far as that goes."""
    waiting = list(query.atoms)
    known = {root}
    ordered: list[Atom | Spread] = []
    while waiting:
        atom = next((a for a in waiting if a.root in known), waiting[-1])
        waiting.remove(atom)
        ordered.append(atom)
        known.add(atom.root)
        known.update(child for _, child in atom.picks) if isinstance(atom, Spread) else known.update(atom.children)
    return ordered
