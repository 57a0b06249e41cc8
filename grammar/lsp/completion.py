"""Completion and signature help at the cursor, from the tokens before it: the text is rarely well formed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types as lsp

from ..builtins import CLAUSES, DTYPES, ITEMS, functions, operand_functions
from ..syntax import ast
from ..syntax.tokens import CLOSERS, OPENERS, Token
from . import keyword_help
from .document import Document
from .hover import function, operator
from .workspace import Workspace

Kind = lsp.CompletionItemKind
OPTIONS = lsp.CompletionOptions(trigger_characters=[".", "(", ",", ":", " "], resolve_provider=True)
SIGNATURE_OPTIONS = lsp.SignatureHelpOptions(trigger_characters=["(", ","])


@dataclass(frozen=True, slots=True)
class Place:
    """Syntactic context of the cursor: the item, the clause and the innermost call.

    `call` is the head token of that call, `argument` the number of commas since its bracket, `previous` the token
    before the word at the cursor, `clause` the last clause keyword."""

    item: str
    clause: str
    call: Token | None
    argument: int
    depth: int
    previous: Token | None
    has_arrow: bool

    @property
    def is_label_value(self) -> bool:
        """Whether a colon stands before the word at the cursor."""
        return self.previous is not None and self.previous.text == ":"


def _place(document: Document, offset: int) -> Place | None:
    """Return the context of an offset; None inside a comment or string."""
    chunk = document.chunk_at(offset)
    before = document.tokens_in(chunk.start, offset)
    if before and before[-1].kind in ("comment", "string", "doc") and offset <= before[-1].end:
        if before[-1].kind == "comment" or offset < before[-1].end:
            return None
    code = [t for t in before if t.kind != "comment"]
    if code and code[-1].kind == "name" and code[-1].end >= offset:
        code.pop()  # the word being typed
    stack: list[tuple[Token | None, int]] = []  # of each open bracket: the head of its call, and the commas so far
    clause, has_arrow = "", False
    for last, token in zip([None, *code], code, strict=False):
        if token.kind == "sign" and token.text in OPENERS:
            is_call = last is not None and last.kind == "name" and token.text == "("
            stack.append((last if is_call else None, 0))
        elif token.kind == "sign" and token.text in CLOSERS and stack:
            stack.pop()
        elif token.text == "," and stack:
            stack[-1] = (stack[-1][0], stack[-1][1] + 1)
        elif not stack and token.kind == "name" and token.text in keyword_help.CLAUSES:
            clause = token.text
        elif not stack and token.text in ("=>", "<=>"):
            has_arrow = True
    head, commas = next(((h, n) for h, n in reversed(stack) if h is not None), (None, 0))
    return Place(chunk.word, clause, head, commas, len(stack), code[-1] if code else None, has_arrow)


def complete(workspace: Workspace, document: Document, params: lsp.TextDocumentPositionParams) -> lsp.CompletionList:
    """Return everything that may stand at a position."""
    offset = document.offset(params.position)
    where = _place(document, offset)
    found = _choices(workspace, document, offset, where) if where is not None else ()
    return lsp.CompletionList(is_incomplete=False, items=list({(i.label, i.kind): i for i in found}.values()))


def _choices(workspace: Workspace, document: Document, offset: int, where: Place) -> Iterator[lsp.CompletionItem]:
    previous = where.previous.text if where.previous is not None else ""
    if not where.item or (where.depth == 0 and _begins_line(document, offset)):
        yield from _words(keyword_help.ITEMS, Kind.Keyword)
        if not where.item:
            return
    if previous in keyword_help.CHOICES and where.depth == 0:
        yield from _words(keyword_help.CHOICES[previous], Kind.EnumMember)
        return
    if where.clause == "class" and where.depth == 0 and previous == "exact":
        yield from _words({"signed_zero": keyword_help.CHOICES["class"]["signed_zero"]}, Kind.EnumMember)
    if previous == "joins" or (where.item == "schedule" and previous in ("=", ";", "(")):
        yield from _named(workspace, document, ast.Ruleset, Kind.Module)
        for name in ("simplify", "explore", "lower"):
            yield lsp.CompletionItem(name, kind=Kind.Module)
        return
    if where.item == "ruleset":
        yield from _words(keyword_help.LIMITS, Kind.Keyword)
    if where.depth == 0 and where.is_label_value and where.clause in ("given", "test"):
        yield from _types()
        return
    if where.depth == 0 and where.item in CLAUSES and (where.has_arrow or where.item != "rule"):
        clauses = {word: keyword_help.CLAUSES.get(word, "") for word in CLAUSES[where.item]}
        yield from _words(clauses, Kind.Keyword)
    if where.call is not None and not where.is_label_value:
        yield from _attributes(workspace, document, where.call.text)
    yield from _variables(document, offset, where)
    yield from _functions(workspace, document, in_test=where.clause == "test")
    yield from _operators(workspace, document)
    yield from _words(keyword_help.WORDS, Kind.Constant)
    if where.clause == "where" or where.clause == "let":
        yield from (lsp.CompletionItem(dtype, kind=Kind.TypeParameter) for dtype in DTYPES)


def _begins_line(document: Document, offset: int) -> bool:
    written = document.text[document.lines.starts[document.lines.line(offset) - 1] : offset]
    return not written or written.replace("_", "a").isalnum()


def _words(table: dict[str, str], kind: Kind) -> Iterator[lsp.CompletionItem]:
    for word, doc in table.items():
        yield lsp.CompletionItem(word, kind=kind, documentation=_markdown(doc))


def _types() -> Iterator[lsp.CompletionItem]:
    yield from _words(keyword_help.TYPE_WORDS, Kind.Keyword)
    for i, dtype in enumerate(DTYPES):
        yield lsp.CompletionItem(dtype, kind=Kind.TypeParameter, sort_text=f"{i:02}")


def _named(workspace: Workspace, document: Document, what: type[ast.Item], kind: Kind) -> Iterator[lsp.CompletionItem]:
    for item in workspace.visible(document, what):
        file = Path(item.span.file).name
        yield lsp.CompletionItem(getattr(item, "name", ""), kind=kind, detail=file, documentation=_markdown(item.doc))


def _attributes(workspace: Workspace, document: Document, head: str) -> Iterator[lsp.CompletionItem]:
    schema = workspace.services.operators().schema(head)
    if schema is not None:
        for name, attribute in schema.attributes.items():
            default = f" = {attribute.default!r}" if attribute.default is not None else ""
            detail = f"{attribute.kind}{default}" + (", required" if attribute.required else "")
            yield _attribute(name, detail, head)
        return
    for op in workspace.visible(document, ast.Op):
        for param in op.params or () if op.name == head else ():
            if param.attribute is not None:
                yield _attribute(param.name, "attribute", head)


def _attribute(name: str, detail: str, head: str) -> lsp.CompletionItem:
    return lsp.CompletionItem(
        name, kind=Kind.Property, detail=f"{head}: {detail}", insert_text=f"{name}: ", sort_text=f"0{name}"
    )


def _variables(document: Document, offset: int, where: Place) -> Iterator[lsp.CompletionItem]:
    """Yield the item's names that are not called, not labels and not reserved."""
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
        if after != "(" and not is_label and "." not in token.text:
            seen.add(token.text)
    seen -= {*keyword_help.KEYWORDS, *keyword_help.WORDS, *keyword_help.TYPE_WORDS, *keyword_help.CHOSEN, *DTYPES}
    if where.item in ITEMS:
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
    """Add documentation to a completion item: generated on demand, for the selected one only."""
    document = next(iter(documents), None)
    describe = operator if item.kind == Kind.Class else function if item.kind == Kind.Function else None
    if document is not None and item.documentation is None and describe is not None:
        item.documentation = _markdown(describe(workspace, document, item.label))
    return item


def signature_help(
    workspace: Workspace, document: Document, params: lsp.TextDocumentPositionParams
) -> lsp.SignatureHelp | None:
    """Return the signature at a position and its active parameter."""
    where = _place(document, document.offset(params.position))
    if where is None or where.call is None or (found := _parameters(workspace, document, where.call.text)) is None:
        return None
    parameters, result, doc, repeats = found
    active = min(where.argument, len(parameters) - 1) if repeats else where.argument
    signature = lsp.SignatureInformation(
        label=f"{where.call.text}({', '.join(parameters)}){result}",
        documentation=_markdown(doc),
        parameters=[lsp.ParameterInformation(label=p) for p in parameters],
    )
    return lsp.SignatureHelp(signatures=[signature], active_signature=0, active_parameter=max(active, 0))


def _parameters(workspace: Workspace, document: Document, head: str) -> tuple[list[str], str, str, bool] | None:
    """Return the parameters as text, the result, the doc, and whether the last parameter may repeat."""
    known = {**operand_functions(), **functions()}.get(head)
    if known is not None:
        shown = [("..." * p.variadic) + f"{p.name}{'?' * p.optional}: {p.sort}" for p in known.parameters]
        return shown, f" -> {known.result}", known.doc, any(p.variadic for p in known.parameters)
    schema = workspace.services.operators().schema(head)
    if schema is not None:
        inputs = [f"{p.name}{'[*]' * p.variadic}{' = none' * p.optional}" for p in schema.inputs]
        attributes = [f"{name}: {attribute.kind}" for name, attribute in schema.attributes.items()]
        return inputs + attributes, "", "", any(p.variadic for p in schema.inputs) or bool(attributes)
    for item in workspace.visible(document, ast.Item):
        if isinstance(item, ast.Def) and item.name == head:
            return list(item.params), "", item.doc, False
        if isinstance(item, ast.Op) and item.name == head and item.params is not None:
            shown = [p.name + ":" * (p.attribute is not None) + "[*]" * p.variadic for p in item.params]
            return shown, "", item.doc, any(p.variadic for p in item.params)
    return None


def _markdown(text: str) -> lsp.MarkupContent | None:
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text) if text else None
