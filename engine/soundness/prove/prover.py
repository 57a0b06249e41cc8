"""The proof of a rule: all its cases, rank by rank."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ....grammar import ast
from ....grammar.library import Library
from . import NotProved, Proof, integers, types
from .equality import Claim, equal
from .expressions import Postponed
from .meter import Meter, OutOfTime
from .path import Failed, Infeasible, NotModelled, Path, explore
from .run import Run
from .tensors import Tensor

HIGHEST = 5
"""The highest rank that is tried."""
COLLECTED = 32
"""After so many cases what they leave behind is collected."""
LEAST = 3
"""The rank that is tried first: a proof that does not reach it is none, since what goes wrong with permutations goes
wrong from there on."""
POINTWISE = 0.4
"""The share of the work that may go into a proof element by element."""
UNCLAMPED = 0.4
"""The share of the work that may go into a proof that does not ask where the bounds of slices lie."""
HIGHER = 0.2
"""The share of the work that may go into each rank beyond the first that was proved."""
GROWTH = 4
"""How many times the work of a rank the next one takes, at least."""
PATHS = 20_000
NO_CASE = "no case up to this rank"


@dataclass
class Tally:
    """What the cases of a proof had in common."""

    cases: int = 0
    ranks: set[int] = field(default_factory=set)
    ways: set[str] = field(default_factory=set)
    limits: set[str] = field(default_factory=set)


class Rejected(Exception):
    """A case in which the sides were not found equal; the message describes it."""


def directions(rule: ast.Rule) -> list[tuple[Any, Any]]:
    """The ways a rule may be applied."""
    return [(rule.lhs, rule.rhs)] + ([(rule.rhs, rule.lhs)] if rule.bidirectional else [])


def prove_at(rule: ast.Rule, ops: Mapping[str, ast.Op], max_rank: int, meter: Meter, mode: str, members: int) -> Tally:
    """All cases up to a rank, in a mode of reading operators (`pointwise`, `unclamped` or none).

    Raises `Rejected`, `NotModelled`, `Failed` or `OutOfTime`."""
    tally = Tally()
    for lhs, rhs in directions(rule):
        before = tally.cases
        memo: dict[Any, Any] = {}

        def make(script: list[int], memo: dict[Any, Any] = memo) -> Path:
            path = Path(script, meter, memo, max_rank)
            if mode:
                path.extra[mode] = True
            return path

        def case(path: Path, lhs: Any = lhs, rhs: Any = rhs) -> bool:
            try:
                return one_case(Run(path, rule, ops, members), lhs, rhs, tally)
            except Postponed:
                raise NotModelled("an attribute that no operator has asked for") from None

        for count, (_, result) in enumerate(explore(case, make, PATHS), start=1):
            tally.cases += bool(result)
            if count % COLLECTED == 0:
                gc.collect(1)
        if tally.cases == before:
            raise NotModelled(NO_CASE)
    return tally


def one_case(run: Run, lhs: Any, rhs: Any, tally: Tally) -> bool:
    """One case: both sides of the rule are evaluated and compared. False if there is nothing to compare."""
    path, rule = run.path, run.rule
    left, right = _roots(lhs), _roots(rhs)
    index = None
    if run.members:
        index = left[0][0].index.id  # the `i` of `y[i]`
    run.bind([e for _, e in left], index)
    later = []
    for condition in rule.where:
        if not _early(run, condition):
            later.append(condition)
            continue
        try:
            run.hold(condition)
        except (Postponed, Failed):
            later.append(condition)
    outputs: dict[str, Tensor] = {}
    for target, expr in left:
        for member in range(run.members) if run.members else [None]:
            name = target.name if member is None else f"{target.name}[{member}]"
            outputs[name] = run.root(expr, member)[0]
    if index is not None:
        run.env.pop(index, None)
    run.check_given()
    for condition in later:
        run.hold(condition)
    if not path.possible():
        raise Infeasible("contradiction")
    path.right = True
    pairs = _pairs(run, right, outputs)
    path.right = False
    claim = Claim(rule.numerics, "signed_zero" in rule.relaxations)
    for a, b in pairs:
        _compare(path, a, b, claim, tally)
    tally.limits |= path.extra.get("bounded", set())
    return True


def _early(run: Run, condition: ast.Expr) -> bool:
    """Whether a condition speaks of the variables of the pattern only."""
    todo, seen = [condition], set()
    while todo:
        for e in todo.pop().walk():
            if isinstance(e, ast.Call) and e.is_operator:
                return False
            if isinstance(e, ast.Name):
                if e.id in run.lets and e.id not in seen:
                    seen.add(e.id)
                    todo.append(run.lets[e.id])
                else:
                    _make_input(run, e.id)
    return True


def _make_input(run: Run, name: str) -> None:
    """Makes a variable that stands for an input of the pattern, so that a condition can speak of it first."""
    if name in run.env or name in run.indexed or name in ("none", "true", "false", "inf", "nan", "pi"):
        return
    for e in (p for root in run.roots for p in root.walk()):
        for a in e.args if isinstance(e, ast.Call) else (e.left, e.right) if isinstance(e, ast.Binary) else ():
            if isinstance(a, ast.Optional) and a.name == name:
                run._optional(a)
                return
            if isinstance(a, ast.Name) and a.id == name:
                run.leaf(name)
                return


def _roots(side: Any) -> list[tuple[Any, ast.Expr]]:
    if isinstance(side, ast.Roots):
        return [(b.target, b.value) for b in side.bindings]
    return [(ast.Target(span=side.span, name="="), side)]


def _pairs(run: Run, right: Sequence[tuple[Any, ast.Expr]], outputs: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each root of the pattern with the tensor that replaces it."""
    found: list[tuple[Tensor, Tensor]] = []
    for target, expr in right:
        if isinstance(target.index, ast.All):
            built = isinstance(expr, ast.Call) and expr.is_operator
            values = run.items(run._outputs(expr, None) if isinstance(expr, ast.Call) and built else run.evaluate(expr))
            if len(values) != run.members:
                raise Failed("as many results as members")
            for i, v in enumerate(values):
                found.append((outputs[f"{target.name}[{i}]"], run.tensor(v)))
        elif run.members and target.index is not None:
            assert run.index is not None
            for i in range(run.members):
                run.env[run.index] = i
                found.append((outputs[f"{target.name}[{i}]"], run.tensor(run.evaluate(expr))))
            run.env.pop(run.index)
        else:
            value = run.evaluate(expr)
            if not isinstance(value, Tensor):
                value = run.constant(value, outputs[target.name].dtype)
            found.append((outputs[target.name], value))
    return found


def _compare(path: Path, a: Tensor, b: Tensor, claim: Claim, tally: Tally) -> None:
    """That two tensors are equal. The engine applies a rule only where they have one type and shape."""
    types.unify(path, a.dtype, b.dtype)
    index: list[integers.Int] = []
    if not path.extra.get("pointwise"):
        if a.rank != b.rank:
            raise Infeasible("the ranks differ")
        for d, e in zip(a.shape, b.shape, strict=True):
            path.assume(integers.eq(d, e))
        if not path.possible():
            raise Infeasible("contradiction")
        index = [path.index(path.fresh("o"), d, summed=False) for d in a.shape]
        if not path.possible():
            raise Infeasible("the result is empty")
    way = equal(path, a.at(index), b.at(index), claim, a.dtype)
    if not way:
        if not path.possible():
            raise Infeasible("contradiction")
        raise Rejected("; ".join(path.log) or "the general case")
    tally.ways.add(way)
    if not path.extra.get("pointwise"):
        tally.ranks.add(a.rank)


def prove_rule(rule: ast.Rule, library: Library, seconds: float) -> Proof | NotProved:
    """A proof at any rank if the rule is elementwise, else rank by rank for as long as work is left."""
    with _alone():
        return _prove_rule(rule, library, Meter(seconds))


@contextmanager
def _alone() -> Iterator[None]:
    """A state of the solver of its own, and no collection of garbage but when it is asked for: terms are ordered by
    when they were made and freed, so what came before would show in what the solver does."""
    integers.forget()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _prove_rule(rule: ast.Rule, library: Library, meter: Meter) -> Proof | NotProved:
    ops = {op.name: op for op in library.ops}
    groups = (2, 3) if _is_group(rule) else (0,)
    try:
        with meter.share(POINTWISE):
            return _proof(rule, _all_groups(rule, ops, 0, meter, groups, "pointwise"), None)
    except Rejected as error:  # shapes would tell no more of a rule that is elementwise
        return NotProved(_short(f"not shown equal: {error}"))
    except OutOfTime:
        return NotProved("out of time: element by element")
    except (NotModelled, Failed, RecursionError):
        pass
    if _slices(rule):
        with suppress(NotModelled, Failed, Rejected, OutOfTime, RecursionError), meter.share(UNCLAMPED):
            found = _by_rank(rule, ops, meter, groups, "unclamped")
            return _proof(rule, found, tuple(sorted(found.ranks)))
    try:
        found = _by_rank(rule, ops, meter, groups, "")
    except NotModelled as error:
        return NotProved(_short(f"not modelled: {error}"))
    except Failed as error:
        return NotProved(_short(f"right side: {error}"))
    except Rejected as error:
        return NotProved(_short(f"not shown equal: {error}"))
    except (OutOfTime, RecursionError):
        return NotProved(f"out of time: before rank {LEAST} was done")
    return _proof(rule, found, tuple(sorted(found.ranks)))


def _by_rank(rule: ast.Rule, ops: Mapping[str, ast.Op], meter: Meter, groups: Sequence[int], mode: str) -> Tally:
    """All cases up to the highest rank that there is work for, each rank with those below it."""
    found: Tally | None = None
    last = 0
    for rank in range(LEAST, HIGHEST + 1):
        begun = meter.spent
        if found is not None and GROWTH * last > HIGHER * meter.limit:
            break
        try:
            with meter.share(1.0 if found is None else HIGHER):
                found = _all_groups(rule, ops, rank, meter, groups, mode)
        except NotModelled as error:
            if str(error) != NO_CASE:
                raise
        except (OutOfTime, RecursionError):
            if found is None:
                raise
            break
        last = meter.spent - begun
    if found is None:
        raise NotModelled(NO_CASE)
    return found


def _all_groups(
    rule: ast.Rule, ops: Mapping[str, ast.Op], rank: int, meter: Meter, groups: Sequence[int], mode: str
) -> Tally:
    total = Tally()
    for members in groups:
        tally = prove_at(rule, ops, rank, meter, mode, members)
        total.cases += tally.cases
        total.ranks |= tally.ranks
        total.ways |= tally.ways
        total.limits |= tally.limits
        if members:
            total.limits.add("groups of 2 and 3")
    return total


def _proof(rule: ast.Rule, tally: Tally, ranks: tuple[int, ...] | None) -> Proof:
    return Proof(rule.name, ranks, tuple(sorted(tally.ways)), tally.cases, tuple(sorted(tally.limits)))


def _is_group(rule: ast.Rule) -> bool:
    return isinstance(rule.lhs, ast.Roots) and isinstance(rule.lhs.bindings[0].target.index, ast.Name)


def _slices(rule: ast.Rule) -> bool:
    sides = [e for side in (rule.lhs, rule.rhs) for _, e in _roots(side)]
    return any(isinstance(e, ast.Call) and e.head == "Slice" for side in sides for e in side.walk())


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."
