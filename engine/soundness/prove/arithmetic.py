"""Numbers, dims, lists and comparisons of a rule on a path, and what its conditions make known there."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...evaluate import INFIX
from . import integers, scalars, types
from .integers import Bool, Cond, Int, Poly, eq
from .path import Infeasible, NotModelled, Path
from .run_types import Head, Predicate, Stretch
from .scalars import Scalar, app
from .tensors import Leaf, Tensor


class Arithmetic:
    """What values are made of values, and which of them are equal."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def assume(self, value: Any) -> None:
        """Takes the value of a condition as a fact."""
        if isinstance(value, (bool, Cond)):
            self.path.assume(value)
        elif isinstance(value, Predicate):
            self._predicate(value)
        elif isinstance(value, list):
            for v in value:
                self.assume(v)

    def _predicate(self, p: Predicate) -> None:
        path = self.path
        left, right = p.left, p.right
        if isinstance(left, Leaf) and isinstance(right, Scalar) and right.op == "const" and p.op == "==":
            known = path.extra.get(("value of", left.name))
            if isinstance(known, Scalar) and known != right:
                raise Infeasible(f"{left.name} has two values")
            path.extra[("value of", left.name)] = right
            if ("contents", left.name) in path.extra and right.args[0] == int(right.args[0]):
                for v in left.values():
                    path.assume(eq(v, int(right.args[0])))
            return
        path.extra.setdefault("facts", []).append(p)

    def truth(self, value: Any) -> bool:
        """The truth of a value, by cases."""
        if isinstance(value, (bool, Cond)):
            return self.path.decide(value)
        if isinstance(value, Predicate):
            found = self.path.choose((True, False), f"a comparison of contents {value.op}")
            if found:
                self._predicate(value)
            return found
        raise NotModelled("the truth of this")

    def _number(self, value: Any) -> Any:
        return value if isinstance(value, int) else Fraction(repr(value))

    def _range(self, low: Any, high: Any) -> Any:
        low, high = self.integer(low), self.integer(high)
        count = self.path.normal(high - low)
        if not isinstance(count, int):
            return Stretch(low, high)
        return [self.path.normal(low + i) for i in range(max(count, 0))]

    def items(self, value: Any) -> list[Any]:
        """The elements of a list."""
        if isinstance(value, (list, tuple)):
            return list(value)
        raise NotModelled("a list of unknown length")

    def integer(self, value: Any) -> Int:
        """A value as an integer."""
        if isinstance(value, bool) or not isinstance(value, (int, Poly)):
            if isinstance(value, Fraction) and value.denominator == 1:
                return int(value)
            if isinstance(value, Scalar) and value.op == "int":
                return self.path.normal(value.args[0])
            raise NotModelled("an integer that is computed")
        return self.path.normal(value)

    def _condition(self, value: Any) -> Bool:
        if isinstance(value, (bool, Cond)):
            return value
        return self.truth(value)

    def arithmetic(self, op: str, left: Any, right: Any) -> Any:
        """Arithmetic on numbers, dims and lists."""
        if isinstance(left, list) and isinstance(right, list) and op == "+":
            return left + right
        plain = (int, Poly, Fraction, float, Scalar)
        if not isinstance(left, plain) or not isinstance(right, plain):
            raise NotModelled(f"arithmetic {op}")
        if isinstance(left, (int, Poly)) and isinstance(right, (int, Poly)):
            match op:
                case "+":
                    return self.path.normal(left + right)
                case "-":
                    return self.path.normal(left - right)
                case "*":
                    return self.path.normal(left * right)
                case "/":
                    return self._quotient(left, right)
                case "%":
                    return self.path.divide(left, right)[1]
                case "**" if isinstance(right, int) and right >= 0:
                    return integers.product([left] * right)
        elif isinstance(left, (int, Fraction)) and isinstance(right, (int, Fraction)):
            match op:
                case "+":
                    return Fraction(left) + right
                case "-":
                    return Fraction(left) - right
                case "*":
                    return Fraction(left) * right
                case "/" if right:
                    return Fraction(left) / right
        return app(INFIX[op], scalars.number(left), scalars.number(right))

    def _quotient(self, left: Int, right: Int) -> Int:
        left, right = self.path.normal(left), self.path.normal(right)
        quotient = integers.exact_quotient(left, right)
        if quotient is not None:
            self.path.assume(integers.negate(eq(right, 0)))
            return quotient
        if not self.path.decide(integers.ge(right, 1)):
            raise Infeasible("a quotient of what does not divide")
        found, rest = self.path.divide(left, right)
        self.path.assume(eq(rest, 0))
        return self.path.normal(found)

    def compare(self, op: str, left: Any, right: Any) -> Any:
        """A comparison, as a condition."""
        if op == "in":
            return integers.disj(*(self._condition(self.compare("==", left, v)) for v in self.items(right)))
        if op == "!=":
            return integers.negate(self._condition(self.compare("==", left, right)))
        if isinstance(left, Head) or isinstance(right, Head):
            return left == right
        if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            if len(left) != len(right):
                return False
            return integers.conj(*(self._condition(self.compare(op, a, b)) for a, b in zip(left, right, strict=True)))
        if isinstance(left, (list, tuple, Stretch)) or isinstance(right, (list, tuple, Stretch)):
            raise NotModelled("lists of unknown length")
        if isinstance(left, str) and isinstance(right, str):
            return self._names(left, right)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            if isinstance(right, Tensor) and not isinstance(left, Tensor):
                flip = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
                op, left, right = flip[op], right, left
            right = right if isinstance(right, Tensor) else scalars.number(right)
            return Predicate(op, left, right)
        if isinstance(left, (int, Poly)) and isinstance(right, (int, Poly)):
            a, b = self.path.normal(left), self.path.normal(right)
            match op:
                case "==":
                    return eq(a, b)
                case "<":
                    return integers.lt(a, b)
                case "<=":
                    return integers.ge(b, a)
                case ">":
                    return integers.lt(b, a)
                case ">=":
                    return integers.ge(a, b)
        if left is None or right is None:
            return left is right
        if isinstance(left, (int, Fraction, float)) and isinstance(right, (int, Fraction, float)):
            return bool(
                {"==": left == right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[
                    op
                ]
            )
        if isinstance(left, (str, bool)) or isinstance(right, (str, bool)):
            return (
                Predicate(op, scalars.number(left), scalars.number(right))
                if not isinstance(left, str) and not isinstance(right, str)
                else left == right
            )
        return self._scalar_predicate(op, left, right)

    def _scalar_predicate(self, op: str, left: Any, right: Any) -> Any:
        a, b = scalars.number(left), scalars.number(right)
        if a.op == b.op == "const" and not isinstance(a.args[0], str) and not isinstance(b.args[0], str):
            return self.compare(op, a.args[0], b.args[0])
        if a.op == "read" and b.op == "const" and op == "==":
            leaf = self.path.extra.get(("leaf", a.args[0]))
            if leaf is not None:
                return Predicate(op, leaf, b)
        return Predicate(op, a, b)

    def _names(self, left: str, right: str) -> bool:
        known = types.KINDS.keys() | {"string"}
        a, b = types.root(self.path, left), types.root(self.path, right)
        if a == b:
            return True
        dtypes = [t in known or t.startswith("dtype ") for t in (a, b)]
        if not all(dtypes):
            return False
        if a in known and b in known:
            return False
        if self.path.choose((True, False), f"{a} is {b}"):
            types.unify(self.path, a, b)
            return True
        return False

    def constant(self, value: Any, dtype: str) -> Tensor:
        """A constant scalar."""
        found = scalars.number(value)
        values = (lambda: [self.integer(value)]) if isinstance(value, (int, Poly)) else None
        return Tensor(self.path, [], lambda index: found, dtype=dtype, place=lambda at: found, values=values)

    def tensor(self, value: Any) -> Tensor:
        """A value as a tensor."""
        if isinstance(value, Tensor):
            return value
        raise NotModelled("this is no tensor")
