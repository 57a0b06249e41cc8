"""Normal form of rules for comparison: operators for arithmetic, no `let`, types as conditions.

Dims and element types named by a `given` are written out (`dim(x, 0)` for `N`), so that only variables of the pattern
remain. Two rules are equivalent if one can be renamed into the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ..builtins import DTYPES
from ..syntax import ast
from ..syntax.alternatives import exchange, expand
from ..syntax.scope import is_word
from ..types.operator_calls import INFIX

MAX_VARIANTS = 16
"""Maximum number of combinations of a pattern's alternatives that are compared."""
MAX_SIZE = 4000
"""Maximum number of nodes of a rule after its `let`s are substituted."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of a rule's alternatives, in one direction."""

    rule: ast.Rule
    left: ast.Expr
    right: ast.Expr
    conditions: tuple[ast.Expr, ...]


def variants(rule: ast.Rule) -> list[Variant]:
    """Return the rule's variants; none if there are too many or its `let`s grow too large."""
    lets = {b.target.name: b.value for b in rule.let}
    sides = [(rule.lhs, rule.rhs), (rule.rhs, rule.lhs)] if rule.bidirectional else [(rule.lhs, rule.rhs)]
    names, types = _given(rule)
    values = {**lets, **names}
    out = []
    for left, right in sides:
        try:
            conditions = [_normal(_substitute_lets(c, values, len(lets))) for c in (*types, *rule.where)]
            built = _normal(_substitute_lets(_single(right), values, len(lets)))
        except OverflowError:
            return []
        options = expand(_normal(_single(left)), MAX_VARIANTS + 1)
        for option in options if len(options) <= MAX_VARIANTS else []:
            pattern, defaults = _complete(option)
            found = tuple(instantiate(c, defaults) for c in conditions)
            out.append(Variant(rule, pattern, instantiate(built, defaults), found))
    return out


def _single(side: ast.Expr | ast.Roots) -> ast.Expr:
    """Return several roots as one term, without their names."""
    if isinstance(side, ast.Expr):
        return side
    values = []
    for binding in side.bindings:
        index, value = binding.target.index, binding.value
        is_many = isinstance(index, ast.All)
        values.append(ast.Subscript(span=binding.span, base=value, index=index) if index and is_many else value)
    return ast.Call(span=side.span, head="{}", args=tuple(values))


def _substitute_lets(expr: ast.Expr, values: Mapping[str, ast.Expr], depth: int) -> ast.Expr:
    """Return the expression with `let`s substituted, which refer to each other at most `depth` deep."""
    for _ in range(depth + 1):
        before, expr = expr, cast(ast.Expr, instantiate(expr, values))
        if before == expr:
            return expr
        if sum(1 for _ in itertools.islice(expr.walk(), MAX_SIZE)) == MAX_SIZE:
            raise OverflowError
    return cast(ast.Expr, instantiate(expr, values))


def _given(rule: ast.Rule) -> tuple[dict[str, ast.Expr], list[ast.Expr]]:
    """Return `given` clauses as conditions, and the expressions of the names they bind."""
    names: dict[str, ast.Expr] = {}
    out: list[ast.Expr] = []
    for clause in rule.given:
        for target in clause.targets:
            x: ast.Expr = ast.Name(span=target.span, id=target.name)
            if isinstance(target.index, ast.Expr):
                x = ast.Subscript(span=target.span, base=x, index=target.index)
            out += _type(x, clause.type, names)
    return names, out


def _type(x: ast.Expr, type_: ast.TypeExpr, names: dict[str, ast.Expr]) -> Iterator[ast.Expr]:
    at = type_.span
    if type_.const:
        yield _call("is_const", x)
    element = type_.element
    dtype = _call("dtype", x)
    if element == "scalar":
        yield _equal(_call("size", x), ast.Number(span=at, value=1))
    elif element in ("float", "integer"):
        yield _call(f"is_{element}", dtype)
    elif element == "number":
        yield ast.Binary(span=at, operator="or", left=_call("is_float", dtype), right=_call("is_integer", dtype))
    elif element in DTYPES:
        yield _equal(dtype, ast.Name(span=at, id=str(element)))
    elif element is not None:
        if element in names:
            yield _equal(dtype, names[element])
        names.setdefault(element, dtype)
    items = type_.shape
    if items is None:
        return
    rest = next((i for i, d in enumerate(items) if isinstance(d, ast.ShapeRest)), None)
    count = ast.Number(span=at, value=len(items) - (rest is not None))
    if rest is None:
        yield _equal(_call("rank", x), count)
    elif count.value:
        yield ast.Compare(span=at, operator=">=", left=_call("rank", x), right=count)
    for i, item in enumerate(items):
        place = ast.Number(span=item.span, value=i if rest is None or i < rest else i - len(items))
        if isinstance(item, ast.ShapeRest):
            if item.name is not None:
                less = ast.Number(span=at, value=i + 1 - len(items))
                end = ast.Binary(span=at, operator="+", left=_call("rank", x), right=less)
                part = ast.Call(span=at, head="slice", args=(_call("shape", x), ast.Number(span=at, value=i), end))
                if item.name in names:
                    yield _equal(part, names[item.name])
                names.setdefault(item.name, part)
        elif isinstance(item, ast.Name) and not is_word(item.id) and item.id not in names:
            names[item.id] = ast.Call(span=item.span, head="dim", args=(x, place))
        elif isinstance(item, ast.Expr):
            yield _equal(ast.Call(span=item.span, head="dim", args=(x, place)), item)


def _call(head: str, arg: ast.Expr) -> ast.Call:
    return ast.Call(span=arg.span, head=head, args=(arg,))


def _equal(left: ast.Expr, right: ast.Expr) -> ast.Compare:
    return ast.Compare(span=left.span, operator="==", left=left, right=right)


def _normal(node: Any) -> Any:
    """Return arithmetic as calls of operators; conditions take the same form."""
    node = node.map_children(_normal)
    match node:
        case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
            return ast.Call(span=node.span, head=INFIX[operator], args=(left, right))
        case ast.Unary(operator="-", operand=operand):
            return ast.Call(span=node.span, head="Neg", args=(operand,))
    return node


def _complete(pattern: ast.Expr) -> tuple[ast.Expr, dict[str, ast.Expr]]:
    """Return the pattern of a variant without optional operands, and their values."""
    defaults: dict[str, ast.Expr] = {}
    while (point := next((n for n in pattern.walk() if isinstance(n, ast.Omitted)), None)) is not None:
        defaults |= {d.name: d.default for d in point.defaults}
        pattern = exchange(pattern, point, point.pattern)
    return pattern, defaults


def instantiate(node: Any, values: Mapping[str, Any]) -> Any:
    """Return the expression with names replaced, and rests and operator variables by what they are bound to."""
    if isinstance(node, ast.Name):
        found = values.get(node.id)
        return node if found is None or isinstance(found, Open | str) else found
    if isinstance(node, ast.Comprehension):
        values = {n: v for n, v in values.items() if n != node.variable}
    node = node.map_children(lambda child: instantiate(child, values))
    if isinstance(node, ast.Call):
        head = values.get(node.head)
        if isinstance(head, str):
            node = replace(node, head=head)
        bound = values.get(node.rest.name) if node.rest is not None and node.rest.name is not None else None
        if isinstance(bound, Open):
            node = replace(node, attributes=(*node.attributes, *bound.attributes), rest=bound.rest)
    return node


@dataclass(frozen=True, slots=True)
class Open:
    """The binding of `..a`: attributes, and possibly the rest of another pattern."""

    attributes: tuple[ast.Attribute, ...]
    rest: ast.Rest | None
