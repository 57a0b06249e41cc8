"""From the text of a rule file to its syntax tree.

Lark runs the LALR(1) automaton of `rules.lark` and calls `build.Builder` at every reduction, so no parse tree is made
in between. A file is parsed in one go; only when that fails is it cut at the starts of its items, which are parsed one
by one, so that each broken item is reported and none hides the next.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .. import errors
from . import cache
from .ast import Item, RuleFile, Span, Syntax
from .diagnostics import Diagnostic, RuleErrors

if TYPE_CHECKING:  # the parser is needed only for what is not in the cache
    from lark import Lark, Token

    from .build import Builder

GRAMMAR = Path(__file__).with_name("rules.lark")

# A reserved word that opens an item, first on its line and not an attribute's name; strings and comments are skipped.
_BOUNDARY = re.compile(
    r'"""(?:.|\n)*?(?:"""|\Z)|"[^"\n]*"|\#[^\n]*|^[ \t]*(?P<item>rule|fuse|op|def|use|fold|ruleset|schedule)\b(?!\s*:)',
    re.MULTILINE,
)

MAX_DEPTH = 150
"""How deep an item may be nested. Long sums count one level for each term."""

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
    parsed = parse_leniently(text, path)
    if parsed.diagnostics:
        raise RuleErrors(parsed.diagnostics, {path: text})
    return parsed.file


@dataclass(frozen=True, slots=True)
class Parsed:
    """What could be parsed of a file, and what is wrong with the rest.

    `is_closed` says whether all that other items may refer to (`op`, `def`, `use`) is there."""

    file: RuleFile
    diagnostics: tuple[Diagnostic, ...]
    is_closed: bool = True


def parse_leniently(text: str, path: str) -> Parsed:
    """Parse a file as far as it goes: an item that is wrong is left out and the next one is read.

    A file that was parsed before without errors comes from the cache."""
    name = cache.key(text, _grammar())
    known = cache.load(name, path)
    if known is not None:
        return Parsed(known, ())
    parsed = _parse(text, path)
    if not parsed.diagnostics:
        cache.store(name, parsed.file)
    return parsed


def prepare(path: str | Path) -> None:
    """Parses a rule file that is not in the cache, which another process may want from there. One that cannot be read
    or is wrong is left to who asks for it."""
    with contextlib.suppress(errors.UserError):
        text = read(path)
        if not (cache.directory() / f"{cache.key(text, _grammar())}.json").exists():
            parse_leniently(text, str(path))


def parse_fresh(text: str, path: str) -> Parsed:
    """Parse a file as far as it goes, leaving the cache alone: for texts that are on their way to another one."""
    return _parse(text, path)


def _parse(text: str, path: str) -> Parsed:
    from lark.exceptions import UnexpectedInput

    parser, builder = _machinery()
    builder.begin(path)
    try:
        file = cast(RuleFile, parser.parse(text))
    except UnexpectedInput:
        return _parse_items(parser, builder, text, path)
    return Parsed(*_too_deep(file, text, builder.diagnostics))


def _parse_items(parser: Lark, builder: Builder, text: str, path: str) -> Parsed:
    """Parse a file item by item."""
    found: list[Diagnostic] = []
    items: list[Item] = []
    is_closed = True
    doc = ""
    for word, start, end in split_items(text):
        # Blank lines stand for what is before the item, so that positions are those of the file.
        part = _parse_item("\n" * text.count("\n", 0, start) + text[start:end], path, word, parser, builder)
        found += part.diagnostics
        items += part.file.items
        doc = doc or part.file.doc
        is_closed &= part.is_closed
    file = RuleFile(span=Span(path, 1, 1, 1, 1), path=path, doc=doc, items=tuple(items))
    return Parsed(*_too_deep(file, text, found), is_closed)


def split_items(text: str) -> list[tuple[str, int, int]]:
    """The items of a text, well formed or not: the word that opens each, and from where to where it goes.

    The first has no word: it is what stands before all items."""
    boundaries = [m for m in _BOUNDARY.finditer(text) if m["item"]]
    words = ["", *(m["item"] for m in boundaries)]
    starts = [0, *(m.start() for m in boundaries), len(text)]
    return [(word, *bounds) for word, bounds in zip(words, itertools.pairwise(starts), strict=True)]


def parse_item(text: str, path: str, word: str) -> Parsed:
    """Parse what `split_items` has found, as if it stood at the beginning of the file."""
    parser, builder = _machinery()
    parsed = _parse_item(text, path, word, parser, builder)
    return Parsed(*_too_deep(parsed.file, text, list(parsed.diagnostics)), parsed.is_closed)


def _parse_item(text: str, path: str, word: str, parser: Lark, builder: Builder) -> Parsed:
    from lark.exceptions import UnexpectedInput

    from .syntax_errors import explain

    builder.begin(path)
    try:
        file = cast(RuleFile, parser.parse(text))
    except UnexpectedInput as error:
        file = RuleFile(span=Span(path, 1, 1, 1, 1), path=path)
        complaint = explain(error, _tokens(parser, text), path, is_head=not word)
        return Parsed(file, (complaint, *builder.diagnostics), word in ("rule", "fuse"))
    return Parsed(file, tuple(builder.diagnostics))


def _too_deep(file: RuleFile, text: str, found: list[Diagnostic]) -> tuple[RuleFile, tuple[Diagnostic, ...]]:
    """Leave out items nested so deep that later stages, which recurse over the tree, could not take them."""
    kept: list[Item] = []
    found = list(found)
    lines = [0, *(m.end() for m in re.finditer("\n", text))]
    for item in file.items:
        at = item.span
        level: list[Syntax] = []
        if lines[at.end_line - 1] + at.end_column - lines[at.line - 1] - at.column > MAX_DEPTH:  # else it cannot be
            level = [item]
            for _ in range(MAX_DEPTH):
                level = [child for node in level for child in node.children()]
        if level:
            message = f"nested more than {MAX_DEPTH} levels deep"
            found.append(Diagnostic("too-deep", message, level[0].span, hint="name parts of it with `let` or `def`"))
        else:
            kept.append(item)
    return replace(file, items=tuple(kept)), tuple(found)


def _tokens(parser: Lark, text: str) -> list[Token]:
    """The tokens of a text up to what is none."""
    from lark.exceptions import UnexpectedInput

    found: list[Token] = []
    with contextlib.suppress(UnexpectedInput):
        for token in parser.lex(text):
            found.append(token)  # not `extend`: what came before the error is kept
    return found


@functools.cache
def _grammar() -> str:
    return GRAMMAR.read_text(encoding="utf-8")


def _machinery() -> tuple[Lark, Builder]:
    """The parser and its builder, made once per thread (the builder has state)."""
    from lark import Lark

    from .build import Builder

    if not hasattr(_local, "parser"):
        builder = Builder()
        _local.builder = builder
        _local.parser = Lark(
            _grammar(),
            parser="lalr",
            lexer="basic",
            keep_all_tokens=True,
            transformer=builder,
            lexer_callbacks={"COMMENT": builder.comment},
        )
        _local.parser.lexer = _local.parser.parser.lexer  # else each `lex` would build one anew, which takes 0.05 s
    return _local.parser, _local.builder
