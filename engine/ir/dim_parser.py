"""Parser of dims written as text."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .dim_expr import Dim, symbol
from .symbolic import broadcast_dims, ceildiv, maximum, minimum, required_equal, truncdiv

_TOKEN = re.compile(r"\s*(?:(?P<int>\d+)|(?P<name>[^\W\d]\w*)|'(?P<quoted>[^']*)'|(?P<op>//|[-+*%(),]))")
_LEVELS: tuple[dict[str, Callable[[Any, Any], Dim]], ...] = (
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "//": operator.floordiv, "%": operator.mod},
)
"""Operators by precedence, the loosest first."""
_CALLS: dict[str, Callable[..., Dim | None]] = {
    "max": maximum, "min": minimum, "bcast": broadcast_dims, "same": required_equal,
    "ceildiv": ceildiv, "truncdiv": truncdiv,
}  # fmt: skip


@lru_cache(maxsize=4096)
def parse(text: str) -> Dim:
    """Parse a dim: numbers, names (quoted if need be), `+ - * // %`, functions (`_CALLS`), parentheses.

    `parse(str(d)) == d`. Results are kept, as layers of a model repeat them. Raises `ValueError` for any other text."""
    try:
        parser = _Parser(text.rstrip())
        result = parser.binary()
        if parser.tokens:
            raise ValueError
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"not a dimension: {text!r}") from None
    return result


class _Parser:
    """Recursive-descent parser of one dim; `tokens` are those ahead, the next one last."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str | None, str]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError
            self.tokens.insert(0, (match.lastgroup, match[match.lastgroup or 0]))
            at = match.end()

    def accept(self, *ops: str) -> str:
        """Return the next token if it is one of these operators; else the empty string."""
        kind, text = self.tokens[-1] if self.tokens else (None, "")
        return self.tokens.pop()[1] if kind == "op" and text in ops else ""

    def expect(self, op: str) -> None:
        if not self.accept(op):
            raise ValueError

    def binary(self, level: int = 0) -> Dim:
        if level == len(_LEVELS):
            return -self.binary(level) if self.accept("-") else self.primary()
        result = self.binary(level + 1)
        while op := self.accept(*_LEVELS[level]):
            result = _LEVELS[level][op](result, self.binary(level + 1))
        return result

    def primary(self) -> Dim:
        if self.accept("("):
            result = self.binary()
            self.expect(")")
            return result
        kind, text = self.tokens.pop() if self.tokens else ("op", "")
        if kind == "op":
            raise ValueError
        if kind == "name" and text in _CALLS:
            return self.call(text)
        return int(text) if kind == "int" else symbol(text)

    def call(self, name: str) -> Dim:
        self.expect("(")
        args = [self.binary()]
        while self.accept(","):
            args.append(self.binary())
        self.expect(")")
        result = _CALLS[name](*args)
        if result is None:
            raise ValueError
        return result
