"""Whether conditions can hold together, and whether some follow from others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .. import ast
from ..operator_info import OperatorInfo
from ..types.context import Context
from ..types.expressions import assume
from ..types.patterns import bind_roots
from .match import Matcher

_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


class Together:
    """Questions about conditions over one set of operators."""

    def __init__(self, operators: OperatorInfo | None, declared: Mapping[str, ast.Op], matcher: Matcher) -> None:
        self.operators = operators
        self.declared = declared
        self.matcher = matcher

    def exclude(self, pattern: ast.Expr, conditions: Iterable[ast.Expr]) -> bool:
        """Whether the conditions can never hold of one match of the pattern."""
        conditions = list(parts(conditions))
        if any(self._contradict(a, b) for i, a in enumerate(conditions) for b in conditions[:i]):
            return True
        context = Context(self.operators, self.declared)
        if isinstance(pattern, ast.Call) and pattern.head == "{}":
            for arg in pattern.args:
                bind_roots(context, arg)
        else:
            bind_roots(context, pattern)
        for condition in conditions:
            assume(context, condition)
        context.settle()
        return bool(context.problems)

    def implies(self, known: Iterable[ast.Expr], wanted: ast.Expr) -> bool:
        """Whether a condition is among others, or weaker than one of them."""
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
            if _interval_within(left.operator, a, right.operator, b):
                return True
        return False

    def _contradict(self, one: ast.Expr, other: ast.Expr) -> bool:
        if isinstance(one, ast.Unary) and one.operator == "not" and self.matcher.same(one.operand, other):
            return True
        if isinstance(other, ast.Unary) and other.operator == "not" and self.matcher.same(other.operand, one):
            return True
        left, right = _as_compare(one), _as_compare(other)
        if left is None or right is None:
            return False
        return any(self._disjoint(a, right) for a in (left, _flip(left)) if a is not None)

    def _disjoint(self, left: ast.Compare, right: ast.Compare) -> bool:
        if not self.matcher.same(left.left, right.left):
            return False
        if _OPPOSITE.get(left.operator) == right.operator and self.matcher.same(left.right, right.right):
            return True
        if "in" in (left.operator, right.operator):
            return _no_common(left, right)
        a, b = _number(left.right), _number(right.right)
        if a is None or b is None:
            literal = isinstance(left.right, ast.String) and isinstance(right.right, ast.String)
            return literal and left.operator == right.operator == "==" and left.right != right.right
        return _apart(left.operator, a, right.operator, b)


def parts(conditions: Iterable[ast.Expr]) -> Iterable[ast.Expr]:
    """The conditions with `a and b` taken apart."""
    for condition in conditions:
        if isinstance(condition, ast.Binary) and condition.operator == "and":
            yield from parts((condition.left, condition.right))
        else:
            yield condition


def _as_compare(condition: ast.Expr) -> ast.Compare | None:
    """A comparison; `all(c == 1)` of all elements is one of each, if there are any."""
    match condition:
        case ast.Compare():
            return condition
        case ast.Call(head="all", args=(ast.Compare() as inner,)):
            return inner
        case ast.Unary(operator="not", operand=ast.Compare() as inner) if inner.operator in _OPPOSITE:
            return ast.Compare(span=inner.span, operator=_OPPOSITE[inner.operator], left=inner.left, right=inner.right)
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


def _apart(a: str, x: float, b: str, y: float) -> bool:
    """Whether `v a x` and `v b y` never hold together."""
    low, high = (a, x), (b, y)
    for one, other in ((low, high), (high, low)):
        if one[0] == "==" and not _holds(one[1], other[0], other[1]):
            return True
        if one[0] in (">", ">=") and other[0] in ("<", "<="):
            strict = one[0] == ">" or other[0] == "<"
            if one[1] > other[1] or (strict and one[1] == other[1]):
                return True
    return False


def _holds(value: float, operator: str, bound: float) -> bool:
    return {
        "==": value == bound, "!=": value != bound, "<": value < bound, "<=": value <= bound, ">": value > bound,
        ">=": value >= bound,
    }.get(operator, True)  # fmt: skip


def _interval_within(a: str, x: float, b: str, y: float) -> bool:
    """Whether `v b y` follows from `v a x`."""
    if a == "==":
        return b in _FLIPPED and _holds(x, b, y)
    if a in (">", ">=") and b in (">", ">="):
        return x > y or (x == y and (a == ">" or b == ">="))
    if a in ("<", "<=") and b in ("<", "<="):
        return x < y or (x == y and (a == "<" or b == "<="))
    if b == "!=":
        return (a == ">" and x >= y) or (a == "<" and x <= y) or (a == ">=" and x > y) or (a == "<=" and x < y)
    return False


def _no_common(left: ast.Compare, right: ast.Compare) -> bool:
    sets = []
    for side in (left, right):
        if side.operator == "in" and isinstance(side.right, ast.ListExpr):
            sets.append(list(side.right.items))
        elif side.operator == "==":
            sets.append([side.right])
        else:
            return False
    literal = all(isinstance(i, ast.String | ast.Number) for s in sets for i in s)
    return literal and not any(a == b for a in sets[0] for b in sets[1])
