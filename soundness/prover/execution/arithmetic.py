"""Arithmetic and comparisons of numbers, dims and lists on a path, and conditions as facts."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ....engine.rewriting.notation import INFIX
from ..paths import element_types
from ..paths.path import Infeasible, NotModeled, Path, Predicate
from ..paths.tensors import Leaf, Tensor
from ..terms import integers, scalars
from ..terms.integers import Bool, Cond, Int, Poly, eq
from ..terms.scalars import Scalar, app

_NUMBERS = (int, Fraction)
_INTEGERS = (int, Poly)
_EXACT = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARED = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CONDITIONS = {
    "==": eq, "<": integers.lt, "<=": lambda a, b: integers.ge(b, a), ">": lambda a, b: integers.lt(b, a),
    ">=": integers.ge,
}  # fmt: skip
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


@dataclass(frozen=True, slots=True)
class Head:
    """Operator that a class head stands for on a path; `op` is None if only the class is known."""

    variable: str
    op: str | None
    attrs: Any = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Integers from `low` up to `high`, exclusive; their number is symbolic."""

    low: Int
    high: Int


class Arithmetic:
    """Operations on values other than tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def assume(self, value: Any) -> None:
        """Add the value of a condition as a fact."""
        if isinstance(value, (bool, Cond)):
            self.path.assume(value)
        elif isinstance(value, Predicate):
            self._predicate(value)
        elif isinstance(value, list):
            for v in value:
                self.assume(v)

    def _predicate(self, p: Predicate) -> None:
        path, left, right = self.path, p.left, p.right
        whole = isinstance(right, Scalar) and right.is_number and right.args[0].denominator == 1
        if whole and p.op != "==" and isinstance(left, Leaf) and self.is_list(left.name):
            for v in left.values():
                path.assume(_CONDITIONS[p.op](v, int(right.args[0])))
            return
        if not (isinstance(left, Leaf) and isinstance(right, Scalar) and right.op == "const" and p.op == "=="):
            path.predicates.append(p)
            return
        known = path.extra.get(("value of", left.name))
        if isinstance(known, Scalar) and known != right:
            raise Infeasible(f"{left.name} has two values")
        path.extra[("value of", left.name)] = right
        if ("contents", left.name) in path.extra and right.args[0] == int(right.args[0]):
            for v in left.values():
                path.assume(eq(v, int(right.args[0])))

    def is_list(self, name: str) -> bool:
        """Whether operators of the pattern read the contents of a variable as a list."""
        return False

    def truth(self, value: Any) -> bool:
        """Return the truth of a value, by cases."""
        if isinstance(value, (bool, Cond)):
            return self.path.decide(value)
        if isinstance(value, Predicate):
            found = self.path.choose((True, False), f"a comparison of contents {value.op}")
            if found:
                self._predicate(value)
            return found
        raise NotModeled("the truth of a value that is not a condition")

    def stretch(self, low: Any, high: Any) -> Any:
        """Return the integers from `low` up to `high`, exclusive."""
        low, high = self.integer(low), self.integer(high)
        count = self.path.normal(high - low)
        if not isinstance(count, int):
            return Stretch(low, high)
        return [self.path.normal(low + i) for i in range(max(count, 0))]

    def items(self, value: Any) -> list[Any]:
        """Return the elements of a list."""
        if isinstance(value, (list, tuple)):
            return list(value)
        raise NotModeled("a list of unknown length")

    def integer(self, value: Any) -> Int:
        """Return a value as an integer."""
        match value:
            case int() | Poly() if not isinstance(value, bool):
                return self.path.normal(value)
            case Fraction(denominator=1):
                return int(value)
            case Scalar(op="int", args=(found,)):
                return self.path.normal(found)
        raise NotModeled("an integer that is computed")

    def condition(self, value: Any) -> Bool:
        """Return a value as a condition; the truth of others is decided by cases."""
        return value if isinstance(value, (bool, Cond)) else self.truth(value)

    def arithmetic(self, op: str, left: Any, right: Any) -> Any:
        """Compute with numbers, dims and lists."""
        if isinstance(left, list) and isinstance(right, list) and op == "+":
            return left + right
        plain = (int, Poly, Fraction, float, Scalar)
        if not isinstance(left, plain) or not isinstance(right, plain):
            raise NotModeled(f"arithmetic {op}")
        if isinstance(left, _INTEGERS) and isinstance(right, _INTEGERS):
            match op:
                case "+" | "-" | "*":
                    return self.path.normal(_EXACT[op](left, right))
                case "/":
                    return self._quotient(left, right)
                case "%":
                    return self.path.divide(left, right)[1]
                case "**" if isinstance(right, int) and right >= 0:
                    return integers.product([left] * right)
        elif isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            if op in _EXACT:
                return _EXACT[op](Fraction(left), right)
            if op == "/" and right:
                return Fraction(left) / right
        return app(INFIX[op], scalars.number(left), scalars.number(right))

    def _quotient(self, left: Int, right: Int) -> Int:
        left, right = self.path.normal(left), self.path.normal(right)
        quotient = integers.exact_quotient(left, right)
        if quotient is not None:
            self.path.assume(integers.negate(eq(right, 0)))
            return quotient
        self.path.require(self.path.decide(integers.ge(right, 1)), "the divisor is not positive")
        found, rest = self.path.divide(left, right)
        self.path.assume(eq(rest, 0))
        return self.path.normal(found)

    def compare(self, op: str, left: Any, right: Any) -> Any:
        """Return a comparison as a condition."""
        sides = (left, right)
        if op == "in":
            return integers.disj(*(self.condition(self.compare("==", left, v)) for v in self.items(right)))
        if op == "!=":
            return integers.negate(self.condition(self.compare("==", left, right)))
        if _any(sides, Head):
            return left == right
        if _all(sides, (list, tuple)):
            if len(left) != len(right):
                return False
            return integers.conj(*(self.condition(self.compare(op, a, b)) for a, b in zip(left, right, strict=True)))
        if _any(sides, (list, tuple, Stretch)):
            raise NotModeled("lists of unknown length")
        if _all(sides, str):
            return self._names(left, right)
        if isinstance(left, Tensor):
            return Predicate(op, left, right if isinstance(right, Tensor) else scalars.number(right))
        if isinstance(right, Tensor):
            return Predicate(_FLIPPED[op], right, scalars.number(left))
        if _all(sides, _INTEGERS):
            return _CONDITIONS[op](self.path.normal(left), self.path.normal(right))
        if left is None or right is None:
            return left is right
        if _all(sides, (int, Fraction, float)):
            return bool(_COMPARED[op](left, right))
        if _any(sides, str):
            return left == right
        a, b = scalars.number(left), scalars.number(right)
        if a.is_number and b.is_number:
            return self.compare(op, a.args[0], b.args[0])
        leaf = self.path.extra.get(("leaf", a.args[0])) if a.op == "read" and b.op == "const" and op == "==" else None
        return Predicate(op, a if leaf is None else leaf, b)

    def _names(self, left: str, right: str) -> bool:
        known = element_types.KINDS.keys() | {"string"}
        a, b = element_types.root(self.path, left), element_types.root(self.path, right)
        if a == b:
            return True
        variable = [t.startswith("dtype ") for t in (a, b)]
        if not any(variable) or not all(v or t in known for v, t in zip(variable, (a, b), strict=True)):
            return False
        if self.path.choose((True, False), f"{a} is {b}"):
            element_types.unify(self.path, a, b)
            return True
        return False

    def constant(self, value: Any, dtype: str) -> Tensor:
        """Return a constant scalar tensor."""
        found = scalars.number(value)
        values = (lambda: [self.integer(value)]) if isinstance(value, (int, Poly)) else None
        return Tensor(self.path, [], lambda index: found, dtype=dtype, place=lambda at: found, values=values)

    def tensor(self, value: Any) -> Tensor:
        """Return a value as a tensor."""
        if isinstance(value, Tensor):
            return value
        raise NotModeled("a value that is not a tensor")


def _any(sides: tuple[Any, Any], kinds: Any) -> bool:
    return isinstance(sides[0], kinds) or isinstance(sides[1], kinds)


def _all(sides: tuple[Any, Any], kinds: Any) -> bool:
    return isinstance(sides[0], kinds) and isinstance(sides[1], kinds)
