"""Dims written as text, read back."""

from __future__ import annotations

import re

from .symbolic import FUNCTIONS, Dim, broadcast_dims, ceildiv, maximum, minimum, symbol

_TOKEN = re.compile(r"\s*(?:(?P<int>\d+)|(?P<name>[^\W\d]\w*)|'(?P<quoted>[^']*)'|(?P<op>//|[-+*%(),]))")


class DimParser:
    """A recursive-descent parser of one dim; see `symbolic.parse`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            match = _TOKEN.match(stripped, at)
            if match is None or match.lastgroup is None:
                raise self._error()
            self._tokens.append((match.lastgroup, match.group(match.lastgroup)))
            at = match.end()
        self._at = 0

    def _error(self) -> ValueError:
        return ValueError(f"not a dimension: {self._text!r}")

    def _accept(self, *ops: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "op" and self._tokens[self._at][1] in ops:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return None

    def _expect(self, op: str) -> None:
        if self._accept(op) is None:
            raise self._error()

    def whole(self) -> Dim:
        """The dim that all of the text says; `ValueError` if it says none."""
        result = self._sum()
        if self._at != len(self._tokens):
            raise self._error()
        return result

    def _sum(self) -> Dim:
        result = self._product()
        while op := self._accept("+", "-"):
            other = self._product()
            result = result + other if op == "+" else result - other
        return result

    def _product(self) -> Dim:
        result = self._unary()
        while op := self._accept("*", "//", "%"):
            other = self._unary()
            try:
                result = result * other if op == "*" else result // other if op == "//" else result % other
            except ZeroDivisionError:
                raise self._error() from None
        return result

    def _unary(self) -> Dim:
        return -self._unary() if self._accept("-") else self._primary()

    def _primary(self) -> Dim:
        if self._accept("("):
            result = self._sum()
            self._expect(")")
            return result
        if self._at >= len(self._tokens):
            raise self._error()
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "int":
            return int(text)
        if kind == "op":
            raise self._error()
        if kind == "name" and text in (*FUNCTIONS, "ceildiv"):
            return self._call(text)
        return symbol(text)

    def _call(self, name: str) -> Dim:
        self._expect("(")
        args = [self._sum()]
        while self._accept(","):
            args.append(self._sum())
        self._expect(")")
        if name == "ceildiv":
            if len(args) != 2 or args[1] == 0:
                raise self._error()
            return ceildiv(*args)
        result = {"max": maximum, "min": minimum, "bcast": broadcast_dims}[name](*args)
        if result is None:
            raise self._error()
        return result
