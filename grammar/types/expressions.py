"""Right sides, conditions and definitions: what an expression computes, and what must hold so that it can."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ast
from ..builtins import DTYPES
from ..scope import free_names, indices_in, is_word
from . import comparisons, functions
from .context import MAX_DEPTH, Context, Operand
from .linear import Linear
from .patterns import INFIX, check_attribute, class_head, combine, member, output, required
from .terms import DTypes, Origin, Tensor
from .type import CLASSES
from .values import Value, said, unknown


def evaluate(context: Context, expr: ast.Syntax, *, proving: bool = False) -> Value:
    """The type of an expression; `proving` in conditions, where a tensor in arithmetic stands for its contents."""
    match expr:
        case ast.Each(value=value):
            return evaluate(context, value, proving=proving)
        case ast.Conditional():
            return _conditional(context, expr, proving)
        case ast.Number(value=value):
            if isinstance(value, int):
                return context.integer(value)
            return Value("float", fraction=True)  # `2.0` is no constant of integers either
        case ast.String(value=text):
            return Value("string", text=text)
        case ast.Name(id=name):
            return _name(context, name, expr)
        case ast.ListExpr():
            return _list(context, expr, proving)
        case ast.Range(low=low, high=high):
            ends = [evaluate(context, e, proving=proving) for e in (low, high)]
            length = None
            if ends[0].number is not None and ends[1].number is not None:
                gap = ends[1].number.plus(ends[0].number, -1).plus(Linear(1))
                bounds = context.shapes.store.bounds(gap)
                length = gap if bounds[0] is not None and bounds[0] >= 0 else None
            return Value("ints", length=length or context.shapes.store.fresh(), element=context.integer())
        case ast.Comprehension():
            return _comprehension(context, expr, proving)
        case ast.Unary(operator="not", operand=operand):
            evaluate(context, operand, proving=proving)
            return Value("bool")
        case ast.Unary(operand=operand):
            return _arithmetic(context, "Neg", expr, [operand], proving)
        case ast.Binary(operator="and" | "or" as operator, left=left, right=right):
            evaluate(context, left, proving=proving)
            if operator == "or":
                with context.perhaps():
                    evaluate(context, right, proving=proving)
            else:
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
    for child in expr.children():  # what this module does not know may or may not be computed
        with context.perhaps():
            evaluate(context, child, proving=proving)
    return unknown()


def _conditional(context: Context, expr: ast.Conditional, proving: bool) -> Value:
    """`(a if c else b)`: only the condition is computed for sure."""
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
    found = context.env.get(name)
    if found is not None:
        return found
    if name in DTYPES:
        return Value("dtype", dtype=DTypes(frozenset((name,)), Origin(at.span, f"{name} here")))
    if name in ("true", "false"):
        return Value("bool")
    if name in ("inf", "nan", "pi"):
        return Value("float", fraction=True)
    if name == "none":
        return Value("none")
    if name in context.lets:
        key = (name, context.certain)
        if key not in context.done:
            context.done[key] = unknown()  # a let that needs itself has been complained about
            context.done[key] = evaluate(context, context.lets[name])
        return context.done[key]
    return unknown()


def _list(context: Context, expr: ast.ListExpr, proving: bool) -> Value:
    items = []
    is_open = False
    for item in expr.items:
        items.append(evaluate(context, item, proving=proving))
        starred = isinstance(item, ast.Each) or (isinstance(item, ast.Subscript) and isinstance(item.index, ast.All))
        grouped = any(n.id in context.indices for n in free_names(item))
        grouped = grouped or any(name not in context.env for name in indices_in(item))
        is_open |= starred or grouped
    if is_open:
        element = items[0] if len(items) == 1 else unknown()
        return Value("list", length=context.shapes.store.fresh(), element=element)
    return Value("list", length=Linear(len(items)), items=items, element=items[0] if items else None)


def _comprehension(context: Context, expr: ast.Comprehension, proving: bool) -> Value:
    over = evaluate(context, expr.iterable, proving=proving)
    if over.is_number or over.sort in ("string", "dtype", "operator", "rest", "none", "tensor"):
        hint = "`ints(..)` or `dims(..)` takes the contents of a tensor" if over.sort == "tensor" else ""
        context.problem("wrong-argument", f"a list is needed here; this is {said(over)}", expr.iterable.span, hint=hint)
    element = over.element if over.element is not None and over.items is None else unknown()
    if over.items:
        element = over.items[0] if len({i.sort for i in over.items}) == 1 else unknown()
    loose = Value(element.sort, tensor=element.tensor, element=element.element)
    if element.sort in ("int", "dim"):
        loose.number = context.shapes.store.fresh(None if element.sort == "int" else 0)
    if element.dtype is not None:
        loose.dtype = DTypes()
    before = context.env.get(expr.variable)
    context.env[expr.variable] = loose
    with context.perhaps():
        item = evaluate(context, expr.item, proving=proving)
        if expr.condition is not None:
            evaluate(context, expr.condition, proving=proving)
    if before is None:
        del context.env[expr.variable]
    else:
        context.env[expr.variable] = before
    length = over.length if expr.condition is None else None
    return Value("list", length=length or context.shapes.store.fresh(), element=Value(item.sort, element=item.element))


def _arithmetic(context: Context, operator: str, expr: ast.Syntax, parts: list[ast.Expr], proving: bool) -> Value:
    values = [evaluate(context, p, proving=proving) for p in parts]
    tensors = [v for v in values if v.sort == "tensor"]
    wrong = next(((v, p) for v, p in zip(values, parts, strict=True) if not _computes(v, operator)), None)
    if wrong is not None:
        context.problem("wrong-operand", f"`{_sign(operator)}` cannot be applied to {said(wrong[0])}", wrong[1].span)
        return unknown()
    if any(v.sort == "any" for v in values):
        return unknown()
    if tensors and not proving:
        op = INFIX.get(operator, operator)
        operands = [Operand(v, p.span) for v, p in zip(values, parts, strict=True)]
        return Value("tensor", tensor=context.apply(op, operands, {}, expr.span, is_open=False, pattern=False)[0])
    if tensors or any(v.sort == "contents" for v in values):
        for value, part in zip(values, parts, strict=True):
            if value.sort == "tensor":
                functions.contents(context, value, part)
        return Value("contents")
    lists = [v for v in values if v.is_list]
    if lists:
        return functions.joined(context, operator, values, expr, parts)
    return functions.arithmetic(context, operator, values)


def _sign(operator: str) -> str:
    return "-" if operator == "Neg" else operator


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
            index = int(expr.index.value)
            return Value("tensor", tensor=output(context, expr.base, outputs, index, expr.index))
        return Value("tensor", tensor=context.tensor())
    base = evaluate(context, expr.base, proving=proving)
    if isinstance(expr.index, ast.All):
        return base
    index_value = evaluate(context, expr.index, proving=proving)
    if base.sort == "tensors":
        if isinstance(expr.index, ast.Name) and expr.index.id in context.indices:
            return Value("tensor", tensor=base.tensor, text=base.text)
        return Value("tensor", tensor=context.tensor())
    if base.sort == "any":
        return unknown()
    if not base.is_list:
        hint = "`ints(..)` or `dims(..)` takes the contents of a tensor" if base.sort == "tensor" else ""
        context.problem(
            "wrong-operand", f"`[ ]` takes an element of a list; this is {said(base)}", expr.span, hint=hint
        )
        return unknown()
    if index_value.sort in ("tensor", "string", "dtype", "none") or index_value.is_list:
        context.problem("wrong-operand", f"an index is an integer; this is {said(index_value)}", expr.index.span)
        return unknown()
    return functions.element(context, base, index_value, expr)


def _call(context: Context, call: ast.Call) -> list[Tensor]:
    """The outputs of an operator that is built."""
    operands = []
    for arg in call.args:
        starred = isinstance(arg, ast.Each) or (isinstance(arg, ast.Subscript) and isinstance(arg.index, ast.All))
        value = evaluate(context, arg)
        if isinstance(arg, ast.Name) and value.text is None and value.sort == "tensor":
            value = Value("tensor", tensor=value.tensor, text=f"`{arg.id}`")
        operands.append(Operand(value, arg.span, starred))
    attributes = {}
    head = _is_head(context, call)
    for attribute in call.attributes:
        found = evaluate(context, attribute.value)
        if not head:
            wanted = context.attribute(call.head, attribute.name)
            check_attribute(context, call.head, attribute.name, wanted, found, attribute.value, built=True)
            attributes[attribute.name] = combine(wanted, found)
    if head:
        return class_head(context, "", operands, call)
    declared = context.declared.get(call.head)
    if declared is not None and context.schema(call.head) is None:
        return _declared(context, declared, operands, attributes, call.span)
    required(context, call)
    open_ = call.rest is not None
    return context.apply(call.head, operands, attributes, call.span, is_open=open_, pattern=False)


def _declared(
    context: Context, op: ast.Op, operands: list[Operand], attributes: dict[str, Value], span: ast.Span
) -> list[Tensor]:
    """An operator of a rule file's own, by its definition."""
    simple = op.definition is not None and not any(p.variadic for p in op.params or ())
    if op.results or not simple or context.depth >= MAX_DEPTH or any(o.starred for o in operands):
        return declared_outputs(context, op.name, operands, span)
    assert op.definition is not None
    inner = Context(context.operators, context.declared, shapes=context.shapes, certain=context.certain)
    inner.depth = context.depth + 1
    inner.problems, inner.applications = context.problems, context.applications
    values = iter(operands)
    for param in op.params or ():
        if param.attribute is not None:
            inner.env[param.name] = attributes.get(param.name, unknown())  # one of `..a` perhaps
        else:
            operand = next(values, None)
            inner.env[param.name] = operand.value if operand is not None else unknown()
    result = evaluate(inner, op.definition)
    return [result.tensor if result.sort == "tensor" and result.tensor else context.tensor()]


def declared_outputs(context: Context, name: str, operands: Sequence[Operand], span: ast.Span) -> list[Tensor]:
    """The outputs of an operator without a schema, by the types that an `op` declares."""
    op = context.declared.get(name)
    if op is None or not op.results or not context.certain:
        return [context.tensor()]
    inner = Context(context.operators, context.declared, shapes=context.shapes)
    inner.problems, inner.applications = context.problems, context.applications
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
    context.shapes.store.names = names  # what the operator calls its dims is not what the rule does
    return outputs


def assume(context: Context, condition: ast.Expr, truth: bool = True) -> None:
    """What follows from a condition that holds (or does not)."""
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
            left_value, right_value = _sides(context, condition, True)
            comparisons.compare(context, condition, left_value, right_value)
            comparisons.relate(context, condition, left_value, right_value, truth)
        case ast.Call() if not condition.is_operator:
            arguments = [(evaluate(context, a, proving=True), a) for a in condition.args]
            value = functions.call(context, condition, arguments, True)
            comparisons.imply(context, condition, arguments, truth)
            _is_condition(context, value, condition)
        case _:
            _is_condition(context, evaluate(context, condition, proving=True), condition)


def _is_condition(context: Context, value: Value, condition: ast.Expr) -> None:
    if value.sort not in ("bool", "any", "contents", "number"):  # a number may be the element of a truth tensor
        context.problem("not-a-condition", f"a condition is true or false; this is {said(value)}", condition.span)


def given(context: Context, clause: ast.Given) -> None:
    """What a `given` clause says of its tensors."""
    for target in clause.targets:
        value = context.env.get(target.name)
        if value is None or value.tensor is None:
            continue
        declare(context, value.tensor, clause.type, f"`{target.name}`", target.span)


def declare(context: Context, tensor: Tensor, type_: ast.TypeExpr, subject: str, span: ast.Span) -> None:
    """Narrow a tensor to a written type."""
    origin = Origin(type_.span, "given here")
    if type_.const:
        tensor.const, tensor.const_origin = True, origin
    element = type_.element
    with context.attempt(span, subject):
        if element in CLASSES:
            tensor.dtype.narrow(CLASSES[element], origin)
        elif element in DTYPES:
            tensor.dtype.narrow(frozenset((element,)), origin)
        elif element is not None and not is_word(element):
            named = context.env.setdefault(element, Value("dtype", dtype=DTypes(name=element)))
            if named.dtype is not None:
                named.dtype.unify(tensor.dtype, origin)
    if type_.shape is None:
        return
    with context.attempt(span, subject):
        _declare_shape(context, tensor, type_.shape, origin)


def _declare_shape(
    context: Context, tensor: Tensor, items: tuple[ast.Expr | ast.ShapeRest | ast.AnyDim, ...], origin: Origin
) -> None:
    shapes, shape = context.shapes, tensor.shape
    rest = next((i for i, d in enumerate(items) if isinstance(d, ast.ShapeRest)), None)
    if rest is None:
        shapes.equal_rank(shape, Linear(len(items)), origin)
        places = dict(zip(range(len(items)), items, strict=True))
    else:
        shapes.at_least(shape, len(items) - 1, origin)
        places = {i: d for i, d in enumerate(items) if i < rest}
        places |= {i - len(items): d for i, d in enumerate(items) if i > rest}
        item = items[rest]
        if isinstance(item, ast.ShapeRest) and item.name is not None:
            length = shape.end().rank.plus(Linear(1 - len(items)))
            bound = context.env.get(item.name)
            if bound is None:
                context.env[item.name] = Value("dims", length=length, element=context.of_sort("dim"))
            elif bound.length is not None:
                if not shapes.store.equate(bound.length, length):
                    shapes.equal_rank(shape, bound.length.plus(Linear(len(items) - 1)), origin)
    for place, item in places.items():
        if isinstance(item, ast.AnyDim | ast.ShapeRest):
            continue
        dim = shapes.dim(shape, place, origin)
        shape.end().places.setdefault(place, Origin(item.span, "given here"))
        if isinstance(item, ast.Name) and not is_word(item.id) and item.id not in context.env:
            context.env[item.id] = Value("dim", number=dim)
            resolved = shapes.store.resolve(dim)
            if len(resolved.terms) == 1 and resolved.constant == 0 and resolved.terms[0][1] == 1:
                shapes.store.names.setdefault(resolved.terms[0][0], item.id)
        else:
            value = evaluate(context, item)
            if value.sort in ("tensor", "tensors", "string", "dtype") or value.is_list:
                context.problem("wrong-argument", f"a dim is a number; this is {said(value)}", item.span)
            elif value.number is not None:
                shapes.equal_dim(dim, value.number, Origin(item.span, "given here"), shape.end().places.get(place))
