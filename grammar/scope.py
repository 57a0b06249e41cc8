"""What the names of a rule stand for: the variables that a pattern or a type binds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from . import ast
from .ast import Span
from .builtins import DTYPE_CLASSES, DTYPES, WORDS

_DTYPE_VARIABLE = re.compile(r"[A-Z][0-9]?")


class Sort(Enum):
    """What kind of thing a variable stands for; the value is how messages call it."""

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
    """Variables with their sort and the place that binds them, in the order of binding."""

    variables: dict[str, tuple[Sort, Span]] = field(default_factory=dict)

    def bind(self, name: str, sort: Sort, span: Span) -> None:
        """Bind a name unless it is bound."""
        self.variables.setdefault(name, (sort, span))

    def sort(self, name: str) -> Sort | None:
        """What the name stands for, None if it is not bound."""
        found = self.variables.get(name)
        return found[0] if found else None

    def span(self, name: str) -> Span:
        """Where the name is bound."""
        return self.variables[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def names(self, *sorts: Sort) -> list[str]:
        """The variables of these sorts (of all without)."""
        return [name for name, (sort, _) in self.variables.items() if not sorts or sort in sorts]


def is_word(name: str) -> bool:
    """Whether a name has a fixed meaning: `true`, `inf`, `f32`, `float`."""
    return name in WORDS or name in DTYPES or name in DTYPE_CLASSES


def is_dtype_variable(name: str) -> bool:
    """Whether a name in the place of a dtype is a variable (`T`, `T1`) and no misspelt dtype."""
    return _DTYPE_VARIABLE.fullmatch(name) is not None


def bind_pattern(pattern: ast.Expr | ast.Roots, scope: Scope) -> None:
    """Add what a pattern binds."""
    if isinstance(pattern, ast.Roots):
        for binding in pattern.bindings:
            if isinstance(binding.target.index, ast.Name):
                scope.bind(binding.target.index.id, Sort.INDEX, binding.target.index.span)
            bind_pattern(binding.value, scope)
        return
    for name, sort, span in _bound(pattern):
        scope.bind(name, sort, span)


def _bound(pattern: ast.Expr) -> Iterator[tuple[str, Sort, Span]]:
    match pattern:
        case ast.Name(id=name) if not is_word(name):
            yield name, Sort.TENSOR, pattern.span
        case ast.Optional(name=name):
            yield name, Sort.TENSOR, pattern.span
        case ast.Each(value=value):
            yield from _bound(value)
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
        case ast.Unary(operand=operand):
            yield from _bound(operand)
        case ast.Binary(left=left, right=right):
            yield from _bound(left)
            yield from _bound(right)
        case ast.Alternatives(options=options):
            for option in options:
                yield from _bound(option)
        case ast.Call() if pattern.is_operator:
            yield from _bound_by_call(pattern)


def _bound_by_call(call: ast.Call) -> Iterator[tuple[str, Sort, Span]]:
    if call.kind is not None:
        yield call.head, Sort.OPERATOR, call.span
    for arg in call.args:
        yield from _bound(arg)
    for attribute in call.attributes:
        value = attribute.value
        if isinstance(value, ast.Name) and not is_word(value.id):
            yield value.id, Sort.ATTRIBUTE, value.span
        elif (
            isinstance(value, ast.Subscript) and isinstance(value.base, ast.Name) and isinstance(value.index, ast.Name)
        ):
            yield value.base.id, Sort.ATTRIBUTES, value.base.span
    if call.rest is not None and call.rest.name is not None:
        yield call.rest.name, Sort.REST, call.rest.span


def indices_in(pattern: ast.Expr) -> list[str]:
    """The indices of what a pattern binds for each member: `i` for `x[i]` and `to: t[i]`."""
    found: dict[str, None] = {}
    for node in pattern.walk():
        if isinstance(node, ast.Subscript) and isinstance(node.base, ast.Name) and isinstance(node.index, ast.Name):
            found[node.index.id] = None
    return list(found)


def owned_by(pattern: ast.Expr, index: str) -> list[str]:
    """The variables that have this index in a pattern."""
    found: dict[str, None] = {}
    for node in pattern.walk():
        if isinstance(node, ast.Subscript) and isinstance(node.base, ast.Name) and isinstance(node.index, ast.Name):
            if node.index.id == index:
                found[node.base.id] = None
    return list(found)


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
    """The types in an operator's parameter list, as the `given` clause that says the same."""
    return tuple(
        ast.Given(span=p.span, targets=(ast.Target(span=p.span, name=p.name),), type=p.type)
        for p in op.params or ()
        if p.type is not None
    )


def free_names(expr: ast.Syntax, bound: Mapping[str, object] | frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """The names that an expression takes from its surroundings, in source order; `bound` are not counted.

    Heads of calls and names of rests are not among them."""
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
