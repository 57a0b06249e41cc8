"""From syntax trees back to text in the project's layout: what is printed parses to an equal tree.

Parentheses stand only where the tree needs them. Comments other than an item's doc are not part of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import ast

WIDTH = 100
_INDENT = "  "

# Binding strength, loosest first; an operand that binds looser than its place asks for gets parentheses.
_OR, _AND, _NOT, _COMPARE, _RANGE, _SUM, _TERM, _UNARY, _POWER, _POSTFIX = range(10)
_BINARY = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _TERM, "/": _TERM, "%": _TERM, "@": _TERM, "**": _POWER}


def print_file(file: ast.RuleFile) -> str:
    """The text of a whole file, ending in a newline."""
    blocks = [f'"""{file.doc}"""'] if file.doc else []
    blocks += [print_rule(item) for item in file.items]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def print_rule(item: ast.Item) -> str:
    """The text of one item, several lines without a final newline."""
    match item:
        case ast.Rule():
            arrow = "<=>" if item.bidirectional else "=>"
            head = _head(f"rule {item.name}", item.doc)
            return "\n".join([*head, *_sides(item.lhs, arrow, item.rhs), *_clauses(item)])
        case ast.Fuse():
            head = _head(f"fuse {item.name}", item.doc)
            return "\n".join([*head, *_sides(item.lhs, "=>", item.rhs), *_clauses(item)])
        case ast.Op():
            return _op(item)
        case ast.Def():
            return _one_line(f"def {item.name}({', '.join(item.params)})", f" = {print_expr(item.body)}", item.doc)
        case ast.Use():
            return _one_line(f'use "{item.path}"', "", item.doc if "\n" not in item.doc else "")
    raise TypeError(f"{type(item).__name__} is no item")


def _head(opening: str, doc: str) -> list[str]:
    """An item's first line with its doc as a comment, or as a docstring if it has several lines."""
    if not doc:
        return [opening]
    if "\n" in doc:
        lines = doc.split("\n")
        return [opening, f'{_INDENT}"""{lines[0]}', *(f"{_INDENT}{line}".rstrip() for line in lines[1:-1]),
                f'{_INDENT}{lines[-1]}"""']  # fmt: skip
    return [f"{opening.ljust(46)} # {doc}"]


def _one_line(opening: str, rest: str, doc: str) -> str:
    if "\n" in doc:
        return "\n".join(_head(opening, doc)) + rest
    return f"{opening}{rest}  # {doc}" if doc else opening + rest


def _op(op: ast.Op) -> str:
    opening = f"op {op.name}"
    if op.params is not None:
        opening += f"({', '.join(_param(p) for p in op.params)})"
    rest = f" = {print_expr(op.definition)}" if op.definition is not None else ""
    rest += f"  kind {op.kind}" if op.kind else ""
    rest += "  commutative" if op.commutative else ""
    rest += "  impure" if op.impure else ""
    lines = [_one_line(opening, rest, op.doc)]
    if op.shape is not None:
        lines.append(f"{_INDENT}shape {print_expr(op.shape)}")
    return "\n".join([*lines, *_clauses(op)])


def _param(param: ast.Param) -> str:
    if param.variadic:
        return f"{param.name}[*]"
    if param.attribute is not None:
        return f"{param.name}: {print_expr(param.attribute)}"
    return f"{param.name} = {print_expr(param.default)}" if param.default is not None else param.name


def _sides(lhs: ast.Expr | ast.Roots, arrow: str, rhs: ast.Expr | ast.Roots) -> list[str]:
    left, right = _side(lhs), _side(rhs)
    line = f"{_INDENT}{left}  {arrow}  {right}"
    if len(line) <= WIDTH:
        return [line]
    return [_INDENT + left, f"{_INDENT}{_INDENT}{arrow}", _INDENT + right]


def _side(side: ast.Expr | ast.Roots) -> str:
    if isinstance(side, ast.Roots):
        return f"{{ {', '.join(_binding(b) for b in side.bindings)} }}"
    return print_expr(side)


def _binding(binding: ast.Binding) -> str:
    return f"{_target(binding.target)} = {print_expr(binding.value)}"


def _target(target: ast.Target) -> str:
    return target.name if target.index is None else f"{target.name}[{print_expr(target.index)}]"


def _clauses(item: ast.Rule | ast.Fuse | ast.Op) -> list[str]:
    lines = _listed("given", [f"{', '.join(map(_target, g.targets))}: {print_type(g.type)}" for g in item.given])
    lines += _listed("where", [print_expr(condition) for condition in item.where])
    if isinstance(item, ast.Rule):
        lines += _listed("let", [_binding(b) for b in item.let])
        lines.append(f"class {' '.join((item.numerics, *item.relaxations))}")
        if item.direction != "simplify":
            lines.append(f"direction {item.direction}")
    if isinstance(item, ast.Op) and item.numerics != "reassoc":
        lines.append(f"class {item.numerics}")
    lines += [_test(test) for test in item.tests]
    return [_INDENT + line for line in lines]


def _listed(word: str, parts: Sequence[str]) -> list[str]:
    """A clause with its parts, on as many lines as they need."""
    lines: list[str] = []
    current = word
    for i, part in enumerate(parts):
        text = part if i == len(parts) - 1 else part + ","
        if len(current) + len(text) + 3 > WIDTH and current.strip() and current != word:
            lines.append(current)
            current = " " * len(word)
        current += " " + text
    return [*lines, current] if parts else []


def _test(test: ast.RuleTest) -> str:
    parts = [f"test {test.verdict}".ljust(12), ", ".join(_operand(o) for o in test.operands)]
    if test.gives is not None:
        parts.append(f"gives {print_expr(test.gives)}")
    return "  ".join(p for p in parts if p).rstrip()


def _operand(operand: ast.Operand) -> str:
    kind = f": {print_type(operand.type)}" if operand.type is not None else ""
    value = f" = {print_expr(operand.value)}" if operand.value is not None else ""
    return _target(operand.target) + kind + value


def print_type(type_: ast.TypeExpr) -> str:
    """`const f32[N, ..s]`."""
    shape = "" if type_.shape is None else f"[{', '.join(_dim(d) for d in type_.shape)}]"
    if type_.element is None and type_.const and shape:
        return f"const {shape}"
    return " ".join(part for part in ("const" * type_.const, (type_.element or "") + shape) if part)


def _dim(dim: ast.Expr | ast.ShapeRest | ast.AnyDim) -> str:
    match dim:
        case ast.AnyDim():
            return "_"
        case ast.ShapeRest():
            return f"..{dim.name or ''}"
    return print_expr(dim)


def print_expr(expr: ast.Expr, at_least: int = _OR) -> str:
    """An expression or pattern, in parentheses if it binds looser than `at_least`."""
    text, strength = _expr(expr)
    return f"({text})" if strength < at_least else text


def _expr(expr: ast.Expr) -> tuple[str, int]:
    match expr:
        case ast.Number(value=value):
            text = repr(value)
            return text, _UNARY if text.startswith("-") else _POSTFIX
        case ast.String(value=text):
            return f'"{text}"', _POSTFIX
        case ast.Name(id=name):
            return name, _POSTFIX
        case ast.ListExpr(items=items):
            return f"[{', '.join(map(print_expr, items))}]", _POSTFIX
        case ast.Comprehension():
            condition = f" if {print_expr(expr.condition)}" if expr.condition is not None else ""
            item, iterable = print_expr(expr.item), print_expr(expr.iterable)
            return f"[{item} for {expr.variable} in {iterable}{condition}]", _POSTFIX
        case ast.Range(low=low, high=high):
            return f"{print_expr(low, _SUM)} .. {print_expr(high, _SUM)}", _RANGE
        case ast.Unary(operator="not", operand=ast.Compare(operator="in", left=left, right=right)):
            return f"{print_expr(left, _RANGE)} not in {print_expr(right, _RANGE)}", _COMPARE
        case ast.Unary(operator="not", operand=operand):
            return f"not {print_expr(operand, _NOT)}", _NOT
        case ast.Unary(operand=operand):
            # A minus before a bare literal would be read as part of it.
            literal = isinstance(operand, ast.Number)
            return f"-{print_expr(operand, _POSTFIX + 1 if literal else _UNARY)}", _UNARY
        case ast.Binary():
            return _binary(expr)
        case ast.Compare(operator=operator, left=left, right=right):
            return f"{print_expr(left, _RANGE)} {operator} {print_expr(right, _RANGE)}", _COMPARE
        case ast.Optional(name=name, default=default):
            return f"{name} = {print_expr(default)}", _OR
        case ast.Rest(name=name):
            return f"..{name or ''}", _OR
        case ast.All():
            return "*", _POSTFIX
        case ast.Subscript(base=base, index=index):
            return f"{print_expr(base, _POSTFIX)}[{print_expr(index)}]", _POSTFIX
        case ast.Alternatives(options=options):
            return f"({' | '.join(map(print_expr, options))})", _POSTFIX
        case ast.Conditional(then=then, condition=condition, otherwise=otherwise):
            return f"({print_expr(then)} if {print_expr(condition)} else {print_expr(otherwise)})", _POSTFIX
        case ast.Call():
            return _call(expr), _POSTFIX
    raise TypeError(f"{type(expr).__name__} is no expression")


def _binary(expr: ast.Binary) -> tuple[str, int]:
    strength = _BINARY[expr.operator]
    if expr.operator == "**":  # to the right; its left side is atomic
        left, right = print_expr(expr.left, _POSTFIX), print_expr(expr.right, _UNARY)
    else:
        left, right = print_expr(expr.left, strength), print_expr(expr.right, strength + 1)
    return f"{left} {expr.operator} {right}", strength


def _attribute(attribute: ast.Attribute) -> str:
    default = f" = {print_expr(attribute.default)}" if attribute.default is not None else ""
    return f"{attribute.name}: {print_expr(attribute.value)}{default}"


def _call(call: ast.Call) -> str:
    parts = [print_expr(arg) for arg in call.args]
    parts += [_attribute(attribute) for attribute in call.attributes]
    if call.rest is not None:
        parts.append(print_expr(call.rest))
    kind = f"{call.kind} " if call.kind else ""
    return f"{kind}{call.head}({', '.join(parts)})"
