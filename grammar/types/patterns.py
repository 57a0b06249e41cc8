"""Left sides: what a pattern binds, and what must hold of anything that it matches."""

from __future__ import annotations

from .. import ast
from ..builtins import DTYPES
from ..diagnostics import Fix
from ..printer import print_expr
from ..scope import is_word
from .context import Context, Operand
from .linear import Linear
from .shapes import Application, broadcast
from .terms import DTypes, Origin, Shape, Tensor
from .values import LISTS, Value, said, unknown

INFIX = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "@": "MatMul", "**": "Pow", "%": "Mod"}


def bind_roots(context: Context, lhs: ast.Expr | ast.Roots) -> dict[str, Tensor]:
    """Infer over a left side; the tensors of its roots by name, `""` for the only one."""
    if not isinstance(lhs, ast.Roots):
        return {"": match(context, lhs)}
    for binding in lhs.bindings:
        if isinstance(binding.target.index, ast.Name):
            _index(context, binding.target.index.id)
    found: dict[str, Tensor] = {}
    for binding in lhs.bindings:
        found.setdefault(binding.target.name, match(context, binding.value))
    return found


def match(context: Context, pattern: ast.Syntax) -> Tensor:
    """The type of what a pattern matches."""
    match pattern:
        case ast.Name(id="none"):
            return context.tensor()
        case ast.Name(id=name) if not is_word(name):
            return variable(context, name)
        case ast.Optional(name=name, default=default):
            return _optional(context, name, default)
        case ast.Number(value=value):
            return context.literal(Value("number", fraction=not float(value).is_integer()), pattern=True)
        case ast.Name(id=name):
            return context.literal(Value("number", fraction=name == "pi"), pattern=True)
        case ast.Each(value=value):
            return match(context, value)
        case ast.Subscript(base=ast.Name(id=name), index=ast.Name() | ast.All() as index):
            if isinstance(index, ast.Name):
                _index(context, index.id)
            found = context.env.get(name)
            if found is None:
                found = context.env[name] = Value("tensors", tensor=context.tensor(), text=f"`{name}`")
            return found.tensor or context.tensor()
        case ast.Subscript(base=ast.Call() as call, index=index):
            if isinstance(index, ast.Name) and not is_word(index.id):
                _index(context, index.id)
            outputs = _call(context, call)
            return _output(context, call, outputs, index)
        case ast.Unary(operator="-", operand=operand):
            return _operator(context, "Neg", pattern, operand)
        case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
            return _operator(context, INFIX[operator], pattern, left, right)
        case ast.Alternatives(options=options):
            return _alternatives(context, pattern, options)
        case ast.Call() if pattern.is_operator:
            return _call(context, pattern)[0]
    return context.tensor()


def _index(context: Context, name: str) -> None:
    context.indices.add(name)
    context.env.setdefault(name, Value("int", number=context.shapes.store.fresh()))


def variable(context: Context, name: str) -> Tensor:
    """The tensor that a variable of the pattern stands for."""
    found = context.env.get(name)
    if found is None:
        found = context.env[name] = Value("tensor", tensor=context.tensor(), text=f"`{name}`")
    return found.tensor or context.tensor()


def _optional(context: Context, name: str, default: ast.Expr) -> Tensor:
    if context.optional:
        return variable(context, name)
    context.env.setdefault(name, unknown())
    return context.tensor()


def _alternatives(context: Context, pattern: ast.Alternatives, options: tuple[ast.Expr, ...]) -> Tensor:
    chosen = context.choices.get(id(pattern))
    if chosen is not None:
        return match(context, options[chosen])
    for option in options:  # too many to go through: nothing is said of what they bind
        probe = Context(context.operators, context.declared)
        match(probe, option)
        for name, value in probe.env.items():
            tensor = value.sort in ("tensor", "tensors")
            found = Value(value.sort, tensor=context.tensor()) if tensor else context.of_sort(value.sort)
            context.env.setdefault(name, found)
    return context.tensor()


def _operator(context: Context, op: str, at: ast.Syntax, *args: ast.Expr) -> Tensor:
    operands = [_operand(context, arg) for arg in args]
    return context.apply(op, operands, {}, at.span, is_open=False, pattern=True)[0]


def _operand(context: Context, arg: ast.Expr) -> Operand:
    if isinstance(arg, ast.Name) and arg.id == "none":
        return Operand(Value("none"), arg.span)
    starred = isinstance(arg, ast.Each) or (isinstance(arg, ast.Subscript) and isinstance(arg.index, ast.All))
    text = None
    if isinstance(arg, ast.Name | ast.Optional):
        text = f"`{arg.id if isinstance(arg, ast.Name) else arg.name}`"
    return Operand(Value("tensor", tensor=match(context, arg), text=text), arg.span, starred)


def _call(context: Context, call: ast.Call) -> list[Tensor]:
    operands = [_operand(context, arg) for arg in call.args]
    if call.kind is not None:
        context.env.setdefault(call.head, Value("operator"))
        for attribute in call.attributes:
            _attribute(context, "", attribute)
        _rest(context, call)
        return class_head(context, call.kind, operands, call)
    attributes = {a.name: _attribute(context, call.head, a) for a in call.attributes}
    _rest(context, call)
    outputs = context.apply(call.head, operands, attributes, call.span, is_open=call.rest is not None, pattern=True)
    required(context, call)
    return outputs


def class_head(context: Context, kind: str, operands: list[Operand], call: ast.Call) -> list[Tensor]:
    """The output of any operator of a kind: of an elementwise one with one operand the shape is known."""
    out = context.tensor()
    tensors = [o.value.tensor for o in operands if o.value.tensor is not None]
    if kind == "elementwise" and len(operands) == 1 and len(tensors) == 1 and context.certain:
        origin = Origin(call.span, f"`{call.head}` is elementwise")
        application = Application(call.head, [*tensors], [False], {}, [out], context.shapes, origin)
        with context.attempt(call.span):
            broadcast(application, tensors, out)
            application.same(out, tensors[0])
    return [out]


def required(context: Context, call: ast.Call) -> None:
    """Complain about an attribute that the operator must have and that is not there."""
    schema = context.schema(call.head)
    if schema is None or call.rest is not None:
        return
    named = {a.name for a in call.attributes}
    for name, formal in schema.attributes.items():
        if formal.required and name not in named:
            message = f"`{call.head}` must have the attribute `{name}`"
            hint = f"write `{name}: ..` with a value or a variable"
            context.problem("missing-attribute", message, call.span, hint=hint)


def _rest(context: Context, call: ast.Call) -> None:
    if call.rest is not None and call.rest.name is not None:
        context.env.setdefault(call.rest.name, Value("rest"))


def _attribute(context: Context, op: str, attribute: ast.Attribute) -> Value:
    wanted = context.attribute(op, attribute.name) if op else unknown()
    value, default = attribute.value, attribute.default
    if isinstance(value, ast.Subscript) and isinstance(value.base, ast.Name) and isinstance(value.index, ast.Name):
        _index(context, value.index.id)  # another value for each member of a group
        every = Value("list", length=context.shapes.store.fresh(), element=wanted, text=f"`{value.base.id}`")
        context.env.setdefault(value.base.id, every)
        return unknown()
    if isinstance(value, ast.Name) and not is_word(value.id):
        name = value.id
    else:
        found = literal(context, value)
        check_attribute(context, op, attribute.name, wanted, found, value)
        return combine(wanted, found)
    bound = context.env.get(name)
    if default is not None:
        check_attribute(context, op, attribute.name, wanted, literal(context, default), default)
    if bound is None:
        bound = wanted
        if default is not None:  # bound, but to something else where the attribute is absent
            bound = Value(wanted.sort, tensor=wanted.tensor, dtype=DTypes() if wanted.dtype else None)
            if wanted.is_list:
                bound.length, bound.element = context.shapes.store.fresh(), wanted.element
        bound.text = f"`{name}`"
        context.env[name] = bound
        return wanted
    if default is None:
        check_attribute(context, op, attribute.name, wanted, bound, value)
        return combine(wanted, bound)
    return wanted


def combine(wanted: Value, found: Value) -> Value:
    """What is known of an attribute: the value itself, if it has the kind that is wanted."""
    return found if found.sort != "any" else wanted


def literal(context: Context, value: ast.Syntax) -> Value:
    """A value that is written out in a pattern."""
    match value:
        case ast.Number(value=number):
            if isinstance(number, int):
                return context.integer(number)
            return Value("float", fraction=not number.is_integer())
        case ast.String(value=text):
            return Value("string", text=text)
        case ast.Name(id=name) if name in DTYPES:
            return Value("dtype", dtype=DTypes(frozenset((name,)), Origin(value.span, f"{name} here")))
        case ast.Name(id="true" | "false"):
            return Value("bool")
        case ast.ListExpr(items=items) if not any(isinstance(i, ast.Subscript) for i in items):
            found = [literal(context, item) for item in items]
            return Value("list", length=Linear(len(found)), items=found, element=found[0] if found else None)
    return unknown()


def check_attribute(
    context: Context, op: str, name: str, wanted: Value, found: Value, at: ast.Syntax, *, built: bool = False
) -> None:
    """Complain about an attribute of the wrong kind."""
    if "any" in (wanted.sort, found.sort) or not op:
        return
    if fits(wanted, found, built=built):
        if wanted.dtype is not None and found.dtype is not None:
            with context.attempt(at.span):
                wanted.dtype.unify(found.dtype, Origin(at.span, "here"))
        return
    kind = {"int": "an integer", "ints": "a list of integers", "float": "a number", "floats": "a list of numbers",
            "string": "a string", "strings": "a list of strings", "tensor": "a tensor's contents",
            "dtype": "an element type", "graph": "a graph"}.get(wanted.sort, wanted.sort)  # fmt: skip
    hint, fix = "", None
    if wanted.sort in ("int", "float") and isinstance(at, ast.ListExpr) and len(at.items) == 1:
        hint, fix = "drop the brackets", Fix(at.span, print_expr(at.items[0]))
    elif wanted.sort == "ints" and found.sort == "int" and isinstance(at, ast.Expr):
        hint, fix = "put it into brackets", Fix(at.span, f"[{print_expr(at)}]")
    elif found.sort in ("tensor", "tensors"):
        hint = "`scalar(..)` or `ints(..)` takes the contents of a constant"
    context.problem(
        "wrong-attribute", f"`{name}` of `{op}` is {kind}; this is {said(found)}", at.span, hint=hint, fix=fix
    )


def fits(wanted: Value, found: Value, *, built: bool) -> bool:
    """Whether a value may be an attribute of a kind, or be equal to one."""
    if found.sort in ("any", "none", "contents"):
        return True
    match wanted.sort:
        case "int":
            return found.sort in ("int", "dim", "number", "bool", "dtype") or (
                found.sort == "float" and not found.fraction
            )
        case "dtype":
            return found.sort in ("dtype", "int", "number", "dim")
        case "float":
            return found.is_number
        case "string":
            return found.sort == "string"
        case "ints" | "floats" | "strings":
            if found.sort not in LISTS:
                return False
            element = Value(wanted.sort[:-1])
            items = found.items if found.items is not None else [found.element] if found.element else []
            return all(fits(element, item, built=built) for item in items)
        case "tensor":
            return found.sort not in ("string", "dtype", "operator", "rest")
    return True


def _output(context: Context, call: ast.Call, outputs: list[Tensor], index: ast.Syntax) -> Tensor:
    """Output `[0]` or `[*]` of an operator."""
    if not isinstance(index, ast.Number):
        return member(context, outputs[-1])
    return output(context, call, outputs, int(index.value), index)


def member(context: Context, several: Tensor) -> Tensor:
    """One of several outputs of an operator: they share rank and element type, and not their dims."""
    return Tensor(several.dtype, Shape(several.shape.end().rank))


def output(context: Context, call: ast.Call, outputs: list[Tensor], at: int, index: ast.Syntax) -> Tensor:
    """One output by its number."""
    schema = context.schema(call.head)
    if schema is None or not schema.outputs:
        return context.tensor()
    last = schema.outputs[-1]
    if 0 <= at < len(outputs) and not schema.outputs[at].variadic:
        return outputs[at]
    if last.variadic:
        return member(context, outputs[-1])
    count = len(outputs)
    message = f"`{call.head}` has {count} output{'s' * (count != 1)}; there is no output {at}"
    context.problem("wrong-output", message, index.span)
    return context.tensor()
