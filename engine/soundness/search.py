"""Checking one rule: instances are drawn in rounds, each from those that were seen to fire.

The first round holds the rule's own tests and what is drawn from the pattern alone. The next ones hold what is one
change away from the first of these (`sweep`), at all places in turn; every later one changes instances on which the
rule fires by chance, one to three things at a time, as a fuzzer does that is guided by coverage. So most instances are
either accepted by the rule or only just refused.
"""

from __future__ import annotations

import time
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...grammar import ast
from ...grammar.library import Library
from .. import fold
from ..egraph import LEAVES
from ..fold.windows import WINDOWS
from .draw import drawn
from .instance import Instance, seeds
from .perturb import Changer, tensors
from .report import Budget, Counterexample, RuleReport
from .run import Outcome, Subject, run, subjects
from .shrink import shrink
from .sweep import swept

ROUND = 96
"""Instances in a round; an e-graph and its queries cost as much as thirty."""
BY_CHANCE = 120
"""At least so many instances are changed by chance, whatever was spent on what is changed in turn."""
EMPTY = 8
"""Instances with empty tensors in one e-graph: those of a type are all one class, and matches many of such classes."""
SWEPT = (280, 100)
"""How many other shapes are tried in turn for the first instances on which a rule fires."""
REFUSED = (140, 110, 80)
"""And for the first tests on which it does not: what is one change away from them is easily forgotten."""
_SATURATION_SECONDS = 20.0


@dataclass
class _Tally:
    """What was found so far."""

    instances: int = 0
    fired: int = 0
    near_misses: int = 0
    compared: int = 0
    bits: dict[str, int] = field(default_factory=dict)
    uncomputed: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    failure: str = ""
    reason: str = ""
    counterexample: Counterexample | None = None


def check_rule(rule: ast.Rule, library: Library, budget: Budget) -> RuleReport:
    """Checks one rule; see `soundness.check_rule`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about overflow and means of nothing: wanted here
        return _check_rule(rule, library, budget)


def _check_rule(rule: ast.Rule, library: Library, budget: Budget) -> RuleReport:
    start, begun = time.perf_counter(), time.process_time()
    tally = _Tally()
    ways = subjects(rule, library)
    for number, subject in enumerate(ways):
        share = begun + budget.seconds * (number + 1) / len(ways)
        limit = budget.instances * (number + 1) // len(ways)
        _explore(subject, budget, tally, share, limit)
        if tally.counterexample is not None and budget.stop:
            break
    return _report(rule, tally, time.perf_counter() - start)


def _explore(subject: Subject, budget: Budget, tally: _Tally, until: float, limit: int) -> None:
    rng = np.random.default_rng([budget.seed, zlib.crc32(subject.rule.name.encode())])
    changer = Changer(subject, rng)
    sweeping = np.random.default_rng([budget.seed, zlib.crc32(subject.rule.name.encode()), 1])
    known: set[str] = set()
    alive: list[Instance] = []
    spare: list[Instance] = []
    pending = list(seeds(subject.pattern, subject.declared))
    pending += [retyped for instance in pending[:2] for retyped in changer.every_dtype(instance)]
    pending += drawn(subject, rng, 24)
    constants = subject.rule.numerics == "exact"  # others are not applied to terms over constants only
    tries = 0
    to_sweep: list[tuple[Instance, int]] | None = None
    while pending and time.process_time() < until:
        fresh = []
        for instance in pending:
            if (key := instance.key()) not in known and (constants or not _all_constant(instance)):
                known.add(key)
                fresh.append(instance)
        wrong = False
        for group in together(fresh):
            batch = run(subject, group, seed=budget.seed, seconds=_SATURATION_SECONDS)
            tally.reason = tally.reason or batch.reason
            for outcome in batch.outcomes:
                _count(outcome, tally, alive, spare)
            found = _confirmed(subject, batch.outcomes, budget)
            if found is not None and tally.counterexample is None:
                tally.counterexample = shrink(subject, found, budget)
            wrong = wrong or found is not None
            if (wrong and budget.stop) or time.process_time() >= until:
                break
        tries += 1
        if (wrong and budget.stop) or tally.instances >= limit or tries > 40:
            return
        if to_sweep is None:
            some = [[i for i in found if not _some_empty(i)] or found for found in (alive, spare)]
            to_sweep = [*zip(some[0], SWEPT, strict=False), *zip(some[1], REFUSED, strict=False)]
        if to_sweep:
            near, most = to_sweep.pop(0)
            pending = swept(subject, near, sweeping, most)
            limit = max(limit, tally.instances + len(pending) + BY_CHANCE)
        else:
            pending = _children(changer, alive, spare, rng) if alive or spare else []
        if not pending:
            pending = list(drawn(subject, rng, 24))


def together(instances: Sequence[Instance]) -> list[list[Instance]]:
    """The instances of a round by the e-graph that they are put into."""
    empty = [i for i in instances if _some_empty(i)]
    others = [i for i in instances if not _some_empty(i)]
    first = [*others, *empty[:EMPTY]]
    return [first, *(empty[at : at + EMPTY] for at in range(EMPTY, len(empty), EMPTY))]


def _some_empty(instance: Instance) -> bool:
    return any(0 in tensor.shape for _, tensor in tensors(instance))


def _all_constant(instance: Instance) -> bool:
    found = tensors(instance)
    return bool(found) and all(tensor.is_const for _, tensor in found)


def _confirmed(subject: Subject, outcomes: list[Outcome], budget: Budget) -> Outcome | None:
    """The simplest instance on which the rule is wrong, in an e-graph of its own too.

    Side by side instances share their constants, equal results that are constant, and all empty tensors of one type:
    what is wrong with one may then be said of another, or of none."""
    different = [o for o in outcomes if o.difference is not None]
    for outcome in sorted(different, key=lambda o: (o.instance.steps, len(o.instance.key()))):
        alone = run(subject, [outcome.instance], seed=budget.seed, seconds=_SATURATION_SECONDS).outcomes[0]
        if alone.difference is not None:
            return alone
    return _narrowed(subject, [o.instance for o in outcomes if o.built], budget) if different else None


def _narrowed(subject: Subject, instances: Sequence[Instance], budget: Budget) -> Outcome | None:
    """One of the instances on which the rule is wrong, looked for in halves."""
    found = run(subject, instances, seed=budget.seed, seconds=_SATURATION_SECONDS).outcomes if instances else []
    different = [o for o in found if o.difference is not None]
    if not different or len(instances) == 1:
        return different[0] if different else None
    middle = len(instances) // 2
    return _narrowed(subject, instances[:middle], budget) or _narrowed(subject, instances[middle:], budget)


def _count(outcome: Outcome, tally: _Tally, alive: list[Instance], spare: list[Instance]) -> None:
    if not outcome.built:
        return
    tally.instances += 1
    tally.fired += outcome.fired
    tally.near_misses += not outcome.fired and outcome.instance.steps > 0
    tally.compared += outcome.compared
    tally.uncomputed |= outcome.uncomputed
    tally.odd |= outcome.odd
    if outcome.failure and not tally.failure:
        tally.failure = f"{outcome.failure} ({outcome.instance.key()[:400]})"
    if outcome.fired:
        tally.bits[outcome.bits] = tally.bits.get(outcome.bits, 0) + 1
        alive.append(outcome.instance)
    elif outcome.instance.steps <= 1:
        spare.append(outcome.instance)


def _children(
    changer: Changer, alive: list[Instance], spare: list[Instance], rng: np.random.Generator
) -> list[Instance]:
    """Changed instances: of the first on which the rule fires (the tests) as often as of all that came later, and
    sometimes of those on which it does not, which may be a step away from where nothing fires yet."""
    found = []
    for _ in range(ROUND):
        pool = alive[:4] if rng.random() < 0.5 else alive
        if not alive or (spare and rng.random() < 0.15):
            pool = spare
        child: Instance | None = pool[int(rng.integers(len(pool)))]
        for _ in range(int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15]))):
            assert child is not None
            child = changer.change(child) or child
        assert child is not None
        found.append(child)
    return found


def _report(rule: ast.Rule, tally: _Tally, seconds: float) -> RuleReport:
    problems: list[str] = []
    notes: list[str] = []
    if tally.failure:
        problems.append(f"the engine failed on an instance: {tally.failure}")
    if not tally.instances:
        problems.append("vacuous: no instance of the pattern could be built" + _because(tally.reason))
    elif not tally.fired:
        problems.append(f"vacuous: it fired on none of {tally.instances} instances" + _because(tally.reason))
    elif not tally.compared:
        what = ", ".join(sorted(tally.uncomputed)) or "its operators"
        problems.append(f"nothing could be compared: there is no reference for {what}")
    elif never := sorted(op for op in tally.uncomputed - set(LEAVES) if not fold.by_numpy(op) and op not in WINDOWS):
        notes.append(f"not computed on some instances: {', '.join(never)}")
    if rule.numerics != "exact" and tally.fired >= 8 and tally.compared and not tally.counterexample:
        if not tally.bits.get("different"):
            claim = "exact signed_zero" if tally.bits.get("zeros") else "exact"
            notes.append(f"the two sides never differed in a bit: it may be `class {claim}`")
    elif "signed_zero" in rule.relaxations and tally.fired >= 8 and not tally.counterexample:
        if not tally.bits.get("zeros"):
            notes.append("the sign of a zero never differed: it may be `class exact`")
    sound = tally.counterexample is None and not problems
    return RuleReport(
        name=rule.name,
        file=rule.span.file,
        line=rule.span.line,
        numerics=" ".join((rule.numerics, *rule.relaxations)),
        layer=2 if sound else 1,
        instances=tally.instances,
        fired=tally.fired,
        near_misses=tally.near_misses,
        seconds=seconds,
        counterexample=tally.counterexample,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
