"""Axioms of the checker, as equations between scalars, and the matcher that applies them from left to right.

Lower-case letters stand for any scalar, `alpha` and `beta` for attributes of the operator on the left. A test computes
both sides of every equation on numbers of all kinds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any

from .certificate import Scalar

COMMUTATIVE = frozenset((
    "Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
))  # fmt: skip

BITS = """
a - b = a + -b
-(-a) = a
a * 1 = a
Abs(-a) = Abs(a)
Abs(Abs(a)) = Abs(a)
Abs(a) * Abs(a) = a * a
Relu(Relu(a)) = Relu(a)
Sign(Sign(a)) = Sign(a)
Greater(a, b) = Less(b, a)
GreaterOrEqual(a, b) = LessOrEqual(b, a)
Not(Not(a)) = a
Pow(a, 1) = a
Pow(a, 0) = 1
Sum(a) = a
Max(a) = a
Min(a) = a
Max(a, a) = a
Min(a, a) = a
Mean(a) = a
a / 1 = a
Abs(a) + 0 = Abs(a)
a * a + 0 = a * a
a * -b = -(a * b)
a + a = a * 2
"""
"""Equations that hold bit for bit, for floats by IEEE 754 and for integers."""

FLOAT_BITS = """
Reciprocal(a) = 1 / a
a / -b = -(a / b)
-a / b = -(a / b)
""" + "\n".join(f"{f}({g}(a)) = {g}(a)" for f in ("Ceil", "Floor", "Round") for g in ("Ceil", "Floor", "Round"))
"""Equations that hold bit for bit for floats."""

ZEROS = """
Relu(a) = Max(a, 0)
-(a + b) = -a + -b
a + 0 = a
"""
"""Equations that hold up to the sign of a zero."""

REALS = """
Sigmoid(x) = 1 / (1 + Exp(-x))
Softplus(x) = Log(Exp(x) + 1)
Softsign(x) = x / (1 + Abs(x))
Swish(x) = x * (1 / (1 + Exp(-(x * alpha))))
Mish(x) = x * Tanh(Log(Exp(x) + 1))
HardSigmoid(x) = Max(0, Min(1, x * alpha + beta))
HardSwish(x) = x * Max(0, Min(1, x * 0.16666666666666666 + 0.5))
LeakyRelu(x) = Where(Less(x, 0), x * alpha, x)
PRelu(x, s) = Where(Less(x, 0), x * s, x)
Elu(x) = Where(Less(x, 0), (Exp(x) - 1) * alpha, x)
Gelu(x, approximate="none") = 0.5 * x * (1 + Erf(x * 0.7071067811865476))
Gelu(x, approximate="tanh") = 0.5 * x * (1 + Tanh(0.7978845608028654 * (x + x * x * x * 0.044715)))
"""
"""Definitions by the standard, over the real numbers."""

FAST = """
Log(Exp(a)) = a
Exp(a + b) = Exp(a) * Exp(b)
Exp(a - b) = Exp(a) / Exp(b)
Exp(-a) = 1 / Exp(a)
Sqrt(a * a) = Abs(a)
"""
"""Equations over finite real numbers."""

_INFIX = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div"}
Equation = tuple[Scalar, Scalar]


def _parsed(node: ast.expr) -> Scalar:
    match node:
        case ast.Name(id=name):
            return ("any", name)
        case ast.Constant(value=value):
            return ("const", str(value))
        case ast.UnaryOp(operand=operand):
            return ("app", "Neg", (), _parsed(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return ("app", _INFIX[type(op)], (), _parsed(left), _parsed(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=named):
            attrs = tuple((k.arg, k.value.value) for k in named if isinstance(k.value, ast.Constant))
            return ("app", name, attrs, *map(_parsed, args))
    raise ValueError(ast.dump(node))


@cache
def equations(*texts: str) -> dict[str, list[Equation]]:
    """Return the equations of these texts by the operator at the head of their left side."""
    found: dict[str, list[Equation]] = {}
    for line in "\n".join(texts).split("\n"):
        if line:
            left, right = (_parsed(ast.parse(side.strip(), mode="eval").body) for side in line.split(" = "))
            found.setdefault(left[1], []).append((left, right))
    return found


def _matches(pattern: Scalar, s: Any, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if pattern[0] == "any":
        if found.get(pattern[1], s) == s:
            yield found | {pattern[1]: s}
    elif pattern[0] == "const":
        if s == pattern:
            yield found
    elif s[0] == "app" and s[1] == pattern[1] and len(s) == len(pattern):
        named = dict(s[2])
        if all(named.get(k) == v for k, v in pattern[2]):
            args = s[3:]
            orders = (args, args[::-1]) if s[1] in COMMUTATIVE and len(args) == 2 else (args,)
            for order in orders:
                yield from _all_match(pattern[3:], order, found)


def _all_match(patterns: Any, args: Any, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not patterns:
        yield found
        return
    for known in _matches(patterns[0], args[0], found):
        yield from _all_match(patterns[1:], args[1:], known)


def _built(pattern: Scalar, found: dict[str, Any]) -> Scalar:
    if pattern[0] == "any":
        return found[pattern[1]]  # type: ignore[no-any-return]
    return pattern if pattern[0] == "const" else ("app", pattern[1], (), *(_built(p, found) for p in pattern[3:]))


def apply(known: dict[str, list[Equation]], s: Scalar) -> Scalar | None:
    """Return what the first equation that matches makes of a scalar; None if no one does."""
    for left, right in known.get(s[1], ()):
        attributes = {k: v for k, v in s[2] if k in ("alpha", "beta")}
        for found in _matches(left, s, {}):
            return _built(right, {**attributes, **found})
    return None
