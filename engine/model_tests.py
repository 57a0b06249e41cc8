"""Tests of rules on a whole: `test equals A == B for …`, and `test fires model "file.onnx" times N`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..grammar import ast
from . import onnx_in
from .egraph import EGraph
from .encode import encode
from .evaluate import Evaluator
from .graph import Graph
from .instances import Array, Operands, evaluate_members, unequal
from .operators import Declared
from .patterns import CompiledRule
from .sample import assignments, make_inputs
from .saturate import Limits, Saturator
from .schedule import plan_for
from .values import Unprovable

COMPARED = 16
"""So many of the values that a rule has found another form of are compared on a model."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A rule, compiled, with what saturation wants to know of operators."""

    rule: ast.Rule
    ways: tuple[CompiledRule, ...]
    kinds: Mapping[str, str]
    commutative: frozenset[str]
    declared: Mapping[str, ast.Op]
    operators: Callable[[Mapping[str, int]], Mapping[str, Declared]]

    def saturate(self, egraph: EGraph, limits: Limits, *, constants: bool) -> tuple[int, str]:
        """How often the rule was applied, and why not."""
        plan = plan_for(self.rule.ruleset)
        saturator = Saturator(
            egraph, self.ways, self.kinds, limits, plan=plan, declared=self.declared, constants=constants
        )
        count = saturator.run().counts[self.rule.name]
        return count.applied, count.reason


def equals(setting: Setting, test: ast.RuleTest) -> str:
    """What is wrong with the claim that two terms are equal by the rule alone; empty if nothing is."""
    egraph = EGraph.create(setting.commutative)
    evaluator = Evaluator(egraph)
    evaluator.declared = setting.declared
    operands = Operands(setting.rule, test, evaluator)
    left, right = (operands.build(side)[0] for side in test.equals)
    if egraph.find(left) == egraph.find(right):
        if any("." in op for op in _operators(test)):
            return ""  # a declared operator is equal to its definition as soon as it is there
        return "the two sides are the same term: this is no test of the rule"
    limits = Limits(seconds=10, nodes=20_000, iterations=8)
    applied, reason = setting.saturate(egraph, limits, constants=True)
    if egraph.find(left) != egraph.find(right):
        why = f"the rule was applied {applied} times" if applied else f"the rule was not applied: {reason}"
        return f"the two sides do not become equal: {why}"
    for trial in range(2):
        found = evaluate_members(egraph, left, operands.values(trial))
        for other in found[1:]:
            if message := unequal(found[0], other, setting.rule):
                return f"the two sides differ: {message}"
    return ""


def _operators(test: ast.RuleTest) -> list[str]:
    return [n.head for side in test.equals for n in side.walk() if isinstance(n, ast.Call)]


def on_model(setting: Setting, test: ast.RuleTest) -> str:
    """What is wrong with the claim that the rule is, or is not, applied to a model; empty if nothing is."""
    assert test.model is not None
    graph = onnx_in.read(model_path(setting.rule.span.file, test.model), declared=setting.operators)
    egraph = EGraph.create(setting.commutative)
    encode(graph, egraph)
    applied, reason = setting.saturate(egraph, Limits(seconds=60), constants=False)
    times = f"{applied} time{'s' * (applied != 1)}"
    if test.verdict == "refuses":
        return f"it was applied {times}" if applied else ""
    if not applied:
        return "it was not applied: " + (reason or "the pattern does not match")
    if test.times is not None and test.times != applied:
        return f"it was applied {times}, not {test.times}"
    return _compare(setting, egraph, graph)


def model_path(file: str, model: str) -> Path:
    """The path of a model, which lies below the directory of the rule file, links followed."""
    root = Path(file).resolve().parent
    path = (root / model).resolve()
    if not path.is_relative_to(root):
        raise UserError(f'`model "{model}"` leads out of the directory of the rules', where=file)
    if not path.is_file():
        raise UserError(f'`model "{model}"`: there is no such file', where=file)
    return path


def _compare(setting: Setting, egraph: EGraph, graph: Graph) -> str:
    """How the forms differ that the rule has found of some values, computed on drawn inputs as far as they can be."""
    roots = list(dict.fromkeys(egraph.find(a) for a, _, rule in egraph.unions if rule == setting.rule.name))
    values: dict[str, Array] = {c.digest: c.array for c in graph.constants.values()}
    sizes = next(iter(assignments(graph, None)), None)
    if sizes is None:
        return ""
    values |= make_inputs(graph, sizes, 0)
    for root in roots[:COMPARED]:
        with contextlib.suppress(Unprovable):  # what cannot be computed here is for `rewrite check`
            found = evaluate_members(egraph, root, values)
            for other in found[1:]:
                if message := unequal(found[0], other, setting.rule):
                    return f"the two sides differ: {message}"
    return ""
