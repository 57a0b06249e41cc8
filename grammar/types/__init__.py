"""Static types of rules: what every name stands for, inferred from schemas, `given` types, conditions and literals.

A rule is refused only if it can never do anything: where two things that must both hold exclude each other, or where
something of the wrong sort is written. What cannot be known is left open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .. import ast
from ..diagnostics import Diagnostic
from ..operator_info import OperatorInfo
from .context import Context, Operand
from .expressions import assume, declare, evaluate, given
from .patterns import bind_roots
from .terms import Origin, Tensor
from .type import Type
from .values import Value, said

MAX_CHOICES = 16
"""How many ways through the alternatives of a pattern are looked at one by one."""

__all__ = ["Type", "Typing", "infer"]


@dataclass(frozen=True, slots=True)
class Typing:
    """The types of the variables of each item by name, and what is wrong."""

    types: dict[str, dict[str, Type]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def infer(
    items: Iterable[ast.Item], operators: OperatorInfo | None, *, among: Iterable[ast.Item] | None = None
) -> Typing:
    """Infer the types of rules, operators and fuses; `def`s must have been expanded before.

    Operators are looked up `among` these items, if they are more."""
    items = list(items)
    declared = {
        i.name: i for i in (items if among is None else among) if isinstance(i, ast.Op) and i.params is not None
    }
    typing = Typing()
    for item in items:
        if isinstance(item, ast.Rule | ast.Fuse | ast.Op):
            types, found = _item(item, declared, operators)
            typing.types[item.name] = types
            typing.diagnostics.extend(d for d in found if d not in typing.diagnostics)
    return typing


def _item(
    item: ast.Rule | ast.Fuse | ast.Op, declared: Mapping[str, ast.Op], operators: OperatorInfo | None
) -> tuple[dict[str, Type], list[Diagnostic]]:
    if isinstance(item, ast.Op):
        context = Context(operators, declared)
        _operator(context, item)
        return _types(context), context.problems
    if isinstance(item, ast.Fuse):
        return _best(_ways(item.lhs, declared, operators), item, item.lhs, None)
    types, found = _best(_ways(item.lhs, declared, operators), item, item.lhs, item.rhs)
    if item.bidirectional:
        found = found or _best(_ways(item.rhs, declared, operators), item, item.rhs, item.lhs)[1]
    return types, found


def _ways(
    lhs: ast.Expr | ast.Roots, declared: Mapping[str, ast.Op], operators: OperatorInfo | None
) -> Iterator[tuple[Context, list[tuple[ast.Alternatives, int]]]]:
    """A context for each way through the alternatives of a pattern, with its choices."""
    points = [n for n in lhs.walk() if isinstance(n, ast.Alternatives)]
    count = 1
    for point in points:
        count *= len(point.options)
    optional = any(isinstance(n, ast.Optional) for n in lhs.walk())
    ways: Iterable[tuple[int, ...]] = [()]
    if points and count <= MAX_CHOICES:
        ways = itertools.product(*(range(len(p.options)) for p in points))
    for way in ways:
        chosen = list(zip(points, way, strict=False))
        for present in (True, False) if optional else (True,):
            choices = {id(p): c for p, c in chosen}
            yield Context(operators, declared, optional=present, choices=choices), chosen


def _best(
    ways: Iterable[tuple[Context, list[tuple[ast.Alternatives, int]]]],
    item: ast.Rule | ast.Fuse,
    lhs: ast.Expr | ast.Roots,
    rhs: ast.Expr | ast.Roots | None,
) -> tuple[dict[str, Type], list[Diagnostic]]:
    """The types of the first way that can be, else what is wrong with the first; and alternatives that never can."""
    types: dict[str, Type] | None = None
    first: tuple[dict[str, Type], list[Diagnostic]] | None = None
    alive: set[tuple[int, int]] = set()
    options: dict[tuple[int, int], tuple[ast.Expr, list[Diagnostic]]] = {}
    for context, chosen in ways:
        keys = [(id(p), c) for p, c in chosen]
        if types is not None and all(k in alive for k in keys):
            continue
        _rule(context, item, lhs, rhs)
        for (point, choice), key in zip(chosen, keys, strict=True):
            options.setdefault(key, (point.options[choice], context.problems))
        if context.problems:
            first = first or (_types(context), context.problems)
        else:
            alive.update(keys)
            types = types if types is not None else _types(context)
    if types is None:
        return first or ({}, [])
    dead = [
        Diagnostic("dead", f"this alternative never matches: {problems[0].message}", option.span,
                   problems[0].labels, severity="warning")
        for key, (option, problems) in options.items() if key not in alive
    ]  # fmt: skip
    return types, dead


def _rule(
    context: Context, item: ast.Rule | ast.Fuse, lhs: ast.Expr | ast.Roots, rhs: ast.Expr | ast.Roots | None
) -> None:
    roots = bind_roots(context, lhs)
    for name, tensor in roots.items():
        if name:
            several = isinstance(lhs, ast.Roots) and any(
                b.target.name == name and b.target.index is not None for b in lhs.bindings
            )
            context.env.setdefault(name, Value("tensors" if several else "tensor", tensor=tensor, text=f"`{name}`"))
    if isinstance(item, ast.Rule):
        context.lets = {b.target.name: b.value for b in item.let}
    for clause in item.given:
        given(context, clause)
    for condition in item.where:
        assume(context, condition)
    if rhs is not None:
        _right(context, roots, rhs)
    context.settle()
    if isinstance(item, ast.Rule):
        for binding in item.let:
            with context.perhaps():
                evaluate(context, binding.value)


def _right(context: Context, roots: Mapping[str, Tensor], rhs: ast.Expr | ast.Roots) -> None:
    """Infer over a right side; each root has the type that it replaces."""
    pairs: Sequence[tuple[str, ast.Expr, bool]] = [("", rhs, False)] if isinstance(rhs, ast.Expr) else []
    if isinstance(rhs, ast.Roots):
        pairs = [(b.target.name, b.value, isinstance(b.target.index, ast.All)) for b in rhs.bindings]
    for name, value, starred in pairs:
        found = evaluate(context, value)
        left = roots.get(name)
        if found.sort in ("string", "dtype", "operator", "rest", "none"):
            context.problem("wrong-input", f"a right side is a tensor; this is {said(found)}", value.span)
        elif found.sort == "tensor" and found.tensor is not None and left is not None and not starred:
            with context.attempt(value.span, "the result"):
                left.dtype.unify(found.tensor.dtype, Origin(value.span, "the right side"))
            with context.attempt(value.span, "the result"):
                context.shapes.unify(left.shape, found.tensor.shape, Origin(value.span, "the right side"))


def _operator(context: Context, op: ast.Op) -> None:
    schema = context.schema(op.name)
    operands = []
    for param in op.params or ():
        if param.attribute is not None:
            context.env[param.name] = evaluate(Context(context.operators, context.declared), param.attribute)
            continue
        sort = "tensors" if param.variadic else "tensor"
        value = Value(sort, tensor=context.tensor(), text=f"`{param.name}`")
        if param.default is not None and not context.optional:
            value = Value("any")
        context.env[param.name] = value
        operands.append(Operand(value, param.span, param.variadic))
        kind = getattr(param, "type", None)
        if kind is not None and value.tensor is not None:
            declare(context, value.tensor, kind, f"`{param.name}`", param.span)
    for clause in op.given:
        given(context, clause)
    for condition in op.where:
        assume(context, condition)
    if op.definition is None:
        return
    found = evaluate(context, op.definition)
    if schema is not None and found.tensor is not None and found.sort == "tensor":
        result = context.apply(op.name, operands, {}, op.definition.span, is_open=True, pattern=False)[0]
        with context.attempt(op.definition.span, "the result"):
            result.dtype.unify(found.tensor.dtype, Origin(op.definition.span, "the definition"))


def _types(context: Context) -> dict[str, Type]:
    return {name: _type(context, value) for name, value in context.env.items()}


def _type(context: Context, value: Value) -> Type:
    store = context.shapes.store
    if value.sort in ("tensor", "tensors") and value.tensor is not None:
        tensor = value.tensor
        node = tensor.dtype.end()
        dims = context.shapes.dims(tensor.shape)
        shown = tuple(store.text(d) for d in dims) if dims is not None and len(dims) <= 8 else None
        return Type(value.sort, tensor.const is True, node.allowed, context.shapes.rank(tensor.shape), shown, node.name)
    if value.dtype is not None and value.sort == "dtype":
        return Type("dtype", dtypes=value.dtype.end().allowed)
    length = store.text(value.length) if value.length is not None else ""
    return Type(value.sort, length=length)
