"""What may stand at the cursor. Read from the tokens before it, since the text is hardly ever well formed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lsprotocol import types as lsp

from .. import ast
from ..builtins import DTYPES, functions, operand_functions
from ..tokens import CLOSERS, ITEM_WORDS, OPENERS, Token
from . import words
from .document import Document
from .hover import function, operator
from .workspace import Workspace

Kind = lsp.CompletionItemKind


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cursor stands: in which item and clause, and in which call's parentheses.

    `call` is the token of the innermost operator or function, `argument` the number of commas since its bracket;
    `previous` the token before the word at the cursor, `clause` the last word that opened a clause."""

    item: str
    clause: str
    call: Token | None
    argument: int
    depth: int
    previous: Token | None
    is_label_value: bool
    has_arrow: bool


def place(document: Document, offset: int) -> Place | None:
    """The place of an offset; None within a comment or string."""
    chunk = document.chunk_at(offset)
    before = document.tokens_in(chunk.start, offset)
    if before and before[-1].kind in ("comment", "string", "doc") and offset <= before[-1].end:
        is_closed = before[-1].kind != "comment" and offset == before[-1].end
        if not is_closed:
            return None
    code = [t for t in before if t.kind != "comment"]
    if code and code[-1].kind == "name" and code[-1].end >= offset:
        code.pop()  # the word that is being written
    stack: list[tuple[Token, Token | None, int]] = []
    clause, has_arrow = "", False
    for i, token in enumerate(code):
        if token.kind == "sign" and token.text in OPENERS:
            head = code[i - 1] if i and code[i - 1].kind == "name" and token.text == "(" else None
            stack.append((token, head, 0))
        elif token.kind == "sign" and token.text in CLOSERS and stack:
            stack.pop()
        elif token.text == "," and stack:
            opened, head, commas = stack.pop()
            stack.append((opened, head, commas + 1))
        elif not stack and token.kind == "name" and token.text in words.CLAUSES:
            clause = token.text
        elif not stack and token.text in ("=>", "<=>"):
            has_arrow = True
    head, commas = next(((h, n) for _, h, n in reversed(stack) if h is not None), (None, 0))
    previous = code[-1] if code else None
    labelled = previous is not None and previous.text == ":"
    return Place(chunk.word, clause, head, commas, len(stack), previous, labelled, has_arrow)


def complete(workspace: Workspace, document: Document, position: lsp.Position) -> lsp.CompletionList:
    """All that may stand at a place."""
    offset = document.offset(position)
    where = place(document, offset)
    if where is None:
        return lsp.CompletionList(is_incomplete=False, items=[])
    items = list({(i.label, i.kind): i for i in _choices(workspace, document, offset, where)}.values())
    return lsp.CompletionList(is_incomplete=False, items=items)


def _choices(workspace: Workspace, document: Document, offset: int, where: Place) -> Iterator[lsp.CompletionItem]:
    previous = where.previous.text if where.previous is not None else ""
    if not where.item or (where.depth == 0 and _begins_line(document, offset, column=0)):
        yield from _words(words.ITEMS, Kind.Keyword)
        if not where.item:
            return
    if previous in words.CHOICES and where.depth == 0:
        yield from _words(words.CHOICES[previous], Kind.EnumMember)
        return
    if where.clause == "class" and where.depth == 0 and previous == "exact":
        yield from _words({"signed_zero": words.CHOICES["class"]["signed_zero"]}, Kind.EnumMember)
    if previous == "joins" or (where.item == "schedule" and previous in ("=", ";", "(")):
        yield from _named(workspace, document, ast.Ruleset, Kind.Module)
        for name in ("simplify", "explore", "lower"):
            yield lsp.CompletionItem(name, kind=Kind.Module)
        return
    if where.item == "ruleset":
        yield from _words(words.LIMITS, Kind.Keyword)
    if where.depth == 0 and where.is_label_value and where.clause in ("given", "test"):
        yield from _types()
        return
    if where.depth == 0 and where.item in words.CLAUSES_OF and (where.has_arrow or where.item != "rule"):
        clauses = {word: words.CLAUSES.get(word, "") for word in words.CLAUSES_OF[where.item]}
        yield from _words(clauses, Kind.Keyword)
    if where.call is not None and not where.is_label_value:
        yield from _attributes(workspace, document, where.call.text)
    yield from _variables(document, offset, where)
    yield from _functions(workspace, document, in_test=where.clause == "test")
    yield from _operators(workspace, document)
    yield from _words(words.WORDS, Kind.Constant)
    if where.clause == "where" or where.clause == "let":
        yield from (lsp.CompletionItem(dtype, kind=Kind.TypeParameter) for dtype in DTYPES)


def _begins_line(document: Document, offset: int, column: int) -> bool:
    start = document.lines.starts[document.lines.line(offset) - 1]
    written = document.text[start:offset]
    return written.replace("_", "a").isalnum() or len(written) <= column


def _words(table: dict[str, str], kind: Kind) -> Iterator[lsp.CompletionItem]:
    for word, doc in table.items():
        yield lsp.CompletionItem(word, kind=kind, documentation=_markdown(doc))


def _types() -> Iterator[lsp.CompletionItem]:
    yield from _words(words.TYPE_WORDS, Kind.Keyword)
    for dtype in DTYPES:
        yield lsp.CompletionItem(dtype, kind=Kind.TypeParameter, sort_text=f"{DTYPES.index(dtype):02}")


def _named(workspace: Workspace, document: Document, what: type[ast.Item], kind: Kind) -> Iterator[lsp.CompletionItem]:
    for other in (document, *workspace.context(document)):
        for item in other.items:
            if isinstance(item, what):
                name = getattr(item, "name", "")
                yield lsp.CompletionItem(name, kind=kind, detail=other.path.name, documentation=_markdown(item.doc))


def _attributes(workspace: Workspace, document: Document, head: str) -> Iterator[lsp.CompletionItem]:
    """The attributes of the operator in whose parentheses the cursor stands."""
    schema = workspace.services.operators().schema(head)
    if schema is not None:
        for name, attribute in schema.attributes.items():
            default = f" = {attribute.default!r}" if attribute.default is not None else ""
            detail = f"{attribute.kind}{default}" + (", required" if attribute.required else "")
            yield _attribute(name, detail, head)
        return
    for other in (document, *workspace.context(document)):
        for item in other.items:
            if isinstance(item, ast.Op) and item.name == head and item.params is not None:
                for param in item.params:
                    if param.attribute is not None:
                        yield _attribute(param.name, "attribute", head)


def _attribute(name: str, detail: str, head: str) -> lsp.CompletionItem:
    return lsp.CompletionItem(
        name, kind=Kind.Property, detail=f"{head}: {detail}", insert_text=f"{name}: ", sort_text=f"0{name}"
    )


def _variables(document: Document, offset: int, where: Place) -> Iterator[lsp.CompletionItem]:
    """The names of this item that are neither called nor labels nor words."""
    chunk = document.chunk_at(offset)
    inside = [t for t in document.tokens_in(chunk.start, chunk.end) if t.kind != "comment"]
    seen: set[str] = set()
    depth = 0
    for i, token in enumerate(inside):
        depth += (token.text in OPENERS) - (token.text in CLOSERS) if token.kind == "sign" else 0
        if token.kind != "name" or token.start <= offset <= token.end or i < 2:
            continue
        after = inside[i + 1].text if i + 1 < len(inside) else ""
        is_label = after == ":" and depth > 0 and inside[i - 1].text in ("(", ",")
        fixed = token.text in words.KEYWORDS or token.text in DTYPES or token.text in words.WORDS
        if after == "(" or is_label or fixed or "." in token.text or token.text in words.TYPE_WORDS:
            continue
        if not any(token.text in table for table in words.CHOICES.values()):
            seen.add(token.text)
    if where.item in ITEM_WORDS:
        for name in sorted(seen):
            yield lsp.CompletionItem(name, kind=Kind.Variable, sort_text=f"1{name}")


def _functions(workspace: Workspace, document: Document, *, in_test: bool) -> Iterator[lsp.CompletionItem]:
    for name, known in (operand_functions() if in_test else functions()).items():
        yield lsp.CompletionItem(
            name, kind=Kind.Function, detail=known.signature, documentation=known.doc, sort_text=f"2{name}"
        )
    yield from _named(workspace, document, ast.Def, Kind.Function)


def _operators(workspace: Workspace, document: Document) -> Iterator[lsp.CompletionItem]:
    for name in workspace.services.operators().names():
        yield lsp.CompletionItem(name, kind=Kind.Class, detail="ONNX operator", sort_text=f"3{name}")
    for item in _named(workspace, document, ast.Op, Kind.Class):
        item.sort_text = f"3{item.label}"
        yield item


def resolve(workspace: Workspace, documents: Iterable[Document], item: lsp.CompletionItem) -> lsp.CompletionItem:
    """The doc of a choice, which is made only for the one that is looked at."""
    document = next(iter(documents), None)
    if document is not None and item.documentation is None:
        text = ""
        if item.kind == Kind.Class:
            text = operator(workspace, document, item.label)
        elif item.kind == Kind.Function:
            text = function(workspace, document, item.label)
        item.documentation = _markdown(text)
    return item


def _markdown(text: str) -> lsp.MarkupContent | None:
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text) if text else None
