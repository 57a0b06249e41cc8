"""Results kept between runs, by content: nothing is asked twice that would be answered alike.

An entry is a line of JSON in the user's cache directory. Its key covers the text of what was asked and the sources of
whoever answered, so that a change to engine, checker or oracle asks anew; a run that was interrupted goes on where it
stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from .... import transient
from ....grammar.cache import directory as rules_directory

_ENGINE = Path(__file__).resolve().parent.parent.parent


def directory() -> Path:
    """Where results are kept, beside the parsed rules (see `REWRITE_CACHE_DIR`)."""
    return rules_directory().parent / "mutants"


@cache
def sources(checker: bool) -> str:
    """A digest of the sources that the answers depend on: the engine's, and the oracle's or the checker's."""
    found = [p for p in _ENGINE.rglob("*.py") if "soundness" not in p.parts]
    soundness = list((_ENGINE / "soundness").rglob("*.py"))
    found += [p for p in soundness if p.name == "valid.py" or ("mutants" in p.parts) is not checker]
    whole = hashlib.sha256()
    for path in sorted(found):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def key(*parts: str) -> str:
    """The name of an entry."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Store:
    """The entries of one rule: a file of JSON lines, read at once and written anew when there is more."""

    def __init__(self, name: str) -> None:
        self._path = directory() / f"{name}.jsonl"
        self._entries: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            for line in self._path.read_text().splitlines():
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
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with transient.replacing(self._path, private=True) as out:
                out.write(text.encode())
