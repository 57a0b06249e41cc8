"""Promise of a rule's class, as a test on two results.

`exact`: the same bits, except for NaN payloads and, with `signed_zero`, the sign of a zero. `reassoc`: equal up to
rounding where the original is finite, and not finite where it is not. An exponential of finite numbers may overflow,
because log(eˣ + 1) is softplus in real arithmetic, and log eˣ is x. `fast`: equal within a looser tolerance where the
original is finite; quantized 8-bit integers may be one off. All other integers and booleans must be identical.
Independent on purpose of `engine/verification/compare_forms`, which it judges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.engine.rewriting.rule_library import PRECISIONS
from rewrite.grammar.syntax import ast

Array = NDArray[Any]
TOLERANCE = {
    "reassoc": {"float64": 1e-6, "float32": 1e-3, "float16": 5e-2},
    "fast": {"float64": 1e-2, "float32": 1e-2, "float16": 1e-1},
}
"""Allowed error relative to the largest magnitude of the original. Attributes are constants of single precision, hence
at least 1e-7; cancellation costs a digit, in single precision more."""


def differs(left: Array, right: Array, rule: ast.Rule, *, overflown: bool = False, large: bool = False) -> str:
    """Return how the right side breaks the promise of the rule's class; empty if it does not.

    `overflown` says that an exponential below the left side is infinite although its operand is finite, `large` that
    operands are, so that only overflow of the right side alone counts."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"{right.dtype}{list(right.shape)} instead of {left.dtype}{list(left.shape)}"
    if rule.numerics == "fast" and left.dtype.name in ("int8", "uint8"):
        return _first(np.abs(left.astype(np.int32) - right.astype(np.int32)) > 1, left, right)
    if left.dtype.kind != "f":
        return _first(np.asarray(left != right), left, right) if left.dtype.kind in "biu" else ""
    with np.errstate(all="ignore"):
        x, y = left.astype(np.float64), right.astype(np.float64)
        if rule.numerics == "exact":
            wrong = ~((x == y) | (np.isnan(x) & np.isnan(y)))
            if "signed_zero" not in rule.relaxations:
                wrong |= ~np.isnan(x) & (np.signbit(x) != np.signbit(y))
            return _first(wrong, left, right)
        finite = np.isfinite(x)
        if large:
            return _first(finite & ~np.isfinite(y), left, right)
        scale = max(float(np.max(np.abs(x[finite]), initial=0.0)), 1e-3)
        coarse = (
            "float16" if rule.ruleset in PRECISIONS else left.dtype.name
        )  # these rules reduce the precision on purpose
        tolerance = TOLERANCE[rule.numerics][coarse] * scale
        wrong = finite & ~(np.abs(x - y) <= tolerance)
        if rule.numerics == "reassoc" and not overflown:
            wrong |= ~finite & np.isfinite(y)
    return _first(wrong, left, right)


def _first(wrong: Array, left: Array, right: Array) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{right[at].item()!r} instead of {left[at].item()!r} at {list(at)}"
