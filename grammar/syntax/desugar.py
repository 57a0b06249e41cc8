"""Desugaring of optional operands and `broadcasts to`, after `def`s are expanded.

`axis: a in rank(x)` binds an axis counted from the front, wherever `a` occurs in the pattern.
`P * (s = 1)` matches a product, and `P` alone with `s` bound to 1. The choice holds for the whole left side, which
becomes alternatives with and without each operand: an operand that occurs twice is present twice or not at all.
`given m: broadcasts to d` becomes the condition `broadcast(shape(m), d) == d`.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import TypeVar, cast

from . import ast

S = TypeVar("S", bound=ast.Syntax)

NEUTRAL = {"+": 0, "-": 0, "*": 1, "/": 1, "**": 1}
"""The neutral right operand of each operator."""
MAX_OPTIONAL = 4
"""Maximum number of optional operands in a left side; each doubles its alternatives."""


def desugar(item: ast.Item) -> ast.Item:
    """Return the item without short forms. Misplaced ones stay, for the checks to report."""
    if isinstance(item, ast.Rule):
        lhs = _with_axes(item.lhs)
        if isinstance(lhs, ast.Roots):
            lhs = lhs.map_children(lambda root: root.map_children(_alternatives))
        else:
            lhs = _alternatives(lhs)
        item = item if lhs is item.lhs else replace(item, lhs=lhs)
    if isinstance(item, ast.Rule | ast.Fuse | ast.Op) and any(g.type.broadcasts is not None for g in item.given):
        patterns = item.lhs.walk() if isinstance(item, ast.Rule) else ()
        absent = {node.name for node in patterns if isinstance(node, ast.Optional) and _is_none(node.default)}
        where = (*item.where, *itertools.chain.from_iterable(_conditions(g, absent) for g in item.given))
        given = filter(None, map(_without_broadcasts, item.given))
        return replace(item, given=tuple(given), where=where)
    return item


def _with_axes(lhs: S) -> S:
    """Return the left side with its axes as `Axis` nodes; all occurrences of an axis share one rank."""
    if not any(isinstance(node, ast.Compare) for node in lhs.walk()):
        return lhs
    ranks: dict[str, ast.Expr] = {}

    def value(expr: ast.Syntax) -> ast.Syntax:
        match expr:
            case ast.Compare(operator="in", left=ast.Name(id=name), right=rank):
                return ast.Axis(span=expr.span, name=name, rank=ranks.setdefault(name, rank))
            case ast.Name(id=name) if name in ranks:
                return ast.Axis(span=expr.span, name=name, rank=ranks[name])
            case ast.ListExpr():
                return expr.map_children(value)
        return expr

    def visit(node: ast.Syntax) -> ast.Syntax:
        if isinstance(node, ast.Attribute):
            attribute = node
            return node.map_children(lambda child: value(child) if child is attribute.value else visit(child))
        node = node.map_children(visit)
        return value(node) if isinstance(node, ast.ListExpr) else node

    visit(lhs)  # collects all ranks before the first plain occurrence
    return cast(S, visit(lhs))


def optional_operands(pattern: ast.Expr) -> Iterator[tuple[str, ast.Optional]]:
    """Yield the optional operands of a pattern with their operators, except those in `P ...`."""
    if isinstance(pattern, ast.Each):
        return
    if isinstance(pattern, ast.Binary):
        left, right = pattern.left, pattern.right
        for operand, other in ((left, right), (right, left)):
            commutes = pattern.operator in ("+", "*") or operand is right
            if isinstance(operand, ast.Optional) and not isinstance(other, ast.Optional) and commutes:
                yield pattern.operator, operand
    for child in pattern.children():
        if isinstance(child, ast.Expr):
            yield from optional_operands(child)


def fits(operator: str, default: ast.Expr) -> bool:
    """Return whether an operand of this operator may be omitted with this default."""
    is_neutral = isinstance(default, ast.Number) and default.value == NEUTRAL.get(operator)
    return operator in NEUTRAL and (_is_none(default) or is_neutral)


def _alternatives(pattern: S) -> S | ast.Alternatives:
    """Return a pattern as alternatives, one for each subset of its optional operands; another node as it is."""
    if not isinstance(pattern, ast.Expr):
        return pattern
    found: dict[str, ast.Optional] = {}
    for operator, operand in optional_operands(pattern):
        if fits(operator, operand.default):
            found.setdefault(operand.name, operand)
    if not found or len(found) > MAX_OPTIONAL:
        return pattern
    options: list[ast.Expr] = []
    for there in itertools.product((True, False), repeat=len(found)):
        omitted = dict(itertools.compress(found.items(), (not present for present in there)))
        option = cast(ast.Expr, _choose(pattern, found, omitted))
        if omitted:
            option = ast.Omitted(span=pattern.span, pattern=option, defaults=tuple(omitted.values()))
        options.append(option)
    return ast.Alternatives(span=pattern.span, options=tuple(options))


def _choose(node: ast.Syntax, optional: Container[str], omitted: Container[str]) -> ast.Syntax:
    """Return the pattern without the omitted operands, and with the others as plain variables."""

    def choose(child: ast.Syntax) -> ast.Syntax:
        if isinstance(node, ast.Binary) and isinstance(child, ast.Optional) and child.name in optional:
            return ast.Name(span=child.span, id=child.name)
        return _choose(child, optional, omitted)

    if isinstance(node, ast.Binary):
        for operand, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(operand, ast.Optional) and operand.name in omitted:
                return _choose(other, optional, omitted)
    return node.map_children(choose)


def _is_none(expr: ast.Expr) -> bool:
    return isinstance(expr, ast.Name) and expr.id == "none"


def _conditions(given: ast.Given, absent: Container[str]) -> Iterator[ast.Expr]:
    """Yield the condition of `broadcasts to` on each target; an absent tensor broadcasts to anything."""
    dims = given.type.broadcasts
    if dims is None:
        return
    for target in given.targets:
        x: ast.Expr = ast.Name(span=target.span, id=target.name)
        if target.index is not None:
            x = ast.Subscript(span=target.span, base=x, index=target.index)
        shape = ast.Call(span=dims.span, head="shape", args=(x,))
        joint = ast.Call(span=dims.span, head="broadcast", args=(shape, dims))
        condition: ast.Expr = ast.Compare(span=dims.span, operator="==", left=joint, right=dims)
        if target.name in absent:
            is_none = ast.Compare(span=dims.span, operator="is", left=x, right=ast.Name(span=target.span, id="none"))
            condition = ast.Binary(span=dims.span, operator="or", left=is_none, right=condition)
        yield condition


def _without_broadcasts(given: ast.Given) -> ast.Given | None:
    """Return the clause without its condition, None if nothing else is left."""
    type_ = given.type
    if type_.broadcasts is None:
        return given
    if not type_.const and type_.element is None and type_.shape is None:
        return None
    return replace(given, type=replace(type_, broadcasts=None))
