"""Scopes: the variables that patterns and types bind, and the names that expressions need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..builtins import DTYPE_CLASSES, DTYPES, WORDS
from . import ast
from .ast import Span

_DTYPE_VARIABLE = re.compile(r"[A-Z][0-9]?")


class Sort(Enum):
    """The kind of thing that a variable stands for; the value is its name in messages."""

    TENSOR = "tensor"
    VARIADIC = "list of tensors"
    GROUP = "tensor of each member of a group"
    ATTRIBUTE = "attribute"
    ATTRIBUTES = "attribute of each member of a group"
    REST = "rest of the attributes"
    OPERATOR = "operator"
    DIM = "dim"
    DIMS = "list of dims"
    DTYPE = "element type"
    LET = "let"
    INDEX = "index of a group"
    ROOT = "root"
    ROOTS = "root of each member of a group"


TENSORS = (Sort.TENSOR, Sort.VARIADIC, Sort.GROUP, Sort.ROOT, Sort.ROOTS)


@dataclass(slots=True)
class Scope:
    """Variables with their sort and binding place, in the order of binding."""

    variables: dict[str, tuple[Sort, Span]] = field(default_factory=dict)

    def bind(self, name: str, sort: Sort, span: Span) -> None:
        """Bind a name unless it is already bound."""
        self.variables.setdefault(name, (sort, span))

    def sort(self, name: str) -> Sort | None:
        """Return what a name stands for, None if it is not bound."""
        return self.variables[name][0] if name in self.variables else None

    def span(self, name: str) -> Span:
        """Return where a name is bound."""
        return self.variables[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def names(self, *sorts: Sort) -> list[str]:
        """Return the variables of these sorts, or all."""
        return [name for name, (sort, _) in self.variables.items() if not sorts or sort in sorts]


def is_word(name: str) -> bool:
    """Return whether a name has a fixed meaning: `true`, `inf`, `f32`, `float`."""
    return name in WORDS or name in DTYPES or name in DTYPE_CLASSES


def is_dtype_variable(name: str) -> bool:
    """Return whether a name in the place of a dtype is a variable (`T`, `T1`), not a misspelled dtype."""
    return _DTYPE_VARIABLE.fullmatch(name) is not None


def bindings(side: ast.Expr | ast.Roots) -> tuple[ast.Binding, ...]:
    """Return the roots of a side; none for a single term."""
    return side.bindings if isinstance(side, ast.Roots) else ()


def terms(side: ast.Expr | ast.Roots) -> list[ast.Expr]:
    """Return the terms of a side: its roots, or the single one."""
    return [side] if isinstance(side, ast.Expr) else [b.value for b in side.bindings]


def bind_pattern(pattern: ast.Expr | ast.Roots, scope: Scope) -> None:
    """Add the variables of a pattern."""
    if isinstance(pattern, ast.Roots):
        for binding in pattern.bindings:
            if isinstance(binding.target.index, ast.Name):
                scope.bind(binding.target.index.id, Sort.INDEX, binding.target.index.span)
            bind_pattern(binding.value, scope)
        return
    for name, sort, span in _bound(pattern):
        scope.bind(name, sort, span)


def _bound(pattern: ast.Syntax) -> Iterator[tuple[str, Sort, Span]]:
    match pattern:
        case ast.Name(id=name) if not is_word(name):
            yield name, Sort.TENSOR, pattern.span
        case ast.Optional(name=name):
            yield name, Sort.TENSOR, pattern.span
        case ast.Subscript(base=ast.Name(id=name, span=span), index=ast.All()):
            yield name, Sort.VARIADIC, span
        case ast.Subscript(base=ast.Name(id=name, span=span), index=ast.Name(id=index)):
            yield name, Sort.GROUP, span
            yield index, Sort.INDEX, pattern.index.span
        case ast.Subscript(base=base, index=ast.Name(id=index)) if not is_word(index):  # any output
            yield from _bound(base)
            yield index, Sort.INDEX, pattern.index.span
        case ast.Subscript(base=base):
            yield from _bound(base)
        case ast.ListExpr():
            yield from _bound_by_value(pattern)
        case ast.Call() if pattern.is_operator:
            if pattern.kind is not None:
                yield pattern.head, Sort.OPERATOR, pattern.span
            for arg in pattern.args:
                yield from _bound(arg)
            for attribute in pattern.attributes:
                yield from _bound_by_value(attribute.value)
                match attribute.value:
                    case ast.Subscript(base=ast.Name(id=name, span=span), index=ast.Name()):
                        yield name, Sort.ATTRIBUTES, span
            if pattern.rest is not None and pattern.rest.name is not None:
                yield pattern.rest.name, Sort.REST, pattern.rest.span
        case ast.Each() | ast.Omitted() | ast.Unary() | ast.Binary() | ast.Alternatives():
            for child in pattern.children():
                yield from _bound(child)


def _bound_by_value(value: ast.Expr) -> Iterator[tuple[str, Sort, Span]]:
    """Yield the variables of an attribute or list: `a`, `a in rank(x)`, `[a, b]`."""
    match value:
        case ast.Name(id=name) | ast.Compare(operator="in", left=ast.Name(id=name)) | ast.Axis(name=name):
            if not is_word(name):
                yield name, Sort.ATTRIBUTE, value.span
        case ast.ListExpr(items=items):
            for item in items:
                yield from _bound_by_value(item)


def _members(pattern: ast.Expr) -> Iterator[tuple[str, str]]:
    """Yield the variables bound per member, each with its index: `x[i]`, `to: t[i]`."""
    for node in pattern.walk():
        match node:
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=index)):
                yield name, index


def indices_in(pattern: ast.Expr) -> list[str]:
    """Return the indices of variables bound per member: `i` for `x[i]` and `to: t[i]`."""
    return list(dict.fromkeys(index for _, index in _members(pattern)))


def owned_by(pattern: ast.Expr, index: str) -> list[str]:
    """Return the variables of a pattern that have this index."""
    return list(dict.fromkeys(name for name, own in _members(pattern) if own == index))


def bind_given(given: tuple[ast.Given, ...], scope: Scope) -> None:
    """Add the dims and element types that `given` clauses bind."""
    for clause in given:
        element = clause.type.element
        if element is not None and not is_word(element) and is_dtype_variable(element):
            scope.bind(element, Sort.DTYPE, clause.type.span)
        for dim in clause.type.shape or ():
            if isinstance(dim, ast.Name) and not is_word(dim.id):
                scope.bind(dim.id, Sort.DIM, dim.span)
            elif isinstance(dim, ast.ShapeRest) and dim.name is not None:
                scope.bind(dim.name, Sort.DIMS, dim.span)


def param_types(op: ast.Op) -> tuple[ast.Given, ...]:
    """Return the types in an operator's parameter list as equivalent `given` clauses."""
    return tuple(
        ast.Given(span=p.span, targets=(ast.Target(span=p.span, name=p.name),), type=p.type)
        for p in op.params or ()
        if p.type is not None
    )


def free_names(expr: ast.Syntax, bound: Mapping[str, object] | frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """Yield the free names of an expression in source order, except those in `bound`.

    Heads of calls and names of rests are not included."""
    match expr:
        case ast.Name(id=name):
            if name not in bound and not is_word(name):
                yield expr
        case ast.Comprehension():
            yield from free_names(expr.iterable, bound)
            inner = frozenset(bound) | {expr.variable}
            yield from free_names(expr.item, inner)
            if expr.condition is not None:
                yield from free_names(expr.condition, inner)
        case _:
            for child in expr.children():
                yield from free_names(child, bound)
