"""Rules that lower the precision of products: run for native graphs only, since files keep their precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..egraph.egraph import EGraph
from ..options import PRECISIONS
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.compiled_patterns import CompiledRule
from ..rewriting.rule_library import QUANTIZED, RuleSet
from ..rewriting.schedule import Plan, Repeat, Run
from .saturate import Limits, Saturation, Saturator

_EARLY = ("f32", "int8")
"""Precisions whose rules run before layouts are chosen, or that have none."""
_LEAST_SECONDS = 5.0
"""These rulesets get at least this long: a model asked for in a precision should have it after a short limit, too."""


def general(rules: RuleSet) -> list[CompiledRule]:
    """Return the rules that concern no precision."""
    return [rule for rule in rules.rules if rule.ruleset not in (QUANTIZED, *PRECISIONS)]


def late(precision: str) -> bool:
    """Whether the rules of a precision depend on the layouts that kernels get."""
    return precision not in _EARLY


def rulesets(egraph: EGraph, precision: str, *, for_kernels: bool) -> list[str]:
    """Return the rulesets to run before kernels are chosen, or after: that of quantized tensors if there are any, and
    that of the precision."""
    if for_kernels:
        return [precision] if late(precision) else []
    quantized = any(node.op == "DequantizeLinear" for node in egraph.nodes)
    return [QUANTIZED] * quantized + [precision] * (precision in _EARLY[1:])


def run(egraph: EGraph, names: Sequence[str], rules: RuleSet, limits: Limits, before: Saturation) -> Saturation:
    """Run rulesets as often as their budgets say, and return `before` with the counts of their rules."""
    chosen = [rule for rule in rules.rules if rule.ruleset in names]
    if not chosen:
        return before
    budgets = rules.plan.budgets
    steps = (Repeat((Run((name,)),), (budgets[name].iterations if name in budgets else None) or 1) for name in names)
    plan = Plan("precision", tuple(steps), budgets)
    limits = Limits(max(limits.seconds, _LEAST_SECONDS), len(egraph.nodes) + limits.nodes, limits.iterations)
    done = Saturator(Evaluator(egraph, rules.declared, rules.kinds), chosen, limits, plan=plan).run()
    nodes, classes = max(before.nodes, done.nodes), max(before.classes, done.classes)
    counts, seconds = {**before.counts, **done.counts}, before.seconds + done.seconds
    return replace(before, counts=counts, seconds=seconds, nodes=nodes, classes=classes)
