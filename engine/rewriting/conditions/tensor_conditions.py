"""Facts about tensors: types, contents, sign."""

from __future__ import annotations

import numpy as np

from ...ir import symbolic
from ...ir.constants import ConstantInfo, leading_axes
from ...ir.graph import DType
from ...ir.symbolic import Dim
from ...ir.values import OpRef, TensorRef, Unprovable, Value
from ..rule_context import RuleContext, known, require
from .function_registry import FUNCTIONS, function
from .list_functions import at

FUNCTIONS |= {
    "rank": lambda context, x: len(shape(context, x)),
    "dim": lambda context, x, index: at(shape(context, x), index),
    "size": lambda context, x: symbolic.product(shape(context, x)),
    "is_const": lambda context, x: not isinstance(x, TensorRef) or context.egraph.is_const(x.handle),
    "min_value": lambda context, c: bound(context, c, low=True),
    "max_value": lambda context, c: bound(context, c, low=False),
    "positive": lambda context, c: bound(context, c, low=True) > 0,
}


@function
def shape(context: RuleContext, x: Value) -> list[Dim]:
    """The dims of a tensor."""
    return list(known(context.type(x).shape, "its shape is not known"))


@function
def dtype(context: RuleContext, x: Value) -> DType:
    """The element type of a tensor."""
    return known(context.type(x).dtype, "its element type is not known")


@function
def dims(context: RuleContext, t: Value) -> list[Dim]:
    """The contents of an integer tensor of rank 0 or 1 as dims; some may be symbolic."""
    if isinstance(t, list):
        return t
    if not isinstance(t, TensorRef):
        raise Unprovable("this is not a tensor")
    value = context.egraph.value(t.handle)
    return list(known(None if value is None else value.whole, "its contents are not known"))


@function
def ints(context: RuleContext, t: Value) -> list[int]:
    """The contents of an integer tensor, all of them known."""
    if isinstance(t, TensorRef) and context.egraph.value(t.handle) is None:
        array = context.contents(t)
        require(array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= 4096, "it is not a list of integers")
        return [int(v) for v in array.reshape(-1)]
    found = dims(context, t)
    require(all(map(symbolic.known, found)), "some elements are unknown")
    return [d for d in found if isinstance(d, int)]


@function
def scalar(context: RuleContext, c: Value) -> float | int:
    """The only element of a constant."""
    if isinstance(c, (int, float)):
        return c
    array = context.contents(c)
    require(array.size == 1, f"it has {array.size} elements")
    return array.reshape(-1)[0].item()  # type: ignore[no-any-return]


@function
def values(context: RuleContext, c: Value) -> list[float | int]:
    """The elements of a constant, row by row; at most 4096."""
    array = context.contents(c)
    require(array.size <= 4096, "it has more than 4096 elements")
    return list(array.reshape(-1).tolist())


@function
def uniform(context: RuleContext, c: Value) -> bool:
    """Return whether all elements of a constant are equal (and there is one)."""
    info = _info(context, c)
    if info is not None and info.elements is None:
        return info.splat is not None
    array = context.contents(c).reshape(-1)
    return bool(array.size and (array == array[0]).all())


@function
def repeats(context: RuleContext, c: Value, a: int) -> bool:
    """Return whether the elements of a constant are the same all along each of its axes from `a` on."""
    info = _info(context, c)
    if info is not None and info.elements is None:
        return info.axes <= a
    return leading_axes(context.contents(c)) <= a


@function
def splat(context: RuleContext, c: Value) -> float | int:
    """The common value of all elements of a constant."""
    require(uniform(context, c), "its elements differ")
    return context.contents(c).reshape(-1)[0].item()  # type: ignore[no-any-return]


def _info(context: RuleContext, c: Value) -> ConstantInfo | None:
    return context.egraph.constant(c.handle) if isinstance(c, TensorRef) else None


def bound(context: RuleContext, c: Value, *, low: bool) -> float | int:
    """The least or greatest element of a constant without NaN."""
    info = _info(context, c)
    require(info is not None or isinstance(c, (np.ndarray, int, float)), "its contents are not known")
    if info is not None and info.elements is None:
        return known(info.low if low else info.high, "its elements are not known to be ordered")
    array = context.contents(c)
    require(array.size > 0, "it has no elements")
    found = (array.min() if low else array.max()).item()
    require(found == found, "it contains NaN")
    return found  # type: ignore[no-any-return]


@function
def nonnegative(context: RuleContext, x: Value) -> bool:
    """Return whether no element is below zero or NaN: of a constant by its contents, else by its operators."""
    if isinstance(x, TensorRef) and _info(context, x) is None:
        return context.egraph.sign(x.handle).nonnegative
    return bound(context, x, low=True) >= 0


@function
def finite(context: RuleContext, c: Value) -> bool:
    """Return whether a constant holds neither NaN nor infinity (integers never do)."""
    if isinstance(c, TensorRef):
        found = context.type(c).dtype
        if found is not None and found.is_integer:
            return True
        return known(_info(context, c), "its contents are not known").finite
    return bool(np.isfinite(np.asarray(c)).all())


@function
def is_iota(context: RuleContext, c: Value) -> bool:
    """Return whether a constant vector holds 0, 1, 2, …"""
    array = context.contents(c)
    return array.ndim == 1 and bool((array == np.arange(len(array))).all())


@function
def same(context: RuleContext, x: Value, y: Value) -> bool:
    """Return whether two tensors are known to be the same value."""
    if isinstance(x, TensorRef) and isinstance(y, TensorRef):
        return context.egraph.find(x.handle) == context.egraph.find(y.handle)
    return x is y


@function
def op_name(context: RuleContext, f: Value) -> str:
    """The name of a bound operator."""
    if not isinstance(f, OpRef):
        raise Unprovable("this is not an operator")
    return f.op
