"""One-line explanations of words, for hover and completion: the tables of `keyword_help.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ..builtins import OPERATOR_WORDS, TEST_WORDS

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ITEMS: dict[str, str] = _TABLES["items"]
CLAUSES: dict[str, str] = _TABLES["clauses"]
CHOICES: dict[str, dict[str, str]] = _TABLES["choices"]
"""The words that may follow a clause keyword."""
CHOSEN = {word: doc for table in CHOICES.values() for word, doc in table.items()}
LIMITS: dict[str, str] = _TABLES["limits"]
WORDS: dict[str, str] = _TABLES["words"]
TYPE_WORDS: dict[str, str] = _TABLES["type_words"]
KEYWORDS = frozenset((*ITEMS, *CLAUSES, *TEST_WORDS, *OPERATOR_WORDS, *CHOICES["kind"]))
