"""What operators are: activation functions by the standard's formulas, and what IEEE 754 guarantees of arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from . import scalars
from .scalars import ONE, ZERO, Scalar, app

COMMUTATIVE = frozenset((
    "Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
))  # fmt: skip
ROOT_HALF = Fraction("0.7071067811865476")
ROOT_TWO_OVER_PI = Fraction("0.7978845608028654")


def definition(op: str, attrs: tuple[Any, ...], args: list[Scalar]) -> Scalar | None:
    """What an activation function is by the standard, where that is a formula."""
    x = args[0]
    named = dict(attrs)
    half = scalars.number(Fraction(1, 2))

    def sigmoid(y: Scalar) -> Scalar:
        return app("Div", ONE, app("Add", ONE, app("Exp", app("Neg", y))))

    def above_zero(below: Scalar) -> Scalar:
        return app("Where", app("Less", x, ZERO), below, x)

    match op:
        case "Sigmoid":
            return sigmoid(x)
        case "Softplus":
            return app("Log", app("Add", app("Exp", x), ONE))
        case "Softsign":
            return app("Div", x, app("Add", ONE, app("Abs", x)))
        case "Swish":
            return app("Mul", x, sigmoid(app("Mul", x, named["alpha"])))
        case "Mish":
            return app("Mul", x, app("Tanh", app("Log", app("Add", app("Exp", x), ONE))))
        case "HardSigmoid":
            linear = app("Add", app("Mul", x, named["alpha"]), named["beta"])
            return app("Max", ZERO, app("Min", ONE, linear))
        case "HardSwish":
            linear = app("Add", app("Mul", x, scalars.number(Fraction(1, 6))), half)
            return app("Mul", x, app("Max", ZERO, app("Min", ONE, linear)))
        case "LeakyRelu":
            return above_zero(app("Mul", x, named["alpha"]))
        case "PRelu":
            return above_zero(app("Mul", x, args[1]))
        case "Elu":
            return above_zero(app("Mul", app("Sub", app("Exp", x), ONE), named["alpha"]))
        case "Gelu" if named.get("approximate", "none") == "none":
            inner = app("Erf", app("Mul", x, scalars.number(ROOT_HALF)))
            return app("Mul", app("Mul", half, x), app("Add", ONE, inner))
        case "Gelu" if named.get("approximate") == "tanh":
            cube = app("Mul", app("Mul", app("Mul", x, x), x), scalars.number(Fraction("0.044715")))
            inner = app("Tanh", app("Mul", scalars.number(ROOT_TWO_OVER_PI), app("Add", x, cube)))
            return app("Mul", app("Mul", half, x), app("Add", ONE, inner))
    return None


def snapped(value: Fraction) -> Fraction:
    """A number as the one that a literal of a rule stands for: 0.16666667 is 1/6, 0.70710678 is √½."""
    for known in (ROOT_HALF, ROOT_TWO_OVER_PI, *(Fraction(p, q) for q in (3, 6, 7, 9) for p in range(1, q))):
        if value and abs(abs(value) - known) <= known / 20_000_000:
            return known if value > 0 else -known
    return value


def flat(op: str, values: list[Scalar]) -> list[Scalar]:
    """Operands of nested extremes as one list without repetition."""
    out: dict[Scalar, None] = {}
    for v in values:
        if v.op == "app" and v.args[0] == op:
            out.update(dict.fromkeys(v.args[2:]))
        else:
            out[v] = None
    return list(out)


def laws(op: str, args: list[Scalar], *, signed_zero: bool, integer: bool) -> Iterator[Scalar]:
    """What an operator on these operands is by IEEE 754, bit for bit (`signed_zero`: but for the sign of a zero)."""
    a = args[0]
    b = args[1] if len(args) > 1 else None
    match op:
        case "Sub":
            assert b is not None
            yield app("Add", a, app("Neg", b))
        case "Neg" if _is(a, "Neg"):
            yield a.args[2]
        case "Neg" if a.op == "const" and a.args[0] not in ("nan", 0):
            flipped = {"inf": "-inf", "-inf": "inf"}
            yield Scalar("const", (flipped.get(a.args[0]) or -a.args[0],))
        case "Neg" if signed_zero and _is(a, "Add"):
            yield app("Add", app("Neg", a.args[2]), app("Neg", a.args[3]))
        case "Abs" if _is(a, "Neg") or _is(a, "Abs"):
            yield app("Abs", a.args[2])
        case "Sum" | "Max" | "Min" | "Mean" if len(args) == 1:
            yield a
        case "Sum":
            rest = args[0]
            for x in args[1:]:
                rest = app("Add", rest, x)
            yield rest
        case "Reciprocal":
            yield app("Div", ONE, a)
        case "Greater" | "GreaterOrEqual":
            assert b is not None
            yield app("Less" if op == "Greater" else "LessOrEqual", b, a)
        case "Relu" if signed_zero:
            yield app("Max", a, ZERO)
        case "Pow" if b == ONE:
            yield a
        case "Pow" if b == ZERO:
            yield ONE
        case "Ceil" | "Floor" | "Round" if any(_is(a, g) for g in ("Ceil", "Floor", "Round")):
            yield a
        case "Not" if _is(a, "Not"):
            yield a.args[2]
        case "Mul" | "Div":
            assert b is not None
            if b == ONE:
                yield a
            elif integer and op == "Div":
                return  # -128 / -1 is -128 in eight bits: signs may not be moved about
            elif b == scalars.number(-1):
                yield app("Neg", a)
            elif _is(b, "Neg"):
                yield app("Neg", app(op, a, b.args[2]))
            elif _is(a, "Neg"):
                yield app("Neg", app(op, a.args[2], b))
            elif b.op == "const" and not isinstance(b.args[0], str) and b.args[0] < 0:
                yield app("Neg", app(op, a, Scalar("const", (-b.args[0],))))
            elif op == "Mul" and (a == ONE or (a.op == "const" and b.op != "const")):
                yield app("Mul", b, a)
            elif op == "Mul" and _is(a, "Abs") and a == b:
                yield app("Mul", a.args[2], a.args[2])
        case "Add":
            assert b is not None
            if signed_zero and b == ZERO:
                yield a
            elif a == ZERO and b != ZERO:
                yield app("Add", b, a)
            elif a == b:
                yield app("Mul", a, scalars.number(2))


def _is(s: Scalar, op: str) -> bool:
    return s.op == "app" and s.args[0] == op
