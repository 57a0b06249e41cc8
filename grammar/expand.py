"""`def`: named expressions, put in where they are called. After this no later stage knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from . import ast
from .builtins import functions
from .diagnostics import Diagnostic, Label
from .scope import free_names

S = TypeVar("S", bound=ast.Syntax)

MAX_NODES = 5000
"""How large a call of a definition may become: definitions that repeat their argument grow without end."""
MAX_DEPTH = 200
"""How deep it may be nested."""


def collect(defs: Iterable[ast.Def]) -> tuple[dict[str, ast.Def], list[Diagnostic]]:
    """The definitions by name, and what is wrong with them: names taken twice, parameters, cycles, free names."""
    table: dict[str, ast.Def] = {}
    found: list[Diagnostic] = []
    for item in defs:
        if item.name in table:
            label = Label(table[item.name].span, "the first one is here")
            found.append(Diagnostic("duplicate-name", f"`def {item.name}` is defined twice", item.span, (label,)))
        elif item.name in functions():
            found.append(Diagnostic("duplicate-name", f"`{item.name}` is a function of the library", item.span))
        elif item.name[:1].isupper():
            hint = "names with a capital are operators; declare one with `op`"
            found.append(Diagnostic("bad-name", f"`def {item.name}` begins with a capital", item.span, hint=hint))
        else:
            table[item.name] = item
        for i, name in enumerate(item.params):
            if name in item.params[:i]:
                found.append(Diagnostic("duplicate-name", f"parameter `{name}` is named twice", item.span))
        found += [
            Diagnostic("unbound-variable", f"`{name.id}` is no parameter of `def {item.name}`", name.span)
            for name in free_names(item.body, frozenset(item.params))
        ]
    for item in list(table.values()):
        if _reaches(item, item.name, table, set()):
            found.append(Diagnostic("def-cycle", f"`def {item.name}` calls itself", item.span))
    table = {n: d for n, d in table.items() if not _reaches(d, n, table, set())}
    done: dict[str, ast.Def] = {}
    for name in table:
        _finish(name, table, done, found)
    return done, found


def _finish(name: str, table: Mapping[str, ast.Def], done: dict[str, ast.Def], found: list[Diagnostic]) -> None:
    """Expand the body of a definition after those that it calls; there is no cycle among them."""
    if name in done:
        return
    for head in _calls(table[name].body):
        if head in table:
            _finish(head, table, done, found)
    done[name] = replace(table[name], body=expand(table[name].body, done, found))


def _calls(expr: ast.Syntax) -> list[str]:
    return [node.head for node in expr.walk() if isinstance(node, ast.Call)]


def _reaches(item: ast.Def, name: str, table: Mapping[str, ast.Def], seen: set[str]) -> bool:
    for head in _calls(item.body):
        if head == name:
            return True
        if head in table and head not in seen:
            seen.add(head)
            if _reaches(table[head], name, table, seen):
                return True
    return False


def expand(node: S, table: Mapping[str, ast.Def], found: list[Diagnostic]) -> S:
    """The syntax with every call of a definition replaced by its body; wrong calls are added to `found`.

    A tree without such calls is returned as it is."""
    return _Expansion(table, found).rebuild(node) if table else node  # type: ignore[return-value]


class _Expansion:
    """The expansion of one item with definitions whose own bodies are expanded already."""

    def __init__(self, table: Mapping[str, ast.Def], found: list[Diagnostic]) -> None:
        self.table = table
        self.found = found
        self.too_large = False

    def rebuild(self, node: ast.Syntax) -> ast.Syntax:
        """The node with the calls in it and itself expanded, innermost first."""
        changes: dict[str, Any] = {}
        for name in ast.parts(node):
            value = getattr(node, name)
            if isinstance(value, ast.Syntax):
                new: Any = self.rebuild(value)
            elif isinstance(value, tuple) and any(isinstance(v, ast.Syntax) for v in value):
                items = tuple(self.rebuild(v) if isinstance(v, ast.Syntax) else v for v in value)
                new = value if all(a is b for a, b in zip(items, value, strict=True)) else items
            else:
                continue
            if new is not value:
                changes[name] = new
        if changes:
            node = replace(node, **changes)
        if isinstance(node, ast.Call) and node.kind is None and node.head in self.table:
            return self._apply(node)
        return node

    def _apply(self, call: ast.Call) -> ast.Expr:
        item = self.table[call.head]
        label = Label(item.span, "defined here")
        if len(call.args) != len(item.params) or call.attributes or call.rest:
            count = len(item.params)
            message = f"`{call.head}` takes {count} argument{'s' * (count != 1)} ({', '.join(item.params)})"
            self.found.append(Diagnostic("wrong-arity", message, call.span, (label,)))
            return call
        if self.too_large:
            return call
        expanded = substitute(item.body, dict(zip(item.params, call.args, strict=True)))
        if _is_too_large(expanded):
            self.too_large = True
            message = f"`{call.head}` expands to too much here"
            self.found.append(Diagnostic("def-too-large", message, call.span, (label,)))
            return call
        return expanded


def _is_too_large(expr: ast.Expr) -> bool:
    """Whether a tree is past the bounds; never visits many more nodes than they allow."""
    level: list[ast.Syntax] = [expr]
    nodes = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            return True
        level = [child for node in level for child in node.children()]
    return False


def substitute(expr: S, values: Mapping[str, ast.Expr]) -> S:
    """The expression with names replaced. Loop variables are renamed where they would capture a name of a value."""
    return _substitute(expr, values)  # type: ignore[return-value]


def _substitute(node: ast.Syntax, values: Mapping[str, ast.Expr]) -> ast.Syntax:
    if isinstance(node, ast.Name):
        return values.get(node.id, node)
    if isinstance(node, ast.Comprehension):
        taken = {name.id for value in (*values.values(), node.item) for name in free_names(value)} - {node.variable}
        taken |= {name.id for value in values.values() for name in free_names(value)}
        variable = node.variable
        while variable in taken:
            variable += "_"
        inner: dict[str, ast.Expr] = {name: v for name, v in values.items() if name != node.variable}
        if variable != node.variable:
            inner[node.variable] = ast.Name(span=node.span, id=variable)
        return replace(
            node,
            item=substitute(node.item, inner),
            variable=variable,
            iterable=substitute(node.iterable, values),
            condition=None if node.condition is None else substitute(node.condition, inner),
        )
    changes: dict[str, Any] = {}
    for name in ast.parts(node):
        value = getattr(node, name)
        if isinstance(value, ast.Syntax):
            changes[name] = _substitute(value, values)
        elif isinstance(value, tuple):
            changes[name] = tuple(_substitute(v, values) if isinstance(v, ast.Syntax) else v for v in value)
    return replace(node, **changes) if changes else node
