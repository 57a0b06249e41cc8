"""Real numbers with infinities and NaN as z3 terms: the arithmetic of class `reassoc`.

A value is a tag (finite, +∞, -∞, NaN) and a real number. A quotient by zero is an infinity of unknown sign; there is no
rounding and no overflow. Two values agree if both are finite and the same number, or both are not finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

FINITE, PLUS, MINUS, NAN = range(4)
_SPECIAL = {"inf": PLUS, "-inf": MINUS, "nan": NAN}


@dataclass(frozen=True, slots=True)
class Extended:
    """Tag and number, both z3 terms."""

    tag: Any
    value: Any

    @property
    def valid(self) -> Any:
        """Assumption that the tag is one of the four."""
        return z3.And(self.tag >= FINITE, self.tag <= NAN)

    def __neg__(self) -> Extended:
        return Extended(z3.If(self.tag == PLUS, MINUS, z3.If(self.tag == MINUS, PLUS, self.tag)), -self.value)

    def __add__(self, other: Extended) -> Extended:
        opposite = z3.And(self.tag != FINITE, other.tag != FINITE, self.tag != other.tag)
        nan = z3.Or(self.tag == NAN, other.tag == NAN, opposite)
        return Extended(z3.If(nan, NAN, z3.If(self.tag != FINITE, self.tag, other.tag)), self.value + other.value)

    def __sub__(self, other: Extended) -> Extended:
        return self + -other

    def __mul__(self, other: Extended) -> Extended:
        both = z3.And(self.tag == FINITE, other.tag == FINITE)
        sign = self._sign() * other._sign()
        nan = z3.Or(self.tag == NAN, other.tag == NAN, sign == 0)
        tag = z3.If(both, FINITE, z3.If(nan, NAN, z3.If(sign > 0, PLUS, MINUS)))
        return Extended(tag, self.value * other.value)

    def _sign(self) -> Any:
        """Return the sign of a value other than NaN: -1, 0 or 1."""
        number = z3.If(self.value > 0, 1, z3.If(self.value < 0, -1, 0))
        return z3.If(self.tag == FINITE, number, z3.If(self.tag == PLUS, 1, -1))

    def inverse(self) -> tuple[Extended, Any]:
        """Return the reciprocal, and the assumption that the one of a zero is an infinity of some sign."""
        side = z3.Function("sign of the zero", z3.RealSort(), z3.IntSort())(self.value)
        zero = z3.And(self.tag == FINITE, self.value == 0)
        infinite = z3.Or(self.tag == PLUS, self.tag == MINUS)
        tag = z3.If(zero, side, z3.If(self.tag == NAN, NAN, FINITE))
        value = z3.If(z3.Or(infinite, zero), z3.RealVal(0), 1 / self.value)
        return Extended(tag, value), z3.Or(side == PLUS, side == MINUS)


def constant(value: Fraction | str) -> Extended:
    """Return a number, an infinity or NaN."""
    special = isinstance(value, str)
    return Extended(z3.IntVal(_SPECIAL[str(value)] if special else FINITE), z3.RealVal(0 if special else str(value)))


def variable(name: str) -> Extended:
    """Return an unknown value."""
    return Extended(z3.Int(f"tag {name}"), z3.Real(name))


def choose(cond: Any, a: Extended, b: Extended) -> Extended:
    """Return `a` where the condition holds, else `b`."""
    return Extended(z3.If(cond, a.tag, b.tag), z3.If(cond, a.value, b.value))


def less(a: Extended, b: Extended, *, equal: bool) -> Any:
    """Return a < b, or a <= b; false if one is NaN."""
    both = z3.And(a.tag == FINITE, b.tag == FINITE)
    ordered = z3.And(a.tag != NAN, b.tag != NAN)
    between = z3.Or(
        z3.And(a.tag == MINUS, b.tag != MINUS), z3.And(b.tag == PLUS, a.tag != PLUS), z3.And(equal, a.tag == b.tag)
    )
    return z3.If(both, a.value <= b.value if equal else a.value < b.value, z3.And(ordered, between))


def extreme(a: Extended, b: Extended, *, greatest: bool) -> Extended:
    """Return the greater or the lesser; NaN if one is."""
    chosen = choose(less(b, a, equal=True) if greatest else less(a, b, equal=True), a, b)
    return Extended(z3.If(z3.Or(a.tag == NAN, b.tag == NAN), NAN, chosen.tag), chosen.value)


def agree(a: Extended, b: Extended) -> Any:
    """Return whether both are finite and the same number, or both are not finite."""
    return z3.Or(z3.And(a.tag == FINITE, b.tag == FINITE, a.value == b.value), z3.And(a.tag != FINITE, b.tag != FINITE))


def applied(name: str, args: list[Extended]) -> Extended:
    """Return the application of an uninterpreted function."""
    sorts = [s for _ in args for s in (z3.IntSort(), z3.RealSort())]
    # the number of a value that is not finite is meaningless, so the function must not see it
    flat = [v for a in args for v in (a.tag, z3.If(a.tag == FINITE, a.value, z3.RealVal(0)))]
    tag = z3.Function(f"tag {name}", *sorts, z3.IntSort())(*flat)
    return Extended(tag, z3.Function(name, *sorts, z3.RealSort())(*flat))
