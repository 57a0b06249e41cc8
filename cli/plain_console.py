"""The console and tables where rich is not installed: plain text with the same interface, as far as commands use it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

_MARKUP = re.compile(r"\[(?:/|dim|bold red|bold yellow)\]")


class Console:
    """A stream of text without colors."""

    is_terminal = False  # without live progress

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr

    def print(self, text: Any, *, end: str = "\n", markup: bool = True, **_: Any) -> None:
        """Print a text, without its markup, or a table. Styles are ignored."""
        stream = sys.stderr if self._stderr else sys.stdout
        stream.write((_MARKUP.sub("", text) if markup and isinstance(text, str) else str(text)) + end)
        stream.flush()


class Table:
    """A table with aligned columns; those in `numbers` are right-aligned."""

    def __init__(self, columns: Sequence[str], numbers: Sequence[int]) -> None:
        self._numbers = frozenset(numbers)
        self._rows = [tuple(columns)] if any(columns) else []
        self._count = len(columns)

    def add_row(self, *cells: str, style: str | None = None) -> None:
        """Add a row; missing cells are empty."""
        plain = [_MARKUP.sub("", cell) for cell in cells]
        self._rows.append((*plain, *[""] * (self._count - len(plain))))

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        return "\n".join("  ".join(map(self._cell, range(self._count), row, widths)).rstrip() for row in self._rows)

    def _cell(self, column: int, text: str, width: int) -> str:
        return text.rjust(width) if column in self._numbers else text.ljust(width)
