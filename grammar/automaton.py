"""Lark's tables, run by a loop that knows no errors: a well-formed file is read in half the time.

Lark makes the lexer's expression and the LALR(1) tables, and says what is wrong with a text. Its own loop keeps what
that takes at every token, and looks at each level of precedence that an expression passes through. This one gives up
at the first thing that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import intern
from typing import Any

from lark import Lark, Token
from lark.parse_tree_builder import ExpandSingleChild
from lark.parsers.lalr_analysis import Shift

_END = "$END"
_Reduction = tuple[int, str, Callable[[list[Any]], Any] | None]
"""How many values are taken, the symbol that stands for them then, and what makes one value of them: None where the
value stays as it is, as an expression does on its way from one level of precedence to the next."""


class Automaton:
    """The parser of a `Lark` with an LALR(1) parser, its basic lexer, and a transformer that leaves tokens alone."""

    def __init__(self, lark: Lark) -> None:
        frontend: Any = lark.parser
        lexer, machine = frontend.lexer, frontend.parser.parser
        start = lark.options.start[0]
        self._start: int = machine.parse_table.start_states[start]
        self._end: int = machine.parse_table.end_states[start]
        # by state and symbol, the state to go to after it; or, if a rule ends before it, the reduction
        self._actions: dict[int, dict[str, int | _Reduction]] = {
            state: {
                _plain(symbol): there if action is Shift else self._reduction(there, machine.callbacks)
                for symbol, (action, there) in row.items()
            }
            for state, row in machine.parse_table.states.items()
        }
        self._matchers = [expression.match for expression in lexer.scanner._mres]
        self._ignored = lexer.ignore_types
        self._with_newlines = lexer.newline_types
        self._callbacks: dict[str, Callable[[Token], Token]] = lexer.callback
        self._words: dict[str, dict[str, str]] = {kind: {} for kind in lexer.callback if kind not in self._ignored}

    @staticmethod
    def _reduction(rule: Any, callbacks: Any) -> _Reduction:
        size, make = len(rule.expansion), callbacks[rule]
        stays = size == 1 and isinstance(make, ExpandSingleChild)
        return size, _plain(rule.origin.name), None if stays else make

    def parse(self, text: str) -> Any:
        """What the transformer makes of a text; None if it is not well formed."""
        actions = self._actions
        states: list[Any] = [self._start]
        values: list[Any] = []
        for kind, token in self._tokens(text):
            row = actions[states[-1]]
            while True:
                action = row.get(kind)
                if action.__class__ is int:
                    states.append(action)
                    values.append(token)
                    break
                if action is None:
                    return None
                size, symbol, make = action  # type: ignore[misc]
                if make is None:
                    states[-1] = state = actions[states[-2]][symbol]
                else:
                    at = len(values) - size
                    made = make(values[at:])
                    del values[at:], states[at + 1 :]
                    state = actions[states[-1]][symbol]
                    values.append(made)
                    states.append(state)
                    if state == self._end:
                        return made
                row = actions[state]  # type: ignore[index]
        return None

    def _tokens(self, text: str) -> Iterator[tuple[str, Token]]:
        """The tokens of a text with their kinds, up to what is none; then its end."""
        ignored, words, callbacks = self._ignored, self._words, self._callbacks
        new, with_newlines, matchers = str.__new__, self._with_newlines, self._matchers
        at, line, began = 0, 1, 0
        token: Any = None
        while at < len(text):
            for matcher in matchers:
                if match := matcher(text, at):
                    break
            else:
                return
            kind: Any = match.lastgroup
            value, end = match.group(), match.end()
            newlines = value.count("\n") if kind in with_newlines else 0
            if kind not in ignored or kind in callbacks:
                token = new(Token, value)
                token.type, token.value, token.start_pos, token.end_pos = kind, value, at, end
                token.line, token.column = line, at - began + 1
            if newlines:
                line += newlines
                began = at + value.rindex("\n") + 1
            if kind in ignored:
                if kind in callbacks:
                    token.end_line, token.end_column = line, end - began + 1
                    callbacks[kind](token)
            else:
                token.end_line, token.end_column = line, end - began + 1
                if kind in words:
                    known = words[kind]
                    kind = known.get(value)
                    if kind is None:
                        kind = known[value] = _plain(callbacks[token.type](token).type)
                    token.type = kind
                yield kind, token
            at = end
        yield _END, token


def _plain(name: str) -> str:
    """A symbol's name: Lark has tokens of its own grammar there, which take long to compare."""
    return intern(str(name))
