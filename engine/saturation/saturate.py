"""Saturation: rules are matched and applied as a schedule says, until a fixpoint or a limit is reached.

In each iteration egglog finds all new matches of a ruleset at once. Then they are bound, their conditions proved and
their right sides built here, in a fixed order. A match whose condition was not provable is retried when more is known.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...grammar.builtins import RULESETS
from ...grammar.syntax import ast
from ..egraph.egraph import EGraph
from ..egraph.reasons import Applied
from ..ir.values import Refuted, Unprovable, Value
from ..operators.inference import IllTyped
from ..operators.schemas import graph_name
from ..rewriting.build_nodes import as_tensor
from ..rewriting.custom_operators import define
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.compile_rules import Compiler
from ..rewriting.matching.compiled_patterns import CompiledRule, Variant, memo_key
from ..rewriting.matching.indexed_groups import Groups, Members, bind_group, right_sides
from ..rewriting.matching.many_operands import collect_terms
from ..rewriting.matching.match_binding import bind_match
from ..rewriting.matching.type_constraints import check_given
from ..rewriting.notation import start_of
from ..rewriting.rule_context import Bindings
from ..rewriting.schedule import Budget, Plan, Repeat, Run, Saturate, Step, names_of
from .pending_matches import Key, Match, PendingMatches
from .saturation_report import ExhaustedBudget as ExhaustedBudget
from .saturation_report import Limits as Limits
from .saturation_report import RuleCount as RuleCount
from .saturation_report import RulesetBudget
from .saturation_report import Saturation as Saturation


class _Stop(Exception):
    """A limit of the whole saturation was reached; the message is the reason for stopping."""


class Saturator:
    """Saturation of one e-graph.

    `context` has the e-graph, the operators that rule files declare, and the kind of each operator. Rules of rulesets
    that `plan` does not schedule are not run. Terms over constants only are not rewritten unless `constants`: they are
    folded once whatever their form. Exception: rules that equate a constant term with its own subterm (c · 1) are
    applied, since otherwise rules that rearrange constants would create new ones without end."""

    def __init__(
        self, context: Evaluator, rules: Sequence[CompiledRule], limits: Limits, *,
        plan: Plan, constants: bool = False,
        progress: Callable[[int, int], None] = lambda iterations, nodes: None,
    ) -> None:  # fmt: skip
        self.context = context
        self.egraph = egraph = context.egraph
        self._rules: dict[str, list[tuple[int, CompiledRule]]] = {}
        for number, rule in enumerate(rules):
            self._rules.setdefault(rule.ruleset, []).append((number, rule))
        self.limits = limits
        self.plan = plan
        self.constants = constants
        self.progress = progress
        scheduled = {*RULESETS, *plan.rulesets()}
        unscheduled = dict.fromkeys(r.ruleset for r in rules if r.ruleset not in scheduled)
        self.report = Saturation(counts={r.name: RuleCount() for r in rules}, unscheduled=tuple(unscheduled))
        self._queries: dict[str, tuple[CompiledRule, Variant, Evaluator]] = {}
        self._variants: set[tuple[object, ...]] = set()
        self._compiled: dict[int, tuple[str, ...]] = {}
        self._ops: dict[str, int] = {}
        self._ops_seen = 0
        self._depth = depth(egraph)
        self._compiled_for: dict[str, int] = {}
        self._kinds_declared: set[str] = set()
        self._pending: dict[str, PendingMatches] = {}
        self._budgets: dict[str, RulesetBudget] = {}
        self._done: set[Key] = set()
        self._refused: dict[Key, bool] = {}
        self._names: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._groups = Groups(egraph)
        self._fixpoints: dict[Step, int] = {}
        self._changes = 0
        self._undefined: list[tuple[int, int | None]] = []
        self._looked_at = 0
        self._start, self._begun = time.perf_counter(), time.process_time()
        assert egraph.matcher is not None
        self._matcher = egraph.matcher
        self._prefix = egraph.matcher.new_user()

    # --- the schedule ---

    def run(self) -> Saturation:
        """Saturate and return the report; the e-graph is rebuilt whatever the reason for stopping."""
        try:
            self._steps(self.plan.steps)
        except _Stop as stop:
            self.report.stop_reason = str(stop)
        self.egraph.rebuild()
        self.report.seconds = time.perf_counter() - self._start
        for name, (rule, _, _) in self._queries.items():
            self.report.counts[rule.name].seconds += self._matcher.seconds.get(name, 0.0)
        self.report.nodes = len(self.egraph.nodes)
        self.report.classes = len(self.egraph.classes())
        return self.report

    def _steps(self, steps: Sequence[Step]) -> bool:
        """Run steps in order, and return whether they changed anything."""
        before = self._changes
        for step in steps:
            match step:
                case Run(rulesets=rulesets):
                    for ruleset in rulesets:
                        self._iterate(ruleset)
                case Saturate():
                    self._fixpoint(step)
                case Repeat(steps=inner, count=count):
                    for _ in range(count):
                        if not self._steps(inner) and not self._resume():
                            break
        return self._changes > before

    def _fixpoint(self, step: Saturate) -> None:
        if self._fixpoints.get(step) == self._changes:
            return  # nothing has changed since it was reached
        for _ in range(max(min(step.iterations, self.limits.iterations), self._depth)):
            if not self._steps(step.steps) and not self._resume():
                self._fixpoints[step] = self._changes
                return
        if self.report.stop_reason == "saturated":
            self.report.stop_reason = "iteration_limit"
        for ruleset in dict.fromkeys(names_of(step)):
            self.report.record_exhausted(ruleset, "iterations")

    def _resume(self) -> bool:
        """End all suspensions when nothing else is left to do, and return whether there were any."""
        resumed = [budget.resume() for budget in self._budgets.values()]
        return any(resumed)

    def _check_limits(self) -> None:
        if time.process_time() - self._begun > self.limits.seconds:
            raise _Stop("time_limit")
        if len(self.egraph.nodes) > self.limits.nodes:
            raise _Stop("node_limit")

    # --- one iteration ---

    def _iterate(self, ruleset: str) -> None:
        self._check_limits()
        egraph = self.egraph
        if ruleset not in self._budgets:
            allowed = self.plan.budgets.get(ruleset, Budget())
            self._budgets[ruleset] = RulesetBudget(ruleset, allowed, egraph.nodes, self.report)
            self._pending[ruleset] = PendingMatches(egraph, functools.partial(_terms, egraph))
        budget, pending = self._budgets[ruleset], self._pending[ruleset]
        if budget.exhausted:
            return
        budget.begin()
        self._define()
        egraph.rebuild()
        self._compile(ruleset)
        found = self._matcher.matches(f"{self._prefix}_{ruleset}")
        self.report.iterations += 1
        revision, nodes = egraph.revision, len(egraph.nodes)
        pending.begin()
        budget.begin_applying()
        for name, rows in found.items():
            self._apply_rows([Match(*self._queries[name], row) for row in rows], budget)
        self._apply_groups(ruleset)
        for match in pending.take_due(budget.suspends):
            if not budget.admits(match.rule.name):
                pending.postpone(match)
            else:
                began = time.perf_counter()
                self._apply(match)
                self.report.counts[match.rule.name].seconds += time.perf_counter() - began
                budget.check()
        budget.end()
        self.progress(self.report.iterations, len(egraph.nodes))
        self._changes += egraph.revision != revision or len(egraph.nodes) != nodes

    def _define(self) -> None:
        """Equate nodes of the model with the definitions of their operators, once the requirements are proved."""
        nodes, declared = self.egraph.nodes, self.context.declared
        new = range(self._looked_at, len(nodes))
        self._looked_at = len(nodes)
        waiting, self._undefined = [*self._undefined, *((h, None) for h in new if nodes[h].op in declared)], []
        for handle, revision in waiting:
            if revision is not None and not self.egraph.changed_since(revision, nodes[handle].children):
                self._undefined.append((handle, revision))
                continue
            op = declared[nodes[handle].op]
            name = f"define_{op.name}"
            count = self.report.counts.setdefault(name, RuleCount())
            count.matches += 1
            try:
                context = replace(self.context, made_by=name, origins=self._origins([handle]))
                count.applied += define(context, handle, op)
            except (Unprovable, IllTyped) as why:
                count.reason = str(why)
                self._undefined.append((handle, self.egraph.revision))

    def _occurring(self) -> dict[str, int]:
        """Return the numbers of the operators that occur, by their names in rules."""
        nodes = self.egraph.nodes
        if any(nodes[h].op not in self._ops for h in range(self._ops_seen, len(nodes))):
            self._ops = operator_numbers(self.egraph, self.context.declared)
        self._ops_seen = len(nodes)
        return self._ops

    def _compile(self, ruleset: str) -> None:
        """Register the queries of a ruleset, again when new operators have appeared that its rules name."""
        ops = self._occurring()
        if self._compiled_for.get(ruleset) == len(ops):
            return
        self._compiled_for[ruleset] = len(ops)
        kinds = self.context.kinds
        for op, number in ops.items():
            if op in kinds and op not in self._kinds_declared:
                self._kinds_declared.add(op)
                self._matcher.declare_kind(kinds[op], number)
        compiler = Compiler(ops, self.egraph.commutative, self._prefix, self.context.declared)
        for number, rule in self._rules.get(ruleset, ()):
            if not all(op in ops for op in rule.required):
                continue
            named = tuple(op for op in rule.heads if op in ops)
            if self._compiled.get(number) != named:
                self._compiled[number] = named
                for variant in compiler.variants(rule, self._variants):
                    variant.memo_key = memo_key(rule, variant)
                    context = self.context.for_rule(rule.rule, rule.name, rule.indices)
                    self._queries[variant.query.name] = rule, variant, context
                    self._matcher.add_query(variant.query)

    # --- one match ---

    def _apply_rows(self, matches: Sequence[Match], budget: RulesetBudget) -> None:
        """Apply the matches of one query, or as many as the budget admits."""
        start, rule = time.perf_counter(), matches[0].rule
        for i, match in enumerate(matches):
            if not budget.admits(rule.name):
                for postponed in matches[i:]:
                    postponed.canonicalize(self.egraph)
                    self._pending[rule.ruleset].postpone(postponed)
                break
            if i % 256 == 255:
                self._check_limits()
            self._apply(match)
            budget.check()
        self.report.counts[rule.name].seconds += time.perf_counter() - start

    def _apply(self, match: Match) -> None:
        rule, variant, pending = match.rule, match.variant, self._pending[match.rule.ruleset]
        key = match.canonicalize(self.egraph)
        if key in self._done or pending.was_refused(key):
            return
        count, roots = self.report.counts[rule.name], match.roots
        if variant.variadics and any(self.egraph.is_duplicate(match.at[node]) for node, _ in variant.variadics):
            return  # the older node has the same match
        rearranges = not isinstance(rule.rhs, ast.Name)
        if rearranges and not self.constants and all(map(self.egraph.is_const, roots)):
            self._done.add(key)
            return
        memo = self._memo(match)
        if memo in self._refused:
            count.matches += 1
            self._refuse(match, key, final=self._refused[memo])
            return
        context = match.context
        if variant.ac_trees:  # whose negated terms may be built; others build nodes only when they are bound
            context = context.for_match(self._origins(roots))
        nearness = 0
        try:
            at = match.at
            env = bind_match(context, rule, variant, at)
            nearness = 1
            count.matches += 1
            run = self._run_key(variant, at, env)
            if run in self._done:
                self._done.add(key)
                return
            context = context.for_match(self._origins(roots))
            check_given(context, rule.rule.given, env)
            if rule.index is not None:
                self._groups.add(rule, env, roots[0])
                return
            prove(context, rule, env)
            nearness = 2
            nodes = len(self.egraph.nodes)
            changed = self._unite(context, rule, env, equalities(context, rule, env, roots))
            # a declared operator is equated with its definition when it is built, so growth counts as a change
            count.applied += changed or len(self.egraph.nodes) > nodes
            self._done.add(key)
            if run is not None:
                self._done.add(run)
        except (Unprovable, IllTyped) as why:
            count.note(str(why), nearness)
            final = nearness < 2 and isinstance(why, Refuted)
            if memo is not None and nearness < 2:
                self._refused[memo] = final
            self._refuse(match, key, final=final)

    def _refuse(self, match: Match, key: Key, *, final: bool) -> None:
        """Refuse a match, for good or until more is known of its classes."""
        if final:
            self._done.add(key)
        else:
            self._pending[match.rule.ruleset].refuse(match)

    def _memo(self, match: Match) -> Key | None:
        """Return a key that matches share whose refusal the same types and contents decide; None if more is read."""
        decisive = match.variant.memo_key
        if decisive is None:
            return None
        known = [self.egraph.number(match.row[i], contents=contents) for i, contents in decisive]
        return match.variant.query.name, (*known, *match.row[len(known) :])

    def _run_key(self, variant: Variant, at: Mapping[str, int], env: Bindings) -> Key | None:
        """Return a key of a match of many inputs, whichever of them egglog found; None for any other match."""
        if not variant.runs:
            return None
        nodes = [at[node] for node, _ in variant.variadics]
        return f"{variant.query.name} {variant.runs}", (*nodes, *(env[start_of(index)] for index in variant.runs))

    def _origins(self, roots: Sequence[int]) -> tuple[str, ...]:
        """Return the original nodes that a match replaces."""
        names = dict.fromkeys(name for root in roots for name in self._given_names(root))
        return tuple(names) or tuple(name for root in roots for name in self.egraph.origins[root])

    def _given_names(self, root: int) -> tuple[str, ...]:
        """Return the original nodes in a class, which are looked up again only when it has other members."""
        members = self.egraph.members(root)
        count, names = self._names.get(members[0], (0, ()))
        if count != len(members):
            made_by, origins = self.egraph.made_by, self.egraph.origins
            names = tuple(dict.fromkeys(name for h in members if made_by[h] is None for name in origins[h]))
            self._names[members[0]] = len(members), names
        return names

    def _unite(self, context: Evaluator, rule: CompiledRule, env: Bindings, pairs: Sequence[tuple[int, Value]]) -> bool:
        """Merge classes with values, all or none, and return whether that changed the e-graph."""
        egraph = self.egraph
        handles = built(context, pairs)
        roots = tuple(root for root, _ in pairs)
        if all(egraph.find(root) == egraph.find(handle) for root, handle in zip(roots, handles, strict=True)):
            return False
        reason = Applied(rule.name, rule.backward, roots, handles, env)
        changed = [egraph.union(root, handle, rule.name, reason) for root, handle in zip(roots, handles, strict=True)]
        return any(changed)

    # --- groups: `{ y[i] = P } => { y[*] = Q }` ---

    def _apply_groups(self, ruleset: str) -> None:
        for _, rule in self._rules.get(ruleset, ()):
            if rule.index is not None:
                for members in self._groups.new(rule):
                    self._apply_group(rule, members)

    def _apply_group(self, rule: CompiledRule, members: Members) -> None:
        context = self.context.for_rule(rule.rule, rule.name, rule.indices).for_match(self._origins(list(members)))
        count = self.report.counts[rule.name]
        try:
            roots, env = bind_group(context, rule, members)
            for condition in rule.rule.where:
                context.prove(condition, env)
            values = right_sides(context, rule, env, len(roots))
            count.applied += self._unite(context, rule, env, list(zip(roots, values, strict=True)))
        except (Unprovable, IllTyped) as why:
            count.reason = str(why)


def depth(egraph: EGraph) -> int:
    """Return the number of nodes on the longest path of an e-graph.

    A rewrite that moves along a path advances by one node in each iteration, so a fixpoint may take that many."""
    depths = [0]
    for node in egraph.nodes[1:]:  # children come before their users
        depths.append(1 + max((depths[child] for child in node.children), default=0))
    return max(depths)


def operator_numbers(egraph: EGraph, declared: Mapping[str, ast.Op]) -> dict[str, int]:
    """Return the numbers in egglog of the operators that occur, by their names in rules.

    Rules write `Name` for what graphs hold as `rewrite.Name`."""
    ops = {op: egraph.op_id(op) for op in (*dict.fromkeys(node.op for node in egraph.nodes), "Proj")}
    return ops | {name: egraph.op_id(graph_name(name)) for name in declared}


def prove(context: Evaluator, rule: CompiledRule, env: Bindings) -> None:
    """Raise `Unprovable`, with the line, unless the conditions of a rule hold."""
    context = context.in_condition()
    for condition in rule.rule.where:
        try:
            context.prove(condition, env)
        except Unprovable as why:
            raise Unprovable(f"the condition in line {condition.span.line} is not proved: {why}") from why


def equalities(context: Evaluator, rule: CompiledRule, env: Bindings, roots: Sequence[int]) -> list[tuple[int, Value]]:
    """Build the right side of a rule, and return each root with the value that it equals."""
    if not isinstance(rule.rhs, ast.Roots):
        return [(roots[0], context.evaluate(rule.rhs, env))]
    assert isinstance(rule.lhs, ast.Roots)
    at = {b.target.name: root for b, root in zip(rule.lhs.bindings, roots, strict=True)}
    return [(at[b.target.name], context.evaluate(b.value, env)) for b in rule.rhs.bindings]


def built(context: Evaluator, pairs: Sequence[tuple[int, Value]]) -> tuple[int, ...]:
    """Return the classes of values that roots equal.

    Raises `Unprovable` where the types of a pair are not provably equal."""
    egraph, handles = context.egraph, []
    for root, value in pairs:
        handle = as_tensor(context, value, egraph.type(root).dtype)
        if not egraph.can_union(root, handle):
            raise Unprovable(f"the right side has type {egraph.type(handle)}, the left {egraph.type(root)}")
        handles.append(handle)
    return tuple(handles)


def _terms(egraph: EGraph, match: Match) -> list[int]:
    """Return the terms that a match of a sum or product reads besides its classes."""
    found: list[int] = []
    for variable, call in match.variant.ac_trees:
        with contextlib.suppress(Unprovable):
            found += [term.handle for term in collect_terms(egraph, match.at[variable], call.head)]
    return found
