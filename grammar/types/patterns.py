"""Inference over left sides: variables, and facts about everything that a pattern matches."""

from __future__ import annotations

from ..builtins import DTYPES
from ..syntax import ast
from ..syntax.scope import is_word
from .context import Context, Operand
from .expressions import apply
from .operator_calls import INFIX, check_attribute, class_head, combine, member, output, required
from .terms import DTypes, Tensor, Value, elements_named, list_of, unknown


def bind_roots(context: Context, lhs: ast.Expr | ast.Roots) -> dict[str, Tensor]:
    """Infer over a left side; return the tensors of its roots by name, `""` for a single root."""
    if isinstance(lhs, ast.Expr):
        return {"": match(context, lhs)}
    for binding in lhs.bindings:
        if isinstance(binding.target.index, ast.Name):
            _index(context, binding.target.index.id)
    found: dict[str, Tensor] = {}
    for binding in lhs.bindings:
        found.setdefault(binding.target.name, match(context, binding.value))
    return found


def match(context: Context, pattern: ast.Syntax) -> Tensor:
    """Return the type of what a pattern matches."""
    match pattern:
        case ast.Name(id="none"):
            return context.tensor()
        case ast.Name(id=name) if not is_word(name):
            return variable(context, name)
        case ast.ListExpr():
            _bind_items(context, pattern)
            return context.tensor()
        case ast.Omitted(pattern=inner, defaults=defaults):
            for default in defaults:
                context.env.setdefault(default.name, unknown())
            return match(context, inner)
        case ast.Optional(name=name) if context.optional:
            return variable(context, name)
        case ast.Optional(name=name):
            context.env.setdefault(name, unknown())
            return context.tensor()
        case ast.Number(value=value):
            return context.literal(Value("number", fraction=not float(value).is_integer()), pattern=True)
        case ast.Name(id=name):
            return context.literal(Value("number", fraction=name == "pi"), pattern=True)
        case ast.Each(value=value):
            return match(context, value)
        case ast.Subscript(base=ast.Name(id=name), index=ast.Name() | ast.All() as index):
            if isinstance(index, ast.Name):
                _index(context, index.id)
            return variable(context, name, "tensors")
        case ast.Subscript(base=ast.Call() as call, index=index):
            if isinstance(index, ast.Name) and not is_word(index.id):
                _index(context, index.id)
            outputs = _call(context, call)
            if isinstance(index, ast.Number):
                return output(context, call, outputs, int(index.value), index)
            return member(context, outputs[-1])
        case ast.Unary(operator="-", operand=operand):
            return _operator(context, "Neg", pattern, operand)
        case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
            return _operator(context, INFIX[operator], pattern, left, right)
        case ast.Alternatives():
            return _alternatives(context, pattern)
        case ast.Call() if pattern.is_operator:
            return _call(context, pattern)[0]
    return context.tensor()


def _index(context: Context, name: str) -> None:
    context.indices.add(name)
    context.env.setdefault(name, Value("int", number=context.fresh()))


def variable(context: Context, name: str, sort: str = "tensor") -> Tensor:
    """Return the tensor that a variable of the pattern stands for."""
    found = context.env.setdefault(name, Value(sort, tensor=context.tensor(), text=f"`{name}`"))
    return found.tensor or context.tensor()


def _alternatives(context: Context, pattern: ast.Alternatives) -> Tensor:
    chosen = context.choices.get(id(pattern))
    if chosen is not None:
        return match(context, pattern.options[chosen])
    for option in pattern.options:  # too many combinations: the types of their variables stay open
        probe = Context(context.operators, context.declared)
        match(probe, option)
        for name, value in probe.env.items():
            found = Value(value.sort, tensor=context.tensor()) if value.is_tensor else context.of_sort(value.sort)
            context.env.setdefault(name, found)
    return context.tensor()


def _operator(context: Context, op: str, at: ast.Syntax, *args: ast.Expr) -> Tensor:
    operands = [_operand(context, arg) for arg in args]
    return apply(context, op, operands, at.span, pattern=True)[0]


def _operand(context: Context, arg: ast.Expr) -> Operand:
    if isinstance(arg, ast.Name) and arg.id == "none":
        return Operand(Value("none"), arg.span)
    text = None
    if isinstance(arg, ast.Name | ast.Optional):
        text = f"`{arg.id if isinstance(arg, ast.Name) else arg.name}`"
    return Operand(Value("tensor", tensor=match(context, arg), text=text), arg.span, ast.is_many(arg))


def _call(context: Context, call: ast.Call) -> list[Tensor]:
    operands = [_operand(context, arg) for arg in call.args]
    if call.kind is not None:
        context.env.setdefault(call.head, Value("operator"))
    attributes = {a.name: _attribute(context, call.head if call.kind is None else "", a) for a in call.attributes}
    if call.rest is not None and call.rest.name is not None:
        context.env.setdefault(call.rest.name, Value("rest"))
    if call.kind is not None:
        return class_head(context, call.kind, operands, call)
    is_open = call.rest is not None
    outputs = apply(context, call.head, operands, call.span, attributes, is_open=is_open, pattern=True)
    required(context, call)
    return outputs


def _attribute(context: Context, op: str, attribute: ast.Attribute) -> Value:
    wanted = context.attribute(op, attribute.name) if op else unknown()
    value, default = attribute.value, attribute.default
    match value:
        case ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=index)):
            _index(context, index)  # a different value for each member of a group
            every = context.several(wanted)
            every.text = f"`{name}`"
            context.env.setdefault(name, every)
            return unknown()
        case ast.Name(id=name) if not is_word(name):
            if default is not None:
                check_attribute(context, op, attribute.name, wanted, literal(context, default), default)
            if name not in context.env:
                bound = wanted
                if default is not None:  # bound, but to the default where the attribute is absent
                    bound = Value(wanted.sort, tensor=wanted.tensor, dtype=DTypes() if wanted.dtype else None)
                    if wanted.is_list:
                        bound.length, bound.element = context.fresh(), wanted.element
                bound.text = f"`{name}`"
                context.env[name] = bound
                return wanted
            if default is not None:
                return wanted
            found = context.env[name]
        case _:
            _bind_items(context, value)
            found = literal(context, value)
    check_attribute(context, op, attribute.name, wanted, found, value)
    return combine(wanted, found)


def _bind_items(context: Context, value: ast.Expr) -> None:
    """Bind the integers and axes in a list."""
    match value:
        case ast.ListExpr(items=items):
            for item in items:
                if isinstance(item, ast.Name) and not is_word(item.id):
                    context.env.setdefault(item.id, context.of_sort("int"))
                _bind_items(context, item)
        case ast.Axis(name=name):
            context.env.setdefault(name, context.of_sort("int"))


def literal(context: Context, value: ast.Syntax) -> Value:
    """Return a value that is written out in a pattern."""
    match value:
        case ast.Number(value=number):
            if isinstance(number, int):
                return context.integer(number)
            return Value("float", fraction=not number.is_integer())
        case ast.String(value=text):
            return Value("string", text=text)
        case ast.Axis(name=name) | ast.Name(id=name) if name in context.env:
            return context.env[name]
        case ast.Name(id=name) if name in DTYPES:
            return elements_named(name, value.span)
        case ast.Name(id="true" | "false"):
            return Value("bool")
        case ast.ListExpr(items=items) if not any(isinstance(i, ast.Subscript) for i in items):
            return list_of([literal(context, item) for item in items])
    return unknown()
