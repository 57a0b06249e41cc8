"""Where names stand in a file and what each of them is: the ground of navigation, renaming and colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import ast
from ..builtins import DTYPES
from ..scope import Scope, Sort, bind_given, bind_pattern, is_dtype_variable, is_word
from ..tokens import Token
from .document import Document

GLOBAL = ("rule", "op", "def", "ruleset", "schedule")
"""The kinds of names that a file shares with others."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a name stands for. `kind` is one of `GLOBAL`, or `variable`, `attribute`, `dtype`, `use`.

    `scope` tells variables of one name apart: the item, and what binds it if that is within; of an attribute it is the
    operator."""

    kind: str
    name: str
    scope: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A symbol between two offsets; `binds` where it is defined."""

    symbol: Symbol
    start: int
    end: int
    binds: bool = False
    sort: Sort | None = None


def occurrences(document: Document) -> list[Occurrence]:
    """All names of a file that mean something, in order."""
    found = []
    for item in document.items:
        base = document.lines.range(item.span)[0]
        for o in document.kept(item, _of_item):
            found.append(Occurrence(o.symbol, base + o.start, base + o.end, o.binds, o.sort))
    return found


def _of_item(document: Document, item: ast.Item) -> list[Occurrence]:
    """The names of an item, in order, with places counted from its first character."""
    base = document.lines.range(item.span)[0]
    found = {replace(o, start=o.start - base, end=o.end - base) for o in _Item(document, item).all()}
    return sorted(found, key=lambda o: (o.start, o.end))


def at(document: Document, offset: int) -> Occurrence | None:
    """The name at an offset."""
    item = document.item_at(offset)
    if item is None:
        return None
    base = document.lines.range(item.span)[0]
    inside = [
        Occurrence(o.symbol, base + o.start, base + o.end, o.binds, o.sort) for o in document.kept(item, _of_item)
    ]
    here = [o for o in inside if o.start <= offset <= o.end]
    return min(here, key=lambda o: o.end - o.start, default=None)


def scope_of(item: ast.Item) -> Scope:
    """The variables of an item."""
    scope = Scope()
    if isinstance(item, ast.Rule | ast.Fuse):
        bind_pattern(item.lhs, scope)
        bind_given(item.given, scope)
        for binding in item.let if isinstance(item, ast.Rule) else ():
            scope.bind(binding.target.name, Sort.LET, binding.target.span)
    elif isinstance(item, ast.Op):
        for param in item.params or ():
            is_attribute = param.attribute is not None
            sort = Sort.ATTRIBUTE if is_attribute else Sort.VARIADIC if param.variadic else Sort.TENSOR
            scope.bind(param.name, sort, param.span)
        bind_given(item.given, scope)
    elif isinstance(item, ast.Def):
        for name in item.params:
            scope.bind(name, Sort.TENSOR, item.span)
    return scope


class _Item:
    """The names of one item."""

    def __init__(self, document: Document, item: ast.Item) -> None:
        self.document = document
        self.item = item
        self.start, self.end = document.lines.range(item.span)
        self.scope = scope_of(item)
        self.local: tuple[int | str, ...] = (id(item),)
        self.loops: list[tuple[str, int]] = []
        self.in_test = False
        self.binds = False

    def all(self) -> Iterator[Occurrence]:
        """Every name, in no order."""
        yield from self._own_names()
        for child in self.item.children():
            is_left = child is getattr(self.item, "lhs", None)
            self.binds = is_left or isinstance(child, ast.Given | ast.Param)
            self.in_test = isinstance(child, ast.RuleTest)
            if isinstance(child, ast.Binding):  # a `let`
                self.binds = True
                yield from self._node(child.target)
                self.binds = False
                yield from self._node(child.value)
                continue
            yield from self._node(child)

    # --- names that are no nodes

    def _own_names(self) -> Iterator[Occurrence]:
        item = self.item
        names = [t for t in self.document.tokens_in(self.start, self.end) if t.kind in ("name", "string")]
        match item:
            case ast.Rule() | ast.Fuse():
                yield self._make(Symbol("rule", item.name), names[1], binds=True)
            case ast.Op():
                yield self._make(Symbol("op", item.name), names[1], binds=True)
            case ast.Ruleset():
                yield self._make(Symbol("ruleset", item.name), names[1], binds=True)
            case ast.Schedule():
                yield self._make(Symbol("schedule", item.name), names[1], binds=True)
            case ast.Def():
                yield self._make(Symbol("def", item.name), names[1], binds=True)
                for token in names[2 : 2 + len(item.params)]:
                    yield self._make(Symbol("variable", token.text, self.local), token, binds=True)
            case ast.Use():
                yield self._make(Symbol("use", item.path), names[1])
                for token in names[2:]:
                    yield self._make(Symbol("op" if token.text[:1].isupper() else "rule", token.text), token)
        joins = getattr(item, "joins", None)
        if joins is not None:
            for word, token in itertools.pairwise(names):
                if word.text == "joins" and token.text == joins:
                    yield self._make(Symbol("ruleset", joins), token)

    def _make(self, symbol: Symbol, token: Token, *, binds: bool = False) -> Occurrence:
        sort = self.scope.sort(symbol.name) if symbol.kind == "variable" else None
        return Occurrence(symbol, token.start, token.end, binds, sort)

    # --- nodes

    def _node(self, node: ast.Syntax) -> Iterator[Occurrence]:
        match node:
            case ast.Name(id=name):
                yield from self._name(node, name)
                return
            case ast.Optional(name=name) | ast.Param(name=name) | ast.Target(name=name):
                yield from self._variable(name, self._first(node))
            case ast.Rest(name=name) | ast.ShapeRest(name=name) if name is not None:
                yield from self._variable(name, self._first(node))
            case ast.TypeExpr(element=element) if element is not None:
                token = self._first(node, past=("const",))
                if is_word(element) or not is_dtype_variable(element):
                    yield self._make(Symbol("dtype", element), token)
                else:
                    yield from self._variable(element, token)
            case ast.Attribute(name=name):
                yield self._make(Symbol("attribute", name, (self.heads[-1] if self.heads else "",)), self._first(node))
            case ast.Run(ruleset=name):
                yield self._make(Symbol("ruleset", name), self._first(node))
            case ast.Call():
                yield from self._call(node)
                return
            case ast.Comprehension():
                yield from self._comprehension(node)
                return
        for child in node.children():
            yield from self._node(child)

    heads: tuple[str, ...] = ()

    def _call(self, call: ast.Call) -> Iterator[Occurrence]:
        head = self._first(call, past=(call.kind,) if call.kind else ())
        if call.kind is not None or self.scope.sort(call.head) is Sort.OPERATOR:
            yield from self._variable(call.head, head)
        else:
            yield self._make(Symbol("op" if call.is_operator else "def", call.head), head)
        self.heads = (*self.heads, call.head)
        for child in call.children():
            yield from self._node(child)
        self.heads = self.heads[:-1]

    def _comprehension(self, node: ast.Comprehension) -> Iterator[Occurrence]:
        start, end = self.document.lines.range(node.span)
        yield from self._node(node.iterable)
        start -= self.start
        self.loops.append((node.variable, start))
        item_end = self.document.lines.range(node.item.span)[1]
        for token in self.document.tokens_in(item_end, end):
            if token.kind == "name" and token.text == node.variable:
                symbol = Symbol("variable", node.variable, (*self.local, start))
                yield Occurrence(symbol, token.start, token.end, True, Sort.DIM)
                break
        yield from self._node(node.item)
        if node.condition is not None:
            yield from self._node(node.condition)
        self.loops.pop()

    def _name(self, node: ast.Name, name: str) -> Iterator[Occurrence]:
        token = self._first(node)
        if name in DTYPES:
            yield self._make(Symbol("dtype", name), token)
        elif self.in_test and name[:1].isupper() and len(name) > 1 and name not in self.scope:
            yield self._make(Symbol("op", name), token)
        elif not is_word(name):
            yield from self._variable(name, token)

    def _variable(self, name: str, token: Token) -> Iterator[Occurrence]:
        for variable, start in reversed(self.loops):
            if variable == name:
                yield Occurrence(
                    Symbol("variable", name, (*self.local, start)), token.start, token.end, False, Sort.DIM
                )
                return
        scope = self.local
        if self.in_test and name not in self.scope:
            scope = (*self.local, "test")
        yield self._make(Symbol("variable", name, scope), token, binds=self.binds)

    def _first(self, node: ast.Syntax, past: tuple[str, ...] = ()) -> Token:
        """The first name among a node's tokens."""
        start, end = self.document.lines.range(node.span)
        inside = self.document.tokens_in(start, end)
        return next((t for t in inside if t.kind == "name" and t.text not in past), inside[0])


def definition(document: Document, symbol: Symbol) -> Occurrence | None:
    """Where a file defines a symbol: the first place that binds it, else the first where it stands."""
    here = [o for o in occurrences(document) if o.symbol == symbol]
    return next((o for o in here if o.binds), here[0] if here and symbol.kind == "variable" else None)
