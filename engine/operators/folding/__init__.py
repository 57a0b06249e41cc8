"""Evaluation of operators on constants.

The common operators are computed with NumPy, exactly as ONNX defines them: integer division truncates, casts that ONNX
leaves undefined are refused, negative indices count from the end. The rest goes to the reference implementation in
`onnx`, which takes 120 to 240 µs for a small operator where NumPy takes 6 to 50 µs. What cannot be evaluated returns
None, and the operator stays in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ..schemas import find_schema, is_pure, split_name
from .float32_functions import erf32, gelu32
from .float64_kernels import FLOAT64_KERNELS, Wide
from .fold_arithmetic import ARITHMETIC, quantized
from .fold_by_reference import by_reference, by_rows, reference_evaluator, run_reference
from .fold_call import Array, Attrs, Call, Fast, Refused
from .fold_movement import MOVEMENT
from .fold_sums import SUMS

__all__ = [
    "Array", "Attrs", "by_numpy", "by_rows", "compute", "evaluate", "quantized", "reference_evaluator", "run_reference",
    "supports",
]  # fmt: skip

LIMIT = 1 << 30
"""Maximum size of a result in bytes."""
_UNDEFINED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError, RuntimeError)
"""Errors of an operator that is not defined on these operands: they are left to run time."""
_FAST: dict[str, Fast] = {**ARITHMETIC, **MOVEMENT, **SUMS}


def evaluate(
    op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int = 1, *, limit: int = LIMIT
) -> list[Array] | None:
    """Evaluate an operator at the working opset on constants; None if it cannot or must not be evaluated.

    `arrays` are the inputs, None where absent; they are never written to, but an output may be a view of one. `limit`
    is the maximum size of the result in bytes."""
    if not supports(op):
        return None
    with np.errstate(all="ignore"):
        try:
            found: Array | list[Array]
            if op in _FAST:
                found = _FAST[op](Call(attrs, tuple(arrays), n_outputs, limit))
            else:
                found = _rest(op, attrs, arrays, n_outputs)
        except (Refused, *_UNDEFINED):
            return None
    results = [np.asarray(a) for a in (found if isinstance(found, list) else [found])]
    if len(results) < n_outputs or sum(a.nbytes for a in results) > limit:
        return None
    return results[:n_outputs]


@cache
def supports(op: str) -> bool:
    """Whether an operator can be evaluated at all: it is pure, and known here or to the reference implementation."""
    if op in _FAST:
        return True
    if not is_pure(op) or op in ("If", "Loop", "Scan", "SequenceMap"):
        return False
    return split_name(op)[0] in ("", "ai.onnx.ml") and find_schema(op) is not None


def by_numpy(op: str) -> bool:
    """Whether an operator is evaluated here, not by the reference implementation."""
    return op in _FAST


def compute(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int = 1) -> list[Array] | None:
    """Run an operator at the working opset with NumPy; None if there is no function for it, or for these operands.

    Made for large operands, unlike `evaluate`: convolutions, products and activations of f32 are computed in f32. An
    output may be a view of an operand."""
    with np.errstate(all="ignore"):
        try:
            found: Array | list[Array] | None = None
            if all(a is None or a.dtype == np.float32 for a in arrays) and op in _FLOAT32:
                found = _FLOAT32[op](attrs, arrays)
            elif op in _FAST:
                found = _FAST[op](Call(attrs, tuple(arrays), n_outputs, _NO_LIMIT))
            elif op in FLOAT64_KERNELS:
                found = FLOAT64_KERNELS[op](attrs, arrays)
        except (Refused, *_UNDEFINED):
            return None
    results = found if isinstance(found, list) else [] if found is None else [found]
    if len(results) < n_outputs or any(a is None for a in results[:n_outputs]):
        return None
    return [np.asarray(a) for a in results[:n_outputs]]


_NO_LIMIT = 1 << 62
_FLOAT32: dict[str, Callable[[Attrs, Sequence[Any]], list[Any] | None]] = {
    op: partial(kernel.run, precision=np.dtype(np.float32))
    for op, kernel in {**FLOAT64_KERNELS, "Erf": Wide(lambda attrs, x: erf32(x)), "Gelu": Wide(gelu32)}.items()
    if isinstance(kernel, Wide)
}


_OF_NUMBERS = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan"),
        *("Softplus", "Elu", "Celu", "Selu", "Softsign", "Mish"),
    }
)
"""Functions of single numbers that are folded as rules are checked: rounded once."""


_UNLIKE_REFERENCE = ("AveragePool", "GlobalMaxPool", "GlobalLpPool", "LpPool")
_OF_ONE_RESULT = (
    "MaxPool", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization",
)  # fmt: skip
"""Operators that are evaluated here if no second result is asked for."""


def _rest(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int) -> list[Array]:
    """Evaluate an operator that is not one of the common ones."""
    # The reference implementation drops NaN, fails on it, returns the zero that comes first, moves windows of LpPool in
    # ceil mode, has variances of few digits or below zero (by the difference of mean squares, and by steps in f16), or
    # lacks the operator.
    if op in _UNLIKE_REFERENCE or (op in _OF_ONE_RESULT and n_outputs == 1):
        found = FLOAT64_KERNELS[op](attrs, arrays)
        if found is None:
            raise Refused
        return found[:1]
    if op in _OF_NUMBERS and (numbers := FLOAT64_KERNELS[op](attrs, arrays)) is not None:
        return numbers
    if op == "QuantizeLinear" and (whole := quantized(attrs, arrays)) is not None:
        return [whole]
    return by_reference(op, attrs, arrays, n_outputs)
