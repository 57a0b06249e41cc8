"""Reductions and matrix products on constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .fold_call import Array, Attrs, Call, Fast, Refused, in_double, numeric, real
from .signed_extrema import largest, smallest


def _reduction(function: Callable[..., Array], *, maps: bool = False) -> Fast:
    def run(call: Call) -> Array:
        data = call[0]
        numeric(data)
        axes = call.axes(1, data.ndim)
        if not axes and call.integer("noop_with_empty_axes", 0):
            if maps:
                raise Refused  # the reference decides whether an operator that maps first still maps
            return data
        if not data.size or not (real(data.dtype) or data.dtype.kind in "iu"):
            raise Refused
        how: dict[str, Any] = {"axis": axes or tuple(range(data.ndim)), "keepdims": bool(call.integer("keepdims", 1))}
        if real(data.dtype):
            return in_double(lambda x: function(x, **how), data, rowwise=0 not in how["axis"])
        return np.asarray(function(data, **how)).astype(data.dtype)

    return run


def _mean(data: Array, **how: Any) -> Array:
    if data.dtype.kind != "f":
        raise Refused
    return np.asarray(np.mean(data, **how))


def _log_sum_exp(data: Array, *, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Logarithm of a sum of exponentials, shifted by the maximum unless that is infinite: ∞ − ∞ is NaN."""
    if data.dtype.kind != "f":
        raise Refused
    greatest = largest(data, axis, keepdims=True)
    shift = np.where(np.isinf(greatest), 0.0, greatest)
    total = np.log(np.sum(np.exp(data - shift), axis=axis, keepdims=True)) + shift
    return np.asarray(total if keepdims else np.squeeze(total, axis))


def _matmul(call: Call) -> Array:
    a, b = call[0], call[1]
    numeric(a, b)
    return np.asarray(np.matmul(a, b), dtype=a.dtype)


def gemm(
    attrs: Attrs, a: Array, b: Array, c: Array | None = None, *, product: Callable[[Array, Array], Array] = np.matmul
) -> Array:
    """`alpha · op(a) op(b) + beta · c`, in the type of `a`, by this matrix product."""
    alpha, beta = (np.asarray(attrs.get(name, 1.0), a.dtype) for name in ("alpha", "beta"))
    found = alpha * product(a.T if attrs.get("transA", 0) else a, b.T if attrs.get("transB", 0) else b)
    return np.asarray(found if c is None else found + beta * c, dtype=a.dtype)


def _gemm(call: Call) -> Array:
    a, b = call[0], call[1]
    numeric(a, b)
    if a.dtype.kind != "f":
        raise Refused
    return gemm(call.attrs, a, b, call.get(2))


def _einsum(call: Call) -> Array:
    arrays = call.present()
    numeric(*arrays)
    # Pairs from left to right, as ONNX Runtime contracts them; NumPy puts each result behind the operands that remain.
    order = [(0, 1), *((0, left) for left in range(len(arrays) - 2, 0, -1))]
    path = ["einsum_path", *order] if len(arrays) > 1 else False
    found = np.einsum(str(call.attrs["equation"]).replace(" ", ""), *arrays, optimize=path)
    return np.asarray(found, dtype=arrays[0].dtype)


SUMS: dict[str, Fast] = {
    "ReduceSum": _reduction(np.sum),
    "ReduceProd": _reduction(np.prod),
    "ReduceMax": _reduction(largest),
    "ReduceMin": _reduction(smallest),
    "ReduceMean": _reduction(_mean),
    "ReduceSumSquare": _reduction(lambda x, **how: np.sum(x * x, **how), maps=True),
    "ReduceL1": _reduction(lambda x, **how: np.sum(np.abs(x), **how), maps=True),
    "ReduceL2": _reduction(lambda x, **how: np.sqrt(np.sum(x * x, **how)), maps=True),
    "ReduceLogSumExp": _reduction(_log_sum_exp, maps=True),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
