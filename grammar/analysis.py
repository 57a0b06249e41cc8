"""Types and warnings of a whole library: worked out once, and kept by the content of its files.

What the analysis found is kept only where it found no errors, so that an entry is a list of warnings, mostly empty.
Those who only run the rules leave warnings out, which take as long as types: an entry then says that types are right.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache as once
from pathlib import Path
from typing import Any

from .. import private
from . import ast, cache
from .ast import Span
from .diagnostics import Diagnostic, Fix, Label
from .operator_info import OperatorInfo


def analyse(
    items: Sequence[ast.Item], operators: OperatorInfo | None, texts: Mapping[str, str], *, keep: bool, warn: bool
) -> list[Diagnostic]:
    """Errors of types, and if `warn` the warnings that no rule allows. `keep` where there were no errors before."""
    name = _key(operators, texts)
    found = _known(name, warn=warn) if keep else None
    if found is not None:
        return found
    from .types import infer

    before = _before(operators, texts, warn=warn)
    fresh = [item for item in items if item.span.file not in before]
    found = infer(fresh, operators, among=items).diagnostics
    if not keep or any(d.severity == "error" for d in found):
        return found
    if not warn:
        _store(f"types-{name}", [])
        return []
    from .warnings import find

    found = [*found, *find(fresh, operators, among=items)]
    found = [*(d for group in before.values() for d in group), *_without_allowed(found, items, fresh)]
    _store(f"warnings-{name}", found)
    return found


def _known(name: str, *, warn: bool) -> list[Diagnostic] | None:
    """What was found before in files without errors, None if that is not known."""
    found = _load(f"warnings-{name}")
    return found if found is not None or warn else _load(f"types-{name}")


def _before(operators: OperatorInfo | None, texts: Mapping[str, str], *, warn: bool) -> dict[str, list[Diagnostic]]:
    """The files of directories that have been looked at by themselves, with what was found: so that a file that is
    being written costs no more than itself."""
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
    """The warnings that no rule they are about allows, and the permissions that nothing needs."""
    allows = [(item.span, allow) for item in items if isinstance(item, ast.Rule) for allow in item.allows]
    needed: set[Span] = set()
    kept = []
    for diagnostic in found:
        places = [diagnostic.span, *(label.span for label in diagnostic.labels)]
        by = [a for span, a in allows if a.code == diagnostic.code and any(_within(p, span) for p in places)]
        needed.update(a.span for a in by)
        if not by:
            kept.append(diagnostic)
    asked = {item.span for item in fresh}
    for span, allow in allows:
        if span in asked and allow.span not in needed:
            message = f"there is no `{allow.code}` here to be allowed"
            fix = Fix(allow.span, "")
            kept.append(Diagnostic("unused", message, allow.span, (), "remove it", severity="warning", fix=fix))
    return kept


def _within(inner: Span, outer: Span) -> bool:
    start = (outer.line, outer.column) <= (inner.line, inner.column)
    return (
        inner.file == outer.file and start and (inner.end_line, inner.end_column) <= (outer.end_line, outer.end_column)
    )


# --- kept by content


@once
def _code() -> str:
    """What changes when this program changes: the sizes and times of the modules that take part."""
    here = Path(__file__).parent
    files = sorted((*here.glob("*.py"), *here.glob("types/*.py"), *here.glob("warnings/*.py")))
    return repr([(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def _key(operators: OperatorInfo | None, texts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr((_code(), operators.version() if operators is not None else None)).encode())
    for path, text in texts.items():
        digest.update(f"\0{path}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()


def _load(name: str) -> list[Diagnostic] | None:
    try:
        checksum, _, payload = private.read(cache.directory() / f"{name}.json").partition(b"\n")
        if hashlib.sha256(payload).hexdigest() != checksum.decode():
            return None
        return [_decode(entry) for entry in json.loads(payload)]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _store(name: str, found: Iterable[Diagnostic]) -> None:
    """Keep an entry. Where that is impossible there will be none."""
    from .. import transient

    payload = json.dumps([_encode(d) for d in found], ensure_ascii=False).encode()
    with contextlib.suppress(OSError):
        folder = cache.prepared()
        with transient.replacing(folder / f"{name}.json", private=True) as out:
            out.write(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)


def _encode(d: Diagnostic) -> list[Any]:
    labels = [[_place(label.span), label.text] for label in d.labels]
    fix = None if d.fix is None else [_place(d.fix.span), d.fix.replacement]
    return [d.code, d.message, _place(d.span), labels, d.hint, d.severity, fix]


def _decode(entry: list[Any]) -> Diagnostic:
    code, message, span, labels, hint, severity, fix = entry
    return Diagnostic(
        code,
        message,
        Span(*span),
        tuple(Label(Span(*at), text) for at, text in labels),
        hint,
        severity,
        None if fix is None else Fix(Span(*fix[0]), fix[1]),
    )


def _place(span: Span) -> list[str | int]:
    return [span.file, span.line, span.column, span.end_line, span.end_column]
