"""Checker of certificates: all cases are there, each step follows from those before, and the goals hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .certificate import Case, Certificate, Goal, Step
from .comparison import Equality
from .facts import CaseSolver, Effort, Exhausted, Facts, Refused, own_context
from .theories import decided

EFFORT = 600_000
"""Units of work for a certificate."""


def check(certificate: Certificate, effort: int = EFFORT) -> str | None:
    """Return why a certificate is refused; None if it is confirmed."""
    try:
        with own_context():
            if not certificate.parts:
                raise Refused("no cases")
            left = Effort(effort)
            for cases in certificate.parts:
                _complete(cases)
                _check_part(certificate, cases, left)
    except (Refused, Exhausted) as error:
        return str(error)
    except RecursionError:
        return "out of time"
    return None


def _complete(cases: Sequence[Case]) -> None:
    """Check that the cases are the leaves of one tree of choices, none left out. Raises `Refused`."""
    expected: tuple[int, ...] | None = ()
    for case in cases:
        if expected is None or case.taken[: len(expected)] != expected or any(case.taken[len(expected) :]):
            raise Refused(f"the cases {expected} are missing")
        if len(case.options) != len(case.taken) or any(k >= n for k, n in zip(case.taken, case.options, strict=True)):
            raise Refused(f"the case {case.taken} is not one of its options")
        rest = list(case.taken)
        while rest and rest[-1] + 1 >= case.options[len(rest) - 1]:
            rest.pop()
        expected = (*rest[:-1], rest[-1] + 1) if rest else None
    if expected is not None:
        raise Refused(f"the cases {expected} are missing")


def _check_part(certificate: Certificate, cases: Sequence[Case], effort: Effort) -> None:
    checked: dict[Any, tuple[int, Step]] = {}
    solver = CaseSolver()
    if not any(case.goals for case in cases):
        raise Refused("no case has a goal")
    for case in cases:
        facts = Facts(case, checked, effort, solver)
        for step in case.steps:
            facts.replay(step)
        for goal in case.goals:
            _check_goal(certificate, case, goal, facts)


def _check_goal(certificate: Certificate, case: Case, goal: Goal, facts: Facts) -> None:
    sides = Equality(case, facts)
    left, right = sides.prepared(goal.left, goal.right)
    if sides.equal(left, right, "same"):
        return
    dtype = sides.type_of(left) or sides.type_of(right) or goal.dtype
    kinds = sides.kinds(dtype)
    if len(kinds) != 1:
        raise Refused(f"the case {case.taken} leaves open what {dtype} is")
    arithmetic = {"float": certificate.numerics, "bool": "exact"}.get(kinds[0], "ring")
    if arithmetic == "exact":
        arithmetic = "zeros" if certificate.signed_zero and kinds[0] != "bool" else "bits"
    arithmetic = "real" if arithmetic == "reassoc" else arithmetic
    if sides.equal(left, right, arithmetic) and (arithmetic != "real" or sides.hides_nothing(left, right)):
        return
    if not decided(sides, (left, right), dtype, certificate):
        raise Refused(f"the sides differ in the case {case.taken}: {left} and {right}")
