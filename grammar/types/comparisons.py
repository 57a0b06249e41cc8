"""Comparisons and truth values: what can be compared, and what follows from a condition that holds."""

from __future__ import annotations

from .. import ast
from ..builtins import DTYPES
from ..diagnostics import Label
from .context import Context
from .functions import Arguments, contents
from .linear import Linear
from .terms import Conflict, DTypes, Origin
from .type import ALL, FLOATS, INTEGERS
from .values import Value, said, unknown


def compare(context: Context, expr: ast.Compare, left: Value, right: Value) -> Value:
    """The truth value of a comparison of things that can be compared."""
    if expr.operator in ("is", "is not"):
        return Value("bool")
    for value, at in ((left, expr.left), (right, expr.right)):
        if value.sort == "tensor":
            contents(context, value, at)
    wrong = False
    if expr.operator == "in":
        if right.is_number or right.sort in ("tensor", "string", "dtype", "operator", "rest"):
            context.problem("incomparable", f"`in` asks for a list; this is {said(right)}", expr.right.span)
            return Value("bool")
        members = right.items if right.items is not None else [right.element or unknown()]
        wrong = bool(members) and not any(_comparable(left, member, "==") for member in members)
    else:
        wrong = not _comparable(left, right, expr.operator)
    if wrong:
        word = "never equal" if expr.operator in ("==", "!=", "in") else "not in an order"
        other = right.items[0] if expr.operator == "in" and right.items else right
        message = f"{said(left)} and {said(other)} are {word}"
        hint = ""
        if "tensor" in (left.sort, right.sort) and "string" in (left.sort, right.sort):
            hint = "`op_name(f)` is the name of an operator, `dtype(x)` the element type of a tensor"
        context.problem("incomparable", message, expr.span, hint=hint)
    if "contents" in (left.sort, right.sort) or "tensor" in (left.sort, right.sort):
        return Value("contents")
    return Value("bool")


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


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def relate(context: Context, expr: ast.Compare, left: Value, right: Value, truth: bool) -> None:
    """What follows from a comparison that holds, or does not."""
    operator = expr.operator
    if not truth:
        if operator not in _OPPOSITE:
            return
        operator = _OPPOSITE[operator]
    if not context.certain:
        return
    with context.attempt(expr.span):
        if left.dtype is not None and expr.operator == "in" and truth:
            _dtype_in(left.dtype, right, expr)
        elif left.dtype is not None and right.dtype is not None:
            if operator == "==":
                left.dtype.unify(right.dtype, Origin(expr.span, "compared here"))
            elif operator == "!=":
                _differ(left.dtype, right.dtype, expr)
        elif left.shape is not None and right.shape is not None and operator == "==":
            context.shapes.unify(left.shape, right.shape, Origin(expr.span, "compared here"))
        elif left.is_list and right.is_list and operator == "==":
            _equal_lists(context, left, right, expr)
        elif left.number is not None and right.number is not None:
            _relate_numbers(context, operator, left.number, right.number, expr)


def _dtype_in(dtype: DTypes, right: Value, expr: ast.Compare) -> None:
    allowed: set[str] = set()
    for item in right.items or ():
        found = item.dtype.end().allowed if item.dtype is not None else None
        if found is None:
            return
        allowed |= found
    if allowed:
        dtype.narrow(frozenset(allowed), Origin(expr.span, "asked for here"))


def _differ(left: DTypes, right: DTypes, expr: ast.Compare) -> None:
    for one, other in ((left, right), (right, left)):
        only = other.end().allowed
        if only is not None and len(only) == 1:
            one.narrow(ALL - only, Origin(expr.span, "excluded here"))
            return


def _equal_lists(context: Context, left: Value, right: Value, expr: ast.Compare) -> None:
    origin = Origin(expr.span, "compared here")
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
        for one_item, other_item in zip(left.items or (), right.items or (), strict=False):
            if one_item.number is not None and other_item.number is not None:
                _relate_numbers(context, "==", one_item.number, other_item.number, expr)


def _relate_numbers(context: Context, operator: str, left: Linear, right: Linear, expr: ast.Compare) -> None:
    store = context.shapes.store
    gap = left.plus(right, -1)
    before = (context.shapes.describe(left), context.shapes.describe(right))
    possible = True
    if operator == "==":
        possible = store.equate(left, right)
    elif operator in ("<", "<="):
        possible = store.at_most(gap, -1 if operator == "<" else 0)
    elif operator in (">", ">="):
        possible = store.at_least(gap, 1 if operator == ">" else 0)
    elif operator == "!=":
        possible = store.resolve(gap) != Linear(0)
    if not possible:
        a, b = before
        raise Conflict("never-true", f"this never holds: the left side is {a}, the right side {b}")


def imply(context: Context, expr: ast.Call, arguments: Arguments, truth: bool) -> None:
    """What follows from a function that gives true, or false."""
    if not arguments or not context.certain:
        return
    value, at = arguments[0]
    if expr.head in ("is_float", "is_integer") and value.dtype is not None:
        wanted = FLOATS if expr.head == "is_float" else INTEGERS
        with context.attempt(expr.span, value.text or ""):
            value.dtype.narrow(wanted if truth else ALL - wanted, Origin(expr.span, "asked for here"))
    elif expr.head == "is_const" and value.tensor is not None and value.sort == "tensor":
        _constness(context, value, at, truth)
    elif expr.head in ("all", "any") and value.sort == "tensor" and value.tensor is not None:
        contents(context, value, at)


def _constness(context: Context, value: Value, at: ast.Expr, truth: bool) -> None:

    tensor = value.tensor
    assert tensor is not None
    if tensor.const is not None and tensor.const is not truth:
        labels = () if tensor.const_origin is None else (Label(tensor.const_origin.span, tensor.const_origin.text),)
        said_ = "never a constant" if truth else "always a constant"
        context.problem("const-conflict", f"{value.text or 'this'} is {said_} here", at.span, *labels)
        return
    tensor.const, tensor.const_origin = truth, Origin(at.span, "asked for here")
