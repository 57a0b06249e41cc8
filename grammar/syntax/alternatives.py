"""Expansion of patterns with alternatives."""

from __future__ import annotations

from itertools import islice
from typing import Any

from . import ast


def expand(pattern: Any, most: int) -> list[Any]:
    """Return the pattern once for each combination of its alternatives; only the first `most` of them."""
    point = next((n for n in pattern.walk() if isinstance(n, ast.Alternatives)), None)
    if point is None:
        return [pattern]
    forms = (form for option in point.options for form in expand(exchange(pattern, point, option), most))
    return list(islice(forms, most))


def exchange(node: Any, old: ast.Syntax, new: ast.Expr) -> Any:
    """Return a tree with one of its nodes replaced by another."""
    return new if node is old else node.map_children(lambda child: exchange(child, old, new))
