"""Instances of rules: operands drawn for a pattern's variables, the e-graph of its left side, and their values."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..grammar import ast
from ..grammar.scope import indices_in
from . import control, symbolic
from .egraph import ABSENT, CAPTURES, EGraph
from .evaluate import Evaluator, count_of
from .graph import Constant, DType, TensorType
from .library import PRECISIONS
from .operators import OWN_DOMAIN, find_declared, is_tensor_attribute, normalise_attrs, signature
from .patterns import indexing
from .values import OpRef, RestRef, TensorRef, Unprovable, Value, as_attribute

Array = NDArray[Any]
_SEQUENCES = frozenset({"SplitToSequence", "SequenceConstruct", "SequenceAt"})
_SIZES = (3, 2, 5, 4, 7)
"""What symbolic dims of operands are set to, in order of appearance."""
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, -3.4e38)


class Operands:
    """The operands of one test, bound to a rule's variables in an e-graph."""

    def __init__(self, rule: ast.Rule, test: ast.RuleTest, evaluator: Evaluator) -> None:
        self.rule = rule
        self.evaluator = evaluator
        self.env: dict[str, Value] = {}
        self.inputs: dict[str, TensorType] = {}
        self.dims: dict[str, int] = {}
        self._names = _names_of(rule)
        self._fixed: dict[str, frozenset[str]] = {}
        rest: dict[str, Any] = {}
        for operand in test.operands:
            self._bind(operand, rest)
        for name, allowed in self._names.rests.items():
            self.env.setdefault(name, RestRef({k: v for k, v in rest.items() if k in allowed or not allowed}))

    def _bind(self, operand: ast.Operand, rest: dict[str, Any]) -> None:
        name, index = operand.target.name, operand.target.index
        if name in self._names.heads:
            assert operand.value is not None
            self.env[name] = self._operator(operand.value)
            if isinstance(operand.value, ast.Call):
                self._fixed[name] = frozenset(a.name for a in operand.value.attributes)
        elif name in self._names.tensors or operand.type is not None:
            if index is None:
                self.env[name] = self._tensor(name, operand)
            else:
                count = 2 if isinstance(index, ast.Name) else 1
                items = self.env.setdefault(name, [])
                items.extend(self._tensor(f"{name}{len(items) + i}", operand) for i in range(count))
        else:
            if operand.value is None:
                raise Unprovable(f"{name} is an attribute and wants a value")
            value = self.evaluator.evaluate(operand.value, self.env)
            if name not in self._names.variables and name in self._names.attributes:
                rest[name] = as_attribute(value)
            elif index is None:
                self.env[name] = value
            else:
                self.env.setdefault(name, []).append(value)

    def _operator(self, value: ast.Expr) -> OpRef:
        if isinstance(value, ast.Call):
            attrs = {a.name: as_attribute(self.evaluator.evaluate(a.value, self.env)) for a in value.attributes}
            return OpRef(value.head, normalise_attrs(value.head, attrs))
        if isinstance(value, ast.Name):
            return OpRef(value.id, normalise_attrs(value.id, {}))
        raise Unprovable("an operator is given by its name")

    def _tensor(self, name: str, operand: ast.Operand) -> TensorRef | None:
        egraph = self.evaluator.egraph
        type_ = self._type(operand.type)
        if operand.value is not None:
            value = self.evaluator.evaluate(operand.value, self.env)
            if value is None:
                return None
            if isinstance(value, TensorRef):
                return value
            dtype = type_.dtype if type_ is not None and type_.dtype is not None else DType.F32
            array = np.array(value, dtype=np.float64 if dtype.is_float else None).astype(dtype.numpy)
            if type_ is not None and type_.shape is not None and all(map(symbolic.known, type_.shape)):
                array = np.broadcast_to(array, tuple(type_.shape)).copy()  # type: ignore[arg-type]
            return TensorRef(egraph.add_constant(Constant(array)))
        if type_ is None or type_.shape is None:
            raise Unprovable(f"{name} wants a type with a shape, or a value")
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
            value = self.evaluator.evaluate(item, self.env)
            if isinstance(value, bool) or not isinstance(value, (int, symbolic.Expr)):
                raise Unprovable(f"{value!r} is no dim")
            shape.append(value)
        return TensorType(element, tuple(shape))

    def names(self) -> dict[int, str]:
        """The tensor operands by the canonical handle of their class, as they are written in a test."""
        found: dict[int, str] = {}
        for name, value in self.env.items():
            for i, item in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(item, TensorRef):
                    written = f"{name}[{i}]" if isinstance(value, list) else name
                    found.setdefault(self.evaluator.egraph.find(item.handle), written)
        return found

    def _dim(self, dim: symbolic.Dim) -> int:
        for name in sorted(symbolic.symbols(dim)):
            self.dims.setdefault(name, _SIZES[len(self.dims) % len(_SIZES)])
        return symbolic.evaluate(dim, self.dims)

    def build(self, lhs: ast.Expr | ast.Roots) -> list[int]:
        """Adds the left side to the e-graph; the classes of its roots."""
        env = dict(self.env)
        for name, fixed in self._fixed.items():
            env[name] = replace(env[name], fixed=fixed)
        for node in lhs.walk():
            if isinstance(node, ast.Optional):
                env.setdefault(node.name, None)
            elif (
                isinstance(node, ast.Subscript) and isinstance(node.index, ast.All) and isinstance(node.base, ast.Name)
            ):
                env.setdefault(node.base.id, [])
            elif isinstance(node, ast.Attribute) and node.default is not None and isinstance(node.value, ast.Name):
                env.setdefault(node.value.id, None)  # an attribute that is not there
        for node in lhs.walk():
            if isinstance(node, ast.Each):
                index = indices_in(node.value)[0]
                self.env[count_of(index)] = env[count_of(index)] = self._count(node.value, index, env)
        self.evaluator.indices = indexing(lhs)[2]
        self.evaluator.assumed = DType.F32
        try:
            return self._roots(lhs, env)
        finally:
            self.evaluator.assumed = None

    def _roots(self, lhs: ast.Expr | ast.Roots, env: dict[str, Value]) -> list[int]:
        if isinstance(lhs, ast.Roots):
            roots = []
            for binding in lhs.bindings:
                if isinstance(binding.target.index, ast.Name):
                    index = binding.target.index.id
                    count = self._count(binding.value, index, env)
                    roots += [self._root(binding.value, {**env, index: i}) for i in range(count)]
                else:
                    roots.append(self._root(binding.value, env))
            return roots
        return [self._root(lhs, env)]

    def _count(self, pattern: ast.Expr, index: str, env: dict[str, Value]) -> int:
        """How many members a group has: as many as the operands say, or the node whose outputs they are."""
        counts = []
        for node in pattern.walk():
            if not isinstance(node, ast.Subscript) or not isinstance(node.index, ast.Name) or node.index.id != index:
                continue
            if isinstance(node.base, ast.Name):
                items = env.get(node.base.id)
                counts += [len(items)] if isinstance(items, list) else []
            else:
                counts.append(len(self.evaluator.all_outputs(node.base, env, 2)))
        return max(counts, default=2)

    def _root(self, expr: ast.Expr, env: dict[str, Value]) -> int:
        value = self.evaluator.evaluate(expr, env)
        if not isinstance(value, TensorRef):
            raise Unprovable("the left side is no tensor")
        return value.handle

    def values(self, trial: int) -> dict[str, Array]:
        """Seeded values for the inputs. In an exact rule's second trial they hold NaN, infinities and signed zeros."""
        special = trial > 0 and self.rule.numerics == "exact"
        return {name: draw(t, self._dim, name, trial, special=special) for name, t in self.inputs.items()}


def draw(
    type_: TensorType, size: Any, name: str, trial: int, *, special: bool = False, positive: bool = False
) -> Array:
    """A seeded array of a type; `size` gives symbolic dims numbers."""
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


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names in a rule's left side stand for. `rests` has the attributes that each rest `..a` may hold: those
    of the operators that it stands in."""

    variables: frozenset[str]
    tensors: frozenset[str]
    attributes: frozenset[str]
    heads: frozenset[str]
    rests: Mapping[str, Set[str]]


_LAST: list[tuple[ast.Rule, _Names]] = []
"""The rule that was asked about last; a check asks about one hundreds of times."""


def _names_of(rule: ast.Rule) -> _Names:
    if not _LAST or _LAST[0][0] is not rule:
        _LAST[:] = [(rule, _find_names(rule))]
    return _LAST[0][1]


def _find_names(rule: ast.Rule) -> _Names:
    sides = [b.value for b in rule.lhs.bindings] if isinstance(rule.lhs, ast.Roots) else [rule.lhs]
    nodes = [n for side in sides for n in side.walk()]
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    tensors = _tensor_names(rule.lhs) | {t.name for g in rule.given for t in g.targets}
    tensors |= {
        a.value.id for n in calls for a in n.attributes
        if isinstance(a.value, ast.Name) and is_tensor_attribute(n.head, a.name)
    }  # fmt: skip
    rests: dict[str, set[str]] = {}
    for n in calls:
        if n.rest is not None and n.rest.name:
            rests.setdefault(n.rest.name, set()).update(_attributes_of(n.head))
    return _Names(
        variables=frozenset(n.id for n in rule.lhs.walk() if isinstance(n, ast.Name)),
        tensors=frozenset(tensors),
        attributes=frozenset(
            name for n in calls if n.is_operator and n.kind is None for name in _attributes_of(n.head)
        ),
        heads=frozenset(n.head for n in calls if n.kind is not None),
        rests=rests,
    )


def _attributes_of(op: str) -> Iterable[str]:
    known = signature(op)
    return known.attributes if known is not None else ()


def _tensor_names(lhs: ast.Expr | ast.Roots) -> set[str]:
    """The variables that stand for tensors: those at operators' inputs."""
    found: set[str] = set()

    def visit(expr: ast.Syntax) -> None:
        if isinstance(expr, ast.Attribute):
            return
        if isinstance(expr, ast.Name):
            found.add(expr.id)
        elif isinstance(expr, ast.Optional):
            found.add(expr.name)
        elif isinstance(expr, ast.Subscript):
            visit(expr.base)
        elif isinstance(expr, ast.Roots):
            for binding in expr.bindings:
                visit(binding.value)
        else:
            for child in expr.children():
                visit(child)

    visit(lhs)
    return found


def evaluate_members(egraph: EGraph, root: int, values: Mapping[str, Array]) -> list[Array]:
    """The value of every node of a class, each computed from the oldest node of its inputs' classes."""
    memo: dict[int, list[Any]] = {}
    found = []
    with np.errstate(all="ignore"):
        for handle in egraph.members(root):
            found.append(_node_value(egraph, handle, values, memo)[0])
    return found


def _class_value(egraph: EGraph, handle: int, values: Mapping[str, Array], memo: dict[int, list[Any]]) -> list[Any]:
    handle = egraph.find(handle)
    if handle not in memo:
        memo[handle] = _node_value(egraph, handle, values, memo)
    return memo[handle]


def _node_value(egraph: EGraph, handle: int, values: Mapping[str, Array], memo: dict[int, list[Any]]) -> list[Any]:
    from .fold import evaluate, run_reference

    node = egraph.nodes[handle]
    if node.op == "Input":
        return [values[str(node.attrs["name"])]]
    if node.op == "Const":
        info = egraph.constants[str(node.attrs["digest"])]
        array = info.contents()
        if array is None:
            array = values.get(info.digest)
        if array is None:
            raise Unprovable("a constant of this test is too large")
        return [array]
    if node.op == "Proj":
        index = node.attrs["index"]
        assert isinstance(index, int)
        return [_class_value(egraph, node.children[0], values, memo)[index]]
    arrays = [None if c == ABSENT else _class_value(egraph, c, values, memo)[0] for c in node.children]
    if CAPTURES in node.attrs:
        captured = node.attrs[CAPTURES]
        assert isinstance(captured, tuple)
        inner = len(arrays) - len(captured)
        around = {str(name): array for name, array in zip(captured, arrays[inner:], strict=True) if array is not None}
        return control.run(node.op, node.attrs, arrays[:inner], around)
    if node.op.startswith(f"{OWN_DOMAIN}.") or find_declared(node.op) is not None:
        return _defined(egraph, handle, values, memo)
    if node.op in _SEQUENCES:
        return run_reference(node.op, node.attrs, arrays, node.outputs)
    result = evaluate(node.op, node.attrs, arrays, node.outputs)
    if result is None:
        raise Unprovable(f"{node.op} cannot be computed on these operands")
    return list(result)


def _defined(egraph: EGraph, handle: int, values: Mapping[str, Array], memo: dict[int, list[Any]]) -> list[Any]:
    """The value of a node of a declared operator: that of its definition, which is in its class."""
    for other in egraph.members(handle):
        op = egraph.nodes[other].op
        if not op.startswith(f"{OWN_DOMAIN}.") and find_declared(op) is None:
            return _node_value(egraph, other, values, memo)
    raise Unprovable(f"{egraph.nodes[handle].op} has no definition")


_RTOL = {"reassoc": 2e-4, "fast": 2e-3}
_ROUNDED = 3e-2  # of rules that lower the precision


def unequal(a: Array, b: Array, rule: ast.Rule) -> str:
    """How two results differ beyond what the rule's numerics class allows; empty if they do not."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if a.dtype.kind == "O":
        return "" if (a == b).all() else "strings differ"
    if a.dtype.kind not in "fc" and a.dtype.name != "bfloat16":
        return "" if bool((a == b).all()) else "elements differ"
    x, y = a.astype(np.float64), b.astype(np.float64)
    if rule.numerics == "exact":
        ok = (x == y) | (np.isnan(x) & np.isnan(y))
        if "signed_zero" not in rule.relaxations:
            ok &= np.isnan(x) | (np.signbit(x) == np.signbit(y))
    else:
        scale = max(float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0)), 1e-6)
        margin = _ROUNDED if rule.ruleset in PRECISIONS else _RTOL[rule.numerics]
        ok = (np.abs(x - y) <= margin * scale) | (np.isnan(x) & np.isnan(y)) | (x == y)
    if bool(ok.all()):
        return ""
    at = tuple(int(i) for i in np.argwhere(~ok)[0])
    return f"{float(x[at])!r} and {float(y[at])!r} at {list(at)}"
