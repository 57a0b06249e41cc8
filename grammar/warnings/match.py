"""Whether a pattern is an instance of another, and terms that are the same up to commutativity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import ast
from ..scope import is_word
from .normal import Open

Bound = dict[str, Any]


class Matcher:
    """Matches patterns against terms, given the operators that commute."""

    def __init__(self, commutative: frozenset[str]) -> None:
        self.commutative = commutative

    def instances(self, general: ast.Expr, term: ast.Expr) -> Iterator[Bound]:
        """The ways to put terms for the variables of `general` so that `term` comes out."""
        yield from self._match(general, term, {})

    def _match(self, general: ast.Syntax, term: ast.Syntax, bound: Bound) -> Iterator[Bound]:
        match general, term:
            case ast.Name(id=name), _ if not is_word(name):
                if not isinstance(term, ast.Rest | ast.All):
                    yield from self._bind(name, term, bound)
            case ast.Optional(name=name), ast.Optional(name=other, default=default):
                if default == general.default:
                    yield from self._bind(name, ast.Name(span=term.span, id=other), bound)
            case ast.Optional(name=name), _:
                yield from self._bind(name, term, bound)
            case ast.Call(), ast.Call() if general.is_operator or general.head == "{}":
                yield from self._call(general, term, bound)
            case ast.Each(value=one), ast.Each(value=other):
                yield from self._match(one, other, bound)
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=i)), ast.Subscript(base=base, index=index):
                if isinstance(base, ast.Name) and isinstance(index, ast.Name):
                    for found in self._bind(name, base, bound):
                        yield from self._bind(i, index, found)
            case ast.Subscript(base=base, index=index), ast.Subscript(base=other_base, index=other_index):
                if index == other_index:
                    yield from self._match(base, other_base, bound)
            case _:
                if type(general) is type(term) and general == term:
                    yield bound

    def _bind(self, name: str, term: ast.Syntax, bound: Bound) -> Iterator[Bound]:
        if name not in bound:
            yield {**bound, name: term}
        elif isinstance(bound[name], ast.Syntax) and self.same(bound[name], term):
            yield bound

    def _call(self, general: ast.Call, term: ast.Call, bound: Bound) -> Iterator[Bound]:
        if general.kind != term.kind:
            return
        if general.kind is not None:
            if bound.get(general.head, term.head) != term.head:
                return
            bound = {**bound, general.head: term.head}
        elif general.head != term.head:
            return
        for found in self._attributes(general, term, bound):
            yield from self._arguments(general.args, term.args, found)
            if general.head in self.commutative and len(term.args) == len(general.args) == 2:
                yield from self._arguments(general.args, term.args[::-1], found)

    def _arguments(self, general: tuple[ast.Expr, ...], term: tuple[ast.Expr, ...], bound: Bound) -> Iterator[Bound]:
        if not general:
            if not term:
                yield bound
            return
        first = general[0]
        if not term:
            if isinstance(first, ast.Optional):
                for found in self._bind(first.name, first.default, bound):
                    yield from self._arguments(general[1:], term, found)
            return
        for found in self._match(first, term[0], bound):
            yield from self._arguments(general[1:], term[1:], found)

    def _attributes(self, general: ast.Call, term: ast.Call, bound: Bound) -> Iterator[Bound]:
        theirs = {a.name: a for a in term.attributes}
        if general.rest is None and (term.rest is not None or set(theirs) - {a.name for a in general.attributes}):
            return
        found: list[Bound] = [bound]
        for attribute in general.attributes:
            value = theirs.pop(attribute.name, None)
            if value is None:
                return
            if value.default != attribute.default:
                return
            found = [after for before in found for after in self._match(attribute.value, value.value, before)]
        rest = Open(tuple(a for a in term.attributes if a.name in theirs), term.rest)
        for after in found:
            name = general.rest.name if general.rest is not None else None
            if name is None:
                yield after
            elif name not in after:
                yield {**after, name: rest}
            elif after[name] == rest:
                yield after

    def same(self, left: ast.Syntax, right: ast.Syntax) -> bool:
        """Whether two terms are equal, operands of commutative operators in any order."""
        if left == right:
            return True
        if not isinstance(left, ast.Call) or not isinstance(right, ast.Call):
            return type(left) is type(right) and self._same_parts(left, right)
        if (left.head, left.kind, left.rest) != (right.head, right.kind, right.rest):
            return False
        if sorted(left.attributes, key=_name) != sorted(right.attributes, key=_name):
            return False
        if len(left.args) != len(right.args):
            return False
        orders = [right.args]
        if left.head in self.commutative and len(right.args) == 2:
            orders.append(right.args[::-1])
        return any(all(self.same(a, b) for a, b in zip(left.args, order, strict=True)) for order in orders)

    def _same_parts(self, left: ast.Syntax, right: ast.Syntax) -> bool:
        for name in ast.parts(left):
            a, b = getattr(left, name), getattr(right, name)
            if isinstance(a, ast.Syntax) and isinstance(b, ast.Syntax):
                if not self.same(a, b):
                    return False
            elif isinstance(a, tuple) and isinstance(b, tuple):
                both = len(a) == len(b) and all(
                    self.same(x, y) if isinstance(x, ast.Syntax) and isinstance(y, ast.Syntax) else x == y
                    for x, y in zip(a, b, strict=True)
                )
                if not both:
                    return False
            elif a != b:
                return False
        return True


def is_renaming(bound: Mapping[str, Any]) -> bool:
    """Whether every variable is put for by a variable, and no two by the same."""
    names = [v.id for v in bound.values() if isinstance(v, ast.Name) and not is_word(v.id)]
    tensors = [v for v in bound.values() if isinstance(v, ast.Syntax)]
    return len(names) == len(tensors) == len(set(names))


def _name(attribute: ast.Attribute) -> str:
    return attribute.name
