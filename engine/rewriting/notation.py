"""Notation of rules: infix operators, literals, arguments that stand for many, and reserved keys of bindings."""

from __future__ import annotations

from ...grammar.syntax import ast
from ..ir.graph import DType
from ..ir.values import Value

INFIX = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "@": "MatMul", "**": "Pow", "%": "Mod"}
"""ONNX operator of each infix operator."""
LITERALS: dict[str, Value] = {
    "true": True,
    "false": False,
    "none": None,
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
    **{str(d): d for d in DType},
}
WHOLE = "#outputs"
"""Key of the node whose outputs are the members of a group."""


def is_literal(name: str) -> bool:
    """Return whether a name is a literal (`true`, `inf`, `f32`) rather than a variable."""
    return name in LITERALS


def as_call(expr: ast.Syntax) -> ast.Call | None:
    """Return a call, or an infix expression as the call that it stands for; None for any other expression."""
    match expr:
        case ast.Call():
            return expr
        case ast.Unary(operator="-", operand=operand) if not isinstance(operand, ast.Number):
            return ast.Call(span=expr.span, head="Neg", args=(operand,))
        case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
            return ast.Call(span=expr.span, head=INFIX[operator], args=(left, right))
    return None


def starred(expr: ast.Expr) -> ast.Expr | None:
    """Return the `xs` of `xs[*]`; None for any other expression."""
    return expr.base if isinstance(expr, ast.Subscript) and isinstance(expr.index, ast.All) else None


def count_of(index: str) -> str:
    """Return the key of the number of members that an index ranges over."""
    return f"*{index}"


def start_of(index: str) -> str:
    """Return the key of the position of the first input that an index ranges over."""
    return f"#start{index}"
