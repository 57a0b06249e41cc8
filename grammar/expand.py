"""`def`: named expressions, put in where they are called. After this no later stage knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from . import ast
from .builtins import functions
from .diagnostics import Diagnostic, Label
from .scope import free_names

S = TypeVar("S", bound=ast.Syntax)


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
    for diagnostic in found:
        if diagnostic.code == "def-cycle":
            table = {n: d for n, d in table.items() if not _reaches(d, n, table, set())}
    return table, found


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
    if not table:
        return node
    result = _rebuild(node, table, found)
    assert isinstance(result, type(node)) or isinstance(node, ast.Expr)
    return result  # type: ignore[return-value]


def _rebuild(node: ast.Syntax, table: Mapping[str, ast.Def], found: list[Diagnostic]) -> ast.Syntax:
    changes: dict[str, Any] = {}
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, ast.Syntax):
            new: Any = _rebuild(value, table, found)
        elif isinstance(value, tuple) and any(isinstance(v, ast.Syntax) for v in value):
            items = tuple(_rebuild(v, table, found) if isinstance(v, ast.Syntax) else v for v in value)
            new = value if all(a is b for a, b in zip(items, value, strict=True)) else items
        else:
            continue
        if new is not value:
            changes[f.name] = new
    if changes:
        node = replace(node, **changes)
    if isinstance(node, ast.Call) and node.kind is None and node.head in table:
        return _apply(node, table, found)
    return node


def _apply(call: ast.Call, table: Mapping[str, ast.Def], found: list[Diagnostic]) -> ast.Expr:
    item = table[call.head]
    if len(call.args) != len(item.params) or call.attributes or call.rest:
        label = Label(item.span, "defined here")
        message = f"`{call.head}` takes {len(item.params)} arguments ({', '.join(item.params)})"
        found.append(Diagnostic("wrong-arity", message, call.span, (label,)))
        return call
    body = substitute(item.body, dict(zip(item.params, call.args, strict=True)))
    expanded = _rebuild(body, table, found)
    assert isinstance(expanded, ast.Expr)
    return expanded


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
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, ast.Syntax):
            changes[f.name] = _substitute(value, values)
        elif isinstance(value, tuple):
            changes[f.name] = tuple(_substitute(v, values) if isinstance(v, ast.Syntax) else v for v in value)
    return replace(node, **changes) if changes else node
