"""Expansion of `def`s where they are called; later stages never see them."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from ..builtins import functions
from ..diagnostics import Diagnostic, Label
from . import ast
from .scope import free_names

S = TypeVar("S", bound=ast.Syntax)

MAX_NODES = 5000
"""Maximum size of an expanded call: definitions that repeat their argument grow exponentially."""
MAX_DEPTH = 200
"""Maximum depth of an expanded call."""


def collect(defs: Iterable[ast.Def]) -> tuple[dict[str, ast.Def], list[Diagnostic]]:
    """Return the definitions by name, and diagnostics: duplicate names and parameters, cycles, free names."""
    table: dict[str, ast.Def] = {}
    found: list[Diagnostic] = []
    for item in defs:
        if item.name in table:
            label = Label(table[item.name].span, "the first one is here")
            found.append(Diagnostic("duplicate-name", f"`def {item.name}` is defined twice", item.span, (label,)))
        elif item.name in functions():
            found.append(Diagnostic("duplicate-name", f"`{item.name}` is a library function", item.span))
        elif item.name[:1].isupper():
            message, hint = f"`def {item.name}` begins with a capital letter", "declare operators with `op`"
            found.append(Diagnostic("bad-name", message, item.span, hint=hint))
        else:
            table[item.name] = item
        for i, name in enumerate(item.params):
            if name in item.params[:i]:
                found.append(Diagnostic("duplicate-name", f"duplicate parameter `{name}`", item.span))
        found += [
            Diagnostic("unbound-variable", f"`{name.id}` is not a parameter of `def {item.name}`", name.span)
            for name in free_names(item.body, frozenset(item.params))
        ]
    calls = {name: _calls(item, table) for name, item in table.items()}
    for name in [name for name in table if name in _reached(name, calls)]:
        found.append(Diagnostic("def-cycle", f"`def {name}` calls itself", table[name].span))
        del table[name]
    done: dict[str, ast.Def] = {}
    # A body is expanded after those that it calls.
    for name in graphlib.TopologicalSorter({name: _calls(item, table) for name, item in table.items()}).static_order():
        done[name] = replace(table[name], body=expand(table[name].body, done, found))
    return done, found


def _calls(item: ast.Def, table: Mapping[str, ast.Def]) -> list[str]:
    """Return the definitions in the table that a definition calls directly."""
    return [node.head for node in item.body.walk() if isinstance(node, ast.Call) and node.head in table]


def _reached(name: str, calls: Mapping[str, list[str]]) -> set[str]:
    """Return the definitions that a definition calls, directly or indirectly."""
    found: set[str] = set()
    todo = [name]
    while todo:
        new = set(calls[todo.pop()]) - found
        found |= new
        todo += new
    return found


def expand(node: S, table: Mapping[str, ast.Def], found: list[Diagnostic]) -> S:
    """Return the syntax with every call of a definition replaced by its body; wrong calls are added to `found`.

    The bodies are expanded already. A tree without such calls is returned as is."""
    is_too_large = False

    def rebuild(node: ast.Syntax) -> ast.Syntax:
        node = node.map_children(rebuild)  # innermost first
        return apply(node) if isinstance(node, ast.Call) and node.kind is None and node.head in table else node

    def apply(call: ast.Call) -> ast.Expr:
        nonlocal is_too_large
        item = table[call.head]
        label = Label(item.span, "defined here")
        count = len(item.params)
        if len(call.args) != count or call.attributes or call.rest:
            message = f"`{call.head}` takes {count} argument{'s' * (count != 1)} ({', '.join(item.params)})"
            found.append(Diagnostic("wrong-arity", message, call.span, (label,)))
        elif not is_too_large:
            expanded: ast.Expr = substitute(item.body, dict(zip(item.params, call.args, strict=True)))
            is_too_large = _is_too_large(expanded)
            if not is_too_large:
                return expanded
            message = f"the expansion of `{call.head}` is too large"
            found.append(Diagnostic("def-too-large", message, call.span, (label,)))
        return call

    return cast(S, rebuild(node)) if table else node


def _is_too_large(expr: ast.Expr) -> bool:
    """Return whether a tree exceeds the bounds, visiting little more nodes than they allow."""
    sizes = itertools.accumulate(map(len, expr.levels()))
    return any(nodes > MAX_NODES or depth > MAX_DEPTH for depth, nodes in enumerate(sizes, 1))


def substitute(node: Any, values: Mapping[str, ast.Expr]) -> Any:
    """Return the expression with names replaced; loop variables that would capture a name are renamed."""
    if isinstance(node, ast.Name):
        return values.get(node.id, node)
    if isinstance(node, ast.Comprehension):
        taken = {name.id for name in free_names(node.item)} - {node.variable}
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
    return node.map_children(lambda child: substitute(child, values))
