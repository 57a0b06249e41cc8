"""Comparison of the results of models, by numerics class. (`compare_forms` compares both sides of a rule.)

- `reassoc` and `fast`: floats by their scaled error. |a − b| is at most `tolerance` times the largest finite magnitude
  of the reference, or at most two units in the last place of 1: a probability near 0 is computed from numbers near 1,
  and is no more precise than they are. NaN and infinities must be in the same places. Integers are equal, except that
  rounding may move an 8-bit one (a quantized value) by one step.
- `exact`: the same bits, except for the payload of a NaN and the sign of zero (which rules may waive by name).
- A requested precision (`bf16`) carries no guarantee: its error is reported, and a wide margin only catches gross
  errors. Integers, such as the index of the largest score, may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rewriting.rule_library import PRECISIONS

TOLERANCES: dict[str, dict[str, float]] = {
    "exact": {},
    "reassoc": {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2},
    "fast": {"float64": 1e-3, "float32": 1e-2, "float16": 3e-2, "bfloat16": 1e-1},
    **{p: {"float64": 0.3, "float32": 0.3, "float16": 0.3, "bfloat16": 0.3} for p in PRECISIONS[1:]},
}
"""Allowed scaled error, by numerics class and element type; other floats have the largest of their class."""

_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Two units in the last place of 1, by element type."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two values: the largest absolute and scaled error, and what is wrong (empty if nothing is).

    `faint`: the values agree only because they are near 0; their scaled error is meaningless and omitted."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    problem: str = ""
    faint: bool = False


def compare(reference: Any, found: Any, numerics: str, computed: str = "") -> Difference:
    """Compare a value (an array, a sequence of values, or None for an empty optional) with the reference's.

    `computed` is the coarsest float type that the value was computed in, if it is not its own: a result of f32
    arithmetic that is cast to f64 is not more precise."""
    if reference is None or found is None:
        return Difference(problem="" if reference is found else "one is an empty optional, the other is not")
    if isinstance(reference, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(reference):
            return Difference(problem="the sequences differ in length")
        return worst([compare(a, b, numerics, computed) for a, b in zip(reference, found, strict=True)])
    if isinstance(reference, dict):
        if not isinstance(found, dict) or list(reference) != list(found):
            return Difference(problem="the maps differ in their keys")
        return compare(_of_map(reference), _of_map(found), numerics, computed)
    return _arrays(np.asarray(reference), np.asarray(found), numerics, computed)


def _of_map(values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values of a map as an array; floats of maps are f32."""
    array = np.array([*values.values()])
    return array.astype(np.float32) if array.dtype == np.float64 else array


def tolerance(reference: Any, numerics: str, computed: str = "") -> float | None:
    """Return the scaled error that is allowed of an array of floats; None for anything else. See `compare`."""
    if not isinstance(reference, np.ndarray | np.generic) or reference.dtype.kind in "OUSiubc":
        return None
    limits = TOLERANCES[numerics]
    return max(limits.get(reference.dtype.name, max(limits.values(), default=0.0)), limits.get(computed, 0.0))


def worst(differences: Sequence[Difference]) -> Difference:
    """Return the largest errors and the first problem among several differences."""
    return Difference(
        max((d.max_abs for d in differences), default=0.0),
        max((d.max_rel for d in differences), default=0.0),
        next((d.problem for d in differences if d.problem), ""),
        any(d.faint for d in differences),
    )


def _arrays(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], numerics: str, computed: str) -> Difference:
    if a.dtype.kind in "OUS" and b.dtype.kind in "OUS":
        same = a.shape == b.shape and bool((a.astype(object) == b.astype(object)).all())
        return Difference(problem="" if same else "the strings differ")
    if a.dtype != b.dtype:
        return Difference(problem=f"element type {b.dtype} instead of {a.dtype}")
    if a.shape != b.shape and not _stacks_nothing(a.shape, b.shape):
        return Difference(problem=f"shape {list(b.shape)} instead of {list(a.shape)}")
    if not a.size:
        return Difference()
    if a.dtype.kind in "iub":
        return _integers(a, b, numerics)
    if a.dtype.kind == "c":
        return worst([_arrays(x, y, numerics, computed) for x, y in ((a.real, b.real), (a.imag, b.imag))])
    return _floats(a, b, numerics, computed)


def _stacks_nothing(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes may both be that of no rows: ONNX Runtime gives a loop's results of no iterations no other
    extents than those that the body states."""
    rows = a[:1] == b[:1] == (0,)
    return rows and all(x == y or not x or not y for x, y in zip(a, b, strict=False))


def _integers(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], numerics: str) -> Difference:
    wrong = a != b
    count = int(wrong.sum())
    if not count:
        return Difference()
    if a.dtype.kind == "b":
        return Difference(1.0, 1.0, "" if numerics in PRECISIONS else f"{count} of {a.size} elements differ")
    gap = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
    scale = float(np.abs(a.astype(np.float64)).max()) or 1.0
    fine = numerics in PRECISIONS or (numerics != "exact" and a.dtype.itemsize == 1 and gap <= 1)
    return Difference(gap, gap / scale, "" if fine else f"{count} of {a.size} elements differ, by up to {gap:g}")


def _floats(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], numerics: str, computed: str) -> Difference:
    allowed = tolerance(a, numerics, computed) or 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    for wrong, message in (
        (np.isnan(x) != np.isnan(y), "NaN in {} of {} places where the other has none"),
        ((np.isinf(x) | np.isinf(y)) & (x != y), "infinite in {} of {} places where the other is not"),
    ):
        if wrong.any():
            return Difference(np.inf, np.inf, message.format(int(wrong.sum()), a.size))
    finite = np.isfinite(x)
    if not finite.any():
        return Difference()
    gap = np.abs(x[finite] - y[finite])
    largest = float(gap.max())
    scale = float(np.abs(x[finite]).max())
    scaled = largest / scale if scale else (0.0 if not largest else np.inf)
    if scaled <= allowed:
        return Difference(largest, scaled)
    if allowed and largest <= max(_ROUNDING.get(a.dtype.name, 0.0), _ROUNDING.get(computed, 0.0)):
        return Difference(largest, faint=True)
    place = tuple(int(i) for i in np.argwhere(finite)[int(gap.argmax())])
    error = f"scaled error {scaled:.2g}, allowed {allowed:g}"
    return Difference(largest, scaled, f"{b[place]!s} instead of {a[place]!s} at {list(place)}: {error}")
