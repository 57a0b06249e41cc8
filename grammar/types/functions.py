"""Library functions: the sorts that they take and return, and the facts that they require."""

from __future__ import annotations

from collections.abc import Sequence

from ..builtins import functions
from ..diagnostics import Label
from ..syntax import ast
from .context import Context, Operand
from .linear import Linear
from .terms import READ_CONTENTS, DTypes, Shape, Tensor, Value, describe, list_of, place_count, unknown
from .type import INTEGERS

Arguments = Sequence[tuple[Value, ast.Expr]]

_CONTENTS = ("scalar", "values", "uniform", "repeats", "splat", "min_value", "max_value", "is_iota", "positive")
"""Functions that read the contents of a constant."""


def call(context: Context, expr: ast.Call, arguments: Arguments, proving: bool) -> Value:
    """Return the value of a library function; report arguments of the wrong sort."""
    function = functions().get(expr.head)
    if function is None:
        return unknown()
    for i, (value, at) in enumerate(arguments):
        wanted = function.parameters[min(i, len(function.parameters) - 1)].sort
        if not _takes(wanted, value):
            hint = function.signature
            if value.sort == "tensor" and wanted in ("ints", "dims", "list"):
                hint = READ_CONTENTS
            message = f"`{expr.head}` needs {_wanted(wanted)} here; this is {describe(value)}"
            context.problem("wrong-argument", message, at.span, hint=hint)
    found = _result(context, expr, arguments, proving) if arguments else None
    return found or context.of_sort(function.result)


def _wanted(sort: str) -> str:
    names = {"int": "an integer", "ints": "a list of integers", "dims": "a list of dims", "list": "a list"}
    return names.get(sort, f"an {sort}" if sort[0] in "aeiou" else f"a {sort}")


def _takes(sort: str, value: Value) -> bool:
    found = value.sort
    if found in ("any", "contents"):
        return True
    match sort:
        case "tensor":
            return value.is_tensor or value.is_number or value.is_list or found == "none"
        case "int" | "dim" | "number":
            return value.is_number and not (sort != "number" and value.fraction)
        case "dtype":
            return found in ("dtype", "int", "number")
        case "ints" | "dims" | "numbers" | "list":
            return value.is_list or found == "tensors"
        case "string" | "operator" | "bool":
            return found == sort
    return True


def contents(context: Context, value: Value, at: ast.Syntax) -> None:
    """Require a tensor to be a constant: the contents of others are unknown."""
    tensor = value.tensor
    if tensor is None or not context.certain:
        return
    if tensor.const is False and tensor.const_origin is not None:
        label = Label(tensor.const_origin.span, "it is not a constant")
        context.problem("const-conflict", "the contents of this tensor are never known", at.span, label)
    elif tensor.const is None:
        tensor.const, tensor.const_origin = True, Label(at.span, "its contents are read here")


# --- functions whose result depends on their arguments


def _result(context: Context, expr: ast.Call, arguments: Arguments, proving: bool) -> Value | None:
    """Return the result of a function where more than its sort follows from the arguments."""
    first, at = arguments[0]
    second = arguments[1][0] if len(arguments) > 1 else unknown()
    tensor = first.tensor if first.sort == "tensor" else None
    match expr.head:
        case "shape" if tensor:
            return Value("dims", length=tensor.rank, element=context.of_sort("dim"), shape=tensor.shape)
        case "rank" if tensor:
            return Value("int", number=tensor.rank)
        case "dim" if tensor and context.certain and (place := context.known(second)) is not None:
            return _dim(context, tensor.shape, place, Label(expr.span, "this dim is read here"), first.text)
        case "dtype" if tensor:
            return Value("dtype", dtype=tensor.dtype)
        case "ints" | "dims" if first.is_list:
            return first
        case "ints" | "dims" if tensor and context.certain:
            return _contents_as_list(context, expr, first, tensor, at)
        case "len":
            return Value("int", number=first.length or context.fresh())
        case "range" if len(arguments) == 2:
            return integers(context, first, second)
        case "reverse" | "sorted" | "inverse_perm" | "set_at" | "enumerate":
            return _list_like(context, first, first.length)
        case "take":
            return _list_like(context, first, second.length)
        case "compose_perm":
            permutation = second if len(arguments) > 1 else first
            return _list_like(context, permutation, permutation.length)
        case "repeat":
            return Value("list", length=second.number or context.fresh(None), element=Value(first.sort))
        case "swap_perm":
            return Value("ints", length=first.number or context.fresh(), element=context.integer())
        case "min" | "max" | "sum":
            return _aggregate(context, expr, arguments)
        case "abs" | "sqrt" | "exp" | "log" | "floor" | "ceil":
            return _elementwise(context, expr, proving, first, at)
        case "expand_dims" | "reshape":
            return _reshaped(context, expr, tensor, second)
        case "const" | "like":
            return _constant(context, expr, first, second, at)
        case "full" | "zeros" | "ones":
            return _filled(context, expr, arguments)
        case head if head in _CONTENTS:
            contents(context, first, at)
    return None


def _dim(context: Context, shape: Shape, place: int, origin: Label, subject: str | None = None) -> Value:
    """Return the dim at a place, which must exist."""
    out = context.of_sort("dim")
    with context.attempt(origin.span, subject or ""):
        out.number = context.shapes.dim(shape, place, origin)
    return out


def _contents_as_list(context: Context, expr: ast.Call, value: Value, tensor: Tensor, at: ast.Syntax) -> Value:
    out = context.of_sort(expr.head)
    with context.attempt(at.span, value.text or ""):
        tensor.dtype.restrict(INTEGERS, Label(expr.span, f"`{expr.head}` takes integers"))
        context.shapes.at_most(tensor.shape, 1, Label(expr.span, f"`{expr.head}` takes a list"))
    dims = context.shapes.dims(tensor.shape)
    if dims:
        out.length = dims[0]
    return out


def integers(context: Context, low: Value, high: Value, more: int = 0) -> Value:
    """Return the type of a list of `high - low + more` integers."""
    out = context.of_sort("ints")
    if low.number is not None and high.number is not None:
        gap = high.number.plus(low.number, -1).plus(Linear(more))
        least = context.shapes.store.bounds(gap)[0]
        if least is not None and least >= 0:
            out.length = gap
    return out


def _list_like(context: Context, value: Value, length: Linear | None) -> Value:
    """Return a list with elements of the sort of another list, or of unknown sort."""
    element = value.element if value.items is None else None
    loose = Value(element.sort, element=element.element) if element is not None else unknown()
    return Value(value.sort if value.is_list else "list", length=length or context.fresh(), element=loose)


def _aggregate(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    for value, at in arguments:
        if value.sort == "tensor" and expr.head in ("min", "max"):
            contents(context, value, at)
    return Value("contents" if any(v.sort in ("tensor", "contents", "any") for v, _ in arguments) else "number")


def _elementwise(context: Context, expr: ast.Call, proving: bool, value: Value, at: ast.Syntax) -> Value:
    if value.sort == "tensor" and proving:
        contents(context, value, at)
        return Value("contents")
    if value.sort == "tensor":
        operands = [Operand(value, at.span)]
        return Value("tensor", tensor=context.apply(expr.head.capitalize(), operands, expr.span)[0])
    return Value("number") if value.is_number else unknown()


def _reshaped(context: Context, expr: ast.Call, tensor: Tensor | None, to: Value) -> Value:
    """Return the tensor with axes inserted, or with the dims in `to`."""
    out = context.tensor()
    if expr.head == "reshape":
        out.dtype = tensor.dtype if tensor else out.dtype
        _shaped(context, out, to, expr)
    elif tensor:
        out.dtype = tensor.dtype
        length = Linear(1) if to.is_number else to.length
        if length is not None and context.certain:
            with context.attempt(expr.span):
                context.shapes.equal_rank(out.shape, tensor.rank.plus(length), Label(expr.span, "expanded here"))
    return Value("tensor", tensor=out)


def _shaped(context: Context, out: Tensor, dims: Value, expr: ast.Call) -> None:
    """Give a tensor the dims of a list."""
    if not context.certain:
        return
    origin = Label(expr.span, "built here")
    with context.attempt(expr.span):
        if dims.shape is not None:
            context.shapes.unify(out.shape, dims.shape, origin)
        elif dims.length is not None:
            context.shapes.equal_rank(out.shape, dims.length, origin)
            for place, item in enumerate(dims.items or ()):
                if item.number is not None and (context.known(item) or 0) >= 0:
                    context.shapes.equal_dim(context.shapes.dim(out.shape, place, origin), item.number, origin)


def _constant(context: Context, expr: ast.Call, value: Value, like: Value, at: ast.Syntax) -> Value:
    """Return a literal with the element type that is given, or that of a tensor."""
    out = context.literal(value, pattern=False)
    fraction = out.dtype.allowed
    if expr.head == "like":
        out.dtype = like.tensor.dtype if like.tensor is not None else out.dtype
        return Value("tensor", tensor=out)
    out.dtype = like.dtype or out.dtype
    with context.attempt(at.span, "this constant"):
        out.dtype.restrict(fraction, Label(at.span, "a number with a fraction"))
    return Value("tensor", tensor=out)


def _filled(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = context.tensor()
    dims = arguments[0][0]
    if dims.is_list:
        _shaped(context, out, dims, expr)
        place = 2 if expr.head == "full" else 1
        if len(arguments) <= place:
            out.dtype = DTypes(frozenset(("f32",)), Label(expr.span, f"`{expr.head}` defaults to f32"))
        else:
            out.dtype = arguments[place][0].dtype or out.dtype
    return Value("tensor", tensor=out)


# --- arithmetic and lists


def arithmetic(context: Context, operator: str, values: list[Value]) -> Value:
    """Return the result of arithmetic on numbers and dims."""
    store = context.shapes.store
    sort = "dim" if any(v.sort == "dim" for v in values) else "int"
    numbers = [store.resolve(v.number) for v in values if v.number is not None and v.sort in ("int", "dim")]
    match operator, numbers:
        case "Neg", [number]:
            return Value("int", number=number.times(-1))
        case "+" | "-", [left, right]:
            return Value(sort, number=left.plus(right, 1 if operator == "+" else -1))
        case "*", [Linear(known=int() as factor), other] | [other, Linear(known=int() as factor)]:
            return Value(sort, number=other.times(factor))
        case "*" | "%" | "/", [_, _]:
            return Value(sort, number=store.fresh(None))
    return Value("number")


def concatenate(context: Context, values: list[Value], parts: Sequence[ast.Expr]) -> Value:
    """Return the concatenation of two lists, written `+`."""
    for value, part in zip(values, parts, strict=True):
        if not value.is_list:
            message = f"`+` concatenates lists; this is {describe(value)}"
            context.problem("wrong-operand", message, part.span, hint="enclose it in brackets")
            return unknown()
    left, right = values
    if left.items is not None and right.items is not None:
        return list_of(left.items + right.items)
    length = left.length.plus(right.length) if left.length and right.length else context.fresh()
    same = left.element and right.element and left.element.sort == right.element.sort
    return Value("list", length=length, element=Value(left.element.sort) if same and left.element else unknown())


def element(context: Context, base: Value, index: Value, expr: ast.Subscript) -> Value:
    """Return the type of `l[i]`."""
    known, store = context.known(index), context.shapes.store
    if known is not None and base.length is not None and context.certain:
        if not store.at_least(base.length, place_count(known)):
            low, high = store.bounds(base.length)
            count = str(high) if low == high else f"at most {high}"
            message = f"the index {known} is out of range: the list has {count} elements"
            context.problem("wrong-operand", message, expr.span)
            return unknown()
    if base.shape is not None and known is not None and context.certain:
        return _dim(context, base.shape, known, Label(expr.span, "read here"))
    if base.items is not None:
        inside = known is not None and -len(base.items) <= known < len(base.items)
        return base.items[known] if inside and known is not None else unknown()
    match base.element:
        case Value(sort="int" | "dim" as sort):
            return context.of_sort(sort)
        case None | Value(sort="tensor"):
            return unknown()
        case found:
            return Value(found.sort, element=found.element)
