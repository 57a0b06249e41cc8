"""Brute-force oracle: a rule, or a mutant of one, applied to the small graphs near its tests.

The graphs (`neighbors`) of all tests of a rule share one e-graph, against which the engine matches the rule and all
its mutants once. Their equations are recorded, but no classes are merged, so that the error of one mutant does not
spread to the next. Then both sides of every equation are computed on drawn inputs and compared under the class that the
rule claims (`meaning`). A mutant is unsound only if there is a witness: a graph, inputs, and two results that differ,
also in `onnx.reference` if that can compute them.

Bounds: `MOST_GRAPHS` graphs a rule; `MOST_EQUATIONS` equations and `SECONDS` seconds a mutant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.egraph.reasons import Reason
from rewrite.engine.ir.values import Unprovable
from rewrite.engine.operators.inference import IllTyped
from rewrite.engine.rewriting.evaluate import Evaluator
from rewrite.engine.rewriting.matching.compiled_patterns import Unsupported, compiled
from rewrite.engine.rewriting.rule_library import rule_set
from rewrite.engine.rewriting.schedule import Plan, Run
from rewrite.engine.rule_tests.operands import Operands
from rewrite.engine.saturation.saturate import Limits, Saturator
from rewrite.errors import RewriteError
from rewrite.grammar.library.load import Library
from rewrite.grammar.syntax import ast

from .graphs import SmallGraph, insert, read
from .meaning import differs
from .neighbors import element_types, neighbors, shapes, whole_numbers
from .sites import sites
from .values import DRAWS, Uncomputed, Values

MOST_GRAPHS = 800
"""Maximum number of graphs for a rule and its mutants together."""
MOST_EQUATIONS = 400
"""Maximum number of equations computed for one mutant, spread evenly over all of them."""
IN_VAIN = 100
"""Consecutive pairs of changes without a new graph after which a small neighborhood counts as exhausted."""
SECONDS = 20.0
"""Processor seconds for the equations of one mutant in one e-graph; rarely reached, so that results are stable."""
VERSION = 5
"""Version of the oracle's answers, to be incremented when they change."""
_ALIKE = 40
"""Maximum number of graphs with the same constant for their result that are examined alone."""
CHUNK = 200
"""Graphs in one e-graph; joins over more cost more than sharing saves."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Graph on which a rule is wrong: the left side as text, the draw of inputs, and how the results differ."""

    graph: str
    inputs: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one rule: a witness or None, and the numbers of equations and of comparisons.

    `error` is the engine's message if it could not run the rule at all."""

    witness: Witness | None
    equations: int
    compared: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Setting:
    kinds: Mapping[str, str]
    commutative: frozenset[str]
    declared: Mapping[str, ast.Op]


def oracle(rule: ast.Rule, library: Library) -> Witness | None:
    """Return a witness against a rule, or None. Graphs are derived from the rule's own tests."""
    return oracles(rule, [rule], library)[0].witness


def oracles(original: ast.Rule, rules: Sequence[ast.Rule], library: Library) -> list[Verdict]:
    """Return verdicts on rules, mutants of `original`, from whose tests the graphs are derived."""
    rules_ = rule_set(library, "fast", precision=None)
    setting = _Setting(rules_.kinds, rules_.commutative, rules_.declared)
    # equal constants become one class, so graphs that the class need not support are left out
    far = original.numerics != "exact"
    moderate = (g for g in small_graphs(original, setting) if not (far and g.is_extreme(original.numerics == "fast")))
    graphs = list(itertools.islice(moderate, MOST_GRAPHS))
    count = -(-len(graphs) // CHUNK)
    verdicts = [Verdict(None, 0, 0) for _ in rules]
    for number in range(count):
        left = [i for i, v in enumerate(verdicts) if v.witness is None]
        found = _verdicts([rules[i] for i in left], graphs[number::count], setting, MOST_EQUATIONS // count)
        for i, new in zip(left, found, strict=True):
            old = verdicts[i]
            equations, compared = old.equations + new.equations, old.compared + new.compared
            verdicts[i] = Verdict(new.witness, equations, compared, old.error or new.error)
    return verdicts


# --- the graphs ------------------------------------------------------------------------------------------------------


def small_graphs(rule: ast.Rule, setting: _Setting) -> Iterator[SmallGraph]:
    """Yield the graphs of a rule's tests and those near them, without repetition and in a fixed order."""
    seen: set[str] = set()

    def new(graphs: Iterator[SmallGraph]) -> Iterator[SmallGraph]:
        for graph in graphs:
            key = graph.key()
            if key not in seen:
                seen.add(key)
                yield graph

    heads = any(isinstance(n, ast.Call) and n.kind is not None for n in rule.lhs.walk())
    seeds = list(new(_seeds(rule, setting)))
    yield from seeds
    near: list[list[SmallGraph]] = []
    for seed in seeds:
        others = list(new(element_types(seed)))
        yield from others
        near.append(list(new(neighbors(seed, heads=heads))))
    for found in near:
        yield from _spread(found, max(900 // len(near), 60))
    for seed in seeds[:2]:
        yield from new(shapes(seed, 160))
    rng = random.Random(rule.name)
    for seed in seeds:
        yield from new(itertools.islice(whole_numbers(seed, rng), 600 // len(seeds)))
    in_vain = 0
    while seeds and any(near) and in_vain < IN_VAIN:  # two changes at once
        first = rng.choice(rng.choice([n for n in near if n]))
        second = list(itertools.islice(neighbors(first, heads=heads), 1500))
        if not second:
            return
        before = len(seen)
        yield from new(iter(rng.sample(second, min(8, len(second)))))
        in_vain = in_vain + 1 if len(seen) == before else 0


def _spread(found: list[SmallGraph], most: int) -> list[SmallGraph]:
    return found if len(found) <= most else [found[i * len(found) // most] for i in range(most)]


def _seeds(rule: ast.Rule, setting: _Setting) -> Iterator[SmallGraph]:
    sides = [rule.lhs, rule.rhs] if rule.bidirectional else [rule.lhs]
    for test in rule.tests:
        for side in sides:
            for way in _ways(side):
                graph = _built(rule, test, way, setting)
                if graph is not None:
                    yield graph


def _ways(side: Any) -> list[Any]:
    """Return a pattern once per choice of an alternative."""
    for node, put in sites(side):
        if isinstance(node, ast.Alternatives):
            return [way for option in node.options for way in _ways(put(option))][:8]
    return [side]


def _built(rule: ast.Rule, test: ast.RuleTest, side: Any, setting: _Setting) -> SmallGraph | None:
    egraph = EGraph.create(setting.commutative)
    try:
        evaluator = Evaluator(egraph, setting.declared)
        return read(egraph, Operands(rule, test, evaluator).build(side))
    except (Unprovable, IllTyped, RewriteError, KeyError):
        return None  # for example a test on a model, which has no operands


# --- equations of the rules ------------------------------------------------------------------------------------------


class _RecordingEGraph(EGraph):
    """E-graph that records the equations of rules and does not merge their classes."""

    equations: dict[str, dict[tuple[int, int], None]]

    def union(self, a: int, b: int, rule: str | None = None, reason: Reason | None = None) -> bool:
        """Record the equation of a rule; merge what is equal by definition."""
        if rule is None:
            return EGraph.union(self, a, b, reason=reason)
        if self.find(a) == self.find(b):
            return False
        self.equations.setdefault(rule, {})[a, b] = None
        return True


def _empty(setting: _Setting) -> tuple[_RecordingEGraph, Evaluator]:
    """Return an empty e-graph that records the equations of rules, and an evaluator of terms for it."""
    egraph = _RecordingEGraph.create(setting.commutative)
    assert isinstance(egraph, _RecordingEGraph)
    egraph.equations = {}
    evaluator = Evaluator(egraph, setting.declared)
    return egraph, evaluator


def _verdicts(rules: Sequence[ast.Rule], graphs: Sequence[SmallGraph], setting: _Setting, most: int) -> list[Verdict]:
    if not rules:
        return []
    named = [dataclasses.replace(rule, name=f"{rule.name}~{i}", tests=()) for i, rule in enumerate(rules)]
    egraph, evaluator = _empty(setting)
    of_root: dict[int, list[SmallGraph]] = {}
    for number, graph in enumerate(graphs):
        for root in dict.fromkeys(map(egraph.find, insert(graph, egraph, evaluator, f"g{number}") or ())):
            of_root.setdefault(root, []).append(graph)
    try:
        _match(egraph, named, setting)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # the engine cannot run one of the mutants
        if len(rules) == 1:
            why = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
            return [Verdict(None, 0, 0, why)]
        half = len(rules) // 2
        return [*_verdicts(rules[:half], graphs, setting, most), *_verdicts(rules[half:], graphs, setting, most)]
    values = {number: Values(egraph, number) for number in range(6)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reference implementation, about means of nothing
        return [_verdict(rule, egraph, values, of_root, most, setting) for rule in named]


def _match(egraph: _RecordingEGraph, rules: Sequence[ast.Rule], setting: _Setting) -> None:
    run = [c for rule in rules for c in compiled(rule)]
    once = Plan("once", (Run(tuple(dict.fromkeys(c.ruleset for c in run))),))
    limits = Limits(seconds=120, nodes=400_000)
    context = Evaluator(egraph, setting.declared, setting.kinds)
    Saturator(context, run, limits, plan=once, constants=True).run()


def _verdict(
    rule: ast.Rule,
    egraph: _RecordingEGraph,
    values: Mapping[int, Values],
    of_root: Mapping[int, Sequence[SmallGraph]],
    most: int,
    setting: _Setting,
) -> Verdict:
    every = list(egraph.equations.get(rule.name, ()))
    chosen = every
    if len(every) > most:
        chosen = [every[i * len(every) // most] for i in range(most)]
    compared = 0
    start = time.process_time()
    for left, right in chosen:
        if time.process_time() - start > SECONDS:
            break
        graphs = of_root.get(egraph.find(left), ())
        if not graphs or (rule.numerics != "exact" and egraph.is_const(left)):
            continue  # constants are rewritten only by rules that promise the same bits
        for number in DRAWS[rule.numerics]:
            try:
                x, y = values[number].of_class(left), values[number].of(right)
            except Uncomputed:
                continue
            compared += 1
            if rule.numerics == "exact" and x.dtype == np.float64 and values[number].sums(right):
                continue
            overflown = values[number].overflows(left)
            message = (
                "" if _is_rounding(x, number, rule) else differs(x, y, rule, overflown=overflown, large=number == 5)
            )
            if not message or not _confirmed(egraph, left, right, number, rule):
                continue
            if not egraph.is_const(left):
                return Verdict(Witness(graphs[0].describe(), _NAMES[number], message), len(every), compared)
            for graph in graphs[:_ALIKE]:  # equal constants are one class, whichever graph they are of
                if message := _alone(graph, rule, number, setting):
                    return Verdict(Witness(graph.describe(), _NAMES[number], message), len(every), compared)
    return Verdict(None, len(every), compared)


def _alone(graph: SmallGraph, rule: ast.Rule, number: int, setting: _Setting) -> str:
    """Return how the sides of a rule differ on one graph, all of whose nodes have a value; empty if they do not."""
    egraph, evaluator = _empty(setting)
    if insert(graph, egraph, evaluator, "g0") is None:
        return ""
    values = Values(egraph, number)
    if not all(values.is_computed(handle) for handle in range(1, len(egraph.nodes))):
        return ""
    _match(egraph, [rule], setting)
    for left, right in egraph.equations.get(rule.name, ()):
        with contextlib.suppress(Uncomputed):
            if message := differs(values.of_class(left), values.of(right), rule, large=number == 5):
                return message
    return ""


_NAMES = (
    "normal numbers", "small whole numbers", "NaN and infinities", "positive numbers", "ends of the range",
    "large numbers",
)  # fmt: skip


def _is_rounding(left: np.ndarray[Any, Any], number: int, rule: ast.Rule) -> bool:
    """Whether an integer result may differ because an inexact number was rounded; ties are frequent on these draws."""
    return rule.numerics != "exact" and left.dtype.kind in "iub" and number in (1, 2)


def _confirmed(egraph: _RecordingEGraph, left: int, right: int, number: int, rule: ast.Rule) -> bool:
    """Whether `onnx.reference` agrees, or cannot compute the terms."""
    values = Values(egraph, number, reference=True)
    try:
        x, y = values.of_class(left), values.of(right)
        return bool(differs(x, y, rule, overflown=values.overflows(left), large=number == 5))
    except Uncomputed:
        return True
