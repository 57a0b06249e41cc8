"""Entailment between conditions: which exclude each other, which imply others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from operator import eq, ge, gt, le, lt, ne

from ..operator_info import OperatorInfo
from ..syntax import ast
from ..types.comparisons import OPPOSITE
from ..types.context import Context
from ..types.expressions import assume
from ..types.patterns import bind_roots
from .pattern_match import Matcher

_HOLDS = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


class Entailment:
    """Decides questions about conditions, given the operators."""

    def __init__(self, operators: OperatorInfo | None, declared: Mapping[str, ast.Op], matcher: Matcher) -> None:
        self.operators = operators
        self.declared = declared
        self.matcher = matcher

    def exclude(self, pattern: ast.Expr, conditions: Iterable[ast.Expr]) -> bool:
        """Return whether the conditions can never all hold of a match of the pattern."""
        conditions = list(parts(conditions))
        if any(self._contradict(a, b) for i, a in enumerate(conditions) for b in conditions[:i]):
            return True
        context = Context(self.operators, self.declared)
        for root in pattern.args if isinstance(pattern, ast.Call) and pattern.head == "{}" else (pattern,):
            bind_roots(context, root)
        for condition in conditions:
            assume(context, condition)
        context.propagate()
        return bool(context.problems)

    def implies(self, known: Iterable[ast.Expr], wanted: ast.Expr) -> bool:
        """Return whether a condition is among the known ones, or weaker than one of them."""
        found = list(parts(known))
        return all(any(self._stronger(k, w) for k in found) for w in parts([wanted]))

    def _stronger(self, known: ast.Expr, wanted: ast.Expr) -> bool:
        if self.matcher.same(known, wanted):
            return True
        for left in (_as_compare(known), _flip(_as_compare(known))):
            right = _as_compare(wanted)
            if left is None or right is None or not self.matcher.same(left.left, right.left):
                continue
            a, b = _number(left.right), _number(right.right)
            if a is None or b is None:
                return left.operator == right.operator and self.matcher.same(left.right, right.right)
            if _follows(left.operator, a, right.operator, b):
                return True
        return False

    def _contradict(self, one: ast.Expr, other: ast.Expr) -> bool:
        for condition, plain in ((one, other), (other, one)):
            match condition:
                case ast.Unary(operator="not", operand=operand) if self.matcher.same(operand, plain):
                    return True
        left, right = _as_compare(one), _as_compare(other)
        return right is not None and any(self._disjoint(a, right) for a in (left, _flip(left)) if a is not None)

    def _disjoint(self, left: ast.Compare, right: ast.Compare) -> bool:
        if not self.matcher.same(left.left, right.left):
            return False
        if OPPOSITE.get(left.operator) == right.operator and self.matcher.same(left.right, right.right):
            return True
        if "in" in (left.operator, right.operator):
            return _no_common(left, right)
        a, b = _number(left.right), _number(right.right)
        if a is None or b is None:
            literal = isinstance(left.right, ast.String) and isinstance(right.right, ast.String)
            return literal and left.operator == right.operator == "==" and left.right != right.right
        return _exclusive(left.operator, a, right.operator, b)


def parts(conditions: Iterable[ast.Expr]) -> Iterable[ast.Expr]:
    """Yield the conditions with `a and b` split."""
    for condition in conditions:
        if isinstance(condition, ast.Binary) and condition.operator == "and":
            yield from parts((condition.left, condition.right))
        else:
            yield condition


def _as_compare(condition: ast.Expr) -> ast.Compare | None:
    """Return a condition as a comparison; `all(c == 1)` of all elements is treated as one of each."""
    match condition:
        case ast.Compare():
            return condition
        case ast.Call(head="all", args=(ast.Compare() as inner,)):
            return inner
        case ast.Unary(operator="not", operand=ast.Compare() as inner) if inner.operator in OPPOSITE:
            return ast.Compare(span=inner.span, operator=OPPOSITE[inner.operator], left=inner.left, right=inner.right)
    return None


def _flip(compare: ast.Compare | None) -> ast.Compare | None:
    if compare is None or compare.operator not in _FLIPPED:
        return None
    return ast.Compare(span=compare.span, operator=_FLIPPED[compare.operator], left=compare.right, right=compare.left)


def _number(expr: ast.Expr) -> float | None:
    match expr:
        case ast.Number(value=value):
            return value
        case ast.Name(id="true"):
            return 1
        case ast.Name(id="false"):
            return 0
    return None


def _samples(x: float, y: float) -> tuple[float, ...]:
    """Return numbers at, beside and between two bounds; comparisons with these distinguish all numbers that matter."""
    return x, y, x / 2 + y / 2, -inf, inf


def _exclusive(a: str, x: float, b: str, y: float) -> bool:
    """Return whether `v a x` and `v b y` never both hold."""
    return a in _HOLDS and b in _HOLDS and not any(_HOLDS[a](v, x) and _HOLDS[b](v, y) for v in _samples(x, y))


def _follows(a: str, x: float, b: str, y: float) -> bool:
    """Return whether `v b y` follows from `v a x`; from `!=` follows no other comparison."""
    known = a in _HOLDS and b in _HOLDS and a != "!="
    return known and all(_HOLDS[b](v, y) for v in _samples(x, y) if _HOLDS[a](v, x))


def _no_common(left: ast.Compare, right: ast.Compare) -> bool:
    sets: list[tuple[ast.Expr, ...]] = []
    for side in (left, right):
        match side:
            case ast.Compare(operator="in", right=ast.ListExpr(items=items)):
                sets.append(items)
            case ast.Compare(operator="==", right=value):
                sets.append((value,))
            case _:
                return False
    literal = all(isinstance(i, ast.String | ast.Number) for s in sets for i in s)
    return literal and not any(a == b for a in sets[0] for b in sets[1])
