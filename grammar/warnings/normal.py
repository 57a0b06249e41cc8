"""Rules in the form in which they are compared: operators for arithmetic, no `let`, types as conditions.

Dims and element types that a `given` names are written out (`dim(x, 0)` for `N`), so that only the variables of the
pattern are left, and two rules are alike if one can be renamed into the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .. import ast
from ..builtins import DTYPES
from ..scope import is_word
from ..types.patterns import INFIX

MAX_WAYS = 16
"""How many ways through the alternatives of a pattern are looked at."""
MAX_SIZE = 4000
"""How large a rule may become when its `let`s are written out."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way through the alternatives of a rule, in one direction."""

    rule: ast.Rule
    left: ast.Expr
    right: ast.Expr
    conditions: tuple[ast.Expr, ...]


def ways(rule: ast.Rule) -> list[Way]:
    """The rule's ways, none if there are too many or its `let`s cannot be written out."""
    lets = {b.target.name: b.value for b in rule.let}
    sides = [(rule.lhs, rule.rhs)]
    if rule.bidirectional:
        sides.append((rule.rhs, rule.lhs))
    out = []
    for left, right in sides:
        values, found = _given(rule)
        try:
            conditions = [_normal(_put(c, {**lets, **values}, lets)) for c in (*found, *rule.where)]
            built = _normal(_put(_single(right), {**lets, **values}, lets))
        except OverflowError:
            return []
        for pattern in _options(_normal(_single(left))):
            out.append(Way(rule, pattern, built, tuple(conditions)))
    return out


def _single(side: ast.Expr | ast.Roots) -> ast.Expr:
    """Several roots as one term; what they are called means nothing."""
    if isinstance(side, ast.Expr):
        return side
    values = []
    for binding in side.bindings:
        index = binding.target.index
        value = binding.value
        if isinstance(index, ast.All):
            value = ast.Subscript(span=binding.span, base=value, index=index)
        values.append(value)
    return ast.Call(span=side.span, head="{}", args=tuple(values))


def _put(expr: ast.Expr, values: Mapping[str, ast.Expr], lets: Mapping[str, ast.Expr]) -> ast.Expr:
    """The expression with `let`s, and in them others, written out."""
    for _ in range(len(lets) + 1):
        after = instantiate(expr, values)
        if after == expr:
            return after
        expr = after
        if sum(1 for _ in itertools.islice(expr.walk(), MAX_SIZE)) == MAX_SIZE:
            raise OverflowError
    return instantiate(expr, values)


def _given(rule: ast.Rule) -> tuple[dict[str, ast.Expr], list[ast.Expr]]:
    """`given` clauses as conditions, with what their names stand for."""
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


def _normal(expr: ast.Expr) -> ast.Expr:
    """Arithmetic as calls of operators. In conditions it means the same, so they are compared in one form too."""
    return _rebuild(expr)  # type: ignore[return-value]


def _rebuild(node: ast.Syntax) -> ast.Syntax:
    changes: dict[str, Any] = {}
    for name in ast.parts(node):
        value = getattr(node, name)
        if isinstance(value, ast.Syntax):
            new: Any = _rebuild(value)
        elif isinstance(value, tuple):
            new = tuple(_rebuild(v) if isinstance(v, ast.Syntax) else v for v in value)
        else:
            continue
        if new != value:
            changes[name] = new
    if changes:
        node = replace(node, **changes)
    match node:
        case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
            return ast.Call(span=node.span, head=INFIX[operator], args=(left, right))
        case ast.Unary(operator="-", operand=operand):
            return ast.Call(span=node.span, head="Neg", args=(operand,))
    return node


def _options(pattern: ast.Expr) -> list[ast.Expr]:
    """The pattern once for each way through its alternatives."""
    done = [pattern]
    out: list[ast.Expr] = []
    while done:
        if len(done) + len(out) > MAX_WAYS:
            return []
        current = done.pop()
        point = next((n for n in current.walk() if isinstance(n, ast.Alternatives)), None)
        if point is None:
            out.append(current)
        else:
            done += [_exchange(current, point, option) for option in point.options]
    return out


def _exchange(node: Any, old: ast.Syntax, new: ast.Expr) -> Any:
    if node is old:
        return new
    changes: dict[str, Any] = {}
    for name in ast.parts(node):
        value = getattr(node, name)
        if isinstance(value, ast.Syntax):
            changes[name] = _exchange(value, old, new)
        elif isinstance(value, tuple):
            changes[name] = tuple(_exchange(v, old, new) if isinstance(v, ast.Syntax) else v for v in value)
    return replace(node, **changes) if changes else node


def instantiate(expr: ast.Expr, values: Mapping[str, Any]) -> ast.Expr:
    """The expression with names replaced; a rest or an operator's variable by what it is bound to."""
    return _instantiate(expr, values)  # type: ignore[no-any-return]


def _instantiate(node: ast.Syntax, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        found = values.get(node.id)
        return node if found is None or isinstance(found, Open | str) else found
    if isinstance(node, ast.Comprehension):
        values = {n: v for n, v in values.items() if n != node.variable}
    changes: dict[str, Any] = {}
    for name in ast.parts(node):
        value = getattr(node, name)
        if isinstance(value, ast.Syntax):
            changes[name] = _instantiate(value, values)
        elif isinstance(value, tuple) and value:
            changes[name] = tuple(_instantiate(v, values) if isinstance(v, ast.Syntax) else v for v in value)
    if isinstance(node, ast.Call):
        head = values.get(node.head)
        if isinstance(head, str):
            changes["head"] = head
        bound = values.get(node.rest.name) if node.rest is not None and node.rest.name is not None else None
        if isinstance(bound, Open):
            changes["attributes"] = (*changes.get("attributes", node.attributes), *bound.attributes)
            changes["rest"] = bound.rest
    return replace(node, **changes) if changes else node


@dataclass(frozen=True, slots=True)
class Open:
    """What `..a` is bound to: attributes, and perhaps a rest of another pattern."""

    attributes: tuple[ast.Attribute, ...]
    rest: ast.Rest | None
