"""Syntax trees as plain JSON, for the on-disk store: reading one executes nothing.

A node is `[class, line, column, end line, end column, fields ..]`; for a node from another file than the one around it,
such as an expanded `def`, it is `[-1 - class, file, line, ..]`. A tuple is a list that does not begin with a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from . import ast
from .ast import RuleFile, Span, Syntax, parts

FORMAT = 2
"""Version of the encoding, apart from the node classes and their fields."""


@cache
def layout() -> str:
    """Return a text that changes with the encoding: part of cache keys."""
    return repr((FORMAT, [(c.__name__, [(f.name, f.type) for f in fields(c)]) for c in _numbers()]))


def dumps(node: Syntax, file: str) -> bytes:
    """Encode a tree, on one line; `file` is the usual file of its spans."""
    return json.dumps(_encode(node, file), separators=(",", ":"), ensure_ascii=False).encode()


def loads(payload: bytes | None, path: str) -> RuleFile | None:
    """Decode a whole file with spans in `path`; None for a missing or malformed payload."""
    if payload is None:
        return None
    try:
        file = decode(json.loads(payload), path)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return file if isinstance(file, RuleFile) else None


@cache
def _numbers() -> dict[type[Syntax], int]:
    classes = [c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, Syntax)]
    return {c: number for number, c in enumerate(classes)}


def _encode(value: Any, file: str) -> Any:
    if isinstance(value, tuple):
        return [_encode(item, file) for item in value]
    if not isinstance(value, Syntax):
        return value
    number, span = _numbers()[type(value)], value.span
    head = [number] if span.file == file else [-1 - number, span.file]
    values = [_encode(getattr(value, name), span.file) for name in parts(type(value))]
    return [*head, span.line, span.column, span.end_line, span.end_column, *values]


@cache
def _setters() -> list[tuple[type[Syntax], list[Callable[[Any, Any], None]]]]:
    """Return the node classes, each with the setters of its fields, for nodes under construction."""
    return [(c, [getattr(c, name).__set__ for name in parts(c)]) for c in _numbers()]


@cache
def _span_setters() -> list[Callable[[Any, Any], None]]:
    return [getattr(Span, field.name).__set__ for field in fields(Span)]


def decode(tree: list[Any], path: str) -> Any:
    """Return the node that is encoded as `tree`, with spans in `path`.

    Raises `ValueError`, `LookupError` or `TypeError` for anything else than an encoded tree."""
    classes, new = _setters(), object.__new__
    set_file, set_line, set_column, set_end_line, set_end_column = _span_setters()
    set_span = Syntax.span.__set__  # type: ignore[attr-defined]

    def read(tree: list[Any], path: str) -> Any:  # fields are set directly, at half the time of a constructor call
        if not tree or type(number := tree[0]) is not int:
            return tuple([read(item, path) if type(item) is list else item for item in tree])
        start = 1
        if number < 0:
            number, path, start = -1 - number, tree[1], 2
        kind, setters = classes[number]
        node, span = new(kind), new(Span)
        set_file(span, path)
        set_line(span, tree[start])
        set_column(span, tree[start + 1])
        set_end_line(span, tree[start + 2])
        set_end_column(span, tree[start + 3])
        set_span(node, span)
        for put, value in zip(setters, tree[start + 4 :], strict=True):
            put(node, read(value, path) if type(value) is list else value)
        if kind is RuleFile:
            object.__setattr__(node, "path", path)
        return node

    return read(tree, path)
