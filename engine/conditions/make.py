"""Functions that make tensors on right sides and in tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import symbolic
from ..graph import DType
from ..scope import Scope
from ..symbolic import Dim
from ..values import TensorRef, Unprovable, Value
from .dtypes import as_dtype
from .registry import function
from .tensors import dtype, scalar


@function
def const(ev: Scope, value: Any, t: Any) -> TensorRef:
    """A constant tensor with these contents and element type."""
    return TensorRef(ev.constant(value, as_dtype(t)))


@function
def like(ev: Scope, value: Any, x: Value) -> TensorRef:
    """A constant scalar with the element type of `x`."""
    return TensorRef(ev.constant(scalar(ev, value) if isinstance(value, TensorRef) else value, dtype(ev, x)))


def _full(ev: Scope, shape_: list[Dim], value: Any, t: Any) -> TensorRef:
    sizes = [d for d in shape_ if isinstance(d, int)]
    if len(sizes) != len(shape_):
        raise Unprovable("its shape is not known")
    found = as_dtype(t)
    if math.prod(sizes) > 4096:
        target = TensorRef(ev.constant(sizes, DType.I64))
        return ev.node("Expand", {}, [TensorRef(ev.constant(value, found)), target])
    return TensorRef(ev.constant(np.full(tuple(sizes), value), found))


@function
def full(ev: Scope, *args: Any) -> TensorRef:
    """A constant tensor of equal elements: `full(shape(x), v, dtype(x))`, or in tests `full(v, 2, 3)` of f32."""
    if args and isinstance(args[0], list):
        return _full(ev, args[0], args[1], args[2] if len(args) > 2 else DType.F32)
    return _full(ev, list(args[1:]), args[0], DType.F32)


@function
def zeros(ev: Scope, *args: Any) -> TensorRef:
    """A constant tensor of zeros: `zeros(shape(x), dtype(x))`, or `zeros(2, 3)` of f32."""
    return _full(ev, *_shape_and_dtype(args, 0))


@function
def ones(ev: Scope, *args: Any) -> TensorRef:
    """A constant tensor of ones, like `zeros`."""
    return _full(ev, *_shape_and_dtype(args, 1))


def _shape_and_dtype(args: tuple[Any, ...], value: int) -> tuple[list[Dim], int, Any]:
    if args and isinstance(args[0], list):
        return args[0], value, args[1] if len(args) > 1 else DType.F32
    if args and isinstance(args[-1], DType):
        return list(args[:-1]), value, args[-1]
    return list(args), value, DType.F32


@function
def iota(ev: Scope, count: int, t: Any = DType.I64) -> TensorRef:
    """The constant vector 0, 1, 2, … of `count` elements."""
    if not 0 <= count <= 4096:
        raise Unprovable("too many elements")
    return TensorRef(ev.constant(list(range(count)), as_dtype(t)))


@function
def random(ev: Scope, *shape_: int) -> TensorRef:
    """A constant f32 tensor of seeded normal numbers; for tests."""
    array = np.random.default_rng(list(shape_)).standard_normal(shape_)
    return TensorRef(ev.constant(array, DType.F32))


@function
def expand_dims(ev: Scope, x: Value, axes_: Any) -> Value:
    """`Unsqueeze` at these axes; the tensor itself for none."""
    items = [axes_] if isinstance(axes_, int) else list(axes_)
    return ev.node("Unsqueeze", {}, [x, items]) if items else x


@function
def reshape(ev: Scope, x: Value, target: list[Dim]) -> TensorRef:
    """`Reshape` to dims of which at most one is not a known number."""
    open_ = [d for d in target if not symbolic.known(d)]
    if len(open_) > 1 or (open_ and any(d == 0 for d in target)):
        raise Unprovable("more than one dim is not known")
    allowzero = int(any(symbolic.known(d) and d == 0 for d in target))
    return ev.node("Reshape", {"allowzero": allowzero}, [x, [d if symbolic.known(d) else -1 for d in target]])
