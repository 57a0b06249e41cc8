"""Verification: the original and the result on the same inputs; on failure, the rules at fault and a reproducer.

Length: one comparison, with what it reports and what a failure leaves behind; inputs, tolerances and roundings have
modules of their own.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ...errors import UserError
from ...system import scoped
from ...system.short_text import clipped
from ..cost.operator_cost import only_moves
from ..ir.detached_model import DetachedModel
from ..ir.graph import Graph
from ..operators.isolated_runtime import isolated, may_crash
from ..operators.reference_runtime import (
    Copies,
    Load,
    Runner,
    Unavailable,
    onnx_runtime,
    reference_evaluator,
    runner,
)
from ..operators.schemas import STANDARD_DOMAINS, is_pure
from ..rewriting.definition_expansion import nonstandard_operators
from .compare import TOLERANCES, Difference, compare, tolerance, worst
from .random_inputs import Array, assignments, free_symbols, make_inputs
from .rounding_spread import Sampler, Spread

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

Model = Union["ModelProto", Path, str, bytes, Graph]
"""A model in memory, in a file, as bytes, or as read."""
Source = Union["ModelProto", Path, bytes, DetachedModel]
"""A model as programs that run ONNX take it."""
Run = Callable[[Mapping[str, Array]], Mapping[str, Any]]
"""An implementation of a model: from inputs to outputs, by name."""

MODEL, PROGRAM = "the optimized model", "the program"
"""Names of the candidates in messages."""
_KEYS = {MODEL: "model", PROGRAM: "program"}
"""Their keys in JSON."""
_LARGE = 1 << 27
"""Size of weights in bytes from which both models are run without copies of them."""
_READ_AS_OTHERS = ("ai.onnx.preview.training.Gradient",)
"""Operators of the standard that become others on import, and that no other program runs."""
_WANTED = 2
"""Number of choices of sizes for the symbolic dims."""
_FAINT = 4
"""Maximum number of further runs in place of those whose outputs are too near 0 to tell anything."""


@dataclass(frozen=True, slots=True)
class OutputError:
    """Largest absolute and scaled error of one output, and the scaled error that is allowed; None if none is."""

    max_abs: float
    max_rel: float
    allowed: float | None


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of comparing candidates with an original.

    `ok` is False if some output differs or could not be computed. `compared` counts the runs; with none, `ok` is True
    and `skipped` says why. `max_abs` and `max_rel` (the scaled error) are maxima over all outputs, `errors` both by
    candidate, and `outputs` by candidate and output. `inputs` and `sizes` are those of the first failure."""

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
    outputs: Mapping[str, Mapping[str, OutputError]] = field(default_factory=dict)

    @classmethod
    def nothing(cls, reason: str, numerics: str, oracle: str = "none") -> Verification:
        """Return the result of a verification in which nothing could be compared."""
        return cls(True, 0.0, 0.0, 0, oracle, numerics, skipped=(reason,))

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values; `ok` is null if nothing was compared."""

        def errors(largest: tuple[float, float]) -> dict[str, float | None]:
            return {k: v if np.isfinite(v) else None for k, v in zip(("max_abs", "max_rel"), largest, strict=True)}

        return {
            "ok": self.ok if self.compared or not self.ok else None,
            **errors((self.max_abs, self.max_rel)),
            **{name: getattr(self, name) for name in ("compared", "oracle", "numerics")},
            "errors": {_KEYS.get(name, name): errors(largest) for name, largest in self.errors.items()},
            "outputs": {
                _KEYS.get(name, name): {
                    output: {**errors((found.max_abs, found.max_rel)), "allowed": found.allowed}
                    for output, found in outputs.items()
                }
                for name, outputs in self.outputs.items()
            },
            "skipped": list(self.skipped),
            "failures": list(self.failures),
        }

    def __repr__(self) -> str:
        return f"<Verification: {clipped(str(self), 200)}>"

    def __str__(self) -> str:
        if self.failures:
            return "verification failed: " + "; ".join(self.failures)
        if not self.compared:
            return "not verified: " + "; ".join(self.skipped)
        text = f"verified against {self.oracle} on {self.compared} run{'s' if self.compared > 1 else ''}: "
        text += f"largest error {self.max_abs:.2g} absolute, {self.max_rel:.2g} scaled"
        return f"{text}; not compared: {'; '.join(self.skipped)}" if self.skipped else text


def check_model(
    original: Model,
    candidate: ModelProto | Path | Graph,
    graph: Graph,
    *,
    numerics: str = "reassoc",
    seconds: float = 60.0,
    others: Mapping[str, Run] | None = None,
    shapes: Mapping[str, int] | None = None,
    expand: Callable[[], tuple[ModelProto, ModelProto]] | None = None,
    classes: Mapping[str, str] | None = None,
) -> Verification:
    """Compare a model, and other implementations of it, with the original.

    The candidate is in memory, in a file, or a graph. Both models are run by the same program: ONNX Runtime if it takes
    the original, else `onnx.reference`. Large weights are not copied for that: the models share those that are mapped
    from a file. `graph` is the original as read, which describes the inputs, and `shapes` are sizes of symbolic dims.
    Models that may crash ONNX Runtime run in a child, if their weights are not large. When the `seconds` are used up no
    further run is begun. `others` are further implementations by name, `classes` their numerics classes or precisions
    where these differ from `numerics`. `expand` returns both models without operators outside the standard, for when no
    program here knows these: the model has them, or a rule made them.

    Raises `ValueError` for an unknown numerics class."""
    if numerics not in TOLERANCES:
        raise ValueError(f"unknown numerics class {numerics!r}")
    named = [*nonstandard_operators(graph), *(op for op in _READ_AS_OTHERS if op in graph.written)]
    note, large = "", sum(constant.nbytes for constant in graph.constants.values()) >= _LARGE
    source = source_model(original, detached=large)
    written = source_model(candidate, detached=large) if isinstance(candidate, Graph) else candidate
    with isolated() as child:
        load = child.load if (named or may_crash(graph)) and not large else partial(onnx_runtime, copies=Copies())
        try:
            if named:
                oracle, written, note = _custom_runner(named, source, written, expand, load)
            else:
                oracle = runner(source, seconds=max(seconds / 2, 1.0), load=load)
        except Unavailable as error:
            reason = str(error) if named else f"no program here runs the original ({error})"
            return Verification.nothing(reason, numerics)
        try:
            try:
                optimized = _in_same(oracle, written, seconds, load)
            except Unavailable:
                if note or expand is None or isinstance(written, Path | bytes):
                    raise
                proto = written.model if isinstance(written, DetachedModel) else written
                made = sorted({name for name in _domains(proto.graph) if name not in STANDARD_DOMAINS})
                if not made:
                    raise
                with contextlib.suppress(UserError):  # no definition: the first error tells more
                    written = expand()[1]
                optimized = _in_same(oracle, written, seconds, load)
                note = f" with operators of {', '.join(made)} by definition"
        except Unavailable as error:
            problem = f"the optimized model does not load in {oracle.name}: {error}"
            return Verification(False, np.inf, np.inf, 0, oracle.name, numerics, failures=(problem,))
        candidates = {MODEL: optimized.run, **(others or {})}
        comparison = _Comparison(oracle, candidates, graph, numerics, classes or {}, seconds)
        found = comparison.run(shapes)
        return replace(found, oracle=f"{found.oracle}{note}")


def _in_same(oracle: Runner, candidate: Source, seconds: float, load: Load) -> Runner:
    """Return a model in the program that runs the original. Raises `Unavailable` if that refuses it."""
    if oracle.name == "onnxruntime":
        return load(candidate)
    return reference_evaluator(candidate, seconds=max(seconds / 2, 1.0))


def _domains(graph: GraphProto) -> set[str]:
    """Return the domains of the operators of a graph and of the graphs in it."""
    found = {node.domain for node in graph.node}
    bodies = (a.g for node in graph.node for a in node.attribute if a.HasField("g"))
    return found.union(*map(_domains, bodies))


def _custom_runner(
    named: Sequence[str],
    original: Source,
    candidate: Source,
    expand: Callable[[], tuple[ModelProto, ModelProto]] | None,
    load: Load,
) -> tuple[Runner, Source, str]:
    """Return what runs a model with operators outside the standard, the candidate in the same form, and a note.

    Raises `Unavailable` if nothing does."""
    listed = ", ".join(named)
    try:
        return load(original), candidate, ""
    except Unavailable as error:
        unknown = f"ONNX Runtime does not run them ({error})"
    if expand is None:
        raise Unavailable(f"the model has {listed}, and {unknown}")
    try:
        whole, optimized = expand()
    except UserError as error:
        raise Unavailable(f"no runtime here implements {listed}: {error.message}, and {unknown}") from None
    return runner(whole, load=load), optimized, f" with {listed} by definition"


@dataclass(slots=True)
class _Comparison:
    """Comparison of candidates with the original on seeded inputs and several sizes of symbolic dims.

    `fitting` are the sizes that the original runs with; `refused` says why it did not run with the last ones."""

    oracle: Runner
    candidates: Mapping[str, Run]
    graph: Graph
    numerics: str
    classes: Mapping[str, str]
    seconds: float
    compared: int = 0
    faint: int = 0
    found: dict[str, list[Difference]] = field(default_factory=dict)
    outputs: dict[str, dict[str, OutputError]] = field(default_factory=dict)
    fitting: list[dict[str, int]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    undecided: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    sampler: Sampler | None = None
    refused: str = ""

    def run(self, shapes: Mapping[str, int] | None) -> Verification:
        """Compare until enough runs agree, one differs, or the time is used up; refused sizes are passed over."""
        start, seconds = time.perf_counter(), self.seconds
        wanted = _WANTED if any(name not in (shapes or {}) for name in free_symbols(self.graph)) else 1
        computed = computed_in(self.graph)
        again = (self.fitting[i % len(self.fitting)] for i in range(_FAINT) if self.fitting)  # with other inputs
        for sizes in itertools.chain(assignments(self.graph, shapes), again):
            if len(self.fitting) >= wanted and self.compared - min(self.faint, _FAINT) >= wanted:
                break
            if sizes in self.fitting and not self.faint:
                break  # no other sizes fit
            if self._is_late(time.perf_counter() - start, seconds):
                break
            try:
                feeds, expected = self._original(sizes)
            except UserError as error:
                self.refused = str(error)
                break
            except Unavailable as error:
                self.refused = str(error)
                continue
            if not self.compared and _is_random(self.graph, self.oracle, feeds, expected):
                return Verification.nothing("the model draws random numbers", self.numerics, self.oracle.name)
            failure = self._compare(feeds, expected, computed)
            self.compared += 1
            if failure:
                text = ", ".join(f"{k} = {v}" for k, v in sizes.items())
                failure += f" (sizes {text})" if sizes else ""
                return self._result(ok=False, failures=(failure,), sizes=sizes, inputs=feeds)
            if sizes not in self.fitting:
                self.fitting.append(sizes)
        name = self.oracle.name
        if not self.compared:
            reason = f"{name} computes none of the inputs made up: {self.refused}"
            return Verification.nothing(reason, self.numerics, name)
        if len(self.fitting) < wanted and not self.skipped:
            self.skipped.append(f"a second choice of sizes: {name} refused those tried")
        if self.compared == self.faint:
            self.skipped.append("much: the outputs are too near 0 on the inputs made up")
        for (candidate, output), (count, size) in self.undecided.items():
            self.skipped.append(f"{count} of {size} numbers of {output!r} of {candidate}, which rounding alone decides")
        each = {candidate: worst(differences) for candidate, differences in self.found.items()}
        return self._result(ok=True, errors={n: (d.max_abs, d.max_rel) for n, d in each.items()})

    def _original(self, sizes: Mapping[str, int]) -> tuple[Mapping[str, Array], Mapping[str, Any]]:
        """Return inputs of these sizes and what the original makes of them.

        In every second run, integers may be as large as a length, as far as the original takes them.
        Raises `UserError` for inputs that cannot be made, and `Unavailable`."""
        small = make_inputs(self.graph, sizes, self.compared)
        if self.compared % 2:
            long = make_inputs(self.graph, sizes, self.compared, long=True)
            if any(not np.array_equal(long[name], array) for name, array in small.items() if array.dtype.kind in "iu"):
                with contextlib.suppress(Unavailable):
                    return long, self.oracle.run(long)
        return small, self.oracle.run(small)

    def _is_late(self, used: float, seconds: float) -> bool:
        if self.compared and used > seconds / 2:
            self.skipped.append(f"other sizes than the first, for time ({seconds:.0f} s)")
            return True
        if not self.compared and used > seconds:
            self.refused = self.refused or f"no run ended in {seconds:.0f} s"
            return True
        return False

    def _compare(self, feeds: Mapping[str, Array], expected: Mapping[str, Any], computed: Mapping[str, str]) -> str:
        """Compare all candidates on one set of inputs; return what is wrong with the first that differs, if any."""
        faint = False
        spread = functools.cache(lambda: self._spread(feeds))
        for name, candidate in self.candidates.items():
            numerics, known = self.classes.get(name, self.numerics), self.outputs.setdefault(name, {})
            differences, undecided = _check(candidate, feeds, expected, numerics, computed, spread)
            for output, count in undecided.items():
                total, size = self.undecided.get((name, output), (0, 0))
                self.undecided[name, output] = (total + count, size + expected[output].size)
            for output, one in differences.items():
                allowed = tolerance(expected.get(output), numerics, computed.get(output, ""))
                last = known.get(output, OutputError(0.0, 0.0, allowed))
                known[output] = replace(
                    last, max_abs=max(last.max_abs, one.max_abs), max_rel=max(last.max_rel, one.max_rel)
                )
            difference = worst([*differences.values()])
            self.found.setdefault(name, []).append(difference)
            if difference.problem:
                return f"{name} {difference.problem}"
            faint = faint or difference.faint
        self.faint += faint
        return ""

    def _spread(self, feeds: Mapping[str, Array]) -> Spread:
        """Return what rounding can do to the results; nothing where only ONNX Runtime could tell and does not."""
        self.sampler = self.sampler or Sampler(self.graph)
        return self.sampler.sample(feeds, self.seconds / 4)

    def _result(self, *, ok: bool, **details: Any) -> Verification:
        total = worst([difference for differences in self.found.values() for difference in differences])
        return Verification(
            ok, total.max_abs, total.max_rel, self.compared, self.oracle.name, self.numerics, tuple(self.skipped),
            outputs=self.outputs, **details,
        )  # fmt: skip


def _check(
    candidate: Run,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Any],
    numerics: str,
    computed: Mapping[str, str],
    spread: Callable[[], Spread],
) -> tuple[dict[str, Difference], dict[str, int]]:
    """Return the difference of each output, up to the first that is wrong; "" stands for all of them.

    The second result counts the numbers of an output that differ as far as rounding makes the original differ from
    itself. They are left out of the differences. The class `exact` promises that there are none."""
    try:
        got = candidate({k: v.copy() for k, v in feeds.items()})
    except Exception as error:  # a program that crashes is a finding, whatever it raises
        kind = "" if isinstance(error, Unavailable) else f"{type(error).__name__}: "
        return {"": Difference(np.inf, np.inf, f"fails where the original runs: {kind}{error}")}, {}
    if list(got) != list(expected):
        outputs = f"has the outputs {', '.join(got)} instead of {', '.join(expected)}"
        return {"": Difference(np.inf, np.inf, outputs)}, {}
    differences: dict[str, Difference] = {}
    undecided: dict[str, int] = {}
    for output, value in expected.items():
        kind = computed.get(output, "")
        difference = compare(value, got[output], numerics, kind)
        if difference.problem and numerics != "exact":
            allowed = tolerance(value, numerics, kind) or 0.0
            reconciled, count = spread().reconciled(output, value, got[output], allowed)
            if count and not (again := compare(value, reconciled, numerics, kind)).problem:
                difference, undecided[output] = again, count
        if difference.problem:
            return {output: replace(difference, problem=f"differs in output {output!r}: {difference.problem}")}, {}
        differences[output] = difference
    return differences, undecided


def computed_in(graph: Graph) -> dict[str, str]:
    """Return the coarsest float type that each float value of a graph was computed in, by its NumPy name.

    Values that only move inputs and constants have none. Integers end a chain: they are exact, or differ visibly.
    Bodies are not followed: their results count in their own types."""
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
    """Return whether the original may give other results for the same inputs; run only if an operator is impure.

    Numbers drawn with a seed count as such: some oracles draw the same ones in each run, but another generator's."""
    impure = [node for node in graph.nodes if not is_pure(node.op, node.attrs)]
    if not impure or any("seed" in node.attrs for node in impure):
        return bool(impure)
    again = oracle.run(feeds)
    return any(compare(value, again[name], "exact").problem for name, value in expected.items())


def source_model(original: Model, *, detached: bool = False) -> Source:
    """Return a model as programs that run ONNX take it; if `detached`, that of a file or graph without its weights."""
    if isinstance(original, Graph):
        from ..onnx_io import exporter  # imports onnx, which a model in a file does not need here

        return exporter.detached(original) if detached else exporter.write(original)
    if detached and isinstance(original, str | Path):
        from ..onnx_io import model_file

        return model_file.detached(Path(original))
    return Path(original) if isinstance(original, str) else original


# --- failures ---


def culprit(rules: Sequence[str], fails: Callable[[frozenset[str]], bool], *, tests: int = 200) -> tuple[str, ...]:
    """Return a minimal set of rules that makes verification fail, by delta debugging (Zeller, Hildebrandt, TSE 2002).

    `fails(disabled)` optimizes without the rules `disabled` and returns whether that fails. No single rule can be left
    out of the returned set, unless `tests` calls were not enough; it is empty if verification fails without any rule.
    Raises `ValueError` if it does not fail with all of them."""
    known = functools.cache(fails)

    def fail(enabled: Sequence[str]) -> bool:
        return known(frozenset(rules) - frozenset(enabled))

    current = list(dict.fromkeys(rules))
    if not fail(current):
        raise ValueError("nothing fails with all rules enabled")
    if fail([]):
        return ()
    parts = 2
    while len(current) > 1 and known.cache_info().misses < tests:
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
    folder: Path, original: Model, candidate: ModelProto | None, verification: Verification, rules: Sequence[str] = ()
) -> Path:
    """Write a directory that reproduces a failure: both models, the inputs, and the result.

    The directory appears as a whole or not at all; if `folder` exists a number is appended to its name. Returns the
    directory. Raises `OSError`."""
    import onnx

    folder.parent.mkdir(parents=True, exist_ok=True)
    with scoped.directory_beside(folder) as temporary:
        place = temporary / folder.name
        place.mkdir()
        source = source_model(original)
        if isinstance(source, Path):
            source = onnx.load(source)
        elif isinstance(source, bytes):
            source = onnx.load_model_from_string(source)
        assert not isinstance(source, DetachedModel)
        for name, model in (("original", source), ("optimized", candidate)):
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
        numbered = (folder.with_name(f"{folder.name}-{n}") if n else folder for n in itertools.count())
        while True:
            target = next(path for path in numbered if not path.exists())
            with contextlib.suppress(FileExistsError):
                os.rename(place, target)
                return target
