"""All names in a file and the symbol each refers to: the basis of navigation, renaming and coloring."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from lsprotocol import types as lsp

from ..builtins import DTYPES
from ..syntax import ast
from ..syntax.scope import Scope, Sort, bind_given, bind_pattern, is_dtype_variable, is_word
from ..syntax.tokens import Token
from .document import Document

_NAMED: dict[type[ast.Item], str] = {
    ast.Rule: "rule", ast.Fuse: "rule", ast.Op: "op", ast.Def: "def", ast.Ruleset: "ruleset", ast.Schedule: "schedule",
}  # fmt: skip
GLOBAL = frozenset(_NAMED.values())
"""Kinds of names that files share."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """Referent of a name. `kind` is one of `GLOBAL`, or `variable`, `attribute`, `dtype`, `use`.

    `scope` distinguishes variables of the same name: the item, and the binder inside it if there is one. The scope of
    an attribute is its operator."""

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

    def moved(self, by: int) -> Occurrence:
        """Return the occurrence that many characters further on."""
        return Occurrence(self.symbol, self.start + by, self.end + by, self.binds, self.sort)


def occurrences(document: Document) -> list[Occurrence]:
    """Return all names of a file that refer to something, in order."""
    return [o for item in document.items for o in in_item(document, item)]


def in_item(document: Document, item: ast.Item) -> list[Occurrence]:
    """Return the names of an item in order. They are cached relative to its first character."""
    base = document.lines.range(item.span)[0]

    def make() -> list[Occurrence]:
        return sorted({o.moved(-base) for o in _Item(document, item).all()}, key=lambda o: (o.start, o.end))

    return [o.moved(base) for o in document.cached("names", item, make, is_relative=True)]


def at(document: Document, position: lsp.Position) -> Occurrence | None:
    """Return the name at a position."""
    offset = document.offset(position)
    item = document.item_at(offset)
    here = [o for o in in_item(document, item) if o.start <= offset <= o.end] if item is not None else []
    return min(here, key=lambda o: o.end - o.start, default=None)


def scope_of(item: ast.Item) -> Scope:
    """Return the variables of an item."""
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
    """Collects the names of one item."""

    def __init__(self, document: Document, item: ast.Item) -> None:
        self.document = document
        self.item = item
        self.start, self.end = document.lines.range(item.span)
        self.scope = scope_of(item)
        self.local: tuple[int | str, ...] = (id(item),)
        self.loops: list[Symbol] = []
        self.heads: list[str] = []
        self.in_test = False
        self.binds = False

    def all(self) -> Iterator[Occurrence]:
        """Yield every name, in no particular order."""
        yield from self._own_names()
        for child in self.item.children():
            is_left = child is getattr(self.item, "lhs", None)
            self.binds = is_left or isinstance(child, ast.Given | ast.Param)
            self.in_test = isinstance(child, ast.RuleTest)
            if isinstance(child, ast.Binding):  # a `let`
                self.binds = True
                yield from self._node(child.target)
                self.binds = False
                child = child.value
            yield from self._node(child)

    # --- names that are not nodes

    def _own_names(self) -> Iterator[Occurrence]:
        item = self.item
        names = [t for t in self.document.tokens_in(self.start, self.end) if t.kind in ("name", "string")]
        if type(item) in _NAMED:
            yield self._make(Symbol(_NAMED[type(item)], names[1].text), names[1], binds=True)
        if isinstance(item, ast.Def):
            for token in names[2 : 2 + len(item.params)]:
                yield self._make(Symbol("variable", token.text, self.local), token, binds=True)
        if isinstance(item, ast.Use):
            yield self._make(Symbol("use", item.path), names[1])
            for token in names[2:]:
                yield self._make(Symbol("op" if token.text[:1].isupper() else "rule", token.text), token)
        joins = getattr(item, "joins", None)
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
                yield self._make(Symbol("attribute", name, tuple(self.heads[-1:])), self._first(node))
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

    def _call(self, call: ast.Call) -> Iterator[Occurrence]:
        head = self._first(call, past=(call.kind,) if call.kind else ())
        if call.kind is not None or self.scope.sort(call.head) is Sort.OPERATOR:
            yield from self._variable(call.head, head)
        else:
            yield self._make(Symbol("op" if call.is_operator else "def", call.head), head)
        self.heads.append(call.head)
        for child in call.children():
            yield from self._node(child)
        self.heads.pop()

    def _comprehension(self, node: ast.Comprehension) -> Iterator[Occurrence]:
        start, end = self.document.lines.range(node.span)
        yield from self._node(node.iterable)
        symbol = Symbol("variable", node.variable, (*self.local, start - self.start))
        after_item = self.document.tokens_in(self.document.lines.range(node.item.span)[1], end)
        token = next(t for t in after_item if t.kind == "name" and t.text == node.variable)
        yield Occurrence(symbol, token.start, token.end, True, Sort.DIM)
        self.loops.append(symbol)
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
        loop = next((symbol for symbol in reversed(self.loops) if symbol.name == name), None)
        if loop is not None:
            yield Occurrence(loop, token.start, token.end, False, Sort.DIM)
            return
        scope = (*self.local, "test") if self.in_test and name not in self.scope else self.local
        yield self._make(Symbol("variable", name, scope), token, binds=self.binds)

    def _first(self, node: ast.Syntax, past: tuple[str, ...] = ()) -> Token:
        """Return the first name among a node's tokens."""
        inside = self.document.tokens_in(*self.document.lines.range(node.span))
        return next((t for t in inside if t.kind == "name" and t.text not in past), inside[0])


def definition(document: Document, symbol: Symbol) -> Occurrence | None:
    """Return where a file defines a symbol: the first place that binds it, otherwise its first use."""
    here = [o for o in occurrences(document) if o.symbol == symbol]
    return next((o for o in here if o.binds), here[0] if here and symbol.kind == "variable" else None)
