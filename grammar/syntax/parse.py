"""Parser of rule files: text to syntax tree.

Lark runs the LALR(1) automaton of `rules.lark` and calls `build.Builder` at every reduction, without a parse tree in
between. If a file has an error, its items are parsed one by one, so that each broken item is reported and none hides
the next.
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

from ... import errors
from ...system.store import Store, content_key
from ..diagnostics import Diagnostic, RuleErrors
from . import tree_json
from .ast import Item, RuleFile, Span

if TYPE_CHECKING:  # imported on a cache miss only: Lark takes 20 ms
    from lark import Lark, Token

    from .build import Builder

GRAMMAR = Path(__file__).with_name("rules.lark")

# A reserved word that opens an item, first on its line and not an attribute's name; strings and comments are skipped.
_BOUNDARY = re.compile(
    r'"""(?:.|\n)*?(?:"""|\Z)|"[^"\n]*"|\#[^\n]*|^[ \t]*(?P<item>rule|fuse|op|def|use|fold|ruleset|schedule)\b(?!\s*:)',
    re.MULTILINE,
)

MAX_DEPTH = 150
"""Maximum nesting depth of an item. A long sum counts one level per term."""

_local = threading.local()


def parse_file(path: str | Path) -> RuleFile:
    """Read and parse a rule file. Raises `UserError` if it cannot be read, `RuleErrors` with all errors in its text."""
    return parse_text(read(path), str(path))


def read(path: str | Path) -> str:
    """Return the text of a rule file. Raises `UserError` if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise errors.UserError(f"not UTF-8 text: byte {e.start} is {e.object[e.start]:#04x}", where=str(path)) from e
    except OSError as e:
        raise errors.UserError(f"cannot read the rule file: {e.strerror or e}", where=str(path)) from e


def parse_text(text: str, path: str = "<rules>") -> RuleFile:
    """Parse the text of a rule file; `path` names it in spans and messages. Raises `RuleErrors` with all errors."""
    return parse_leniently(text, path).checked(text)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The well-formed items of a file, and diagnostics about the rest.

    `is_closed` says whether all items that others may refer to (`op`, `def`, `use`) could be parsed."""

    file: RuleFile
    diagnostics: tuple[Diagnostic, ...]
    is_closed: bool = True

    def checked(self, text: str) -> RuleFile:
        """Return the file; raise `RuleErrors`, with excerpts of its `text`, if it is not well formed."""
        if self.diagnostics:
            raise RuleErrors(self.diagnostics, {self.file.path: text})
        return self.file


def parse_leniently(text: str, path: str) -> Parsed:
    """Parse a file, leaving out broken items. Files without errors are cached."""
    cache, name = Store().namespace("rules"), content_key(tree_json.layout(), _grammar(), text)
    cached = tree_json.loads(cache.read(name), path)
    if cached is not None:
        return Parsed(cached, ())
    parsed = parse_fresh(text, path)
    if not parsed.diagnostics:
        cache.save(name, tree_json.dumps(parsed.file, path))
    return parsed


def parse_fresh(text: str, path: str) -> Parsed:
    """Parse a file, leaving out broken items, without the cache: for intermediate texts."""
    from lark.exceptions import UnexpectedInput

    parser, builder = _machinery()
    builder.begin(path)
    try:
        return _shallow(cast(RuleFile, parser.parse(text)), text, builder.diagnostics)
    except UnexpectedInput:
        pass
    # Blank lines replace the text before an item, so that positions are those of the file.
    parts = [
        parse_item("\n" * text.count("\n", 0, start) + text[start:end], path, word)
        for word, start, end in split_items(text)
    ]
    file = RuleFile(
        span=Span(path, 1, 1, 1, 1),
        path=path,
        doc=next((part.file.doc for part in parts if part.file.doc), ""),
        items=tuple(item for part in parts for item in part.file.items),
    )
    return Parsed(file, tuple(d for part in parts for d in part.diagnostics), all(part.is_closed for part in parts))


def split_items(text: str) -> list[tuple[str, int, int]]:
    """Split a text, well formed or not, into items: the keyword, start and end offset of each.

    The first has no keyword: it is the text before all items."""
    boundaries = [m for m in _BOUNDARY.finditer(text) if m["item"]]
    words = ["", *(m["item"] for m in boundaries)]
    starts = [0, *(m.start() for m in boundaries), len(text)]
    return [(word, *bounds) for word, bounds in zip(words, itertools.pairwise(starts), strict=True)]


def parse_item(text: str, path: str, word: str) -> Parsed:
    """Parse a part found by `split_items`, as if it stood at the beginning of the file."""
    from lark.exceptions import UnexpectedInput

    from .syntax_errors import explain

    parser, builder = _machinery()
    builder.begin(path)
    try:
        return _shallow(cast(RuleFile, parser.parse(text)), text, builder.diagnostics)
    except UnexpectedInput as error:
        complaint = explain(error, _tokens(parser, text), path, is_head=not word)
    file = RuleFile(span=Span(path, 1, 1, 1, 1), path=path)
    return Parsed(file, (complaint, *builder.diagnostics), word in ("rule", "fuse"))


def _shallow(file: RuleFile, text: str, found: list[Diagnostic]) -> Parsed:
    """Leave out items that are nested too deep for the recursion of later stages."""
    shallow: list[Item] = []
    lines = [0, *(m.end() for m in re.finditer("\n", text))]
    for item in file.items:
        at = item.span
        length = lines[at.end_line - 1] + at.end_column - lines[at.line - 1] - at.column
        # Shorter texts cannot be too deep.
        deepest = next(itertools.islice(item.levels(), MAX_DEPTH, None), None) if length > MAX_DEPTH else None
        if deepest is None:
            shallow.append(item)
        else:
            message = f"nested more than {MAX_DEPTH} levels deep"
            hint = "name parts of it with `let` or `def`"
            found.append(Diagnostic("too-deep", message, deepest[0].span, hint=hint))
    return Parsed(replace(file, items=tuple(shallow)), tuple(found))


def _tokens(parser: Lark, text: str) -> list[Token]:
    """Return the tokens of a text up to the first lexical error."""
    from lark.exceptions import UnexpectedInput

    found: list[Token] = []
    with contextlib.suppress(UnexpectedInput):
        for token in parser.lex(text):
            found.append(token)  # not `extend`, which would lose the tokens before the error
    return found


@functools.cache
def _grammar() -> str:
    return GRAMMAR.read_text(encoding="utf-8")


def _machinery() -> tuple[Lark, Builder]:
    """Return the parser and its builder, created once per thread (the builder has state)."""
    from lark import Lark

    from .build import Builder

    if not hasattr(_local, "parser"):
        builder = _local.builder = Builder()
        _local.parser = Lark(
            _grammar(),
            parser="lalr",
            lexer="basic",
            keep_all_tokens=True,
            transformer=builder.productions,
            lexer_callbacks={"COMMENT": builder.comment},
        )
        _local.parser.lexer = _local.parser.parser.lexer  # otherwise each `lex` builds one, which takes 0.05 s
    return _local.parser, _local.builder
