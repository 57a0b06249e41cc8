"""Mutants of a rule's left side: its conditions, its types, the literals of its pattern."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.scope import is_word

from .sites import Put, sites, with_item, without

Change = tuple[str, str, ast.Rule]
"""Kind, description and mutant."""

_WIDER: dict[str, str | None] = {
    "float": "number", "integer": "number", "number": None, "bool": None, "scalar": None,
    **dict.fromkeys(("f16", "bf16", "f32", "f64"), "float"),
    **dict.fromkeys(("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"), "integer"),
}  # fmt: skip
_STRONGER = {"fast": "reassoc", "reassoc": "exact"}


def asked(rule: ast.Rule) -> Iterator[Change]:
    """Yield the mutants of everything except the right side."""
    yield from _dropped(rule)
    yield from _weakened(rule)
    yield from _loosened(rule)
    yield from _claimed(rule)


def _dropped(rule: ast.Rule) -> Iterator[Change]:
    """Drop a condition, or one side of an `and`."""
    for i, condition in enumerate(rule.where):
        line = condition.span.line
        yield "condition dropped", f"without condition {i + 1} (line {line})", _where(rule, without(rule.where, i))
        for node, put in sites(condition):
            match node:
                case ast.Binary(operator="and"):
                    for part, side in ((node.left, "left"), (node.right, "right")):
                        changed = _where(rule, with_item(rule.where, i, put(part)))
                        yield "condition dropped", f"only the {side} side of `and` (line {node.span.line})", changed
                case ast.Unary(operator="not"):
                    changed = _where(rule, with_item(rule.where, i, put(node.operand)))
                    yield "condition negated", f"without `not` (line {node.span.line})", changed
                case ast.Call(head="all", args=(inner,)):
                    call = dataclasses.replace(node, head="any", args=(inner,))
                    changed = _where(rule, with_item(rule.where, i, put(call)))
                    yield "condition weakened", f"`any` for `all` (line {node.span.line})", changed


def _where(rule: ast.Rule, where: tuple[ast.Expr, ...]) -> ast.Rule:
    return dataclasses.replace(rule, where=where)


def _weakened(rule: ast.Rule) -> Iterator[Change]:
    """Weaken types, one tensor at a time."""
    for i, clause in enumerate(rule.given):
        for j, target in enumerate(clause.targets):
            for what, type_ in _weaker(clause.type):
                rest = without(clause.targets, j)
                parts = [dataclasses.replace(clause, targets=rest)] if rest else []
                alone = dataclasses.replace(clause, targets=(target,), type=type_)
                if type_.const or type_.element is not None or type_.shape is not None:
                    parts.insert(0, alone)
                given = (*rule.given[:i], *parts, *rule.given[i + 1 :])
                yield "type weakened", f"{target.name}: {what}", dataclasses.replace(rule, given=given)


def _weaker(type_: ast.TypeExpr) -> Iterator[tuple[str, ast.TypeExpr]]:
    if type_.const:
        yield "without const", dataclasses.replace(type_, const=False)
    if type_.element is not None:
        wider = _WIDER.get(type_.element)
        what = f"{wider} for {type_.element}" if wider else f"without {type_.element}"
        yield what, dataclasses.replace(type_, element=wider)
        if wider is not None:
            yield f"without {type_.element}", dataclasses.replace(type_, element=None)
    if type_.shape is not None:
        for k, dim in enumerate(type_.shape):
            if not isinstance(dim, ast.ShapeRest | ast.AnyDim):
                loose = with_item(type_.shape, k, ast.AnyDim(span=dim.span))
                yield f"any dim {k}", dataclasses.replace(type_, shape=loose)
            if isinstance(dim, ast.AnyDim):
                more = with_item(type_.shape, k, ast.ShapeRest(span=dim.span, name=None))
                if not any(isinstance(d, ast.ShapeRest) for d in type_.shape):
                    yield f"any number of dims at {k}", dataclasses.replace(type_, shape=more)
        yield "any shape", dataclasses.replace(type_, shape=None)


def _loosened(rule: ast.Rule) -> Iterator[Change]:
    """Loosen the pattern: a literal matches anything, or equal variables may differ."""
    number = 0
    names: dict[str, int] = {}
    for node, put in sites(rule.lhs):
        kind, line = "pattern loosened", node.span.line
        match node:
            case ast.Attribute(value=value) if _is_literal(value):
                number += 1
                free = dataclasses.replace(node, value=ast.Name(span=value.span, id=f"free{number}"))
                yield kind, f"any {node.name} (line {line})", _left(rule, put(free))
            case ast.Call(rest=None) if node.is_operator and node.kind is None:
                yield kind, f"any attributes of {node.head} (line {line})", _left(
                    rule, put(dataclasses.replace(node, rest=ast.Rest(span=node.span, name=None)))
                )  # fmt: skip
            case ast.Name() if not is_word(node.id) and not _is_dtype(node.id):
                names[node.id] = names.get(node.id, 0) + 1
                if names[node.id] > 1:
                    free_name = ast.Name(span=node.span, id=f"{node.id}_{names[node.id]}")
                    yield kind, f"occurrence {names[node.id]} of {node.id} is free", _left(rule, put(free_name))
    for node, put in _inputs(rule.lhs):
        if isinstance(node, ast.Number | ast.Unary | ast.ListExpr) and _is_literal(node):
            number += 1
            free_name = ast.Name(span=node.span, id=f"free{number}")
            yield "pattern loosened", f"anything for a literal (line {node.span.line})", _left(rule, put(free_name))
            if isinstance(node, ast.Number):
                other = dataclasses.replace(node, value=node.value + 1)
                yield "literal changed", f"{other.value} for {node.value} in the pattern", _left(rule, put(other))


def _inputs(lhs: ast.Expr | ast.Roots) -> Iterator[tuple[ast.Syntax, Put]]:
    """Return the places of a pattern's inputs, without attribute values and indices."""
    skipped: set[int] = set()
    for node, _ in sites(lhs):
        if isinstance(node, ast.Attribute):
            skipped.update(id(n) for n in node.walk())
        if isinstance(node, ast.Subscript):
            skipped.update(id(n) for n in node.index.walk())
        if isinstance(node, ast.Optional):
            skipped.update(id(n) for n in node.default.walk())
        if isinstance(node, ast.ListExpr | ast.Unary):
            skipped.update(id(n) for child in node.children() for n in child.walk())
        if isinstance(node, ast.Call) and not node.is_operator:
            skipped.update(id(n) for n in node.walk())
    return ((node, put) for node, put in sites(lhs) if id(node) not in skipped)


def _is_literal(expr: ast.Syntax) -> bool:
    match expr:
        case ast.Number() | ast.String():
            return True
        case ast.Unary(operator="-", operand=operand):
            return _is_literal(operand)
        case ast.ListExpr(items=items):
            return all(map(_is_literal, items))
    return False


def _is_dtype(name: str) -> bool:
    return name in _WIDER


def _left(rule: ast.Rule, lhs: ast.Expr | ast.Roots) -> ast.Rule:
    return dataclasses.replace(rule, lhs=lhs)


def _claimed(rule: ast.Rule) -> Iterator[Change]:
    """Claim a stronger class."""
    if rule.relaxations:
        yield "class strengthened", f"without {', '.join(rule.relaxations)}", dataclasses.replace(rule, relaxations=())
    stronger = _STRONGER.get(rule.numerics)
    if stronger is not None:
        yield "class strengthened", f"{stronger} for {rule.numerics}", dataclasses.replace(rule, numerics=stronger)
