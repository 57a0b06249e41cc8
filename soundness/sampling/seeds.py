"""First instances of a rule: the tests that it brings along, and samples of the pattern alone.

A sampler chooses operands from the inside of the pattern outwards, so that they fit. An operator is filled in once its
inner operators have types. A variable at an input takes a type or contents that the operator accepts beside the other
inputs (`operand_synthesis`), an attribute a value of its kind. `given` clauses and the numbers in conditions guide the
choice; operands that do not fit are discarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from ...engine.egraph.egraph import EGraph
from ...engine.ir.graph import Constant, DType, TensorType
from ...engine.ir.values import OpRef, RestRef, TensorRef, Unprovable, Value
from ...engine.operators.schemas import attributes_of
from ...engine.rewriting.evaluate import Evaluator
from ...engine.rewriting.notation import INFIX, is_literal
from ...engine.rule_tests.operands import Operands
from ...grammar.syntax import ast
from .instance import Instance, Tensor, Term, filled
from .operand_synthesis import Site, contents_for, dtype_for, shape_for
from .subject import LITERAL, NOT_BUILT, Subject, literal_value
from .values import draw, draw_attribute, draw_attributes, draw_operator, operators_of

_CLASSES = {
    "float": (DType.F32, DType.F32, DType.F64, DType.F16),
    "integer": (DType.I64, DType.I32, DType.U8, DType.I8),
    "number": (DType.F32, DType.F64, DType.I64),
}


# --- tests ---


def seeds(subject: Subject) -> Iterator[Instance]:
    """Yield the rule's own tests as instances, once per alternative; tests that refuse come last."""
    order = ("fires", "equals", "refuses")
    for test in sorted(subject.rule.tests, key=lambda t: order.index(t.verdict)):
        if not test.operands:
            continue
        egraph = EGraph.create(shared=subject.tables)
        try:
            found = Operands(subject.directed, test, Evaluator(egraph, subject.declared))
        except (Unprovable, ValueError, ArithmeticError, LookupError, TypeError, AssertionError):
            continue
        operands = _from_environment(found.env, test, egraph)
        _complete(subject, operands)
        own = subject.terms.get(test.span.line)
        for form in range(subject.alternatives) if own is None else (own,):
            yield Instance(form, operands)
    for number, model in enumerate(subject.models, len(subject.forms)):
        yield Instance(number, model.operands, int(model.name not in {t.model for t in subject.rule.tests}))


def _complete(subject: Subject, operands: dict[str, Any]) -> None:
    """Bind the variables that a test leaves out, to the operand of a namesake or to the default."""
    for node in (n for form in subject.forms[: subject.alternatives] for n in form.walk()):
        if not isinstance(node, ast.Call) or not node.is_operator:
            continue
        known = attributes_of(node.head) if node.kind is None else {}
        for attribute in node.attributes:
            name = getattr(attribute.value, "id", getattr(attribute.value, "name", None))
            if name is None or name in operands or is_literal(name) or attribute.default is not None:
                continue
            value = _namesake(name, operands, lambda v: not isinstance(v, Tensor | Term | RestRef | OpRef))
            if value is None and (formal := known.get(attribute.name)) is not None:
                value = formal.default
                if value is None:
                    value = {"INT": 0, "FLOAT": 1.0}.get(formal.kind, _ones(node, operands, attribute.name))
            if value is not None:
                operands[name] = list(value) if isinstance(value, tuple) else value
        for arg in node.args:
            if isinstance(arg, ast.Name) and not (arg.id in operands or is_literal(arg.id) or arg.id == "none"):
                near = _namesake(arg.id, operands, lambda v: isinstance(v, Tensor))
                if near is not None and arg.id not in subject.literals:
                    operands[arg.id] = near


def _ones(call: ast.Call, operands: Mapping[str, Any], name: str) -> list[int] | None:
    """Return strides or dilations of 1, one per spatial dim; the number of dims comes from another attribute."""
    if name not in ("strides", "dilations"):
        return None
    for attribute in (a for a in call.attributes if a.name in ("kernel_shape", "strides", "dilations", "pads")):
        value = attribute.value
        known = value.items if isinstance(value, ast.ListExpr) else operands.get(getattr(value, "id", ""))
        if isinstance(known, list | tuple):
            return [1] * (len(known) // (2 if attribute.name == "pads" else 1))
    return None


def _namesake(name: str, operands: Mapping[str, Any], fits: Callable[[Any], bool]) -> Any:
    """Return the operand whose name is the longest prefix of `name`."""
    names = [n for n, v in operands.items() if name.startswith(n) and fits(v)]
    return operands[max(names, key=len)] if names else None


def _from_environment(env: Mapping[str, Value], test: ast.RuleTest, egraph: EGraph) -> dict[str, Any]:
    """Return what the variables stand for, as operands; a tensor without contents is a term as the test writes it."""
    terms: dict[str, list[ast.Expr | None]] = {}
    for operand in test.operands:
        terms.setdefault(operand.target.name, []).append(operand.value)

    def convert(name: str, value: Value, index: int) -> Any:
        if isinstance(value, list):
            return [convert(name, v, i) for i, v in enumerate(value)]
        if not isinstance(value, TensorRef):
            return value
        if egraph.nodes[value.handle].op == "Input":
            type_ = egraph.type(value.handle)
            assert type_.dtype is not None
            assert type_.shape is not None
            return Tensor(type_.dtype, type_.shape)
        constant = egraph.constant(value.handle)
        if constant is not None and (contents := constant.contents()) is not None:
            return Tensor.of(contents)
        written = terms.get(name, [None])
        expr = written[min(index, len(written) - 1)]
        return None if expr is None else Term(expr)

    return {name: convert(name, value, 0) for name, value in env.items()}


# --- samples of the pattern ---


def sample_pattern(subject: Subject, rng: np.random.Generator, count: int) -> list[Instance]:
    """Return up to `count` instances whose left sides are well typed."""
    found: list[Instance] = []
    egraph = EGraph.create(shared=subject.tables)
    for number in range(6 * count):
        form = number % subject.alternatives
        if len(found) < count:
            with contextlib.suppress(*NOT_BUILT):
                found.append(Instance(form, _Sampler(subject, egraph, rng).sample(subject.forms[form])))
    return found


class _Sampler:
    def __init__(self, subject: Subject, egraph: EGraph, rng: np.random.Generator) -> None:
        self.subject = subject
        self.egraph = egraph
        self.rng = rng
        self.evaluator = Evaluator(egraph, subject.declared)
        self.operands: dict[str, Any] = {}
        self.env: dict[str, Any] = {}
        self.rank = int(rng.choice([0, 1, 2, 2, 3, 3, 4, 5]))
        extents = [2, 3, 4, 5, 1] if rng.random() < 0.8 else [0, 1, 2, 3, 7]
        self.dims = (*map(int, rng.choice(extents, 2, replace=False)), int(rng.choice([1, 2, 3])))
        if rng.random() < 0.3:
            self.dims = (self.dims[0],) * 3  # so that types do not distinguish axes
        self.given = {t.name: g.type for g in subject.rule.given for t in g.targets}
        self.in_conditions = {n.id for c in subject.rule.where for n in c.walk() if isinstance(n, ast.Name)}
        self.count = int(rng.integers(2, 4))

    def sample(self, form: ast.Expr | ast.Roots) -> dict[str, Any]:
        """Return the operands. Raises what building raises if they do not fit."""
        roots = [(b.target.index, b.value) for b in form.bindings] if isinstance(form, ast.Roots) else [(None, form)]
        for index, value in roots:
            for number in range(self.count if isinstance(index, ast.Name) else 1):
                if isinstance(index, ast.Name):
                    self.env[index.id] = number
                self._fill(value)
                self.evaluator.evaluate(value, dict(self.env))
        return self.operands

    def _site(self, op: str, index: int, types: list[TensorType | None], attrs: dict[str, Any]) -> Site:
        return Site(op, index, types, attrs, self.rng, self.rank, self.dims)

    def _choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def _set(self, name: str, value: Any) -> None:
        self.operands[name] = self.env[name] = value

    def _is_free(self, name: str | None) -> TypeGuard[str]:
        return name is not None and name not in self.env and not is_literal(name)

    # --- the pattern ---

    def _fill(self, expr: ast.Expr) -> None:
        """Bind every variable in an operator's inputs and attributes, inner ones first."""
        if isinstance(expr, ast.Subscript) and isinstance(expr.base, ast.Call) and expr.base.is_operator:
            expr = expr.base
        call = _as_call(expr)
        if call is None:
            if isinstance(expr, ast.Name | ast.Optional):
                self._leaf(expr, self._site("Identity", 0, [None], {}))
            return
        if call.kind is not None and call.head not in self.operands:
            self._head(call)
        for arg in call.args:
            if not _is_leaf(arg):
                self._fill(arg)
        bound = self.env.get(call.head)
        op = bound.op if isinstance(bound, OpRef) else call.head
        types = [self._type(a) if not _is_leaf(a) or self._bound(a) else None for a in call.args]
        if not any(types) and call.args:
            self._input(call, 0, op, types)
        self._attributes(call, op, types)
        for i, arg in enumerate(call.args):
            if types[i] is None and _is_leaf(arg):
                self._input(call, i, op, types)

    def _input(self, call: ast.Call, index: int, op: str, types: list[TensorType | None]) -> None:
        arg = call.args[index]
        attrs = {a.name: self.env.get(_name_of(a.value) or "") for a in call.attributes}
        attrs |= {a.name: a.value.value for a in call.attributes if isinstance(a.value, ast.Number)}
        attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items() if v is not None}
        self._leaf(arg, self._site(op, index, types, attrs))
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
        match arg:
            case ast.Optional(name=name):
                return name in self.env
            case ast.ListExpr(items=items):
                return not any(self._is_free(_name_of(item)) for item in items)
            case ast.Subscript(base=ast.Name(id=name), index=index):
                members = self.env.get(name)
                if isinstance(index, ast.Name) and members is not None:
                    return len(members) > int(self.env[index.id])
                return members is not None
        return isinstance(arg, ast.Name) and not self._is_free(arg.id)

    def _head(self, call: ast.Call) -> None:
        assert call.kind is not None
        options = operators_of(call.kind, len(call.args), self.subject.library.kinds)
        wanted = [n.value for c in self.subject.rule.where for n in c.walk() if isinstance(n, ast.String)]
        if named := [op for op in options if op in wanted]:
            options = named if self.rng.random() < 0.8 else options
        if not options:
            raise Unprovable("no operator of this class takes these inputs")
        self._set(call.head, draw_operator(self._choose(options), self.rank, self.rng))

    # --- attributes ---

    def _attributes(self, call: ast.Call, op: str, types: list[TensorType | None]) -> None:
        rank = next((t.rank for t in types if t is not None and t.rank is not None), self.rank)
        for attribute in call.attributes:
            name = _name_of(attribute.value)
            if isinstance(attribute.value, ast.ListExpr):
                self._items(attribute.value, draw_attribute(op, attribute.name, rank, self.rng))
            if self._is_free(name):
                self._set(name, self._attribute(op, attribute.name, rank))
        rest = call.rest.name if call.rest is not None and call.kind is None else None
        if rest is not None and rest not in self.env:
            named = {a.name for a in call.attributes}
            self._set(rest, RestRef(draw_attributes(op, rank, self.rng, 0.2, named)))

    def _attribute(self, op: str, name: str, rank: int) -> Any:
        """Return a value for an attribute: drawn, or the default, or a number of the rule."""
        value: Any = draw_attribute(op, name, rank, self.rng)
        if value is None and (formal := attributes_of(op).get(name)) is not None:
            value = formal.default
        if value is None:
            value = float(self.rng.choice([0.5, 1.0, 2.0]))
        if isinstance(value, int | float) and self.subject.numbers and self.rng.random() < 0.3:
            value = type(value)(self.rng.choice(self.subject.numbers))
        return list(value) if isinstance(value, tuple) else value

    # --- leaves ---

    def _items(self, pattern: ast.ListExpr, values: Any) -> None:
        """Bind the integers that a list names, to the given values if their number is right."""
        fitting = list(values) if values is not None and np.size(values) == len(pattern.items) else None
        for i, item in enumerate(pattern.items):
            if self._is_free(name := _name_of(item)):
                self._set(name, int(self.rng.integers(0, max(self.rank, 2)) if fitting is None else fitting[i]))

    def _leaf(self, arg: ast.Expr, site: Site) -> None:
        match arg:
            case ast.ListExpr():
                self._items(arg, contents_for(site))
            case ast.Subscript(base=ast.Name(id=name)):
                members, refs = self.operands.setdefault(name, []), self.env.setdefault(name, [])
                for _ in range(int(self.rng.integers(1, 4)) if isinstance(arg.index, ast.All) else 1):
                    members.append(self._tensor(name, site))
                    refs.append(self._add(f"{name}{len(refs)}", members[-1]))
            case ast.Optional(name=name) if self.rng.random() < 0.5:
                self.env[name] = None
            case ast.Optional(name=name) | ast.Name(id=name) if name != "none" and self._is_free(name):
                self.operands[name] = self._tensor(name, site)
                self.env[name] = self._add(name, self.operands[name])

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
        const = (wanted is not None and wanted.const) or (name in self.in_conditions and self.rng.random() < 0.4)
        if not const or any(d > 64 for d in shape):
            return Tensor(dtype, shape)
        if name in self.in_conditions and self.subject.numbers and self.rng.random() < 0.6:
            return filled(shape, float(self.rng.choice(self.subject.numbers)), dtype)
        array = draw(dtype, shape, self.rng)
        if dtype.is_float and self.rng.random() < 0.5:
            array = np.asarray(np.abs(array.astype(np.float64)) + 0.25).astype(dtype.numpy)
        return Tensor.of(array)

    def _literal(self, name: str, site: Site) -> Tensor:
        number = literal_value(self.subject.literals[name])
        if number is None:
            raise Unprovable("only the engine can compute this literal")
        shape = () if self.rng.random() < 0.6 else self._shape(None, site)
        return filled(shape, number, dtype_for(site))

    def _dtype(self, wanted: ast.TypeExpr | None, site: Site) -> DType:
        element = wanted.element if wanted is not None else None
        if element in set(DType):
            return DType(element)
        found = dtype_for(site)
        if element in _CLASSES and found not in _CLASSES[element]:
            return self._choose(_CLASSES[element])  # type: ignore[no-any-return]
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
    match expr:
        case ast.Call(is_operator=True):
            return expr
        case ast.Binary(operator=operator, left=left, right=right) if operator in INFIX:
            return ast.Call(span=expr.span, head=INFIX[operator], args=(left, right))
        case ast.Unary(operator="-", operand=operand):
            return ast.Call(span=expr.span, head="Neg", args=(operand,))
    return None


def _is_leaf(arg: ast.Expr) -> bool:
    if isinstance(arg, ast.Subscript):
        return isinstance(arg.base, ast.Name)
    return isinstance(arg, ast.Name | ast.Optional | ast.ListExpr)


def _name_of(value: ast.Expr) -> str | None:
    return value.name if isinstance(value, ast.Axis) else value.id if isinstance(value, ast.Name) else None
