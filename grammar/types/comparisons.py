"""Comparisons and truth values: comparable sorts, and facts that follow from a condition."""

from __future__ import annotations

from ..builtins import DTYPES
from ..diagnostics import Label
from ..syntax import ast
from .context import Context
from .functions import Arguments, contents
from .linear import Linear
from .terms import Conflict, DTypes, Value, describe, unknown
from .type import ALL, FLOATS, INTEGERS


def compare(context: Context, expr: ast.Compare, left: Value, right: Value) -> Value:
    """Return the truth value of a comparison; report operands that cannot be compared."""
    if expr.operator in ("is", "is not"):
        return Value("bool")
    sorts = {left.sort, right.sort}
    for value, at in ((left, expr.left), (right, expr.right)):
        if value.sort == "tensor":
            contents(context, value, at)
    if expr.operator == "in":
        if right.is_number or right.sort in ("tensor", "string", "dtype", "operator", "rest"):
            context.problem("incomparable", f"`in` needs a list; this is {describe(right)}", expr.right.span)
            return Value("bool")
        members = right.items if right.items is not None else [right.element or unknown()]
        wrong = members != [] and not any(_comparable(left, member, "==") for member in members)
    else:
        wrong = not _comparable(left, right, expr.operator)
    if wrong:
        word = "are never equal" if expr.operator in ("==", "!=", "in") else "have no order"
        other = right.items[0] if expr.operator == "in" and right.items else right
        message = f"{describe(left)} and {describe(other)} {word}"
        hint = "compare `op_name(f)`, the name of an operator, or `dtype(x)`, the element type of a tensor"
        context.problem("incomparable", message, expr.span, hint=hint if sorts >= {"tensor", "string"} else "")
    return Value("contents" if sorts & {"contents", "tensor"} else "bool")


def _comparable(left: Value, right: Value, operator: str) -> bool:
    kinds = {_category(left), _category(right)}
    if "any" in kinds or len(kinds) == 1:
        return not (operator in ("<", "<=", ">", ">=") and kinds & {"string", "list", "operator", "dtype"})
    if kinds == {"number", "dtype"}:
        return operator in ("==", "!=")
    if kinds == {"string", "dtype"}:
        text = left.text if left.sort == "string" else right.text
        return operator in ("==", "!=") and (text is None or text in DTYPES)
    return kinds == {"number", "contents"} or (kinds == {"list", "contents"})


def _category(value: Value) -> str:
    if value.is_number:
        return "number"
    if value.is_list:
        return "list"
    return {"tensor": "contents", "tensors": "list"}.get(value.sort, value.sort)


OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def relate(context: Context, expr: ast.Compare, left: Value, right: Value, truth: bool) -> None:
    """Add the facts that follow from a comparison that holds, or does not."""
    operator = expr.operator if truth else OPPOSITE.get(expr.operator)
    if operator is None or not context.certain:
        return
    with context.attempt(expr.span):
        if left.dtype is not None and expr.operator == "in" and truth:
            _dtype_in(left.dtype, right, expr)
        elif left.dtype is not None and right.dtype is not None:
            if operator == "==":
                left.dtype.unify(right.dtype, Label(expr.span, "compared here"))
            elif operator == "!=":
                _differ(left.dtype, right.dtype, expr)
        elif left.shape is not None and right.shape is not None and operator == "==":
            context.shapes.unify(left.shape, right.shape, Label(expr.span, "compared here"))
        elif left.is_list and right.is_list and operator == "==":
            _equal_lists(context, left, right, expr)
        elif left.number is not None and right.number is not None:
            _relate_numbers(context, operator, left.number, right.number)


def _dtype_in(dtype: DTypes, right: Value, expr: ast.Compare) -> None:
    allowed: set[str] = set()
    for item in right.items or ():
        found = item.dtype.end().allowed if item.dtype is not None else None
        if found is None:
            return
        allowed |= found
    if allowed:
        dtype.restrict(frozenset(allowed), Label(expr.span, "required here"))


def _differ(left: DTypes, right: DTypes, expr: ast.Compare) -> None:
    for one, other in ((left, right), (right, left)):
        only = other.end().allowed
        if only is not None and len(only) == 1:
            one.restrict(ALL - only, Label(expr.span, "excluded here"))
            return


def _equal_lists(context: Context, left: Value, right: Value, expr: ast.Compare) -> None:
    origin = Label(expr.span, "compared here")
    for one, other in ((left, right), (right, left)):
        if one.shape is not None and other.length is not None:
            context.shapes.equal_rank(one.shape, other.length, origin)
            for place, item in enumerate(other.items or ()):
                if item.number is not None:
                    context.shapes.equal_dim(context.shapes.dim(one.shape, place, origin), item.number, origin)
            return
    if left.length is not None and right.length is not None:
        if not context.shapes.store.equate(left.length, right.length):
            a, b = (context.shapes.describe(v) for v in (left.length, right.length))
            raise Conflict("never-true", f"lists of {a} and of {b} are never equal")
        for mine, other in zip(left.items or (), right.items or (), strict=False):
            if mine.number is not None and other.number is not None:
                _relate_numbers(context, "==", mine.number, other.number)


def _relate_numbers(context: Context, operator: str, left: Linear, right: Linear) -> None:
    store = context.shapes.store
    gap = left.plus(right, -1)
    a, b = context.shapes.describe(left), context.shapes.describe(right)
    possible = True
    match operator:
        case "==":
            possible = store.equate(left, right)
        case "!=":
            possible = store.resolve(gap) != Linear(0)
        case "<" | "<=":
            possible = store.at_most(gap, -1 if operator == "<" else 0)
        case ">" | ">=":
            possible = store.at_least(gap, 1 if operator == ">" else 0)
    if not possible:
        raise Conflict("never-true", f"this is never true: the left side is {a}, the right side {b}")


def imply(context: Context, expr: ast.Call, arguments: Arguments, truth: bool) -> None:
    """Add the facts that follow from a predicate that holds, or does not."""
    if not arguments or not context.certain:
        return
    value, at = arguments[0]
    if expr.head in ("is_float", "is_integer") and value.dtype is not None:
        wanted = FLOATS if expr.head == "is_float" else INTEGERS
        with context.attempt(expr.span, value.text or ""):
            value.dtype.restrict(wanted if truth else ALL - wanted, Label(expr.span, "required here"))
    elif value.sort != "tensor" or value.tensor is None:
        return
    elif expr.head == "is_const" and value.tensor.const is (not truth):
        labels = (value.tensor.const_origin,) if value.tensor.const_origin is not None else ()
        message = f"{value.text or 'this'} is {'never' if truth else 'always'} a constant here"
        context.problem("const-conflict", message, at.span, *labels)
    elif expr.head == "is_const":
        value.tensor.const, value.tensor.const_origin = truth, Label(at.span, "required here")
    elif expr.head in ("all", "any"):
        contents(context, value, at)
