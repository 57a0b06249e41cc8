"""Checks of tests: operands define what the pattern leaves open, claims fit their verdict, models are in reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ..builtins import DTYPES
from ..diagnostics import Diagnostic, Label, did_you_mean
from ..syntax import ast
from ..syntax.ast import Span
from ..syntax.scope import Scope, Sort, free_names, is_word
from .check_calls import Operators, check_calls


def check_test(
    test: ast.RuleTest, patterns: Sequence[ast.Expr | ast.Roots], scope: Scope, operators: Operators
) -> Iterator[Diagnostic]:
    """Yield everything wrong with a test, given the scope of its rule; `gives` is checked as a right side."""
    if test.model is not None:
        yield from _model_path(test.model, test.span)
        return
    calls = [n for p in patterns for n in p.walk() if isinstance(n, ast.Call)]
    open_calls = [c for c in calls if c.rest is not None or c.kind is not None]
    seen: dict[str, Span] = {}
    # `z: f32[2], x = Relu(z)`: an operand may also occur in the value of another one.
    parts = {n.id for o in test.operands if o.value is not None for n in free_names(o.value)}
    given = {operand.target.name for operand in test.operands}
    sides = [*test.equals, *([test.term] if test.term is not None else [])]
    for operand in test.operands:
        target, name = operand.target, operand.target.name
        if target.index is None:
            if name in seen:
                label = Label(seen[name], "the first one is here")
                yield Diagnostic("duplicate-name", f"duplicate operand `{name}`", target.span, (label,))
            seen[name] = target.span
        is_bound = scope.sort(name) not in (None, Sort.LET, Sort.ROOT, Sort.ROOTS)
        if not (sides or name in parts or is_bound or operators.may_take(open_calls, name)):
            hint = did_you_mean(name, [n for n in scope.names() if scope.sort(n) is not Sort.LET])
            yield Diagnostic("unknown-operand", f"the pattern has no `{name}`", target.span, hint=hint)
        if operand.type is None and operand.value is None:
            hint = f"such as `{name}: f32[2,3]` or `{name} = 1`"
            yield Diagnostic("bad-operand", f"`{name}` needs a type or a value", operand.span, hint=hint)
        if operand.type is not None:
            yield from _operand_type(operand.type)
        if operand.value is not None and scope.sort(name) is Sort.OPERATOR:
            yield from _operator(operand.value, scope, operators)
        elif operand.value is not None:
            yield from _operand_value(operand.value, given, scope, operators)
    for side in sides:
        yield from _operand_value(side, given, scope, operators)
    if test.gives is not None and test.verdict == "refuses":
        message, hint = "a `refuses` test has no result", "remove `gives` or write `fires`"
        yield Diagnostic("bad-operand", message, test.gives.span, hint=hint)


def _model_path(path: str, span: Span) -> Iterator[Diagnostic]:
    """Report a model outside the directory of the rule file that names it."""
    depths = accumulate(-1 if part == ".." else part not in ("", ".") for part in path.split("/"))
    if min(depths) < 0 or not path or path.startswith("/") or "\\" in path or ":" in path:
        message = f'`model "{path}"` leads outside the directory of the rules'
        yield Diagnostic("model-outside", message, span, hint="paths are relative to the directory of the rule file")


def _operand_type(type_: ast.TypeExpr) -> Iterator[Diagnostic]:
    if type_.broadcasts is not None:
        yield Diagnostic("misplaced-type", "`broadcasts to` is only allowed in `given`", type_.broadcasts.span)
    if type_.element is not None and not is_word(type_.element):
        hint = did_you_mean(type_.element, DTYPES)
        yield Diagnostic("unknown-type", f"unknown element type `{type_.element}`", type_.span, hint=hint)


def _operator(value: ast.Expr, scope: Scope, operators: Operators) -> Iterator[Diagnostic]:
    """Report what is not `Relu` or `ReduceMax(keepdims: 0)`, an operator that a class head stands for."""
    match value:
        case ast.Name(id=head) | ast.Call(head=head, args=()) if head[:1].isupper():
            pass
        case _:
            yield Diagnostic("bad-operand", "this must be an operator", value.span, hint="such as `Relu`")
    yield from check_calls(value, scope, operators, pattern=False, head=True)


def _operand_value(value: ast.Expr, given: set[str], scope: Scope, operators: Operators) -> Iterator[Diagnostic]:
    for name in free_names(value):
        if name.id not in given:
            hint = did_you_mean(name.id, sorted(given))
            message = f"`{name.id}` is not an operand of this test"
            yield Diagnostic("unbound-variable", message, name.span, hint=hint)
    yield from check_calls(value, scope, operators, pattern=False, operand=True)
