"""The functions of the language: the sorts they take and give, and what must hold so that they can be computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import ast
from ..builtins import functions
from ..diagnostics import Label
from .context import Context, Operand
from .linear import Linear
from .terms import DTypes, Origin, Tensor
from .type import INTEGERS
from .values import NUMERIC, Value, said, unknown

Arguments = Sequence[tuple[Value, ast.Expr]]

_CONTENTS = ("scalar", "values", "uniform", "splat", "min_value", "max_value", "is_iota", "positive")
"""Functions that need the contents of a constant."""
_ELEMENTWISE = {"abs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "floor": "Floor", "ceil": "Ceil"}


def call(context: Context, expr: ast.Call, arguments: Arguments, proving: bool) -> Value:
    """The value of a library function."""
    function = functions().get(expr.head)
    if function is None:
        return unknown()
    for i, (value, at) in enumerate(arguments):
        last = function.parameters[-1] if function.parameters else None
        parameter = function.parameters[i] if i < len(function.parameters) else last
        if parameter is not None and not _takes(parameter.sort, value):
            hint = function.signature
            if value.sort == "tensor" and parameter.sort in ("ints", "dims", "list"):
                hint = "`ints(..)` or `dims(..)` takes the contents of a tensor"
            message = f"`{expr.head}` asks for {_wanted(parameter.sort)} here; this is {said(value)}"
            context.problem("wrong-argument", message, at.span, hint=hint)
    if expr.head in _SPECIAL and arguments:
        return _SPECIAL[expr.head](context, expr, arguments)
    if expr.head in _ELEMENTWISE and arguments:
        return _elementwise(context, expr, arguments, proving)
    if expr.head in _CONTENTS and arguments:
        contents(context, *arguments[0])
    return context.of_sort(function.result)


def _wanted(sort: str) -> str:
    names = {"int": "an integer", "ints": "a list of integers", "dims": "a list of dims", "list": "a list"}
    return names.get(sort, f"an {sort}" if sort[0] in "aeiou" else f"a {sort}")


def _takes(sort: str, value: Value) -> bool:
    found = value.sort
    if found in ("any", "contents") or sort in ("any", "graph"):
        return True
    if sort == "tensor":
        return found in ("tensor", "tensors") or found in NUMERIC or value.is_list or found == "none"
    if sort in ("int", "dim", "number"):
        return found in NUMERIC and not (sort in ("int", "dim") and value.fraction)
    if sort == "dtype":
        return found in ("dtype", "int", "number")
    if sort in ("ints", "dims", "numbers", "list"):
        return value.is_list or found == "tensors"
    if sort in ("string", "operator", "bool"):
        return found == sort
    return True


def contents(context: Context, value: Value, at: ast.Syntax) -> None:
    """Note that the contents of a tensor must be known, as only those of a constant are."""
    tensor = value.tensor
    if tensor is None or not context.certain:
        return
    if tensor.const is False and tensor.const_origin is not None:
        label = Label(tensor.const_origin.span, "but it is no constant")
        context.problem("const-conflict", "the contents of this are never known", at.span, label)
    elif tensor.const is None:
        tensor.const, tensor.const_origin = True, Origin(at.span, "its contents are needed")


# --- functions with a result of their own


def _tensor(arguments: Arguments) -> Tensor | None:
    return arguments[0][0].tensor if arguments[0][0].sort == "tensor" else None


def _call_shape(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    tensor = _tensor(arguments)
    if tensor is None:
        return context.of_sort("dims")
    return Value("dims", length=tensor.shape.end().rank, element=context.of_sort("dim"), shape=tensor.shape)


def _call_rank(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    tensor = _tensor(arguments)
    return context.of_sort("int") if tensor is None else Value("int", number=tensor.shape.end().rank)


def _call_dim(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    tensor = _tensor(arguments)
    place = arguments[1][0].number if len(arguments) > 1 else None
    known = context.shapes.store.resolve(place).known if place is not None else None
    if tensor is None or known is None or not context.certain:
        return context.of_sort("dim")
    out = context.of_sort("dim")
    with context.attempt(expr.span, arguments[0][0].text or ""):
        out.number = context.shapes.dim(tensor.shape, known, Origin(expr.span, "this dim is asked for"))
    return out


def _call_dtype(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    tensor = _tensor(arguments)
    return Value("dtype", dtype=tensor.dtype if tensor is not None else DTypes())


def _call_ints(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = context.of_sort("ints" if expr.head == "ints" else "dims")
    tensor = _tensor(arguments)
    if tensor is not None and context.certain:
        with context.attempt(arguments[0][1].span, arguments[0][0].text or ""):
            tensor.dtype.narrow(INTEGERS, Origin(expr.span, f"`{expr.head}` takes integers"))
            context.shapes.at_most(tensor.shape, 1, Origin(expr.span, f"`{expr.head}` takes a list"))
        dims = context.shapes.dims(tensor.shape)
        if dims:
            out.length = dims[0]
    elif arguments[0][0].is_list:
        return arguments[0][0]
    return out


_call_dims = _call_ints


def _call_len(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    length = arguments[0][0].length
    return Value("int", number=length if length is not None else context.shapes.store.fresh())


def _call_range(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = context.of_sort("ints")
    low, high = (arguments[0][0].number, arguments[1][0].number) if len(arguments) == 2 else (None, None)
    if low is not None and high is not None:
        gap = high.plus(low, -1)
        least = context.shapes.store.bounds(gap)[0]
        if least is not None and least >= 0:
            out.length = gap
    return out


def _same_length(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    first = arguments[0][0]
    element = first.element if first.items is None else None
    kind = first.sort if first.is_list else "list"
    loose = Value(element.sort, element=element.element) if element is not None else unknown()
    return Value(kind, length=first.length or context.shapes.store.fresh(), element=loose)


_call_reverse = _call_sorted = _call_inverse_perm = _call_set_at = _call_enumerate = _same_length


def _call_take(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = _same_length(context, expr, arguments)
    second = arguments[1][0] if len(arguments) > 1 else unknown()
    return Value(out.sort, length=second.length or context.shapes.store.fresh(), element=out.element)


def _call_compose_perm(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    return _same_length(context, expr, arguments[1:] or arguments)


def _call_repeat(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    count = arguments[1][0].number if len(arguments) > 1 else None
    return Value("list", length=count or context.shapes.store.fresh(None), element=Value(arguments[0][0].sort))


def _call_swap_perm(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    count = arguments[0][0].number
    return Value("ints", length=count or context.shapes.store.fresh(), element=context.integer())


def _loose_list(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    return Value("list", length=context.shapes.store.fresh(), element=unknown())


_call_drop = _call_slice = _call_unique = _call_flatten = _call_zip = _loose_list


def _any_number(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    if any(v.sort in ("tensor", "contents", "any") for v, _ in arguments):
        for value, at in arguments:
            if value.sort == "tensor" and expr.head in ("min", "max"):
                contents(context, value, at)
        return Value("contents")
    return Value("number")


_call_min = _call_max = _call_sum = _any_number


def _call_scalar(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    contents(context, *arguments[0])
    return Value("number")


def _elementwise(context: Context, expr: ast.Call, arguments: Arguments, proving: bool) -> Value:
    value, at = arguments[0]
    if value.sort == "tensor":
        if proving:
            contents(context, value, at)
            return Value("contents")
        op = _ELEMENTWISE[expr.head]
        operand = Operand(value, at.span)
        return Value("tensor", tensor=context.apply(op, [operand], {}, expr.span, is_open=False, pattern=False)[0])
    return Value("number") if value.is_number else unknown()


def _call_expand_dims(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    value, _ = arguments[0]
    out = context.tensor()
    if value.sort != "tensor" or value.tensor is None or len(arguments) < 2:
        return Value("tensor", tensor=out)
    out.dtype = value.tensor.dtype
    axes = arguments[1][0]
    length = Linear(1) if axes.is_number else axes.length
    if length is not None and context.certain:
        with context.attempt(expr.span):
            wanted = value.tensor.shape.end().rank.plus(length)
            context.shapes.equal_rank(out.shape, wanted, Origin(expr.span, "expanded here"))
    return Value("tensor", tensor=out)


def _call_reshape(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    value, _ = arguments[0]
    out = context.tensor()
    if value.sort == "tensor" and value.tensor is not None:
        out.dtype = value.tensor.dtype
    if len(arguments) > 1:
        _shaped(context, out, arguments[1][0], expr)
    return Value("tensor", tensor=out)


def _shaped(context: Context, out: Tensor, dims: Value, expr: ast.Call) -> None:
    """Give a tensor the dims in a list."""
    if not context.certain:
        return
    origin = Origin(expr.span, "made here")
    with context.attempt(expr.span):
        if dims.shape is not None:
            context.shapes.unify(out.shape, dims.shape, origin)
        elif dims.length is not None:
            context.shapes.equal_rank(out.shape, dims.length, origin)
            for place, item in enumerate(dims.items or ()):
                known = context.shapes.store.resolve(item.number).known if item.number is not None else None
                if item.number is not None and (known is None or known >= 0):
                    context.shapes.equal_dim(context.shapes.dim(out.shape, place, origin), item.number, origin)


def _typed(context: Context, out: Tensor, arguments: Arguments, place: int) -> None:
    if len(arguments) > place and arguments[place][0].dtype is not None:
        node = arguments[place][0].dtype
        assert node is not None
        out.dtype = node


def _call_const(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = context.literal(arguments[0][0], pattern=False)
    fraction = out.dtype.allowed
    _typed(context, out, arguments, 1)
    if fraction is not None:
        with context.attempt(arguments[0][1].span, "this constant"):
            out.dtype.narrow(fraction, Origin(arguments[0][1].span, "a number with a fraction"))
    return Value("tensor", tensor=out)


def _call_like(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = context.literal(arguments[0][0], pattern=False)
    if len(arguments) > 1 and arguments[1][0].tensor is not None:
        out.dtype = arguments[1][0].tensor.dtype
    return Value("tensor", tensor=out)


def _call_full(context: Context, expr: ast.Call, arguments: Arguments) -> Value:
    out = context.tensor()
    out.const = None
    if arguments[0][0].is_list:
        _shaped(context, out, arguments[0][0], expr)
        place = 2 if expr.head == "full" else 1
        _typed(context, out, arguments, place)
        if len(arguments) <= place:
            out.dtype.allowed = frozenset(("f32",))
            out.dtype.origin = Origin(expr.span, f"`{expr.head}` makes f32 unless it is told otherwise")
    return Value("tensor", tensor=out)


_call_zeros = _call_ones = _call_full


_SPECIAL: dict[str, Callable[[Context, ast.Call, Arguments], Value]] = {
    name.removeprefix("_call_"): function for name, function in list(globals().items()) if name.startswith("_call_")
}


# --- arithmetic and lists


def arithmetic(context: Context, operator: str, values: list[Value]) -> Value:
    """Arithmetic of numbers and dims."""
    numbers = [v.number for v in values]
    whole = all(v.sort in ("int", "dim") for v in values)
    sort = "dim" if any(v.sort == "dim" for v in values) else "int"
    if operator == "Neg" and whole and numbers[0] is not None:
        return Value("int", number=numbers[0].times(-1))
    if whole and len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
        left, right = (context.shapes.store.resolve(n) for n in (numbers[0], numbers[1]))
        if operator in "+-":
            return Value(sort, number=left.plus(right, 1 if operator == "+" else -1))
        if operator == "*" and (left.known is not None or right.known is not None):
            product = right.times(left.known) if left.known is not None else left.times(right.known or 0)
            return Value(sort, number=product)
        if operator in ("*", "%", "/"):
            return Value(sort, number=context.shapes.store.fresh(None))
    return Value("number")


def joined(context: Context, operator: str, values: list[Value], expr: ast.Syntax, parts: Sequence[ast.Expr]) -> Value:
    """`+` of two lists."""
    for value, part in zip(values, parts, strict=True):
        if not value.is_list:
            context.problem(
                "wrong-operand", f"`+` joins lists; this is {said(value)}", part.span, hint="put it into brackets"
            )
            return unknown()
    left, right = values
    if left.items is not None and right.items is not None:
        items = left.items + right.items
        return Value("list", length=Linear(len(items)), items=items, element=items[0] if items else None)
    length = None
    if left.length is not None and right.length is not None:
        length = left.length.plus(right.length)
    element = left.element if left.element and right.element and left.element.sort == right.element.sort else None
    loose = Value(element.sort) if element is not None else unknown()
    return Value("list", length=length or context.shapes.store.fresh(), element=loose)


def element(context: Context, base: Value, index: Value, expr: ast.Subscript) -> Value:
    """`l[i]`."""
    store = context.shapes.store
    known = store.resolve(index.number).known if index.number is not None else None
    if known is not None and base.length is not None and context.certain:
        needed = known + 1 if known >= 0 else -known
        if not store.at_least(base.length, needed):
            low, high = store.bounds(base.length)
            count = str(high) if low == high else f"at most {high}"
            context.problem("wrong-operand", f"there is no element {known} in a list of {count}", expr.span)
            return unknown()
    if base.shape is not None and known is not None and context.certain:
        out = context.of_sort("dim")
        with context.attempt(expr.span):
            out.number = context.shapes.dim(base.shape, known, Origin(expr.span, "asked for here"))
        return out
    if base.items is not None and known is not None and -len(base.items) <= known < len(base.items):
        return base.items[known]
    found = base.element if base.items is None else None
    if found is None:
        return unknown()
    if found.sort in ("int", "dim"):
        return Value(found.sort, number=store.fresh(None if found.sort == "int" else 0))
    return Value(found.sort, element=found.element, tensor=None) if found.sort != "tensor" else unknown()
