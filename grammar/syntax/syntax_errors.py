"""Messages for syntax errors, from the terminals that the parser could have accepted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ..builtins import CLAUSE_WORDS, ITEMS, KINDS, OP_FLAGS
from ..diagnostics import Diagnostic, Fix, Label, did_you_mean
from .ast import Span
from .build import span_of

LATER = ("fold", "phase")
_JOINING = ("and", "or", "not", "is", "in", "for", "if", "else", "broadcasts", "equals", "fires", "gives", "refuses")
RESERVED = frozenset((*ITEMS, *LATER, *CLAUSE_WORDS, *KINDS, *_JOINING))

_CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_SIGNS = {
    "RPAR": "`)`", "RSQB": "`]`", "RBRACE": "`}`", "LPAR": "`(`", "LSQB": "`[`", "COMMA": "`,`", "COLON": "`:`",
    "EQUAL": "`=`", "ARROW": "`=>` or `<=>`", "FOR": "`for`", "ELSE": "`else`", "IN": "`in`",
    "FIRES": "`fires` or `refuses`",
    "STRING": "a string in double quotes", "ELEMENTWISE": "a kind (elementwise, injective, reduction, complex, opaque)",
}  # fmt: skip
_CHARACTERS = {
    "'": "write strings in double quotes",
    "→": "write `=>`", "⇒": "write `=>`", "↔": "write `<=>`", "⇔": "write `<=>`", "×": "write `*`", "·": "write `*`",
    "÷": "write `/`", "−": "write `-`", "≤": "write `<=`", "≥": "write `>=`", "≠": "write `!=`",
    "&": "join conditions with `and` or a comma", "!": "write `not`, or `!=`", "^": "write `**` for powers",
    ".": "a number needs a digit before the point; a range or rest is written `..`",
    "_": "names begin with a letter; `_` alone matches any dim of a shape",
}  # fmt: skip


def explain(error: UnexpectedInput, tokens: Iterable[Token], path: str, *, is_head: bool) -> Diagnostic:
    """Return a diagnostic for the parser's `error`.

    `tokens` are those of the text up to the first lexical error; `is_head` says that no item has begun."""
    if isinstance(error, UnexpectedCharacters):
        return _character(error, list(tokens), path)
    assert isinstance(error, UnexpectedToken)
    end = error.token
    before = itertools.takewhile(lambda t: end.type == "$END" or (t.line, t.column) != (end.line, end.column), tokens)
    return _token(error, list(before), path, is_head)


def _character(error: UnexpectedCharacters, before: list[Token], path: str) -> Diagnostic:
    at = Span(path, error.line, error.column, error.line, error.column + 1)
    if error.char == '"':
        last = before[-1] if before else None
        if last is not None and last == '""' and (last.end_line, last.end_column) == (error.line, error.column):
            return Diagnostic("syntax", "unterminated docstring", span_of(last, path).to(at))
        return Diagnostic("syntax", "unterminated string", at, hint="a string must end on the same line")
    hint = _CHARACTERS.get(error.char, "")
    written = re.fullmatch(r"write `([^`]+)`", hint)
    is_visible = error.char.isprintable() and not error.char.isspace()
    shown = f"`{error.char}`" if is_visible else f"U+{ord(error.char):04X}"
    fix = Fix(at, written[1]) if written else None
    return Diagnostic("syntax", f"unexpected character {shown}", at, hint=hint, fix=fix)


def _token(error: UnexpectedToken, before: list[Token], path: str, is_head: bool) -> Diagnostic:
    token, word = error.token, str(error.token)
    expected = set(error.accepts or error.expected)
    if token.type == "$END":
        last = span_of(before[-1], path)
        at = Span(path, last.end_line, last.end_column, last.end_line, last.end_column + 1)
        problem = "unexpected end of the item"
    else:
        at = span_of(token, path)
        line = word.partition("\n")[0]
        problem = f"unexpected `{line if line == word and len(word) <= 30 else line[:27] + '…'}`"

    opened = _open_bracket(before)
    if opened is not None and (token.type == "$END" or word in (*ITEMS, *CLAUSE_WORDS, "=>", "<=>")):
        return Diagnostic("syntax", f"`{opened}` is not closed", span_of(opened, path), (Label(at, problem),))
    if opened is not None and token.type in _CLOSERS.values() and _CLOSERS[opened.type] != token.type:
        label = Label(span_of(opened, path), "opened here")
        return Diagnostic("syntax", f"`{opened}` is closed by `{word}`", at, (label,))
    if word in LATER and opened is None:
        return Diagnostic("syntax", f"`{word}` is reserved for a later version of the language", at)
    if "RULE" in expected and "NUMBER" not in expected:  # between clauses or items
        return _between(token, at, is_head and not before, problem)
    if word == "=" and "CMP" in expected:
        return Diagnostic("syntax", "`=` binds a name; write `==` to compare", at, fix=Fix(at, "=="))
    if "ARROW" in expected:
        return Diagnostic("syntax", f"{problem}; expected `=>` and the right side", at)
    misused = token if "NAME" in expected else before[-1] if expected == {"COLON"} and before else None
    if misused is not None and str(misused) in RESERVED:
        hint = f"it may name an attribute (`{misused}: value`), but not a variable"
        return Diagnostic("syntax", f"`{misused}` is a reserved word", span_of(misused, path), hint=hint)
    return Diagnostic("syntax", f"{problem}; expected {_in_words(expected)}", at)


def _between(token: Token, at: Span, at_start: bool, problem: str) -> Diagnostic:
    """Explain an error where an item, or a clause of the previous item, could begin."""
    word = str(token)
    choices = ITEMS if at_start else (*CLAUSE_WORDS, *ITEMS)
    if word == ";":
        return Diagnostic("syntax", "unexpected `;`", at, hint="items are not separated; remove it")
    if word == "=":
        return Diagnostic("syntax", "unexpected `=`", at, hint="write `==` to compare")
    what = "an item" if at_start else "a clause or the next item"
    hint = did_you_mean(word, choices) if token.type == "NAME" else ""
    listed = ", ".join(f"`{c}`" for c in choices if c not in ("kind", *OP_FLAGS))
    return Diagnostic("syntax", f"{problem}; expected {what}", at, hint=hint or f"which begins with {listed}")


def _in_words(expected: set[str]) -> str:
    words: list[str] = []
    if "NUMBER" in expected:
        words += ["an input", "an attribute", "`..`"] if "RULE" in expected else ["an expression"]
        left = expected & {"RPAR", "RSQB", "STAR"} if "STAR" not in expected else expected & {"RPAR", "RSQB"}
    elif "NAME" in expected:
        words.append("a name")
        left = expected & {"RPAR", "RSQB", "LSQB"}
    else:
        left = expected
    words += [sign for terminal, sign in _SIGNS.items() if terminal in left and sign not in words]
    if "CMP" in expected or "PLUS" in expected:
        words.append("an operator")
    if not words:
        words = [f"`{name.lower()}`" for name in sorted(expected)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _open_bracket(before: list[Token]) -> Token | None:
    stack: list[Token] = []
    for token in before:
        if token.type in _CLOSERS:
            stack.append(token)
        elif stack and token.type == _CLOSERS[stack[-1].type]:
            stack.pop()
    return stack[-1] if stack else None
