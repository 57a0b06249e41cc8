"""Results kept between runs, by content: nothing is asked twice that would be answered alike.

An entry is a line of JSON in the user's cache directory. Its key covers the text of what was asked and the sources of
whoever answered, with all that they import of the engine, so that a change to one of these asks anew and a change to
another module does not; a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from .... import private, transient
from ....grammar.cache import directory as rules_directory

_ENGINE = Path(__file__).resolve().parent.parent.parent


def directory() -> Path:
    """Where results are kept, beside the parsed rules (see `REWRITE_CACHE_DIR`)."""
    return rules_directory().parent / "mutants"


@cache
def sources(checker: bool) -> str:
    """A digest of the sources that the answers depend on: the checker's with the prover, or the oracle's."""
    soundness = _ENGINE / "soundness"
    starts = (
        (soundness / "search.py", soundness / "prove" / "prover.py")
        if checker
        else (soundness / "mutants" / "search.py",)
    )
    whole = hashlib.sha256()
    for path in sorted(imported(starts)):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def imported(starts: Iterable[Path]) -> set[Path]:
    """Modules of the engine with all others that they import, wherever in their text; of a package that is imported
    itself, all modules."""
    found: set[Path] = set()
    pending = list(starts)
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for place in (base, *(base / alias.name for alias in node.names)):
                if place.with_suffix(".py").is_file() and _ENGINE in place.parents:
                    pending.append(place.with_suffix(".py"))
                elif place.is_dir() and _ENGINE in place.parents and place.name not in ("soundness", "mutants"):
                    pending += place.rglob("*.py")
    return found


def key(*parts: str) -> str:
    """The name of an entry."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Store:
    """The entries of one rule: a file of JSON lines, read at once and written anew when there is more."""

    def __init__(self, name: str) -> None:
        self._path = directory() / f"{name}.jsonl"
        self._entries: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            for line in private.read(self._path).decode().splitlines():
                entry, value = json.loads(line)
                self._entries[str(entry)] = value

    def get(self, entry: str) -> Any:
        """What is kept under a name, or None."""
        return self._entries.get(entry)

    def put(self, entry: str, value: Any) -> None:
        """Keeps a value until `write`."""
        self._entries[entry] = value

    def write(self, wanted: Iterable[str]) -> None:
        """Writes the entries still wanted; where that is impossible (a full disk) there will be none."""
        kept = [(entry, self._entries[entry]) for entry in wanted if entry in self._entries]
        text = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in kept)
        with contextlib.suppress(OSError):
            private.prepare(self._path.parent)
            with transient.replacing(self._path, private=True) as out:
                out.write(text.encode())
