"""Checks of calls: operators, functions and class heads exist and take these inputs and attributes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..builtins import NARY, Function, functions, operand_functions
from ..diagnostics import Diagnostic, Fix, Label, did_you_mean, repeated, spelling_fix, start_of
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..syntax.scope import TENSORS, Scope, Sort, is_word


@dataclass(frozen=True, slots=True)
class Interface:
    """Arity and attributes of an operator. `attributes` and `max_inputs` are None where anything is accepted."""

    attributes: frozenset[str] | None
    min_inputs: int
    max_inputs: int | None


class Operators:
    """The operators that rules may name: standard ones, and those that `op` items declare."""

    def __init__(
        self, declared: Sequence[ast.Op], info: OperatorInfo | None, definitions: frozenset[str] = frozenset()
    ) -> None:
        self.info = info
        self.definitions = definitions
        self.diagnostics: list[Diagnostic] = []
        self._declared: dict[str, list[ast.Op]] = {}
        for op in declared:
            self._declare(op)

    def _declare(self, op: ast.Op) -> None:
        others = self._declared.setdefault(op.name, [])
        for other in others:
            twice = op.definition is None and other.definition is None
            if twice or (op.kind and other.kind and op.kind != other.kind):
                message = f"`{op.name}` is declared {'twice' if twice else 'with two kinds'}"
                label = Label(other.span, "the first one is here")
                self.diagnostics.append(Diagnostic("duplicate-name", message, op.span, (label,)))
        others.append(op)
        standard = self.info is not None and self.info.schema(op.name) is not None
        if op.params is None and not standard and self.info is not None and "." not in op.name:
            message = f"unknown operator `{op.name}`; to declare a new one, give its parameters"
            found = Diagnostic("unknown-operator", message, op.span, hint=self.suggestion(op.name))
            self.diagnostics.append(found)

    def interface(self, name: str) -> Interface | None:
        """Return the interface of an operator; None for an unknown one."""
        found = self.info.schema(name) if self.info is not None else None
        if found is not None:
            variadic = any(p.variadic for p in found.inputs)
            return Interface(frozenset(found.attributes), found.min_inputs, None if variadic else found.max_inputs)
        declared = self._declared.get(name, [])
        params = next((op.params for op in declared if op.params is not None), None)
        if params is not None:
            inputs = [p for p in params if p.attribute is None]
            needed = max((i + 1 for i, p in enumerate(inputs) if p.default is None and not p.variadic), default=0)
            variadic = any(p.variadic for p in inputs)
            names = frozenset(p.name for p in params if p.attribute is not None)
            return Interface(names, needed, None if variadic else len(inputs))
        return Interface(None, 0, None) if declared or self.info is None else None

    def attributes_of_kind(self, kind: str) -> frozenset[str] | None:
        """Return the attributes of all operators declared to be of a kind; None where anything is accepted."""
        members = [self.interface(op.name) for ops in self._declared.values() for op in ops if op.kind == kind]
        known = [m.attributes for m in members if m is not None and m.attributes is not None]
        return frozenset().union(*known) if known and len(known) == len(members) else None

    def is_tensor(self, op: str, attribute: str) -> bool:
        """Return whether an attribute holds a tensor."""
        found = self.info.schema(op) if self.info is not None else None
        return found is not None and found.is_tensor(attribute)

    def suggestion(self, name: str) -> str:
        """Return a spelling suggestion for an unknown operator, or nothing."""
        known = {*self._declared, *(self.info.names() if self.info is not None else ())} - {name}
        return did_you_mean(name, sorted(known))

    def capital(self, function: str) -> str:
        """Return the operator whose name was written in lowercase (`relu`, `reduce_max`) as a hint, or nothing."""
        camel = "".join(part.capitalize() for part in function.split("_"))
        known = self.info is not None and self.interface(camel) is not None
        return f"did you mean the operator `{camel}`?" if known else ""

    def may_take(self, calls: Sequence[ast.Call], attribute: str) -> bool:
        """Return whether one of the calls, all with open attributes, may have this attribute."""
        found = [None if call.kind is not None else self.interface(call.head) for call in calls]
        return any(f is None or f.attributes is None or attribute in f.attributes for f in found)


def check_calls(
    part: ast.Syntax,
    scope: Scope,
    operators: Operators,
    *,
    pattern: bool,
    operand: bool = False,
    head: bool = False,
) -> list[Diagnostic]:
    """Return diagnostics of the calls in `part`.

    `pattern` for left sides, `operand` in tests, `head` for an operator named without its inputs."""
    table = operand_functions() if operand else functions()
    found: list[Diagnostic] = []
    forms = {id(n.form) for n in part.walk() if isinstance(n, ast.Compare) and n.form is not None}
    for node in part.walk():
        if id(node) in forms and isinstance(node, ast.Call):
            found += _form(node, scope, operators)
        elif isinstance(node, ast.Call):
            found += _repeated(node)
            if node.kind is not None and pattern:
                found += _class_attributes(node, operators)
            elif node.kind is not None:
                call = f"{node.head}(..)"
                message = f"`{node.kind} {call}` binds an operator in a pattern; write `{call}` here"
                fix = Fix(start_of(node.span, len(node.kind) + 1), "")
                found.append(Diagnostic("class-head-outside-pattern", message, node.span, fix=fix))
            elif node.head[:1].isupper() or "." in node.head:
                found += _operator(node, scope, operators, pattern, head)
            elif scope.sort(node.head) is not Sort.OPERATOR:
                found += _function(node, scope, operators, table)
    return found


def _class_attributes(call: ast.Call, operators: Operators) -> list[Diagnostic]:
    """Report attributes that no operator of the kind has."""
    known = operators.attributes_of_kind(call.kind or "")
    return _unknown_attributes(call, known, f"no {call.kind} operator has an attribute")


def _unknown_attributes(
    call: ast.Call, known: frozenset[str] | None, problem: str, otherwise: str = ""
) -> list[Diagnostic]:
    found = []
    for attribute in call.attributes:
        if known is not None and attribute.name not in known:
            hint = did_you_mean(attribute.name, sorted(known)) or otherwise
            fix = spelling_fix(hint, attribute.name, attribute.span)
            message = f"{problem} `{attribute.name}`"
            found.append(Diagnostic("unknown-attribute", message, attribute.span, hint=hint, fix=fix))
    return found


def _form(call: ast.Call, scope: Scope, operators: Operators) -> list[Diagnostic]:
    """Check `x is Transpose(..)`, which matches any inputs if none are written."""
    found = _repeated(call)
    if call.kind is not None:
        return found + _class_attributes(call, operators)
    is_open = not call.args and call.rest is not None and call.rest.name is None
    return found + _operator(call, scope, operators, True, is_open)


def _repeated(call: ast.Call) -> list[Diagnostic]:
    return [
        Diagnostic("repeated-attribute", f"duplicate attribute `{a.name}`", a.span, (label,))
        for a, label in repeated(call.attributes)
    ]


def _operator(call: ast.Call, scope: Scope, operators: Operators, pattern: bool, head: bool) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    if call.rest is not None and not pattern:
        if call.rest.name is None:
            message = "`..` stands for any attributes in a pattern; to pass them on, name them: `..a`"
            found.append(Diagnostic("unbound-rest", message, call.rest.span))
        elif scope.sort(call.rest.name) is not Sort.REST:
            hint = did_you_mean(call.rest.name, scope.names(Sort.REST))
            message = f"no attributes are bound to `..{call.rest.name}` on the left"
            found.append(Diagnostic("unbound-rest", message, call.rest.span, hint=hint))
    interface = operators.interface(call.head)
    if interface is None:
        hint = operators.suggestion(call.head) or "declare new operators with `op`"
        at = start_of(call.span, len(call.head))
        return [*found, Diagnostic("unknown-operator", f"unknown operator `{call.head}`", at, hint=hint)]
    has = ", ".join(f"`{a}`" for a in sorted(interface.attributes or ()))
    problem = f"`{call.head}` has no attribute"
    found += _unknown_attributes(call, interface.attributes, problem, f"it has {has}" if has else "")
    if head:
        return found
    stars = [a for a in call.args if ast.is_many(a)]
    if call.head in NARY and (stars or len(call.args) > 2):
        named_stars = [s for s in stars if not isinstance(s, ast.Each)]
        if pattern and len(named_stars) > 1:
            message = f"only one `[*]` may stand for the remaining terms of `{call.head}`"
            label = Label(named_stars[0].span, "the first one is here")
            found.append(Diagnostic("many-side-by-side", message, named_stars[1].span, (label,)))
        return found
    if pattern:
        found += _side_by_side(call)
    if stars and interface.max_inputs is not None:
        message = f"`{call.head}` takes a fixed number of inputs"
        named = [s for s in stars if not isinstance(s, ast.Subscript) or isinstance(s.base, ast.Name)]
        found += [Diagnostic("wrong-arity", message, s.span) for s in named]
    elif not stars:
        found += _arity(call, "input", interface.min_inputs, interface.max_inputs)
    return found


def _arity(call: ast.Call, what: str, low: int, high: int | None, hint: str = "") -> Iterator[Diagnostic]:
    """Report a wrong number of inputs or arguments."""
    count = len(call.args)
    if count < low or (high is not None and count > high):
        range_ = f"at least {low}" if high is None else str(low) if low == high else f"{low} to {high}"
        message = f"`{call.head}` takes {range_} {what}{'s' * ((high or low) != 1)}, not {count}"
        yield Diagnostic("wrong-arity", message, call.span, hint=hint)


def _side_by_side(call: ast.Call) -> list[Diagnostic]:
    """Report adjacent groups of inputs without a clear boundary."""
    found = []
    for left, right in itertools.pairwise(call.args):
        starred = [
            isinstance(a, ast.Subscript) and isinstance(a.base, ast.Name) and ast.is_many(a) for a in (left, right)
        ]
        if all(starred) or (isinstance(left, ast.Each) and isinstance(right, ast.Each)):
            message = "the boundary between these two groups of inputs is ambiguous"
            found.append(Diagnostic("many-side-by-side", message, left.span, (Label(right.span, "the second group"),)))
    return found


def _function(call: ast.Call, scope: Scope, operators: Operators, table: Mapping[str, Function]) -> list[Diagnostic]:
    function = table.get(call.head)
    if function is None:
        if call.head in operators.definitions:
            return []
        hint = operators.capital(call.head) or did_you_mean(call.head, [*table, *scope.names(Sort.OPERATOR)])
        at = start_of(call.span, len(call.head))
        return [Diagnostic("unknown-function", f"unknown function `{call.head}`", at, hint=hint)]
    found: list[Diagnostic] = []
    extra = [*call.attributes, *([call.rest] if call.rest is not None else [])]
    if extra:
        message = f"`{call.head}` is a function; functions have no attributes"
        found.append(Diagnostic("wrong-arity", message, extra[0].span, hint=function.signature))
    if not any(isinstance(a, ast.Subscript) and isinstance(a.index, ast.All) for a in call.args):
        found += _arity(call, "argument", function.min_arguments, function.max_arguments, function.signature)
    for argument in call.args:
        if isinstance(argument, ast.Each):
            message = f"`{call.head}` is a function; pass a list: `[.. ...]`"
            found.append(Diagnostic("wrong-argument", message, argument.span, hint=function.signature))
    for parameter, argument in zip(function.parameters, call.args, strict=False):
        if parameter.sort == "tensor" and _is_not_a_tensor(argument, scope):
            message = f"`{call.head}` needs a tensor here"
            found.append(Diagnostic("wrong-argument", message, argument.span, hint=function.signature))
    return found


def _is_not_a_tensor(argument: ast.Expr, scope: Scope) -> bool:
    if isinstance(argument, ast.Name):
        return is_word(argument.id) or scope.sort(argument.id) not in (*TENSORS, Sort.LET, None)
    return isinstance(argument, ast.String | ast.ListExpr | ast.Comprehension | ast.Range | ast.Compare)
