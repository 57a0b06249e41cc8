"""Values of rule expressions that are not tensors yet: numbers, dims, lists, and what is known of them.

An answer that is not certain raises `Unprovable`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import symbolic
from .graph import AttrValue, DType, Graph
from .symbolic import Expr as DimExpr

Value = Any
"""A number, string, bool, dtype, dim, list, array of contents, `TensorRef`, `OpRef`, `RestRef` or None (absent)."""


class Unprovable(Exception):
    """A condition that is false or not known to be true; the message is the reason."""


class Refuted(Unprovable):
    """A condition that is false whatever else becomes known."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor: a class of the e-graph."""

    handle: int


@dataclass(frozen=True, slots=True)
class OpRef:
    """An operator bound by a class head, with its attributes.

    Attributes in `fixed` keep their values where an application names others: an operand of a test means what it
    says."""

    op: str
    attrs: Mapping[str, AttrValue]
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RestRef:
    """The attributes bound by `..a`."""

    attrs: Mapping[str, AttrValue]


@dataclass(frozen=True, slots=True)
class BodyRef:
    """The body of an operator `op` (If, Loop or Scan), with the values that it captures.

    `read` are the indices of the node's outputs that something reads."""

    graph: Graph
    captures: Mapping[str, TensorRef]
    op: str = ""
    read: frozenset[int] = frozenset()


def as_attribute(value: Value) -> AttrValue:
    """Convert a value to an attribute of a node: lists to tuples, dtypes to ONNX numbers, floats rounded to f32."""
    match value:
        case list() | tuple():
            items = tuple(map(as_attribute, value))
            return tuple(map(float, items)) if any(isinstance(v, float) for v in items) else items  # type: ignore[arg-type, return-value]
        case DType():
            return value.onnx
        case bool() | np.bool_() | np.integer():
            return int(value)
        case float() | np.floating():
            return float(np.float32(value))
        case DimExpr():
            raise Unprovable(f"the dim {value} is not known")
        case None | TensorRef() | np.ndarray() | OpRef():
            raise Unprovable("a tensor cannot be an attribute")
    return value  # type: ignore[no-any-return]


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "**": operator.pow,
}  # fmt: skip
_ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def arithmetic(symbol: str, left: Value, right: Value) -> Value:
    """Compute with numbers, dims, arrays and lists (`+` concatenates).

    Division of integers and dims is exact or raises `Unprovable`."""
    if isinstance(left, list) or isinstance(right, list):
        if symbol == "+" and isinstance(left, list) and isinstance(right, list):
            return left + right
        raise Unprovable(f"{symbol} of a list")
    undefined = any(v is None or isinstance(v, (str, bool, TensorRef, OpRef, RestRef)) for v in (left, right))
    if undefined or symbol not in _ARITHMETIC:
        raise Unprovable(f"{left!r} {symbol} {right!r} is not defined")
    if symbol == "/" and _integral(left) and _integral(right):
        quotient = symbolic.exact_div(left, right) if not (isinstance(right, int) and right == 0) else None
        if quotient is None:
            raise Unprovable(f"{right} does not divide {left}")
        return quotient
    if symbol == "%" and isinstance(right, int) and right == 0:
        raise Unprovable("remainder by zero")
    try:
        return _ARITHMETIC[symbol](left, right)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise Unprovable(str(error)) from error


def _integral(value: Value) -> bool:
    return isinstance(value, (int, DimExpr)) and not isinstance(value, bool)


def compare(symbol: str, left: Value, right: Value) -> Value:
    """Compare two values: arrays elementwise, dims by proof, lists element by element."""
    if symbol == "in":
        if not isinstance(right, (list, tuple)):
            raise Unprovable("`in` requires a list")
        return any(compare("==", left, item) for item in right)
    if symbol == "!=":
        equal = compare("==", left, right)
        return ~equal if isinstance(equal, np.ndarray) else not equal
    left, right = (list(v) if isinstance(v, tuple) else v for v in (left, right))
    if isinstance(left, list) and isinstance(right, list):
        if symbol != "==":
            raise Unprovable("lists have no order")
        return len(left) == len(right) and all(compare("==", a, b) for a, b in zip(left, right, strict=True))
    left, right = (v.onnx if isinstance(v, DType) else v for v in (left, right))
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return _ORDER[symbol](left, right)
    if isinstance(left, DimExpr) or isinstance(right, DimExpr):
        return _compare_dims(symbol, left, right)
    if isinstance(left, (TensorRef, list)) or isinstance(right, (TensorRef, list)):
        if symbol == "==" and isinstance(left, list) is not isinstance(right, list):
            return False
        raise Unprovable("these cannot be compared")
    if type(left) in (str, OpRef) or type(right) in (str, OpRef):
        if symbol != "==":
            raise Unprovable("names have no order")
        return left == right
    return bool(_ORDER[symbol](left, right))


def _compare_dims(symbol: str, left: Value, right: Value) -> bool:
    if not (_integral(left) and _integral(right)):
        raise Unprovable("a dim can only be compared with integers")
    if symbol == "==":
        if symbolic.same(left, right):
            return True
        if symbolic.certainly_differ(left, right):
            return False
    else:
        low, high = (left, right) if symbol in ("<", "<=") else (right, left)
        gap = 1 if symbol in ("<", ">") else 0
        if symbolic.at_least(high - low, gap):
            return True
        if symbolic.at_least(low - high, 1 - gap):
            return False
    raise Unprovable(f"it is not known whether {left} {symbol} {right}")
