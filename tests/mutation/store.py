"""Cached results of the mutation score, by content: nothing is computed twice that would give the same result.

The entries of a rule are one file of the on-disk store. A key covers the text of the question and the sources that
answer it, with everything that these import of the package. So a change to one of them computes again, a change to
another module does not, and an interrupted run continues where it stopped.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from rewrite.system.store import Store

_PACKAGE = Path(__file__).resolve().parents[2]


@cache
def sources(checker: bool) -> str:
    """Return a digest of the sources that answers depend on: those of the checker with the prover, or of the oracle."""
    soundness = _PACKAGE / "soundness"
    starts = (
        (soundness / "checking" / "check_rule.py", soundness / "prover" / "prover.py")
        if checker
        else (Path(__file__).with_name("search.py"),)
    )
    digest = hashlib.sha256()
    for path in sorted(imported(starts)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def imported(starts: Iterable[Path]) -> set[Path]:
    """Return modules of the package with all that they import, anywhere in their text; all modules of a package that
    is itself imported."""
    found: set[Path] = set()
    pending = list(starts)
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.ImportFrom):
                continue
            parts = (node.module or "").split(".")
            if node.level:
                base = path.parents[node.level - 1].joinpath(*parts)
            elif parts[0] == "rewrite":
                base = _PACKAGE.joinpath(*parts[1:])
            else:
                continue
            for place in (base, *(base / alias.name for alias in node.names)):
                if place.with_suffix(".py").is_file() and _PACKAGE in place.parents:
                    pending.append(place.with_suffix(".py"))
                elif place.is_dir() and _PACKAGE in place.parents and place.name not in ("soundness", "mutation"):
                    pending += place.rglob("*.py")
    return found


def key(*parts: str) -> str:
    """Return the name of an entry."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class RuleResults:
    """Cached results of one rule, read at once and written together."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._namespace = Store().namespace("mutants")
        self._entries: dict[str, Any] = json.loads(self._namespace.read(name) or b"{}")

    def get(self, entry: str) -> Any:
        """Return the value of an entry, or None."""
        return self._entries.get(entry)

    def put(self, entry: str, value: Any) -> None:
        """Set an entry, until `write` in memory only."""
        self._entries[entry] = value

    def write(self, wanted: Iterable[str]) -> None:
        """Write the entries that are still wanted, if the store can be written to."""
        left = {entry: self._entries[entry] for entry in wanted if entry in self._entries}
        self._namespace.save(self._name, json.dumps(left, ensure_ascii=False).encode())
