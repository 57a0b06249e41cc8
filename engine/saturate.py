"""Saturation: rules are matched and applied as a schedule says, until nothing new comes or a limit is met.

In each iteration the matcher finds all new matches of a ruleset's rules at once; then they are bound, their conditions
proved and their right sides built here, in a fixed order. A match whose condition was not provable is kept and tried
again when more is known. Where a ruleset limits matches, a rule that matches too often sits out for growing times, like
egg's back-off scheduler (Willsey et al., POPL 2021, section 5).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..grammar import ast
from ..grammar.builtins import RULESETS
from .bind import bind
from .compile_rules import Compiler, heads
from .declared import define
from .egraph import EGraph
from .evaluate import Evaluator
from .evidence import evidence
from .given import check_given
from .groups import Groups, Members
from .matcher import Row
from .nary import terms
from .operators import graph_name
from .patterns import CompiledRule, Variant
from .schedule import Budget, Plan, Run, Saturate, Step, names_of
from .shapes import IllTyped
from .spread import START
from .values import TensorRef, Unprovable, Value


@dataclass(frozen=True, slots=True)
class Limits:
    """What saturation may use in all: seconds of computing, whatever else the machine does, e-nodes, and iterations on
    the way to one fixpoint.

    Rulesets have budgets besides (`schedule.Budget`)."""

    seconds: float = 20.0
    nodes: int = 200_000
    iterations: int = 40


@dataclass(frozen=True, slots=True)
class LimitMet:
    """A budget of a ruleset that was used up: which (`matches`, `nodes`, …), and by which rule if it is one rule's."""

    ruleset: str
    limit: str
    rule: str | None = None


@dataclass(slots=True)
class RuleCount:
    """How often a rule matched, how often that changed the e-graph, and how long matching and applying it took.

    `reason` says why it did not fire where it came nearest to firing: `nearness` is 0 while binding, 1 at a condition,
    2 when only the types of the two sides did not agree."""

    matches: int = 0
    applied: int = 0
    reason: str = ""
    nearness: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Saturation:
    """How saturation went. `stop_reason` is `saturated`, `time_limit`, `node_limit` or `iteration_limit`.

    `unscheduled` are rulesets, other than the standard ones, with rules that the schedule does not run."""

    stop_reason: str = "saturated"
    iterations: int = 0
    seconds: float = 0.0
    classes: int = 0
    nodes: int = 0
    counts: dict[str, RuleCount] = field(default_factory=dict)
    limits: list[LimitMet] = field(default_factory=list)
    unscheduled: tuple[str, ...] = ()

    @property
    def limited(self) -> list[str]:
        """The rules that sat out for a time."""
        return [met.rule for met in self.limits if met.rule is not None]

    def add(self, later: Saturation) -> None:
        """Counts in what another saturation, of what this one led to, did after it."""
        for name, count in later.counts.items():
            mine = self.counts.setdefault(name, RuleCount())
            mine.matches += count.matches
            mine.applied += count.applied
            mine.seconds += count.seconds
            if count.reason and count.nearness >= mine.nearness:
                mine.reason, mine.nearness = count.reason, count.nearness
        self.limits += [met for met in later.limits if met not in self.limits]
        self.iterations += later.iterations
        self.seconds += later.seconds
        if self.stop_reason == "saturated":
            self.stop_reason = later.stop_reason


@dataclass(slots=True)
class _Spent:
    """What a ruleset has used of its budget; `all` if it is used up."""

    budget: Budget
    nodes: int = 0
    seconds: float = 0.0
    all: bool = False
    nodes_at: int = 0
    start: float = 0.0


class _Stop(Exception):
    pass


_Key = tuple[str, Row]


@dataclass(slots=True)
class _Pending:
    rule: CompiledRule
    variant: Variant
    row: Row
    knowledge: int


class Saturator:
    """Runs rules on one e-graph.

    `plan` is the schedule, by default the standard one; rules of rulesets that are not in it are not run. `kinds` gives
    the kind of each operator, `declared` the operators that rule files define. Terms over constants only
    are left as they are unless `constants`: they are evaluated once whatever their form. But where a rule finds that
    one is just a part of itself (c · 1) it is applied: else rules that rearrange constants would make ever new ones."""

    def __init__(
        self,
        egraph: EGraph,
        rules: Sequence[CompiledRule],
        kinds: Mapping[str, str],
        limits: Limits,
        *,
        plan: Plan | None = None,
        declared: Mapping[str, ast.Op] | None = None,
        constants: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.egraph = egraph
        self.rules = list(rules)
        self.kinds = kinds
        self.limits = limits
        if plan is None:
            from .library import standard_plan

            plan = standard_plan()
        self.plan = plan
        self.constants = constants
        self.progress = progress
        run = {*RULESETS, *self.plan.rulesets()}
        unscheduled = dict.fromkeys(r.ruleset for r in rules if r.ruleset not in run)
        self.report = Saturation(counts={r.name: RuleCount() for r in rules}, unscheduled=tuple(unscheduled))
        self.evaluator = Evaluator(egraph)
        self.evaluator.declared = declared or {}
        self.evaluator.kinds = kinds
        self._by_query: dict[str, tuple[CompiledRule, Variant]] = {}
        self._seen_variants: set[tuple[object, ...]] = set()
        self._failed: dict[str, dict[_Key, _Pending]] = {}
        self._done: set[_Key] = set()
        self._refused: set[_Key] = set()
        self._watched: dict[str, dict[int, list[_Key]]] = {}
        self._noted: dict[str, int] = {}
        self._due: dict[str, set[_Key]] = {}
        self._groups = Groups(self.evaluator)
        self._banned: dict[str, int] = {}
        self._bans: dict[str, int] = {}
        self._applied: dict[str, int] = {}
        self._spent: dict[str, _Spent] = {}
        self._fixed: dict[Step, int] = {}
        self._changes = 0
        self._looked_at = 0
        self._undefined: list[tuple[int, int]] = []
        self._kinds_declared: set[str] = set()
        self._compiled: dict[int, tuple[str, ...]] = {}
        self._start, self._begun = time.perf_counter(), time.process_time()
        assert egraph.matcher is not None
        self._prefix = egraph.matcher.new_user()

    def run(self) -> Saturation:
        """Saturates and says how it went; the e-graph is rebuilt whatever the reason for stopping."""
        try:
            self._steps(self.plan.steps)
        except _Stop as stop:
            self.report.stop_reason = str(stop)
        self.egraph.rebuild()
        self.report.seconds = time.perf_counter() - self._start
        assert self.egraph.matcher is not None
        for name, (rule, _) in self._by_query.items():
            self.report.counts[rule.name].seconds += self.egraph.matcher.seconds.get(name, 0.0)
        self.report.nodes = len(self.egraph.nodes)
        self.report.classes = len(self.egraph.classes())
        return self.report

    def _steps(self, steps: Sequence[Step]) -> bool:
        """Runs steps in order; whether they changed anything."""
        before = self._changes
        for step in steps:
            if isinstance(step, Run):
                for ruleset in step.rulesets:
                    self._round(ruleset)
            elif isinstance(step, Saturate):
                self._fixpoint(step)
            else:
                for _ in range(step.count):
                    if not self._steps(step.steps) and not self._wake():
                        break
        return self._changes > before

    def _fixpoint(self, step: Saturate) -> None:
        if self._fixed.get(step) == self._changes:
            return  # nothing has changed since it was reached
        for _ in range(min(step.iterations, self.limits.iterations)):
            if not self._steps(step.steps) and not self._wake():
                self._fixed[step] = self._changes
                return
        if self.report.stop_reason == "saturated":
            self.report.stop_reason = "iteration_limit"
        for ruleset in dict.fromkeys(name for inner in step.steps for name in names_of(inner)):
            self._met(ruleset, "iterations")

    def _wake(self) -> bool:
        """Ends the time that rules sit out when nothing else is left to do; whether there were such rules."""
        sleeping = [rule for rule, until in self._banned.items() if until > self.report.iterations]
        for rule in sleeping:
            self._banned[rule] = self.report.iterations
        return bool(sleeping)

    def _met(self, ruleset: str, limit: str, rule: str | None = None) -> None:
        """Notes that a limit was met."""
        met = LimitMet(ruleset, limit, rule)
        if met not in self.report.limits:
            self.report.limits.append(met)

    def _round(self, phase: str) -> bool:
        """One iteration of a ruleset; whether it changed anything."""
        self._check()
        spent = self._spent.setdefault(phase, _Spent(self.plan.budgets.get(phase, Budget())))
        if spent.all:
            return False
        spent.start, spent.nodes_at = time.process_time(), len(self.egraph.nodes)
        self._failed.setdefault(phase, {})
        self._applied.clear()
        self._define()
        self.egraph.rebuild()
        self._compile(phase)
        assert self.egraph.matcher is not None
        found = self.egraph.matcher.matches(f"{self._prefix}_{phase}")
        self.report.iterations += 1
        knowledge, nodes = self.egraph.knowledge, len(self.egraph.nodes)
        retry, self._failed[phase] = self._failed[phase], {}
        changed = False
        for name, rows in found.items():
            rule, variant = self._by_query[name]
            changed |= self._apply_all(rule, variant, rows, phase, spent)
        changed |= self._apply_groups(phase)
        due = self._due.setdefault(phase, set())
        for key, pending in retry.items():
            self._note_touched(phase, due)
            # a failed condition is worth another look only when more is known of what it is about
            if not self._is_due(key, pending, due):
                self._failed[phase].setdefault(key, pending)
            elif spent.all or self._sits_out(pending.rule, spent.budget):
                pending.knowledge = -1
                self._failed[phase].setdefault(key, pending)
            else:
                began = time.perf_counter()
                changed |= self._apply(pending.rule, pending.variant, pending.row, phase)
                self.report.counts[pending.rule.name].seconds += time.perf_counter() - began
                self._spend(spent, phase)
        spent.nodes += len(self.egraph.nodes) - nodes
        spent.seconds += time.process_time() - spent.start
        if self.progress:
            self.progress(self.report.iterations, len(self.egraph.nodes))
        changed = changed or self.egraph.knowledge != knowledge or len(self.egraph.nodes) != nodes
        self._changes += changed
        return changed

    def _note_touched(self, phase: str, due: set[_Key]) -> None:
        """Adds the matches with a class that has been touched since this was last asked."""
        touched, watched = self.egraph.touched, self._watched.setdefault(phase, {})
        for i in range(self._noted.get(phase, 0), len(touched)):
            due.update(watched.get(touched[i], ()))
        self._noted[phase] = len(touched)

    def _is_due(self, key: _Key, pending: _Pending, due: set[_Key]) -> bool:
        """Whether more is known than when a match was last looked at."""
        if pending.knowledge < 0:
            return True
        if key in due:
            due.discard(key)
        elif not pending.variant.naries:
            return False
        classes = pending.row[: len(pending.variant.query.classes)]
        return self.egraph.changed_since(pending.knowledge, (*classes, *self._terms(pending.variant, classes)))

    def _fail(self, phase: str, key: _Key, rule: CompiledRule, variant: Variant, row: Row) -> None:
        """Keeps a match that was refused until more is known of its classes."""
        self._failed[phase][key] = _Pending(rule, variant, row, self.egraph.knowledge)
        watched = self._watched.setdefault(phase, {})
        for handle in dict.fromkeys(row[: len(variant.query.classes)]):
            watched.setdefault(handle, []).append(key)

    def _spend(self, spent: _Spent, phase: str) -> None:
        """Notes if the ruleset has used up its budget."""
        budget = spent.budget
        if budget.nodes is not None and spent.nodes + len(self.egraph.nodes) - spent.nodes_at >= budget.nodes:
            spent.all = True
            self._met(phase, "nodes")
        if budget.seconds is not None and spent.seconds + time.process_time() - spent.start >= budget.seconds:
            spent.all = True
            self._met(phase, "seconds")

    def _sits_out(self, rule: CompiledRule, budget: Budget) -> bool:
        """Whether a rule is not to be applied now; counts that it is."""
        if budget.matches is None:
            return False
        now = self.report.iterations
        if self._banned.get(rule.name, 0) > now:
            return True
        used = self._applied.get(rule.name, 0)
        if used < budget.matches << self._bans.get(rule.name, 0):
            self._applied[rule.name] = used + 1
            return False
        self._bans[rule.name] = self._bans.get(rule.name, 0) + 1
        self._banned[rule.name] = now + (1 << self._bans[rule.name])
        self._met(rule.ruleset, "matches", rule.name)
        return True

    def _define(self) -> None:
        """Makes nodes of the model equal to the definitions that rule files give of their operators, once proved."""
        nodes = self.egraph.nodes
        while self._looked_at < len(nodes):
            node = nodes[self._looked_at]
            if node.op in self.evaluator.declared:
                self._undefined.append((self._looked_at, -1))
            self._looked_at += 1
        waiting, self._undefined = self._undefined, []
        for handle, knowledge in waiting:
            if knowledge >= 0 and not self.egraph.changed_since(knowledge, nodes[handle].children):
                self._undefined.append((handle, knowledge))
                continue
            op = self.evaluator.declared[nodes[handle].op]
            name = f"define_{op.name}"
            count = self.report.counts.setdefault(name, RuleCount())
            count.matches += 1
            self.evaluator.made_by, self.evaluator.origins = name, self._origins([handle])
            try:
                count.applied += define(self.evaluator, handle, op)
            except (Unprovable, IllTyped) as why:
                count.reason = str(why)
                self._undefined.append((handle, self.egraph.knowledge))

    def _compile(self, phase: str) -> None:
        """Registers the queries of a phase's rules; again when operators have come up that they name."""
        present = {node.op: None for node in self.egraph.nodes}
        ops = {op: self.egraph.op_id(op) for op in (*present, "Proj")}
        for name in self.evaluator.declared:  # rules write `Name` for what graphs hold as `rewrite.Name`
            ops[name] = self.egraph.op_id(graph_name(name))
        assert self.egraph.matcher is not None
        for op, number in ops.items():
            if op in self.kinds and op not in self._kinds_declared:
                self._kinds_declared.add(op)
                self.egraph.matcher.declare_kind(self.kinds[op], number)
        compiler = Compiler(ops, self.egraph.commutative, self._prefix, self.evaluator.declared)
        for number, rule in enumerate(self.rules):
            if rule.ruleset != phase or not all(op in ops for op in rule.required):
                continue
            state = tuple(op for op in heads(rule) if op in ops)
            if self._compiled.get(number) != state:
                self._compiled[number] = state
                for variant in compiler.variants(rule, self._seen_variants):
                    variant.evidence = evidence(rule, variant)
                    self._by_query[variant.query.name] = (rule, variant)
                    self.egraph.matcher.add_query(variant.query)

    def _check(self) -> None:
        if time.process_time() - self._begun > self.limits.seconds:
            raise _Stop("time_limit")
        if len(self.egraph.nodes) > self.limits.nodes:
            raise _Stop("node_limit")

    def _apply_all(self, rule: CompiledRule, variant: Variant, rows: Sequence[Row], phase: str, spent: _Spent) -> bool:
        changed = False
        start = time.perf_counter()
        for i, row in enumerate(rows):
            if spent.all or self._sits_out(rule, spent.budget):
                self._postpone(rule, variant, rows[i:], phase)
                break
            if i % 256 == 255:
                self._check()
            changed |= self._apply(rule, variant, row, phase)
            self._spend(spent, phase)
        self.report.counts[rule.name].seconds += time.perf_counter() - start
        return changed

    def _postpone(self, rule: CompiledRule, variant: Variant, rows: Sequence[Row], phase: str) -> None:
        for row in rows:
            self._failed[phase][variant.query.name, self._canonical(variant, row)] = _Pending(rule, variant, row, -1)

    def _canonical(self, variant: Variant, row: Row) -> Row:
        classes = len(variant.query.classes)
        return (*map(self.egraph.find, row[:classes]), *row[classes:])

    def _apply(self, rule: CompiledRule, variant: Variant, row: Row, phase: str) -> bool:
        """Binds, proves and applies one match; whether the e-graph changed."""
        row = self._canonical(variant, row)
        key = (variant.query.name, row)
        if key in self._done or key in self._failed[phase]:
            return False
        count = self.report.counts[rule.name]
        evaluator = self.evaluator
        at = dict(zip((*variant.query.classes, *variant.query.integers), row, strict=True))
        roots = [at[r] for r in variant.roots]
        rearranges = not isinstance(rule.rhs, ast.Name)
        if rearranges and not self.constants and all(self.egraph.is_const(r) for r in roots):
            self._done.add(key)
            return False
        alike: _Key | None = None
        if variant.evidence is not None:
            known = [self.egraph.number(row[i], contents=contents) for i, contents in variant.evidence]
            alike = (variant.query.name, (*known, *row[len(known) :]))
            if alike in self._refused:
                count.matches += 1
                self._fail(phase, key, rule, variant, row)
                return False
        self._speak_for(rule)
        try:
            nearness = 0
            env = bind(rule, variant, row, evaluator)
            nearness = 1
            count.matches += 1
            if variant.runs:
                run = self._run_key(variant, at, env)
                if run in self._done:
                    self._done.add(key)
                    return False
            if rule.index is not None:
                check_given(rule.rule.given, env, evaluator)
                self._groups.add(rule, env, roots[0])
                return False
            self._conditions(rule, env)
            nearness = 2
            evaluator.origins = self._origins(roots)
            nodes = len(self.egraph.nodes)
            changed = self._rewrite(rule, env, roots)
            # an operator of our own is made equal to its definition as it is made, so that growth counts too
            if changed or len(self.egraph.nodes) > nodes:
                count.applied += 1
            self._done.add(key)
            if variant.runs:
                self._done.add(self._run_key(variant, at, env))
            return changed
        except (Unprovable, IllTyped) as why:
            if nearness >= count.nearness:
                count.reason, count.nearness = str(why), nearness
            if alike is not None and nearness < 2:
                self._refused.add(alike)
            self._fail(phase, key, rule, variant, row)
            return False

    def _terms(self, variant: Variant, classes: Row) -> list[int]:
        """The terms that a match of a sum or product looks at besides its classes."""
        at = dict(zip(variant.query.classes, classes, strict=True)) if variant.naries else {}
        found: list[int] = []
        for variable, call in variant.naries:
            try:
                found += [term.handle for term in terms(self.egraph, at[variable], call.head)]
            except Unprovable:
                continue
        return found

    def _run_key(self, variant: Variant, at: Mapping[str, int], env: Mapping[str, Value]) -> _Key:
        """What names a match of many inputs: whichever of them the matcher has found, it is one match."""
        nodes = [at[node] for node, _ in variant.spreads]
        return f"{variant.query.name} {variant.runs}", (*nodes, *(env[START + index] for index in variant.runs))

    def _origins(self, roots: Sequence[int]) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for root in roots:
            for handle in self.egraph.members(root):
                if self.egraph.made_by[handle] is None:
                    names.update(dict.fromkeys(self.egraph.origins[handle]))
        return tuple(names) or tuple(o for r in roots for o in self.egraph.origins[r])

    def _conditions(self, rule: CompiledRule, env: dict[str, Value]) -> None:
        check_given(rule.rule.given, env, self.evaluator)
        for condition in rule.rule.where:
            try:
                self.evaluator.prove(condition, env)
            except Unprovable as why:
                raise Unprovable(f"the condition in line {condition.span.line} is not proved: {why}") from why

    def _rewrite(self, rule: CompiledRule, env: dict[str, Value], roots: Sequence[int]) -> bool:
        if isinstance(rule.rhs, ast.Roots):
            assert isinstance(rule.lhs, ast.Roots)
            at = {b.target.name: root for b, root in zip(rule.lhs.bindings, roots, strict=True)}
            pairs = [(at[b.target.name], self.evaluator.evaluate(b.value, env)) for b in rule.rhs.bindings]
        else:
            pairs = [(roots[0], self.evaluator.evaluate(rule.rhs, env))]
        return self._unite(rule, pairs)

    def _unite(self, rule: CompiledRule, pairs: Sequence[tuple[int, Value]]) -> bool:
        equalities = []
        for root, value in pairs:
            if not isinstance(value, TensorRef):
                value = TensorRef(self.evaluator.constant(value, self.egraph.type(root).dtype))
            if not self.egraph.can_union(root, value.handle):
                ours, theirs = self.egraph.type(root), self.egraph.type(value.handle)
                raise Unprovable(f"the right side is {theirs} where the left is {ours}")
            equalities.append((root, value.handle))
        changed = False
        for root, handle in equalities:
            changed |= self.egraph.union(root, handle, rule.name)
        return changed

    # --- groups: `{ y[i] = P } => { y[*] = Q }` ---

    def _apply_groups(self, phase: str) -> bool:
        changed = False
        for rule in self.rules:
            if rule.ruleset == phase and rule.index is not None:
                for members in self._groups.new(rule):
                    changed |= self._apply_group(rule, members)
        return changed

    def _apply_group(self, rule: CompiledRule, members: Members) -> bool:
        evaluator = self.evaluator
        self._speak_for(rule)
        evaluator.origins = self._origins(list(members))
        try:
            roots, env = self._groups.together(rule, members)
            for condition in rule.rule.where:
                evaluator.prove(condition, env)
            changed = self._unite(rule, list(zip(roots, self._groups.right_sides(rule, env, roots), strict=True)))
            self.report.counts[rule.name].applied += changed
            return changed
        except (Unprovable, IllTyped) as why:
            self.report.counts[rule.name].reason = str(why)
            return False

    def _speak_for(self, rule: CompiledRule) -> None:
        """Has the evaluator evaluate on behalf of a rule."""
        self.evaluator.made_by = rule.name
        self.evaluator.lets = {b.target.name: b.value for b in rule.rule.let}
        self.evaluator.indices = rule.indices
