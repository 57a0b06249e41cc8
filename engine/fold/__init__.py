"""Operators on constants, evaluated.

The common operators are done with NumPy, to ONNX's letter (integer division truncates, casts that ONNX leaves undefined
are refused, negative indices count from the end); the rest goes to the reference implementation that comes with
`onnx`. What cannot be evaluated gives None, and the operator then stays in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ..operators import find_schema, is_pure, split_name
from .arithmetic import ARITHMETIC, cast
from .call import Array, Attrs, Call, Fast, Refused
from .movement import MOVEMENT
from .quantize import quantized
from .reference import attribute, by_reference, run_reference
from .sums import SUMS
from .windows import WINDOWS

__all__ = ["Array", "Attrs", "attribute", "by_numpy", "cast", "evaluate", "quantized", "run_reference", "supports"]

LIMIT = 1 << 30
"""No result larger than this many bytes is computed."""
_FAST: dict[str, Fast] = {**ARITHMETIC, **MOVEMENT, **SUMS}


def evaluate(
    op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int = 1, *, limit: int = LIMIT
) -> list[Array] | None:
    """The outputs of an operator at the working opset on constants, or None if it cannot or must not be evaluated.

    `arrays` are the inputs, None where absent; they are never written to, but an output may be a view of one.
    `limit` bounds the bytes of the result."""
    if not supports(op):
        return None
    with np.errstate(all="ignore"):
        try:
            fast = _FAST.get(op)
            if fast is not None:
                found = fast(Call(attrs, tuple(arrays), n_outputs, limit))
            else:
                found = _rest(op, attrs, arrays, n_outputs)
        except Refused:
            return None
        except (
            ArithmeticError,
            IndexError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            MemoryError,
            RuntimeError,
        ):
            return None  # operands that the operator is not defined on: whoever runs the model says so
    results = [np.asarray(a) for a in found]
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
    """Whether an operator is evaluated here, and not by the reference implementation."""
    return op in _FAST


def _rest(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int) -> list[Array]:
    """An operator that is none of the common ones."""
    # the reference leaves NaN out, or fails on it, or takes the zero that comes first
    if op in ("AveragePool", "GlobalMaxPool") or (op == "MaxPool" and n_outputs == 1):
        found = WINDOWS[op](attrs, arrays)
        if found is None:
            raise Refused
        return found[:1]
    if op == "QuantizeLinear" and (whole := quantized(attrs, arrays)) is not None:
        return [whole]
    return by_reference(op, attrs, arrays, n_outputs)
