"""Mutants that differ from their rule at the edges only: splits, reversals, groups, magnitudes, element types.

Most wrap the right side in operators that change nothing for ordinary numbers and shapes, such as a product by 1e35
that is divided again. A checker that draws ordinary instances only does not notice them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache

from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.parse import parse_text

from .conditions import Change
from .sites import Put, sites, with_item

WRAPPERS = {
    "magnitude raised": "(whole * 1e35) / 1e35",
    "magnitude lowered": "(whole / 1e35) * 1e35",
    "infinity clipped": "Min(whole, like(3e38, whole))",
    "NaN replaced": "Where(IsNaN(whole), like(0, whole), whole)",
    "sign of zero lost": "whole + like(0, whole)",
    "sign lost": "Abs(whole)",
    "fraction lost": "Floor(whole)",
    "slightly larger": "whole * like(1.03, whole)",
    "precision lost": "Cast(Cast(whole, to: bf16), to: f32)",
    "integers narrowed": "Cast(Cast(whole, to: i8), to: i64)",
    "double rounded": "Cast(Cast(whole, to: f32), to: f64)",
    "order reversed": "Slice(whole, [-1], [-9223372036854775807], [0], [-1])",
    "last axis reversed": "Slice(whole, [-1], [-9223372036854775807], [-1], [-1])",
    "axes exchanged": "Transpose(whole, perm: swap_perm(rank(whole), 0, rank(whole) - 1))",
    "first row repeated": "Expand(Slice(whole, [0], [1], [0], [1]), shape(whole))",
}
"""Right sides around the original one, `whole`, by kind of mutant."""


def at_edges(rule: ast.Rule) -> Iterator[Change]:
    """Yield the mutants that differ at the edges."""
    for kind in WRAPPERS:
        for where, node, put in _results(rule):
            if isinstance(node, ast.Call | ast.Binary | ast.Unary | ast.Name):
                yield kind, f"around {where}", put(_wrapped(kind, node))
    for node, put in sites(rule.rhs):
        for kind, what, other in _inside(node):
            yield kind, f"right side, line {node.span.line}: {what}", _right(rule, put(other))


def _right(rule: ast.Rule, rhs: ast.Expr | ast.Roots) -> ast.Rule:
    return dataclasses.replace(rule, rhs=rhs)


def _results(rule: ast.Rule) -> Iterator[tuple[str, ast.Expr, Put]]:
    """Yield the expressions of the right side whose values replace something, with the function that changes them."""
    if not isinstance(rule.rhs, ast.Roots):
        yield "the right side", rule.rhs, lambda new: _right(rule, new)  # type: ignore[arg-type]
        return
    roots = rule.rhs
    for i, binding in enumerate(roots.bindings):
        if isinstance(binding.target.index, ast.All):
            continue  # several results

        def put(new: ast.Syntax, i: int = i, binding: ast.Binding = binding) -> ast.Rule:
            changed = dataclasses.replace(binding, value=new)
            return _right(rule, dataclasses.replace(roots, bindings=with_item(roots.bindings, i, changed)))

        yield binding.target.name, binding.value, put


@cache
def _template(kind: str) -> ast.Expr:
    parsed = parse_text(f"rule template\n  Identity(whole) => {WRAPPERS[kind]}\n  class fast\n")
    found = next(item for item in parsed.items if isinstance(item, ast.Rule)).rhs
    assert isinstance(found, ast.Expr)
    return found


def _wrapped(kind: str, whole: ast.Expr) -> ast.Expr:
    """Return the wrapper of a kind around an expression, at the place of that."""
    found: ast.Expr = _template(kind)
    while True:
        spot = next((put for node, put in sites(found) if isinstance(node, ast.Name) and node.id == "whole"), None)
        if spot is None:
            return found
        found = spot(whole)


def _inside(node: ast.Syntax) -> Iterator[tuple[str, str, ast.Syntax]]:
    """Yield the changes of one operator or function of the right side."""
    if not isinstance(node, ast.Call):
        return
    args, span = node.args, node.span
    listed = args[1] if len(args) > 1 else None
    if node.head in ("Reshape", "reshape", "Split") and isinstance(listed, ast.ListExpr) and len(listed.items) > 1:
        first, second, *rest = listed.items
        joined = ast.Binary(span=span, operator="*", left=first, right=second)
        merged = dataclasses.replace(listed, items=(joined, *rest))
        yield "sizes merged", f"of {node.head}", dataclasses.replace(node, args=with_item(args, 1, merged))
        turned = dataclasses.replace(listed, items=listed.items[::-1])
        yield "sizes reversed", f"of {node.head}", dataclasses.replace(node, args=with_item(args, 1, turned))
    if node.head == "Slice" and len(args) == 5:
        turned_args = (*args[:1], args[2], args[1], args[3], _negated(args[4]))
        yield "slice reversed", "from its end to its begin", dataclasses.replace(node, args=turned_args)
    if node.head == "Gather" and len(args) == 2:
        last = ast.Unary(span=span, operator="-", operand=ast.Number(span=span, value=1))
        from_end = ast.Binary(span=span, operator="-", left=last, right=args[1])
        yield "indices reversed", "counted from the end", dataclasses.replace(node, args=(args[0], from_end))
    if node.head in ("Conv", "ConvTranspose", "ConvInteger") and node.rest is not None:
        if not any(a.name == "group" for a in node.attributes):
            single = ast.Attribute(span=span, name="group", value=ast.Number(span=span, value=1))
            fewer = dataclasses.replace(node, attributes=(*node.attributes, single))
            yield "group ignored", f"of {node.head}", fewer
    if node.head == "dim" and len(args) == 2:
        other = ast.Number(span=span, value=0)
        if args[1] != other:
            yield "dim mistaken", "the first", dataclasses.replace(node, args=(args[0], other))


def _negated(steps: ast.Expr) -> ast.Expr:
    if isinstance(steps, ast.ListExpr):
        items = tuple(ast.Unary(span=i.span, operator="-", operand=i) for i in steps.items)
        return dataclasses.replace(steps, items=items)
    return ast.Unary(span=steps.span, operator="-", operand=steps)
