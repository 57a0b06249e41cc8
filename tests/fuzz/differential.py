"""A random graph through the tool, compared with its values node by node; failures are reduced to few nodes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import onnx
from rewrite.backend.compile_graph import compile_graph
from rewrite.engine import graph_job, optimizer, pipeline
from rewrite.engine.ir.bodies import all_bodies
from rewrite.engine.operators.schemas import declared_operators
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules, operators_of, rule_set
from rewrite.engine.saturation import child_process, saturation_process
from rewrite.engine.stage_values import Chosen, Source
from rewrite.engine.trails import make as make_trail
from rewrite.engine.trails.check import Broken
from rewrite.engine.trails.check import check as check_trail
from rewrite.engine.trails.trail import from_json, to_json
from rewrite.engine.verification.compare import TOLERANCES, compare
from rewrite.engine.verification.rounding_spread import Spread
from rewrite.errors import RewriteError
from rewrite.grammar.library.load import Library

from . import draws, eager
from .eager import ML_OPSET, Array, Invalid, Step, Value, _session, runtime_deviates, with_bodies
from .maker import OPSETS, Maker, is_float, model_of

RUNS = (12, 240)
"""Runs with random rounding errors where a result differs, then where they do not explain it: near a pole few do."""
_ERRORS = {"float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-9, "bfloat16": 2.0**-6}


@dataclass(frozen=True)
class Way:
    """How a graph is run: with the standard rules or without, for a target, on some threads."""

    rules: bool
    target: str
    threads: int

    def __str__(self) -> str:
        return f"{'rules' if self.rules else 'no rules'}, {self.target}, {self.threads} thread(s)"


TARGETS = ("native", "avx2", "portable")
WAYS = tuple(Way(r, t, n) for t in TARGETS for r in (True, False) for n in (1, 2))


def ways_of(seed: int, count: int) -> list[Way]:
    """Return some ways for a seed, with and without rules, first for one target: they share kernels."""
    first = seed % len(TARGETS) * 4
    order = (0, 3, 1, 2) if seed // len(TARGETS) % 2 else (1, 2, 0, 3)
    return [WAYS[(first + i // 4 * 4 + order[i % 4]) % len(WAYS)] for i in range(count)]


@dataclass(frozen=True)
class Case:
    """A graph with the values of its tensors: nodes in order, inputs and constants, and what is compared.

    One of several graphs side by side has these as its parts."""

    maker: Maker
    steps: tuple[Step, ...]
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    parts: tuple[Case, ...] = ()

    @property
    def values(self) -> Mapping[str, Value]:
        """The values of all tensors, by name."""
        return self.maker.values

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        shown = Maker(0, self.maker.opset)
        shown.values, shown.steps, shown.inputs = self.maker.values, list(self.steps), dict(self.inputs)
        read = {i for s in self.steps for i in (*s.node.input, *_bodies_read(s.node))}
        shown.constants = {n: a for n, a in self.maker.constants.items() if n in read}
        shown.declared = self.maker.declared
        return model_of(shown, self.outputs)

    def rerun(self, rng: np.random.Generator | None) -> dict[str, Value]:
        """Return the outputs; with a generator, every computed float is off by a random rounding error.

        So are the operands of operators that round inside, where no error of theirs shows what else may come out."""
        values: dict[str, Value] = {**self.maker.constants, **self.inputs}
        for step in self.steps:
            rounds = rng is not None and step.node.op_type in _ROUND_INSIDE
            operands = {n: _shaken(values[n], rng) for n in step.node.input if n} if rng and rounds else {}
            for name, value in step.run({**values, **operands}).items():
                values[name] = _shaken(value, rng, step.node.op_type) if rng is not None else value
        return {name: values[name] for name in self.outputs}


_ROUND_INSIDE = frozenset({"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "DynamicQuantizeLinear", "QuantizeLinear"})
_UNDERFLOW = frozenset({
    "Exp", "Softmax", "Pow", "Div", "Mul", "Reciprocal", "Cast", "Sigmoid", "Softplus", "MatMul", "Gemm", "Conv",
    "ReduceProd", "CumProd", "Gelu",
})  # fmt: skip
"""Operators whose result of 0 may be a number that is too small for the type, or for the sum that it is left of."""
_INEXACT = frozenset({"DFT", "STFT", "Resize"})
"""Operators that are computed in quite different ways: by sums of many terms or positions of pixels."""


def _bodies_read(node: onnx.NodeProto) -> Iterator[str]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from (v.name for v in attribute.g.output)
            for inner in attribute.g.node:
                yield from inner.input
                yield from _bodies_read(inner)


def _shaken(value: Value, rng: np.random.Generator, op: str = "") -> Value:
    """Return a value with random rounding errors. What is smaller than its error may be 0, of either sign.

    What is 0 may be so, too, or was too small for its type."""
    if not isinstance(value, np.ndarray) or value.dtype.name not in _ERRORS:
        return value
    error = _ERRORS[value.dtype.name] * (8 if op in _INEXACT else 1)
    wide = value.astype(np.float64)
    largest = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
    with np.errstate(all="ignore"):
        bound = error * np.maximum(np.abs(wide), largest / 4)
        noise = rng.uniform(-1.0, 1.0, value.shape) * bound
        least = float(ml_dtypes.finfo(value.dtype).smallest_subnormal)
        zeros = rng.choice((0.0, -0.0, least, -least) if op in _UNDERFLOW else (0.0, -0.0), value.shape)
        shaken = np.where(np.isfinite(wide), wide + noise, wide)
        shaken = np.where((np.abs(wide) < bound) & (noise > bound / 2), rng.choice((0.0, -0.0), value.shape), shaken)
        exact = (wide == 0) & (op not in _INEXACT)
        return np.asarray(np.where(exact, zeros, shaken)).astype(value.dtype)


def warm() -> None:
    """Read rules and templates for processes that are forked. An e-graph here would leave them without its threads."""
    options, library = Options(), _load((), std=True)
    for opset in sorted(set(OPSETS)):
        for domains in ({}, {"ai.onnx.ml": ML_OPSET}, {"com.microsoft": 1}):
            with in_process():
                rewriting = pipeline.prepare(library, {"": opset, **domains}, options, [])
                pipeline.operators_of(library, {"": opset, **domains})
            assert all(rule.rule.name for rule in rewriting.rules.rules)  # decodes them
    for seed in range(6):
        graph = pipeline.read(make(seed, 10).model(), Options(), library).graph
        for target in ("native", "avx2", "portable"):
            with warnings.catch_warnings(), contextlib.suppress(RewriteError):
                warnings.simplefilter("ignore")
                compile_graph(graph, threads=1, target=target)


def make(seed: int, size: int, first_name: int = 0) -> Case:
    """Return the case of a seed, of about as many steps; its values are numbered from `first_name` on."""
    maker = Maker(seed, first_name=first_name)
    refused = 0
    while len(maker.steps) < size and refused < 5 * size:
        try:
            draws.step(maker)
        except Invalid:
            refused += 1
    read = {i for s in maker.steps for i in (*s.node.input, *_bodies_read(s.node))}
    made = [o for s in maker.steps for o, v in s.example.items() if isinstance(v, np.ndarray)]
    outputs = [o for o in made if o not in read or maker.chance(0.1)]
    return _pruned(Case(maker, tuple(maker.steps), maker.inputs, tuple(outputs or made[-1:])))


def alike(case: Case) -> tuple[object, ...]:
    """Return what graphs have in common that may be run as one model and be checked no less than each by itself.

    They are of one opset; either all or none need the rules that define operators, have bodies, can be run by ONNX
    Runtime, and have operators that it computes otherwise than the standard."""
    defined = any(s.node.domain == "com.microsoft" for s in case.steps)
    bodies = any(a.HasField("g") for s in case.steps for a in s.node.attribute)
    runs = all(s.oracle.name == "onnxruntime" for s in case.steps)
    return case.maker.opset, defined, bodies, runs, any(runtime_deviates(s.node, case.values) for s in case.steps)


def side_by_side(cases: Sequence[Case]) -> Case:
    """Return one case of several that are `alike`, whose values have different names."""
    if len(cases) == 1:
        return cases[0]
    maker = Maker(0, cases[0].maker.opset)
    for case in cases:
        assert not maker.values.keys() & case.values.keys()
        maker.values.update(case.values)
        maker.constants.update(case.maker.constants)
        maker.declared.update(case.maker.declared)
    return Case(
        maker,
        tuple(step for case in cases for step in case.steps),
        {name: array for case in cases for name, array in case.inputs.items()},
        tuple(name for case in cases for name in case.outputs),
        tuple(cases),
    )


def _pruned(case: Case) -> Case:
    """Return a case without what its outputs do not need."""
    needed = set(case.outputs)
    steps: list[Step] = []
    for step in reversed(case.steps):
        if needed & set(step.example):
            steps.insert(0, step)
            needed.update((*step.node.input, *_bodies_read(step.node)))
    return replace(case, steps=tuple(steps), inputs={n: a for n, a in case.inputs.items() if n in needed})


@functools.cache
def _loaded(paths: tuple[str, ...], std: bool) -> Library:
    return load_rules(paths, std=std)


def _load(paths: Sequence[str], *, std: bool) -> Library:
    return _loaded(tuple(paths), std)


_CALLS: dict[tuple[Any, ...], Any] = {}


def _cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes once what a library gives for a set of arguments."""

    def call(library: Library, *args: Any, **kwargs: Any) -> Any:
        key = (function, id(library), repr((args, kwargs)))
        if key not in _CALLS:
            _CALLS[key] = function(library, *args, **kwargs)
        return _CALLS[key]

    return call


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Saturate in this process and thread, with rules that are read once: small graphs cost less than all that."""
    operators = _cached(operators_of)
    with (
        mock.patch.multiple(optimizer, ThreadPoolExecutor=_Inline, load_rules=_load),
        mock.patch.multiple(graph_job, load_rules=_load, operators_of=operators),
        mock.patch.multiple(make_trail, load_rules=_load),
        mock.patch.multiple(pipeline, load_rules=_load, rule_set=_cached(rule_set), operators_of=operators),
        mock.patch.multiple(saturation_process, run=lambda task, progress, child: task(progress)),
        mock.patch.multiple(child_process, start=contextlib.nullcontext),
    ):
        yield


class _Inline:
    """An executor that runs what is submitted at once."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run this now."""
        future: Future[Any] = Future()
        future.set_result(work(*args))
        return future


def check(case: Case, ways: Sequence[Way], outside: Callable[[str], None] = lambda _: None) -> list[str]:
    """Return what is wrong with a case, run in these ways; `outside` is called with operators that had no kernel."""
    model = case.model()
    feeds = {name: _with_slack(array) for name, array in case.inputs.items()}
    problems: list[str] = []
    if any(s.node.domain == "com.microsoft" for s in case.steps):  # rules define their types
        ways = [replace(w, rules=True) for w in ways]
    for rules in sorted({w.rules for w in ways}, reverse=True):
        label = "rules" if rules else "no rules"
        recorders: list[make_trail.Recorder] = []
        try:
            with in_process(), _recording(recorders):
                result = optimizer.optimize(model, Options(std_rules=rules))
        except Exception as error:
            problems.append(f"{label}: optimize: {type(error).__name__}: {error}")
            continue
        if rules:
            problems += [f"the written model: {p}" for p in _written(case, result, feeds)]
            problems += [f"the trail: {p}" for p in _trail(model, result, recorders[0])]
        for way in (w for w in ways if w.rules == rules):
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    program = compile_graph(result.native, threads=way.threads, target=way.target)
                for warning in caught:
                    outside(str(warning.message))
                found = program.run(feeds)
                problems += [f"{way}: {p}" for p in differences(case, found)]
                again = program.run(feeds)
                problems += [f"{way}, second run: {p}" for p in differences(case, again)]
            except Exception as error:
                if "no implementation of operator" in str(error):
                    outside(str(error).partition("\n")[0].rpartition(": ")[2])
                    continue  # it is refused as it should, and without rules that define it there are more
                problems.append(f"{way}: {type(error).__name__}: {error}")
    return problems


def _with_slack(array: Array) -> Array:
    """Return a copy with memory behind it: kernels may read a vector past an operand, where a sanitizer stops them."""
    if "ASAN_OPTIONS" not in os.environ:
        return array
    memory = np.zeros(array.nbytes + 128, np.uint8)[: array.nbytes]
    copy: Array = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@contextlib.contextmanager
def _recording(recorders: list[make_trail.Recorder]) -> Iterator[None]:
    """Keep what is recorded on the way from each graph that is optimized to that of the file."""
    stages = pipeline.optimize_graph

    def recorded(*args: Any, **kwargs: Any) -> Iterator[Any]:
        recorders.append(recorder := make_trail.Recorder("portable"))
        for name, value in stages(*args, **kwargs):
            if isinstance(value, Chosen):
                recorder.add(value)
            yield name, value

    with mock.patch.object(pipeline, "optimize_graph", recorded):
        yield


def _trail(model: onnx.ModelProto, result: optimizer.Optimized, recorder: make_trail.Recorder) -> list[str]:
    """Return what is wrong with the trail of a model, coded as in a file."""
    try:
        with in_process():
            run = _run_of(result, recorder) or make_trail.run(model, Options())
        found = from_json(json.loads(json.dumps(to_json(make_trail.trail_of(run, Options())))))
        with declared_operators(run.source.operators):
            check_trail(found, run.before, run.after, run.rules)
    except (make_trail.NoTrail, Broken) as error:
        return [f"{type(error).__name__}: {error}"]
    return []


def _run_of(result: optimizer.Optimized, recorder: make_trail.Recorder) -> make_trail.Run | None:
    """Return the run that a result comes from; None if there are bodies, which have runs of their own."""
    graph = result.graph_in
    setup = pipeline.prepare(result.library, graph.opset, result.options, [])
    source = Source(graph, result.library, result.operators)
    with declared_operators(source.operators):
        decoded = pipeline.decode(recorder.recorded[-1].chosen, graph)
    if any(True for one in (graph, decoded.graph) for _ in all_bodies(one)):
        return None
    main = make_trail.GraphRun(graph, decoded, decoded.graph, recorder.recorded)
    return make_trail.Run(source, graph, decoded.graph, setup.rules, [main])


def _written(case: Case, result: optimizer.Optimized, feeds: Mapping[str, Array]) -> list[str]:
    """Return what is wrong with the model of a file in ONNX Runtime, unless that deviates from the standard."""
    if any(runtime_deviates(s.node, case.values) for s in case.steps):
        return []
    try:
        session = _session(result.model)
        names = [v.name for v in session.get_inputs()]
        found = session.run(list(case.outputs), {n: a for n, a in feeds.items() if n in names})
    except RewriteError as error:
        return [f"{type(error).__name__}: {error}"]
    except Exception as error:
        if any(s.oracle.name != "onnxruntime" for s in case.steps):  # it does not run the original either
            return []
        try:
            _session(case.model())
        except Exception:
            return []
        return [f"{type(error).__name__}: {error}"]
    return differences(case, dict(zip(case.outputs, found, strict=True)))


def differences(case: Case, found: Mapping[str, Any]) -> list[str]:
    """Return how results differ from the values of the case beyond what rounding explains."""
    if case.parts:
        return [problem for part in case.parts for problem in differences(part, found)]
    problems = []
    kinds = {kind for step in case.steps for kind in _kinds(step)}
    kinds |= {a.dtype.name for a in (*case.inputs.values(), *case.maker.constants.values())}
    coarse = max(kinds & set(_ERRORS), key=lambda k: _ERRORS[k], default="")
    for name in case.outputs:
        reference, value = case.values[name], found[name]
        if not compare(reference, value, "reassoc", coarse).problem:
            continue
        allowed = max(TOLERANCES["reassoc"].get(k, 0.0) for k in (reference.dtype.name, coarse))
        for runs in RUNS:
            spread = _spread(case, runs)
            if any(a.shape != reference.shape for a in spread.samples.get(name, [])):
                break  # rounding decides the shape
            mended, _ = spread.reconciled(name, reference, value, allowed)
            problem = compare(reference, mended, "reassoc", coarse).problem
            if not problem:
                break
        else:
            problems.append(f"{name}: {problem}")
    return problems


def _kinds(step: Step) -> set[str]:
    """Return the element types of what a step computes, and f32 if both oracles compute a part of it in that: positions
    of Resize, the root of the scale of Attention, the first stage of GroupNormalization, the factor of Gelu. In bodies
    these are operators, too, that have an implementation of ours elsewhere."""
    operators, inner = ({n.op_type for n in list(with_bodies(step.node))[first:]} for first in (0, 1))
    rounded = operators & {"Resize", "Attention", "GroupNormalization", "Gelu"} or inner & eager.ROUNDED_IN_F64
    part = {"float32"} if rounded else set()
    return part | {np.dtype(v.dtype).name for v in step.example.values() if isinstance(v, np.ndarray)}


def _spread(case: Case, runs: int) -> Spread:
    rng = np.random.default_rng(0)
    spread = Spread()
    for _ in range(runs):
        try:
            found = case.rerun(rng)
        except Exception:
            continue
        for name, value in found.items():
            spread.samples.setdefault(name, []).append(value)
    return spread


def reduced(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a smaller case that still fails: fewer outputs, computed values as inputs, inputs as constants."""
    for name in case.outputs:
        single = _pruned(replace(case, outputs=(name,)))
        if len(case.outputs) > 1 and fails(single):
            case = single
            break
    for name in case.outputs:  # where it takes several, without those that it does not take
        fewer = _pruned(replace(case, outputs=tuple(n for n in case.outputs if n != name)))
        if fewer.outputs and fails(fewer):
            case = fewer
    shrinking = True
    while shrinking:
        shrinking = False
        for step in case.steps:
            arrays = {n: v for n, v in step.example.items() if isinstance(v, np.ndarray)}
            if set(arrays) & set(case.outputs) or len(arrays) < len(step.example):
                continue
            steps = tuple(s for s in case.steps if s is not step)
            cut = _pruned(replace(case, steps=steps, inputs={**case.inputs, **arrays}))
            if fails(cut):
                case, shrinking = cut, True
                break
        if not shrinking:
            for step in case.steps:  # outputs further up
                for name in step.example:
                    if name in case.outputs or not isinstance(step.example[name], np.ndarray):
                        continue
                    cut = _pruned(replace(case, outputs=(name,)))
                    if len(cut.steps) < len(case.steps) and fails(cut):
                        case, shrinking = cut, True
                        break
                if shrinking:
                    break
    return case


def coverage(case: Case) -> list[tuple[str, str]]:
    """Return operators with the element type of their first operand, or result."""
    found = []
    for step in case.steps:
        op = f"{step.node.domain}.{step.node.op_type}".lstrip(".")
        operands = [case.values[n] for n in step.node.input if n] or list(step.example.values())
        array = operands[0][0] if isinstance(operands[0], list) else operands[0]
        found.append((op, array.dtype.name))
    return found


__all__ = [
    "WAYS", "Case", "Way", "alike", "check", "coverage", "is_float", "make", "reduced", "side_by_side", "warm",
    "ways_of",
]  # fmt: skip
