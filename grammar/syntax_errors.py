"""Friendly words for what the parser did not expect.

Lark says which terminals it could have taken. Here they become what a person would say (“an expression”, “`=>`”, “a
clause”), and common slips get a message of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from .ast import Span
from .diagnostics import Diagnostic, Fix, Label, did_you_mean

ITEMS = ("rule", "op", "fuse", "def", "use", "ruleset", "schedule")
CLAUSES = (
    *("given", "where", "let", "class", "direction", "joins", "order", "allow", "test"),
    *("kind", "commutative", "impure"),
)
LATER = ("fold", "phase")
RESERVED = frozenset((*ITEMS, *LATER, *CLAUSES, "and", "or", "not", "is", "in", "for", "if", "else")) | {
    "equals",
    "fires",
    "refuses",
    "gives",
    "complex",
    "elementwise",
    "injective",
    "opaque",
    "reduction",
}

_CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_SIGNS = {
    "RPAR": "`)`", "RSQB": "`]`", "RBRACE": "`}`", "LPAR": "`(`", "LSQB": "`[`", "COMMA": "`,`", "COLON": "`:`",
    "EQUAL": "`=`", "ARROW": "`=>` or `<=>`", "FOR": "`for`", "ELSE": "`else`", "IN": "`in`",
    "FIRES": "`fires` or `refuses`",
    "STRING": "a string in double quotes", "ELEMENTWISE": "a kind (elementwise, injective, reduction, complex, opaque)",
}  # fmt: skip
_CHARACTERS = {
    "'": "strings are written in double quotes",
    "→": "write `=>`", "⇒": "write `=>`", "↔": "write `<=>`", "⇔": "write `<=>`", "×": "write `*`", "·": "write `*`",
    "÷": "write `/`", "−": "write `-`", "≤": "write `<=`", "≥": "write `>=`", "≠": "write `!=`",
    "&": "conditions are joined by `and` or a comma", "!": "write `not`, or `!=`", "^": "powers are written `**`",
    ".": "a number needs a digit before the point, and `..` is two points",
    "_": "names begin with a letter; `_` alone is any dim of a shape",
}  # fmt: skip


def explain(error: UnexpectedInput, tokens: Iterable[Token], path: str, *, is_head: bool) -> Diagnostic:
    """A diagnostic for the parser's `error`.

    `tokens` are those of the text, as far as it can be split into tokens; `is_head` says that no item has begun."""
    if isinstance(error, UnexpectedCharacters):
        return _character(error, list(tokens), path)
    assert isinstance(error, UnexpectedToken)
    return _token(error, _before(error.token, tokens), path, is_head)


def _character(error: UnexpectedCharacters, before: list[Token], path: str) -> Diagnostic:
    at = Span(path, error.line, error.column, error.line, error.column + 1)
    if error.char == '"':
        last = before[-1] if before else None
        if last is not None and last == '""' and (last.end_line, last.end_column) == (error.line, error.column):
            return Diagnostic("syntax", "this docstring is not closed", _span(last, path).to(at))
        return Diagnostic("syntax", "this string is not closed", at, hint="a string ends on its line")
    hint = _CHARACTERS.get(error.char, "")
    written = re.fullmatch(r"write `([^`]+)`", hint)
    fix = None if written is None else Fix(at, written[1])
    return Diagnostic("syntax", f"{_shown(error.char)} has no meaning here", at, hint=hint, fix=fix)


def _before(token: Token, tokens: Iterable[Token]) -> list[Token]:
    """The tokens before the unexpected one."""
    if token.type == "$END":
        return list(tokens)
    before: list[Token] = []
    for other in tokens:
        if (other.line, other.column) == (token.line, token.column):
            break
        before.append(other)
    return before


def _token(error: UnexpectedToken, before: list[Token], path: str, is_head: bool) -> Diagnostic:
    token, word = error.token, str(error.token)
    expected = set(error.accepts or error.expected)
    if token.type == "$END":
        last = before[-1]
        line, column = last.end_line or 1, last.end_column or 1
        at = Span(path, line, column, line, column + 1)
        said = "the item ends too early"
    else:
        at = _span(token, path)
        said = f"unexpected `{_shorten(word)}`"

    opened = _open_bracket(before)
    labels: tuple[Label, ...] = ()
    if opened is not None and (token.type == "$END" or word in (*ITEMS, *CLAUSES, "=>", "<=>")):
        return Diagnostic("syntax", f"`{opened}` is not closed", _span(opened, path), (Label(at, said),))
    if opened is not None and token.type in _CLOSERS.values() and _CLOSERS[opened.type] != token.type:
        labels = (Label(_span(opened, path), "opened here"),)
        return Diagnostic("syntax", f"`{opened}` is closed by `{word}`", at, labels)
    if word in LATER and opened is None:
        return Diagnostic("syntax", f"`{word}` is reserved for a later version of the language", at)
    if "RULE" in expected and "NUMBER" not in expected:  # between clauses or items
        return _between(token, at, is_head and not before, said)
    if word == "=" and "CMP" in expected:
        return Diagnostic("syntax", "`=` binds a name; two things are compared by `==`", at, fix=Fix(at, "=="))
    if "ARROW" in expected:
        return Diagnostic("syntax", f"{said}; expected `=>` and the right side", at, labels)
    misused = token if "NAME" in expected else before[-1] if expected == {"COLON"} and before else None
    if misused is not None and str(misused) in RESERVED:
        hint = "it may name an attribute (`class: value`)".replace("class", str(misused)) + ", but no variable"
        return Diagnostic("syntax", f"`{misused}` is a reserved word", _span(misused, path), labels, hint)
    return Diagnostic("syntax", f"{said}; expected {_words(expected)}", at, labels)


def _between(token: Token, at: Span, at_start: bool, said: str) -> Diagnostic:
    """The parser could have begun an item, or a clause of the item before."""
    word = str(token)
    choices = ITEMS if at_start else (*CLAUSES, *ITEMS)
    if word == ";":
        return Diagnostic("syntax", "unexpected `;`", at, hint="items need no semicolon")
    if word == "=":
        return Diagnostic("syntax", "unexpected `=`", at, hint="two things are compared by `==`")
    what = "an item" if at_start else "a clause or the next item"
    hint = did_you_mean(word, choices) if token.type == "NAME" else ""
    listed = ", ".join(f"`{c}`" for c in choices if c not in ("kind", "commutative", "impure"))
    return Diagnostic("syntax", f"{said}; expected {what}", at, hint=hint or f"that begins with {listed}")


def _words(expected: set[str]) -> str:
    """What is expected, as a person says it."""
    said: list[str] = []
    if "NUMBER" in expected:
        said += ["an input", "an attribute", "`..`"] if "RULE" in expected else ["an expression"]
        left = expected & {"RPAR", "RSQB", "STAR"} if "STAR" not in expected else expected & {"RPAR", "RSQB"}
    elif "NAME" in expected:
        said.append("a name")
        left = expected & {"RPAR", "RSQB", "LSQB"}
    else:
        left = expected
    said += [words for terminal, words in _SIGNS.items() if terminal in left and words not in said]
    if "CMP" in expected or "PLUS" in expected:
        said.append("an operator")
    if not said:
        said = [f"`{name.lower()}`" for name in sorted(expected)]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"


def _open_bracket(before: list[Token]) -> Token | None:
    """The innermost bracket that is open."""
    stack: list[Token] = []
    for token in before:
        if token.type in _CLOSERS:
            stack.append(token)
        elif stack and token.type == _CLOSERS[stack[-1].type]:
            stack.pop()
    return stack[-1] if stack else None


def _span(token: Token, path: str) -> Span:
    line, column = token.line or 1, token.column or 1
    return Span(path, line, column, token.end_line or line, token.end_column or column + 1)


def _shorten(word: str) -> str:
    return word if len(word) <= 30 and "\n" not in word else word.split("\n")[0][:27] + "…"


def _shown(char: str) -> str:
    """A character as messages show it: by its code if it cannot be seen."""
    return f"`{char}`" if char.isprintable() and not char.isspace() else f"the character U+{ord(char):04X}"
