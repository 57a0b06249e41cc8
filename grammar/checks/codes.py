"""Meaning of each diagnostic code in one or two sentences, for the documentation and for editors."""

from __future__ import annotations

from pathlib import Path

_LINES = Path(__file__).with_name("codes.txt").read_text(encoding="utf-8").splitlines()
CODES: dict[str, str] = {code: meaning for code, _, meaning in (line.partition(": ") for line in _LINES)}
