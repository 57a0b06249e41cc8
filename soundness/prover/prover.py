"""Driver of a proof: all cases of a rule, rank by rank."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ...grammar.library.load import Library
from ...grammar.syntax import ast
from ..certificates.certificate import Certificate
from .assumptions import assumptions
from .equality.equality import equal
from .equality.smt import Claim
from .execution.expressions import Postponed
from .execution.symbolic_run import Run
from .hazards import check_hazards
from .paths import element_types
from .paths.path import Failed, NotModeled, Path, explore
from .paths.step_budget import OutOfTime, StepBudget
from .paths.tensors import Tensor
from .proof import NotProved, Proof
from .semantics.elementwise import check_casts
from .semantics.sequences import pairs
from .terms import integers
from .write_certificate import certificate

HIGHEST = 5
"""Highest rank that is tried."""
LEAST = 3
"""First rank that is tried. A proof must reach it, because mistakes with permutations show from rank 3 on."""
POINTWISE = 0.4
"""Share of the work for an elementwise proof."""
UNCLAMPED = 0.4
"""Share of the work for a proof that leaves the bounds of slices abstract."""
HIGHER = 0.2
"""Share of the work for each rank after the first that was proved."""
GROWTH = 4
"""Estimated factor between the work of a rank and of the next."""
PATHS = 20_000
NO_CASE = "no case up to this rank"


@dataclass
class Tally:
    """Summary of the cases of a proof. `methods` are those of comparison, `parts` the paths of each direction and size
    of a group, the rest is as in `Path`."""

    cases: int = 0
    ranks: set[int] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    limits: set[str] = field(default_factory=set)
    operators: set[str] = field(default_factory=set)
    assumed: set[str] = field(default_factory=set)
    parts: list[list[Path]] = field(default_factory=list)


class Rejected(Exception):
    """The sides were not shown equal in a case, which the message describes."""


REASONS = {NotModeled: "not modeled", Failed: "right side", Rejected: "not shown equal"}
"""Kind of a missing proof by exception type."""
UNPROVED = tuple(REASONS)


def directions(rule: ast.Rule) -> list[tuple[Any, Any]]:
    """Return the directions in which a rule may be applied, with each choice of its optional operands."""
    lhs = rule.lhs
    if isinstance(lhs, ast.Alternatives) and any(isinstance(option, ast.Omitted) for option in lhs.options):
        return [(option, rule.rhs) for option in lhs.options]
    return [(lhs, rule.rhs)] + ([(rule.rhs, lhs)] if rule.bidirectional else [])


def one_case(run: Run, lhs: Any, rhs: Any, tally: Tally) -> bool:
    """Evaluate and compare both sides of the rule on one path."""
    path, rule = run.path, run.rule
    if isinstance(lhs, ast.Omitted):
        run.env.update({default.name: run.evaluate(default.default) for default in lhs.defaults})
        lhs = lhs.pattern
    left = _roots(lhs)
    run.bind([e for _, e in left], left[0][0].index.id if run.members else None)  # the `i` of `y[i]`
    later = []
    for condition in rule.where:
        if run.reads_pattern(condition):
            with suppress(Postponed, Failed):
                run.hold(condition)
                continue
        later.append(condition)
    outputs = {name: tensor for target, expr in left for name, tensor in run.root(target.name, expr)}
    if not run.members:
        run.env |= {target.name: outputs[target.name] for target, _ in left if target.name not in ("=", "")}
    run.settled = True
    run.check_given()
    for condition in later:
        run.hold(condition)
    path.require(path.possible(), "contradiction")
    path.right = True
    replaced = [pair for target, expr in _roots(rhs) for pair in _replacements(run, target, expr, outputs)]
    path.right = False
    check_casts(path)
    for a, b in (compared for pair in replaced for compared in pairs(path, *pair)):
        _compare(path, a, b, claim_of(rule), tally)
    tally.limits |= path.bounded
    tally.operators |= path.operators
    tally.assumed |= path.assumed
    return True


def claim_of(rule: ast.Rule) -> Claim:
    """Return what a rule promises."""
    return Claim(rule.numerics, "signed_zero" in rule.relaxations)


def _roots(side: Any) -> list[tuple[Any, ast.Expr]]:
    if isinstance(side, ast.Roots):
        return [(b.target, b.value) for b in side.bindings]
    return [(ast.Target(span=side.span, name="="), side)]


def _replacements(
    run: Run, target: Any, expr: ast.Expr, outputs: Mapping[str, Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the tensors of a root of the pattern with those that replace them."""
    if isinstance(target.index, ast.All):
        several = isinstance(expr, ast.Call) and expr.is_operator
        values = run.items(run.outputs(expr, None) if isinstance(expr, ast.Call) and several else run.evaluate(expr))
        if len(values) != run.members:
            raise Failed("the number of results is not that of members")
    elif run.members and target.index is not None:
        values = list(run.per_member(expr))
    else:
        value = run.evaluate(expr)
        output = outputs[target.name]
        yield output, value if isinstance(value, Tensor) else run.constant(value, output.dtype)
        return
    for i, value in enumerate(values):
        yield outputs[f"{target.name}[{i}]"], run.tensor(value)


def _compare(path: Path, a: Tensor, b: Tensor, claim: Claim, tally: Tally) -> None:
    """Compare two tensors, assuming one type and shape, because the engine applies a rule only there."""
    element_types.unify(path, a.dtype, b.dtype)
    index: list[integers.Int] = []
    if not path.pointwise:
        path.require(a.rank == b.rank, "the ranks differ")
        for d, e in zip(a.shape, b.shape, strict=True):
            path.assume(integers.eq(d, e))
        path.require(path.possible(), "contradiction")
        index = [path.index(path.fresh("o"), d, summed=False) for d in a.shape]
        path.require(path.possible(), "the result is empty")
    left, right = a.at(index), b.at(index)
    method = equal(path, left, right, claim, a.dtype)
    if not method:
        path.require(path.possible(), "contradiction")
        raise Rejected("; ".join(path.log) or "the general case")
    path.goals.append((left, right, a.dtype, method))
    tally.methods.add(method)
    if not path.pointwise:
        tally.ranks.add(a.rank)


def prove_rule(rule: ast.Rule, library: Library, seconds: float) -> tuple[Proof, Certificate] | NotProved:
    """Prove a rule at any rank if it is elementwise, else rank by rank as long as work is left.

    The proof is the prover's alone; its certificate is for the checker."""
    with _alone():
        attempt = Attempt(rule, {op.name: op for op in library.ops}, StepBudget(seconds))
        try:
            return attempt.proof()
        except UNPROVED as error:
            return NotProved(shortened(f"{REASONS[type(error)]}: {error}"))
        finally:
            for path in attempt.paths:
                path.release()


def shortened(text: str) -> str:
    """Return a reason of at most 300 characters."""
    return text if len(text) <= 300 else text[:297] + "..."


@contextmanager
def _alone() -> Iterator[None]:
    """Give the proof a solver state of its own, and collect no garbage: nearly all objects live as long as it does.

    The solver orders terms by when they were created and freed, so earlier proofs would change what it does."""
    integers.reset_solver()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Attempt:
    """Search for a proof of one rule, with all paths that it has taken."""

    rule: ast.Rule
    ops: Mapping[str, ast.Op]
    meter: StepBudget
    paths: list[Path] = field(default_factory=list)

    def proof(self) -> tuple[Proof, Certificate] | NotProved:
        """Try a proof element by element, then one with abstract bounds of slices, then one by rank."""
        for left, right in directions(self.rule):
            check_hazards(self.rule, left, right)
        try:
            with self.meter.share(POINTWISE):
                return self._proof(self._all_groups(0, "pointwise"), elementwise=True)
        except OutOfTime:
            return NotProved("out of time: element by element")
        except (NotModeled, Failed, RecursionError):  # a rejection is final: shapes add nothing for such a rule
            pass
        if self._slices():
            with suppress(*UNPROVED, OutOfTime, RecursionError), self.meter.share(UNCLAMPED):
                return self._proof(self._by_rank("unclamped"))
        try:
            return self._proof(self._by_rank(""))
        except (OutOfTime, RecursionError):
            return NotProved(f"out of time: before rank {LEAST} was done")

    def _proof(self, tally: Tally, *, elementwise: bool = False) -> tuple[Proof, Certificate]:
        ranks = None if elementwise else tuple(sorted(tally.ranks))
        found = Proof(
            self.rule.name, ranks, tuple(sorted(tally.methods)), tally.cases, tuple(sorted(tally.limits)),
            assumptions(self.rule, tally.methods, tally.operators, tally.assumed),
        )  # fmt: skip
        self.meter.lift()
        return found, certificate(self.rule.name, claim_of(self.rule), tally.parts)

    def _slices(self) -> bool:
        sides = (e for side in (self.rule.lhs, self.rule.rhs) for _, e in _roots(side))
        return any(isinstance(e, ast.Call) and e.head == "Slice" for side in sides for e in side.walk())

    def _by_rank(self, mode: str) -> Tally:
        """Prove all cases up to the highest rank for which work is left; each rank includes those below it."""
        found: Tally | None = None
        last = 0
        for rank in range(LEAST, HIGHEST + 1):
            begun = self.meter.spent
            if found is not None and GROWTH * last > HIGHER * self.meter.limit:
                break
            try:
                with self.meter.share(1.0 if found is None else HIGHER):
                    found = self._all_groups(rank, mode, first=found is None)
            except NotModeled as error:
                if str(error) != NO_CASE:
                    raise
            except (OutOfTime, RecursionError):
                if found is None:
                    raise
                break
            last = self.meter.spent - begun
        if found is None:
            raise NotModeled(NO_CASE)
        return found

    def _all_groups(self, rank: int, mode: str, *, first: bool = False) -> Tally:
        """Prove all cases up to a rank, in a mode of operator semantics (`pointwise`, `unclamped` or none).

        The `first` proof is given up early where its cases are too many; higher ranks have a small share anyway.
        Raises `Rejected`, `NotModeled`, `Failed` or `OutOfTime`."""
        lhs = self.rule.lhs
        group = isinstance(lhs, ast.Roots) and isinstance(lhs.bindings[0].target.index, ast.Name)
        tally = Tally()
        for members in (2, 3) if group else (0,):
            for direction in directions(self.rule):
                before = tally.cases
                self._direction(direction, rank, mode, members, tally, first=first)
                if tally.cases == before:
                    raise NotModeled(NO_CASE)
        if group:
            tally.limits.add("groups of 2 and 3")
        return tally

    def _direction(
        self, sides: tuple[Any, Any], rank: int, mode: str, members: int, tally: Tally, *, first: bool
    ) -> None:
        memo: dict[Any, Any] = {}
        begun = self.meter.spent

        def case(path: Path) -> bool:
            try:
                return one_case(Run(path, self.rule, self.ops, members), *sides, tally)
            except Postponed:
                raise NotModeled("an attribute that no operator reads") from None

        def made(script: list[int]) -> Path:
            self.paths.append(Path(script, self.meter, memo, rank, mode))
            return self.paths[-1]

        paths = explore(case, made, PATHS)
        tally.parts.append([])
        for path, result in paths:
            tally.cases += bool(result)
            tally.parts[-1].append(path)
            if first and self.meter.hopeless(begun, path.progress()):
                raise OutOfTime
