"""Operator calls on either side of a rule: their outputs and the sorts of their attributes."""

from __future__ import annotations

from ..diagnostics import Fix, Label
from ..printing.printer import print_expr
from ..syntax import ast
from .context import Context, Operand
from .shapes import Application, broadcast
from .terms import Shape, Tensor, Value, describe

INFIX = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "@": "MatMul", "**": "Pow", "%": "Mod"}


def class_head(context: Context, kind: str, operands: list[Operand], call: ast.Call) -> list[Tensor]:
    """Return the output of any operator of a kind; a unary elementwise one preserves the shape."""
    out = context.tensor()
    tensors = [o.value.tensor for o in operands if o.value.tensor is not None]
    if kind == "elementwise" and len(operands) == 1 and len(tensors) == 1 and context.certain:
        origin = Label(call.span, f"`{call.head}` is elementwise")
        application = Application(call.head, [*tensors], [False], {}, [out], context.shapes, origin)
        with context.attempt(call.span):
            broadcast(application, tensors, out)
            application.same(out, tensors[0])
    return [out]


def required(context: Context, call: ast.Call) -> None:
    """Report required attributes that are missing."""
    schema = context.schema(call.head)
    if schema is None or call.rest is not None:
        return
    named = {a.name for a in call.attributes}
    for name, formal in schema.attributes.items():
        if formal.required and name not in named:
            message = f"`{call.head}` requires the attribute `{name}`"
            hint = f"write `{name}: ..` with a value or a variable"
            context.problem("missing-attribute", message, call.span, hint=hint)


def combine(wanted: Value, found: Value) -> Value:
    """Return what is known about an attribute: its value, if that has the wanted sort."""
    return found if found.sort != "any" else wanted


def check_attribute(context: Context, op: str, name: str, wanted: Value, found: Value, at: ast.Syntax) -> None:
    """Report an attribute of the wrong sort."""
    if "any" in (wanted.sort, found.sort) or not op:
        return
    if fits(wanted, found):
        if wanted.dtype is not None and found.dtype is not None:
            with context.attempt(at.span):
                wanted.dtype.unify(found.dtype, Label(at.span, "here"))
        return
    kind = {"int": "an integer", "ints": "a list of integers", "float": "a number", "floats": "a list of numbers",
            "string": "a string", "strings": "a list of strings", "tensor": "a tensor's contents",
            "dtype": "an element type", "graph": "a graph"}.get(wanted.sort, wanted.sort)  # fmt: skip
    hint, fix = "", None
    if wanted.sort in ("int", "float") and isinstance(at, ast.ListExpr) and len(at.items) == 1:
        hint, fix = "remove the brackets", Fix(at.span, print_expr(at.items[0]))
    elif wanted.sort == "ints" and found.sort == "int" and isinstance(at, ast.Expr):
        hint, fix = "enclose it in brackets", Fix(at.span, f"[{print_expr(at)}]")
    elif found.is_tensor:
        hint = "read the contents of a constant with `scalar(..)` or `ints(..)`"
    context.problem(
        "wrong-attribute", f"`{name}` of `{op}` must be {kind}; this is {describe(found)}", at.span, hint=hint, fix=fix
    )


def fits(wanted: Value, found: Value) -> bool:
    """Return whether a value may be an attribute of a sort, or be equal to one."""
    if found.sort in ("any", "none", "contents"):
        return True
    match wanted.sort:
        case "int":
            return (found.is_number and not (found.sort == "float" and found.fraction)) or found.sort == "dtype"
        case "dtype":
            return found.sort in ("dtype", "int", "number", "dim")
        case "float":
            return found.is_number
        case "string":
            return found.sort == "string"
        case "ints" | "floats" | "strings":
            items = found.items if found.items is not None else [found.element] if found.element else []
            return found.is_list and all(fits(Value(wanted.sort[:-1]), item) for item in items)
        case "tensor":
            return found.sort not in ("string", "dtype", "operator", "rest")
    return True


def member(context: Context, several: Tensor) -> Tensor:
    """Return one of several outputs of an operator: they share rank and element type, but not dims."""
    return Tensor(several.dtype, Shape(several.rank))


def output(context: Context, call: ast.Call, outputs: list[Tensor], at: int, index: ast.Syntax) -> Tensor:
    """Return the output with a given number."""
    schema = context.schema(call.head)
    if schema is None or not schema.outputs:
        return context.tensor()
    last = schema.outputs[-1]
    if 0 <= at < len(outputs) and not schema.outputs[at].variadic:
        return outputs[at]
    if last.variadic:
        return member(context, outputs[-1])
    count = len(outputs)
    message = f"output {at} is out of range: `{call.head}` has {count} output{'s' * (count != 1)}"
    context.problem("wrong-output", message, index.span)
    return context.tensor()
