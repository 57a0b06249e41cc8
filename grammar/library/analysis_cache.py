"""Cache of type errors and warnings of whole libraries, by the contents of their files.

Only libraries without errors are cached, so an entry is a list of warnings, mostly empty. Running rules needs no
warnings, which take as long as types; such an entry only records that the types are right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from itertools import chain
from pathlib import Path
from typing import Any

from ...system.store import Store, code_stamp, content_key
from ..diagnostics import Diagnostic, Fix, Label
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..syntax.ast import Span


def analyze(
    items: Sequence[ast.Item], operators: OperatorInfo | None, texts: Mapping[str, str], *, cached: bool, warn: bool
) -> list[Diagnostic]:
    """Return type errors, and with `warn` the warnings that no rule allows. `cached` for items without other errors."""
    name = _key(operators, texts)
    found = _known(name, warn=warn) if cached else None
    if found is not None:
        return found
    from ..types import infer  # on a miss only: types and lints take 30 ms to import

    before = _known_files(operators, texts, warn=warn)
    fresh = [item for item in items if item.span.file not in before]
    found = infer(fresh, operators, among=items).diagnostics
    if not cached or any(d.severity == "error" for d in found):
        return found
    if warn:
        from ..lints import find

        found += find(fresh, operators, among=items)
        found = [*chain.from_iterable(before.values()), *_without_allowed(found, items, fresh)]
    else:
        found = []
    _save(f"{'warnings' if warn else 'types'}-{name}", found)
    return found


def _known(name: str, *, warn: bool) -> list[Diagnostic] | None:
    """Return the findings in files without errors; None if they are not cached."""
    found = _load(f"warnings-{name}")
    return found if found is not None or warn else _load(f"types-{name}")


def _known_files(
    operators: OperatorInfo | None, texts: Mapping[str, str], *, warn: bool
) -> dict[str, list[Diagnostic]]:
    """Return the cached findings by file, for directories that were analyzed on their own.

    A file under development then costs no more than itself: the standard library beside it comes from the cache."""
    folders: dict[str, dict[str, str]] = {}
    for path, text in texts.items():
        folders.setdefault(str(Path(path).parent), {})[path] = text
    done: dict[str, list[Diagnostic]] = {}
    for files in folders.values():
        found = _known(_key(operators, files), warn=warn) if len(folders) > 1 else None
        if found is not None:
            done.update((path, [d for d in found if d.span.file == path]) for path in files)
    return done


def _without_allowed(
    found: Iterable[Diagnostic], items: Iterable[ast.Item], fresh: Iterable[ast.Item]
) -> list[Diagnostic]:
    """Return the warnings that no rule involved allows, and a warning for each `allow` without effect."""
    allows = [(item.span, allow) for item in items if isinstance(item, ast.Rule) for allow in item.allows]
    needed: set[Span] = set()
    remaining = []
    for diagnostic in found:
        places = [diagnostic.span, *(label.span for label in diagnostic.labels)]
        by = [a for span, a in allows if a.code == diagnostic.code and any(_within(p, span) for p in places)]
        needed.update(a.span for a in by)
        if not by:
            remaining.append(diagnostic)
    asked = {item.span for item in fresh}
    for span, allow in allows:
        if span in asked and allow.span not in needed:
            message = f"`allow {allow.code}` has no effect: the rule has no such warning"
            fix = Fix(allow.span, "")
            remaining.append(Diagnostic("unused", message, allow.span, (), "remove it", severity="warning", fix=fix))
    return remaining


def _within(inner: Span, outer: Span) -> bool:
    start = (outer.line, outer.column) <= (inner.line, inner.column)
    end = (inner.end_line, inner.end_column) <= (outer.end_line, outer.end_column)
    return inner.file == outer.file and start and end


# --- entries


def _key(operators: OperatorInfo | None, texts: Mapping[str, str]) -> str:
    version = operators.version() if operators is not None else "none"
    return content_key(code_stamp("grammar"), version, *(part for pair in texts.items() for part in pair))


def _load(name: str) -> list[Diagnostic] | None:
    payload = Store().namespace("analysis").read(name)
    if payload is None:
        return None
    try:
        return [_decode(*fields) for fields in json.loads(payload)]
    except (ValueError, TypeError):
        return None


def _decode(code: str, message: str, span: Any, labels: Any, hint: str, severity: str, fix: Any) -> Diagnostic:
    found = tuple(Label(Span(*at), text) for at, text in labels)
    edit = Fix(Span(*fix[0]), fix[1]) if fix else None
    return Diagnostic(code, message, Span(*span), found, hint, severity, edit)


def _save(name: str, found: Iterable[Diagnostic]) -> None:
    payload = json.dumps([astuple(d) for d in found], ensure_ascii=False).encode()
    Store().namespace("analysis").save(name, payload)
