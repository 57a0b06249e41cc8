"""Parsed rule files, kept by content in the user's cache directory.

An entry is a syntax tree as plain JSON with a checksum: loading it runs no code, and one that is damaged is as good as
none. The key covers the text and the grammar, so nothing is ever out of date. Only files without errors are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from .. import private
from . import ast
from .ast import RuleFile, Span, Syntax

FORMAT = 1
"""To be raised when the meaning of entries changes otherwise than by the grammar or the fields of the syntax tree."""
MAX_ENTRIES = 512
"""How many entries are kept; the oldest go first."""

_SCALARS = ("str", "bool", "int", "int | float", "str | None", "int | None")


def directory() -> Path:
    """Where entries are kept: in $REWRITE_CACHE_DIR, else in the user's cache directory."""
    root = os.environ.get("REWRITE_CACHE_DIR")
    if not root:
        from platformdirs import user_cache_dir

        root = user_cache_dir("onnx-rewrite", appauthor=False)
    return Path(root) / "rules"


def prepared() -> Path:
    """The directory of entries, made if it is not there. Raises OSError if it is not this user's."""
    private.prepare(directory().parent)
    private.prepare(directory())
    return directory()


def key(text: str, grammar: str) -> str:
    """The name of the entry for a text parsed by a grammar."""
    shape = repr([(c.__name__, kinds) for c, kinds in _layout()])
    return hashlib.sha256(f"{FORMAT}\0{shape}\0{grammar}\0{text}".encode()).hexdigest()


def load(name: str, path: str) -> RuleFile | None:
    """The entry of that name with spans in `path`, or None if there is none that can be read."""
    try:
        checksum, _, payload = private.read(directory() / f"{name}.json").partition(b"\n")
        if hashlib.sha256(payload).hexdigest() != checksum.decode():
            return None
        file = decode(json.loads(payload), path)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return file if isinstance(file, RuleFile) else None


def store(name: str, file: RuleFile) -> None:
    """Keep an entry. Where that is impossible (a full disk, a directory of others) there will be none."""
    from .. import transient

    payload = json.dumps(encode(file, file.path), separators=(",", ":"), ensure_ascii=False).encode()
    with contextlib.suppress(OSError):
        folder = prepared()
        with transient.replacing(folder / f"{name}.json", private=True) as out:
            out.write(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
        _forget(folder)


def _forget(folder: Path) -> None:
    """Remove the oldest entries past the limit."""
    entries = list(folder.glob("*.json"))
    if len(entries) > MAX_ENTRIES:
        for entry in sorted(entries, key=lambda e: (e.stat().st_mtime, e.name))[:-MAX_ENTRIES]:
            entry.unlink(missing_ok=True)


@cache
def _layout() -> list[tuple[type[Syntax], tuple[str, ...]]]:
    """The node classes in a fixed order, each with what its fields hold: a scalar, words, nodes, or a node."""
    classes = [c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, Syntax)]
    return [(c, tuple(_kind(f.name, str(f.type)) for f in fields(c))) for c in classes]


def _kind(name: str, annotation: str) -> str:
    if name == "span":
        return "span"
    if name == "path" or annotation in _SCALARS:
        return "scalar"
    if annotation == "tuple[str, ...]":
        return "words"
    return "nodes" if annotation.startswith("tuple[") else "node"


def encode(node: Syntax, file: str) -> list[Any]:
    """`[class, line, column, end line, end column, fields ..]`.

    A node from another file than `file`, such as that of a `def` which was put in, has the class's number made negative
    and the file before the rest."""
    number, parts = _encoders()[type(node)]
    span = node.span
    here = span.file == file
    file = span.file
    places = [span.line, span.column, span.end_line, span.end_column]
    out: list[Any] = [number, *places] if here else [-1 - number, file, *places]
    for get, kind in parts:
        value = get(node)
        if value is None or kind in ("scalar", "words"):
            out.append(value)
        elif kind == "node":
            out.append(encode(value, file))
        else:
            out.append([encode(v, file) for v in value])
    return out


@cache
def _encoders() -> dict[type[Syntax], tuple[int, list[tuple[Callable[[Any], Any], str]]]]:
    return {
        c: (number, [(attrgetter(f.name), kind) for f, kind in zip(fields(c), kinds, strict=True) if kind != "span"])
        for number, (c, kinds) in enumerate(_layout())
    }


@cache
def _decoders() -> list[tuple[type[Syntax], list[tuple[Callable[[Any, Any], None], str]]]]:
    return [
        (c, [(_setter(c, f.name), kind) for f, kind in zip(fields(c), kinds, strict=True) if kind != "span"])
        for c, kinds in _layout()
    ]


def decode(tree: list[Any], path: str) -> Syntax:
    """The inverse of `encode`. Raises `ValueError`, `LookupError` or `TypeError` for what is no encoded tree."""
    decoders = _decoders()
    new = object.__new__
    new_span = Span
    set_span = _setter(Syntax, "span")

    def decode(tree: list[Any], path: str) -> Any:
        number = tree[0]
        if number >= 0:
            line, column, end_line, end_column, *values = tree[1:]
        else:
            number = -1 - number
            path, line, column, end_line, end_column, *values = tree[1:]
        made, parts = decoders[number]
        node = new(made)
        set_span(node, new_span(path, line, column, end_line, end_column))
        for (put, kind), value in zip(parts, values, strict=True):
            if value is None or kind == "scalar":
                put(node, value)
            elif kind == "node":
                put(node, decode(value, path))
            elif kind == "nodes":
                put(node, tuple([decode(v, path) for v in value]))
            else:
                put(node, tuple(value))
        if made is RuleFile:
            _PATH(node, path)
        return node

    node: Syntax = decode(tree, path)
    return node


def _setter(owner: type[Syntax], name: str) -> Callable[[Any, Any], None]:
    """Sets a field of new nodes, which nothing else may change."""
    put: Callable[[Any, Any], None] = getattr(owner, name).__set__
    return put


_PATH = _setter(RuleFile, "path")
