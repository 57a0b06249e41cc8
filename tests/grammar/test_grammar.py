"""The grammar file: no LALR conflicts, and the same reserved words everywhere."""

from __future__ import annotations

import logging
import re

import lark
import pytest
from lark import Lark
from rewrite.grammar.syntax.parse import GRAMMAR
from rewrite.grammar.syntax.syntax_errors import RESERVED


def conflicts(grammar: str) -> list[str]:
    """Return Lark's messages about LALR conflicts, which it otherwise resolves silently."""
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, level = Keep(), lark.logger.level
    lark.logger.addHandler(handler)
    lark.logger.setLevel(logging.DEBUG)
    try:
        Lark(grammar, parser="lalr", lexer="basic", debug=True)
    finally:
        lark.logger.removeHandler(handler)
        lark.logger.setLevel(level)
    return [m for m in messages if "onflict" in m]


def test_automaton_has_no_conflicts() -> None:
    dangling_else = 'start: "i" start | "i" start "e" start | "x"'
    assert conflicts(dangling_else)
    assert conflicts(GRAMMAR.read_text()) == []


def test_terminals_do_not_collide() -> None:
    pytest.importorskip("interegular")
    Lark(GRAMMAR.read_text(), parser="lalr", lexer="basic", strict=True)


def test_reserved_words_are_those_of_the_grammar() -> None:
    text = re.sub(r"//.*", "", GRAMMAR.read_text())
    words = set(re.findall(r'"([a-z]+)"', text))
    assert words - {"const", "shape"} == RESERVED
