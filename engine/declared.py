"""Operators that rule files declare in domains of their own: `op com.acme.Foo(x: T[N, C], alpha: 1.0) -> T[N]`.

A declaration gives an operator what a schema gives to a standard one: an interface, defaults of attributes, and the
types of its outputs. They are computed in an e-graph made for the purpose, whose inputs have the types that are known:
by what the declaration says of the outputs, else by its definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..grammar import ast
from ..grammar.scope import param_types
from .graph import AttrValue, DType, TensorType
from .operators import Attribute, Declared, Parameter, Signature
from .symbolic import Dim
from .symbolic import Expr as DimExpr

if TYPE_CHECKING:
    from .egraph import EGraph
    from .evaluate import Evaluator
    from .shapes.core import Call, Types
    from .values import Value

_WORDS: dict[str, AttrValue | None] = {
    "true": 1, "false": 0, "none": None, "inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793,
}  # fmt: skip
_KINDS = {int: "INT", float: "FLOAT", str: "STRING"}


def declarations(ops: Iterable[ast.Op]) -> dict[str, Declared]:
    """The operators among these that belong to a domain, by name."""
    found = [op for op in ops if "." in op.name and op.params is not None]
    defined = {op.name: op for op in ops if op.definition is not None}
    return {op.name: Declared(_signature(op), not op.impure, op, defined) for op in found}


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
    value = literal(param.attribute)
    first = value[0] if isinstance(value, tuple) and value else value
    kind = _KINDS.get(type(first), "") + ("S" if isinstance(value, tuple) and value else "")
    return Attribute(param.name, kind, value, False)


def literal(expr: ast.Expr) -> AttrValue | None:
    """The value of a default: a number, a string, a word, or a list of them."""
    match expr:
        case ast.Number(value=value) | ast.String(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS.get(name)
        case ast.Unary(operand=operand):
            number = literal(operand)
            return -number if isinstance(number, int | float) else None
        case ast.ListExpr(items=items):
            return tuple(literal(item) for item in items)  # type: ignore[return-value]
    return None


def max_inputs(op: ast.Op) -> int | None:
    """The number of inputs that an operator takes at most; None for any number, or if its parameters are not told."""
    if op.params is None or any(param.variadic for param in op.params):
        return None
    return sum(param.attribute is None for param in op.params)


def bind(op: ast.Op, inputs: Iterable[Value], attrs: Mapping[str, AttrValue], evaluator: Evaluator) -> dict[str, Value]:
    """Values by parameter for an application of a declared operator; an absent input has its default, or None."""
    from .values import as_attribute

    env: dict[str, Value] = {}
    left = iter(inputs)
    for param in op.params or ():
        if param.attribute is not None:
            value = attrs[param.name] if param.name in attrs else evaluator.evaluate(param.attribute, {})
            value = value if value is None else as_attribute(value)
            env[param.name] = list(value) if isinstance(value, tuple) else value
        elif param.variadic:
            env[param.name] = [value for value in left if value is not None]
        else:
            env[param.name] = next(left, None)
            if env[param.name] is None and param.default is not None:
                env[param.name] = evaluator.evaluate(param.default, {})
    return env


def infer_declared(call: Call, declared: Declared) -> Types:
    """The types of the outputs of a declared operator, as far as they follow from those of its inputs."""
    from .egraph import EGraph
    from .evaluate import Evaluator
    from .shapes.core import IllTyped
    from .values import TensorRef, Unprovable

    if any(t is not None and not isinstance(t, TensorType) for t in call.types):
        return ()
    egraph = EGraph.scratch(call.fresh)
    evaluator = Evaluator(egraph)
    evaluator.declared = declared.defined
    inputs: list[Value] = []
    for i, type_ in enumerate(call.types):
        constant = call.constants[i] if i < len(call.constants) else None
        if type_ is None:
            inputs.append(None)
        elif constant is not None:
            inputs.append(TensorRef(egraph.add_constant(constant)))
        else:
            inputs.append(TensorRef(egraph.add_input(f"i{i}", type_, call.value(i))))
    op = declared.op
    try:
        env = bind(op, inputs, call.attrs, evaluator)
        if op.results:
            return _stated(op, env, evaluator, call)
        if op.definition is None:
            return ()
        return _meant(op, env, evaluator, egraph, call)
    except (Unprovable, IllTyped):
        return ()


def _stated(op: ast.Op, env: dict[str, Value], evaluator: Evaluator, call: Call) -> Types:
    """The types that the declaration states."""
    from .given import check_given
    from .shapes.core import size_of
    from .values import Unprovable

    for clause in (*param_types(op), *op.given):
        try:
            check_given([clause], env, evaluator)
        except Unprovable:
            continue  # what is not known of an input binds nothing

    def size(dim: ast.Expr | ast.AnyDim) -> Dim:
        if isinstance(dim, ast.AnyDim):
            return call.fresh()
        try:
            value = evaluator.evaluate(dim, env)
        except Unprovable:
            return call.fresh()
        if isinstance(value, bool) or not isinstance(value, int | DimExpr):
            return call.fresh()
        return size_of(call, value)

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


def _meant(op: ast.Op, env: dict[str, Value], evaluator: Evaluator, egraph: EGraph, call: Call) -> Types:
    """The types of what the definition says."""
    from .values import TensorRef

    found = []
    for i, value in enumerate(evaluator.meanings(op, env)):
        if not isinstance(value, TensorRef):
            found.append(TensorType())
            continue
        found.append(egraph.type(value.handle))
        contents = egraph.value(value.handle)
        if contents is not None:
            call.contents[i] = contents
    return found


def define(evaluator: Evaluator, handle: int, op: ast.Op) -> bool:
    """Makes a node of a declared operator equal to its definition; whether that is news.

    Raises `Unprovable` where what the declaration asks of the inputs is not known to hold."""
    from .egraph import ABSENT
    from .given import check_given
    from .values import TensorRef

    egraph = evaluator.egraph
    node = egraph.nodes[handle]
    inputs: list[Value] = [None if c == ABSENT else TensorRef(egraph.find(c)) for c in node.children]
    env = bind(op, inputs, node.attrs, evaluator)
    check_given((*param_types(op), *op.given), env, evaluator)
    for condition in op.where:
        evaluator.prove(condition, env)
    return evaluator.equate(handle, evaluator.meanings(op, env)[: node.outputs], evaluator.made_by)
