"""Warnings: what is odd about rules and yet can be run. They stop nobody.

`overlap` two simplifications of one term; `duplicate` and `shadowed` a rule that adds nothing; `loop` and `growth`
rules that undo each other or feed themselves; `redundant` a condition that says nothing; `unused` a name that nothing
reads; `dead` (found with the types) an alternative that never matches. A rule silences one of them with its reason:
`allow overlap "cost picks the better one"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .. import ast
from ..diagnostics import Diagnostic
from ..operator_info import OperatorInfo
from .match import Matcher
from .normal import ways
from .pairs import Pairs
from .single import redundant, unused
from .together import Together


def find(
    items: Iterable[ast.Item], operators: OperatorInfo | None, *, among: Iterable[ast.Item] | None = None
) -> list[Diagnostic]:
    """All warnings about rules that have no errors; `def`s must have been expanded.

    The rules are compared with each other and with those `among` these items, if they are more."""
    items = list(items)
    every = items if among is None else list(among)
    rules = [i for i in every if isinstance(i, ast.Rule)]
    ops = [i for i in every if isinstance(i, ast.Op)]
    declared = {op.name: op for op in ops if op.params is not None}
    matcher = Matcher(frozenset(op.name for op in ops if op.commutative))
    together = Together(operators, declared, matcher)
    return list(_all(items, rules, operators, declared, matcher, together))


def _all(
    items: list[ast.Item],
    rules: list[ast.Rule],
    operators: OperatorInfo | None,
    declared: dict[str, ast.Op],
    matcher: Matcher,
    together: Together,
) -> Iterator[Diagnostic]:
    for item in items:
        if isinstance(item, ast.Rule | ast.Fuse | ast.Op):
            yield from unused(item)
        if isinstance(item, ast.Rule):
            yield from redundant(item, operators, declared, together)
    asked = frozenset(item.span for item in items)
    yield from Pairs(matcher, together).find([way for rule in rules for way in ways(rule)], asked)


__all__ = ["find"]
