"""Warnings about single rules: redundant conditions, unused names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from ..diagnostics import Diagnostic, Fix
from ..syntax import ast
from ..syntax.scope import is_word
from ..types.context import Context
from ..types.expressions import evaluate
from ..types.infer import suppose
from ..types.patterns import bind_roots
from ..types.terms import Value
from ..types.type import FLOATS, INTEGERS
from .entailment import Entailment

Item = ast.Rule | ast.Fuse | ast.Op


def unused(item: Item) -> Iterator[Diagnostic]:
    """Yield the dims and element types that a `given` names and nothing reads."""
    uses: Counter[str] = Counter()
    for part in item.children():
        read = part.gives if isinstance(part, ast.RuleTest) else part
        for node in read.walk() if read is not None else ():
            match node:
                case ast.Name(id=str(name)):
                    uses[name] += 1
                case ast.ShapeRest(name=str(name)) | ast.TypeExpr(element=str(name)) if read is part:
                    uses[name] += 1
    params = {p.name for p in item.params or ()} if isinstance(item, ast.Op) else set()
    several = {n.base.id for n in item.walk() if isinstance(n, ast.Subscript) and isinstance(n.base, ast.Name)}
    for clause in item.given:
        if len(clause.targets) > 1 or clause.targets[0].index is not None or clause.targets[0].name in several:
            continue  # naming the dim requires equality
        for dim in clause.type.shape or ():
            if isinstance(dim, ast.Name) and not is_word(dim.id) and uses[dim.id] == 1 and dim.id not in params:
                message = f"the dim `{dim.id}` is never used"
                yield _warning("unused", message, dim.span, "write `_`", Fix(dim.span, "_"))
            elif isinstance(dim, ast.ShapeRest) and dim.name is not None and uses[dim.name] == 1:
                message = f"the dims `..{dim.name}` are never used"
                yield _warning("unused", message, dim.span, "write `..`", Fix(dim.span, ".."))
        element = clause.type.element
        if element is not None and not is_word(element) and uses[element] == 1:
            message = f"the element type `{element}` is never used"
            yield _warning("unused", message, clause.type.span, "remove it")


def redundant(rule: ast.Rule, entailment: Entailment) -> Iterator[Diagnostic]:
    """Yield the conditions that hold whenever the pattern matches and the other conditions hold."""
    simple = not any(isinstance(n, ast.Alternatives | ast.Optional) for n in rule.lhs.walk())
    message = "this condition always holds"
    for i, condition in enumerate(rule.where):
        others = [c for j, c in enumerate(rule.where) if j != i]
        before = rule.where[:i]
        after = [c for c in rule.where[i + 1 :] if not entailment.implies([condition], c)]
        if entailment.implies([*before, *after], condition):
            yield _warning("redundant", message, condition.span, "it follows from another condition")
        elif simple and _is_static(condition) and _follows(rule, others, condition, entailment):
            yield _warning("redundant", message, condition.span, "it follows from the pattern and the types")


def _follows(rule: ast.Rule, others: list[ast.Expr], condition: ast.Expr, entailment: Entailment) -> bool:
    """Return whether a condition on ranks, dims or element types follows from what else is known."""
    context = Context(entailment.operators, entailment.declared)
    for name, tensor in bind_roots(context, rule.lhs).items():
        if name:
            context.env.setdefault(name, Value("any", tensor=tensor))
    suppose(context, rule, filter(_is_static, others))
    context.propagate()
    return not context.problems and _holds(context, condition)


def _is_static(condition: ast.Expr) -> bool:
    """Return whether a condition is decided by types alone."""
    match condition:
        case ast.Compare(left=left, right=right):
            return _is_plain(left) and _is_plain(right)
        case ast.Call(head=head):
            return head in ("is_float", "is_integer")
    return False


def _is_plain(side: ast.Expr) -> bool:
    match side:
        case ast.Number() | ast.Name():
            return True
        case ast.Call(head="rank" | "dtype" | "dim" | "shape", args=args):
            return all(isinstance(a, ast.Name | ast.Number) for a in args)
    return False


def _holds(context: Context, condition: ast.Expr) -> bool:
    with context.perhaps():
        if isinstance(condition, ast.Call):
            dtype = evaluate(context, condition.args[0]).dtype
            wanted = FLOATS if condition.head == "is_float" else INTEGERS
            allowed = dtype.end().allowed if dtype is not None else None
            return allowed is not None and allowed <= wanted
        assert isinstance(condition, ast.Compare)
        left, right = evaluate(context, condition.left), evaluate(context, condition.right)
    if left.dtype is not None and right.dtype is not None:
        a, b = left.dtype.end(), right.dtype.end()
        one = a.allowed is not None and a.allowed == b.allowed and len(a.allowed) == 1
        return condition.operator == "==" and (a is b or one)
    if left.shape is not None and right.shape is not None:
        return condition.operator == "==" and left.shape.end() is right.shape.end()
    if left.number is None or right.number is None or "dim" in (left.sort, right.sort):
        return False
    bounds = context.shapes.store.bounds(left.number.plus(right.number, -1))
    low, high = (-inf if bounds[0] is None else bounds[0]), (inf if bounds[1] is None else bounds[1])
    always = {"==": low == high == 0, ">=": low >= 0, ">": low > 0, "<=": high <= 0, "<": high < 0}
    return always.get(condition.operator, False)


def _warning(code: str, message: str, span: ast.Span, hint: str = "", fix: Fix | None = None) -> Diagnostic:
    return Diagnostic(code, message, span, (), hint, severity="warning", fix=fix)
