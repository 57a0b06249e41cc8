"""Partial matches: bindings so far, and the attributes and literals of a pattern compared with those of e-nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ....grammar.syntax import ast
from ...ir.graph import AttrValue, Constant, Graph
from ...ir.names import CAPTURES
from ...ir.values import BodyRef, OpRef, Refuted, RestRef, TensorRef, Unprovable, Value, as_attribute
from ...operators.schemas import default_attrs
from ..build_nodes import declared_defaults
from ..notation import is_literal
from ..rule_context import Bindings, RuleContext, require

LITERAL_TOLERANCE = 1e-6
"""Allowed relative difference between a constant and a literal of a pattern, unless the rule is exact."""


@dataclass(slots=True)
class PartialMatch:
    """Variables bound so far in `env`.

    `later` holds comparisons that may need variables from elsewhere in the pattern, `missing` absent attributes with a
    default, `defaults` those of optional inputs. Methods raise `Unprovable` where something does not match, and
    `Refuted` where attributes or contents differ, which never change."""

    env: Bindings
    context: RuleContext
    exact: bool
    defaults: Mapping[str, ast.Expr] = field(default_factory=dict)
    later: list[tuple[ast.Expr, object, str]] = field(default_factory=list)
    missing: list[ast.Attribute] = field(default_factory=list)

    def fork(self, bound: Mapping[str, Value] = MappingProxyType({})) -> PartialMatch:
        """Return a copy to continue from, with more variables bound."""
        env = {**self.env, **bound}
        return PartialMatch(env, self.context, self.exact, self.defaults, list(self.later), list(self.missing))

    def add_node(self, call: ast.Call, op: str, attrs: Mapping[str, AttrValue]) -> None:
        """Match the attributes of one e-node with operator `op`, as rules call it."""
        attrs = {name: value for name, value in attrs.items() if name != CAPTURES}
        named = {a.name: a for a in call.attributes}
        for name, attribute in named.items():
            if name in attrs:
                self._add(attribute, op, attrs[name])
            elif attribute.default is None:
                raise Refuted(f"{op} has no {name}")
            else:
                self.missing.append(attribute)
        others = {k: v for k, v in attrs.items() if k not in named}
        if call.kind is not None:
            _same_head(self.env[call.head], others)
        if call.rest is not None:
            if call.rest.name is not None and self.env.setdefault(call.rest.name, RestRef(others)) != RestRef(others):
                raise Refuted(f"the other attributes of {op} differ")
        elif call.kind is None:
            defaults = declared_defaults(self.context, op) or default_attrs(op)
            for name, value in others.items():
                if name not in defaults or defaults[name] != value:
                    raise Refuted(f"{op}'s {name} is {value!r}")

    def _add(self, attribute: ast.Attribute, op: str, value: AttrValue) -> None:
        variable = variable_of(attribute.value)
        if isinstance(value, Graph):
            if variable is None or variable in self.env:
                raise Unprovable(f"{attribute.name} is a body: a pattern can only bind it to a new variable")
            self.env[variable] = BodyRef(value, {}, op)
        elif not isinstance(value, Constant):
            self._bind(attribute.value, value, f"{op}'s {attribute.name}")
        elif variable is None:
            self.add_literal(attribute.value, self.context.egraph.add_constant(value))
        else:
            find, handle = self.context.egraph.find, self.context.egraph.add_constant(value)
            known = self.env.setdefault(variable, TensorRef(handle))
            if not isinstance(known, TensorRef) or find(known.handle) != find(handle):
                raise Unprovable(f"{attribute.name} differs from constant {variable}")

    def _bind(self, pattern: ast.Expr, value: Value, what: str) -> None:
        """Bind a new variable or compare a bound one, or the variables in a list; postpone all other comparisons."""
        if isinstance(pattern, ast.ListExpr) and _binds(pattern):
            if not isinstance(value, tuple | list) or len(value) != len(pattern.items):
                raise Refuted(f"{what} is {value!r}")
            for item, part in zip(pattern.items, value, strict=True):
                self._bind(item, part, what)
            return
        variable = variable_of(pattern)
        if variable is not None and variable not in self.env:
            self.env[variable] = list(value) if isinstance(value, tuple) else value
        elif variable is not None and not isinstance(self.env[variable], TensorRef):
            if not _equal(self.env[variable], value):
                raise Refuted(f"{what} is {value!r}")
        else:
            self.later.append((pattern, value, what))

    def add_literal(self, pattern: ast.Expr, handle: int) -> None:
        """Match a constant with a literal, or with a list that binds variables."""
        if not (isinstance(pattern, ast.ListExpr) and _binds(pattern)):
            match_literal(self.context, pattern, handle, exact=self.exact)
            return
        array = self.context.contents(TensorRef(handle))
        require(array.ndim == 1 and array.dtype.kind in "iu", "the constant is not a list of integers")
        self._bind(pattern, array.tolist(), "the constant")

    def finish(self) -> None:
        """Give absent inputs and attributes their defaults and make the postponed comparisons."""
        for name, default in self.defaults.items():
            if name not in self.env:
                self.env[name] = self.context.evaluate(default, self.env)
        for attribute in self.missing:
            assert attribute.default is not None
            value = self.context.evaluate(attribute.default, self.env)
            self._bind(attribute.value, value, f"the default of {attribute.name}")
        for expr, value, what in sorted(self.later, key=lambda one: not isinstance(one[0], ast.Axis)):  # axes first
            if isinstance(expr, ast.Axis):
                self._bind_axis(expr, value, what)
                continue
            variable = variable_of(expr)
            wanted = self.context.evaluate(expr, self.env) if variable is None else self.env[variable]
            if not _equal(wanted, value):
                raise (Refuted if self._is_fixed(expr) else Unprovable)(f"{what} is {value!r}")

    def _is_fixed(self, expr: ast.Expr) -> bool:
        """Whether an expression reads nothing but attributes, which never change."""
        names = [e.id for e in expr.walk() if isinstance(e, ast.Name) and not is_literal(e.id)]
        return all(isinstance(self.env.get(name), int | float | str) for name in names)

    def _bind_axis(self, axis: ast.Axis, value: object, what: str) -> None:
        rank = self.context.evaluate(axis.rank, self.env)
        if not isinstance(value, int) or not isinstance(rank, int) or not -rank <= value < rank:
            raise Unprovable(f"{what} is {value!r}, not an axis of {rank!r}")
        if self.env.setdefault(axis.name, value % rank) != value % rank:
            raise Unprovable(f"{what} is {value!r}, not {self.env[axis.name]!r}")


def _binds(pattern: ast.ListExpr) -> bool:
    return any(isinstance(item, ast.Axis) or variable_of(item) is not None for item in pattern.items)


def variable_of(expr: ast.Expr) -> str | None:
    """Return the variable that an attribute's pattern is: `a`, or `t` for the `t[i]` of one member of a group."""
    if isinstance(expr, ast.Subscript) and isinstance(expr.index, ast.Name):
        expr = expr.base
    return expr.id if isinstance(expr, ast.Name) and not is_literal(expr.id) else None


def match_literal(context: RuleContext, literal: ast.Expr, handle: int, *, exact: bool) -> None:
    """Raise `Unprovable` unless a class is a constant whose elements are those of a pattern's literal."""
    wanted = context.evaluate(literal, {})
    array = context.contents(TensorRef(handle))
    if isinstance(wanted, list):
        ok = array.shape == (len(wanted),) and bool((array == np.array(wanted)).all())
    elif exact or array.dtype.kind != "f":
        number = np.asarray(wanted).astype(array.dtype)
        ok = array.size > 0 and bool((array == number).all())
        if array.dtype.kind in "iub":  # the cast to an integer type must not change the literal: -1 is not 255
            ok = ok and float(number) == float(wanted)
        elif exact and wanted == 0:
            ok = ok and not np.signbit(array).any()
    else:
        near = np.abs(array.astype(np.float64) - wanted) <= LITERAL_TOLERANCE * abs(wanted)
        # half precision rounds 1e-6 by more than the tolerance
        ok = array.size > 0 and bool((near | (array == np.asarray(wanted).astype(array.dtype))).all())
    if not ok:
        raise Refuted(f"the constant is not {wanted}")


def _equal(a: Value, b: Value) -> bool:
    """Return whether two attribute values are equal; float attributes are f32."""
    a, b = as_attribute(a), as_attribute(b)
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, (int, float)) and isinstance(b, (int, float)) and np.float32(a) == np.float32(b)
    return bool(a == b)


def _same_head(bound: Value, others: Mapping[str, AttrValue]) -> None:
    """Check that an operator that a pattern names twice has equal attributes, except those that the pattern names."""
    assert isinstance(bound, OpRef)
    for name, value in others.items():
        if name in bound.attrs and bound.attrs[name] != value:
            raise Refuted(f"{name} of {bound.op} differs from its other occurrence")
