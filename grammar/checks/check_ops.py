"""Checks of `op` items: parameters, output types, and definitions that refer to themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ..builtins import DTYPES
from ..diagnostics import Diagnostic, Label
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..syntax.scope import Scope, Sort, is_dtype_variable


def check_op_types(op: ast.Op, operators: OperatorInfo | None, scope: Scope) -> Iterator[Diagnostic]:
    """Yield diagnostics of an operator's parameters, output types and tests."""
    yield from _order(op.params or ())
    typed = [p for p in op.params or () if p.type is not None]
    if op.results and op.params is None:
        message = f"`{op.name}` has outputs but no parameters"
        yield Diagnostic("missing-parameters", message, op.results[0].span)
    elif (op.results or typed) and operators is not None and operators.schema(op.name) is not None:
        at = op.results[0].span if op.results else typed[0].span
        yield Diagnostic("misplaced-type", f"`{op.name}` is a standard operator; its schema gives its types", at)
    for type_ in op.results:
        element = type_.element
        if type_.const or element is None or not (element in DTYPES or is_dtype_variable(element)):
            hint = "such as `T[N]`, with a `T` that a parameter's type binds, or `i64[N]`"
            yield Diagnostic("bad-result", "an output needs an element type", type_.span, hint=hint)
        elif element not in DTYPES and scope.sort(element) is not Sort.DTYPE:
            yield Diagnostic("unbound-variable", f"no parameter's type binds `{element}`", type_.span)
        for dim in type_.shape or ():
            if isinstance(dim, ast.ShapeRest) and dim.name is not None and scope.sort(dim.name) is not Sort.DIMS:
                message = f"no parameter's type binds `..{dim.name}`"
                yield Diagnostic("unbound-variable", message, dim.span)
    count = len(op.definition.items) if isinstance(op.definition, ast.ListExpr) else 1
    if op.definition is not None and op.results and count != len(op.results):
        label = Label(op.results[0].span, f"{len(op.results)} outputs")
        outputs = f"{count} output{'s' * (count != 1)}"
        message = f"the definition of `{op.name}` has {outputs}; write a list with one expression for each"
        if len(op.results) == 1:
            message = "the definition of an operator with one output must be a single expression"
        yield Diagnostic("unequal-outputs", message, op.definition.span, (label,))
    for test in op.tests:
        if op.definition is None and not test.equals:
            yield Diagnostic("no-definition", f"`{op.name}` has no definition to test", test.span)


def _order(params: Sequence[ast.Param]) -> Iterator[Diagnostic]:
    """Report inputs after a variadic one."""
    for before, param in itertools.pairwise(p for p in params if p.attribute is None):
        if before.variadic:
            label = Label(before.span, "takes all remaining inputs")
            yield Diagnostic("bad-parameters", "a variadic input must be the last one", param.span, (label,))


def definition_cycles(items: Sequence[ast.Item]) -> Iterator[Diagnostic]:
    """Report operators defined in terms of themselves; a call with attributes may be a different case."""
    definitions = {i.name: i.definition for i in items if isinstance(i, ast.Op) and i.definition is not None}
    for name in definitions:
        todo, seen = [name], {name}
        while todo:
            at = todo.pop()
            for node in definitions[at].walk():
                if not isinstance(node, ast.Call) or (node.head == at and node.attributes):
                    continue
                if node.head == name:
                    yield Diagnostic("op-cycle", f"`{name}` is defined in terms of itself", node.span)
                elif node.head in definitions and node.head not in seen:
                    seen.add(node.head)
                    todo.append(node.head)
