"""Checks of `op` items: their parameters, the types of their outputs, and definitions that lead back to themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import ast
from .builtins import DTYPES
from .diagnostics import Diagnostic, Label
from .operator_info import OperatorInfo
from .scope import Scope, Sort, is_dtype_variable


def check_op_types(op: ast.Op, operators: OperatorInfo | None, scope: Scope) -> Iterator[Diagnostic]:
    """What is wrong with the order of an operator's parameters, its outputs and its tests."""
    yield from _order(op.params or ())
    typed = [p for p in op.params or () if p.type is not None]
    if op.results and op.params is None:
        message = f"`{op.name}` has outputs but no parameters"
        yield Diagnostic("missing-parameters", message, op.results[0].span)
    elif (op.results or typed) and operators is not None and operators.signature(op.name) is not None:
        at = op.results[0].span if op.results else typed[0].span
        yield Diagnostic("misplaced-type", f"`{op.name}` is in the standard, which says what its types are", at)
    for type_ in op.results:
        element = type_.element
        if type_.const or (element not in DTYPES and not (element and is_dtype_variable(element))):
            hint = "such as `T[N]`, with a `T` that a parameter's type binds, or `i64[N]`"
            yield Diagnostic("bad-result", "an output needs an element type", type_.span, hint=hint)
        elif element not in DTYPES and scope.sort(element) is not Sort.DTYPE:
            yield Diagnostic("unbound-variable", f"no parameter's type binds `{element}`", type_.span)
        for dim in type_.shape or ():
            unnamed = isinstance(dim, ast.ShapeRest) and dim.name is None
            if isinstance(dim, ast.AnyDim) or unnamed:
                continue  # nothing is said of it
            if isinstance(dim, ast.ShapeRest) and scope.sort(dim.name or "") is not Sort.DIMS:
                message = f"no parameter's type binds `..{dim.name}`"
                yield Diagnostic("unbound-variable", message, dim.span)
    count = len(op.definition.items) if isinstance(op.definition, ast.ListExpr) else 1
    if op.definition is not None and op.results and count != len(op.results):
        label = Label(op.results[0].span, f"{len(op.results)} outputs")
        message = f"the definition of `{op.name}` has {count} of them: it is a list with one for each"
        if len(op.results) == 1:
            message = "the definition of an operator with one output is one expression"
        yield Diagnostic("unequal-outputs", message, op.definition.span, (label,))
    for test in op.tests:
        if op.definition is None and not test.equals:
            message = f"`{op.name}` has no definition that a test could look for"
            yield Diagnostic("no-definition", message, test.span)


def _order(params: Sequence[ast.Param]) -> Iterator[Diagnostic]:
    """A variadic input is the last one."""
    before: ast.Param | None = None
    for param in params:
        if param.attribute is not None:
            continue
        if before is not None and before.variadic:
            label = Label(before.span, "takes all that are left")
            yield Diagnostic("bad-parameters", "no input comes after a variadic one", param.span, (label,))
        before = param


def definition_cycles(items: Sequence[ast.Item]) -> list[Diagnostic]:
    """Operators whose definitions lead back to them; where attributes are given it may be another case of the same."""
    ops = {item.name: item for item in items if isinstance(item, ast.Op) and item.definition is not None}
    found = []
    for name, op in ops.items():
        todo, seen = [op], {name}
        while todo:
            at = todo.pop()
            assert at.definition is not None
            for node in at.definition.walk():
                if not isinstance(node, ast.Call) or (node.head == at.name and node.attributes):
                    continue
                if node.head == name:
                    found.append(Diagnostic("op-cycle", f"`{name}` is defined by itself", node.span))
                elif node.head in ops and node.head not in seen:
                    seen.add(node.head)
                    todo.append(ops[node.head])
    return found
