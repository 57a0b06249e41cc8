"""Checking rules: rounds of instances, each made from those on which the rule was seen to fire.

The first round holds the rule's own tests and instances sampled from the pattern alone. The next rounds enumerate the
edits of the first instances that fired; the last ones make one to three random edits, like a fuzzer that is guided by
coverage. So the rule either accepts most instances or only just refuses them.

A proof spares most of the edits: it covers all shapes, so that tests are left with what proofs do not model, such as
rounding, overflow and the operators themselves.

Many rules are checked in several processes, with the reports of rules that have not changed taken from a cache.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import itertools
import json
import math
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.ir.names import LEAVES
from ...engine.operators import folding
from ...engine.operators.folding.float64_kernels import FLOAT64_KERNELS
from ...engine.operators.schemas import declared_operators, find_declared
from ...engine.rewriting.rule_library import operators_of, recognitions
from ...engine.verification.reference_functions import (
    References,
    known_references,
    load_references,
    reference_functions,
)
from ...errors import UserError
from ...grammar.library.load import Library
from ...grammar.syntax import ast
from ...system.process_pool import in_order, usable_cores
from ...system.store import Namespace, Store, code_stamp, content_key
from ..prover import NotProved, Proof, prove
from ..sampling.edit import Editing, weight_bounds, weighted
from ..sampling.edits import PER_KIND, enumerate_edits, retyped, sample_edit
from ..sampling.instance import Instance
from ..sampling.seeds import sample_pattern, seeds
from ..sampling.subject import Subject, subjects
from .coverage import Coverage
from .report import DEFAULT, Budget, Counterexample, RuleReport
from .run_instances import Outcome, run
from .shrink import shrink

ROUND = 96
"""Instances in a round; an e-graph and its queries cost as much as thirty instances."""
SAMPLED = 120
"""Minimum number of instances with random edits, whatever the enumeration has used up."""
TRIES = 4
"""Maximum number of random edits for each instance that is wanted. Half of them make one that can be built; where
hardly any does, more of them show little."""
FROM_PATTERN = 24
"""Instances sampled from the pattern alone."""
EMPTY = 8
"""Maximum number of instances with empty tensors in one e-graph. Empty tensors of a type are all one class, and
matching is expensive on such classes."""
ENUMERATED = (280, 100)
"""Maximum number of enumerated shapes of the first and the second instance on which a rule fires."""
ENUMERATED_REFUSED = (140, 110, 80)
"""The same for the first tests that a rule refuses: conditions are often wrong there."""
IF_PROVED = 0.25
"""Share of the further instances that are tried for a rule that is proved. Edits are enumerated of one instance on
which it fires and of one that it refuses."""
LEAST_FIRED, MANY = 8, 25
"""Number of instances on which a rule must fire to count as tested, if that many times `MANY` were tried."""
MAX_ROUNDS = 40
_EDITED = weight_bounds([0.6, 0.25, 0.15])
"""Shares of the sampled instances with one, two and three random edits."""
_SATURATION_SECONDS = 20.0
_STORED = ("name", "numerics", "layer", "instances", "fired", "near_misses", "seconds", "problems", "notes", "proof",
           "proved_seconds", "assumptions")  # fmt: skip


@dataclass
class _Tally:
    instances: int = 0
    fired: int = 0
    near_misses: int = 0
    compared: int = 0
    bits: Counter[str] = field(default_factory=Counter)
    uncomputed: set[str] = field(default_factory=set)
    failure: str = ""
    reason: str = ""
    counterexample: Counterexample | None = None

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.instances += 1
        self.fired += outcome.fired
        self.near_misses += not outcome.fired and outcome.instance.steps > 0
        self.compared += outcome.compared
        self.uncomputed |= outcome.uncomputed
        if outcome.failure and not self.failure:
            self.failure = f"{outcome.failure} ({outcome.instance.key[:400]})"
        if outcome.fired:
            self.bits[outcome.bits] += 1

    def problems(self) -> list[str]:
        """Return why the rule fails, counterexamples aside."""
        found = [f"the engine failed on an instance: {self.failure}"] if self.failure else []
        because = f" ({self.reason})" if self.reason else ""
        if not self.instances:
            found.append(f"vacuous: no instance of the pattern could be built{because}")
        elif not self.fired:
            found.append(f"vacuous: it fired on none of {self.instances} instances{because}")
        elif not self.compared:
            found.append(_uncompared(sorted(self.uncomputed)))
        elif self.counterexample is None and self.fired < LEAST_FIRED <= self.instances // MANY:
            found.append(
                f"weakly tested: it fired on only {self.fired} of {self.instances} instances; add tests that it fires "
                "on, with other shapes, types and attributes: their edits are tried, too"
            )
        return found

    def notes(self, rule: ast.Rule, coverage: Coverage) -> list[str]:
        """Return what is worth knowing, such as a claim that may be too weak, or what was never tried."""
        known = {op for op in self.uncomputed if op in LEAVES or folding.by_numpy(op) or op in FLOAT64_KERNELS}
        never = sorted(self.uncomputed - known)
        found = [f"not computed on some instances: {', '.join(never)}"] if self.compared and never else []
        if self.fired < LEAST_FIRED or self.counterexample is not None:
            return found
        if missing := coverage.missing():
            found.append(f"never fired on {', '.join(missing)}")
        if rule.numerics != "exact" and self.compared and not self.bits["different"]:
            claim = "exact signed_zero" if self.bits["zeros"] else "exact"
            found.append(f"the two sides never differed in a bit: it may be `class {claim}`")
        elif "signed_zero" in rule.relaxations and not self.bits["zeros"]:
            found.append("the sign of a zero never differed: it may be `class exact`")
        return found


def _decisive(rule: ast.Rule, library: Library) -> References:
    """Return the functions that a rule is checked with.

    An operator with a definition is computed by it, on both sides: a function may round in another way. Only the
    definition itself, as the rule that recognizes the operator, is compared with the function."""
    defined = {op.name for op in library.ops if op.definition is not None}
    known = known_references().items()
    return {op: function for op, function in known if op not in defined or rule.name == f"recognize_{op}"}


def _uncompared(ops: Sequence[str]) -> str:
    """Return why nothing could be compared: no value of some operators is known."""
    message = f"nothing could be compared: there is no reference implementation of {', '.join(ops) or 'its operators'}"
    own = [op for op in ops if find_declared(op) is not None]
    return f"{message}; add a definition to its `op`, or --reference {own[0]}=MODULE:FUNCTION" if own else message


@dataclass
class Answer:
    """The prover's answer about a rule after about `seconds` of work, which is counted in steps; asked for once.

    The prover runs in the context in which this was made, whatever operators a check declares. `took` is the time of
    the search by the clock, `spent` its processor time, in seconds."""

    rule: ast.Rule
    library: Library
    seconds: float = 6.0
    took: float = 0.0
    spent: float = 0.0
    context: Context = field(default_factory=copy_context)

    @functools.cached_property
    def found(self) -> Proof | NotProved | None:
        """The answer; None if the solver (the extra `prove`) is not installed."""
        if importlib.util.find_spec("z3") is None:
            return None
        start, begun = time.perf_counter(), time.process_time()
        answer = self.context.run(prove, self.rule, self.library, seconds=self.seconds)
        self.took, self.spent = time.perf_counter() - start, time.process_time() - begun
        return answer

    @property
    def proved(self) -> bool:
        """Whether the rule is proved."""
        return isinstance(self.found, Proof)


def check_rule(
    rule: ast.Rule, library: Library, *, budget: Budget = DEFAULT, answer: Answer | None = None
) -> RuleReport:
    """Check one rule on sampled instances; the same budget gives the same report, time aside.

    `rule` need not be one of `library`, which defines the operators (`op` declarations). The prover's `answer` is asked
    for once the rule has fired on `LEAST_FIRED` instances; of a rule that is proved, fewer are tried from then on."""
    start, begun = time.perf_counter(), time.process_time()
    tally, coverage = _Tally(), Coverage()
    directions = subjects(rule, library)
    functions = reference_functions(_decisive(rule, library))
    with warnings.catch_warnings(), declared_operators(operators_of(library, {})), functions:
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of overflow, which is wanted here
        for number, subject in enumerate(directions, start=1):
            until = begun + budget.seconds * number / len(directions)
            search = _Search(subject, budget, tally, until, budget.instances * number // len(directions), answer)
            search.run()
            coverage.add(subject, search.fired)
            if tally.counterexample is not None:
                break
        problems, notes = tuple(tally.problems()), tuple(tally.notes(rule, coverage))
    return RuleReport(
        rule.name, rule.span.file, rule.span.line, " ".join((rule.numerics, *rule.relaxations)),
        2 if tally.counterexample is None and not problems else 1, tally.instances, tally.fired, tally.near_misses,
        time.perf_counter() - start - (answer.took if answer else 0.0), tally.counterexample, problems, notes,
    )  # fmt: skip


class _Search:
    """Rounds of instances of one subject.

    `limit` is the number of instances at which the search ends, `until` the processor time, without the prover's."""

    def __init__(
        self, subject: Subject, budget: Budget, tally: _Tally, until: float, limit: int, answer: Answer | None
    ) -> None:
        seed = [budget.seed, zlib.crc32(subject.rule.name.encode())]
        self.subject = subject
        self.budget = budget
        self.tally = tally
        self.until = until
        self.limit = limit
        self.answer = answer
        self.share = 1.0
        self.rng = np.random.default_rng(seed)
        self.sampling = Editing(subject, self.rng)
        self.enumerating = Editing(subject, np.random.default_rng([*seed, 1]))
        self.known: set[str] = set()
        self.fired: list[Instance] = []
        self.refused: list[Instance] = []
        self.to_enumerate: list[tuple[Instance, int]] | None = None
        self.tries: int | None = None

    def run(self) -> None:
        """Run rounds until a counterexample is found, or instances or time run out."""
        pending = list(seeds(self.subject))
        pending += [other for instance in pending[:2] for other in retyped(self.sampling, instance)]
        pending += sample_pattern(self.subject, self.rng, FROM_PATTERN)
        for number in range(MAX_ROUNDS):
            if not pending or self._late() or self._round(pending, alternating=number > 0):
                return
            if self.to_enumerate is None and self.tally.instances >= self.limit:
                return
            enough = self.share == 1 and self.tally.fired >= LEAST_FIRED
            if enough and self.answer is not None and self.answer.proved:
                self.share = IF_PROVED
                self.limit = self.tally.instances + self._shared(self.limit - self.tally.instances)
            pending = self._next()

    def _late(self) -> bool:
        return time.process_time() - (self.answer.spent if self.answer else 0.0) >= self.until

    def _shared(self, instances: int) -> int:
        return math.ceil(self.share * instances)

    def _round(self, pending: Sequence[Instance], *, alternating: bool) -> bool:
        """Run the instances that are new; return whether the rule is wrong on one."""
        exact = self.subject.rule.numerics == "exact"
        new: dict[str, Instance] = {}
        for instance in (i for i in pending if i.key not in self.known):
            # rules of other classes are not applied to terms over constants only
            if exact or not instance.tensors or not all(t.is_const for _, t in instance.tensors):
                new.setdefault(instance.key, instance)
        self.known |= new.keys()
        for group in groups(list(new.values())):
            batch = run(
                self.subject, group, seed=self.budget.seed, seconds=_SATURATION_SECONDS, alternating=alternating
            )
            self.tally.reason = self.tally.reason or batch.reason
            for outcome in (o for o in batch.outcomes if o.built):
                self.tally.add(outcome)
                if outcome.fired:
                    self.fired.append(outcome.instance)
                elif outcome.instance.steps <= 1:
                    self.refused.append(outcome.instance)
            if (found := confirmed(self.subject, batch.outcomes, self.budget)) is not None:
                self.tally.counterexample = shrink(self.subject, found, self.budget)
                return True
            if self._late():
                break
        return False

    def _next(self) -> list[Instance]:
        """Return the instances of the next round: enumerated edits first, then random ones."""
        if self.to_enumerate is None:
            chosen = []
            for found, shares in ((self.fired, ENUMERATED), (self.refused, ENUMERATED_REFUSED)):
                first = shares if self.share == 1 else shares[:1]
                chosen.append(zip([i for i in found if not _is_empty(i)] or found, first, strict=False))
            # in turn, since the time of a slow rule ends before all have had theirs
            self.to_enumerate = [one for pair in itertools.zip_longest(*chosen) for one in pair if one is not None]
        while self.to_enumerate:
            instance, most = self.to_enumerate.pop(0)
            if edited := enumerate_edits(self.enumerating, instance, self._shared(most), self._shared(PER_KIND)):
                return edited
        if not self.fired and not self.refused:
            return sample_pattern(self.subject, self.rng, FROM_PATTERN)
        if self.tries is None:
            self.limit = max(self.limit, self.tally.instances + self._shared(SAMPLED))
            self.tries = TRIES * (self.limit - self.tally.instances)
        count = min(ROUND, self.tries, 2 * (self.limit - self.tally.instances))
        self.tries -= count
        return [self._edited() for _ in range(count)]

    def _edited(self) -> Instance:
        """Return an instance after one to three random edits.

        Half of them start from the first instances that fired, which are tests, some from an instance that was refused:
        it may be one step away from where nothing fires yet."""
        pool = self.fired[:4] if self.rng.random() < 0.5 else self.fired
        if not self.fired or (self.refused and self.rng.random() < 0.15):
            pool = self.refused
        found: Instance = self.sampling.pick(pool)
        for _ in range(1 + weighted(self.rng, _EDITED)):
            found = sample_edit(self.sampling, found) or found
        return found


def groups(instances: Sequence[Instance]) -> list[list[Instance]]:
    """Divide the instances of a round by the e-graph that they share."""
    empty = [i for i in instances if _is_empty(i)]
    others = [i for i in instances if not _is_empty(i)]
    return [[*others, *empty[:EMPTY]], *(empty[at : at + EMPTY] for at in range(EMPTY, len(empty), EMPTY))]


def _is_empty(instance: Instance) -> bool:
    return any(0 in tensor.shape for _, tensor in instance.tensors)


def confirmed(subject: Subject, outcomes: Sequence[Outcome], budget: Budget) -> Outcome | None:
    """Return the simplest instance on which the rule is wrong in an e-graph of its own too.

    Instances of one e-graph share constants, results that are equal constants, and all empty tensors of one type. A
    difference may then be attributed to another instance, or to one that has none."""
    different = [o for o in outcomes if o.difference is not None]
    for outcome in sorted(different, key=lambda o: (o.instance.steps, len(o.instance.key))):
        alone = run(subject, [outcome.instance], seed=budget.seed, seconds=_SATURATION_SECONDS).outcomes[0]
        if alone.difference is not None:
            return alone
    if not different:
        return None
    if all(o.difference is not None and not np.size(o.difference.left) for o in different):
        # all empty tensors of a type are one class, whichever instance they belong to
        for outcome in [o for o in outcomes if o.built and o.fired and _is_empty(o.instance)][:EMPTY]:
            alone = run(subject, [outcome.instance], seed=budget.seed, seconds=_SATURATION_SECONDS).outcomes[0]
            if alone.difference is not None:
                return alone
        return None
    return _bisected(subject, [o.instance for o in outcomes if o.built], budget)


def _bisected(subject: Subject, instances: Sequence[Instance], budget: Budget) -> Outcome | None:
    """Return one of the instances on which the rule is wrong, found by bisection."""
    found = run(subject, instances, seed=budget.seed, seconds=_SATURATION_SECONDS).outcomes if instances else []
    different = [o for o in found if o.difference is not None]
    if not different or len(instances) == 1:
        return different[0] if different else None
    middle = len(instances) // 2
    return _bisected(subject, instances[:middle], budget) or _bisected(subject, instances[middle:], budget)


# --- many rules ---


def check(
    library: Library,
    rules: Iterable[ast.Rule] | None = None,
    *,
    budget: Budget = DEFAULT,
    workers: int | None = None,
    prove: bool = True,
    cache: Path | None = None,
    references: Sequence[str] = (),
    progress: Callable[[RuleReport], None] | None = None,
) -> list[RuleReport]:
    """Check rules of a library (all by default) in several processes; return reports in the order of the rules.

    `workers` defaults to the number of cores. With `prove`, the prover looks at rules without a counterexample. Reports
    are cached in the store below the directory `cache`, if given, by the content of rule, library and checker.
    `references` name functions that compute operators (`com.acme.Swish=module:function`); then nothing is cached.
    `progress` is called with each report as it becomes available."""
    chosen = list(rules) if rules is not None else [*library.rules, *recognitions(library)]
    found: dict[int, RuleReport] = {}
    keys: list[str] = []
    load_references(references)  # errors belong here, not into the reports of all rules
    if references:
        cache = None  # reports would depend on code that has no digest
    if cache is not None:
        entries, stamp = Store(cache).namespace("soundness"), _stamp(library, budget, prove)
        keys = [content_key(stamp, rule.content()) for rule in chosen]
        loaded = {i: _load(entries, key, chosen[i]) for i, key in enumerate(keys)}
        found = {i: report for i, report in loaded.items() if report is not None}
    if progress is not None:
        for report in found.values():
            progress(report)
    missing = [i for i in range(len(chosen)) if i not in found]
    start = functools.partial(_start, library, budget, references, prove) if missing else None
    reports = in_order(_check_one, [chosen[i] for i in missing], jobs=workers or usable_cores(), start=start)
    for index, report in zip(missing, reports, strict=True):
        found[index] = report
        if cache is not None and report.ok:
            stored = {name: getattr(report, name) for name in _STORED}
            entries.save(keys[index], json.dumps(stored).encode())
        if progress is not None:
            progress(report)
    return [found[i] for i in range(len(chosen))]


_STATE: dict[str, Any] = {}
"""What `_check_one` reads in a process of the pool."""


def _start(library: Library, budget: Budget, references: Sequence[str], prove: bool) -> None:
    _STATE.update(library=library, budget=budget, references=load_references(references), prove=prove)


@contextmanager
def _collected_last() -> Iterator[None]:
    """Collect garbage at the end only: collections visit the many objects of an e-graph again and again, which took a
    tenth of the time. E-graphs and paths of proofs are in no cycles, so that little waits for it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.collect(1)


def _check_one(rule: ast.Rule) -> RuleReport:
    try:
        with _collected_last(), reference_functions({**known_references(), **_STATE["references"]}):
            answer = Answer(rule, _STATE["library"]) if _STATE["prove"] else None
            report = check_rule(rule, _STATE["library"], budget=_STATE["budget"], answer=answer)
    except Exception as error:  # a bug of the checker or the engine must not cost the reports of all other rules
        problem = str(error) if isinstance(error, UserError) else f"the checker failed: {type(error).__name__}: {error}"
        claim = " ".join((rule.numerics, *rule.relaxations))
        return RuleReport(rule.name, rule.span.file, rule.span.line, claim, 1, 0, 1, 0, 0.0, problems=(problem,))
    return with_answer(report, answer) if answer is not None and report.ok else report


def with_answer(report: RuleReport, answer: Answer) -> RuleReport:
    """Return the report with the prover's answer, unchanged if there is none."""
    found = answer.found
    if found is None:
        return report
    if isinstance(found, NotProved):
        return dataclasses.replace(report, proof=f"not proved: {found.reason}", proved_seconds=answer.took)
    return dataclasses.replace(
        report, layer=3, proof=str(found), proved_seconds=answer.took, assumptions=found.assumptions
    )


# --- cached reports ---


def _stamp(library: Library, budget: Budget, prove: bool) -> str:
    """Return a digest of what all reports depend on: the operators, the budget, the code, ONNX and the solver."""
    import onnx

    solver = ""
    if importlib.util.find_spec("z3") is not None:
        import z3

        solver = z3.get_version_string()
    operators = [dataclasses.replace(op, tests=()).content() for op in library.ops]
    code = code_stamp("soundness", "engine", "grammar")
    return content_key(onnx.__version__, solver, code, repr(budget), str(prove), *operators)


def _load(entries: Namespace, key: str, rule: ast.Rule) -> RuleReport | None:
    payload = entries.read(key)
    if payload is None:
        return None
    stored: dict[str, Any] = json.loads(payload)
    values: dict[str, Any] = {name: tuple(v) if isinstance(v := stored[name], list) else v for name in _STORED}
    return RuleReport(file=rule.span.file, line=rule.span.line, **values)
