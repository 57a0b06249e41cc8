"""Schedules ready to run: what a rule file says of rulesets and their order, resolved.

A plan is a tree of steps over rulesets. A ruleset that joins another is run along with it, within limits of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import UserError
from ..grammar import ast
from ..grammar.diagnostics import did_you_mean

STANDARD = "standard"
"""The schedule that is run unless another is asked for."""
NATIVE = "native"
"""The schedule that is run on what was chosen for our own kernels."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the rules of one ruleset may use; None is no limit.

    `matches` is how many matches of one rule are applied in one iteration before it sits out, for growing times;
    `nodes` how many e-nodes and `seconds` how much time the rules may take in all; `iterations` how often the ruleset
    is run on the way to one fixpoint."""

    iterations: int | None = None
    matches: int | None = None
    nodes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One iteration of rulesets: the one that a schedule names and those that join it."""

    rulesets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saturate:
    """Steps until they change nothing, at most `iterations` times."""

    steps: tuple[Step, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps until they change nothing, at most `count` times; that there is more to do then is no limit met."""

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
        """The rulesets that are run."""
        return frozenset(name for step in self.steps for name in names_of(step))


ITERATIONS = 40
"""How often steps are run to a fixpoint where no ruleset in them says it."""


def names_of(step: Step) -> Iterable[str]:
    """The rulesets that a step runs."""
    if isinstance(step, Run):
        yield from step.rulesets
    else:
        for inner in step.steps:
            yield from names_of(inner)


def make_plan(name: str, schedules: Sequence[ast.Schedule], rulesets: Sequence[ast.Ruleset]) -> Plan:
    """The plan of the schedule of this name. Raises `UserError` if there is none."""
    found = next((s for s in schedules if s.name == name), None)
    if found is None:
        known = [s.name for s in schedules]
        hint = did_you_mean(name, known) or f"There are {', '.join(known)}."
        raise UserError(f"there is no schedule {name!r}", hint=hint)
    members: dict[str, list[str]] = {}
    for item in rulesets:
        if item.joins is not None:
            members.setdefault(item.joins, []).append(item.name)
    budgets = {item.name: Budget(**{limit.name: limit.value for limit in item.limits}) for item in rulesets}  # type: ignore[arg-type]

    def closure(ruleset: str) -> tuple[str, ...]:
        names = {ruleset: None}
        for inner in members.get(ruleset, ()):
            names |= dict.fromkeys(closure(inner))
        return tuple(names)

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
    """The plan that runs one ruleset only, as the test of a rule does: what explores a few times, else to the end."""
    run = Run((ruleset,))
    steps: tuple[Step, ...] = (Repeat((run,), 3) if ruleset == "explore" else Saturate((run,), ITERATIONS),)
    return Plan(ruleset, steps, budgets or {})
