"""Mutants of a rule's computations: its right side, its `let`s, and the expressions in its conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.scope import is_word

from .conditions import Change
from .sites import Put, sites, swapped, with_item, without

SIBLINGS: dict[str, tuple[str, ...]] = {
    "Max": ("Min",), "Min": ("Max",), "Add": ("Sub",), "Sub": ("Add",), "Mul": ("Div",), "Div": ("Mul",),
    "Floor": ("Ceil",), "Ceil": ("Floor",), "And": ("Or",), "Or": ("And",), "Xor": ("Or",), "Less": ("LessOrEqual",),
    "LessOrEqual": ("Less",), "Greater": ("GreaterOrEqual",), "GreaterOrEqual": ("Greater",), "Equal": ("LessOrEqual",),
    "ReduceSum": ("ReduceMean",), "ReduceMean": ("ReduceSum",), "ReduceMax": ("ReduceMin",),
    "ReduceMin": ("ReduceMax",), "ReduceL1": ("ReduceL2",), "ReduceL2": ("ReduceL1",), "ReduceProd": ("ReduceSum",),
    "ReduceSumSquare": ("ReduceSum",), "ReduceLogSumExp": ("ReduceLogSum",), "Sin": ("Cos",), "Cos": ("Sin",),
    "ArgMax": ("ArgMin",), "ArgMin": ("ArgMax",),
    "Softmax": ("LogSoftmax",), "LogSoftmax": ("Softmax",), "MaxPool": ("AveragePool",), "AveragePool": ("LpPool",),
    "GlobalAveragePool": ("GlobalMaxPool",), "GlobalMaxPool": ("GlobalAveragePool",), "Relu": ("Abs",),
    "Sqrt": ("Exp",), "Exp": ("Sqrt",), "Tanh": ("Sigmoid",), "Sigmoid": ("Tanh",), "Abs": ("Relu",), "Erf": ("Tanh",),
    "Neg": ("Abs",), "Sum": ("Mean",), "Mean": ("Sum",), "Round": ("Floor",), "Not": ("Identity",),
    "Conv": ("ConvInteger",), "Squeeze": ("Identity",), "BitwiseAnd": ("BitwiseOr",), "BitwiseOr": ("BitwiseAnd",),
    "ScatterND": ("GatherND",), "GatherElements": ("Gather",), "Gather": ("GatherElements",), "Log": ("Sqrt",),
}  # fmt: skip
_INFIX = {"+": ("-",), "-": ("+",), "*": ("/", "+"), "/": ("*",), "**": ("*",), "%": ("/",), "@": ("*",)}
_FUNCTIONS = {
    "min": "max", "max": "min", "floordiv": "ceildiv", "ceildiv": "floordiv", "sum": "prod", "prod": "sum",
    "take": "drop", "drop": "take", "zeros": "ones", "ones": "zeros", "floor": "ceil", "ceil": "floor",
    "min_value": "max_value", "max_value": "min_value", "positive": "nonnegative", "all": "any", "any": "all",
    "is_float": "is_integer", "is_integer": "is_float",
}  # fmt: skip
_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in",
                "is": "is not", "is not": "is"}  # fmt: skip
_LOOSER_BY = {"==": (1, -1), "<": (1,), "<=": (1,), ">": (-1,), ">=": (-1,)}
_COMMUTATIVE = frozenset(
    ["Add", "Mul", "Sum", "Max", "Min", "And", "Or", "Xor", "Equal", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
_UNARY_FUNCTIONS = frozenset(("abs", "sqrt", "exp", "log", "floor", "ceil", "reverse", "sorted", "unique", "axes",
                              "inverse_perm", "expand_dims", "reshape", "axis"))  # fmt: skip
_FLAGS = ("keepdims", "transA", "transB", "ceil_mode", "count_include_pad", "exclusive", "reverse", "allowzero",
          "training_mode", "noop_with_empty_axes", "upper", "is_causal", "interleaved")  # fmt: skip
_STRINGS = {
    "NOTSET": "VALID", "SAME_UPPER": "SAME_LOWER", "SAME_LOWER": "SAME_UPPER", "VALID": "SAME_UPPER",
    "constant": "edge", "none": "tanh", "tanh": "none", "DCR": "CRD", "CRD": "DCR",
}  # fmt: skip


def computed(rule: ast.Rule) -> Iterator[Change]:
    """Yield the mutants of the right side, of `let`s and of expressions in conditions."""
    names = _tensors(rule)
    places: list[tuple[str, ast.Syntax, Put]] = [("right side", rule.rhs, lambda new: _replace(rule, rhs=new))]
    for i, binding in enumerate(rule.let):
        places.append((f"let {binding.target.name}", binding, _at(rule, "let", i)))
    for i, condition in enumerate(rule.where):
        places.append((f"condition {i + 1}", condition, _at(rule, "where", i)))
    for where, root, outer in places:
        for node, put in sites(root):
            for kind, what, changed in _changes(node, names):
                yield kind, f"{where}, line {node.span.line}: {what}", outer(put(changed))
    if isinstance(rule.rhs, ast.Roots) and len(rule.rhs.bindings) > 1:
        first, second, *more = rule.rhs.bindings
        exchanged = (
            dataclasses.replace(first, value=second.value),
            dataclasses.replace(second, value=first.value),
            *more,
        )
        yield "operands swapped", "the roots", _replace(rule, rhs=dataclasses.replace(rule.rhs, bindings=exchanged))


def _replace(rule: ast.Rule, **fields: object) -> ast.Rule:
    return dataclasses.replace(rule, **fields)  # type: ignore[arg-type]


def _at(rule: ast.Rule, name: str, index: int) -> Put:
    return lambda new: _replace(rule, **{name: with_item(getattr(rule, name), index, new)})


def _tensors(rule: ast.Rule) -> tuple[str, ...]:
    """Return the variables of the inputs of operators in the pattern, in order."""
    found: dict[str, None] = {}

    def visit(node: ast.Syntax, is_input: bool) -> None:
        match node:
            case ast.Name(id=name) if is_input and not is_word(name):
                found[name] = None
            case ast.Optional(name=name):
                found[name] = None
            case ast.Call() if node.is_operator:
                for arg in node.args:
                    visit(arg, True)
            case ast.Binary() | ast.Unary() | ast.Alternatives():
                for child in node.children():
                    visit(child, True)
            case ast.Binding(value=value):
                visit(value, True)
            case ast.Roots(bindings=bindings):
                for binding in bindings:
                    visit(binding, True)
            case ast.Subscript(base=ast.Call() as call):
                visit(call, True)

    visit(rule.lhs, True)
    return tuple(found)


_Found = Iterator[tuple[str, str, ast.Syntax]]


def _changes(node: ast.Syntax, names: tuple[str, ...]) -> _Found:
    match node:
        case ast.Number():
            yield from _number(node)
        case ast.String(value=value) if value in _STRINGS:
            yield "attribute changed", f'"{_STRINGS[value]}" for "{value}"', ast.String(
                span=node.span, value=_STRINGS[value]
            )  # fmt: skip
        case ast.Compare():
            yield from _comparison(node)
        case ast.Binary():
            yield from _binary(node)
        case ast.Call():
            yield from _call(node)
        case ast.Unary(operator="-", operand=operand):
            yield "application dropped", "without the minus", operand
        case ast.Range():
            for what, low, high in (("low + 1", 1, 0), ("low - 1", -1, 0), ("high + 1", 0, 1), ("high - 1", 0, -1)):
                moved = dataclasses.replace(node, low=_plus(node.low, low), high=_plus(node.high, high))
                yield "off by one", f"range with {what}", moved
        case ast.Subscript(index=ast.Name() | ast.Binary() as index):
            yield "off by one", "next index", dataclasses.replace(node, index=_plus(index, 1))
        case ast.ListExpr(items=items) if len(items) > 1:
            yield "operands swapped", "items of a list", dataclasses.replace(node, items=swapped(items, 0, 1))
            yield "operands swapped", "last items of a list", dataclasses.replace(node, items=swapped(items, -1, -2))
        case ast.Attribute():
            yield from _attribute(node)
        case ast.Comprehension(condition=ast.Expr()):
            yield "condition dropped", "comprehension without its condition", dataclasses.replace(node, condition=None)
        case ast.Name(id=name) if name in names:
            for other in _near(name, names):
                yield "variable mistaken", f"{other} for {name}", ast.Name(span=node.span, id=other)


def _near(name: str, names: tuple[str, ...]) -> list[str]:
    """Return the one or two variables next to a variable."""
    at = names.index(name)
    return [names[i] for i in (at + 1, at - 1) if 0 <= i < len(names)]


def _plus(expr: ast.Expr, amount: int) -> ast.Expr:
    if not amount:
        return expr
    if isinstance(expr, ast.Number) and isinstance(expr.value, int):
        return _literal(expr, expr.value + amount)
    operator, number = ("+", amount) if amount > 0 else ("-", -amount)
    return ast.Binary(
        span=expr.span, operator=operator, left=expr, right=ast.Number(span=expr.span, value=number)
    )  # fmt: skip


def _literal(at: ast.Syntax, value: int | float) -> ast.Expr:
    if value < 0:
        return ast.Unary(span=at.span, operator="-", operand=ast.Number(span=at.span, value=-value))
    return ast.Number(span=at.span, value=value)


def _number(node: ast.Number) -> _Found:
    value = node.value
    if isinstance(value, int):
        others: tuple[int | float, ...] = (value + 1, value - 1)
    else:
        others = (value * 1.2, -value)
    for other in others:
        yield "constant changed", f"{other:g} for {value:g}", _literal(node, other)


def _comparison(node: ast.Compare) -> _Found:
    other = _COMPARISONS.get(node.operator)
    if other is not None:
        yield "comparison changed", f"{other} for {node.operator}", dataclasses.replace(node, operator=other)
    if isinstance(node.right, ast.ListExpr | ast.String):
        return
    for amount in _LOOSER_BY.get(node.operator, ()):
        moved = dataclasses.replace(node, right=_plus(node.right, amount))
        yield "comparison changed", f"right side {amount:+d}", moved


def _binary(node: ast.Binary) -> _Found:
    if node.operator in ("and", "or"):
        other = "or" if node.operator == "and" else "and"
        yield "comparison changed", f"{other} for {node.operator}", dataclasses.replace(node, operator=other)
        return
    is_list = any(isinstance(n, ast.ListExpr | ast.Comprehension) for n in (node.left, node.right))
    if node.operator in ("-", "/", "@", "**", "%") or is_list:
        turned = dataclasses.replace(node, left=node.right, right=node.left)
        yield "operands swapped", f"of {node.operator}", turned
    if not is_list:
        for other in _INFIX.get(node.operator, ()):
            yield "operator changed", f"{other} for {node.operator}", dataclasses.replace(node, operator=other)
    yield "operand dropped", f"left of {node.operator}", node.left
    yield "operand dropped", f"right of {node.operator}", node.right


def _call(node: ast.Call) -> _Found:
    if node.rest is not None and node.rest.name is not None:
        yield "attributes dropped", f"without ..{node.rest.name}", dataclasses.replace(node, rest=None)
    for i in range(len(node.args) - 1):
        if node.head in _COMMUTATIVE or not (node.is_operator or len(node.args) > 1):
            continue
        turned = dataclasses.replace(node, args=swapped(node.args, i, i + 1))
        yield "operands swapped", f"{i + 1} and {i + 2} of {node.head}", turned
    if node.is_operator:
        for other in SIBLINGS.get(node.head, ()):
            yield "operator changed", f"{other} for {node.head}", dataclasses.replace(node, head=other)
        for i in range(1, len(node.args)):
            none = ast.Name(span=node.span, id="none")
            rest = without(node.args, i) if i == len(node.args) - 1 else with_item(node.args, i, none)
            yield "operand dropped", f"input {i + 1} of {node.head}", dataclasses.replace(node, args=rest)
        for i, attribute in enumerate(node.attributes):
            fewer = dataclasses.replace(node, attributes=without(node.attributes, i))
            yield "attributes dropped", f"{attribute.name} of {node.head}", fewer
        if len(node.args) == 1 and node.kind is None and not node.attributes:
            yield "application dropped", f"without {node.head}", node.args[0]
        return
    other_function = _FUNCTIONS.get(node.head)
    if other_function is not None:
        yield "operator changed", f"{other_function} for {node.head}", dataclasses.replace(node, head=other_function)
    if node.head in _UNARY_FUNCTIONS and node.args:
        yield "application dropped", f"without {node.head}", node.args[0]
    if node.head in ("range", "slice", "repeat", "dim", "expand_dims", "set_at", "take", "drop", "axis"):
        for i in range(0 if node.head == "range" else 1, len(node.args)):
            if isinstance(node.args[i], ast.Name | ast.Binary | ast.Call):
                for amount in (1, -1):
                    moved = with_item(node.args, i, _plus(node.args[i], amount))
                    yield "off by one", f"argument {i + 1} of {node.head} {amount:+d}", dataclasses.replace(
                        node, args=moved
                    )  # fmt: skip


def _attribute(node: ast.Attribute) -> _Found:
    span, value = node.span, node.value

    def changed(new: ast.Expr) -> ast.Attribute:
        return dataclasses.replace(node, value=new)

    if isinstance(value, ast.Number | ast.String):
        return
    if node.name in _FLAGS:
        flipped = ast.Binary(span=span, operator="-", left=ast.Number(span=span, value=1), right=value)
        yield "attribute changed", f"{node.name} flipped", changed(flipped)
    elif node.name in ("axis", "group", "batch_axis", "index", "start", "end", "num_outputs", "block_size"):
        for amount in (1, -1):
            yield "attribute changed", f"{node.name} {amount:+d}", changed(_plus(value, amount))
    elif node.name == "perm":
        for function in ("inverse_perm", "reverse"):
            yield "attribute changed", f"{function} of perm", changed(
                ast.Call(span=span, head=function, args=(value,))
            )  # fmt: skip
    elif node.name in ("pads", "strides", "dilations", "kernel_shape", "output_padding", "axes"):
        yield "attribute changed", f"{node.name} backwards", changed(
            ast.Call(span=span, head="reverse", args=(value,))
        )  # fmt: skip
        more = ast.Comprehension(
            span=span, item=_plus(ast.Name(span=span, id="i_"), 1), variable="i_", iterable=value, condition=None
        )
        yield "attribute changed", f"{node.name} + 1", changed(more)
    elif node.name in ("epsilon", "alpha", "beta", "gamma", "scale", "lambd", "bias"):
        twice = ast.Binary(span=span, operator="*", left=value, right=ast.Number(span=span, value=2.0))
        yield "constant changed", f"{node.name} doubled", changed(twice)
