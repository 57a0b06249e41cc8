"""Real numbers with infinities and NaN, as terms of z3: what class `reassoc` speaks of.

A value is a tag (finite, +∞, -∞, NaN) and a real number. A quotient by zero is an infinity of unknown sign; rounding
and overflow do not exist. Equal are two values that are finite and the same number, or both not finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

FINITE, PLUS, MINUS, NAN = range(4)


@dataclass(frozen=True, slots=True)
class Extended:
    """A tag and a number, both terms of z3."""

    tag: Any
    value: Any


def finite(value: Any) -> Extended:
    """A real number."""
    import z3

    return Extended(z3.IntVal(FINITE), value)


def constant(value: Fraction | str) -> Extended:
    """A number, an infinity or NaN."""
    import z3

    tags = {"inf": PLUS, "-inf": MINUS, "nan": NAN}
    if isinstance(value, str):
        return Extended(z3.IntVal(tags[value]), z3.RealVal(0))
    return finite(z3.RealVal(str(value)))


def variable(name: str) -> tuple[Extended, Any]:
    """An unknown value, and what is to be assumed of it."""
    import z3

    tag = z3.Int(f"tag {name}")
    return Extended(tag, z3.Real(name)), z3.And(tag >= FINITE, tag <= NAN)


def choose(cond: Any, a: Extended, b: Extended) -> Extended:
    """One or the other."""
    import z3

    return Extended(z3.If(cond, a.tag, b.tag), z3.If(cond, a.value, b.value))


def _sign(a: Extended) -> Any:
    """-1, 0 or 1; of what is not NaN."""
    import z3

    number = z3.If(a.value > 0, 1, z3.If(a.value < 0, -1, 0))
    return z3.If(a.tag == FINITE, number, z3.If(a.tag == PLUS, 1, -1))


def negative(a: Extended) -> Extended:
    """-a."""
    import z3

    return Extended(z3.If(a.tag == PLUS, MINUS, z3.If(a.tag == MINUS, PLUS, a.tag)), -a.value)


def add(a: Extended, b: Extended) -> Extended:
    """A + b."""
    import z3

    opposite = z3.And(a.tag != FINITE, b.tag != FINITE, a.tag != b.tag)
    nan = z3.Or(a.tag == NAN, b.tag == NAN, opposite)
    return Extended(z3.If(nan, NAN, z3.If(a.tag != FINITE, a.tag, b.tag)), a.value + b.value)


def multiply(a: Extended, b: Extended) -> Extended:
    """A · b."""
    import z3

    both = z3.And(a.tag == FINITE, b.tag == FINITE)
    sign = _sign(a) * _sign(b)
    nan = z3.Or(a.tag == NAN, b.tag == NAN, sign == 0)
    return Extended(z3.If(both, FINITE, z3.If(nan, NAN, z3.If(sign > 0, PLUS, MINUS))), a.value * b.value)


def inverse(a: Extended) -> tuple[Extended, Any]:
    """1 / a, and what is to be assumed: the reciprocal of a zero is an infinity of some sign."""
    import z3

    side = z3.Function("sign of the zero", z3.RealSort(), z3.IntSort())(a.value)
    zero = z3.And(a.tag == FINITE, a.value == 0)
    infinite = z3.Or(a.tag == PLUS, a.tag == MINUS)
    tag = z3.If(zero, side, z3.If(a.tag == NAN, NAN, FINITE))
    value = z3.If(z3.Or(infinite, zero), z3.RealVal(0), 1 / a.value)
    return Extended(tag, value), z3.Or(side == PLUS, side == MINUS)


def less(a: Extended, b: Extended, *, equal: bool) -> Any:
    """A < b, or a <= b; false if one is NaN."""
    import z3

    both = z3.And(a.tag == FINITE, b.tag == FINITE)
    ordered = z3.And(a.tag != NAN, b.tag != NAN)
    between = z3.Or(
        z3.And(a.tag == MINUS, b.tag != MINUS), z3.And(b.tag == PLUS, a.tag != PLUS), z3.And(equal, a.tag == b.tag)
    )
    return z3.If(both, a.value <= b.value if equal else a.value < b.value, z3.And(ordered, between))


def extreme(a: Extended, b: Extended, *, greatest: bool) -> Extended:
    """The greater or the lesser; NaN if one is."""
    import z3

    first = less(b, a, equal=True) if greatest else less(a, b, equal=True)
    chosen = choose(first, a, b)
    return Extended(z3.If(z3.Or(a.tag == NAN, b.tag == NAN), NAN, chosen.tag), chosen.value)


def agree(a: Extended, b: Extended) -> Any:
    """Both finite and the same number, or both not finite."""
    import z3

    return z3.Or(z3.And(a.tag == FINITE, b.tag == FINITE, a.value == b.value), z3.And(a.tag != FINITE, b.tag != FINITE))


def applied(name: str, args: list[Extended]) -> Extended:
    """An unknown function."""
    import z3

    sorts = [s for _ in args for s in (z3.IntSort(), z3.RealSort())]
    # a number that is not finite has no value: it must not matter to a function
    flat = [v for a in args for v in (a.tag, z3.If(a.tag == FINITE, a.value, z3.RealVal(0)))]
    tag = z3.Function(f"tag {name}", *sorts, z3.IntSort())(*flat)
    return Extended(tag, z3.Function(name, *sorts, z3.RealSort())(*flat))
