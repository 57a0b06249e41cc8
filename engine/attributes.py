"""Matching the attributes of an e-node with those of a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..grammar import ast
from .egraph import CAPTURES
from .evaluate import Evaluator, is_literal
from .graph import AttrValue, Constant, Graph
from .operators import default_attrs
from .values import BodyRef, OpRef, RestRef, TensorRef, Unprovable, Value

Binding = dict[str, Value]


@dataclass(slots=True)
class Attributes:
    """The attributes matched so far, which bind variables in `env`.

    Comparisons may need what is bound elsewhere in the pattern, so they wait in `later`, as do in `missing` the
    attributes that are absent and have a default. All methods raise `Unprovable` where it is no match."""

    env: Binding
    evaluator: Evaluator
    exact: bool
    later: list[tuple[ast.Expr, object, str]] = field(default_factory=list)
    missing: list[ast.Attribute] = field(default_factory=list)

    def node(self, call: ast.Call, op: str, attrs: Mapping[str, AttrValue]) -> None:
        """Takes the attributes of one e-node, of operator `op` by the name that rules have for it."""
        env = self.env
        if CAPTURES in attrs:
            attrs = {name: value for name, value in attrs.items() if name != CAPTURES}
        named = {a.name: a for a in call.attributes}
        for name, attribute in named.items():
            if name not in attrs:
                if attribute.default is None:
                    raise Unprovable(f"{op} has no {name}")
                self.missing.append(attribute)
                continue
            value = attrs[name]
            if isinstance(value, Constant):
                self._tensor(attribute, self.evaluator.egraph.add_constant(value))
                continue
            variable = variable_of(attribute.value)
            if isinstance(value, Graph):
                if variable is None or variable in env:
                    raise Unprovable(f"{name} is a body: it can only be named")
                env[variable] = BodyRef(value, {}, op)
                continue
            if variable is not None and variable not in env:
                env[variable] = list(value) if isinstance(value, tuple) else value
                continue
            self.later.append((attribute.value, value, f"{op}'s {name}"))
        others = {k: v for k, v in attrs.items() if k not in named}
        if call.kind is not None:
            _same_head(env[call.head], others)
        if call.rest is not None:
            if call.rest.name is not None and env.setdefault(call.rest.name, RestRef(others)) != RestRef(others):
                raise Unprovable(f"the other attributes of {op} differ")
            return
        if call.kind is not None:
            return
        defaults = self.evaluator.own_defaults(op) or default_attrs(op)
        for name, value in others.items():
            if name not in defaults or defaults[name] != value:
                raise Unprovable(f"{op}'s {name} is {value!r}")

    def _tensor(self, attribute: ast.Attribute, handle: int) -> None:
        """An attribute that holds a tensor is a constant: bound, the same as one that is, or equal to a literal."""
        variable = variable_of(attribute.value)
        if variable is None:
            self.evaluator.match_literal(attribute.value, handle, exact=self.exact)
            return
        known = self.env.setdefault(variable, TensorRef(handle))
        find = self.evaluator.egraph.find
        if not isinstance(known, TensorRef) or find(known.handle) != find(handle):
            raise Unprovable(f"{attribute.name} is another constant than {variable}")

    def settle(self) -> None:
        """Gives absent attributes their defaults and compares what was left for later."""
        for attribute in self.missing:
            assert attribute.default is not None
            value = self.evaluator.evaluate(attribute.default, self.env)
            variable = variable_of(attribute.value)
            if variable is not None and variable not in self.env:
                self.env[variable] = value
            else:
                self.later.append((attribute.value, value, f"the default of {attribute.name}"))
        for expr, value, what in self.later:
            if not self.evaluator.equal(self._value(expr), value):
                raise Unprovable(f"{what} is {value!r}")

    def _value(self, expr: ast.Expr) -> Value:
        variable = variable_of(expr)
        return self.evaluator.evaluate(expr, self.env) if variable is None else self.env[variable]


def variable_of(expr: ast.Expr) -> str | None:
    """The variable that an attribute's pattern is: `a`, or `t` for the `t[i]` of one member of a group."""
    if isinstance(expr, ast.Subscript) and isinstance(expr.index, ast.Name):
        expr = expr.base
    return expr.id if isinstance(expr, ast.Name) and not is_literal(expr.id) else None


def _same_head(bound: Value, others: Mapping[str, AttrValue]) -> None:
    """An operator that a pattern names twice has equal attributes, those apart that the pattern names."""
    assert isinstance(bound, OpRef)
    for name, value in others.items():
        if name in bound.attrs and bound.attrs[name] != value:
            raise Unprovable(f"{bound.op} has another {name} elsewhere")
