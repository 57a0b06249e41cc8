"""Places in a syntax tree, each with a function that replaces the node there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rewrite.grammar.syntax import ast

S = TypeVar("S", bound=ast.Syntax)
Put = Callable[[ast.Syntax], Any]
"""Function that returns the tree around a place with another node there."""


def sites(root: ast.Syntax) -> Iterator[tuple[ast.Syntax, Put]]:
    """Yield every node of a tree, parents first, with the function that replaces it."""
    yield root, lambda new: new
    for name in ast.parts(type(root)):
        value = getattr(root, name)
        if isinstance(value, ast.Syntax):
            for node, put in sites(value):
                yield node, _in_field(root, name, put)
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                if isinstance(item, ast.Syntax):
                    for node, put in sites(item):
                        yield node, _in_tuple(root, name, i, put)


def _in_field(root: ast.Syntax, name: str, put: Put) -> Put:
    return lambda new: changed(root, **{name: put(new)})


def _in_tuple(root: ast.Syntax, name: str, index: int, put: Put) -> Put:
    items = getattr(root, name)
    return lambda new: changed(root, **{name: (*items[:index], put(new), *items[index + 1 :])})


def changed(node: S, **fields: Any) -> S:
    """Return a node with other fields."""
    return dataclasses.replace(node, **fields)


def without(items: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """Return a tuple without one of its items."""
    return (*items[:index], *items[index + 1 :])


def with_item(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """Return a tuple with one of its items replaced."""
    return (*items[:index], item, *items[index + 1 :])


def swapped(items: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    """Return a tuple with two of its items swapped."""
    out = list(items)
    out[i], out[j] = out[j], out[i]
    return tuple(out)
