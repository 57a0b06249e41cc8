"""Right sides, conditions and definitions: the value of an expression and the facts that it requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from ..builtins import DTYPES
from ..diagnostics import Label
from ..syntax import ast
from ..syntax.scope import free_names, indices_in, is_word
from . import comparisons, functions
from .context import MAX_DEPTH, Context, Operand
from .linear import Linear
from .operator_calls import INFIX, check_attribute, class_head, combine, member, output, required
from .terms import READ_CONTENTS, DTypes, Shape, Tensor, Value, describe, elements_named, list_of, unknown
from .type import CLASSES

_WORDS = {
    **dict.fromkeys(("true", "false"), Value("bool")),
    **dict.fromkeys(("inf", "nan", "pi"), Value("float", fraction=True)),
    "none": Value("none"),
}


def evaluate(context: Context, expr: ast.Syntax, *, proving: bool = False) -> Value:
    """Return the type of an expression; with `proving`, a tensor in arithmetic stands for its contents."""
    match expr:
        case ast.Each(value=value):
            return evaluate(context, value, proving=proving)
        case ast.Conditional():
            return _conditional(context, expr, proving)
        case ast.Number(value=value):
            if isinstance(value, int):
                return context.integer(value)
            return Value("float", fraction=True)  # `2.0` is not an integer constant either
        case ast.String(value=text):
            return Value("string", text=text)
        case ast.Name(id=name):
            return _name(context, name, expr)
        case ast.ListExpr():
            return _list(context, expr, proving)
        case ast.Range(low=low, high=high):
            ends = [evaluate(context, e, proving=proving) for e in (low, high)]
            return functions.integers(context, ends[0], ends[1], more=1)
        case ast.Comprehension():
            return _comprehension(context, expr, proving)
        case ast.Unary(operator="not", operand=operand):
            evaluate(context, operand, proving=proving)
            return Value("bool")
        case ast.Unary(operand=operand):
            return _arithmetic(context, "Neg", expr, [operand], proving)
        case ast.Binary(operator="and" | "or" as operator, left=left, right=right):
            evaluate(context, left, proving=proving)
            with context.perhaps() if operator == "or" else nullcontext():
                evaluate(context, right, proving=proving)
            return Value("bool")
        case ast.Binary(operator=operator, left=left, right=right):
            return _arithmetic(context, operator, expr, [left, right], proving)
        case ast.Compare(left=left) if expr.form is not None:
            evaluate(context, left, proving=proving)
            return Value("bool")
        case ast.Compare():
            return comparisons.compare(context, expr, *_sides(context, expr, proving))
        case ast.Subscript():
            return _subscript(context, expr, proving)
        case ast.Call() if expr.is_operator or _is_head(context, expr):
            return Value("tensor", tensor=_call(context, expr)[0])
        case ast.Call():
            arguments = [(evaluate(context, a, proving=proving), a) for a in expr.args]
            return functions.call(context, expr, arguments, proving)
    for child in expr.children():  # an unknown form may or may not evaluate its parts
        with context.perhaps():
            evaluate(context, child, proving=proving)
    return unknown()


def _conditional(context: Context, expr: ast.Conditional, proving: bool) -> Value:
    """Return the type of `(a if c else b)`; only the condition is certainly evaluated."""
    evaluate(context, expr.condition, proving=True)
    with context.perhaps():
        found = [evaluate(context, branch, proving=proving) for branch in (expr.then, expr.otherwise)]
    if all(v.sort == "tensor" for v in found):
        return Value("tensor", tensor=context.tensor())
    return Value(found[0].sort) if found[0].sort == found[1].sort and found[0].is_number else unknown()


def _is_head(context: Context, call: ast.Call) -> bool:
    found = context.env.get(call.head)
    return found is not None and found.sort == "operator"


def _name(context: Context, name: str, at: ast.Name) -> Value:
    if name in context.env:
        return context.env[name]
    if name in DTYPES:
        return elements_named(name, at.span)
    if name in _WORDS:
        return replace(_WORDS[name])
    if name in context.lets:
        key = (name, context.certain)
        if key not in context.done:
            context.done[key] = unknown()  # a cyclic `let` is already reported
            context.done[key] = evaluate(context, context.lets[name])
        return context.done[key]
    return unknown()


def _list(context: Context, expr: ast.ListExpr, proving: bool) -> Value:
    items = [evaluate(context, item, proving=proving) for item in expr.items]
    if any(_stands_for_many(context, item) for item in expr.items):
        return context.several(items[0] if len(items) == 1 else unknown())
    return list_of(items)


def _stands_for_many(context: Context, item: ast.Expr) -> bool:
    """Return whether an item of a list is one for each member of a group."""
    in_group = any(n.id in context.indices for n in free_names(item))
    return ast.is_many(item) or in_group or any(name not in context.env for name in indices_in(item))


def _comprehension(context: Context, expr: ast.Comprehension, proving: bool) -> Value:
    over = evaluate(context, expr.iterable, proving=proving)
    if over.is_number or over.sort in ("string", "dtype", "operator", "rest", "none", "tensor"):
        hint = READ_CONTENTS if over.sort == "tensor" else ""
        context.problem("wrong-argument", f"this must be a list; it is {describe(over)}", expr.iterable.span, hint=hint)
    element = over.element if over.items is None else over.items[0] if len({i.sort for i in over.items}) == 1 else None
    element = element or unknown()
    loose = Value(element.sort, tensor=element.tensor, element=element.element)
    if element.sort in ("int", "dim"):
        loose.number = context.of_sort(element.sort).number
    if element.dtype is not None:
        loose.dtype = DTypes()
    outside = context.env
    context.env = {**outside, expr.variable: loose}
    with context.perhaps():
        item = evaluate(context, expr.item, proving=proving)
        if expr.condition is not None:
            evaluate(context, expr.condition, proving=proving)
    context.env = outside
    length = over.length if expr.condition is None else None
    return Value("list", length=length or context.fresh(), element=Value(item.sort, element=item.element))


def _arithmetic(context: Context, operator: str, expr: ast.Syntax, parts: list[ast.Expr], proving: bool) -> Value:
    values = [evaluate(context, p, proving=proving) for p in parts]
    tensors = [v for v in values if v.sort == "tensor"]
    wrong = next(((v, p) for v, p in zip(values, parts, strict=True) if not _computes(v, operator)), None)
    if wrong is not None:
        sign = "-" if operator == "Neg" else operator
        context.problem("wrong-operand", f"`{sign}` cannot be applied to {describe(wrong[0])}", wrong[1].span)
        return unknown()
    if any(v.sort == "any" for v in values):
        return unknown()
    if tensors and not proving:
        op = INFIX.get(operator, operator)
        operands = [Operand(v, p.span) for v, p in zip(values, parts, strict=True)]
        return Value("tensor", tensor=apply(context, op, operands, expr.span)[0])
    if tensors or any(v.sort == "contents" for v in values):
        for value, part in zip(values, parts, strict=True):
            if value.sort == "tensor":
                functions.contents(context, value, part)
        return Value("contents")
    if any(v.is_list for v in values):
        return functions.concatenate(context, values, parts)
    return functions.arithmetic(context, operator, values)


def _computes(value: Value, operator: str) -> bool:
    if value.sort in ("string", "dtype", "operator", "rest", "none", "tensors"):
        return False
    return not value.is_list or operator == "+"


def _sides(context: Context, expr: ast.Compare, proving: bool) -> tuple[Value, Value]:
    return evaluate(context, expr.left, proving=proving), evaluate(context, expr.right, proving=proving)


def _subscript(context: Context, expr: ast.Subscript, proving: bool) -> Value:
    if isinstance(expr.base, ast.Call) and (expr.base.is_operator or _is_head(context, expr.base)):
        outputs = _call(context, expr.base)
        if isinstance(expr.index, ast.All):
            return Value("tensors", tensor=member(context, outputs[-1]) if len(outputs) == 1 else context.tensor())
        if isinstance(expr.index, ast.Number) and expr.base.is_operator:
            found = output(context, expr.base, outputs, int(expr.index.value), expr.index)
            return Value("tensor", tensor=found)
        return Value("tensor", tensor=context.tensor())
    base = evaluate(context, expr.base, proving=proving)
    if isinstance(expr.index, ast.All):
        return base
    index = evaluate(context, expr.index, proving=proving)
    if base.sort == "tensors":
        if isinstance(expr.index, ast.Name) and expr.index.id in context.indices:
            return Value("tensor", tensor=base.tensor, text=base.text)
        return Value("tensor", tensor=context.tensor())
    if not base.is_list and base.sort != "any":
        hint = READ_CONTENTS if base.sort == "tensor" else ""
        context.problem("wrong-operand", f"`[ ]` indexes a list; this is {describe(base)}", expr.span, hint=hint)
    elif base.is_list and (index.sort in ("tensor", "string", "dtype", "none") or index.is_list):
        message = f"an index must be an integer; this is {describe(index)}"
        context.problem("wrong-operand", message, expr.index.span)
    elif base.is_list:
        return functions.element(context, base, index, expr)
    return unknown()


def _call(context: Context, call: ast.Call) -> list[Tensor]:
    """Return the outputs of an operator that is built."""
    operands = []
    for arg in call.args:
        value = evaluate(context, arg)
        if isinstance(arg, ast.Name) and value.text is None and value.sort == "tensor":
            value = Value("tensor", tensor=value.tensor, text=f"`{arg.id}`")
        operands.append(Operand(value, arg.span, ast.is_many(arg)))
    attributes = {}
    head = _is_head(context, call)
    for attribute in call.attributes:
        found = evaluate(context, attribute.value)
        if not head:
            wanted = context.attribute(call.head, attribute.name)
            check_attribute(context, call.head, attribute.name, wanted, found, attribute.value)
            attributes[attribute.name] = combine(wanted, found)
    if head:
        return class_head(context, "", operands, call)
    declared = context.declared.get(call.head)
    if declared is not None and context.schema(call.head) is None:
        return _declared(context, declared, operands, attributes, call.span)
    required(context, call)
    return apply(context, call.head, operands, call.span, attributes, is_open=call.rest is not None)


def apply(
    context: Context,
    op: str,
    operands: Sequence[Operand],
    span: ast.Span,
    attributes: Mapping[str, Value] | None = None,
    *,
    is_open: bool = False,
    pattern: bool = False,
) -> list[Tensor]:
    """Return the outputs of an operator, by its schema or else by the types that its `op` declares."""
    if context.schema(op) is None:
        return declared_outputs(context, op, operands, span)
    return context.apply(op, operands, span, attributes, is_open=is_open, pattern=pattern)


def _declared(
    context: Context, op: ast.Op, operands: list[Operand], attributes: dict[str, Value], span: ast.Span
) -> list[Tensor]:
    """Return the outputs of an operator of a rule file, by its definition."""
    simple = op.definition is not None and not any(p.variadic for p in op.params or ())
    if op.results or not simple or context.depth >= MAX_DEPTH or any(o.starred for o in operands):
        return declared_outputs(context, op.name, operands, span)
    assert op.definition is not None
    inner = context.inside()
    inner.depth += 1
    values = (operand.value for operand in operands)
    for param in op.params or ():
        is_input = param.attribute is None  # an attribute may be one of `..a`
        inner.env[param.name] = next(values, unknown()) if is_input else attributes.get(param.name, unknown())
    result = evaluate(inner, op.definition)
    return [result.tensor if result.sort == "tensor" and result.tensor else context.tensor()]


def declared_outputs(context: Context, name: str, operands: Sequence[Operand], span: ast.Span) -> list[Tensor]:
    """Return the outputs of an operator without a schema, by the types that its `op` declares."""
    op = context.declared.get(name)
    if op is None or not op.results or not context.certain:
        return [context.tensor()]
    inner = context.inside()
    names = dict(context.shapes.store.names)
    inputs = [p for p in op.params or () if p.attribute is None]
    for param, operand in zip(inputs, operands, strict=False):
        if param.variadic or operand.starred:
            break
        if param.type is not None and operand.value.sort == "tensor" and operand.value.tensor is not None:
            declare(inner, operand.value.tensor, param.type, operand.value.text or "this input", operand.span)
    outputs = []
    for result in op.results:
        outputs.append(context.tensor())
        declare(inner, outputs[-1], result, f"the result of `{name}`", span)
    context.shapes.store.names = names  # names of dims are local to the operator
    return outputs


def assume(context: Context, condition: ast.Expr, truth: bool = True) -> None:
    """Add the facts that follow from a condition that holds (or does not)."""
    match condition:
        case ast.Binary(operator="and" | "or" as operator, left=left, right=right):
            if (operator == "and") is truth:
                assume(context, left, truth)
                assume(context, right, truth)
                return
            evaluate(context, condition, proving=True)
        case ast.Unary(operator="not", operand=operand):
            assume(context, operand, not truth)
        case ast.Compare(left=left) if condition.form is not None:
            evaluate(context, left, proving=True)
        case ast.Compare():
            sides = _sides(context, condition, True)
            comparisons.compare(context, condition, *sides)
            comparisons.relate(context, condition, *sides, truth)
        case ast.Call() if not condition.is_operator:
            arguments = [(evaluate(context, a, proving=True), a) for a in condition.args]
            value = functions.call(context, condition, arguments, True)
            comparisons.imply(context, condition, arguments, truth)
            _is_condition(context, value, condition)
        case _:
            _is_condition(context, evaluate(context, condition, proving=True), condition)


def _is_condition(context: Context, value: Value, condition: ast.Expr) -> None:
    if value.sort not in ("bool", "any", "contents", "number"):  # a number may be an element of a boolean tensor
        message = f"a condition must be true or false; this is {describe(value)}"
        context.problem("not-a-condition", message, condition.span)


def given(context: Context, clause: ast.Given) -> None:
    """Constrain tensors to the type of a `given` clause."""
    for target in clause.targets:
        value = context.env.get(target.name)
        if value is not None and value.tensor is not None:
            declare(context, value.tensor, clause.type, f"`{target.name}`", target.span)


def declare(context: Context, tensor: Tensor, type_: ast.TypeExpr, subject: str, span: ast.Span) -> None:
    """Restrict a tensor to a written type."""
    origin = Label(type_.span, "declared here")
    if type_.const:
        tensor.const, tensor.const_origin = True, origin
    element = type_.element
    with context.attempt(span, subject):
        if element is not None and (element in CLASSES or element in DTYPES):
            tensor.dtype.restrict(CLASSES.get(element, frozenset((element,))), origin)
        elif element is not None and not is_word(element):
            named = context.env.setdefault(element, Value("dtype", dtype=DTypes(name=element)))
            if named.dtype is not None:
                named.dtype.unify(tensor.dtype, origin)
    if type_.shape is not None:
        with context.attempt(span, subject):
            _declare_shape(context, tensor.shape, type_.shape, origin)


def _declare_shape(
    context: Context, shape: Shape, items: tuple[ast.Expr | ast.ShapeRest | ast.AnyDim, ...], origin: Label
) -> None:
    shapes = context.shapes
    rest = next((i for i, d in enumerate(items) if isinstance(d, ast.ShapeRest)), None)
    if rest is None:
        shapes.equal_rank(shape, Linear(len(items)), origin)
    else:
        shapes.at_least(shape, len(items) - 1, origin)
        item = items[rest]
        if isinstance(item, ast.ShapeRest) and item.name is not None:
            length = shape.end().rank.plus(Linear(1 - len(items)))
            bound = context.env.setdefault(item.name, Value("dims", length=length, element=context.of_sort("dim")))
            if bound.length is not None and not shapes.store.equate(bound.length, length):
                shapes.equal_rank(shape, bound.length.plus(Linear(len(items) - 1)), origin)
    for i, item in enumerate(items):
        if isinstance(item, ast.AnyDim | ast.ShapeRest):
            continue
        place = i if rest is None or i < rest else i - len(items)
        dim = shapes.dim(shape, place, origin)
        shape.end().places.setdefault(place, Label(item.span, "declared here"))
        if isinstance(item, ast.Name) and not is_word(item.id) and item.id not in context.env:
            context.env[item.id] = Value("dim", number=dim)
            if (unknown_dim := shapes.store.resolve(dim).unknown) is not None:
                shapes.store.names.setdefault(unknown_dim, item.id)
        else:
            value = evaluate(context, item)
            if value.is_tensor or value.sort in ("string", "dtype") or value.is_list:
                context.problem("wrong-argument", f"a dim must be a number; this is {describe(value)}", item.span)
            elif value.number is not None:
                shapes.equal_dim(dim, value.number, Label(item.span, "declared here"), shape.end().places.get(place))
