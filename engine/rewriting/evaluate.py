"""Evaluation of rule expressions: right sides build e-nodes, conditions are proved.

Values decide what an expression means. Arithmetic with a tensor builds the ONNX operator; in a condition a constant
tensor stands for its contents. Arithmetic on numbers, dims and lists is plain. Whatever is not known for sure raises
`Unprovable`, and the rule does not fire; that holds under `not` too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...grammar.syntax import ast
from ..ir.graph import AttrValue, Constant
from ..ir.values import BodyRef, OpRef, RestRef, TensorRef, Unprovable, Value, arithmetic, as_attribute, compare
from ..operators.schemas import is_tensor_attribute, signature
from .build_nodes import build_node, node_output, node_outputs
from .conditions import FUNCTIONS
from .conditions.list_functions import at
from .matching.backtracking import Search
from .notation import INFIX, LITERALS, count_of, starred
from .rule_context import Bindings, RuleContext, known, require


@dataclass(slots=True, eq=False, repr=False)
class Evaluator(RuleContext):
    """A rule context that evaluates expressions."""

    # --- conditions ---

    def prove(self, condition: ast.Expr, env: Bindings) -> None:
        """Raise `Unprovable` unless a condition holds for sure; one over an index holds for each of its values."""
        index = self._open_index(condition, env, in_lists=False) if self.indices else None
        if index is not None:
            for i in range(env[count_of(index)]):
                self.prove(condition, {**env, index: i})
            return
        value = self.in_condition().evaluate(condition, env)
        if isinstance(value, np.ndarray):
            value = bool(value.all())
        if value is not True and value is not np.True_:
            raise Unprovable("the condition is false")

    # --- values ---

    def evaluate(self, expr: ast.Expr, env: Bindings) -> Value:
        """Evaluate an expression; outside conditions, arithmetic with tensors builds e-nodes."""
        handler = _HANDLERS.get(type(expr))
        if handler is None:
            raise Unprovable(f"{type(expr).__name__} has no value here")
        return handler(self, expr, env)

    def _name(self, expr: ast.Name | ast.Optional | ast.Axis, env: Bindings) -> Value:
        name = expr.id if isinstance(expr, ast.Name) else expr.name
        if name in env:
            return env[name]
        if name in LITERALS:
            return LITERALS[name]
        if name in self.lets:
            env[name] = self.building().evaluate(self.lets[name], env)
            return env[name]
        raise Unprovable(f"{name} is not bound")

    def _list(self, expr: ast.ListExpr, env: Bindings) -> list[Value]:
        items: list[Value] = []
        for item in expr.items:
            if _is_many(item):
                items += self.evaluate(item, env)
            elif self._open_index(item, env) is not None:  # `[dim(W[i], -1)]`: one item for each member
                items += self._members(item, env)
            else:
                items.append(self.evaluate(item, env))
        return items

    def _range(self, expr: ast.Range, env: Bindings) -> list[Value]:
        low, high = self._int(expr.low, env), self._int(expr.high, env)
        require(high - low <= 4096, "a range of more than 4096 numbers")
        return list(range(low, high + 1))

    def _members(self, expr: ast.Expr, env: Bindings) -> list[Value]:
        """Return the value of an expression for each member that its index ranges over."""
        index = known(self._open_index(expr, env), "no index ranges over several members here")
        return [self.evaluate(expr, {**env, index: i}) for i in range(env[count_of(index)])]

    def _open_index(self, expr: ast.Syntax, env: Bindings, *, in_lists: bool = True) -> str | None:
        """Return the index over which an expression has several values; None if it has a single one."""
        open_ = (i for i in self.indices if i not in env and count_of(i) in env)
        return next((i for i in open_ if _mentions(expr, i, in_lists=in_lists)), None)

    def _comprehension(self, expr: ast.Comprehension, env: Bindings) -> list[Value]:
        bound = [{**env, expr.variable: item} for item in _iterable(self.evaluate(expr.iterable, env))]
        test = expr.condition
        return [self.evaluate(expr.item, b) for b in bound if test is None or _truth(self.evaluate(test, b))]

    def _branch(self, expr: ast.Conditional, env: Bindings) -> ast.Expr:
        return expr.then if _truth(self.in_condition().evaluate(expr.condition, env)) else expr.otherwise

    def _unary(self, expr: ast.Unary, env: Bindings) -> Value:
        if expr.operator == "not":
            return not _truth(self.evaluate(expr.operand, env))
        value = self._content(self.evaluate(expr.operand, env))
        return build_node(self, "Neg", {}, [value]) if isinstance(value, TensorRef) else -value

    def _binary(self, expr: ast.Binary, env: Bindings) -> Value:
        if expr.operator in ("and", "or"):
            return self._logic(expr, env)
        left = self._content(self.evaluate(expr.left, env))
        right = self._content(self.evaluate(expr.right, env))
        if isinstance(left, TensorRef) or isinstance(right, TensorRef):
            return build_node(self, INFIX[expr.operator], {}, [left, right])
        return arithmetic(expr.operator, left, right)

    def _logic(self, expr: ast.Binary, env: Bindings) -> bool:
        """Evaluate `and` or `or`; either operand may decide while the other is not provable."""
        decisive = expr.operator == "or"
        try:
            if _truth(self.evaluate(expr.left, env)) is decisive:
                return decisive
        except Unprovable:
            if _truth(self.evaluate(expr.right, env)) is decisive:
                return decisive
            raise
        return _truth(self.evaluate(expr.right, env))

    def _compare(self, expr: ast.Compare, env: Bindings) -> Value:
        if expr.form is not None:
            return self._has_form(self.evaluate(expr.left, env), expr.form, env) is (expr.operator == "is")
        left, right = self.evaluate(expr.left, env), self.evaluate(expr.right, env)
        if expr.operator in ("is", "is not"):
            return (left is None) is (right is None) and (left is None) if expr.operator == "is" else left is not right
        return compare(expr.operator, self._content(left), self._content(right))

    def _has_form(self, value: Value, form: ast.Expr, env: Bindings) -> bool:
        """Return whether the e-graph knows a tensor to be an application of this form."""
        if not isinstance(value, TensorRef):
            return False
        known = {name: bound for name, bound in env.items() if not isinstance(bound, list)}
        return next(Search(self, exact=True).matches(form, value.handle, known), None) is not None

    def _subscript(self, expr: ast.Subscript, env: Bindings) -> Value:
        if isinstance(expr.base, ast.Call) and expr.base.is_operator:
            if isinstance(expr.index, ast.All):
                return node_outputs(self, self.application(expr.base, env, None))
            index = self._int(expr.index, env)
            found = signature(expr.base.head)  # one node has all outputs, whichever of them is asked for
            count = found.max_outputs if found is not None and found.max_outputs is not None else 0
            return node_output(self, self.application(expr.base, env, max(index + 1, count)), index)
        items = _iterable(self.evaluate(expr.base, env))
        return items if isinstance(expr.index, ast.All) else at(items, self._int(expr.index, env))

    # --- calls ---

    def _call(self, expr: ast.Call, env: Bindings) -> Value:
        if expr.kind is not None or expr.head in env or expr.is_operator:
            return node_output(self, self.application(expr, env, 1), 0)
        function = known(FUNCTIONS.get(expr.head), f"there is no function {expr.head}")
        args = [self.evaluate(a, env) for a in expr.args]
        try:
            return function(self, *args)
        except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
            raise Unprovable(f"{expr.head}: {error}") from error

    def application(self, expr: ast.Call, env: Bindings, outputs: int | None) -> TensorRef:
        """Build the e-node of an operator call; of several outputs the tuple."""
        inside = self.building()
        bound = env.get(expr.head)
        head = bound if isinstance(bound, OpRef) else OpRef(expr.head, {})
        attrs: dict[str, AttrValue | BodyRef] = dict(head.attrs)
        rest = env.get(expr.rest.name) if expr.rest is not None and expr.rest.name is not None else None
        named: dict[str, Value] = dict(rest.attrs) if isinstance(rest, RestRef) else {}
        inputs: list[Value] = []
        for arg in expr.args:
            value = inside.evaluate(arg, env)
            inputs += value if _is_many(arg) else [value]
        for attribute in expr.attributes:
            named[attribute.name] = inside.evaluate(attribute.value, env)
        for name, value in named.items():
            if value is not None and name not in head.fixed:
                attrs[name] = self._attribute(head.op, name, value)
        return build_node(self, head.op, attrs, inputs, outputs)

    def _attribute(self, op: str, name: str, value: Value) -> AttrValue | BodyRef:
        """Convert a value to an attribute; where the schema asks for a tensor, to the contents of a constant."""
        if isinstance(value, Constant) or not is_tensor_attribute(op, name):
            return as_attribute(value)
        if isinstance(value, TensorRef):
            return Constant(self.contents(value))
        if self.assumed is None:
            raise Unprovable(f"{name} is a tensor: write its element type, as in const({value!r}, f32)")
        return Constant(np.atleast_1d(np.array(value)).astype(self.assumed.numpy))

    def all_outputs(self, expr: ast.Expr, env: Bindings, count: int) -> list[Value]:
        """Return all outputs of an application with `count` of them, or the elements of a list."""
        if isinstance(expr, ast.Conditional):
            return self.all_outputs(self._branch(expr, env), env, count)
        if isinstance(expr, ast.Call) and (expr.is_operator or isinstance(env.get(expr.head), OpRef)):
            return node_outputs(self, self.application(expr, env, count))
        return _iterable(self.evaluate(expr, env))

    def _content(self, value: Value) -> Value:
        """In a condition, return the contents of a constant in place of the tensor."""
        return self.contents(value) if self.proving and isinstance(value, TensorRef) else value

    def _int(self, expr: ast.Expr, env: Bindings) -> int:
        value = self.evaluate(expr, env)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise Unprovable(f"{value!r} is not a known integer")
        return int(value)


_HANDLERS: dict[type, Callable[[Evaluator, Any, Bindings], Value]] = {
    ast.Number: lambda self, expr, env: expr.value,
    ast.String: lambda self, expr, env: expr.value,
    ast.Name: Evaluator._name,
    ast.Optional: Evaluator._name,
    ast.Axis: Evaluator._name,
    ast.Omitted: lambda self, expr, env: self.evaluate(expr.pattern, env),
    ast.ListExpr: Evaluator._list,
    ast.Range: Evaluator._range,
    ast.Comprehension: Evaluator._comprehension,
    ast.Each: lambda self, expr, env: self._members(expr.value, env),
    ast.Conditional: lambda self, expr, env: self.evaluate(self._branch(expr, env), env),
    ast.Unary: Evaluator._unary,
    ast.Binary: Evaluator._binary,
    ast.Compare: Evaluator._compare,
    ast.Subscript: Evaluator._subscript,
    ast.Call: Evaluator._call,
}


def _is_many(argument: ast.Expr) -> bool:
    """Return whether an argument stands for several values: `P ...` or `xs[*]`."""
    return isinstance(argument, ast.Each) or starred(argument) is not None


def _mentions(expr: ast.Syntax, name: str, *, in_lists: bool) -> bool:
    """Return whether an expression uses a name; without `in_lists`, uses inside lists do not count."""
    if isinstance(expr, ast.Name):
        return expr.id == name
    if isinstance(expr, ast.ListExpr) and not in_lists:
        return False
    return any(_mentions(child, name, in_lists=in_lists) for child in expr.children())


def _iterable(value: Value) -> list[Value]:
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value.tolist())
    raise Unprovable(f"{value!r} is not a list")


def _truth(value: Value) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.all())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise Unprovable(f"{value!r} is neither true nor false")
