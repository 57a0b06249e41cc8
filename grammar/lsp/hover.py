"""What stands under the cursor, told in Markdown."""

from __future__ import annotations

from lsprotocol import types as lsp

from .. import ast
from ..builtins import DTYPES, functions, operand_functions
from ..printer import print_expr, print_rule
from ..scope import Sort
from . import words
from .document import Document
from .navigation import definition
from .occurrences import Occurrence, at
from .workspace import Workspace


def hover(workspace: Workspace, document: Document, position: lsp.Position) -> lsp.Hover | None:
    """What is known of the name or word at a place."""
    offset = document.offset(position)
    found = at(document, offset)
    if found is not None:
        text = _symbol(workspace, document, found)
        if text:
            return _hover(document, text, found.start, found.end)
    token = document.token_at(offset)
    if token is None or token.kind != "name":
        return None
    text = _word(token.text)
    return _hover(document, text, token.start, token.end) if text else None


def _hover(document: Document, text: str, start: int, end: int) -> lsp.Hover:
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), document.range(start, end))


def _symbol(workspace: Workspace, document: Document, found: Occurrence) -> str:
    symbol = found.symbol
    match symbol.kind:
        case "variable":
            return _variable(workspace, document, found)
        case "attribute":
            return _attribute(workspace, str(symbol.scope[0]), symbol.name)
        case "op":
            return operator(workspace, document, symbol.name)
        case "def":
            return function(workspace, document, symbol.name)
        case "dtype":
            return _word(symbol.name)
        case "use":
            return f"The items of `{symbol.name}`."
    place = definition(workspace, document, found)
    item = place[0].item_at(place[1].start) if place is not None else None
    return rule(workspace, place[0], item) if place is not None and item is not None else ""


def _variable(workspace: Workspace, document: Document, found: Occurrence) -> str:
    item = document.item_at(found.start)
    if item is None:
        return ""
    name = found.symbol.name
    sort = found.sort.value if found.sort is not None else "operand of this test"
    type_ = ""
    if len(found.symbol.scope) == 1:
        known = workspace.types(document, item).get(name)
        type_ = f": {known}" if known is not None and str(known) else ""
    lines = [_code(f"{name}{type_}"), sort]
    for binding in item.let if isinstance(item, ast.Rule) else ():
        if binding.target.name == name:
            lines = [_code(f"let {name} = {print_expr(binding.value)}{type_ and '   # ' + type_[2:]}")]
    if found.sort is Sort.INDEX:
        lines.append("one member of the group; `*` in its place is all of them")
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
    """An operator: how the rules declare it, and what the standard says."""
    declared = [
        item
        for other in (document, *workspace.context(document))
        for item in other.items
        if isinstance(item, ast.Op) and item.name == name
    ]
    parts = [_code(print_rule(_without_tests(item))) for item in declared]
    doc = workspace.services.operator_doc(name)
    return "\n\n".join([*parts, *([doc] if doc else [])])


def _without_tests(item: ast.Op) -> ast.Op:
    from dataclasses import replace

    return replace(item, tests=())


def function(workspace: Workspace, document: Document, name: str) -> str:
    """A function of the library, or a definition."""
    table = {**operand_functions(), **functions()}
    if name in table:
        return f"{_code(table[name].signature)}\n\n{table[name].doc}"
    for other in (document, *workspace.context(document)):
        for item in other.items:
            if isinstance(item, ast.Def) and item.name == name:
                return _code(print_rule(item))
    return ""


def rule(workspace: Workspace, document: Document, item: ast.Item) -> str:
    """A rule or another item: its doc, what it claims, its tests, and what they and the checker last said."""
    lines = [f"**{getattr(item, 'name', '')}**" + (f": {item.doc}" if item.doc else "")]
    if isinstance(item, ast.Rule):
        lines.append(f"class `{' '.join((item.numerics, *item.relaxations))}`, ruleset `{item.ruleset}`")
    if isinstance(item, ast.Rule | ast.Fuse | ast.Op):
        counts = [(verdict, sum(t.verdict == verdict for t in item.tests)) for verdict in words.CHOICES["test"]]
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
        lines.append(f"tests: {told}" if told else "no tests")
        told = workspace.results.told(document, item)
        if told:
            lines.append(told)
    if isinstance(item, ast.Ruleset | ast.Schedule):
        lines.append(_code(print_rule(item)))
    return "\n\n".join(lines)


def _word(word: str) -> str:
    choices = {name: doc for table in words.CHOICES.values() for name, doc in table.items()}
    doc = {**words.ITEMS, **words.CLAUSES, **choices, **words.TYPE_WORDS, **words.WORDS}.get(word, "")
    if word in DTYPES:
        doc = "An element type."
    return f"`{word}`: {doc}" if doc else ""


def _code(text: str) -> str:
    return f"```rules\n{text}\n```"
