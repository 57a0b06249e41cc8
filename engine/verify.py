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
            found.append(differences)
            by_name[name].append(differences)
            if failure:
                total = worst(found)
                return Verification(
                    False, total.max_abs, total.max_rel, compared + 1, oracle.name, numerics, tuple(skipped),
                    (failure + (f" (sizes {_text(sizes)})" if sizes else ""),), sizes, feeds,
                )  # fmt: skip
        compared += 1
        fitting += [sizes] if sizes not in fitting else []
        faint += any(d.faint for d in found[-len(candidates) :])
    if not compared:
        return _nothing(f"{oracle.name} computes none of the inputs made up: {refused}", numerics, oracle.name)
    if len(fitting) < wanted and not skipped:
        skipped.append(f"a second choice of sizes: {oracle.name} refused those tried")
    if compared == faint:
        skipped.append("much: the outputs are too near 0 on the inputs made up")
    total = worst(found)
    each = {name: worst(differences) for name, differences in by_name.items()}
    errors = {name: (d.max_abs, d.max_rel) for name, d in each.items()}
    return Verification(
        True, total.max_abs, total.max_rel, compared, oracle.name, numerics, tuple(skipped), errors=errors
    )


def _check(
    name: str,
    candidate: Callable[[Mapping[str, Array]], Mapping[str, Any]],
    feeds: Mapping[str, Array],
    expected: Mapping[str, Any],
    numerics: str,
    computed: Mapping[str, str],
) -> tuple[Difference, str]:
    """One candidate on one set of inputs: how far off it is and what is wrong with it, if anything."""
    bad = Difference(np.inf, np.inf)
    try:
        got = candidate({k: v.copy() for k, v in feeds.items()})
    except Unavailable as error:
        return bad, f"{name} fails where the original runs: {error}"
    except Exception as error:  # a program that breaks down is a finding, whatever it raises
        return bad, f"{name} fails where the original runs: {type(error).__name__}: {error}"
    if list(got) != list(expected):
        return bad, f"{name} has the outputs {', '.join(got)} instead of {', '.join(expected)}"
    differences = []
    for output, value in expected.items():
        difference = compare(value, got[output], numerics, computed.get(output, ""))
        if difference.problem:
            return difference, f"{name} differs in output {output!r}: {difference.problem}"
        differences.append(difference)
    return worst(differences), ""


def computed_in(graph: Graph) -> dict[str, str]:
    """The coarsest float type that each float value of a graph was computed in, by its NumPy name; none is told of
    values that only move inputs and constants about. Integers end it: they are exact, or differ visibly. Bodies are not
    looked into: their results count in their own types."""
    order = list(TOLERANCES["reassoc"])
    found: dict[str, str] = {}
    for node in graph.nodes:
        captured = (c for _, body in node.subgraphs() for c in body.captures())
        inherited = [found[v] for v in (*node.inputs, *captured) if v in found]
        for value in node.outputs:
            dtype = graph.type(value).dtype
            name = "" if dtype is None else dtype.numpy.name
            own = [name] if name in order and not only_moves(node.op) else []
            if name in order and (own or inherited):
                found[value] = max((*own, *inherited), key=order.index)
    return found


def _is_random(graph: Graph, oracle: Runner, feeds: Mapping[str, Array], expected: Mapping[str, Any]) -> bool:
    """Whether the original gives other results for the same inputs; only asked if it has impure operators."""
    if all(is_pure(node.op, node.attrs) for node in graph.nodes):
        return False
    again = oracle.run(feeds)
    return any(compare(value, again[name], "exact").problem for name, value in expected.items())


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in sizes.items())


# --- who is to blame ---------------------------------------------------------------------------------------------


def culprit(rules: Sequence[str], fails: Callable[[frozenset[str]], bool], *, tests: int = 200) -> tuple[str, ...]:
    """A smallest set of rules that makes verification fail: delta debugging (Zeller, Hildebrandt, TSE 2002).

    `fails(disabled)` optimises without the rules `disabled` and says whether that fails. In the set that is returned no
    single rule can be left out (unless `tests` calls were not enough); it is empty if it fails without any rule.
    Raises `ValueError` if it does not fail with all of them."""
    calls = 0
    everything = frozenset(rules)
    known: dict[frozenset[str], bool] = {}

    def fail(enabled: Sequence[str]) -> bool:
        nonlocal calls
        disabled = everything - frozenset(enabled)
        if disabled not in known:
            calls += 1
            known[disabled] = fails(disabled)
        return known[disabled]

    current = list(dict.fromkeys(rules))
    if not fail(current):
        raise ValueError("nothing fails with all rules enabled")
    if fail([]):
        return ()
    parts = 2
    while len(current) > 1 and calls < tests:
        size = -(-len(current) // parts)
        chunks = [current[i : i + size] for i in range(0, len(current), size)]
        for index, chunk in enumerate(chunks):
            rest = [r for i, c in enumerate(chunks) if i != index for r in c]
            if fail(chunk):
                current, parts = chunk, 2
                break
            if len(chunks) > 2 and fail(rest):
                current, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(current):
                break
            parts = min(2 * parts, len(current))
    return tuple(current)


def write_reproducer(
    folder: Path,
    original: ModelProto | Path | str | bytes | Graph,
    candidate: ModelProto | None,
    verification: Verification,
    rules: Sequence[str] = (),
) -> Path:
    """Writes what is needed to see a failure again: both models, the inputs, and what was found.

    The directory appears as a whole or not at all; if `folder` exists a number is added to its name. Gives the
    directory that was written. Raises `OSError`."""
    import onnx

    folder.parent.mkdir(parents=True, exist_ok=True)
    with transient.directory_beside(folder) as temporary:
        place = temporary / folder.name
        place.mkdir()
        source = _source(original)
        if isinstance(source, Path):
            source = onnx.load(source)
        elif isinstance(source, bytes):
            source = onnx.load_model_from_string(source)
        for name, model in (("original", source), ("optimised", candidate)):
            if model is not None:
                large = model.ByteSize() > (1 << 31) - (1 << 20)
                copy = type(model)()
                copy.CopyFrom(model)
                onnx.save_model(copy, place / f"{name}.onnx", save_as_external_data=large, location=f"{name}.data")
        for index, (name, array) in enumerate((verification.inputs or {}).items()):
            (place / f"input_{index}.pb").write_bytes(
                onnx.numpy_helper.from_array(np.asarray(array), name).SerializeToString()
            )
        about = {**verification.as_json(), "rules": list(rules), "sizes": dict(verification.sizes)}
        (place / "failure.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        number = 0
        while True:
            target = folder if not number else folder.with_name(f"{folder.name}-{number}")
            if not target.exists():
                with contextlib.suppress(FileExistsError):
                    os.rename(place, target)
                    return target
            number += 1
