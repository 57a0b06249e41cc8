"""Dims, numbers and element types."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...ir import symbolic
from ...ir.graph import DType
from ...ir.symbolic import Dim
from ...ir.values import TensorRef, Unprovable, arithmetic
from ..build_nodes import build_node
from ..rule_context import RuleContext, known, require
from .function_registry import FUNCTIONS, Function, function
from .tensor_conditions import bound, scalar

FUNCTIONS |= {
    "known": lambda _, d: all(map(symbolic.known, d)) if isinstance(d, list) else symbolic.known(d),
    "product": lambda _, items: symbolic.product(items),
    "prod": lambda _, items: symbolic.product(items),
    "sum": lambda _, items: functools.reduce(functools.partial(arithmetic, "+"), items, 0),
    "floordiv": lambda _, a, b: a // b,
    "ceildiv": lambda _, a, b: symbolic.ceildiv(a, b),
    "is_float": lambda _, t: as_dtype(t).is_float,
    "is_integer": lambda _, t: as_dtype(t).is_integer,
}


@function
def broadcast(context: RuleContext, *shapes: list[Dim]) -> list[Dim]:
    """The shape that shapes broadcast to."""
    return list(known(symbolic.broadcast(*shapes), "these shapes are not known to broadcast"))


@function
def close(context: RuleContext, a: Any, b: Any, rtol: float = 1e-6) -> bool:
    """Return whether two numbers differ by at most `rtol` of the second."""
    return bool(abs(scalar(context, a) - scalar(context, b)) <= rtol * abs(scalar(context, b)))


def _extreme(name: str, dims: Function, plain: Function, array: np.ufunc) -> None:

    def implementation(context: RuleContext, *args: Any) -> Any:
        items = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        if len(items) == 1 and isinstance(items[0], (TensorRef, np.ndarray)):
            return bound(context, items[0], low=name == "min")
        require(items, f"{name} of nothing")
        items = [context.contents(i) if isinstance(i, TensorRef) else i for i in items]
        if any(isinstance(i, np.ndarray) for i in items):
            return array.reduce(np.broadcast_arrays(*items))
        return functools.reduce(dims, items) if any(isinstance(i, symbolic.Expr) for i in items) else plain(items)

    FUNCTIONS[name] = implementation


def _numeric(name: str, plain: Function, array: np.ufunc) -> None:
    """Register a function of numbers that is an operator of tensors."""

    def implementation(context: RuleContext, x: Any) -> Any:
        if isinstance(x, TensorRef):
            return array(context.contents(x)) if context.proving else build_node(context, name.title(), {}, [x])
        return array(x) if isinstance(x, np.ndarray) else plain(x)

    FUNCTIONS[name] = implementation


_extreme("min", symbolic.minimum, min, np.minimum)
_extreme("max", symbolic.maximum, max, np.maximum)
_numeric("abs", abs, np.abs)
for _name in ("sqrt", "exp", "log", "floor", "ceil"):
    _numeric(_name, getattr(math, _name), getattr(np, _name))


# --- element types ---

_FLOATS = {DType.F64: (53, 11), DType.F32: (24, 8), DType.F16: (11, 5), DType.BF16: (8, 8)}
"""Bits of mantissa and exponent."""


def as_dtype(t: Any) -> DType:
    """An element type given as such or as its ONNX number."""
    return t if isinstance(t, DType) else DType.from_onnx(t)


@function
def lossless(context: RuleContext, source: Any, target: Any) -> bool:
    """Return whether every value of one element type is a value of the other."""
    a, b = as_dtype(source), as_dtype(target)
    if a == b:
        return True
    if a is DType.BOOL:
        return b.is_integer or b in _FLOATS
    if a.is_integer and b.is_integer:
        return a.bits <= b.bits if a.value[0] == b.value[0] else a.value[0] == "u" and a.bits < b.bits
    if b not in _FLOATS:
        return False
    mantissa, exponent = _FLOATS[b]
    if a.is_integer:
        bits = a.bits - (a.value[0] == "i")
        return bits <= mantissa and bits < 2 ** (exponent - 1)
    return a in _FLOATS and _FLOATS[a][0] <= mantissa and _FLOATS[a][1] <= exponent


@function
def limits(context: RuleContext, t: Any) -> list[float | int]:
    """The lowest and the highest finite value of an element type."""
    found = as_dtype(t)
    if found.is_integer:
        signed = found.value[0] == "i"
        return [-(2 ** (found.bits - 1)) if signed else 0, 2 ** (found.bits - signed) - 1]
    if found in (DType.F64, DType.F32, DType.F16):
        info = np.finfo(found.value.replace("f", "float"))
        return [float(info.min), float(info.max)]
    raise Unprovable(f"{found} has no limits")
