"""Algebraic laws: formulas of activation functions, and the identities that IEEE 754 guarantees."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .scalars import ONE, ZERO, Scalar, app, number

COMMUTATIVE = frozenset((
    "Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
))  # fmt: skip
ROOT_HALF = Fraction("0.7071067811865476")
ROOT_TWO_OVER_PI = Fraction("0.7978845608028654")
_INFINITIES = {"inf": "-inf", "-inf": "inf"}


def definition(op: str, attrs: tuple[Any, ...], args: list[Scalar]) -> Scalar | None:
    """Return the standard's formula of an activation function; None if there is none."""
    x = args[0]
    named = dict(attrs)
    half = number(Fraction(1, 2))

    def sigmoid(y: Scalar) -> Scalar:
        return ONE / (ONE + app("Exp", -y))

    def clamped(y: Scalar) -> Scalar:
        return app("Max", ZERO, app("Min", ONE, y))

    def above_zero(below: Scalar) -> Scalar:
        return app("Where", app("Less", x, ZERO), below, x)

    match op:
        case "Sigmoid":
            return sigmoid(x)
        case "Softplus":
            return app("Log", app("Exp", x) + ONE)
        case "Softsign":
            return x / (ONE + app("Abs", x))
        case "Swish":
            return x * sigmoid(x * named["alpha"])
        case "Mish":
            return x * app("Tanh", app("Log", app("Exp", x) + ONE))
        case "HardSigmoid":
            return clamped(x * named["alpha"] + named["beta"])
        case "HardSwish":
            return x * clamped(x * number(Fraction(1, 6)) + half)
        case "LeakyRelu":
            return above_zero(x * named["alpha"])
        case "PRelu":
            return above_zero(x * args[1])
        case "Elu":
            return above_zero((app("Exp", x) - ONE) * named["alpha"])
        case "Gelu" if named.get("approximate", "none") == "none":
            return half * x * (ONE + app("Erf", x * number(ROOT_HALF)))
        case "Gelu" if named.get("approximate") == "tanh":
            cube = x * x * x * number(Fraction("0.044715"))
            return half * x * (ONE + app("Tanh", number(ROOT_TWO_OVER_PI) * (x + cube)))
    return None


def snapped(value: Fraction) -> Fraction:
    """Return the number that a decimal literal approximates: 0.16666667 is 1/6, 0.70710678 is √½."""
    for known in (ROOT_HALF, ROOT_TWO_OVER_PI, *(Fraction(p, q) for q in (3, 6, 7, 9) for p in range(1, q))):
        if value and abs(abs(value) - known) <= known / 20_000_000:
            return known if value > 0 else -known
    return value


def flat(op: str, values: list[Scalar]) -> list[Scalar]:
    """Return the operands of nested extremes as one list without repetition."""
    return list(dict.fromkeys(a for v in values for a in (v.args[2:] if v.applies(op) else (v,))))


def _never_minus_zero(a: Scalar) -> bool:
    """Whether a scalar is a square or a magnitude, whose zero is positive."""
    return a.applies("Abs") or (a.applies("Mul") and a.args[2] == a.args[3])


def laws(op: str, args: list[Scalar], *, signed_zero: bool, integer: bool) -> Iterator[Scalar]:
    """Yield simpler scalars with the same bits by IEEE 754; with `signed_zero`, the sign of a zero may differ."""
    a, b = (*args, ZERO)[:2]
    match op:
        case "Sub":
            yield a + -b
        case "Neg" if a.applies("Neg"):
            yield a.args[2]
        case "Neg" if a.op == "const" and a.args[0] not in ("nan", 0):
            yield Scalar("const", (_INFINITIES.get(a.args[0]) or -a.args[0],))
        case "Neg" if signed_zero and a.applies("Add"):
            yield -a.args[2] + -a.args[3]
        case "Abs" if a.applies("Neg", "Abs"):
            yield app("Abs", a.args[2])
        case "Relu" | "Sign" if a.applies(op):
            yield a  # whichever zero the inner one returns, the outer one returns the same
        case "Sum" | "Max" | "Min" | "Mean" if len(args) == 1:
            yield a
        case "Sum":
            yield functools.reduce(Scalar.__add__, args)
        case "Reciprocal":
            yield ONE / a
        case "Greater" | "GreaterOrEqual":
            yield app(op.replace("Greater", "Less"), b, a)
        case "Relu" if signed_zero:
            yield app("Max", a, ZERO)
        case "Pow" if b in (ONE, ZERO):
            yield a if b == ONE else ONE
        case "Ceil" | "Floor" | "Round" if a.applies("Ceil", "Floor", "Round"):
            yield a
        case "Not" if a.applies("Not"):
            yield a.args[2]
        case "Mul" | "Div" if b == ONE:
            yield a
        case "Div" if integer:
            return  # signs cannot be moved: -128 / -1 is -128 in eight bits
        case "Mul" | "Div":
            if b == number(-1):
                yield -a
            elif b.applies("Neg"):
                yield -app(op, a, b.args[2])
            elif a.applies("Neg"):
                yield -app(op, a.args[2], b)
            elif b.is_number and b.args[0] < 0:
                yield -app(op, a, number(-b.args[0]))
            elif op == "Mul" and (a == ONE or (a.op == "const" and b.op != "const")):
                yield b * a
            elif op == "Mul" and a.applies("Abs") and a == b:
                yield a.args[2] * a.args[2]
        case "Add" if b == ZERO and (signed_zero or _never_minus_zero(a)):
            yield a
        case "Add" if a == ZERO and b != ZERO:
            yield b + a
        case "Add" if a == b:
            yield a * number(2)
