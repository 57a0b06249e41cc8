"""Reductions and products of matrices on constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .call import Array, Call, Fast, Refused, axes_of, numeric
from .extrema import largest, smallest


def _reduction(function: Callable[..., Array], *, maps: bool = False) -> Fast:
    def run(call: Call) -> list[Array]:
        data = call[0]
        numeric(data)
        axes = axes_of(call, 1, data.ndim) or []
        if not axes and call.integer("noop_with_empty_axes", 0):
            if maps:
                raise Refused  # what an operator with a map before its sum does then is for the reference to say
            return [data]
        real = data.dtype.kind == "f" or data.dtype.name == "bfloat16"
        if not data.size or not (real or data.dtype.kind in "iu"):
            raise Refused
        axis = tuple(axes) if axes else tuple(range(data.ndim))
        wide = data.astype(np.float64) if real else data
        found = function(wide, axis=axis, keepdims=bool(call.integer("keepdims", 1)))
        return [np.asarray(found).astype(data.dtype)]

    return run


def _mean(data: Array, **how: Any) -> Array:
    if data.dtype.kind != "f":
        raise Refused
    return np.asarray(np.mean(data, **how))


def _log_sum_exp(data: Array, *, axis: tuple[int, ...], keepdims: bool) -> Array:
    """The logarithm of a sum of exponentials, shifted by the greatest unless that is infinite: ∞ − ∞ is NaN."""
    if data.dtype.kind != "f":
        raise Refused
    greatest = largest(data, axis, keepdims=True)
    shift = np.where(np.isinf(greatest), 0.0, greatest)
    total = np.log(np.sum(np.exp(data - shift), axis=axis, keepdims=True)) + shift
    return np.asarray(total if keepdims else np.squeeze(total, axis))


def _matmul(call: Call) -> list[Array]:
    a, b = call[0], call[1]
    numeric(a, b)
    return [np.asarray(np.matmul(a, b), dtype=a.dtype)]


def _gemm(call: Call) -> list[Array]:
    a, b, c = call[0], call[1], call.get(2)
    numeric(a, b)
    if a.dtype.kind != "f":
        raise Refused
    alpha, beta = (np.asarray(call.attrs.get(name, 1.0), a.dtype) for name in ("alpha", "beta"))
    found = alpha * ((a.T if call.integer("transA", 0) else a) @ (b.T if call.integer("transB", 0) else b))
    return [np.asarray(found if c is None else found + beta * c, dtype=a.dtype)]


def _einsum(call: Call) -> list[Array]:
    arrays = call.present()
    numeric(*arrays)
    found = np.einsum(str(call.attrs["equation"]).replace(" ", ""), *arrays, optimize=True)
    return [np.asarray(found, dtype=arrays[0].dtype)]


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
