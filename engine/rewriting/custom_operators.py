"""Operators that rule files declare: `op com.acme.Foo(x: T[N, C], alpha: 1.0) -> T[N]`.

A declaration gives an operator what a schema gives to a standard one: an interface, defaults of attributes, and types
of its outputs. These are inferred in an e-graph of their own, whose inputs have the known types: from the declared
result types, else from the definition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import partial

from ...grammar.printing.printer import print_expr
from ...grammar.syntax import ast
from ...grammar.syntax.scope import param_types
from ..egraph.egraph import EGraph
from ..ir.graph import AttrValue, DType, TensorType
from ..ir.names import ABSENT
from ..ir.protos import EmptyDefault
from ..ir.symbolic import Dim
from ..ir.symbolic import Expr as DimExpr
from ..ir.values import TensorRef, Unprovable, Value
from ..operators.inference.inference_call import Call, IllTyped, Types
from ..operators.schemas import Attribute, Declared, Parameter, Signature
from .build_nodes import bind_parameters, equate_outputs, evaluate_definition
from .evaluate import Evaluator
from .matching.type_constraints import check_given
from .rule_context import Bindings

_WORDS: dict[str, AttrValue | None] = {
    "true": 1, "false": 0, "none": None, "inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793,
}  # fmt: skip
_KINDS = {int: "INT", float: "FLOAT", str: "STRING"}


def declarations(ops: Iterable[ast.Op]) -> dict[str, Declared]:
    """Return the declared operators that belong to a domain, by name."""
    defined = {op.name: op for op in ops if op.definition is not None}
    return {
        op.name: Declared(_signature(op), not op.impure, op, defined, partial(infer_declared, op, defined))
        for op in ops
        if "." in op.name and op.params is not None
    }


def define(context: Evaluator, handle: int, op: ast.Op) -> bool:
    """Equate a node of a declared operator with its definition, and return whether that changed the e-graph.

    Raises `Unprovable` where the requirements of the declaration are not known to hold."""
    egraph = context.egraph
    node = egraph.nodes[handle]
    inputs: list[Value] = [None if c == ABSENT else TensorRef(egraph.find(c)) for c in node.children]
    env = bind_parameters(context, op, inputs, node.attrs)
    _require(context, op, env)
    return equate_outputs(context, handle, evaluate_definition(context, op, env)[: node.outputs], context.made_by)


def _require(context: Evaluator, op: ast.Op, env: Bindings) -> None:
    """Prove the requirements of a declaration. Raises `Unprovable`."""
    check_given(context, (*param_types(op), *op.given), env)
    for condition in op.where:
        try:
            context.prove(condition, env)
        except Unprovable as why:
            raise Unprovable(f"it requires {print_expr(condition)}") from why


# --- interface ---


def _signature(op: ast.Op) -> Signature:
    params = op.params or ()
    inputs = [p for p in params if p.attribute is None]
    outputs = len(op.results) or (len(op.definition.items) if isinstance(op.definition, ast.ListExpr) else 1)
    known = bool(op.results) or op.definition is not None
    return Signature(
        op.name,
        tuple(_parameter(p) for p in inputs),
        tuple(Parameter(f"y{i}", i > 0, False, True, "", frozenset(), False) for i in range(outputs)),
        {p.name: _attribute(p) for p in sorted(params, key=lambda p: p.name) if p.attribute is not None},
        max((i + 1 for i, p in enumerate(inputs) if p.default is None and not p.variadic), default=0),
        None if any(p.variadic for p in inputs) else len(inputs),
        1,
        outputs if known else None,
        1,
        False,
    )


def _parameter(param: ast.Param) -> Parameter:
    element = param.type.element if param.type is not None else None
    dtypes = frozenset([element]) if element in set(DType) else frozenset[str]()
    return Parameter(
        param.name, param.default is not None, param.variadic, True, element or "", dtypes, param.type is None
    )


def _attribute(param: ast.Param) -> Attribute:
    assert param.attribute is not None
    value = _default(param.attribute)
    first = value[0] if isinstance(value, tuple) and value else value
    kind = _KINDS.get(type(first), "") + ("S" if isinstance(value, tuple) and value else "")
    return Attribute(param.name, kind, value, False)


def _default(expr: ast.Expr) -> AttrValue | None:
    """Return the value of a default: a number, a string, a literal name, or a list of them."""
    match expr:
        case ast.Number(value=value) | ast.String(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS.get(name)
        case ast.Unary(operand=operand):
            number = _default(operand)
            return -number if isinstance(number, int | float) else None
        case ast.ListExpr(items=items):
            return tuple(_default(item) for item in items) or EmptyDefault()  # type: ignore[return-value]
    return None


# --- types ---


def infer_declared(op: ast.Op, defined: Mapping[str, ast.Op], call: Call) -> Types:
    """Infer the types of the outputs of a declared operator, as far as they follow from those of its inputs."""
    if any(t is not None and not isinstance(t, TensorType) for t in call.types):
        return ()
    egraph = EGraph.scratch(call.fresh)
    context = Evaluator(egraph, defined)
    inputs: list[Value] = []
    for i, type_ in enumerate(call.types):
        constant = call.constants[i] if i < len(call.constants) else None
        if type_ is None:
            inputs.append(None)
        elif constant is not None:
            inputs.append(TensorRef(egraph.add_constant(constant)))
        else:
            inputs.append(TensorRef(egraph.add_input(f"i{i}", type_, call.value(i))))
    try:
        env = bind_parameters(context, op, inputs, call.attrs)
        if op.results:
            return _declared_types(context, op, env, call)
        return () if op.definition is None else _defined_types(context, op, env, call)
    except (Unprovable, IllTyped):
        return ()


def _declared_types(context: Evaluator, op: ast.Op, env: Bindings, call: Call) -> Types:
    """Return the declared result types, with the dims and element types that the inputs bind."""
    for clause in (*param_types(op), *op.given):
        with contextlib.suppress(Unprovable):  # an unknown type binds nothing
            check_given(context, [clause], env)

    def size(dim: ast.Expr | ast.AnyDim) -> Dim:
        with contextlib.suppress(Unprovable):
            value = None if isinstance(dim, ast.AnyDim) else context.evaluate(dim, env)
            if isinstance(value, int | DimExpr) and not isinstance(value, bool):
                return call.size_of(value)
        return call.fresh()

    found = []
    for type_ in op.results:
        element = type_.element or ""
        dtype = DType(element) if element in set(DType) else env.get(element)
        shape: list[Dim] | None = None if type_.shape is None else []
        for dim in type_.shape or ():
            if not isinstance(dim, ast.ShapeRest):
                if shape is not None:
                    shape.append(size(dim))
            elif isinstance(rest := env.get(dim.name or ""), list) and shape is not None:
                shape.extend(rest)
            else:
                shape = None
        found.append(TensorType(dtype if isinstance(dtype, DType) else None, None if shape is None else tuple(shape)))
    return found


def _defined_types(context: Evaluator, op: ast.Op, env: Bindings, call: Call) -> Types:
    """Return the types of the definition's values, and record the contents of small integer outputs."""
    _require(context, op, env)  # elsewhere the definition says nothing
    values = evaluate_definition(context, op, env)
    for i, value in enumerate(values):
        contents = context.egraph.value(value.handle) if isinstance(value, TensorRef) else None
        if contents is not None:
            call.contents[i] = contents
    return [context.egraph.type(v.handle) if isinstance(v, TensorRef) else TensorType() for v in values]
