"""From the text of a rule file to its syntax tree.

Lark runs the LALR(1) automaton of `rules.lark` and calls `build.Builder` at every reduction, so no parse tree is made
in between. A file is parsed in one go; only when that fails is it cut at the starts of its items, which are parsed one
by one, so that each broken item is reported and none hides the next.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from .. import errors
from .ast import RuleFile
from .build import Builder
from .diagnostics import Diagnostic, RuleErrors
from .syntax_errors import explain

GRAMMAR = Path(__file__).with_name("rules.lark")

# A reserved word that opens an item, first on its line and not an attribute's name; strings and comments are skipped.
_BOUNDARY = re.compile(
    r'"""(?:.|\n)*?(?:"""|\Z)|"[^"\n]*"|\#[^\n]*|^[ \t]*(?P<item>rule|fuse|op|def|use|ruleset|schedule)\b(?!\s*:)',
    re.MULTILINE,
)

_local = threading.local()


def parse_file(path: str | Path) -> RuleFile:
    """Read and parse a rule file.

    Raises:
        UserError: the file cannot be read or is not UTF-8 text.
        RuleErrors: its text is not well formed; holds every error of the file.
    """
    return parse_text(read(path), str(path))


def read(path: str | Path) -> str:
    """The text of a rule file; `UserError` when there is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise errors.UserError(f"not UTF-8 text: byte {e.start} is {e.object[e.start]:#04x}", where=str(path)) from e
    except OSError as e:
        raise errors.UserError(f"cannot read the rule file: {e.strerror or e}", where=str(path)) from e


def parse_text(text: str, path: str = "<rules>") -> RuleFile:
    """Parse the text of a rule file; `path` names it in spans and messages. Raises `RuleErrors` with all its errors."""
    parser, builder = _machinery()
    builder.begin(path)
    try:
        file: Any = parser.parse(text)
    except UnexpectedInput:
        found = _parse_items(parser, builder, text, path)
        raise RuleErrors(found, {path: text}) from None
    if builder.diagnostics:
        raise RuleErrors(builder.diagnostics, {path: text})
    return cast(RuleFile, file)


def _parse_items(parser: Lark, builder: Builder, text: str, path: str) -> list[Diagnostic]:
    """The errors of a file that does not parse, found item by item."""
    starts = [0, *(m.start() for m in _BOUNDARY.finditer(text) if m["item"]), len(text)]
    found: list[Diagnostic] = []
    for start, end in itertools.pairwise(starts):
        # Blank lines stand for what is before the item, so that positions are those of the file.
        part = "\n" * text.count("\n", 0, start) + text[start:end]
        builder.begin(path)
        try:
            parser.parse(part)
        except UnexpectedInput as error:
            found.append(explain(error, _tokens(parser, part), path, is_head=start == 0))
        found += builder.diagnostics
    return found


def _tokens(parser: Lark, text: str) -> list[Token]:
    """The tokens of a text up to what is none."""
    found: list[Token] = []
    with contextlib.suppress(UnexpectedInput):
        for token in parser.lex(text):
            found.append(token)  # not `extend`: what came before the error is kept
    return found


def _machinery() -> tuple[Lark, Builder]:
    """The parser and its builder, made once per thread (the builder has state)."""
    if not hasattr(_local, "parser"):
        builder = Builder()
        _local.builder = builder
        _local.parser = Lark(
            GRAMMAR.read_text(encoding="utf-8"),
            parser="lalr",
            lexer="basic",
            keep_all_tokens=True,
            transformer=builder,
            lexer_callbacks={"COMMENT": builder.comment},
        )
    return _local.parser, _local.builder
