"""Plans: schedules of rule files, resolved to trees of steps over rulesets.

A ruleset that joins another runs with it, within limits of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import UserError
from ...grammar.diagnostics import did_you_mean
from ...grammar.syntax import ast

STANDARD = "standard"
"""Schedule that runs by default."""
NATIVE = "native"
"""Schedule for the graph extracted for native kernels."""
PORTABLE = "portable"
"""Schedule for the graph extracted for the file."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Budget of the rules of one ruleset; None means no limit.

    `matches` is the number of matches of one rule in one iteration after which it is suspended, for growing times.
    `nodes` and `seconds` are the e-nodes and CPU time of all its rules, `iterations` those on the way to one
    fixpoint."""

    iterations: int | None = None
    matches: int | None = None
    nodes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One iteration of a ruleset that a schedule names, and of those that join it."""

    rulesets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saturate:
    """Steps until they change nothing, at most `iterations` times."""

    steps: tuple[Step, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps until they change nothing, at most `count` times; stopping then does not count as reaching a limit."""

    steps: tuple[Step, ...]
    count: int


Step = Run | Saturate | Repeat


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule: its steps, and the budgets of the rulesets in it."""

    name: str
    steps: tuple[Step, ...]
    budgets: Mapping[str, Budget] = field(default_factory=dict)

    def rulesets(self) -> frozenset[str]:
        """Return the rulesets that the plan runs."""
        return frozenset(name for step in self.steps for name in names_of(step))


ITERATIONS = 40
"""Maximum number of iterations to a fixpoint of rulesets without a limit."""


def names_of(step: Step) -> Iterable[str]:
    """Return the rulesets that a step runs, in order."""
    if isinstance(step, Run):
        return step.rulesets
    return itertools.chain.from_iterable(map(names_of, step.steps))


def make_plan(name: str, schedules: Sequence[ast.Schedule], rulesets: Sequence[ast.Ruleset]) -> Plan:
    """Return the plan of a schedule; raise `UserError` for an unknown name."""
    found = next((s for s in schedules if s.name == name), None)
    if found is None:
        known = [s.name for s in schedules]
        hint = did_you_mean(name, known) or f"There are {', '.join(known)}."
        raise UserError(f"unknown schedule {name!r}", hint=hint)
    budgets = {item.name: Budget(**{limit.name: limit.value for limit in item.limits}) for item in rulesets}  # type: ignore[arg-type]

    def closure(ruleset: str) -> tuple[str, ...]:
        joining = [name for item in rulesets if item.joins == ruleset for name in closure(item.name)]
        return tuple(dict.fromkeys([ruleset, *joining]))

    def step(item: ast.Step) -> Step:
        if isinstance(item, ast.Run):
            return Run(closure(item.ruleset))
        if isinstance(item, ast.Repeat):
            return Repeat(tuple(map(step, item.steps)), item.count)
        assert isinstance(item, ast.Saturate)
        steps = tuple(map(step, item.steps))
        named = [budgets[n].iterations for s in steps for n in names_of(s) if n in budgets]
        return Saturate(steps, min((n for n in named if n is not None), default=ITERATIONS))

    return Plan(name, tuple(map(step, found.steps)), budgets)


def plan_for(ruleset: str, budgets: Mapping[str, Budget] | None = None) -> Plan:
    """Return the plan of a rule's test, which runs one ruleset: `explore` three times, others to a fixpoint."""
    run = Run((ruleset,))
    step = Repeat((run,), 3) if ruleset == "explore" else Saturate((run,), ITERATIONS)
    return Plan(ruleset, (step,), budgets or {})
