"""Type inference over whole items: one pass for each combination of a pattern's alternatives.

A rule is rejected only if it can never fire, or writes something of the wrong sort. Whatever cannot be known stays
open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from ..diagnostics import Diagnostic, Label
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..syntax.scope import bindings
from .context import Context, Operand
from .expressions import assume, declare, evaluate, given
from .patterns import bind_roots
from .terms import Tensor, Value, describe
from .type import Type

MAX_CHOICES = 16
"""Maximum number of combinations of alternatives that are inferred one by one."""


@dataclass(frozen=True, slots=True)
class Typing:
    """Types of the variables of each item by name, and diagnostics."""

    types: dict[str, dict[str, Type]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def infer(
    items: Iterable[ast.Item], operators: OperatorInfo | None, *, among: Iterable[ast.Item] | None = None
) -> Typing:
    """Infer the types of rules, operators and fuses, whose `def`s are already expanded.

    Operators are looked up in `among` if given, else in `items`."""
    items = list(items)
    declared = declared_ops(items if among is None else among)
    typing = Typing()
    for item in items:
        if isinstance(item, ast.Rule | ast.Fuse | ast.Op):
            types, found = _item(item, declared, operators)
            typing.types[item.name] = types
            typing.diagnostics.extend(d for d in found if d not in typing.diagnostics)
    return typing


def declared_ops(items: Iterable[ast.Item]) -> dict[str, ast.Op]:
    """Return the operators whose parameters are declared, by name."""
    return {item.name: item for item in items if isinstance(item, ast.Op) and item.params is not None}


def _item(
    item: ast.Rule | ast.Fuse | ast.Op, declared: Mapping[str, ast.Op], operators: OperatorInfo | None
) -> tuple[dict[str, Type], list[Diagnostic]]:
    context = Context(operators, declared)
    if isinstance(item, ast.Op):
        _operator(context, item)
        return _types(context), context.problems
    if isinstance(item, ast.Fuse):
        return _best(context, item, item.lhs, None)
    types, found = _best(context, item, item.lhs, item.rhs)
    if item.bidirectional:
        found = found or _best(context, item, item.rhs, item.lhs)[1]
    return types, found


Choice = tuple[ast.Alternatives, int]
"""An alternative of a pattern, by its number."""


def _paths(lhs: ast.Expr | ast.Roots) -> Iterator[tuple[bool, list[Choice]]]:
    """Yield each combination of a pattern's alternatives, with and without optional inputs."""
    points = [n for n in lhs.walk() if isinstance(n, ast.Alternatives)]
    operands = {id(d) for n in lhs.walk() if isinstance(n, ast.Omitted) for d in n.defaults}
    optional = any(isinstance(n, ast.Optional) and id(n) not in operands for n in lhs.walk())
    if prod(len(point.options) for point in points) > MAX_CHOICES:
        points = []
    for chosen in itertools.product(*([(p, i) for i in range(len(p.options))] for p in points)):
        for present in (True, False) if optional else (True,):
            yield present, list(chosen)


def _best(
    empty: Context, item: ast.Rule | ast.Fuse, lhs: ast.Expr | ast.Roots, rhs: ast.Expr | ast.Roots | None
) -> tuple[dict[str, Type], list[Diagnostic]]:
    """Return the types of the first possible path, else the problems of the first; report alternatives that never
    match."""
    possible: list[dict[str, Type]] = []
    impossible: list[tuple[dict[str, Type], list[Diagnostic]]] = []
    alive: set[tuple[int, int]] = set()
    options: dict[tuple[int, int], tuple[ast.Expr, list[Diagnostic]]] = {}
    for present, chosen in _paths(lhs):
        keys = [(id(p), c) for p, c in chosen]
        if possible and alive.issuperset(keys):
            continue
        context = Context(empty.operators, empty.declared, optional=present, choices={id(p): c for p, c in chosen})
        _rule(context, item, lhs, rhs)
        for (point, choice), key in zip(chosen, keys, strict=True):
            options.setdefault(key, (point.options[choice], context.problems))
        if context.problems:
            impossible.append((_types(context), context.problems))
        else:
            alive.update(keys)
            possible.append(_types(context))
    if not possible:
        return impossible[0]
    dead = [(option.span, problems[0]) for key, (option, problems) in options.items() if key not in alive]
    return possible[0], [
        Diagnostic("dead", f"this alternative never matches: {why.message}", span, why.labels, severity="warning")
        for span, why in dead
    ]


def _rule(
    context: Context, item: ast.Rule | ast.Fuse, lhs: ast.Expr | ast.Roots, rhs: ast.Expr | ast.Roots | None
) -> None:
    roots = bind_roots(context, lhs)
    groups = {b.target.name for b in bindings(lhs) if b.target.index is not None}
    for name, tensor in roots.items():
        if name:
            sort = "tensors" if name in groups else "tensor"
            context.env.setdefault(name, Value(sort, tensor=tensor, text=f"`{name}`"))
    suppose(context, item, item.where)
    if rhs is not None:
        _right(context, roots, rhs)
    context.propagate()
    for binding in context.lets.values():
        with context.perhaps():
            evaluate(context, binding)


def suppose(context: Context, item: ast.Rule | ast.Fuse | ast.Op, conditions: Iterable[ast.Expr]) -> None:
    """Add the facts of an item's `given` clauses and of conditions that hold."""
    if isinstance(item, ast.Rule):
        context.lets = {b.target.name: b.value for b in item.let}
    for clause in item.given:
        given(context, clause)
    for condition in conditions:
        assume(context, condition)


def _right(context: Context, roots: Mapping[str, Tensor], rhs: ast.Expr | ast.Roots) -> None:
    """Infer over a right side; each root has the type of the root that it replaces."""
    pairs = [("", rhs, False)] if isinstance(rhs, ast.Expr) else []
    pairs += [(b.target.name, b.value, isinstance(b.target.index, ast.All)) for b in bindings(rhs)]
    for name, value, starred in pairs:
        found = evaluate(context, value)
        left = roots.get(name)
        if found.sort in ("string", "dtype", "operator", "rest", "none"):
            context.problem("wrong-input", f"a right side must be a tensor; this is {describe(found)}", value.span)
        elif found.sort == "tensor" and found.tensor is not None and left is not None and not starred:
            with context.attempt(value.span, "the result"):
                left.dtype.unify(found.tensor.dtype, Label(value.span, "the right side"))
            with context.attempt(value.span, "the result"):
                context.shapes.unify(left.shape, found.tensor.shape, Label(value.span, "the right side"))


def _operator(context: Context, op: ast.Op) -> None:
    schema = context.schema(op.name)
    operands = []
    for param in op.params or ():
        if param.attribute is not None:
            context.env[param.name] = _attribute(context, op.name, param.name, param.attribute)
            continue
        sort = "tensors" if param.variadic else "tensor"
        value = context.env[param.name] = Value(sort, tensor=context.tensor(), text=f"`{param.name}`")
        operands.append(Operand(value, param.span, param.variadic))
        if param.type is not None and value.tensor is not None:
            declare(context, value.tensor, param.type, f"`{param.name}`", param.span)
    suppose(context, op, op.where)
    if op.definition is None:
        return
    found = evaluate(context, op.definition)
    if schema is not None and found.tensor is not None and found.sort == "tensor":
        result = context.apply(op.name, operands, op.definition.span, is_open=True)[0]
        with context.attempt(op.definition.span, "the result"):
            result.dtype.unify(found.tensor.dtype, Label(op.definition.span, "the definition"))


def _attribute(context: Context, op: str, name: str, default: ast.Expr) -> Value:
    """Return what an attribute may be: any value of the sort that the schema or else the default has.

    A default with a decimal point says that the attribute goes with floats."""
    if context.schema(op) is not None:
        return context.attribute(op, name)
    found = evaluate(Context(context.operators, context.declared), default)
    if found.sort == "float":
        return found
    return context.of_sort("any" if found.sort == "none" else found.sort)


def _types(context: Context) -> dict[str, Type]:
    return {name: _type(context, value) for name, value in context.env.items()}


def _type(context: Context, value: Value) -> Type:
    store = context.shapes.store
    if value.is_tensor and value.tensor is not None:
        tensor = value.tensor
        node = tensor.dtype.end()
        dims = context.shapes.dims(tensor.shape)
        shown = tuple(store.text(d) for d in dims) if dims is not None and len(dims) <= 8 else None
        return Type(value.sort, tensor.const is True, node.allowed, context.shapes.rank(tensor.shape), shown, node.name)
    if value.dtype is not None and value.sort == "dtype":
        return Type("dtype", dtypes=value.dtype.end().allowed)
    length = store.text(value.length) if value.length is not None else ""
    return Type(value.sort, length=length)
