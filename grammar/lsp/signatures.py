"""The parameters of the operator or function whose parentheses the cursor is in."""

from __future__ import annotations

from lsprotocol import types as lsp

from .. import ast
from ..builtins import functions, operand_functions
from .completion import place
from .document import Document
from .workspace import Workspace


def signature_help(workspace: Workspace, document: Document, position: lsp.Position) -> lsp.SignatureHelp | None:
    """The signature at a place, with the parameter that is being written."""
    where = place(document, document.offset(position))
    if where is None or where.call is None:
        return None
    found = _parameters(workspace, document, where.call.text)
    if found is None:
        return None
    parameters, result, doc, repeats = found
    label = f"{where.call.text}({', '.join(parameters)}){result}"
    active = min(where.argument, len(parameters) - 1) if repeats else where.argument
    signature = lsp.SignatureInformation(
        label=label,
        documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, doc) if doc else None,
        parameters=[lsp.ParameterInformation(label=p) for p in parameters],
    )
    return lsp.SignatureHelp(signatures=[signature], active_signature=0, active_parameter=max(active, 0))


def _parameters(workspace: Workspace, document: Document, head: str) -> tuple[list[str], str, str, bool] | None:
    """The parameters as text, the result, the doc, and whether the last one may be repeated."""
    known = {**operand_functions(), **functions()}.get(head)
    if known is not None:
        shown = [("..." * p.variadic) + f"{p.name}{'?' * p.optional}: {p.sort}" for p in known.parameters]
        return shown, f" -> {known.result}", known.doc, any(p.variadic for p in known.parameters)
    operators = workspace.services.operators()
    schema, standard = operators.schema(head), operators.signature(head)
    if schema is not None and standard is not None:
        inputs = [f"{name}{'[*]' * variadic}{' = none' * optional}" for name, optional, variadic in standard.inputs]
        attributes = [f"{name}: {attribute.kind}" for name, attribute in schema.attributes.items()]
        return inputs + attributes, "", "", any(variadic for *_, variadic in standard.inputs) or bool(attributes)
    for other in (document, *workspace.context(document)):
        for item in other.items:
            if isinstance(item, ast.Def) and item.name == head:
                return list(item.params), "", item.doc, False
            if isinstance(item, ast.Op) and item.name == head and item.params is not None:
                shown = [p.name + ":" * (p.attribute is not None) + "[*]" * p.variadic for p in item.params]
                return shown, "", item.doc, any(p.variadic for p in item.params)
    return None
