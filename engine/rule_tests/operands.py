"""Operands of rule tests: values drawn for a pattern's variables, and the e-graph of the left side."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...grammar.syntax import ast
from ...grammar.syntax.scope import TENSORS, Scope, Sort, bind_pattern, indices_in
from ..ir import symbolic
from ..ir.graph import Constant, DType, TensorType
from ..ir.values import OpRef, RestRef, TensorRef, Unprovable, as_attribute
from ..operators.schemas import attributes_of, is_tensor_attribute, normalize_attrs
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.compiled_patterns import indexing
from ..rewriting.notation import count_of
from ..rewriting.rule_context import Bindings

Array = NDArray[Any]
_SIZES = (3, 2, 5, 4, 7)
"""Sizes of symbolic dims of operands, in order of appearance."""
MAX_CHOICES = 16
"""Maximum number of choices of alternatives of a pattern."""
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, -3.4e38)


class Operands:
    """Operands of one test, bound to a rule's variables in an e-graph."""

    def __init__(self, rule: ast.Rule, test: ast.RuleTest, context: Evaluator) -> None:
        self.rule = rule
        self.context = context
        self.env: Bindings = {}
        self.inputs: dict[str, TensorType] = {}
        self.dims: dict[str, int] = {}
        self._fixed: dict[str, frozenset[str]] = {}
        scope = Scope()
        bind_pattern(rule.lhs, scope)
        calls = [n for n in rule.lhs.walk() if isinstance(n, ast.Call)]
        self._heads = set(scope.names(Sort.OPERATOR))
        self._tensors = {*scope.names(*TENSORS), *(t.name for g in rule.given for t in g.targets)}
        for n in calls:
            named = {a.name: a.value.id for a in n.attributes if isinstance(a.value, ast.Name)}
            self._tensors |= {variable for name, variable in named.items() if is_tensor_attribute(n.head, name)}
        variables = {
            n.id if isinstance(n, ast.Name) else n.name for n in rule.lhs.walk() if isinstance(n, ast.Name | ast.Axis)
        }
        operators = [n for n in calls if n.is_operator and n.kind is None]
        self._attributes = {name for n in operators for name in attributes_of(n.head)} - variables
        rest: dict[str, Any] = {}
        for operand in test.operands:
            self._bind(operand, rest)
        allowed: dict[str, set[str]] = {}
        for n in calls:
            if n.rest is not None and n.rest.name:
                allowed.setdefault(n.rest.name, set()).update(attributes_of(n.head))
        for name, known in allowed.items():
            self.env.setdefault(name, RestRef({k: v for k, v in rest.items() if k in known or not known}))

    def _bind(self, operand: ast.Operand, rest: dict[str, Any]) -> None:
        name, index = operand.target.name, operand.target.index
        if name in self._heads:
            assert operand.value is not None
            self.env[name] = self._operator(operand.value)
            if isinstance(operand.value, ast.Call):
                self._fixed[name] = frozenset(a.name for a in operand.value.attributes)
        elif name in self._tensors or operand.type is not None:
            if index is None:
                self.env[name] = self._tensor(name, operand)
            else:
                items = self.env.setdefault(name, [])
                for _ in range(2 if isinstance(index, ast.Name) else 1):
                    items.append(self._tensor(f"{name}{len(items)}", operand))
        else:
            if operand.value is None:
                raise Unprovable(f"{name} is an attribute and needs a value")
            value = self.context.evaluate(operand.value, self.env)
            if name in self._attributes:
                rest[name] = as_attribute(value)
            elif index is None:
                self.env[name] = value
            else:
                self.env.setdefault(name, []).append(value)

    def _operator(self, value: ast.Expr) -> OpRef:
        if not isinstance(value, ast.Call | ast.Name):
            raise Unprovable("an operator is given by its name")
        op, attributes = (value.head, value.attributes) if isinstance(value, ast.Call) else (value.id, ())
        attrs = {a.name: as_attribute(self.context.evaluate(a.value, self.env)) for a in attributes}
        return OpRef(op, normalize_attrs(op, attrs))

    def _tensor(self, name: str, operand: ast.Operand) -> TensorRef | None:
        egraph = self.context.egraph
        type_ = self._type(operand.type)
        if operand.value is not None:
            value = self.context.evaluate(operand.value, self.env)
            if value is None or isinstance(value, TensorRef):
                return value
            dtype = type_.dtype if type_ is not None and type_.dtype is not None else DType.F32
            array = np.array(value, dtype=np.float64 if dtype.is_float else None).astype(dtype.numpy)
            if type_ is not None and type_.shape is not None and all(map(symbolic.known, type_.shape)):
                array = np.broadcast_to(array, tuple(type_.shape)).copy()  # type: ignore[arg-type]
            return TensorRef(egraph.add_constant(Constant(array)))
        if type_ is None or type_.shape is None:
            raise Unprovable(f"{name} needs a type with a shape, or a value")
        assert operand.type is not None
        if operand.type.const:
            return TensorRef(egraph.add_constant(Constant(draw(type_, self._dim, name, 0, positive=True))))
        self.inputs[name] = type_
        return TensorRef(egraph.add_input(name, type_))

    def _type(self, wanted: ast.TypeExpr | None) -> TensorType | None:
        if wanted is None:
            return None
        element = DType(wanted.element) if wanted.element in set(DType) else DType.F32
        if wanted.element == "scalar":
            return TensorType(element, ())
        if wanted.shape is None:
            return TensorType(element, None)
        shape: list[symbolic.Dim] = []
        for item in wanted.shape:
            if isinstance(item, ast.Name) and item.id not in self.env:
                self.env[item.id] = symbolic.symbol(item.id)
            if isinstance(item, (ast.ShapeRest, ast.AnyDim)):
                raise Unprovable("an operand's shape is written out")
            value = self.context.evaluate(item, self.env)
            if isinstance(value, bool) or not isinstance(value, (int, symbolic.Expr)):
                raise Unprovable(f"{value!r} is not a dim")
            shape.append(value)
        return TensorType(element, tuple(shape))

    def names(self) -> dict[int, str]:
        """Return the tensor operands as they are written in a test, by the canonical handle of their class."""
        written: list[tuple[Any, str]] = []
        for name, value in self.env.items():
            members = isinstance(value, list)
            written += [(v, f"{name}[{i}]") for i, v in enumerate(value)] if members else [(value, name)]
        handles = [(self.context.egraph.find(v.handle), name) for v, name in written if isinstance(v, TensorRef)]
        return dict(reversed(handles))  # the first name of each

    def _dim(self, dim: symbolic.Dim) -> int:
        for name in sorted(symbolic.symbols(dim)):
            self.dims.setdefault(name, _SIZES[len(self.dims) % len(_SIZES)])
        return symbolic.evaluate(dim, self.dims)

    def build(self, lhs: ast.Expr | ast.Roots) -> list[int]:
        """Add the left side to the e-graph, and return the classes of its roots."""
        env = {**self.env, **{name: replace(self.env[name], fixed=fixed) for name, fixed in self._fixed.items()}}
        roots = build_left(LeftSide.of(lhs), env, self.context)
        self.env |= {name: value for name, value in env.items() if isinstance(value, int)}  # the sizes of groups
        return roots

    def values(self, trial: int) -> dict[str, Array]:
        """Return seeded values for the inputs; an exact rule's second trial has NaN, infinities and signed zeros."""
        special = trial > 0 and self.rule.numerics == "exact"
        return {name: draw(t, self._dim, name, trial, special=special) for name, t in self.inputs.items()}


@dataclass(frozen=True, slots=True)
class LeftSide:
    """Left side, with what all its instances have in common.

    `optional` are the variables that need not be bound, with whether each stands for a list, `groups` the patterns that
    are repeated, with their index, and `indices` all index variables."""

    pattern: ast.Expr | ast.Roots
    optional: tuple[tuple[str, bool], ...]
    groups: tuple[tuple[ast.Expr, str], ...]
    indices: tuple[str, ...]

    @classmethod
    def of(cls, pattern: ast.Expr | ast.Roots) -> LeftSide:
        """Prepare a pattern."""
        optional: list[tuple[str, bool]] = []
        groups: list[tuple[ast.Expr, str]] = []
        for node in pattern.walk():
            match node:
                case ast.Optional(name=name) | ast.Attribute(value=ast.Name(id=name), default=ast.Expr()):
                    optional.append((name, False))
                case ast.Subscript(base=ast.Name(id=name), index=ast.All()):
                    optional.append((name, True))
                case ast.Each(value=value):
                    groups.append((value, indices_in(value)[0]))
        return cls(pattern, tuple(optional), tuple(groups), indexing(pattern)[2])


def build_left(left: LeftSide, env: Bindings, context: Evaluator) -> list[int]:
    """Add a left side to the e-graph, and return the classes of its roots.

    `env` gets the sizes of groups and, as absent, what it does not bind. Raises `Unprovable`."""
    for name, many in left.optional:
        env.setdefault(name, [] if many else None)
    for pattern, index in left.groups:
        env[count_of(index)] = _count(pattern, index, env, context)
    context, lhs = replace(context, indices=left.indices, assumed=DType.F32), left.pattern
    if not isinstance(lhs, ast.Roots):
        return [_root(context, lhs, env)]
    roots = []
    for binding in lhs.bindings:
        if isinstance(binding.target.index, ast.Name):
            index = binding.target.index.id
            count = _count(binding.value, index, env, context)
            roots += [_root(context, binding.value, {**env, index: i}) for i in range(count)]
        else:
            roots.append(_root(context, binding.value, env))
    return roots


def _root(context: Evaluator, expr: ast.Expr, env: Bindings) -> int:
    value = context.evaluate(expr, env)
    if not isinstance(value, TensorRef):
        raise Unprovable("the left side is not a tensor")
    return value.handle


def _count(pattern: ast.Expr, index: str, env: Bindings, context: Evaluator) -> int:
    """Return the number of members of a group: that of the operands, or of the outputs of a node."""
    counts = []
    for node in pattern.walk():
        match node:
            case ast.Subscript(base=ast.Name(id=name), index=ast.Name(id=found)) if found == index:
                counts += [len(env[name])] if isinstance(env.get(name), list) else []
            case ast.Subscript(base=base, index=ast.Name(id=found)) if found == index:
                counts.append(len(context.all_outputs(base, env, 2)))
    return max(counts, default=2)


def draw(
    type_: TensorType, size: Any, name: str, trial: int, *, special: bool = False, positive: bool = False
) -> Array:
    """Return a seeded array of a type; `size` maps symbolic dims to numbers."""
    assert type_.dtype is not None
    assert type_.shape is not None
    shape = tuple(size(d) for d in type_.shape)
    rng = np.random.default_rng(zlib.crc32(f"{name}:{type_}:{trial}".encode()))
    if type_.dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if not type_.dtype.is_float:
        return rng.integers(0 if type_.dtype.value[0] == "u" else -4, 5, shape).astype(type_.dtype.numpy)
    array = rng.standard_normal(shape)
    if positive:
        array = np.abs(array) + 0.25
    if special and array.size:
        spots = rng.integers(0, array.size, max(1, array.size // 3))
        array.reshape(-1)[spots] = rng.choice(_SPECIAL, len(spots))
    return array.astype(type_.dtype.numpy)
