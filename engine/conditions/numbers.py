"""Dims and numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import symbolic
from ..scope import Scope
from ..symbolic import Dim
from ..values import TensorRef, Unprovable, Value, arithmetic
from .registry import FUNCTIONS, Function, function
from .tensors import bound, scalar


@function
def known(ev: Scope, d: Value) -> bool:
    """Whether a dim, or every dim of a list, is a known number."""
    return all(symbolic.known(v) for v in d) if isinstance(d, list) else symbolic.known(d)


@function
def broadcast(ev: Scope, *shapes: list[Dim]) -> list[Dim]:
    """The shape that shapes broadcast to."""
    found = symbolic.broadcast(*(tuple(s) for s in shapes))
    if found is None:
        raise Unprovable("they do not broadcast for sure")
    return list(found)


@function
def product(ev: Scope, items: list[Dim]) -> Dim:
    """The product of dims."""
    return symbolic.product(items)


FUNCTIONS["prod"] = product


@function
def sum_(ev: Scope, items: list[Any]) -> Any:
    """The sum of numbers or dims."""
    total: Any = 0
    for item in items:
        total = arithmetic("+", total, item)
    return total


@function
def floordiv(ev: Scope, a: Dim, b: Dim) -> Dim:
    """The quotient rounded down."""
    return a // b


@function
def ceildiv(ev: Scope, a: Dim, b: Dim) -> Dim:
    """The quotient rounded up."""
    return symbolic.ceildiv(a, b)


def _extreme(name: str, dims_: Function, plain: Function, array: Function) -> None:
    def implementation(ev: Scope, *args: Any) -> Any:
        items = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        if len(items) == 1 and isinstance(items[0], (TensorRef, np.ndarray)):
            return bound(ev, items[0], low=name == "min")
        if not items:
            raise Unprovable(f"{name} of nothing")
        items = [ev.contents(i) if isinstance(i, TensorRef) else i for i in items]
        if any(isinstance(i, np.ndarray) for i in items):
            return array(items)
        if any(isinstance(i, symbolic.Expr) for i in items):
            result = items[0]
            for item in items[1:]:
                result = dims_(result, item)
            return result
        return plain(items)

    implementation.__doc__ = f"The {name}imum of numbers, dims or a list."
    FUNCTIONS[name] = implementation


_extreme("min", symbolic.minimum, min, lambda items: np.minimum.reduce(np.broadcast_arrays(*items)))
_extreme("max", symbolic.maximum, max, lambda items: np.maximum.reduce(np.broadcast_arrays(*items)))


def _numeric(name: str, op: str, plain: Function, array: Function) -> None:
    def implementation(ev: Scope, x: Any) -> Any:
        if isinstance(x, TensorRef):
            return array(ev.contents(x)) if ev.proving else ev.node(op, {}, [x])
        if isinstance(x, np.ndarray):
            return array(x)
        return plain(x)

    implementation.__doc__ = f"`{op}` of a tensor; the same of a number."
    FUNCTIONS[name] = implementation


_numeric("sqrt", "Sqrt", math.sqrt, np.sqrt)
_numeric("exp", "Exp", math.exp, np.exp)
_numeric("log", "Log", math.log, np.log)
_numeric("abs", "Abs", abs, np.abs)
_numeric("floor", "Floor", math.floor, np.floor)
_numeric("ceil", "Ceil", math.ceil, np.ceil)


@function
def close(ev: Scope, a: Any, b: Any, rtol: float = 1e-6) -> bool:
    """Whether two numbers differ by at most `rtol` of the second."""
    return bool(abs(scalar(ev, a) - scalar(ev, b)) <= rtol * abs(scalar(ev, b)))
