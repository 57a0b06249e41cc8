"""Pygments lexer of rule files, for sites, notebooks and terminals: the entry point `rules` of `pygments.lexers`.

Text is split by `syntax.tokens`, and words are colored by the tables of `builtins`, so no list is repeated here.
Pygments is no dependency of its own: only Pygments imports this module (rich, which prints tables, brings it along).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pygments import token as kinds
from pygments.lexer import Lexer

from ..builtins import (
    CLASSES,
    CLAUSE_WORDS,
    DIRECTIONS,
    DTYPE_CLASSES,
    DTYPES,
    ITEMS,
    KINDS,
    OPERATOR_WORDS,
    RELAXATIONS,
    TEST_WORDS,
    WORDS,
    functions,
    operand_functions,
)
from ..syntax.tokens import CLOSERS, OPENERS, Token, tokens

_PLAIN = {
    "string": kinds.String.Double,
    "comment": kinds.Comment.Single,
    "doc": kinds.String.Doc,
    "number": kinds.Number,
}
_SIGNS = frozenset(("=>", "<=>", "->", "==", "!=", "<=", ">=", "...", "..", "**", *"<>+-*/%@|=_"))
_WORDS = {
    **dict.fromkeys(ITEMS, kinds.Keyword.Declaration),
    **dict.fromkeys((*CLAUSE_WORDS, *TEST_WORDS), kinds.Keyword),
    **dict.fromkeys(KINDS, kinds.Keyword.Reserved),
    **dict.fromkeys(OPERATOR_WORDS, kinds.Operator.Word),
    **dict.fromkeys(WORDS, kinds.Keyword.Constant),
    **dict.fromkeys((*DTYPES, *DTYPE_CLASSES, "const"), kinds.Keyword.Type),
}
_CHOSEN = {"class": (*CLASSES, *RELAXATIONS), "exact": RELAXATIONS, "direction": DIRECTIONS}
"""Words with a meaning only behind another word."""


class RulesLexer(Lexer):
    """Lexer of rule files; what no rule file may contain becomes an `Error` token."""

    name = "Rewrite rules"
    aliases = ("rules", "rewrite-rules")
    filenames = ("*.rules",)
    mimetypes = ("text/x-rewrite-rules",)

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, kinds._TokenType, str]]:
        """Yield offset, kind and text of each token and of the white space between them."""
        found = list(tokens(text))
        code = [token for token in found if token.kind not in ("comment", "doc")]
        colors = dict(zip((token.start for token in code), _colors(code, text), strict=True))
        at = 0
        for token in found:
            if token.start > at:
                yield at, kinds.Whitespace, text[at : token.start]
            yield token.start, colors.get(token.start) or _PLAIN[token.kind], token.text
            at = token.end
        if at < len(text):
            yield at, kinds.Whitespace, text[at:]


def _colors(code: list[Token], text: str) -> Iterator[kinds._TokenType]:
    """Yield the color of each token, which may depend on its neighbors and on the brackets around it."""
    depth = 0
    for i, token in enumerate(code):
        before = code[i - 1].text if i else ""
        after = code[i + 1].text if i + 1 < len(code) else ""
        if token.kind == "sign":
            depth = max(depth + (token.text in OPENERS) - (token.text in CLOSERS), 0)
            yield _sign(token.text)
        elif token.kind == "name":
            if token.text in ITEMS and not text[text.rfind("\n", 0, token.start) + 1 : token.start].strip():
                depth = 0 if after != ":" else depth  # an item that was never closed ends here
            yield _name(token.text, before, after, inside=depth > 0)
        else:
            yield _PLAIN[token.kind]


def _sign(text: str) -> kinds._TokenType:
    if text in _SIGNS:
        return kinds.Operator
    return kinds.Punctuation if text in OPENERS or text in CLOSERS or text in ",;:" else kinds.Error


def _name(word: str, before: str, after: str, *, inside: bool) -> kinds._TokenType:
    is_label = inside and after == ":" and before in ("(", ",")  # even a reserved word may name an attribute
    if before in ITEMS and not inside:
        return kinds.Name.Class if before == "op" else kinds.Name.Function
    if not is_label and word in _CHOSEN.get(before, ()):
        return kinds.Keyword.Constant
    if not is_label and word in _WORDS and not (after == "(" and word in (*WORDS, "const")):
        return _WORDS[word]
    if is_label:
        return kinds.Name.Attribute
    if after == "(":
        if re.fullmatch(r"(\w+\.)*[A-Z]\w*", word):
            return kinds.Name.Class
        return kinds.Name.Builtin if word in functions() or word in operand_functions() else kinds.Name.Function
    return kinds.Name
