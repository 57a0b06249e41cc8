"""Verification: the original and the result on the same inputs, and who is to blame where they differ."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import transient
from ..errors import UserError
from .compare import TOLERANCES, Difference, compare, worst
from .expansion import foreign
from .graph import Graph
from .operators import is_pure
from .reference import Runner, Unavailable, onnx_runtime, runner
from .sample import Array, assignments, free_symbols, make_inputs
from .work import only_moves

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Verification", "check_model", "culprit", "make_inputs", "verify", "write_reproducer"]

_WANTED = 2
"""So many sizes of the symbolic dims are tried."""
_FAINT = 4
"""So many runs more may be made in the place of those whose outputs are too near 0 to tell anything."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a comparison found.

    `ok` is False if some result differs or could not be computed; `compared` counts the runs that were compared, and
    with none nothing is known (`ok` is then True, and `skipped` says why). `max_abs` and `max_rel` (the scaled error)
    are the largest of all outputs, `errors` both by what was compared. `inputs` and `sizes` are those of the first
    failure."""

    ok: bool
    max_abs: float
    max_rel: float
    compared: int
    oracle: str
    numerics: str
    skipped: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Array] | None = field(default=None, repr=False, compare=False)
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The findings as plain JSON values; `ok` is null if nothing was compared."""

        def number(value: float) -> float | None:
            return value if np.isfinite(value) else None

        return {
            "ok": self.ok if self.compared or not self.ok else None,
            "max_abs": number(self.max_abs),
            "max_rel": number(self.max_rel),
            "compared": self.compared,
            "oracle": self.oracle,
            "numerics": self.numerics,
            "errors": {n: {"max_abs": number(a), "max_rel": number(r)} for n, (a, r) in self.errors.items()},
            "skipped": list(self.skipped),
            "failures": list(self.failures),
        }

    def __str__(self) -> str:
        if self.failures:
            return "verification failed: " + "; ".join(self.failures)
        if not self.compared:
            return "not verified: " + "; ".join(self.skipped)
        text = f"verified against {self.oracle} on {self.compared} run{'s' if self.compared > 1 else ''}: "
        text += f"largest error {self.max_abs:.2g} absolute, {self.max_rel:.2g} scaled"
        return f"{text}; not compared: {'; '.join(self.skipped)}" if self.skipped else text


def check_model(
    original: ModelProto | Path | str | bytes | Graph,
    candidate: ModelProto,
    graph: Graph,
    *,
    numerics: str = "reassoc",
    seconds: float = 60.0,
    others: Mapping[str, Callable[[Mapping[str, Array]], Mapping[str, Any]]] | None = None,
    shapes: Mapping[str, int] | None = None,
    expand: Callable[[], tuple[ModelProto, ModelProto]] | None = None,
    classes: Mapping[str, str] | None = None,
) -> Verification:
    """Compares a model (and `others`: further implementations of it, by name) with the original.

    `classes` are the numerics classes, or precisions, of those of the others that are compared otherwise.

    `graph` is the original as read: it says what the inputs are. Both models are run by the same program, ONNX Runtime
    if it takes the original, else `onnx.reference`. `expand` gives the original and the candidate with operators from
    outside the standard replaced by their definitions, for when no program here knows them."""
    named = foreign(graph)
    note = ""
    try:
        if named:
            oracle, candidate, note = _knowing(named, original, candidate, expand)
        else:
            oracle = runner(_source(original), seconds=max(seconds / 2, 1.0))
    except Unavailable as error:
        if named:
            return _nothing(str(error), numerics)
        return _nothing(f"nothing here runs the original ({error})", numerics)
    candidates: dict[str, Callable[[Mapping[str, Array]], Mapping[str, Any]]] = {}
    try:
        candidates["the optimised model"] = _runner_like(oracle, candidate, seconds).run
    except Unavailable as error:
        problem = f"the optimised model does not load in {oracle.name}: {error}"
        return Verification(False, np.inf, np.inf, 0, oracle.name, numerics, failures=(problem,))
    candidates.update(others or {})
    found = verify(oracle, candidates, graph, numerics=numerics, seconds=seconds, shapes=shapes, classes=classes)
    return replace(found, oracle=f"{found.oracle}{note}")


def _knowing(
    named: Sequence[str],
    original: ModelProto | Path | str | bytes | Graph,
    candidate: ModelProto,
    expand: Callable[[], tuple[ModelProto, ModelProto]] | None,
) -> tuple[Runner, ModelProto, str]:
    """What runs a model with operators from outside the standard, the candidate in a form that it runs too, and a note.

    Raises `Unavailable` if nothing does."""
    listed = ", ".join(named)
    try:
        return onnx_runtime(_source(original)), candidate, ""
    except Unavailable as error:
        unknown = f"ONNX Runtime does not run them ({error})"
    if expand is None:
        raise Unavailable(f"the model has {listed}, and {unknown}")
    try:
        whole, optimised = expand()
    except UserError as error:
        raise Unavailable(f"nothing here computes {listed}: {error.message}, and {unknown}") from None
    return runner(whole), optimised, f" with {listed} by definition"


def _source(original: ModelProto | Path | str | bytes | Graph) -> ModelProto | Path | bytes:
    if isinstance(original, Graph):
        from .onnx_out import write

        written: ModelProto = write(original)
        return written
    return Path(original) if isinstance(original, str) else original


def _runner_like(oracle: Runner, model: ModelProto, seconds: float) -> Runner:
    from .reference import onnx_runtime, reference_evaluator

    if oracle.name == "onnxruntime":
        return onnx_runtime(model)
    return reference_evaluator(model, seconds=max(seconds / 2, 1.0))


def _nothing(reason: str, numerics: str, oracle: str = "none") -> Verification:
    return Verification(True, 0.0, 0.0, 0, oracle, numerics, skipped=(reason,))


def verify(
    oracle: Runner,
    candidates: Mapping[str, Callable[[Mapping[str, Array]], Mapping[str, Any]]],
    graph: Graph,
    *,
    numerics: str = "reassoc",
    seconds: float = 60.0,
    shapes: Mapping[str, int] | None = None,
    seed: int = 0,
    classes: Mapping[str, str] | None = None,
) -> Verification:
    """Compares the outputs of each candidate with the oracle's, on seeded inputs and several sizes of symbolic dims.

    Sizes that the oracle refuses are passed over. When `seconds` are used up no further run is begun. Stops at the
    first failure. Raises `ValueError` for an unknown numerics class."""
    by_name: dict[str, list[Difference]] = {name: [] for name in candidates}
    if numerics not in TOLERANCES:
        raise ValueError(f"unknown numerics class {numerics!r}")
    start = time.perf_counter()
    skipped: list[str] = []
    found: list[Difference] = []
    refused = ""
    compared = faint = 0
    computed = computed_in(graph)
    wanted = _WANTED if any(name not in (shapes or {}) for name in free_symbols(graph)) else 1
    fitting: list[dict[str, int]] = []
    again = (fitting[i % len(fitting)] for i in range(_FAINT) if fitting)
    for sizes in chain(assignments(graph, shapes), again):
        if len(fitting) >= wanted and compared - min(faint, _FAINT) >= wanted:
            break
        if sizes in fitting and not faint:
            break  # no other sizes fit
        if compared and time.perf_counter() - start > seconds / 2:
            skipped.append(f"other sizes than the first, for time ({seconds:.0f} s)")
            break
        if not compared and time.perf_counter() - start > seconds:
            refused = refused or f"no run ended in {seconds:.0f} s"
            break
        try:
            feeds = make_inputs(graph, sizes, seed + compared)
            expected = oracle.run(feeds)
        except UserError as error:
            refused = str(error)
            break
        except Unavailable as error:
            refused = str(error)
            continue
        if not compared and _is_random(graph, oracle, feeds, expected):
            return _nothing("the model draws random numbers", numerics, oracle.name)
        for name, candidate in candidates.items():
            numerics_class = (classes or {}).get(name, numerics)
            differences, failure = _check(name, candidate, feeds, expected, numerics_class, computed)
