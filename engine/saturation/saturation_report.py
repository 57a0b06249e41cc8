"""Limits of saturation, its report, and the budget of a ruleset."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sized
from dataclasses import dataclass, field

from ..rewriting.schedule import Budget

MACHINE_LIMITS = ("time_limit", "memory_limit")
"""Reasons to stop that depend on the machine and on what else runs there: another run may end elsewhere."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of saturation as a whole: CPU seconds, e-nodes, and iterations on the way to one fixpoint.

    A graph deeper than that may take as many iterations as it is deep.

    Rulesets have their own budgets in addition (`schedule.Budget`)."""

    seconds: float = 20.0
    nodes: int = 200_000
    iterations: int = 40


@dataclass(frozen=True, slots=True)
class ExhaustedBudget:
    """A budget of a ruleset that was used up: its name (`matches`, `nodes`, …), and the rule if it is one rule's."""

    ruleset: str
    limit: str
    rule: str | None = None


@dataclass(slots=True)
class RuleCount:
    """Number of matches of a rule, of those that changed the e-graph, and seconds of matching and applying.

    `reason` is why the rule did not fire where it came closest: `nearness` is 0 while binding, 1 at a condition, 2 when
    only the types of the two sides disagree."""

    matches: int = 0
    applied: int = 0
    reason: str = ""
    nearness: int = 0
    seconds: float = 0.0

    def note(self, reason: str, nearness: int) -> None:
        """Record why the rule did not fire, unless it came closer elsewhere."""
        if nearness >= self.nearness:
            self.reason, self.nearness = reason, nearness


@dataclass(slots=True)
class Saturation:
    """Report of a saturation; `stop_reason` is `saturated`, `time_limit`, `node_limit` or `iteration_limit`.

    `unscheduled` are rulesets, other than the standard ones, with rules that the schedule does not run."""

    stop_reason: str = "saturated"
    iterations: int = 0
    seconds: float = 0.0
    classes: int = 0
    nodes: int = 0
    counts: dict[str, RuleCount] = field(default_factory=dict)
    limits: list[ExhaustedBudget] = field(default_factory=list)
    unscheduled: tuple[str, ...] = ()

    def __repr__(self) -> str:
        applied = sum(count.applied for count in self.counts.values())
        return f"<Saturation: {self.stop_reason}, {self.iterations} iterations, rules applied {applied} times>"

    @property
    def is_repeatable(self) -> bool:
        """Whether another run ends the same: neither time nor memory ran out."""
        return self.stop_reason not in MACHINE_LIMITS

    @property
    def limited(self) -> list[str]:
        """Rules that were suspended for a time."""
        return [met.rule for met in self.limits if met.rule is not None]

    def record_exhausted(self, ruleset: str, limit: str, rule: str | None = None) -> None:
        """Record that a budget was used up."""
        met = ExhaustedBudget(ruleset, limit, rule)
        if met not in self.limits:
            self.limits.append(met)

    def add(self, later: Saturation) -> None:
        """Add the counts of a later saturation of the result of this one."""
        for name, count in later.counts.items():
            mine = self.counts.setdefault(name, RuleCount())
            mine.matches += count.matches
            mine.applied += count.applied
            mine.seconds += count.seconds
            if count.reason:
                mine.note(count.reason, count.nearness)
        self.limits += [met for met in later.limits if met not in self.limits]
        self.iterations += later.iterations
        self.seconds += later.seconds
        if self.stop_reason == "saturated":
            self.stop_reason = later.stop_reason


@dataclass(slots=True)
class RulesetBudget:
    """Use of one ruleset's budget: e-nodes and seconds in all, and matches of each rule in an iteration.

    What is used up goes to the `report`. A rule that matches too often is suspended for exponentially growing times,
    like egg's back-off scheduler (Willsey et al., POPL 2021, section 5). `nodes` are the e-graph's."""

    ruleset: str
    budget: Budget
    nodes: Sized
    report: Saturation
    exhausted: bool = False
    _nodes: int = 0
    _seconds: float = 0.0
    _first_node: int = 0
    _start: float = 0.0
    _applied: Counter[str] = field(default_factory=Counter)
    _suspensions: Counter[str] = field(default_factory=Counter)
    _suspended_until: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def begin(self) -> None:
        """Begin an iteration: its seconds count from now on."""
        self._start = time.process_time()
        self._applied.clear()

    def begin_applying(self) -> None:
        """Begin the applications of an iteration: the e-nodes that they add count from now on."""
        self._first_node = len(self.nodes)

    def end(self) -> None:
        """End an iteration."""
        self._nodes, self._seconds = self._used()

    def _used(self) -> tuple[int, float]:
        nodes = self._nodes + len(self.nodes) - self._first_node
        return nodes, self._seconds + time.process_time() - self._start

    def check(self) -> None:
        """Record whether the e-nodes or seconds are used up."""
        allowed = self.budget.nodes, self.budget.seconds
        if allowed == (None, None):
            return
        for limit, used, most in zip(("nodes", "seconds"), self._used(), allowed, strict=True):
            if most is not None and used >= most:
                self.exhausted = True
                self.report.record_exhausted(self.ruleset, limit)

    def admits(self, rule: str) -> bool:
        """Count an application of a rule; return False if it may not be applied now."""
        now = self.report.iterations
        if self.exhausted or self.budget.matches is None:
            return not self.exhausted
        if self._suspended_until[rule] > now:
            return False
        if self._applied[rule] < self.budget.matches << self._suspensions[rule]:
            self._applied[rule] += 1
            return True
        self._suspended_until[rule] = now + (2 << self._suspensions[rule])
        self._suspensions[rule] += 1
        self.report.record_exhausted(self.ruleset, "matches", rule)
        return False

    def suspends(self, rule: str) -> bool:
        """Whether a rule may not be applied in this iteration any more."""
        return self.exhausted or self._suspended_until[rule] > self.report.iterations

    def resume(self) -> bool:
        """End all suspensions, and return whether there were any."""
        now = self.report.iterations
        suspended = [rule for rule, until in self._suspended_until.items() if until > now]
        self._suspended_until.update(dict.fromkeys(suspended, now))
        return bool(suspended)
