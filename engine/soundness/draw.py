"""Instances from the pattern alone: operands are chosen along the pattern, from the inside out, so that they fit.

Each operator of the pattern is filled in once its inner operators have their types: an input that is a variable gets a
type or contents that the operator takes beside the others (`propose`), an attribute a value of its kind. `given`
clauses and the numbers in conditions lead the choice; what does not fit is thrown away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...grammar import ast
from ..egraph import EGraph
from ..evaluate import INFIX, Evaluator, is_literal
from ..graph import Constant, DType, TensorType
from ..operators import normalise_attrs, signature
from ..values import OpRef, RestRef, TensorRef, Unprovable
from . import values
from .attributes import draw_attribute, draw_attributes, operators_of
from .instance import LITERAL, Instance
from .operand import Tensor
from .perturb import literal_value, numbers_of
from .propose import Site, contents_for, dtype_for, shape_for
from .run import NOT_BUILT, Subject

_CLASSES = {
    "float": (DType.F32, DType.F32, DType.F64, DType.F16),
    "integer": (DType.I64, DType.I32, DType.U8, DType.I8),
    "number": (DType.F32, DType.F64, DType.I64),
}


def drawn(subject: Subject, rng: np.random.Generator, count: int) -> list[Instance]:
    """Up to `count` instances whose left sides are well typed."""
    found: list[Instance] = []
    egraph = EGraph.create()
    for number in range(6 * count):
        if len(found) >= count:
            break
        way = number % subject.pattern.alternatives
        try:
            operands = _Drawer(subject, way, egraph, rng).operands_of_way()
        except NOT_BUILT:
            continue
        found.append(Instance(way, operands, "drawn"))
    return found


class _Drawer:
    """Draws the operands of one instance."""

    def __init__(self, subject: Subject, way: int, egraph: EGraph, rng: np.random.Generator) -> None:
        self.subject = subject
        self.pattern = subject.pattern
        self.way = way
        self.egraph = egraph
        self.rng = rng
        self.evaluator = Evaluator(egraph)
        self.evaluator.declared = subject.declared
        self.operands: dict[str, Any] = {}
        self.env: dict[str, Any] = {}
        self.rank = int(rng.choice([0, 1, 2, 2, 3, 3, 4, 5]))
        extents = [2, 3, 4, 5, 1] if rng.random() < 0.8 else [0, 1, 2, 3, 7]
        self.dims = (*map(int, rng.choice(extents, 2, replace=False)), int(rng.choice([1, 2, 3])))
        if rng.random() < 0.3:
            self.dims = (self.dims[0],) * 3  # types do not tell axes apart
        self.given = {t.name: g.type for g in subject.rule.given for t in g.targets}
        self.pool = numbers_of(subject.rule)
        self.judged = {n.id for c in subject.rule.where for n in c.walk() if isinstance(n, ast.Name)}
        self.count = int(rng.integers(2, 4))

    def operands_of_way(self) -> dict[str, Any]:
        """The operands; raises what building raises if they do not fit."""
        way = self.pattern.ways[self.way]
        roots = way.bindings if isinstance(way, ast.Roots) else ()
        if not roots:
            self._fill(way)  # type: ignore[arg-type]
            self.evaluator.evaluate(way, dict(self.env))  # type: ignore[arg-type]
        for root in roots:
            index = root.target.index.id if isinstance(root.target.index, ast.Name) else None
            for number in range(self.count if index is not None else 1):
                if index is not None:
                    self.env[index] = number
                self._fill(root.value)
                self.evaluator.evaluate(root.value, dict(self.env))
        return self.operands

    # --- the pattern ---

    def _fill(self, expr: ast.Expr) -> None:
        """Binds every variable in an operator's inputs and attributes, inner ones first."""
        if isinstance(expr, ast.Subscript) and isinstance(expr.base, ast.Call) and expr.base.is_operator:
            expr = expr.base
        call = _as_call(expr)
        if call is None:
            if isinstance(expr, ast.Name | ast.Optional):
                self._leaf(expr, Site("Identity", 0, [None], {}, self.rng, self.rank, self.dims))
            return
        if call.kind is not None and call.head not in self.operands:
            self._head(call)
        inner = [a for a in call.args if not _is_leaf(a)]
        for arg in inner:
            self._fill(arg)
        op = self._operator(call)
        types = [self._type(a) if not _is_leaf(a) or self._bound(a) else None for a in call.args]
        if not any(types) and call.args:
            self._input(call, 0, op, types)
        self._attributes(call, op, types)
        for i, arg in enumerate(call.args):
            if types[i] is None and _is_leaf(arg):
                self._input(call, i, op, types)

    def _operator(self, call: ast.Call) -> str:
        bound = self.env.get(call.head)
        return bound.op if isinstance(bound, OpRef) else call.head

    def _input(self, call: ast.Call, index: int, op: str, types: list[TensorType | None]) -> None:
        arg = call.args[index]
        attrs = {a.name: self.env.get(a.value.id) for a in call.attributes if isinstance(a.value, ast.Name)}
        attrs |= {a.name: a.value.value for a in call.attributes if isinstance(a.value, ast.Number)}
        attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items() if v is not None}
        self._leaf(arg, Site(op, index, types, attrs, self.rng, self.rank, self.dims))
        types[index] = self._type(arg)

    def _type(self, arg: ast.Expr) -> TensorType | None:
        if isinstance(arg, ast.Subscript) and isinstance(arg.base, ast.Name) and isinstance(arg.index, ast.All):
            members = self.env.get(arg.base.id)
            return self.egraph.type(members[0].handle) if members else None
        value = self.evaluator.evaluate(arg, dict(self.env))
        if isinstance(value, list) and value:
            value = value[0]
        return self.egraph.type(value.handle) if isinstance(value, TensorRef) else None

    def _bound(self, arg: ast.Expr) -> bool:
        if isinstance(arg, ast.Optional):
            return arg.name in self.env
        if isinstance(arg, ast.Subscript) and isinstance(arg.base, ast.Name):
            members = self.env.get(arg.base.id)
            if isinstance(arg.index, ast.Name) and members is not None:
                return len(members) > int(self.env[arg.index.id])
            return members is not None
        return isinstance(arg, ast.Name) and (arg.id in self.env or is_literal(arg.id))

    def _head(self, call: ast.Call) -> None:
        assert call.kind is not None
        options = operators_of(call.kind, len(call.args), self.subject.library.kinds)
        wanted = [n.value for c in self.subject.rule.where for n in c.walk() if isinstance(n, ast.String)]
        if named := [op for op in options if op in wanted]:
            options = named if self.rng.random() < 0.8 else options
        if not options:
            raise Unprovable("there is no such operator")
        op = options[int(self.rng.integers(len(options)))]
        found = OpRef(op, normalise_attrs(op, draw_attributes(op, self.rank, self.rng)))
        self.operands[call.head] = self.env[call.head] = found

    # --- attributes ---

    def _attributes(self, call: ast.Call, op: str, types: list[TensorType | None]) -> None:
        known = next((t for t in types if t is not None and t.rank is not None), None)
        rank = known.rank if known is not None and known.rank is not None else self.rank
        for attribute in call.attributes:
            name = attribute.value.id if isinstance(attribute.value, ast.Name) else None
            if name is None or name in self.env or is_literal(name):
                continue
            value: Any = draw_attribute(op, attribute.name, rank, self.rng)
            if value is None:
                found = signature(op)
                formal = found.attributes.get(attribute.name) if found is not None else None
                value = formal.default if formal is not None else None
            if value is None:
                value = float(self.rng.choice([0.5, 1.0, 2.0]))
            if isinstance(value, int | float) and self.pool and self.rng.random() < 0.3:
                value = type(value)(self.rng.choice([p for p in self.pool if np.isfinite(p)] or [1]))
            value = list(value) if isinstance(value, tuple) else value
            self.operands[name] = self.env[name] = value
        if (
            call.rest is not None
            and call.rest.name is not None
            and call.kind is None
            and call.rest.name not in self.env
        ):
            found = signature(op)
            attrs: dict[str, Any] = {}
            named = {a.name for a in call.attributes}
            for name, formal in (found.attributes if found is not None else {}).items():
                if name not in named and (formal.required or self.rng.random() < 0.2):
                    drawn_value = draw_attribute(op, name, rank, self.rng)
                    if drawn_value is not None:
                        attrs[name] = drawn_value
            self.operands[call.rest.name] = self.env[call.rest.name] = RestRef(attrs)

    # --- leaves ---

    def _leaf(self, arg: ast.Expr, site: Site) -> None:
        """Binds the variable at an input."""
        if isinstance(arg, ast.Subscript) and isinstance(arg.base, ast.Name):
            name = arg.base.id
            members = self.operands.setdefault(name, [])
            refs = self.env.setdefault(name, [])
            for _ in range(int(self.rng.integers(1, 4)) if isinstance(arg.index, ast.All) else 1):
                tensor = self._tensor(name, site)
                members.append(tensor)
                refs.append(self._add(f"{name}{len(refs)}", tensor))
            return
        if isinstance(arg, ast.Optional):
            if self.rng.random() < 0.5:
                self.env[arg.name] = None
                return
            name = arg.name
        elif isinstance(arg, ast.Name):
            name = arg.id
        else:
            return
        if name == "none" or is_literal(name) or name in self.env:
            return
        tensor = self._tensor(name, site)
        self.operands[name] = tensor
        self.env[name] = self._add(name, tensor)

    def _add(self, name: str, tensor: Tensor) -> TensorRef:
        if tensor.array is not None:
            return TensorRef(self.egraph.add_constant(Constant(tensor.array)))
        return TensorRef(self.egraph.add_input(f"{name}:{tensor.type}", tensor.type))

    def _tensor(self, name: str, site: Site) -> Tensor:
        if name.startswith(LITERAL):
            return self._literal(name, site)
        wanted = self.given.get(name)
        dtype = self._dtype(wanted, site)
        contents = contents_for(site)
        if contents is not None and dtype.is_integer and self.rng.random() < 0.95:
            return Tensor.of(contents.astype(dtype.numpy))
        shape = self._shape(wanted, site)
        const = (wanted is not None and wanted.const) or (name in self.judged and self.rng.random() < 0.4)
        if not const or any(d > 64 for d in shape):
            return Tensor(dtype, shape)
        if name in self.judged and self.pool and self.rng.random() < 0.6:
            number = float(self.rng.choice(self.pool))
            with np.errstate(all="ignore"):
                return Tensor.of(np.full(shape, number).astype(dtype.numpy))
        array = values.draw(dtype, shape, self.rng, values.PLAIN)
        if dtype.is_float and self.rng.random() < 0.5:
            array = np.asarray(np.abs(array.astype(np.float64)) + 0.25).astype(dtype.numpy)
        return Tensor.of(array)

    def _literal(self, name: str, site: Site) -> Tensor:
        number = literal_value(self.pattern.literals[name])
        if number is None:
            raise Unprovable("a literal of this kind is left as it is")
        shape = () if self.rng.random() < 0.6 else self._shape(None, site)
        with np.errstate(all="ignore"):
            return Tensor.of(np.full(shape, number).astype(dtype_for(site).numpy))

    def _dtype(self, wanted: ast.TypeExpr | None, site: Site) -> DType:
        element = wanted.element if wanted is not None else None
        if element in set(DType):
            return DType(element)
        found = dtype_for(site)
        if element in _CLASSES and found not in _CLASSES[element]:
            options = _CLASSES[element]
            return options[int(self.rng.integers(len(options)))]
        return found

    def _shape(self, wanted: ast.TypeExpr | None, site: Site) -> tuple[int, ...]:
        if wanted is not None and wanted.element == "scalar":
            return () if self.rng.random() < 0.5 else (1,)
        fitting = shape_for(site)
        if wanted is None or wanted.shape is None:
            return fitting
        shape: list[int] = []
        for i, item in enumerate(wanted.shape):
            if isinstance(item, ast.ShapeRest):
                rest = self.env.setdefault(item.name or "..", list(site.some(int(self.rng.integers(0, 3)))))
                shape += rest
            elif isinstance(item, ast.Number):
                shape.append(int(item.value))
            elif isinstance(item, ast.Name):
                size = fitting[i] if i < len(fitting) == len(wanted.shape) else site.dim()
                shape.append(int(self.env.setdefault(item.id, size)))
            else:
                shape.append(fitting[i] if i < len(fitting) else site.dim())
        return tuple(shape)


def _as_call(expr: ast.Expr) -> ast.Call | None:
    if isinstance(expr, ast.Call) and expr.is_operator:
        return expr
    if isinstance(expr, ast.Binary) and expr.operator in INFIX:
        return ast.Call(span=expr.span, head=INFIX[expr.operator], args=(expr.left, expr.right))
    if isinstance(expr, ast.Unary) and expr.operator == "-":
        return ast.Call(span=expr.span, head="Neg", args=(expr.operand,))
    return None


def _is_leaf(arg: ast.Expr) -> bool:
    if isinstance(arg, ast.Subscript):
        return isinstance(arg.base, ast.Name)
    return isinstance(arg, ast.Name | ast.Optional)
