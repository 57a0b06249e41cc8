"""Mutants of a rule: small changes that give a different rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rewrite.grammar.syntax import ast

from .conditions import Change, asked
from .edges import at_edges
from .sites import S, changed
from .terms import computed

MOST_OF_A_KIND = 5
"""Maximum number of mutants of one kind per rule, spread evenly over all of them."""
_COMMUTATIVE_INFIX = ("*", "and", "or")
_COMMUTATIVE = frozenset(["Add", "Mul", "Sum", "Max", "Min", "And", "Or", "Xor", "Equal", "Mean"])
_MIRRORED = {">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Mutant:
    """Altered rule. `kind` names the change, `description` its place and details."""

    kind: str
    description: str
    rule: ast.Rule


def mutants(rule: ast.Rule, most: int = MOST_OF_A_KIND) -> list[Mutant]:
    """Return the mutants of a rule in a fixed order, at most `most` of a kind.

    Mutants that equal the rule or another mutant up to the order of commuting operands are dropped."""
    seen = {_normal(rule)}
    kinds: dict[str, list[Mutant]] = {}
    for kind, description, other in _all(rule):
        key = _normal(other)
        if key not in seen:
            seen.add(key)
            kinds.setdefault(kind, []).append(Mutant(kind, description, other))
    return [mutant for found in kinds.values() for mutant in _spread(found, most)]


def _all(rule: ast.Rule) -> Iterator[Change]:
    yield from asked(rule)
    yield from computed(rule)
    yield from at_edges(rule)


def _spread(found: list[Mutant], most: int) -> list[Mutant]:
    if len(found) <= most:
        return found
    return [found[i * len(found) // most] for i in range(most)]


def _normal(rule: ast.Rule) -> ast.Rule:
    """Return a rule without tests and with sorted commuting operands, so that equivalent rules are equal."""
    bare = dataclasses.replace(rule, tests=(), where=tuple(sorted(map(_sorted, rule.where), key=repr)))
    return dataclasses.replace(bare, lhs=_sorted(bare.lhs), rhs=_sorted(bare.rhs), let=tuple(map(_sorted, bare.let)))


def _sorted(node: S) -> S:
    fields: dict[str, Any] = {}
    for name in ast.parts(type(node)):
        value = getattr(node, name)
        if isinstance(value, ast.Syntax):
            fields[name] = _sorted(value)
        elif isinstance(value, tuple):
            fields[name] = tuple(_sorted(v) if isinstance(v, ast.Syntax) else v for v in value)
    node = changed(node, **fields)
    match node:
        case ast.Binary(operator=operator) if operator in _COMMUTATIVE_INFIX or (
            operator == "+" and not any(isinstance(s, ast.ListExpr | ast.Comprehension) for s in node.children())
        ):
            left, right = sorted((node.left, node.right), key=repr)
            return changed(node, left=left, right=right)
        case ast.Compare(operator=operator) if operator in _MIRRORED:
            return changed(node, operator=_MIRRORED[operator], left=node.right, right=node.left)
        case ast.Call(head=head) if head in _COMMUTATIVE:
            return changed(node, args=tuple(sorted(node.args, key=repr)))
    return node
