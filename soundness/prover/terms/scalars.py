"""Scalar expressions: an element of a tensor as a function of its index.

    read    (tensor, index…)          an element of an input tensor
    flat    (tensor, position)        the same by its row-major position
    const   (number)                  a number: Fraction, or the strings "inf", "-inf", "nan"
    int     (integer)                 a symbolic integer as a number
    app     (operator, attributes, operands…)
    ite     (condition, a, b)         a choice by index
    big     (operator, variables, body)   a sum, maximum, … over index variables
    inverse (scalar)                  1 / scalar, of `reassoc` arithmetic

Scalars are immutable and compare by value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from . import integers
from .integers import Application, Bool, Int


def _infix(op: str) -> Callable[[Scalar, Scalar], Scalar]:
    return lambda left, right: app(op, left, right)


@dataclass(frozen=True, slots=True, eq=False)
class Scalar(Application):
    """Expression for a number; see the module. Arithmetic signs stand for the operators of that meaning."""

    __add__, __sub__, __mul__, __truediv__ = _infix("Add"), _infix("Sub"), _infix("Mul"), _infix("Div")

    def __neg__(self) -> Scalar:
        return app("Neg", self)

    @property
    def is_number(self) -> bool:
        """Whether the scalar is a finite number."""
        return self.op == "const" and not isinstance(self.args[0], str)

    def applies(self, *ops: str) -> bool:
        """Whether the scalar is the application of one of these operators."""
        return self.op == "app" and self.args[0] in ops

    def __str__(self) -> str:
        head, *rest = self.args
        match self.op:
            case "read" | "flat":
                return f"{head}[{', '.join(map(str, rest))}]"
            case "const" | "int":
                return str(head)
            case "app":
                return f"{head}({', '.join(map(str, rest[1:]))})"
            case "big":
                return f"{head}[{', '.join(map(str, rest[0]))}]({rest[1]})"
        return f"{self.op}({', '.join(map(str, self.args))})"


def number(value: Any) -> Scalar:
    """Return a number as a scalar; a float stands for its shortest decimal."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, integers.Poly):
        return Scalar("int", (value,))
    if isinstance(value, float):
        return Scalar("const", (Fraction(repr(value)) if math.isfinite(value) else str(value),))
    return Scalar("const", (Fraction(value),))


ZERO, ONE = number(0), number(1)


def app(op: str, *operands: Scalar, attrs: tuple[Any, ...] = ()) -> Scalar:
    """Return an elementwise operator on scalars."""
    return Scalar("app", (op, attrs, *operands))


def choice(cond: Bool, a: Scalar, b: Scalar) -> Scalar:
    """Return `a` where the condition holds, else `b`."""
    if isinstance(cond, bool):
        return a if cond else b
    return a if a == b else Scalar("ite", (cond, a, b))


def big(op: str, variables: list[Int], body: Scalar) -> Scalar:
    """Return an operator over all values of index variables; a variable that can only be 0 is already the number 0.

    A sum of one term starts from 0 too: that of -0 may be 0."""
    found = tuple(atom for atom in map(integers.as_atom, variables) if atom is not None)
    if found:
        return Scalar("big", (op, found, body))
    return body + ZERO if op == "Sum" and variables else body


def operands(scalar: Scalar) -> Iterator[Scalar]:
    """Return the scalars directly below."""
    return (arg for arg in scalar.args if isinstance(arg, Scalar))


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """Yield the scalar and all scalars below it."""
    todo = [scalar]
    while todo:
        found = todo.pop()
        yield found
        todo.extend(operands(found))


def rebuilt(scalar: Scalar, change: Callable[[Scalar], Scalar], integer: Callable[[Int], Int] | None = None) -> Scalar:
    """Return the scalar with the scalars directly below changed, and its integers too if a change for them is given."""
    args: list[Any] = list(scalar.args)
    for i, arg in enumerate(args):
        if isinstance(arg, Scalar):
            args[i] = change(arg)
        elif integer is not None and isinstance(arg, integers.Poly):
            args[i] = integer(arg)
        elif integer is not None and isinstance(arg, integers.Cond):
            args[i] = integers.map_cond(arg, integer)
    if scalar.op == "ite":
        return choice(args[0], args[1], args[2])
    return number(args[0]) if scalar.op == "int" else Scalar(scalar.op, tuple(args))
