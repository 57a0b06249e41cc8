"""Why a rule did not fire: the places of an e-graph where it came closest, and what was missing there.

A rule's queries are joined with the e-graph's tables atom by atom from the root down, by plain backtracking. Where no
continuation exists, the furthest one shows which part of the pattern failed, on which node, and why. Once all atoms
match, attributes, `given` and `where` clauses are tried one by one. Keeping the best partial match is the idea of
onnxscript's matching tracer.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...grammar.diagnostics import Diagnostic
from ...grammar.printing.printer import print_expr
from ...grammar.syntax import ast
from ...system.short_text import clipped, plural
from ..egraph.matcher import Atom, Query
from ..ir.names import ABSENT
from ..ir.values import TensorRef, Unprovable, Value
from ..operators.inference import IllTyped
from ..rewriting.build_nodes import as_tensor
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.attribute_matching import PartialMatch
from ..rewriting.matching.compile_rules import Compiler
from ..rewriting.matching.compiled_patterns import CompiledRule, Variant
from ..rewriting.matching.indexed_groups import bind_group, shared_values
from ..rewriting.matching.match_binding import bind_match
from ..rewriting.matching.type_constraints import check_given
from ..rewriting.rule_context import Bindings
from .saturate import operator_numbers

_STEPS = 4000
"""Maximum number of partial matches from one root; only patterns of many interchangeable operands have more."""
_ROOTS = 2000
"""Maximum number of nodes that are tried as the root of a pattern."""
_PLACES = 200
"""Maximum number of ways to choose inputs of one node of a variadic operator."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Place where a rule came close to firing.

    `node` names the root there; `matched` of `total` parts of the rule hold, and `span` is the first that does not.
    `others` are nodes with the same miss."""

    rule: str
    node: str
    matched: int
    total: int
    reason: str
    span: ast.Span
    others: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<NearMiss {clipped(f'{self.rule} at {self.node}: {self.reason}', 200)}>"

    def diagnostic(self) -> Diagnostic:
        """Return the miss as a message with the source line."""
        count = len(self.others)
        hint = f"the same at {count} other node{'s' * (count != 1)}: {', '.join(self.others[:3])}" if count else ""
        hint += ", …" if count > 3 else ""
        return Diagnostic("near-miss", f"{self.rule} at {self.node}: {self.reason}", self.span, hint=hint)


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Places where a rule holds, and where it nearly does, the closest first."""

    rule: str
    fires: tuple[str, ...]
    misses: tuple[NearMiss, ...]

    def __repr__(self) -> str:
        places, misses = plural(len(self.fires), "place"), len(self.misses)
        return f"<WhyNot {clipped(self.rule)}: holds at {places}, {misses} near misses>"


def why_not(context: Evaluator, rules: Sequence[CompiledRule], *, most: int = 5, constants: bool = False) -> WhyNot:
    """Return where the directions of one rule hold in an e-graph that has its matcher, and the `most` closest misses.

    A place where the rule has already been applied counts as one where it holds. With `constants` terms over constants
    are tried too, which saturation does not rewrite."""
    best: dict[int, NearMiss] = {}
    fired: dict[int, str] = {}
    egraph, declared = context.egraph, context.declared
    for number, rule in enumerate(rules):
        ops = {op: egraph.op_id(op) for op in rule.heads} | operator_numbers(egraph, declared)
        for variant in Compiler(ops, egraph.commutative, f"why{number}", declared).variants(rule, set()):
            _PartialMatches(context, rule, variant, best, fired).run(constants)
    misses = sorted((m for root, m in best.items() if root not in fired), key=_closest_first)
    alike: dict[tuple[int, str], list[NearMiss]] = {}
    for miss in misses:  # a large model has the same miss a hundred times
        alike.setdefault((miss.matched, _without_names(miss.reason)), []).append(miss)
    found = [replace(m[0], others=tuple(dict.fromkeys(o.node for o in m[1:]))) for m in alike.values()]
    return WhyNot(rules[0].name, tuple(dict.fromkeys(fired.values())), tuple(found)[:most])


def _closest_first(miss: NearMiss) -> tuple[float, bool]:
    return -miss.matched / miss.total, " made by " in miss.node  # equal ones stay in the model's order


def _without_names(reason: str) -> str:
    return re.sub(r" \([^)]*\)|(?<=constant )\S+", "", reason)


def combined(found: Sequence[WhyNot]) -> WhyNot | None:
    """Combine the answers for the graphs of a model, bodies included; None if there are none."""
    if not found:
        return None
    misses = sorted((m for one in found for m in one.misses), key=lambda m: -m.matched / m.total)
    return WhyNot(found[0].rule, tuple(f for one in found for f in one.fires), tuple(misses))


class _PartialMatches:
    """Attempts to match one variant of a rule's pattern.

    `best` is the closest miss at each class that may be a root of the pattern, `fired` where the rule holds."""

    def __init__(
        self, context: Evaluator, rule: CompiledRule, variant: Variant, best: dict[int, NearMiss], fired: dict[int, str]
    ) -> None:
        self.egraph = context.egraph
        self.context = context.for_rule(rule.rule, rule.name, rule.indices)
        self.best = best
        self.fired = fired
        self.rule = rule
        self.variant = variant
        self.atoms = _top_down(variant.query, variant.roots[0])
        self.literals = {d.variable: d.literal for d in variant.demands if d.literal is not None}
        self.of_attrs = {d.variable: d for d in variant.demands if d.literal is None}
        self.kinds = dict(variant.query.kinds)
        self.total = len(self.atoms) + 2 + len(rule.rule.given) + len(rule.rule.where)
        self.steps = 0
        self.at = 0
        self.name = ""
        self.groups: dict[tuple[object, ...], dict[int, tuple[str, Bindings]]] = defaultdict(dict)

    def run(self, constants: bool) -> None:
        """Try each node of the first atom's operator as the root of the pattern, then the groups of matches."""
        egraph, name = self.egraph, self.rule.name
        tried = (
            handle
            for handle in range(len(egraph.nodes) if self.atoms else 0)
            if egraph.made_by[handle] != name and self._is_match(self.atoms[0], handle, {})
            if constants or not egraph.is_const(handle)  # terms over constants are folded, not rewritten
        )
        for handle in itertools.islice(tried, _ROOTS):
            self.at, self.name, self.steps = egraph.find(handle), self._describe_node(handle), 0
            for after in self._match_node(0, handle, {self.atoms[0].root: self.at}):
                if self._match_from(1, after):
                    break
        for members in self.groups.values():
            self._try_group(members)

    def _match_from(self, done: int, found: dict[str, int]) -> bool:
        """Match the atoms from number `done` on, and return whether the whole rule holds."""
        self.steps += 1
        if self.steps > _STEPS:
            return False
        if done == len(self.atoms):
            return self._whole(found)
        atom = self.atoms[done]
        bound = found.get(atom.root)
        handles: Sequence[int] = range(len(self.egraph.nodes)) if bound is None else self.egraph.members(bound)
        matching = [h for h in handles if self._is_match(atom, h, found)]
        if not matching and bound is not None:
            kind = f"{self.kinds.get(str(atom.op), '')} operator".strip()
            wanted = self.egraph.op_name(atom.op) if isinstance(atom.op, int) else kind
            self._fail(done, f"{wanted} is expected here, found {self._describe(bound)}", self._span(atom))
        return any(
            self._match_from(done + 1, after)
            for handle in matching
            for after in self._match_node(done, handle, {**found, atom.root: self.egraph.find(handle)})
        )

    def _is_match(self, atom: Atom, handle: int, found: Mapping[str, int]) -> bool:
        op = self.egraph.nodes[handle].op
        if isinstance(atom.op, int):
            return self.egraph.op_id(op) == atom.op
        if atom.op in found and self.egraph.op_id(op) != found[atom.op]:
            return False
        return atom.op not in self.kinds or self.context.kinds.get(op) == self.kinds[atom.op]

    def _match_node(self, done: int, handle: int, found: dict[str, int]) -> Iterator[dict[str, int]]:
        atom, node = self.atoms[done], self.egraph.nodes[handle]
        found = {**found, atom.attrs: self.egraph.attrs_id(handle)}
        if isinstance(atom.op, str):
            found[atom.op] = self.egraph.op_id(node.op)
        demand = self.of_attrs.get(atom.attrs)
        kids = tuple(map(self.egraph.find, node.children))
        if demand is not None and demand.index is not None and node.attrs.get("index") != demand.index:
            self._fail(done, f"it is output {node.attrs.get('index')!r}, not {demand.index}", self._span(atom))
        elif not atom.node and len(kids) != len(atom.children):
            reason = f"it has {len(kids)} inputs where the pattern has {len(atom.children)}"
            self._fail(done, reason, self._span(atom))
        else:
            for places in _places(atom, kids):
                bound = zip(atom.positions, places, strict=False)
                after = found | {name: place for name, place in bound if isinstance(name, str)}
                if atom.node:
                    after[atom.node] = handle
                missed = self._join(atom, [kids[i] for i in places], after)
                if missed is None:
                    yield after
                else:
                    self._fail(done, *missed)

    def _join(self, atom: Atom, kids: Sequence[int], found: dict[str, int]) -> tuple[str, ast.Span] | None:
        """Bind class variables to classes; where that fails, return the reason and the place in the rule."""
        exact = self.rule.rule.numerics == "exact"
        for variable, c in zip(atom.children, kids, strict=True):
            name, literal = variable.removeprefix("v_"), self.literals.get(variable)
            if (known := found.setdefault(variable, c)) != c:
                one, other = self._describe(known), self._describe(c)
                return f"{name} stands for two values: {one} and {other}", self._span(atom)
            if c == ABSENT:
                continue
            if variable in self.variant.query.absent:
                return f"an input is given that the pattern does not name: {self._describe(c)}", self._span(atom)
            if literal is not None:
                try:
                    PartialMatch({}, self.context, exact).add_literal(literal, c)
                except Unprovable as why:
                    return f"{print_expr(literal)} is expected: {why}", literal.span
            elif variable in self.variant.query.fixed and not self.egraph.is_const(c):
                return f"{name} is not constant: it is {self._describe(c)}", self._span(atom)
        return None

    # --- the rest of a rule, once its pattern's structure is found ---

    def _whole(self, found: Mapping[str, int]) -> bool:
        query, rule, context = self.variant.query, self.rule, self.context
        done, span = len(self.atoms), rule.lhs.span
        try:
            at = {name: found.get(name, ABSENT) for name in (*query.classes, *query.integers)}
            env = bind_match(context, rule, self.variant, at)
            for clause in rule.rule.given:
                done, span = done + 1, clause.span
                check_given(context, [clause], env)
        except (Unprovable, IllTyped) as why:
            self._fail(done, str(why), span)
            return False
        if rule.index is not None:
            self.groups[shared_values(self.egraph, rule, env)][self.at] = (self.name, env)
            return True
        return self._conditions(env)

    def _conditions(self, env: Bindings) -> bool:
        """Try `where` and the right side, and return whether the rule holds at `self.at`."""
        conditions = self.rule.rule.where
        for number, condition in enumerate(conditions, self.total - len(conditions) - 1):
            try:
                self.context.prove(condition, env)
            except (Unprovable, IllTyped) as why:
                self._fail(number, self._condition(condition, env, str(why)), condition.span)
                return False
        reason = self._right_side(env)
        if reason:
            self._fail(self.total - 1, reason, self.rule.rhs.span)
        else:
            self.fired.setdefault(self.at, self.name)
        return not reason

    def _try_group(self, members: Mapping[int, tuple[str, Bindings]]) -> None:
        """Try the rest of a group rule on matches that agree in all variables without an index."""
        rule = self.rule
        done = len(self.atoms) + 1 + len(rule.rule.given)
        found = {root: env for root, (_, env) in members.items()}
        for self.at, (self.name, _) in members.items():
            if len(members) == 1:
                self._fail(done, "no other match agrees with it in the variables without an index", rule.lhs.span)
                continue
            try:
                _, env = bind_group(self.context, rule, found)
            except (Unprovable, IllTyped) as why:
                self._fail(done, str(why), (rule.rule.order or rule.lhs).span)
                continue
            self._conditions(env)

    def _condition(self, condition: ast.Expr, env: Bindings, why: str) -> str:
        """Describe why a condition fails, with the values of its two sides if it is a comparison."""
        shown = []
        for side in (condition.left, condition.right) if isinstance(condition, ast.Compare) else ():
            if not isinstance(side, (ast.Number, ast.String, ast.ListExpr)):
                with contextlib.suppress(Unprovable, IllTyped):
                    value = self.context.in_condition().evaluate(side, dict(env))
                    shown += [] if isinstance(value, TensorRef) else [f"{print_expr(side)} is {_value(value)}"]
        if shown:
            return f"`{print_expr(condition)}` does not hold: {', '.join(shown)}"
        return f"`{print_expr(condition)}` is not known to hold: {why}"

    def _right_side(self, env: Bindings) -> str:
        """Return why the right side cannot replace the left; empty if it can."""
        if isinstance(self.rule.rhs, ast.Roots):
            return ""
        egraph = self.egraph
        try:
            value = self.context.evaluate(self.rule.rhs, env)
            handle = as_tensor(self.context, value, egraph.type(self.at).dtype)
        except (Unprovable, IllTyped) as why:
            return f"the right side cannot be built: {why}"
        if egraph.can_union(self.at, handle):
            return ""
        return f"the right side has type {egraph.type(handle)}, the left {egraph.type(self.at)}"

    # --- messages ---

    def _fail(self, done: int, reason: str, span: ast.Span) -> None:
        known = self.best.get(self.at)
        if known is None or done > known.matched:
            self.best[self.at] = NearMiss(self.rule.name, self.name, done, self.total, reason, span)

    def _span(self, atom: Atom) -> ast.Span:
        demand = self.of_attrs.get(atom.attrs)
        return demand.call.span if demand is not None and demand.call is not None else self.rule.lhs.span

    def _describe(self, c: int) -> str:
        """Describe a value as in the model: the node that computes it, an input, or a constant."""
        egraph, members = self.egraph, self.egraph.members(c)
        for node in map(egraph.nodes.__getitem__, members):
            if node.op == "Input":
                return f"the input {node.attrs['name']!s}"
            if node.op == "Const":
                return f"a constant {egraph.type(c)}"
        given = (h for h in members if egraph.made_by[h] is None and egraph.origins[h])
        return self._describe_node(next(given, members[0]))

    def _describe_node(self, handle: int) -> str:
        egraph = self.egraph
        op, made, origins = egraph.nodes[handle].op, egraph.made_by[handle], ", ".join(egraph.origins[handle])
        if made:
            return f"{op} made by {made}" + f" for {origins}" * bool(origins)
        return f"{op} ({origins})" if origins else op


def _value(value: Value) -> str:
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else str(value)


def _places(atom: Atom, kids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Enumerate the inputs of a node, by position, that the children of an atom may stand for."""
    every = range(len(kids))
    if atom.node:
        ahead = sum(isinstance(position, int) for position in atom.positions)  # the first inputs
        others = itertools.combinations(every[ahead:], len(atom.positions) - ahead)
        yield from (((*every[:ahead], *found)) for found in itertools.islice(others, _PLACES) if len(kids) >= ahead)
        return
    yield every
    if atom.commutative and kids[0] != kids[-1]:
        yield every[::-1]


def _top_down(query: Query, root: str) -> list[Atom]:
    """Return the atoms of a query in an order in which each class is known from earlier atoms, as far as possible."""
    waiting, known = list(query.atoms), {root}
    ordered: list[Atom] = []
    while waiting:
        atom = next((a for a in waiting if a.root in known), waiting[-1])
        waiting.remove(atom)
        ordered.append(atom)
        known |= {atom.root, *atom.children}
    return ordered
