"""Functions that build tensors on right sides and in tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir import symbolic
from ...ir.graph import DType
from ...ir.symbolic import Dim
from ...ir.values import TensorRef, Value
from ..build_nodes import build_constant, build_node
from ..rule_context import RuleContext, require
from .function_registry import FUNCTIONS, function
from .number_functions import as_dtype
from .tensor_conditions import dtype, scalar

FUNCTIONS |= {
    "const": lambda context, value, t: TensorRef(build_constant(context, value, as_dtype(t))),
    "zeros": lambda context, *args: _filled(context, 0, args),
    "ones": lambda context, *args: _filled(context, 1, args),
}


@function
def like(context: RuleContext, value: Any, x: Value) -> TensorRef:
    """A constant scalar with the element type of `x`."""
    number = scalar(context, value) if isinstance(value, TensorRef) else value
    return TensorRef(build_constant(context, number, dtype(context, x)))


@function
def full(context: RuleContext, *args: Any) -> TensorRef:
    """A constant tensor of equal elements: `full(shape(x), v, dtype(x))`, or in tests `full(v, 2, 3)` of f32."""
    by_shape = args and isinstance(args[0], list)
    return _full(context, args[0], *args[1:3]) if by_shape else _full(context, list(args[1:]), args[0])


def _filled(context: RuleContext, value: int, args: tuple[Any, ...]) -> TensorRef:
    """Return a constant of zeros or ones: `zeros(shape(x), dtype(x))`, or `zeros(2, 3)` of f32."""
    if args and isinstance(args[0], list):
        return _full(context, args[0], value, *args[1:2])
    if args and isinstance(args[-1], DType):
        return _full(context, list(args[:-1]), value, args[-1])
    return _full(context, list(args), value)


def _full(context: RuleContext, shape: list[Dim], value: Any, t: Any = DType.F32) -> TensorRef:
    sizes = [d for d in shape if isinstance(d, int)]
    require(len(sizes) == len(shape), "its shape is not known")
    found = as_dtype(t)
    if math.prod(sizes) > 4096:
        target = TensorRef(build_constant(context, sizes, DType.I64))
        return build_node(context, "Expand", {}, [TensorRef(build_constant(context, value, found)), target])
    return TensorRef(build_constant(context, np.full(tuple(sizes), value), found))


@function
def iota(context: RuleContext, count: int, t: Any = DType.I64) -> TensorRef:
    """The constant vector 0, 1, 2, … of `count` elements."""
    require(0 <= count <= 4096, "too many elements")
    return TensorRef(build_constant(context, list(range(count)), as_dtype(t)))


@function
def random(context: RuleContext, *shape_: int) -> TensorRef:
    """A constant f32 tensor of seeded normal numbers; for tests."""
    array = np.random.default_rng(list(shape_)).standard_normal(shape_)
    return TensorRef(build_constant(context, array, DType.F32))


@function
def expand_dims(context: RuleContext, x: Value, axes_: Any) -> Value:
    """`Unsqueeze` at these axes; the tensor itself for none."""
    items = [axes_] if isinstance(axes_, int) else list(axes_)
    return build_node(context, "Unsqueeze", {}, [x, items]) if items else x


@function
def reshape(context: RuleContext, x: Value, target: list[Dim]) -> TensorRef:
    """`Reshape` to dims. For a portable graph at most one of them is unknown."""
    unknown = [d for d in target if not symbolic.known(d)]
    zero = any(symbolic.known(d) and d == 0 for d in target)
    if len(unknown) > (0 if zero else 1):
        return build_node(context, "Reshape", {"allowzero": 1}, [x, target])
    dims = [d if symbolic.known(d) else -1 for d in target]
    return build_node(context, "Reshape", {"allowzero": int(zero)}, [x, dims])
