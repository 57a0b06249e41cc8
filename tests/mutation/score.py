"""Score of the checker: the share of unsound mutants that it catches.

Each mutant passes through the layers in order. The static checks may refuse it. If the oracle has a witness against it,
layer 2 must find a counterexample, or fail the mutant because it never fires. A mutant that passes layer 2 is missed,
which is a bug of the checker; one that layer 3 *proves* is a bug of the prover. Mutants without a witness count as
sound; with `thorough` the checker looks at these too, and a refuted one counts as caught.
"""

from __future__ import annotations

import dataclasses
import gc
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from rewrite.engine.rewriting.rule_library import OperatorTable, load_rules, recognitions
from rewrite.grammar.checks.check import check_rule as check_alone
from rewrite.grammar.checks.check_calls import Operators
from rewrite.grammar.library.load import Library
from rewrite.grammar.printing.printer import print_rule
from rewrite.grammar.syntax import ast
from rewrite.soundness import Budget, check_rule
from rewrite.soundness.checking.check_rule import Answer, with_answer
from rewrite.system import process_pool

from .mutate import Mutant, mutants
from .search import VERSION, Verdict, Witness, oracles
from .store import RuleResults, key, sources

CAUGHT = ("static", "tested", "vacuous")
"""Ways to catch a mutant in one check: when it is loaded, by a counterexample, or because it fires on no instance."""
BUDGET = Budget(shrink=False)
"""Budget of layer 2 for a mutant: that of a rule, without shrinking."""
SEEDS = (1, 2, 3, 4, 5)
"""Seeds of further checks of a mutant that the first one misses."""
_COLLECTIONS = (200_000, 50, 50)
"""Thresholds of the garbage collector: e-graphs are many objects that live long, and collections visit all of them."""
PROVING = 0.1
"""Seconds of work after which the proof of an unsound mutant is given up. Most have none, and the prover would spend as
much on each as on a rule that is too hard for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one mutant.

    `caught` is one of `CAUGHT`, `reseeded` (by a check with one of the `SEEDS`), `missed`, `proved` (missed, and proved
    by layer 3), or `sound` (without a witness).
    `evidence` is what caught it, or the oracle's witness. `error` is the engine's message if it could not run the
    mutant. `proof` holds the proof of a mutant against which there is a witness, even if it was caught before."""

    file: str
    rule: str
    line: int
    kind: str
    description: str
    text: str
    caught: str
    evidence: str = ""
    error: str = ""
    proof: str = ""


@dataclass(frozen=True, slots=True)
class RuleScore:
    """Outcomes of one rule's mutants, and the oracle's witness against the rule itself, if it has one."""

    rule: str
    file: str
    outcomes: tuple[Outcome, ...]
    unsound: str = ""


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    thorough: bool
    each: int


def score(
    paths: Sequence[Path],
    select: str | None = None,
    *,
    std: bool = True,
    jobs: int = 1,
    thorough: bool = False,
    each: int = 1,
    progress: Callable[[RuleScore], None] | None = None,
) -> list[RuleScore]:
    """Score the rules in files, or the one named `select`, in their order; results are cached between runs.

    Of the mutants of a rule, every `each`th is taken."""
    library = load_rules(paths, std=std)
    files = {str(Path(f).resolve()) for p in paths for f in (sorted(p.glob("*.rules")) if p.is_dir() else [p])}
    names = [
        rule.name
        for rule in all_rules(library)
        if str(Path(rule.span.file).resolve()) in files and select in (None, rule.name)
    ]
    found = []
    start = partial(_open, tuple(map(str, paths)), std)
    for one in process_pool.in_order(_score_named, [_Task(n, thorough, each) for n in names], jobs=jobs, start=start):
        found.append(one)
        if progress is not None:
            progress(one)
    return found


def all_rules(library: Library) -> list[ast.Rule]:
    """Return the rules of a library and those that recognize operators by their definition."""
    return [*library.rules, *recognitions(library)]


_opened: dict[str, tuple[Library, dict[str, ast.Rule]]] = {}


def _open(paths: tuple[str, ...], std: bool) -> None:
    gc.set_threshold(*_COLLECTIONS)
    library = load_rules(paths, std=std)
    _opened["library"] = (library, {rule.name: rule for rule in all_rules(library)})


def _score_named(task: _Task) -> RuleScore:
    library, rules = _opened["library"]
    rule = rules[task.name]
    first = zlib.crc32(rule.name.encode()) % task.each  # or the kinds that come first would be taken of every rule
    return score_rule(rule, library, chosen=mutants(rule)[first :: task.each], thorough=task.thorough)


def score_rule(
    rule: ast.Rule, library: Library, *, chosen: Sequence[Mutant] | None = None, thorough: bool = False
) -> RuleScore:
    """Score the mutants of one rule, or those `chosen` of them."""
    every = list(mutants(rule) if chosen is None else chosen)
    refusals = {i: message for i, m in enumerate(every) if (message := refusal(m.rule, library))}
    store = RuleResults(key(rule.name, Path(rule.span.file).name)[:24])
    declared = _declared(library)
    asked = [Mutant("none", "the rule itself", rule), *(m for i, m in enumerate(every) if i not in refusals)]
    names = [key("oracle", str(VERSION), sources(False), declared, print_rule(rule), _text(m)) for m in asked]
    left = [i for i, name in enumerate(names) if store.get(name) is None]
    if left:
        for i, verdict in zip(left, oracles(rule, [asked[i].rule for i in left], library), strict=True):
            store.put(names[i], _as_json(verdict))
    verdicts = [_from_json(store.get(name)) for name in names]
    outcomes: dict[int, Outcome] = {}
    for i, message in refusals.items():
        outcomes[i] = _outcome(rule, every[i], "static", message)
    wanted = list(names)
    at = (i for i in range(len(every)) if i not in refusals)
    for i, verdict in zip(at, verdicts[1:], strict=True):
        outcomes[i], answers = _judge(rule, every[i], verdict, library, store, declared, thorough)
        wanted += answers
    store.write(wanted)
    against = verdicts[0].witness
    return RuleScore(
        rule.name, rule.span.file, tuple(outcomes[i] for i in range(len(every))), _described(against) if against else ""
    )


def _judge(
    rule: ast.Rule,
    mutant: Mutant,
    verdict: Verdict,
    library: Library,
    store: RuleResults,
    declared: str,
    thorough: bool,
) -> tuple[Outcome, list[str]]:
    name = key("checker", repr(BUDGET), str(PROVING), sources(True), declared, print_rule(rule), _text(mutant))
    if verdict.error:
        return dataclasses.replace(_outcome(rule, mutant, "sound", ""), error=verdict.error), [name]
    if verdict.witness is None and not thorough:
        return _outcome(rule, mutant, "sound", ""), [name]
    if store.get(name) is None:
        store.put(name, list(checked(mutant.rule, library)))
    caught, evidence, proof = store.get(name)
    if verdict.witness is None:
        return _outcome(rule, mutant, "tested" if caught == "tested" else "sound", evidence), [name]
    wanted = [name]
    for seed in SEEDS if not caught else ():
        budget = dataclasses.replace(BUDGET, seed=seed)
        wanted.append(again := key(name, str(seed)))
        if store.get(again) is None:
            store.put(again, list(checked(mutant.rule, library, budget)))
        if store.get(again)[0]:
            caught, evidence = "reseeded", f"seed {seed}: {store.get(again)[1]}"
            break
    became = caught or ("proved" if proof else "missed")
    return dataclasses.replace(
        _outcome(rule, mutant, became, evidence or _described(verdict.witness)),
        proof=proof and f"{proof}; but {_described(verdict.witness)}",
    ), wanted


def checked(rule: ast.Rule, library: Library, budget: Budget = BUDGET) -> tuple[str, str, str]:
    """Return how a rule is caught (`tested`, `vacuous`, or empty), the evidence, and the proof if layer 3 finds one.

    A rule that hardly ever fires counts as vacuous. Layer 3 is asked even if layer 2 has caught the rule."""
    try:
        report = check_rule(rule, library, budget=budget)
    except Exception as error:  # a bug of the checker: the mutant is not caught
        return "", f"the checker failed: {type(error).__name__}: {error}", ""
    caught, evidence = "", "; ".join(report.problems)
    if report.counterexample is not None:
        caught, evidence = "tested", f"{report.counterexample.operands}: {report.counterexample.message}"
    elif evidence:
        caught = "vacuous" if report.verdict in ("vacuous", "weak") else "tested"
    proved = with_answer(dataclasses.replace(report, layer=2, problems=()), Answer(rule, library, PROVING))
    return caught, evidence, proved.proof if proved.layer > 2 else ""


def refusal(rule: ast.Rule, library: Library) -> str:
    """Return the first error of the static checks; empty if there is none."""
    found = check_alone(dataclasses.replace(rule, tests=()), _operators(tuple(library.ops)))
    errors = [d for d in found if d.severity == "error"]
    return f"{errors[0].code}: {errors[0].message}" if errors else ""


@cache
def _operators(declared: tuple[ast.Op, ...]) -> Operators:
    return Operators(declared, OperatorTable())


def _declared(library: Library) -> str:
    return key(*(print_rule(op) for op in library.ops))


def _text(mutant: Mutant) -> str:
    return f"{mutant.kind}: {print_rule(dataclasses.replace(mutant.rule, tests=()))}"


def _outcome(rule: ast.Rule, mutant: Mutant, caught: str, evidence: str) -> Outcome:
    text = print_rule(dataclasses.replace(mutant.rule, tests=()))
    file = Path(rule.span.file).name
    return Outcome(file, rule.name, rule.span.line, mutant.kind, mutant.description, text, caught, evidence)


def _described(witness: Witness) -> str:
    return f"{witness.message} on {witness.inputs}: {witness.graph}"


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return dataclasses.asdict(verdict)


def _from_json(value: dict[str, Any]) -> Verdict:
    witness = value["witness"]
    return Verdict(
        None if witness is None else Witness(**witness), value["equations"], value["compared"], value["error"]
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: the number of mutants by result."""

    name: str
    mutants: int
    static: int
    tested: int
    vacuous: int
    reseeded: int
    missed: int
    proved: int
    sound: int

    @property
    def score(self) -> float:
        """Share of the unsound mutants that one check catches; 1 if there are none."""
        return self.caught / self.unsound if self.unsound else 1.0

    @property
    def caught(self) -> int:
        """Number of mutants that one check catches."""
        return self.static + self.tested + self.vacuous

    @property
    def unsound(self) -> int:
        """Number of mutants known to be unsound."""
        return self.caught + self.reseeded + self.missed + self.proved


def lines(outcomes: Iterable[Outcome], field: str) -> Iterator[Line]:
    """Yield the table by `kind` or `file`, in the order of their names."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome, field), []).append(outcome)
    for name in sorted(groups):
        yield line(name, groups[name])


def line(name: str, outcomes: Sequence[Outcome]) -> Line:
    """Return the row of some outcomes."""
    count = {
        what: sum(o.caught == what for o in outcomes) for what in (*CAUGHT, "reseeded", "missed", "proved", "sound")
    }
    return Line(name, len(outcomes), **count)
