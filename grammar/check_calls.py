"""Checks of calls: operators, functions and class heads exist and get the inputs and attributes they take."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import ast
from .ast import Span
from .builtins import NARY, Function, functions, operand_functions
from .diagnostics import Diagnostic, Fix, Label, did_you_mean, guessed
from .operator_info import OperatorInfo
from .scope import TENSORS, Scope, Sort, is_word


@dataclass(frozen=True, slots=True)
class Interface:
    """What the checks need of an operator. `attributes` and arities are None where anything goes."""

    attributes: frozenset[str] | None
    min_inputs: int
    max_inputs: int | None
    variadic: bool


class Operators:
    """The operators that rules may name: the standard's and those that `op` items declare."""

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
            label = Label(other.span, "the first one is here")
            if op.definition is None and other.definition is None:
                message = f"`{op.name}` is declared twice"
                self.diagnostics.append(Diagnostic("duplicate-name", message, op.span, (label,)))
            elif op.kind and other.kind and op.kind != other.kind:
                message = f"`{op.name}` is declared to be of two kinds"
                self.diagnostics.append(Diagnostic("duplicate-name", message, op.span, (label,)))
        others.append(op)
        standard = self.info is not None and self.info.signature(op.name) is not None
        if op.params is None and not standard and self.info is not None and "." not in op.name:
            message = f"there is no operator `{op.name}`; one of your own is declared with its parameters"
            hint = self.suggestion(op.name)
            self.diagnostics.append(Diagnostic("unknown-operator", message, op.span, hint=hint))

    def interface(self, name: str) -> Interface | None:
        """The interface of an operator, or None if there is none of that name."""
        found = self.info.signature(name) if self.info is not None else None
        if found is not None:
            variadic = any(variadic for _, _, variadic in found.inputs)
            names = frozenset(found.attributes)
            return Interface(names, found.min_inputs, None if variadic else found.max_inputs, variadic)
        declared = self._declared.get(name, [])
        params = next((op.params for op in declared if op.params is not None), None)
        if params is not None:
            inputs = [p for p in params if p.attribute is None]
            needed = max((i + 1 for i, p in enumerate(inputs) if p.default is None and not p.variadic), default=0)
            variadic = any(p.variadic for p in inputs)
            names = frozenset(p.name for p in params if p.attribute is not None)
            return Interface(names, needed, None if variadic else len(inputs), variadic)
        if declared or self.info is None:
            return Interface(None, 0, None, True)
        return None

    def attributes_of_kind(self, kind: str) -> frozenset[str] | None:
        """The attributes of all operators declared to be of a kind; None where anything goes."""
        found: frozenset[str] = frozenset()
        members = [op.name for ops in self._declared.values() for op in ops if op.kind == kind]
        for name in members:
            interface = self.interface(name)
            if interface is None or interface.attributes is None:
                return None
            found |= interface.attributes
        return found if members else None

    def is_tensor(self, op: str, attribute: str) -> bool:
        """Whether an attribute holds a tensor."""
        return self.info is not None and self.info.is_tensor(op, attribute)

    def suggestion(self, name: str) -> str:
        """“did you mean” for an unknown operator, or nothing."""
        known = {*self._declared, *(self.info.names() if self.info is not None else ())} - {name}
        return did_you_mean(name, sorted(known))

    def capital(self, function: str) -> str:
        """“did you mean” for an operator written small, `relu` or `reduce_max`, or nothing."""
        camel = "".join(part.capitalize() for part in function.split("_"))
        known = self.info is not None and self.interface(camel) is not None
        return f"did you mean the operator `{camel}`?" if known else ""

    def may_take(self, calls: Sequence[ast.Call], attribute: str) -> bool:
        """Whether one of the calls, all with attributes left open, may have this attribute."""
        for call in calls:
            interface = None if call.kind is not None else self.interface(call.head)
            if interface is None or interface.attributes is None or attribute in interface.attributes:
                return True
        return False


def check_calls(
    part: ast.Syntax,
    scope: Scope,
    operators: Operators,
    *,
    pattern: bool,
    operand: bool = False,
    head: bool = False,
) -> list[Diagnostic]:
    """What is wrong with the calls in `part`.

    `pattern` for left sides, `operand` in tests, `head` for an operator named without its inputs."""
    table = operand_functions() if operand else functions()
    found: list[Diagnostic] = []
    forms = {id(n.form) for n in part.walk() if isinstance(n, ast.Compare) and n.form is not None}
    for node in part.walk():
        if id(node) in forms and isinstance(node, ast.Call):
            found += _form(node, scope, operators)
        elif isinstance(node, ast.Call):
            found += _repeated(node)
            if node.kind is not None:
                if not pattern:
                    message = (
                        f"`{node.kind} {node.head}(..)` binds an operator in a pattern; here write `{node.head}(..)`"
                    )
                    at = node.span
                    kind = Span(at.file, at.line, at.column, at.line, at.column + len(node.kind) + 1)
                    found.append(Diagnostic("class-head-outside-pattern", message, node.span, fix=Fix(kind, "")))
                else:
                    found += _class_attributes(node, operators)
            elif node.head[:1].isupper() or "." in node.head:
                found += _operator(node, scope, operators, pattern, head)
            elif scope.sort(node.head) is not Sort.OPERATOR:
                found += _function(node, scope, operators, table)
    return found


def _class_attributes(call: ast.Call, operators: Operators) -> list[Diagnostic]:
    """Attributes that no operator of the kind has."""
    known = operators.attributes_of_kind(call.kind or "")
    found = []
    for attribute in call.attributes:
        if known is not None and attribute.name not in known:
            hint = did_you_mean(attribute.name, sorted(known))
            message = f"no {call.kind} operator has an attribute `{attribute.name}`"
            fix = guessed(hint, attribute.name, attribute.span)
            found.append(Diagnostic("unknown-attribute", message, attribute.span, hint=hint, fix=fix))
    return found


def _form(call: ast.Call, scope: Scope, operators: Operators) -> list[Diagnostic]:
    """`x is Transpose(..)`: whatever it reads, if no inputs are written."""
    found = _repeated(call)
    if call.kind is not None:
        return found + _class_attributes(call, operators)
    is_open = not call.args and call.rest is not None and call.rest.name is None
    return found + _operator(call, scope, operators, True, is_open)


def _repeated(call: ast.Call) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    seen: dict[str, Span] = {}
    for attribute in call.attributes:
        if attribute.name in seen:
            label = Label(seen[attribute.name], "the first one is here")
            message = f"attribute `{attribute.name}` is given twice"
            found.append(Diagnostic("repeated-attribute", message, attribute.span, (label,)))
        seen.setdefault(attribute.name, attribute.span)
    return found


def _operator(call: ast.Call, scope: Scope, operators: Operators, pattern: bool, head: bool) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    if call.rest is not None and not pattern:
        if call.rest.name is None:
            message = "`..` leaves attributes open in a pattern; on the right bind them: `..a`"
            found.append(Diagnostic("unbound-rest", message, call.rest.span))
        elif scope.sort(call.rest.name) is not Sort.REST:
            hint = did_you_mean(call.rest.name, scope.names(Sort.REST))
            message = f"no attributes are bound to `..{call.rest.name}` on the left"
            found.append(Diagnostic("unbound-rest", message, call.rest.span, hint=hint))
    interface = operators.interface(call.head)
    if interface is None:
        hint = operators.suggestion(call.head) or "declare operators of your own with `op`"
        return [*found, Diagnostic("unknown-operator", f"there is no operator `{call.head}`", _head(call), hint=hint)]
    found += _attributes(call, interface)
    if head:
        return found
    stars = [a for a in call.args if _is_many(a)]
    if call.head in NARY and (stars or len(call.args) > 2):
        named_stars = [s for s in stars if not isinstance(s, ast.Each)]
        if pattern and len(named_stars) > 1:
            message = f"of the terms of one `{call.head}` only one `[*]` can take what is left"
            label = Label(named_stars[0].span, "the first one is here")
            found.append(Diagnostic("many-side-by-side", message, named_stars[1].span, (label,)))
        return found
    if pattern:
        found += _side_by_side(call)
    if stars and not interface.variadic:
        message = f"`{call.head}` has a fixed number of inputs"
        named = [
            s
            for s in stars
            if isinstance(s, ast.Each) or (isinstance(s, ast.Subscript) and isinstance(s.base, ast.Name))
        ]
        found += [Diagnostic("wrong-arity", message, s.span) for s in named]
    elif not stars:
        count, low, high = len(call.args), interface.min_inputs, interface.max_inputs
        if count < low or (high is not None and count > high):
            message = f"`{call.head}` takes {_count(low, high)} input{'s' * ((high or low) != 1)}, here it has {count}"
            found.append(Diagnostic("wrong-arity", message, call.span))
    return found


def _is_many(argument: ast.Expr) -> bool:
    """Whether an argument stands for any number of inputs."""
    return isinstance(argument, ast.Each) or (
        isinstance(argument, ast.Subscript) and isinstance(argument.index, ast.All)
    )


def _side_by_side(call: ast.Call) -> list[Diagnostic]:
    """Neighbours of which it is not clear where the one ends and the other begins."""
    found = []
    for left, right in itertools.pairwise(call.args):
        starred = [isinstance(a, ast.Subscript) and isinstance(a.base, ast.Name) and _is_many(a) for a in (left, right)]
        if all(starred) or (isinstance(left, ast.Each) and isinstance(right, ast.Each)):
            message = "it is not clear where these inputs end and the next begin"
            found.append(Diagnostic("many-side-by-side", message, left.span, (Label(right.span, "the next"),)))
    return found


def _attributes(call: ast.Call, interface: Interface) -> list[Diagnostic]:
    known = interface.attributes
    if known is None:
        return []
    found = []
    for attribute in call.attributes:
        if attribute.name not in known:
            hint = did_you_mean(attribute.name, sorted(known))
            if not hint and known:
                hint = "it has " + ", ".join(f"`{a}`" for a in sorted(known))
            message = f"`{call.head}` has no attribute `{attribute.name}`"
            fix = guessed(hint, attribute.name, attribute.span)
            found.append(Diagnostic("unknown-attribute", message, attribute.span, hint=hint, fix=fix))
    return found


def _function(call: ast.Call, scope: Scope, operators: Operators, table: Mapping[str, Function]) -> list[Diagnostic]:
    function = table.get(call.head)
    if function is None:
        if call.head in operators.definitions:
            return []
        hint = operators.capital(call.head) or did_you_mean(call.head, [*table, *scope.names(Sort.OPERATOR)])
        return [Diagnostic("unknown-function", f"there is no function `{call.head}`", _head(call), hint=hint)]
    found: list[Diagnostic] = []
    if call.attributes or call.rest is not None:
        at = call.attributes[0] if call.attributes else call.rest
        assert at is not None
        message = f"`{call.head}` is a function and has no attributes"
        found.append(Diagnostic("wrong-arity", message, at.span, hint=function.signature))
    count, low, high = len(call.args), function.min_arguments, function.max_arguments
    spread = any(isinstance(a, ast.Subscript) and isinstance(a.index, ast.All) for a in call.args)
    if not spread and (count < low or (high is not None and count > high)):
        message = f"`{call.head}` takes {_count(low, high)} argument{'s' * ((high or low) != 1)}, here it has {count}"
        found.append(Diagnostic("wrong-arity", message, call.span, hint=function.signature))
    for argument in call.args:
        if isinstance(argument, ast.Each):
            message = f"`{call.head}` is a function: write a list, `[.. ...]`"
            found.append(Diagnostic("wrong-argument", message, argument.span, hint=function.signature))
    for parameter, argument in zip(function.parameters, call.args, strict=False):
        if parameter.sort == "tensor" and _is_no_tensor(argument, scope):
            message = f"`{call.head}` asks for a tensor here"
            found.append(Diagnostic("wrong-argument", message, argument.span, hint=function.signature))
    return found


def _is_no_tensor(argument: ast.Expr, scope: Scope) -> bool:
    if isinstance(argument, ast.Name):
        return is_word(argument.id) or scope.sort(argument.id) not in (*TENSORS, Sort.LET, None)
    return isinstance(argument, ast.String | ast.ListExpr | ast.Comprehension | ast.Range | ast.Compare)


def _head(call: ast.Call) -> Span:
    """Where the name of the called stands."""
    at = call.span
    return Span(at.file, at.line, at.column, at.line, at.column + len(call.head))


def _count(low: int, high: int | None) -> str:
    if high is None:
        return f"at least {low}"
    return str(low) if low == high else f"{low} to {high}"
