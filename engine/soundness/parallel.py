"""Checking many rules: in several processes, and not again what was checked before."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ... import private, transient
from ...grammar import ast
from ...grammar.library import Library
from ..library import recognitions
from ..processes import in_order, usable_cores
from .proof import prove_report
from .report import Budget, RuleReport
from .search import check_rule

_STORED = ("name", "numerics", "layer", "instances", "fired", "near_misses", "seconds", "problems", "notes", "proof",
           "proved_seconds")  # fmt: skip
MAX_ENTRIES = 4096
"""How many reports are kept; the oldest go first."""


def check(
    library: Library,
    rules: Iterable[ast.Rule] | None,
    *,
    budget: Budget,
    workers: int | None,
    prove: bool,
    cache: Path | None,
    progress: Callable[[RuleReport], None] | None,
) -> list[RuleReport]:
    """Checks rules of a library; see `soundness.check`."""
    wanted = list(rules) if rules is not None else [*library.rules, *recognitions(library)]
    operators = _operators_key(library)
    keys = [_key(rule, operators, budget, prove) for rule in wanted]
    found: list[RuleReport | None] = [None if cache is None else _load(cache, k, r) for k, r in zip(
        keys, wanted, strict=True)]  # fmt: skip
    for report in found:
        if report is not None and progress is not None:
            progress(report)
    missing = [i for i, report in enumerate(found) if report is None]
    start = functools.partial(_prepare, library, budget, prove)
    jobs = workers or usable_cores()
    reports = in_order(_check_one, [wanted[i] for i in missing], jobs=jobs, start=start if missing else None)
    for index, report in zip(missing, reports, strict=True):
        found[index] = report
        if cache is not None and report.ok:
            _store(cache, keys[index], report)
        if progress is not None:
            progress(report)
    if cache is not None and missing:
        _forget(cache)
    return [report for report in found if report is not None]


_STATE: dict[str, Any] = {}


def _prepare(library: Library, budget: Budget, prove: bool) -> None:
    """What a process needs to check rules."""
    _STATE.update(library=library, budget=budget, prove=prove)


def _check_one(rule: ast.Rule) -> RuleReport:
    try:
        report = check_rule(rule, _STATE["library"], _STATE["budget"])
    except Exception as error:  # a fault of the checker or the engine must not cost the reports of all other rules
        problem = f"the checker failed: {type(error).__name__}: {error}"
        claim = " ".join((rule.numerics, *rule.relaxations))
        return RuleReport(rule.name, rule.span.file, rule.span.line, claim, 1, 0, 1, 0, 0.0, problems=(problem,))
    if not _STATE["prove"] or not report.ok:
        return report
    return prove_report(report, rule, _STATE["library"])


# --- what was checked before ---


def _operators_key(library: Library) -> str:
    """A digest of what the library says of operators, and of the checker itself."""
    digest = hashlib.sha256(_checker().encode())
    for op in library.ops:
        digest.update(repr(dataclasses.replace(op, tests=())).encode())
    return digest.hexdigest()


@cache
def _checker() -> str:
    """A digest of the engine's source, of the solver and of the operators' schemas."""
    import onnx

    digest = hashlib.sha256(onnx.__version__.encode())
    with contextlib.suppress(ImportError):
        import z3

        digest.update(str(z3.get_version_string()).encode())
    root = Path(__file__).resolve().parent.parent
    for path in sorted([*root.rglob("*.py"), *(root.parent / "grammar").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(rule: ast.Rule, operators: str, budget: Budget, prove: bool) -> str:
    return hashlib.sha256(f"{operators}\0{rule!r}\0{budget!r}\0{prove}".encode()).hexdigest()


def _load(folder: Path, key: str, rule: ast.Rule) -> RuleReport | None:
    try:
        checksum, _, payload = private.read(folder / f"{key}.json").partition(b"\n")
        if hashlib.sha256(payload).hexdigest() != checksum.decode():
            return None
        stored: dict[str, Any] = json.loads(payload)
        values: dict[str, Any] = {name: tuple(v) if isinstance(v := stored[name], list) else v for name in _STORED}
        return RuleReport(file=rule.span.file, line=rule.span.line, **values)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _store(folder: Path, key: str, report: RuleReport) -> None:
    payload = json.dumps({name: getattr(report, name) for name in _STORED}).encode()
    with contextlib.suppress(OSError):
        private.prepare(folder)
        with transient.replacing(folder / f"{key}.json", private=True) as out:
            out.write(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)


def _forget(folder: Path) -> None:
    with contextlib.suppress(OSError):
        entries = sorted(folder.glob("*.json"), key=lambda e: (e.stat().st_mtime, e.name))
        for entry in entries[: max(len(entries) - MAX_ENTRIES, 0)]:
            entry.unlink(missing_ok=True)
