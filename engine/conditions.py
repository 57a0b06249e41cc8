"""The condition library: the closed set of functions that rules may call.

Every function is total in the sense of rules: for arguments it cannot answer it raises `Unprovable` (or one of Python's
value errors, which the evaluator takes for it), and the rule does not fire. Functions named like an operator (`sqrt`,
`abs`) build it when given a tensor on a right side and compute when given numbers or, in conditions, contents.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import symbolic
from .constants import ConstantInfo
from .egraph import ABSENT
from .evaluate import Evaluator, OpRef, TensorRef, Unprovable, Value, arithmetic, compare
from .graph import DType
from .symbolic import Dim

Function = Callable[..., Value]
FUNCTIONS: dict[str, Function] = {}


def _function(function: Function) -> Function:
    FUNCTIONS[function.__name__.rstrip("_")] = function
    return function


# --- tensors ---------------------------------------------------------------------------------------------------------


@_function
def shape(ev: Evaluator, x: Value) -> list[Dim]:
    """The dims of a tensor."""
    found = ev.type(x).shape
    if found is None:
        raise Unprovable("its shape is not known")
    return list(found)


@_function
def rank(ev: Evaluator, x: Value) -> int:
    """The number of dims of a tensor."""
    return len(shape(ev, x))


@_function
def dim(ev: Evaluator, x: Value, index: int) -> Dim:
    """One dim of a tensor; negative indices count from the end."""
    return _at(shape(ev, x), index)


@_function
def dtype(ev: Evaluator, x: Value) -> DType:
    """The element type of a tensor."""
    found = ev.type(x).dtype
    if found is None:
        raise Unprovable("its element type is not known")
    return found


@_function
def size(ev: Evaluator, x: Value) -> Dim:
    """The number of elements of a tensor."""
    return symbolic.product(shape(ev, x))


@_function
def dims(ev: Evaluator, t: Value) -> list[Dim]:
    """The contents of an integer tensor of rank 0 or 1 as dims, of which some may be symbolic."""
    if isinstance(t, list):
        return t
    if not isinstance(t, TensorRef):
        raise Unprovable("no tensor")
    found = ev.egraph.value(t.handle)
    if found is None:
        raise Unprovable("its contents are not known")
    return list(found.dims)


@_function
def ints(ev: Evaluator, t: Value) -> list[int]:
    """The contents of an integer tensor, all of them known."""
    if isinstance(t, TensorRef) and ev.egraph.value(t.handle) is None:
        array = ev.contents(t)
        if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > 4096:
            raise Unprovable("it is no list of integers")
        return [int(v) for v in array.reshape(-1)]
    found = dims(ev, t)
    if not all(symbolic.known(d) for d in found):
        raise Unprovable("not all of it is known")
    return [int(d) for d in found]  # type: ignore[call-overload]


@_function
def scalar(ev: Evaluator, c: Value) -> float | int:
    """The only element of a constant."""
    if isinstance(c, (int, float)):
        return c
    array = ev.contents(c)
    if array.size != 1:
        raise Unprovable(f"it has {array.size} elements")
    return array.reshape(-1)[0].item()  # type: ignore[no-any-return]


@_function
def values(ev: Evaluator, c: Value) -> list[float | int]:
    """The elements of a constant, row by row; at most 4096."""
    array = ev.contents(c)
    if array.size > 4096:
        raise Unprovable("it has more than 4096 elements")
    return list(array.reshape(-1).tolist())


@_function
def is_const(ev: Evaluator, x: Value) -> bool:
    """Whether a tensor is computed from constants only."""
    return not isinstance(x, TensorRef) or ev.egraph.is_const(x.handle)


@_function
def uniform(ev: Evaluator, c: Value) -> bool:
    """Whether all elements of a constant are equal (and there is one)."""
    info = _info(ev, c)
    if info is not None and info.elements is None:
        return info.splat is not None
    array = ev.contents(c)
    return bool(array.size and (array == array.reshape(-1)[0]).all())


@_function
def splat(ev: Evaluator, c: Value) -> float | int:
    """The value that all elements of a constant have."""
    if not uniform(ev, c):
        raise Unprovable("its elements differ")
    return ev.contents(c).reshape(-1)[0].item()  # type: ignore[no-any-return]


def _info(ev: Evaluator, c: Value) -> ConstantInfo | None:
    return ev.egraph.constant(c.handle) if isinstance(c, TensorRef) else None


@_function
def min_value(ev: Evaluator, c: Value) -> float | int:
    """The least element of a constant."""
    return _bound(ev, c, low=True)


@_function
def max_value(ev: Evaluator, c: Value) -> float | int:
    """The greatest element of a constant."""
    return _bound(ev, c, low=False)


def _bound(ev: Evaluator, c: Value, *, low: bool) -> float | int:
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
_KEEPS_SIGN = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Identity", "Slice", "Flatten", "MaxPool", "AveragePool",
               "GlobalAveragePool", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "Gather", "Tile"}  # fmt: skip


@_function
def nonnegative(ev: Evaluator, x: Value) -> bool:
    """Whether no element is below zero (or NaN, for a constant); of a tensor that is no constant by the operators it is made of."""
    if isinstance(x, TensorRef) and _info(ev, x) is None:
        return _structurally_nonnegative(ev, x.handle, 8)
    return _bound(ev, x, low=True) >= 0


def _structurally_nonnegative(ev: Evaluator, handle: int, depth: int) -> bool:
    eg = ev.egraph
    if depth == 0 or handle == ABSENT:
        return False
    info = eg.constant(handle)
    if info is not None:
        return info.low is not None and info.low >= 0
    for node in (eg.nodes[h] for h in eg.members(handle)):
        if node.op in NONNEGATIVE:
            return True
        if node.op in _KEEPS_SIGN and _structurally_nonnegative(ev, node.children[0], depth - 1):
            return True
        if node.op == "Mul" and eg.find(node.children[0]) == eg.find(node.children[1]):
            return True
        if node.op in ("Add", "Mul", "Div", "Max") and all(
            _structurally_nonnegative(ev, c, depth - 1) for c in node.children
        ):
            return True
        if node.op == "Clip" and len(node.children) > 1 and node.children[1] != ABSENT:
            low = eg.constant(node.children[1])
            if low is not None and low.low is not None and low.low >= 0:
                return True
    return False


@_function
def positive(ev: Evaluator, c: Value) -> bool:
    """Whether every element of a constant is above zero."""
    return _bound(ev, c, low=True) > 0


@_function
def finite(ev: Evaluator, c: Value) -> bool:
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


@_function
def is_iota(ev: Evaluator, c: Value) -> bool:
    """Whether a constant vector holds 0, 1, 2, …"""
    array = ev.contents(c)
    return array.ndim == 1 and bool((array == np.arange(len(array))).all())


@_function
def same(ev: Evaluator, x: Value, y: Value) -> bool:
    """Whether two tensors are known to be the same value."""
    if isinstance(x, TensorRef) and isinstance(y, TensorRef):
        return ev.egraph.find(x.handle) == ev.egraph.find(y.handle)
    return x is y


@_function
def op_name(ev: Evaluator, f: Value) -> str:
    """The name of a bound operator."""
    if not isinstance(f, OpRef):
        raise Unprovable("no operator")
    return f.op


# --- dims and numbers ------------------------------------------------------------------------------------------------


@_function
def known(ev: Evaluator, d: Value) -> bool:
    """Whether a dim, or every dim of a list, is a known number."""
    return all(symbolic.known(v) for v in d) if isinstance(d, list) else symbolic.known(d)


@_function
def broadcast(ev: Evaluator, *shapes: list[Dim]) -> list[Dim]:
    """The shape that shapes broadcast to."""
    found = symbolic.broadcast(*(tuple(s) for s in shapes))
    if found is None:
        raise Unprovable("they do not broadcast for sure")
    return list(found)


@_function
def product(ev: Evaluator, items: list[Dim]) -> Dim:
    """The product of dims."""
    return symbolic.product(items)


FUNCTIONS["prod"] = product


@_function
def sum_(ev: Evaluator, items: list[Any]) -> Any:
    """The sum of numbers or dims."""
    total: Any = 0
    for item in items:
        total = arithmetic("+", total, item)
    return total


@_function
def floordiv(ev: Evaluator, a: Dim, b: Dim) -> Dim:
    """The quotient rounded down."""
    return a // b


@_function
def ceildiv(ev: Evaluator, a: Dim, b: Dim) -> Dim:
    """The quotient rounded up."""
    return symbolic.ceildiv(a, b)


def _extreme(name: str, dims_: Function, plain: Function, array: Function) -> None:
    def function(ev: Evaluator, *args: Any) -> Any:
        items = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        if len(items) == 1 and isinstance(items[0], (TensorRef, np.ndarray)):
            return _bound(ev, items[0], low=name == "min")
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

    function.__doc__ = f"The {name}imum of numbers, dims or a list."
    FUNCTIONS[name] = function


_extreme("min", symbolic.minimum, min, lambda items: np.minimum.reduce(np.broadcast_arrays(*items)))
_extreme("max", symbolic.maximum, max, lambda items: np.maximum.reduce(np.broadcast_arrays(*items)))


def _numeric(name: str, op: str, plain: Function, array: Function) -> None:
    def function(ev: Evaluator, x: Any) -> Any:
        if isinstance(x, TensorRef):
            return array(ev.contents(x)) if ev.proving else ev.node(op, {}, [x])
        if isinstance(x, np.ndarray):
            return array(x)
        return plain(x)

    function.__doc__ = f"`{op}` of a tensor; the same of a number."
    FUNCTIONS[name] = function


_numeric("sqrt", "Sqrt", math.sqrt, np.sqrt)
_numeric("exp", "Exp", math.exp, np.exp)
_numeric("log", "Log", math.log, np.log)
_numeric("abs", "Abs", abs, np.abs)
_numeric("floor", "Floor", math.floor, np.floor)
_numeric("ceil", "Ceil", math.ceil, np.ceil)


@_function
def close(ev: Evaluator, a: Any, b: Any, rtol: float = 1e-6) -> bool:
    """Whether two numbers differ by at most `rtol` of the second."""
    return bool(abs(scalar(ev, a) - scalar(ev, b)) <= rtol * abs(scalar(ev, b)))


# --- lists -----------------------------------------------------------------------------------------------------------


def _at(items: list[Any], index: int) -> Any:
    if not -len(items) <= index < len(items):
        raise Unprovable(f"there is no element {index} among {len(items)}")
    return items[index]


@_function
def len_(ev: Evaluator, items: Any) -> int:
    """The length of a list."""
    return len(items)


@_function
def range_(ev: Evaluator, low: int, high: int) -> list[int]:
    """The integers from `low` up to but not including `high`."""
    if high - low > 4096:
        raise Unprovable("a range of more than 4096 numbers")
    return list(range(low, high))


@_function
def reverse(ev: Evaluator, items: list[Any]) -> list[Any]:
    """A list backwards."""
    return items[::-1]


@_function
def sorted_(ev: Evaluator, items: list[Any]) -> list[Any]:
    """A list in ascending order."""
    return sorted(items)


@_function
def unique(ev: Evaluator, items: list[Any]) -> list[Any]:
    """A list without repeated elements, in order of first occurrence."""
    return list(dict.fromkeys(items))


@_function
def index(ev: Evaluator, items: list[Any], value: Any) -> int:
    """The position of the first element equal to `value`."""
    for i, item in enumerate(items):
        if compare("==", item, value):
            return i
    raise Unprovable(f"{value} is not in the list")


@_function
def take(ev: Evaluator, items: list[Any], indices: list[int]) -> list[Any]:
    """The elements at these positions."""
    return [_at(items, i) for i in indices]


@_function
def drop(ev: Evaluator, items: list[Any], indices: list[int]) -> list[Any]:
    """The elements not at these positions (negative ones count from the end)."""
    gone = {i + len(items) if i < 0 else i for i in indices}
    return [item for i, item in enumerate(items) if i not in gone]


@_function
def slice_(ev: Evaluator, items: list[Any], start: int, end: int) -> list[Any]:
    """The elements from `start` up to but not including `end`."""
    return items[start:end]


@_function
def set_at(ev: Evaluator, items: list[Any], position: int, value: Any) -> list[Any]:
    """A list with one element replaced."""
    _at(items, position)
    out = list(items)
    out[position] = value
    return out


@_function
def repeat(ev: Evaluator, value: Any, count: int) -> list[Any]:
    """A list of `count` times `value`."""
    if not 0 <= count <= 4096:
        raise Unprovable("too many")
    return [value] * count


@_function
def flatten(ev: Evaluator, items: list[list[Any]]) -> list[Any]:
    """The elements of the lists of a list."""
    return list(itertools.chain.from_iterable(items))


@_function
def zip_(ev: Evaluator, *lists: list[Any]) -> list[list[Any]]:
    """Lists of the elements at the same positions; of equal lengths."""
    return [list(t) for t in zip(*lists, strict=True)]


@_function
def enumerate_(ev: Evaluator, items: list[Any]) -> list[list[Any]]:
    """`[position, element]` of every element."""
    return [[i, item] for i, item in enumerate(items)]


@_function
def all_(ev: Evaluator, items: Any) -> bool:
    """Whether all of a list, or of a comparison of contents, hold."""
    if isinstance(items, list):
        return all(bool(np.all(i)) for i in items)
    return bool(np.all(items))


@_function
def any_(ev: Evaluator, items: Any) -> bool:
    """Whether any of a list, or of a comparison of contents, holds."""
    if isinstance(items, list):
        return any(bool(np.any(i)) for i in items)
    return bool(np.any(items))


# --- permutations and axes -------------------------------------------------------------------------------------------


@_function
def inverse_perm(ev: Evaluator, perm: list[int]) -> list[int]:
    """The permutation that undoes `perm`."""
    out = [0] * len(perm)
    for i, p in enumerate(perm):
        out[p] = i
    return out


@_function
def compose_perm(ev: Evaluator, first: list[int], second: list[int]) -> list[int]:
    """The permutation of transposing by `first` and then by `second`."""
    return [first[i] for i in second]


@_function
def identity_perm(ev: Evaluator, perm: list[int]) -> bool:
    """Whether a permutation moves nothing."""
    return list(perm) == list(range(len(perm)))


@_function
def swap_perm(ev: Evaluator, rank: int, i: int, j: int) -> list[int]:
    """The permutation of `rank` axes that swaps two of them."""
    perm = list(range(rank))
    perm[i], perm[j] = perm[j], perm[i]
    return perm


@_function
def axis(ev: Evaluator, a: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= a < rank:
        raise Unprovable(f"there is no axis {a} among {rank}")
    return a % rank


@_function
def axes(ev: Evaluator, items: list[int], rank: int) -> list[int]:
    """Axes counted from the front, sorted; none twice."""
    found = sorted(axis(ev, a, rank) for a in items)
    if len(set(found)) != len(found):
        raise Unprovable("an axis is named twice")
    return found


# --- element types ---------------------------------------------------------------------------------------------------


def _dtype(t: Any) -> DType:
    return t if isinstance(t, DType) else DType.from_onnx(t)


@_function
def is_float(ev: Evaluator, t: Any) -> bool:
    """Whether an element type is floating-point."""
    return _dtype(t).is_float


@_function
def is_integer(ev: Evaluator, t: Any) -> bool:
    """Whether an element type is an integer type."""
    return _dtype(t).is_integer


_MANTISSA = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
_EXPONENT = {DType.F64: 11, DType.F32: 8, DType.F16: 5, DType.BF16: 8}


@_function
def lossless(ev: Evaluator, source: Any, target: Any) -> bool:
    """Whether every value of one element type is a value of the other."""
    a, b = _dtype(source), _dtype(target)
    if a == b:
        return True
    if a is DType.BOOL:
        return b.is_integer or b in _MANTISSA
    if a.is_integer and b.is_integer:
        if a.value[0] == b.value[0]:
            return a.bits <= b.bits
        return a.value[0] == "u" and a.bits < b.bits
    if a.is_integer and b in _MANTISSA:
        bits = a.bits - (a.value[0] == "i")
        return bits <= _MANTISSA[b] and bits < 2 ** (_EXPONENT[b] - 1)
    if a in _MANTISSA and b in _MANTISSA:
        return _MANTISSA[a] <= _MANTISSA[b] and _EXPONENT[a] <= _EXPONENT[b]
    return False


@_function
def limits(ev: Evaluator, t: Any) -> list[float | int]:
    """The lowest and the highest finite value of an element type."""
    found = _dtype(t)
    if found.is_integer:
        signed = found.value[0] == "i"
        return [-(2 ** (found.bits - 1)) if signed else 0, 2 ** (found.bits - signed) - 1]
    if found in (DType.F64, DType.F32, DType.F16):
        info = np.finfo(found.numpy)  # type: ignore[arg-type]
        return [float(info.min), float(info.max)]
    raise Unprovable(f"{found} has no limits")


# --- making tensors --------------------------------------------------------------------------------------------------


@_function
def const(ev: Evaluator, value: Any, t: Any) -> TensorRef:
    """A constant tensor with these contents and element type."""
    return TensorRef(ev.constant(value, _dtype(t)))


@_function
def like(ev: Evaluator, value: Any, x: Value) -> TensorRef:
    """A constant scalar with the element type of `x`."""
    return TensorRef(ev.constant(scalar(ev, value) if isinstance(value, TensorRef) else value, dtype(ev, x)))


def _full(ev: Evaluator, shape_: list[Dim], value: Any, t: Any) -> TensorRef:
    if not all(symbolic.known(d) for d in shape_):
        raise Unprovable("its shape is not known")
    found = _dtype(t)
    if math.prod(shape_) > 4096:  # type: ignore[arg-type]
        target = TensorRef(ev.constant(list(shape_), DType.I64))
        return ev.node("Expand", {}, [TensorRef(ev.constant(value, found)), target])
    return TensorRef(ev.constant(np.full(tuple(shape_), value), found))  # type: ignore[arg-type]


@_function
def full(ev: Evaluator, shape_: list[Dim], value: Any, t: Any = DType.F32) -> TensorRef:
    """A constant tensor of equal elements."""
    return _full(ev, shape_, value, t)


@_function
def zeros(ev: Evaluator, shape_: list[Dim], t: Any = DType.F32) -> TensorRef:
    """A constant tensor of zeros."""
    return _full(ev, shape_, 0, t)


@_function
def ones(ev: Evaluator, shape_: list[Dim], t: Any = DType.F32) -> TensorRef:
    """A constant tensor of ones."""
    return _full(ev, shape_, 1, t)


@_function
def expand_dims(ev: Evaluator, x: Value, axes_: Any) -> Value:
    """`Unsqueeze` at these axes; the tensor itself for none."""
    items = [axes_] if isinstance(axes_, int) else list(axes_)
    return ev.node("Unsqueeze", {}, [x, items]) if items else x


@_function
def reshape(ev: Evaluator, x: Value, target: list[Dim]) -> TensorRef:
    """`Reshape` to dims of which at most one is not a known number."""
    open_ = [d for d in target if not symbolic.known(d)]
    if len(open_) > 1 or (open_ and any(d == 0 for d in target)):
        raise Unprovable("more than one dim is not known")
    allowzero = int(any(symbolic.known(d) and d == 0 for d in target))
    return ev.node("Reshape", {"allowzero": allowzero}, [x, [d if symbolic.known(d) else -1 for d in target]])
