"""Markdown for the name or keyword under the cursor."""

from __future__ import annotations

from dataclasses import replace

from lsprotocol import types as lsp

from ..builtins import DTYPES, functions, operand_functions
from ..printing.printer import print_expr, print_rule
from ..syntax import ast
from ..syntax.scope import Sort
from ..syntax.tokens import Token
from . import keyword_help
from .document import Document
from .navigation import definition
from .occurrences import Occurrence, Symbol, at
from .workspace import Workspace

_WORDS = {
    **keyword_help.ITEMS,
    **keyword_help.CLAUSES,
    **keyword_help.CHOSEN,
    **keyword_help.TYPE_WORDS,
    **keyword_help.WORDS,
    **dict.fromkeys(DTYPES, "An element type."),
}


def hover(workspace: Workspace, document: Document, params: lsp.TextDocumentPositionParams) -> lsp.Hover | None:
    """Return what is known about the name or word at a position."""
    place: Occurrence | Token | None = at(document, params.position)
    text = _symbol(workspace, document, place) if isinstance(place, Occurrence) else ""
    if not text:
        place = document.token_at(document.offset(params.position))
        text = _word(place.text) if place is not None and place.kind == "name" else ""
    if place is None or not text:
        return None
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), document.range(place.start, place.end))


def _symbol(workspace: Workspace, document: Document, found: Occurrence) -> str:
    match found.symbol:
        case Symbol("variable"):
            return _variable(workspace, document, found)
        case Symbol("attribute", name, (head,)):
            return _attribute(workspace, str(head), name)
        case Symbol("op", name):
            return operator(workspace, document, name)
        case Symbol("def", name):
            return function(workspace, document, name)
        case Symbol("dtype", name):
            return _word(name)
        case Symbol("use", name):
            return f"The items of `{name}`."
    file, place = definition(workspace, document, found) or (document, None)
    item = file.item_at(place.start) if place is not None else None
    return rule(workspace, file, item) if item is not None else ""


def _variable(workspace: Workspace, document: Document, found: Occurrence) -> str:
    item = document.item_at(found.start)
    if item is None:
        return ""
    name = found.symbol.name
    sort = found.sort.value if found.sort is not None else "operand of this test"
    known = str(workspace.types(document, item).get(name, "")) if len(found.symbol.scope) == 1 else ""
    lines = [_code(f"{name}: {known}" if known else name), sort]
    for binding in item.let if isinstance(item, ast.Rule) else ():
        if binding.target.name == name:
            lines = [_code(f"let {name} = {print_expr(binding.value)}" + (f"   # {known}" if known else ""))]
    if found.sort is Sort.INDEX:
        lines.append("index of one member of the group; `*` instead means all members")
    return "\n\n".join(lines)


def _attribute(workspace: Workspace, head: str, name: str) -> str:
    schema = workspace.services.operators().schema(head)
    attribute = schema.attributes.get(name) if schema is not None else None
    if attribute is None:
        return ""
    default = f" = {attribute.default!r}" if attribute.default is not None else ""
    needed = "required" if attribute.required else "optional"
    return f"{_code(f'{name}: {attribute.kind}{default}')}\n\nattribute of `{head}`, {needed}"


def operator(workspace: Workspace, document: Document, name: str) -> str:
    """Describe an operator: its `op` items and its ONNX documentation."""
    declared = [op for op in workspace.visible(document, ast.Op) if op.name == name]
    parts = [_code(print_rule(replace(op, tests=()))) for op in declared]
    return "\n\n".join(filter(None, [*parts, workspace.services.operator_doc(name)]))


def function(workspace: Workspace, document: Document, name: str) -> str:
    """Describe a library function or a definition."""
    table = {**operand_functions(), **functions()}
    if name in table:
        return f"{_code(table[name].signature)}\n\n{table[name].doc}"
    found = next((d for d in workspace.visible(document, ast.Def) if d.name == name), None)
    return _code(print_rule(found)) if found is not None else ""


def rule(workspace: Workspace, document: Document, item: ast.Item) -> str:
    """Describe a rule or another named item: its doc, class, tests and the results of the last runs."""
    lines = [f"**{getattr(item, 'name', '')}**" + (f": {item.doc}" if item.doc else "")]
    if isinstance(item, ast.Rule):
        lines.append(f"class `{' '.join((item.numerics, *item.relaxations))}`, ruleset `{item.ruleset}`")
    if isinstance(item, ast.Rule | ast.Fuse | ast.Op):
        counts = [(verdict, sum(t.verdict == verdict for t in item.tests)) for verdict in keyword_help.CHOICES["test"]]
        tests = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
        lines.append(f"tests: {tests}" if tests else "no tests")
        lines.append(workspace.results.summary(document, item))
    if isinstance(item, ast.Ruleset | ast.Schedule):
        lines.append(_code(print_rule(item)))
    return "\n\n".join(filter(None, lines))


def _word(word: str) -> str:
    return f"`{word}`: {_WORDS[word]}" if word in _WORDS else ""


def _code(text: str) -> str:
    return f"```rules\n{text}\n```"
