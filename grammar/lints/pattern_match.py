"""Matching of patterns against patterns, and equality of terms up to commutativity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from ..syntax import ast
from ..syntax.scope import is_word
from .rule_normal_form import Open

Bound = dict[str, Any]
_NAME = attrgetter("name")


class Matcher:
    """Matches patterns against terms, given the commutative operators."""

    def __init__(self, commutative: frozenset[str]) -> None:
        self.commutative = commutative

    def instances(self, general: ast.Expr, term: ast.Expr) -> Iterator[Bound]:
        """Yield the substitutions that turn `general` into `term`."""
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
        match general, term:
            case (), ():
                yield bound
            case (ast.Optional(name=name, default=default), *_), ():
                for found in self._bind(name, default, bound):
                    yield from self._arguments(general[1:], term, found)
            case (first, *_), (other, *_):
                for found in self._match(first, other, bound):
                    yield from self._arguments(general[1:], term[1:], found)

    def _attributes(self, general: ast.Call, term: ast.Call, bound: Bound) -> Iterator[Bound]:
        theirs = {a.name: a for a in term.attributes}
        if general.rest is None and (term.rest is not None or set(theirs) - {a.name for a in general.attributes}):
            return
        found: list[Bound] = [bound]
        for attribute in general.attributes:
            value = theirs.pop(attribute.name, None)
            if value is None or value.default != attribute.default:
                return
            found = [after for before in found for after in self._match(attribute.value, value.value, before)]
        rest = Open(tuple(a for a in term.attributes if a.name in theirs), term.rest)
        name = general.rest.name if general.rest is not None else None
        for after in found:
            if name is None:
                yield after
            elif after.get(name, rest) == rest:
                yield {**after, name: rest}

    def same(self, left: Any, right: Any) -> bool:
        """Return whether two terms are equal, with operands of commutative operators in any order."""
        if left == right:
            return True
        match left, right:
            case (ast.Call(), ast.Call()):
                if (left.head, left.kind, left.rest) != (right.head, right.kind, right.rest):
                    return False
                if sorted(left.attributes, key=_NAME) != sorted(right.attributes, key=_NAME):
                    return False
                swapped = left.head in self.commutative and len(right.args) == 2
                return self.same(left.args, right.args) or (swapped and self.same(left.args, right.args[::-1]))
            case (ast.Syntax(), ast.Syntax()) if type(left) is type(right):
                return all(self.same(getattr(left, name), getattr(right, name)) for name in ast.parts(type(left)))
            case (tuple(), tuple()):
                return len(left) == len(right) and all(map(self.same, left, right))
        return False


def is_renaming(bound: Mapping[str, Any]) -> bool:
    """Return whether a substitution maps variables to distinct variables."""
    names = [v.id for v in bound.values() if isinstance(v, ast.Name) and not is_word(v.id)]
    tensors = [v for v in bound.values() if isinstance(v, ast.Syntax)]
    return len(names) == len(tensors) == len(set(names))
