"""Scalar expressions: what an element of a tensor is, as a function of the index.

    read    (tensor, index…)          an element of an input tensor
    flat    (tensor, place)           the same by its place row by row
    const   (number)                  a number: Fraction, or the strings "inf", "-inf", "nan"
    int     (integer)                 a symbolic integer as a number
    app     (operator, attributes, operands…)
    ite     (condition, a, b)         a choice by index
    big     (operator, variables, body)   a sum, maximum, … over index variables
    inverse (scalar)                  1 / scalar, of `reassoc` arithmetic

Scalars are immutable, so equal ones are equal values. `kind` is the class of the element type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from . import integers
from .integers import Bool, Int


@dataclass(frozen=True, slots=True)
class Scalar:
    """An expression for a number; see the module."""

    op: str
    args: tuple[Any, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.op in ("read", "flat"):
            return f"{self.args[0]}[{', '.join(map(str, self.args[1:]))}]"
        if self.op in ("const", "int"):
            return str(self.args[0])
        if self.op == "app":
            return f"{self.args[0]}({', '.join(map(str, self.args[2:]))})"
        if self.op == "big":
            return f"{self.args[0]}[{', '.join(map(str, self.args[1]))}]({self.args[2]})"
        return f"{self.op}({', '.join(map(str, self.args))})"


def number(value: Any) -> Scalar:
    """A number as a scalar; floats stand for the decimal they are written as."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, integers.Poly):
        return Scalar("int", (value,))
    if isinstance(value, bool):
        return Scalar("const", (Fraction(int(value)),))
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return Scalar("const", (str(value),))
        return Scalar("const", (Fraction(repr(value)),))
    return Scalar("const", (Fraction(value),))


ZERO, ONE = number(0), number(1)


def read(tensor: str, index: list[Int]) -> Scalar:
    """An element of an input tensor."""
    return Scalar("read", (tensor, *index))


def app(op: str, *operands: Scalar, attrs: tuple[Any, ...] = ()) -> Scalar:
    """An elementwise operator on scalars."""
    return Scalar("app", (op, attrs, *operands))


def choice(cond: Bool, a: Scalar, b: Scalar) -> Scalar:
    """`a` where the condition holds, else `b`."""
    if isinstance(cond, bool):
        return a if cond else b
    return a if a == b else Scalar("ite", (cond, a, b))


def big(op: str, variables: list[Int], body: Scalar) -> Scalar:
    """An operator over all values of index variables; those that can only be 0 have been replaced by 0.

    A sum of one number begins at 0, too: of -0 it may be 0."""
    found = tuple(v for v in variables if not isinstance(v, int))
    if found:
        return Scalar("big", (op, found, body))
    return app("Add", body, ZERO) if op == "Sum" and variables else body


def operands(scalar: Scalar) -> Iterator[Scalar]:
    """The scalars directly below."""
    for arg in scalar.args:
        if isinstance(arg, Scalar):
            yield arg


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """The scalar and all below it."""
    todo = [scalar]
    while todo:
        found = todo.pop()
        yield found
        todo.extend(operands(found))


def rebuilt(scalar: Scalar, change: Any, integer: Any) -> Scalar:
    """The scalar with the scalars directly below, and the integers in it, changed."""
    args: list[Any] = []
    for arg in scalar.args:
        if isinstance(arg, Scalar):
            args.append(change(arg))
        elif isinstance(arg, integers.Poly):
            args.append(integer(arg))
        elif isinstance(arg, integers.Cond):
            args.append(integers.map_cond(arg, integer))
        else:
            args.append(arg)
    if scalar.op == "ite":
        return choice(args[0], args[1], args[2])
    found = Scalar(scalar.op, tuple(args))
    return Scalar("const", (Fraction(args[0]),)) if scalar.op == "int" and isinstance(args[0], int) else found
