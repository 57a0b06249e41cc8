"""Static checks of parsed rules: names, operators, functions, attributes and clauses mean something and fit together.

The checks see the items of all files at once, after `def`s are expanded. They collect what they find; nothing stops
at the first error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import ast
from .ast import Span
from .builtins import DTYPE_CLASSES, DTYPES, WORDS
from .check_calls import Operators, check_calls
from .check_ops import check_op_types, definition_cycles
from .check_schedules import check_schedules, check_versions
from .diagnostics import Diagnostic, Fix, Label, did_you_mean
from .operator_info import OperatorInfo
from .scope import (
    TENSORS,
    Scope,
    Sort,
    bind_given,
    bind_pattern,
    free_names,
    indices_in,
    is_dtype_variable,
    is_word,
    param_types,
)


def check(items: Sequence[ast.Item], operators: OperatorInfo | None) -> list[Diagnostic]:
    """Everything that is wrong with the items. Without `operators` the standard's operators are taken on trust.

    A call of a `def` that could not be expanded has been complained about before, so it is passed over."""
    found = [*_unique_names(items), *check_schedules(items), *definition_cycles(items)]
    definitions = frozenset(item.name for item in items if isinstance(item, ast.Def))
    table = Operators([item for item in items if isinstance(item, ast.Op)], operators, definitions)
    found += table.diagnostics
    for item in items:
        if isinstance(item, ast.Rule):
            found += _Checker(table).rule(item)
        elif isinstance(item, ast.Fuse):
            found += _Checker(table).fuse(item)
        elif isinstance(item, ast.Op):
            found += _Checker(table).op(item)
    found += check_versions(items, operators)
    return list(dict.fromkeys(found))


def _unique_names(items: Iterable[ast.Item]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    seen: dict[str, Span] = {}
    for item in items:
        if isinstance(item, ast.Rule | ast.Fuse):
            if item.name in seen:
                label = Label(seen[item.name], "the first one is here")
                found.append(Diagnostic("duplicate-name", f"two rules are named `{item.name}`", item.span, (label,)))
            seen.setdefault(item.name, item.span)
    return found


_SINGLE = (Sort.TENSOR, Sort.ROOT, Sort.DIM, Sort.DTYPE, Sort.OPERATOR, Sort.REST)


class _Checker:
    """Checks one item."""

    def __init__(self, operators: Operators) -> None:
        self.operators = operators
        self.found: list[Diagnostic] = []
        self.scope = Scope()
        self.members: frozenset[str] = frozenset()

    def _complain(self, code: str, message: str, span: Span, *labels: Label, hint: str = "") -> None:
        self.found.append(Diagnostic(code, message, span, labels, hint))

    # --- items

    def rule(self, rule: ast.Rule) -> list[Diagnostic]:
        """Everything wrong with a rule."""
        self._left(rule.lhs)
        bind_given(rule.given, self.scope)
        pattern = Scope(dict(self.scope.variables))
        self._lets(rule.let)
        self._given(rule.given)
        self._roots(rule.lhs, rule.rhs)
        self._uses(rule.rhs)
        for condition in rule.where:
            self._uses(condition)
        if rule.order is not None:
            self._order(rule, rule.order)
        if rule.bidirectional:
            self._both_ways(rule, pattern)
        self._unused_lets(rule)
        for test in rule.tests:
            self._test(test, [rule.lhs])
        return self.found

    def fuse(self, fuse: ast.Fuse) -> list[Diagnostic]:
        """Everything wrong with a `fuse`."""
        self._left(fuse.lhs)
        bind_given(fuse.given, self.scope)
        self._given(fuse.given)
        heads = self.scope.names(Sort.OPERATOR)
        rhs = fuse.rhs
        members = rhs.args if isinstance(rhs, ast.Call) and rhs.head == "group" and not rhs.attributes else ()
        if not members or not all(isinstance(m, ast.Name) for m in members):
            message = "the right side of a `fuse` is `group(..)` of the operators on its left"
            self._complain("bad-group", message, rhs.span)
        for member in members:
            if isinstance(member, ast.Name) and member.id not in heads:
                hint = did_you_mean(member.id, heads)
                self._complain("unbound-variable", f"no operator is bound to `{member.id}`", member.span, hint=hint)
        for condition in fuse.where:
            self._uses(condition)
        for test in fuse.tests:
            self._test(test, [fuse.lhs])
        return self.found

    def op(self, op: ast.Op) -> list[Diagnostic]:
        """Everything wrong with an operator's declaration."""
        for i, param in enumerate(op.params or ()):
            if param.name in (p.name for p in (op.params or ())[:i]):
                self._complain("duplicate-name", f"parameter `{param.name}` is named twice", param.span)
            is_attribute = param.attribute is not None
            sort = Sort.ATTRIBUTE if is_attribute else Sort.VARIADIC if param.variadic else Sort.TENSOR
            self.scope.bind(param.name, sort, param.span)
            default = param.attribute if is_attribute else param.default
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
            for dim in type_.shape or ():
                if isinstance(dim, ast.Expr):
                    self._uses(dim)
        if op.definition is not None:
            self._uses(op.definition)
        for expr in op.where:
            self._uses(expr)
        for test in op.tests:
            self._test(test, [op.definition] if op.definition is not None else [])
        return self.found

    # --- left sides

    def _left(self, lhs: ast.Expr | ast.Roots) -> None:
        bind_pattern(lhs, self.scope)
        self._tensor_attributes(lhs)
        patterns = [b.value for b in lhs.bindings] if isinstance(lhs, ast.Roots) else [lhs]
        for binding in lhs.bindings if isinstance(lhs, ast.Roots) else ():
            name, span = binding.target.name, binding.target.span
            if self.scope.sort(name) not in (None, Sort.ROOT, Sort.ROOTS):
                label = Label(self.scope.span(name), "bound here")
                self._complain("duplicate-name", f"root `{name}` is also a variable", span, label)
            self.scope.bind(name, Sort.ROOT if binding.target.index is None else Sort.ROOTS, span)
        targets = [b.target.index for b in lhs.bindings] if isinstance(lhs, ast.Roots) else []
        self.members = frozenset(t.id for t in targets if isinstance(t, ast.Name))
        for pattern in patterns:
            self._root(pattern)
            self._pattern(pattern)
            self.found += check_calls(pattern, self.scope, self.operators, pattern=True)

    def _tensor_attributes(self, lhs: ast.Expr | ast.Roots) -> None:
        """Variables of attributes that hold tensors stand for constants."""
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
            case ast.Name() | ast.Number() | ast.String() | ast.ListExpr() | ast.Subscript(base=ast.Name()):
                message = "a left side must be an operator's application"
                self._complain(
                    "bare-left-side", message, pattern.span, hint="a bare variable or literal matches anything"
                )

    def _pattern(self, pattern: ast.Syntax) -> None:
        """What may not stand in a pattern, and alternatives that bind different variables."""
        match pattern:
            case ast.Call() if not pattern.is_operator:
                if any(True for _ in free_names(pattern)):
                    hint = self.operators.capital(pattern.head) or "operators begin with a capital"
                    message = f"`{pattern.head}` is a function; a pattern is made of operators"
                    self._complain("function-in-pattern", message, pattern.span, hint=hint)
                return
            case ast.Compare() | ast.Range() | ast.Comprehension() | ast.Conditional() | ast.Unary(operator="not"):
                self._complain(
                    "condition-in-pattern", "this cannot be matched; conditions go into `where`", pattern.span
                )
                return
            case ast.Binary(operator="and" | "or"):
                message = f"`{pattern.operator}` is for conditions; write the operator {pattern.operator.title()}"
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

    def _each(self, each: ast.Each) -> None:
        indices = indices_in(each.value)
        if len(indices) != 1 or indices[0] in self.members:
            message = "what each input binds has an index of its own, as `x[i]` in `Relu(x[i]) ...`"
            self._complain("each-without-index", message, each.span)
        for inner in each.value.walk():
            if isinstance(inner, ast.Each) or (isinstance(inner, ast.Subscript) and isinstance(inner.index, ast.All)):
                message = "inside of a pattern of each input there is no other of many inputs"
                self._complain("each-in-each", message, inner.span)

    def _indexed(self, name: str, index: str, span: Span) -> None:
        if index not in self.members:
            message = f"`{name}[{index}]` is one of many: of a group `{{ y[{index}] = .. }}`, or of each input `P ...`"
            self._complain("index-without-group", message, span)

    def _alternatives(self, pattern: ast.Alternatives) -> None:
        bound = []
        for option in pattern.options:
            scope = Scope()
            bind_pattern(option, scope)
            bound.append(set(scope.names()))
        for option, names in zip(pattern.options, bound, strict=True):
            missing = sorted(set().union(*bound) - names)
            if missing:
                listed = ", ".join(f"`{n}`" for n in missing)
                message = f"alternatives bind the same variables; this one does not bind {listed}"
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
                    self._complain("not-a-tensor", f"`{target.name}` is no tensor ({sort.value})", target.span)
                if target.index is not None:
                    self._names(target.index)
            self._type(clause.type)

    def _type(self, type_: ast.TypeExpr) -> None:
        element = type_.element
        if element is not None and not is_word(element) and not is_dtype_variable(element):
            hint = did_you_mean(element, (*DTYPES, *DTYPE_CLASSES))
            if not hint:
                hint = "an element type (f32, i64, …), float, integer, number, bool, scalar, or a variable: one capital"
            self._complain("unknown-type", f"there is no element type `{element}`", type_.span, hint=hint)
        rests = [d for d in type_.shape or () if isinstance(d, ast.ShapeRest)]
        if len(rests) > 1:
            label = Label(rests[0].span, "the first one is here")
            self._complain("duplicate-rest", "a shape has one `..` at most", rests[1].span, label)
        for dim in type_.shape or ():
            if isinstance(dim, ast.Expr) and not isinstance(dim, ast.Name):
                self._uses(dim)

    # --- right sides and conditions

    def _lets(self, lets: Sequence[ast.Binding]) -> None:
        for binding in lets:
            name = binding.target.name
            if name in self.scope:
                label = Label(self.scope.span(name), "bound here")
                self._complain("duplicate-name", f"`{name}` is bound already", binding.target.span, label)
            self.scope.bind(name, Sort.LET, binding.target.span)
        table = {b.target.name: b for b in lets}
        for binding in lets:
            self._uses(binding.value)
            if binding.target.name in _needs(binding.value, table):
                self._complain("let-cycle", f"`{binding.target.name}` is defined by itself", binding.span)

    def _unused_lets(self, rule: ast.Rule) -> None:
        table = {b.target.name: b for b in rule.let}
        needed: set[str] = set()
        for part in (rule.rhs, *rule.where, *((rule.order,) if rule.order is not None else ())):
            needed |= _needs(part, table)
        for binding in rule.let:
            if binding.target.name not in needed:
                self._complain("unused-let", f"`{binding.target.name}` is never used", binding.target.span)

    def _roots(self, lhs: ast.Expr | ast.Roots, rhs: ast.Expr | ast.Roots) -> None:
        left = {b.target.name: b.target for b in lhs.bindings} if isinstance(lhs, ast.Roots) else {}
        right = {b.target.name: b.target for b in rhs.bindings} if isinstance(rhs, ast.Roots) else {}
        if isinstance(lhs, ast.Roots) != isinstance(rhs, ast.Roots):
            self._complain(
                "unequal-roots", "both sides have roots `{ }`, or neither has", rhs.span, Label(lhs.span, "")
            )
            return
        for side in (lhs, rhs):
            if isinstance(side, ast.Roots):
                seen: dict[str, Span] = {}
                for binding in side.bindings:
                    target = binding.target
                    if target.name in seen and not isinstance(target.index, ast.Number):
                        label = Label(seen[target.name], "the first one is here")
                        self._complain("duplicate-name", f"root `{target.name}` is given twice", target.span, label)
                    seen.setdefault(target.name, target.span)
        if left and len(left) > 1 and any(isinstance(t.index, ast.Name) for t in left.values()):
            extra = list(left.values())[1]
            self._complain("group-and-roots", "a group has one root", extra.span, hint="or none has an index")
        for name in left:
            if name not in right:
                self._complain("unequal-roots", f"root `{name}` has no right side", left[name].span)
        for name, target in right.items():
            if name not in left:
                hint = did_you_mean(name, left)
                self._complain("unequal-roots", f"there is no root `{name}` on the left", target.span, hint=hint)
            elif isinstance(target.index, ast.All) and left[name].index is None:
                label = Label(left[name].span, "one root")
                self._complain(
                    "star-without-group", f"`{name}[*]` needs a group `{name}[i]` on the left", target.span, label
                )

    def _order(self, rule: ast.Rule, key: ast.Expr) -> None:
        indices = self.scope.names(Sort.INDEX)
        if not isinstance(rule.lhs, ast.Roots) or rule.lhs.bindings[0].target.index is None:
            self._complain("order-without-group", "only a group `{ y[i] = .. }` has members to order", key.span)
        elif not any(isinstance(n, ast.Name) and n.id in indices for n in key.walk()):
            message = "the key is the same for all members: it does not mention the index"
            self._complain("order-without-group", message, key.span)
        self._uses(key)

    def _both_ways(self, rule: ast.Rule, left: Scope) -> None:
        right = Scope()
        bind_pattern(rule.rhs, right)
        patterns = [b.value for b in rule.rhs.bindings] if isinstance(rule.rhs, ast.Roots) else [rule.rhs]
        for pattern in patterns:
            self._root(pattern)
            self._pattern(pattern)
        bind_given(rule.given, right)
        lets = {b.target.name for b in rule.let}
        for name in left.names():
            if name not in right and name not in lets and left.sort(name) not in (Sort.ROOT, Sort.ROOTS):
                message = f"`<=>` goes both ways, but only the left side binds `{name}`"
                self._complain("unequal-sides", message, left.span(name), Label(rule.rhs.span, "not bound here"))

    def _uses(self, part: ast.Expr | ast.Roots) -> None:
        """Names, calls and rests of an expression that is computed and not matched."""
        self._names(part)
        for node in part.walk():
            match node:
                case ast.Optional(name=name):
                    message = f"`{name} = ..` gives a default in a pattern; here an input is passed by its place"
                    fix = Fix(node.span, name)
                    self.found.append(Diagnostic("default-outside-pattern", message, node.span, fix=fix))
                case ast.Attribute(name=name, default=ast.Expr()):
                    message = f"`{name}: .. = ..` gives a default in a pattern; here an attribute has one value"
                    self._complain("default-outside-pattern", message, node.span)
                case ast.Each(value=value) if not any(
                    n.id in self.scope.names(Sort.INDEX) for n in value.walk() if isinstance(n, ast.Name)
                ):
                    message = "`...` makes one for each member: it needs the index of a group or of inputs"
                    self._complain("each-without-index", message, node.span)
                case ast.Alternatives():
                    self._complain("alternatives-outside-pattern", "`(a | b)` is for patterns only", node.span)
                case ast.Subscript(base=ast.Name(id=name), index=ast.All()) if self.scope.sort(name) in _SINGLE:
                    hint = f"`{name}` is bound to one value on the left"
                    message, fix = f"`{name}[*]` needs several `{name}`", Fix(node.span, name)
                    self.found.append(Diagnostic("star-without-group", message, node.span, hint=hint, fix=fix))
        self.found += check_calls(part, self.scope, self.operators, pattern=False)

    def _names(self, part: ast.Expr | ast.Roots) -> None:
        values = [b.value for b in part.bindings] if isinstance(part, ast.Roots) else [part]
        for value in values:
            for name in free_names(value):
                if name.id not in self.scope:
                    hint = did_you_mean(name.id, [*self.scope.names(), *DTYPES, *WORDS])
                    self._complain("unbound-variable", f"`{name.id}` is not bound on the left", name.span, hint=hint)

    def _closed(self, expr: ast.Expr) -> None:
        """A default: no variables."""
        for name in free_names(expr):
            self._complain("unbound-variable", f"a default is a constant; `{name.id}` is a variable", name.span)
        self.found += check_calls(expr, Scope(), self.operators, pattern=False)

    # --- tests

    def _test(self, test: ast.RuleTest, patterns: Sequence[ast.Expr | ast.Roots]) -> None:
        if test.model is not None:
            self._model_path(test.model, test.span)
            return
        calls = [n for p in patterns for n in p.walk() if isinstance(n, ast.Call)]
        open_calls = [c for c in calls if c.rest is not None or c.kind is not None]
        seen: dict[str, Span] = {}
        # `z: f32[2], x = Relu(z)`: what is no variable of the pattern may still go into the value of one.
        parts = {n.id for o in test.operands if o.value is not None for n in free_names(o.value)}
        given = {operand.target.name for operand in test.operands}
        for operand in test.operands:
            target = operand.target
            name = target.name
            if target.index is None:
                if name in seen:
                    label = Label(seen[name], "the first one is here")
                    self._complain("duplicate-name", f"`{name}` is given twice", target.span, label)
                seen[name] = target.span
            unbound = (None, Sort.LET, Sort.ROOT, Sort.ROOTS)
            known = bool(test.equals) or test.term is not None or name in parts or self.scope.sort(name) not in unbound
            if not known and not self.operators.may_take(open_calls, name):
                choices = [n for n in self.scope.names() if self.scope.sort(n) is not Sort.LET]
                hint = did_you_mean(name, choices)
                self._complain("unknown-operand", f"the pattern has no `{name}`", target.span, hint=hint)
            if operand.type is None and operand.value is None:
                message = f"`{name}` needs a type or a value"
                self._complain("bad-operand", message, operand.span, hint=f"such as `{name}: f32[2,3]` or `{name} = 1`")
            if operand.type is not None:
                self._operand_type(operand.type)
            if operand.value is not None:
                self._operand_value(operand.value, given, is_head=self.scope.sort(name) is Sort.OPERATOR)
        for side in (*test.equals, *((test.term,) if test.term is not None else ())):
            self._operand_value(side, given, is_head=False)
        if test.gives is not None:
            if test.verdict == "refuses":
                message = "a test that refuses gives nothing"
                self._complain("bad-operand", message, test.gives.span, hint="drop `gives` or write `fires`")
            self._uses(test.gives)

    def _model_path(self, path: str, span: Span) -> None:
        """A model lies below the directory of the rule file that names it."""
        depth = 0
        for part in path.split("/"):
            depth += -1 if part == ".." else part not in ("", ".")
            if depth < 0:
                break
        if depth < 0 or not path or path.startswith("/") or "\\" in path or ":" in path:
            message = f'`model "{path}"` leads out of the directory of the rules'
            self._complain("model-outside", message, span, hint="paths begin at the directory of the rule file")

    def _operand_type(self, type_: ast.TypeExpr) -> None:
        if type_.element is not None and not is_word(type_.element):
            hint = did_you_mean(type_.element, DTYPES)
            self._complain("unknown-type", f"there is no element type `{type_.element}`", type_.span, hint=hint)

    def _operand_value(self, value: ast.Expr, given: set[str], *, is_head: bool) -> None:
        if is_head:  # `f = Relu` or `f = ReduceMax(keepdims: 0)`: the operator that the class head stands for
            head = value.id if isinstance(value, ast.Name) else value.head if isinstance(value, ast.Call) else ""
            bare = isinstance(value, ast.Name) or (isinstance(value, ast.Call) and not value.args)
            if not head[:1].isupper() or not bare:
                self._complain("bad-operand", "an operator is needed here", value.span, hint="such as `Relu`")
            self.found += check_calls(value, self.scope, self.operators, pattern=False, head=True)
            return
        for name in free_names(value):
            if name.id not in given:
                hint = did_you_mean(name.id, sorted(given))
                self._complain("unbound-variable", f"`{name.id}` is no operand of this test", name.span, hint=hint)
        self.found += check_calls(value, self.scope, self.operators, pattern=False, operand=True)


def _needs(part: ast.Syntax, lets: dict[str, ast.Binding]) -> set[str]:
    """The `let`s that an expression uses, directly or through others."""
    needed: set[str] = set()
    todo: list[ast.Syntax] = [part]
    while todo:
        for node in todo.pop().walk():
            if isinstance(node, ast.Name) and node.id in lets and node.id not in needed:
                needed.add(node.id)
                todo.append(lets[node.id].value)
    return needed
