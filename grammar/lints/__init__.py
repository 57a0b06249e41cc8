"""Warnings about rules that are correct but suspicious; they do not stop a run.

In: expanded rules, fuses and operators without errors. Out: `overlap` (two simplifications of one term), `duplicate`
and `shadowed` (a rule that adds nothing), `loop` and `growth` (rules that undo each other or match their own result),
`redundant` (a condition implied by others) and `unused` (a name without uses). `dead` comes from the type inference.
A rule silences a warning with its reason: `allow overlap "cost picks the better one"`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics import Diagnostic
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..types.infer import declared_ops
from .entailment import Entailment
from .pair_lints import Pairs
from .pattern_match import Matcher
from .rule_lints import redundant, unused
from .rule_normal_form import variants


def find(
    items: Iterable[ast.Item], operators: OperatorInfo | None, *, among: Iterable[ast.Item] | None = None
) -> list[Diagnostic]:
    """Return all warnings about rules without errors, whose `def`s are expanded.

    Rules are compared with each other, and with those in `among` if given."""
    items = list(items)
    every = items if among is None else list(among)
    matcher = Matcher(frozenset(i.name for i in every if isinstance(i, ast.Op) and i.commutative))
    entailment = Entailment(operators, declared_ops(every), matcher)
    found: list[Diagnostic] = []
    for item in items:
        if isinstance(item, ast.Rule | ast.Fuse | ast.Op):
            found += unused(item)
        if isinstance(item, ast.Rule):
            found += redundant(item, entailment)
    rules = [v for item in every if isinstance(item, ast.Rule) for v in variants(item)]
    return [*found, *Pairs(matcher, entailment).find(rules, frozenset(item.span for item in items))]


__all__ = ["find"]
