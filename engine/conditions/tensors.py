"""What is known of tensors: types, contents, sign."""

from __future__ import annotations

import numpy as np

from .. import symbolic
from ..constants import ConstantInfo
from ..egraph import ABSENT
from ..graph import DType
from ..scope import Scope
from ..symbolic import Dim
from ..values import OpRef, TensorRef, Unprovable, Value
from .lists import at
from .registry import function


@function
def shape(ev: Scope, x: Value) -> list[Dim]:
    """The dims of a tensor."""
    found = ev.type(x).shape
    if found is None:
        raise Unprovable("its shape is not known")
    return list(found)


@function
def rank(ev: Scope, x: Value) -> int:
    """The number of dims of a tensor."""
    return len(shape(ev, x))


@function
def dim(ev: Scope, x: Value, index: int) -> Dim:
    """One dim of a tensor; negative indices count from the end."""
    found: Dim = at(shape(ev, x), index)
    return found


@function
def dtype(ev: Scope, x: Value) -> DType:
    """The element type of a tensor."""
    found = ev.type(x).dtype
    if found is None:
        raise Unprovable("its element type is not known")
    return found


@function
def size(ev: Scope, x: Value) -> Dim:
    """The number of elements of a tensor."""
    return symbolic.product(shape(ev, x))


@function
def dims(ev: Scope, t: Value) -> list[Dim]:
    """The contents of an integer tensor of rank 0 or 1 as dims, of which some may be symbolic."""
    if isinstance(t, list):
        return t
    if not isinstance(t, TensorRef):
        raise Unprovable("no tensor")
    found = ev.egraph.value(t.handle)
    if found is None:
        raise Unprovable("its contents are not known")
    return list(found.dims)


@function
def ints(ev: Scope, t: Value) -> list[int]:
    """The contents of an integer tensor, all of them known."""
    if isinstance(t, TensorRef) and ev.egraph.value(t.handle) is None:
        array = ev.contents(t)
        if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > 4096:
            raise Unprovable("it is no list of integers")
        return [int(v) for v in array.reshape(-1)]
    found = dims(ev, t)
    if not all(symbolic.known(d) for d in found):
        raise Unprovable("not all of it is known")
    return [d for d in found if isinstance(d, int)]


@function
def scalar(ev: Scope, c: Value) -> float | int:
    """The only element of a constant."""
    if isinstance(c, (int, float)):
        return c
    array = ev.contents(c)
    if array.size != 1:
        raise Unprovable(f"it has {array.size} elements")
    return array.reshape(-1)[0].item()  # type: ignore[no-any-return]


@function
def values(ev: Scope, c: Value) -> list[float | int]:
    """The elements of a constant, row by row; at most 4096."""
    array = ev.contents(c)
    if array.size > 4096:
        raise Unprovable("it has more than 4096 elements")
    return list(array.reshape(-1).tolist())


@function
def is_const(ev: Scope, x: Value) -> bool:
    """Whether a tensor is computed from constants only."""
    return not isinstance(x, TensorRef) or ev.egraph.is_const(x.handle)


@function
def uniform(ev: Scope, c: Value) -> bool:
    """Whether all elements of a constant are equal (and there is one)."""
    info = _info(ev, c)
    if info is not None and info.elements is None:
        return info.splat is not None
    array = ev.contents(c)
    return bool(array.size and (array == array.reshape(-1)[0]).all())


@function
def splat(ev: Scope, c: Value) -> float | int:
    """The value that all elements of a constant have."""
    if not uniform(ev, c):
        raise Unprovable("its elements differ")
    return ev.contents(c).reshape(-1)[0].item()  # type: ignore[no-any-return]


def _info(ev: Scope, c: Value) -> ConstantInfo | None:
    return ev.egraph.constant(c.handle) if isinstance(c, TensorRef) else None


@function
def min_value(ev: Scope, c: Value) -> float | int:
    """The least element of a constant."""
    return bound(ev, c, low=True)


@function
def max_value(ev: Scope, c: Value) -> float | int:
    """The greatest element of a constant."""
    return bound(ev, c, low=False)


def bound(ev: Scope, c: Value, *, low: bool) -> float | int:
    """The least or greatest element of a constant, which must be ordered."""
    info = _info(ev, c)
    if info is None and not isinstance(c, (np.ndarray, int, float)):
        raise Unprovable("its contents are not known")
    if info is not None and info.elements is None:
        bound = info.low if low else info.high
        if bound is None:
            raise Unprovable("its elements are not known to be ordered")
        return bound
    array = ev.contents(c)
    if array.size == 0:
        raise Unprovable("it has no elements")
    found = (array.min() if low else array.max()).item()
    if found != found:
        raise Unprovable("it holds NaN")
    return found  # type: ignore[no-any-return]


NONNEGATIVE = {
    "Abs",
    "Relu",
    "Exp",
    "Sigmoid",
    "Sqrt",
    "Softmax",
    "HardSigmoid",
    "Softplus",
    "ReduceSumSquare",
    "ReduceL1",
    "ReduceL2",
}
_KEEPS_SIGN = {
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Identity",
    "Slice",
    "Flatten",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceSum",
    "Gather",
    "Tile",
}


@function
def nonnegative(ev: Scope, x: Value) -> bool:
    """Whether no element is below zero (or NaN): of a constant by its contents, else by the operators it is made of."""
    if isinstance(x, TensorRef) and _info(ev, x) is None:
        return _structurally_nonnegative(ev, x.handle, 8)
    return bound(ev, x, low=True) >= 0


def _structurally_nonnegative(ev: Scope, handle: int, depth: int) -> bool:
    eg = ev.egraph
    if depth == 0 or handle == ABSENT:
        return False
    info = eg.constant(handle)
    if info is not None:
        return info.low is not None and info.low >= 0
    found = ev.type(TensorRef(handle)).dtype
    wraps = found is None or not found.is_float  # |-128| and 12 · 12 are negative in eight bits
    for node in (eg.nodes[h] for h in eg.members(handle)):
        if node.op in NONNEGATIVE and (node.op == "Relu" or not wraps):
            return True
        if node.op in _KEEPS_SIGN and _structurally_nonnegative(ev, node.children[0], depth - 1):
            return True
        if node.op == "Mul" and not wraps and eg.find(node.children[0]) == eg.find(node.children[1]):
            return True
        if node.op in (("Max",) if wraps else ("Add", "Mul", "Div", "Max")) and all(
            _structurally_nonnegative(ev, c, depth - 1) for c in node.children
        ):
            if node.op != "Div" or _without_minus_zero(ev, node.children[1], depth - 1):
                return True
        if node.op == "Clip" and len(node.children) > 1 and node.children[1] != ABSENT:
            low = eg.constant(node.children[1])
            if low is not None and low.low is not None and low.low >= 0:
                return True
    return False


_PLUS_ZERO = {"Abs", "Exp", "Sigmoid", "Softmax", "Softplus", "ReduceSumSquare", "ReduceL1", "ReduceL2"}
"""Those whose zeros are positive; the root of -0 is -0, and which zero a maximum gives is open."""


def _without_minus_zero(ev: Scope, handle: int, depth: int) -> bool:
    """Whether what is nowhere below zero is nowhere -0 either, by which a quotient would be -∞."""
    eg = ev.egraph
    if depth == 0 or handle == ABSENT:
        return False
    info = eg.constant(handle)
    if info is not None:
        return info.low is not None and info.low > 0
    for node in (eg.nodes[h] for h in eg.members(handle)):
        if node.op in _PLUS_ZERO or (node.op == "Mul" and eg.find(node.children[0]) == eg.find(node.children[1])):
            return True
        if node.op in _KEEPS_SIGN or node.op == "Sqrt":
            if _without_minus_zero(ev, node.children[0], depth - 1):
                return True
        elif node.op in ("Add", "Mul", "Div"):  # of zeros of both signs the sum is 0
            enough = any if node.op == "Add" else all
            if enough(_without_minus_zero(ev, c, depth - 1) for c in node.children):
                return True
    return False


@function
def positive(ev: Scope, c: Value) -> bool:
    """Whether every element of a constant is above zero."""
    return bound(ev, c, low=True) > 0


@function
def finite(ev: Scope, c: Value) -> bool:
    """Whether a constant holds neither NaN nor infinity (integers never do)."""
    if isinstance(c, TensorRef):
        found = ev.type(c).dtype
        if found is not None and found.is_integer:
            return True
        info = _info(ev, c)
        if info is None:
            raise Unprovable("its contents are not known")
        return info.finite
    return bool(np.isfinite(np.asarray(c)).all())


@function
def is_iota(ev: Scope, c: Value) -> bool:
    """Whether a constant vector holds 0, 1, 2, …"""
    array = ev.contents(c)
    return array.ndim == 1 and bool((array == np.arange(len(array))).all())


@function
def same(ev: Scope, x: Value, y: Value) -> bool:
    """Whether two tensors are known to be the same value."""
    if isinstance(x, TensorRef) and isinstance(y, TensorRef):
        return ev.egraph.find(x.handle) == ev.egraph.find(y.handle)
    return x is y


@function
def op_name(ev: Scope, f: Value) -> str:
    """The name of a bound operator."""
    if not isinstance(f, OpRef):
        raise Unprovable("no operator")
    return f.op
