"""What is odd about one rule: conditions that say nothing, names that are bound and not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from .. import ast
from ..diagnostics import Diagnostic, Fix
from ..operator_info import OperatorInfo
from ..scope import is_word
from ..types.context import Context
from ..types.expressions import assume, evaluate, given
from ..types.patterns import bind_roots
from ..types.values import Value
from .together import Together

Item = ast.Rule | ast.Fuse | ast.Op


def unused(item: Item) -> Iterator[Diagnostic]:
    """Dims and element types that a `given` names and nothing reads."""
    uses: Counter[str] = Counter()
    for part in item.children():
        if isinstance(part, ast.RuleTest):
            if part.gives is not None:
                uses.update(n.id for n in part.gives.walk() if isinstance(n, ast.Name))
            continue
        for node in part.walk():
            if isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.ShapeRest) and node.name is not None:
                uses[node.name] += 1
            elif isinstance(node, ast.TypeExpr) and node.element is not None:
                uses[node.element] += 1
    params = {p.name for p in item.params or ()} if isinstance(item, ast.Op) else set()
    several = {n.base.id for n in item.walk() if isinstance(n, ast.Subscript) and isinstance(n.base, ast.Name)}
    for clause in item.given:
        if len(clause.targets) > 1 or clause.targets[0].index is not None or clause.targets[0].name in several:
            continue  # the name makes them equal
        for dim in clause.type.shape or ():
            if isinstance(dim, ast.Name) and not is_word(dim.id) and uses[dim.id] == 1 and dim.id not in params:
                message = f"the dim `{dim.id}` is named and never used"
                yield _warning("unused", message, dim.span, "write `_`", Fix(dim.span, "_"))
            elif isinstance(dim, ast.ShapeRest) and dim.name is not None and uses[dim.name] == 1:
                message = f"the dims `..{dim.name}` are named and never used"
                yield _warning("unused", message, dim.span, "write `..`", Fix(dim.span, ".."))
        element = clause.type.element
        if element is not None and not is_word(element) and uses[element] == 1:
            message = f"the element type `{element}` is named and never used"
            yield _warning("unused", message, clause.type.span, "leave it out")


def redundant(
    rule: ast.Rule, operators: OperatorInfo | None, declared: Mapping[str, ast.Op], together: Together
) -> Iterator[Diagnostic]:
    """Conditions that hold whenever the pattern matches and all the others hold."""
    simple = not any(isinstance(n, ast.Alternatives) for n in rule.lhs.walk())
    optional = any(isinstance(n, ast.Optional) for n in rule.lhs.walk())
    for i, condition in enumerate(rule.where):
        others = [c for j, c in enumerate(rule.where) if j != i]
        before = rule.where[:i]
        after = [c for c in rule.where[i + 1 :] if not together.implies([condition], c)]
        if together.implies([*before, *after], condition):
            yield _redundant(condition, "another condition says so")
        elif simple and not optional and _follows(rule, others, condition, operators, declared):
            yield _redundant(condition, "the pattern and the types say so")


def _redundant(condition: ast.Expr, hint: str) -> Diagnostic:
    return _warning("redundant", "this condition holds in any case", condition.span, hint)


def _follows(
    rule: ast.Rule,
    others: list[ast.Expr],
    condition: ast.Expr,
    operators: OperatorInfo | None,
    declared: Mapping[str, ast.Op],
) -> bool:
    """Whether a condition on ranks, dims or element types holds by what else is known."""
    if not _is_static(condition):
        return False
    context = Context(operators, declared)
    for name, tensor in bind_roots(context, rule.lhs).items():
        if name:
            context.env.setdefault(name, Value("any", tensor=tensor))
    context.lets = {b.target.name: b.value for b in rule.let}
    for clause in rule.given:
        given(context, clause)
    for other in others:
        if _is_static(other):
            assume(context, other)
    context.settle()
    return not context.problems and _holds(context, condition)


def _is_static(condition: ast.Expr) -> bool:
    """Whether a condition is a comparison that only types decide."""
    match condition:
        case ast.Call(head="is_float" | "is_integer"):
            return True
        case ast.Compare():
            return all(_is_plain(side) for side in (condition.left, condition.right))
    return False


def _is_plain(side: ast.Expr) -> bool:
    match side:
        case ast.Number() | ast.Name():
            return True
        case ast.Call(head="rank" | "dtype" | "dim" | "shape", args=args):
            return all(isinstance(a, ast.Name | ast.Number) for a in args)
    return False


def _holds(context: Context, condition: ast.Expr) -> bool:
    from ..types.type import FLOATS, INTEGERS

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
    low, high = context.shapes.store.bounds(left.number.plus(right.number, -1))
    match condition.operator:
        case "==":
            return low == high == 0
        case ">=":
            return low is not None and low >= 0
        case ">":
            return low is not None and low > 0
        case "<=":
            return high is not None and high <= 0
        case "<":
            return high is not None and high < 0
    return False


def _warning(code: str, message: str, span: ast.Span, hint: str = "", fix: Fix | None = None) -> Diagnostic:
    return Diagnostic(code, message, span, (), hint, severity="warning", fix=fix)
