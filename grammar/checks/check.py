"""Static checks of items: names are bound, clauses fit, patterns can be matched.

The checks see the items of all files at once, with `def`s expanded. They collect diagnostics; none stops at the first
error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..builtins import DTYPE_CLASSES, DTYPES, WORDS
from ..diagnostics import Diagnostic, Fix, Label, did_you_mean, repeated
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..syntax.ast import Span
from ..syntax.desugar import MAX_OPTIONAL, NEUTRAL, fits
from ..syntax.scope import (
    TENSORS,
    Scope,
    Sort,
    bind_given,
    bind_pattern,
    bindings,
    free_names,
    indices_in,
    is_dtype_variable,
    is_word,
    param_types,
    terms,
)
from .check_calls import Operators, check_calls
from .check_ops import check_op_types, definition_cycles
from .check_schedules import check_schedules, check_versions
from .check_tests import check_test


def check(items: Sequence[ast.Item], operators: OperatorInfo | None) -> list[Diagnostic]:
    """Return everything wrong with the items. Without `operators`, standard operators are not checked.

    A call of a `def` that could not be expanded is already reported, so it is ignored."""
    found = [*_unique_names(items), *check_schedules(items), *definition_cycles(items)]
    definitions = frozenset(item.name for item in items if isinstance(item, ast.Def))
    table = Operators([item for item in items if isinstance(item, ast.Op)], operators, definitions)
    found += table.diagnostics
    for item in items:
        match item:
            case ast.Rule():
                found += check_rule(item, table)
            case ast.Fuse():
                found += _Checker(table).fuse(item)
            case ast.Op():
                found += _Checker(table).op(item)
    found += check_versions(items, operators)
    return list(dict.fromkeys(found))


def check_rule(rule: ast.Rule, declared: Operators) -> list[Diagnostic]:
    """Return everything wrong with one rule beside declarations of operators, except its name and its ruleset."""
    return _Checker(declared).rule(rule)


def _unique_names(items: Sequence[ast.Item]) -> Iterator[Diagnostic]:
    kinds = {"rules": (ast.Rule, ast.Fuse), "rulesets": (ast.Ruleset,), "schedules": (ast.Schedule,)}
    for what, classes in kinds.items():
        named: Iterable[Any] = (item for item in items if isinstance(item, classes))
        for item, label in repeated(named):
            yield Diagnostic("duplicate-name", f"two {what} are named `{item.name}`", item.span, (label,))


_ELEMENTS = "use an element type (f32, i64, …), float, integer, number, bool, scalar, or a capital letter as variable"
_SINGLE = (Sort.TENSOR, Sort.ROOT, Sort.DIM, Sort.DTYPE, Sort.OPERATOR, Sort.REST)


class _Checker:
    """Checks one item."""

    def __init__(self, operators: Operators) -> None:
        self.operators = operators
        self.found: list[Diagnostic] = []
        self.scope = Scope()
        self.members: frozenset[str] = frozenset()

    def _complain(
        self, code: str, message: str, span: Span, *labels: Label, hint: str = "", fix: Fix | None = None
    ) -> None:
        self.found.append(Diagnostic(code, message, span, labels, hint, fix=fix))

    # --- items

    def rule(self, rule: ast.Rule) -> list[Diagnostic]:
        """Return everything wrong with a rule."""
        self._left(rule.lhs)
        bind_given(rule.given, self.scope)
        pattern = Scope(dict(self.scope.variables))
        self._lets(rule.let)
        self._given(rule.given)
        self._roots(rule.lhs, rule.rhs)
        self._uses(rule.rhs, *rule.where)
        if rule.order is not None:
            self._order(rule, rule.order)
        if rule.bidirectional:
            self._both_ways(rule, pattern)
        self._unused_lets(rule)
        self._tests(rule.tests, rule.lhs)
        return self.found

    def fuse(self, fuse: ast.Fuse) -> list[Diagnostic]:
        """Return everything wrong with a `fuse`."""
        self._left(fuse.lhs)
        bind_given(fuse.given, self.scope)
        self._given(fuse.given)
        heads = self.scope.names(Sort.OPERATOR)
        rhs = fuse.rhs
        members = rhs.args if isinstance(rhs, ast.Call) and rhs.head == "group" and not rhs.attributes else ()
        if not members or not all(isinstance(m, ast.Name) for m in members):
            message = "the right side of a `fuse` must be `group(..)` of the operators bound on its left"
            self._complain("bad-group", message, rhs.span)
        for member in members:
            if isinstance(member, ast.Name) and member.id not in heads:
                hint = did_you_mean(member.id, heads)
                self._complain("unbound-variable", f"no operator is bound to `{member.id}`", member.span, hint=hint)
        self._uses(*fuse.where)
        self._tests(fuse.tests, fuse.lhs)
        return self.found

    def op(self, op: ast.Op) -> list[Diagnostic]:
        """Return everything wrong with an operator's declaration."""
        for param, _ in repeated(op.params or ()):
            self._complain("duplicate-name", f"duplicate parameter `{param.name}`", param.span)
        for param in op.params or ():
            sort = Sort.ATTRIBUTE if param.attribute else Sort.VARIADIC if param.variadic else Sort.TENSOR
            self.scope.bind(param.name, sort, param.span)
            default = param.attribute or param.default
            if default is not None:
                self._closed(default)
        if op.definition is not None and op.params is None:
            self._complain("missing-parameters", f"`{op.name}` has a definition but no parameters", op.definition.span)
        bind_given(op.given, self.scope)
        bind_given(param_types(op), self.scope)
        self._given(op.given)
        for typed in param_types(op):
            self._type(typed.type)
        self.found += check_op_types(op, self.operators.info, self.scope)
        for type_ in op.results:
            self._type(type_)
            if type_.broadcasts is not None:
                message = "the type of a result needs dims, not `broadcasts to`"
                self._complain("misplaced-type", message, type_.broadcasts.span)
            self._uses(*(dim for dim in type_.shape or () if isinstance(dim, ast.Expr)))
        definition = [op.definition] if op.definition is not None else []
        self._uses(*definition, *op.where)
        self._tests(op.tests, *definition)
        return self.found

    # --- left sides

    def _left(self, lhs: ast.Expr | ast.Roots) -> None:
        bind_pattern(lhs, self.scope)
        self._tensor_attributes(lhs)
        for binding in bindings(lhs):
            name, span = binding.target.name, binding.target.span
            if self.scope.sort(name) not in (None, Sort.ROOT, Sort.ROOTS):
                label = Label(self.scope.span(name), "bound here")
                self._complain("duplicate-name", f"root `{name}` is also a variable", span, label)
            self.scope.bind(name, Sort.ROOT if binding.target.index is None else Sort.ROOTS, span)
        self.members = frozenset(b.target.index.id for b in bindings(lhs) if isinstance(b.target.index, ast.Name))
        for pattern in terms(lhs):
            self._root(pattern)
            self._pattern(pattern)
            self.found += check_calls(pattern, self.scope, self.operators, pattern=True)

    def _tensor_attributes(self, lhs: ast.Expr | ast.Roots) -> None:
        """Rebind variables of tensor attributes as tensors: they stand for constants."""
        for call in (node for node in lhs.walk() if isinstance(node, ast.Call)):
            for attribute in call.attributes:
                name = attribute.value.id if isinstance(attribute.value, ast.Name) else ""
                if self.scope.sort(name) is Sort.ATTRIBUTE and self.operators.is_tensor(call.head, attribute.name):
                    self.scope.variables[name] = (Sort.TENSOR, attribute.value.span)

    def _root(self, pattern: ast.Expr) -> None:
        match pattern:
            case ast.Alternatives(options=options):
                for option in options:
                    self._root(option)
            case ast.Omitted(pattern=inner):
                self._root(inner)
            case ast.Name() | ast.Number() | ast.String() | ast.ListExpr() | ast.Subscript(base=ast.Name()):
                message, hint = "a left side must be an operator call", "a bare variable or literal matches anything"
                self._complain("bare-left-side", message, pattern.span, hint=hint)

    def _pattern(self, pattern: ast.Syntax) -> None:
        """Report forms that cannot be matched, and alternatives that bind different variables."""
        if not isinstance(pattern, ast.Call | ast.Omitted):
            for child in pattern.children():
                if isinstance(child, ast.Optional):
                    self._optional_operand(pattern, child)
        match pattern:
            case ast.Call() if not pattern.is_operator:
                if [*free_names(pattern)]:
                    hint = self.operators.capital(pattern.head) or "operator names begin with a capital letter"
                    message = f"`{pattern.head}` is a function; a pattern may only contain operators"
                    self._complain("function-in-pattern", message, pattern.span, hint=hint)
                return
            case ast.Compare() | ast.Range() | ast.Comprehension() | ast.Conditional() | ast.Unary(operator="not"):
                message = "this cannot be matched; move conditions to `where`"
                self._complain("condition-in-pattern", message, pattern.span)
                return
            case ast.Omitted(pattern=inner):
                self._pattern(inner)
                return
            case ast.Axis(rank=rank):
                self._names(rank)
                return
            case ast.Binary(operator="and" | "or"):
                message = f"`{pattern.operator}` joins conditions; write the operator `{pattern.operator.title()}`"
                self._complain("condition-in-pattern", message, pattern.span)
            case ast.Alternatives():
                self._alternatives(pattern)
            case ast.Each(value=value):
                self._each(pattern)
                before, self.members = self.members, self.members | frozenset(indices_in(value))
                self._pattern(value)
                self.members = before
                return
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=index)):
                self._indexed(name, index, pattern.span)
            case ast.Attribute(value=ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=index)), default=None):
                self._indexed(name, index, pattern.span)
                return
            case ast.Attribute(value=value, default=default):
                if not isinstance(value, ast.Name):
                    self._names(value)
                if default is not None:
                    self._names(default)
                return
            case ast.Optional(default=default):  # computed when the input is absent, not matched
                self._names(default)
                return
        for child in pattern.children():
            self._pattern(child)

    def _optional_operand(self, parent: ast.Syntax, operand: ast.Optional) -> None:
        """Report an optional operand that `desugar` left in place."""
        operator = parent.operator if isinstance(parent, ast.Binary) else ""
        if operator not in NEUTRAL:
            hint = "operands of `+ - * / **` may be optional, and inputs: `Conv(x, W, B = 0)`"
        elif not fits(operator, operand.default):
            hint = f"the default of an operand of `{operator}` is {NEUTRAL[operator]} or `none`"
        elif operator not in ("+", "*") and operand is getattr(parent, "left", None):
            hint = f"only the right operand of `{operator}` may be optional"
        else:
            hint = f"a left side has at most {MAX_OPTIONAL} optional operands, and none in `P ...` or a `fuse`"
        self._complain("optional-operand", f"`({operand.name} = ..)` cannot be optional here", operand.span, hint=hint)

    def _each(self, each: ast.Each) -> None:
        indices = indices_in(each.value)
        if len(indices) != 1 or indices[0] in self.members:
            message = "variables in `P ...` need an index of their own, such as `x[i]` in `Relu(x[i]) ...`"
            self._complain("each-without-index", message, each.span)
        for inner in each.value.walk():
            if ast.is_many(inner):
                message = "`P ...` may not contain another pattern for several inputs"
                self._complain("each-in-each", message, inner.span)

    def _indexed(self, name: str, index: str, span: Span) -> None:
        if index not in self.members:
            message = f"`{name}[{index}]` needs a group `{{ y[{index}] = .. }}` or repeated inputs `P ...`"
            self._complain("index-without-group", message, span)

    def _alternatives(self, pattern: ast.Alternatives) -> None:
        scopes = [Scope() for _ in pattern.options]
        for option, scope in zip(pattern.options, scopes, strict=True):
            bind_pattern(option, scope)
        every = {name for scope in scopes for name in scope.names()}
        for option, scope in zip(pattern.options, scopes, strict=True):
            missing = sorted(every.difference(scope.names()))
            if missing:
                listed = ", ".join(f"`{n}`" for n in missing)
                message = f"alternatives must bind the same variables; this one does not bind {listed}"
                self._complain("unequal-alternatives", message, option.span)

    # --- types

    def _given(self, given: Sequence[ast.Given]) -> None:
        for clause in given:
            for target in clause.targets:
                sort = self.scope.sort(target.name)
                if sort is None:
                    hint = did_you_mean(target.name, self.scope.names(*TENSORS))
                    self._complain("unbound-variable", f"the pattern has no `{target.name}`", target.span, hint=hint)
                elif sort not in TENSORS:
                    self._complain("not-a-tensor", f"`{target.name}` is not a tensor ({sort.value})", target.span)
                if target.index is not None:
                    self._names(target.index)
            self._type(clause.type)

    def _type(self, type_: ast.TypeExpr) -> None:
        element = type_.element
        if element is not None and not is_word(element) and not is_dtype_variable(element):
            hint = did_you_mean(element, (*DTYPES, *DTYPE_CLASSES)) or _ELEMENTS
            self._complain("unknown-type", f"unknown element type `{element}`", type_.span, hint=hint)
        rests = [d for d in type_.shape or () if isinstance(d, ast.ShapeRest)]
        if len(rests) > 1:
            label = Label(rests[0].span, "the first one is here")
            self._complain("duplicate-rest", "a shape may have only one `..`", rests[1].span, label)
        self._uses(*(d for d in type_.shape or () if isinstance(d, ast.Expr) and not isinstance(d, ast.Name)))

    # --- right sides and conditions

    def _tests(self, tests: Iterable[ast.RuleTest], *patterns: ast.Expr | ast.Roots) -> None:
        for test in tests:
            self.found += check_test(test, patterns, self.scope, self.operators)
            if test.gives is not None:
                self._uses(test.gives)

    def _lets(self, lets: Sequence[ast.Binding]) -> None:
        for binding in lets:
            name = binding.target.name
            if name in self.scope:
                label = Label(self.scope.span(name), "bound here")
                self._complain("duplicate-name", f"`{name}` is already bound", binding.target.span, label)
            self.scope.bind(name, Sort.LET, binding.target.span)
        table = {b.target.name: b for b in lets}
        for binding in lets:
            self._uses(binding.value)
            if binding.target.name in _needs(binding.value, table):
                self._complain("let-cycle", f"`{binding.target.name}` is defined in terms of itself", binding.span)

    def _unused_lets(self, rule: ast.Rule) -> None:
        table = {b.target.name: b for b in rule.let}
        order = [rule.order] if rule.order is not None else []
        needed = set().union(*(_needs(part, table) for part in (rule.rhs, *rule.where, *order)))
        for binding in rule.let:
            if binding.target.name not in needed:
                self._complain("unused-let", f"`{binding.target.name}` is never used", binding.target.span)

    def _roots(self, lhs: ast.Expr | ast.Roots, rhs: ast.Expr | ast.Roots) -> None:
        if isinstance(lhs, ast.Roots) != isinstance(rhs, ast.Roots):
            message = "either both sides have roots `{ }`, or neither has"
            self._complain("unequal-roots", message, rhs.span, Label(lhs.span, ""))
            return
        for side in (lhs, rhs):
            for target, label in repeated(b.target for b in bindings(side)):
                if not isinstance(target.index, ast.Number):
                    self._complain("duplicate-name", f"duplicate root `{target.name}`", target.span, label)
        left, right = ({b.target.name: b.target for b in bindings(side)} for side in (lhs, rhs))
        if len(left) > 1 and any(isinstance(t.index, ast.Name) for t in left.values()):
            message, hint = "a group `y[i]` must be the only root", "remove the index or the other roots"
            self._complain("group-and-roots", message, [*left.values()][1].span, hint=hint)
        for name, target in left.items():
            if name not in right:
                self._complain("unequal-roots", f"root `{name}` has no right side", target.span)
        for name, target in right.items():
            if name not in left:
                hint = did_you_mean(name, left)
                self._complain("unequal-roots", f"the left side has no root `{name}`", target.span, hint=hint)
            elif isinstance(target.index, ast.All) and left[name].index is None:
                message = f"`{name}[*]` needs a group `{name}[i]` on the left"
                self._complain("star-without-group", message, target.span, Label(left[name].span, "a single root"))

    def _order(self, rule: ast.Rule, key: ast.Expr) -> None:
        indices = self.scope.names(Sort.INDEX)
        if not isinstance(rule.lhs, ast.Roots) or rule.lhs.bindings[0].target.index is None:
            self._complain("order-without-group", "`order` needs a group `{ y[i] = .. }`", key.span)
        elif not any(isinstance(n, ast.Name) and n.id in indices for n in key.walk()):
            message = "the key does not depend on the index, so it is the same for all members"
            self._complain("order-without-group", message, key.span)
        self._uses(key)

    def _both_ways(self, rule: ast.Rule, left: Scope) -> None:
        right = Scope()
        bind_pattern(rule.rhs, right)
        for pattern in terms(rule.rhs):
            self._root(pattern)
            self._pattern(pattern)
        bind_given(rule.given, right)
        lets = {b.target.name for b in rule.let}
        if any(isinstance(n, ast.Omitted) for n in rule.lhs.walk()):
            message = "`<=>` applies in both directions, but a right side cannot have optional operands"
            self._complain("optional-operand", message, rule.lhs.span, hint="write `=>`")
        for name in left.names():
            if name not in right and name not in lets and left.sort(name) not in (Sort.ROOT, Sort.ROOTS):
                message = f"`<=>` applies in both directions, but only the left side binds `{name}`"
                self._complain("unequal-sides", message, left.span(name), Label(rule.rhs.span, "not bound here"))

    def _uses(self, *parts: ast.Expr | ast.Roots) -> None:
        """Check names, calls and rests of expressions that are computed, not matched."""
        for part in parts:
            self._names(part)
            self._forms(part)
            self.found += check_calls(part, self.scope, self.operators, pattern=False)

    def _forms(self, part: ast.Expr | ast.Roots) -> None:
        """Report forms that are only meaningful in patterns."""
        inputs = {id(arg) for call in part.walk() if isinstance(call, ast.Call) for arg in call.args}
        for node in part.walk():
            match node:
                case ast.Optional(name=name) if id(node) not in inputs:
                    message = f"`({name} = ..)` makes an operand of a pattern optional; write `==` to compare"
                    self._complain("default-outside-pattern", message, node.span)
                case ast.Optional(name=name):
                    message = f"`{name} = ..` declares a default in a pattern; here inputs are positional"
                    self._complain("default-outside-pattern", message, node.span, fix=Fix(node.span, name))
                case ast.Attribute(name=name, default=ast.Expr()):
                    message = f"`{name}: .. = ..` declares a default in a pattern; here an attribute has one value"
                    self._complain("default-outside-pattern", message, node.span)
                case ast.Each(value=value) if not any(
                    n.id in self.scope.names(Sort.INDEX) for n in value.walk() if isinstance(n, ast.Name)
                ):
                    message = "`...` repeats its operand for each member, so the operand must contain an index"
                    self._complain("each-without-index", message, node.span)
                case ast.Alternatives():
                    self._complain("alternatives-outside-pattern", "`(a | b)` is only allowed in patterns", node.span)
                case ast.Subscript(base=ast.Name(id=name), index=ast.All()) if self.scope.sort(name) in _SINGLE:
                    hint, fix = f"`{name}` is bound to a single value on the left", Fix(node.span, name)
                    message = f"`{name}[*]` needs a list of tensors"
                    self._complain("star-without-group", message, node.span, hint=hint, fix=fix)

    def _names(self, part: ast.Expr | ast.Roots) -> None:
        for value in terms(part):
            for name in free_names(value):
                if name.id not in self.scope:
                    hint = did_you_mean(name.id, [*self.scope.names(), *DTYPES, *WORDS])
                    self._complain("unbound-variable", f"`{name.id}` is not bound on the left", name.span, hint=hint)

    def _closed(self, expr: ast.Expr) -> None:
        """Check a default: it may not contain variables."""
        for name in free_names(expr):
            self._complain("unbound-variable", f"a default must be a constant; `{name.id}` is a variable", name.span)
        self.found += check_calls(expr, Scope(), self.operators, pattern=False)


def _needs(part: ast.Syntax, lets: dict[str, ast.Binding]) -> set[str]:
    """Return the `let`s that an expression uses, directly or indirectly."""
    needed: set[str] = set()
    todo: list[ast.Syntax] = [part]
    while todo:
        for node in todo.pop().walk():
            if isinstance(node, ast.Name) and node.id in lets and node.id not in needed:
                needed.add(node.id)
                todo.append(lets[node.id].value)
    return needed
