"""Building e-nodes from evaluated operands: values become constants, declared operators equal their definitions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...grammar.builtins import NARY
from ...grammar.syntax import ast
from ..egraph.reasons import Defined
from ..ir.graph import AttrValue, Constant, DType, Graph, TensorType
from ..ir.names import ABSENT, CAPTURES
from ..ir.symbolic import Expr as DimExpr
from ..ir.symbolic import symbols
from ..ir.values import BodyRef, TensorRef, Unprovable, Value, as_attribute
from ..operators.inference import IllTyped
from ..operators.schemas import graph_name, normalize_attrs, signature
from .rule_context import Bindings, RuleContext, known, require


def build_node(
    context: RuleContext, op: str, attrs: Mapping[str, AttrValue | BodyRef], inputs: Sequence[Value],
    outputs: int | None = 1,
) -> TensorRef:  # fmt: skip
    """Return the class of an operator over values; of several outputs the tuple.

    Values that are not tensors become constants. `outputs` is the number of outputs, None if it follows from the
    operator. Raises `Unprovable` where the node would be invalid."""
    if op in NARY and len(inputs) != 2:
        return _tree(context, op, inputs)
    if op in context.declared:
        return _declared(context, context.declared[op], attrs, inputs, outputs)  # type: ignore[arg-type]
    found = known(signature(op), f"there is no operator {op}")
    children = _operands(context, op, inputs)
    for i, formal in enumerate(found.inputs):
        if not (formal.optional or formal.variadic) and (i >= len(children) or children[i] == ABSENT):
            raise Unprovable(f"{op} has no {formal.name}")
    children += [ABSENT] * ((found.max_inputs or 0) - len(children))
    plain, captured = _with_captures(attrs)
    children += captured
    count = _output_count(context, op, plain, children, outputs)
    return _add(context, op, op, normalize_attrs(op, plain), children, count)


def build_constant(context: RuleContext, value: Value, dtype: DType | None) -> int:
    """Return the class of a constant tensor; raise `Unprovable` for numbers without an element type."""
    if isinstance(value, np.ndarray):
        return context.egraph.add_constant(Constant(value if dtype is None else value.astype(dtype.numpy)))
    if dtype is None:
        raise Unprovable(f"the element type of {value!r} is not known")
    items = value if isinstance(value, list) else [value]
    if any(isinstance(v, DimExpr) for v in items):
        return _sizes(context, items, dtype, scalar=not isinstance(value, list))
    try:
        array = np.array(value, dtype=np.float64 if dtype.is_float else None)
        if dtype.is_integer and array.dtype.kind == "f" and array.size:
            raise Unprovable(f"{value!r} is not an integer")
        found = array.astype(dtype.numpy)
    except (OverflowError, TypeError, ValueError) as error:  # numbers out of range, lists of unequal lengths
        raise Unprovable(f"{value!r} is not a {dtype} constant: {error}") from error
    if dtype.is_integer and (found.astype(object) != array.astype(object)).any():
        raise Unprovable(f"{value!r} is beyond the range of {dtype}")
    return context.egraph.add_constant(Constant(found))


def _sizes(context: RuleContext, items: Sequence[Value], dtype: DType, *, scalar: bool) -> int:
    """Return the class of integers that are known from the sizes of inputs, for a graph of kernels."""
    dims = [v for v in items if isinstance(v, int | DimExpr)]
    known_dims = all(symbols(d) <= context.egraph.extents for d in dims)
    require(len(dims) == len(items) and dtype.is_integer and known_dims, "a constant cannot hold an unknown dim")
    return context.egraph.add_sizes(dims, dtype, scalar=scalar, made_by=context.made_by, origins=context.origins)


def as_tensor(context: RuleContext, value: Value, dtype: DType | None) -> int:
    """Return the class of a tensor, or of any other value as a constant."""
    return value.handle if isinstance(value, TensorRef) else build_constant(context, value, dtype)


def node_outputs(context: RuleContext, node: TensorRef) -> list[Value]:
    """Return all outputs of a node."""
    return [node_output(context, node, i) for i in range(len(context.egraph.types(node.handle)))]


def node_output(context: RuleContext, node: TensorRef, index: int) -> TensorRef:
    """Return one output of a node; the node itself if it has only one."""
    if len(context.egraph.types(node.handle)) == 1:
        return node
    return _add(context, "Proj", "Proj", {"index": index}, (node.handle,), 1)


def _add(
    context: RuleContext, op: str, written: str, attrs: Mapping[str, AttrValue], children: Sequence[int],
    outputs: int, types: tuple[Any, ...] | None = None,
) -> TensorRef:  # fmt: skip
    """Add a node with the context's provenance; `written` is the operator as rules write it."""
    made_by, origins = context.made_by, context.origins
    try:
        found = context.egraph.add(op, attrs, children, outputs, made_by=made_by, origins=origins, types=types)
    except IllTyped as error:
        raise Unprovable(f"{written} would be invalid: {error}") from error
    return TensorRef(found)


def _tree(context: RuleContext, op: str, inputs: Sequence[Value]) -> TensorRef:
    """Build a sum or product of any number of terms as a left-deep tree."""
    require(any(isinstance(v, TensorRef) for v in inputs), f"{op} of no terms has no type")
    if context.assumed is not None:  # in tests, keep constants apart: folded, they would be one term for any rule
        inputs = sorted(inputs, key=lambda v: not isinstance(v, TensorRef) or context.egraph.is_const(v.handle))
    total: TensorRef = functools.reduce(lambda left, right: build_node(context, op, {}, [left, right]), inputs)
    return total


# --- operators that rule files define ---


def max_inputs(op: ast.Op) -> int | None:
    """Return the maximum number of inputs; None if it is unlimited or the parameters are not declared."""
    if op.params is None or any(param.variadic for param in op.params):
        return None
    return sum(param.attribute is None for param in op.params)


def bind_parameters(
    context: RuleContext, op: ast.Op, inputs: Iterable[Value], attrs: Mapping[str, AttrValue]
) -> Bindings:
    """Return the value of each parameter at an application; an absent input has its default, or None."""
    env: Bindings = {}
    left = iter(inputs)
    for param in op.params or ():
        if param.attribute is not None:
            value = attrs[param.name] if param.name in attrs else context.evaluate(param.attribute, {})
            value = value if value is None else as_attribute(value)
            env[param.name] = list(value) if isinstance(value, tuple) else value
        elif param.variadic:
            env[param.name] = [value for value in left if value is not None]
        else:
            env[param.name] = next(left, None)
            if env[param.name] is None and param.default is not None:
                env[param.name] = context.evaluate(param.default, {})
    return env


def declared_defaults(context: RuleContext, op: str) -> dict[str, AttrValue]:
    """Return the default attributes of a declared operator, without those that default to none; empty for any other."""
    if op not in context.declared:
        return {}
    if graph_name(op) == op:
        return normalize_attrs(op, {})
    params = context.declared[op].params or ()
    values = {p.name: context.evaluate(p.attribute, {}) for p in params if p.attribute is not None}
    return {name: as_attribute(value) for name, value in values.items() if value is not None}


def _declared(
    context: RuleContext, op: ast.Op, attrs: Mapping[str, AttrValue], inputs: Sequence[Value], outputs: int | None
) -> TensorRef:
    """Build a node of a declared operator and equate it with its definition, which gives it its types."""
    env = bind_parameters(context, op, inputs, attrs)
    definitions = evaluate_definition(context, op, env)
    name = graph_name(op.name)
    if name == op.name:
        full = normalize_attrs(name, attrs)
    else:
        named = {p.name: env[p.name] for p in op.params or () if p.attribute is not None}
        full = {name: as_attribute(value) for name, value in named.items() if value is not None}
    children = _operands(context, name, inputs)
    found = signature(name)
    most = max_inputs(op) if found is None else found.max_inputs
    children += [ABSENT] * ((most or 0) - len(children))
    definitions = definitions if outputs is None else definitions[:outputs]
    types = tuple(context.egraph.types(d.handle)[0] if isinstance(d, TensorRef) else TensorType() for d in definitions)
    node = _add(context, name, op.name, full, children, len(definitions), types)
    equate_outputs(context, node.handle, definitions, None)
    return node


def evaluate_definition(context: RuleContext, op: ast.Op, env: Bindings) -> list[Value]:
    """Return the definition of each output of a declared operator; None where there is none."""
    assert op.definition is not None
    inside = context.outside_rule()
    items = op.definition.items if isinstance(op.definition, ast.ListExpr) else (op.definition,)
    found = [inside.evaluate(item, env) for item in items]
    for value in found:
        if value is not None and not isinstance(value, TensorRef):
            raise Unprovable(f"{op.name} of these inputs is not a tensor")
    return found


def equate_outputs(context: RuleContext, handle: int, values: Sequence[Value], rule: str | None) -> bool:
    """Merge the outputs of a node with tensors, and return whether that changed the e-graph; None is skipped.

    Raises `Unprovable` before merging anything if the types of a pair are not provably equal."""
    egraph = context.egraph
    pairs: list[tuple[int, int]] = []
    for i, value in enumerate(values):
        if isinstance(value, TensorRef):
            output = node_output(context, TensorRef(handle), i).handle
            if not egraph.can_union(output, value.handle):
                raise Unprovable(f"its definition is {egraph.type(value.handle)} where it is {egraph.type(output)}")
            pairs.append((output, value.handle))
    changed = [egraph.union(output, definition, rule, Defined(handle)) for output, definition in pairs]
    return any(changed)


# --- operands ---


def _operands(context: RuleContext, op: str, inputs: Sequence[Value]) -> list[int]:
    """Return the classes of operands; a number takes the element type of the schema, else of the first tensor."""
    like = next((context.egraph.type(v.handle).dtype for v in inputs if isinstance(v, TensorRef)), None)
    return [
        ABSENT if value is None else as_tensor(context, value, input_dtype(op, i) or like)
        for i, value in enumerate(inputs)
    ]


@functools.cache
def input_dtype(op: str, index: int) -> DType | None:
    """Return the element type that the schema fixes for a constant operand, such as i64 for the shape of Reshape.

    None where it depends on the other inputs."""
    found = signature(op)
    if found is None or not found.inputs:
        return None
    allowed = found.inputs[min(index, len(found.inputs) - 1)].dtypes
    if len(allowed) == 1:
        return DType(next(iter(allowed)))
    if allowed and all(DType(t).is_integer for t in allowed):
        return DType.I64 if "i64" in allowed else None
    return None


def _with_captures(attrs: Mapping[str, AttrValue | BodyRef]) -> tuple[dict[str, AttrValue], list[int]]:
    """Replace bodies by their graphs, and return also the classes of the values that they capture."""
    plain = {name: value.graph if isinstance(value, BodyRef) else value for name, value in attrs.items()}
    bodies = [value for value in attrs.values() if isinstance(value, BodyRef)]
    captured: dict[str, TensorRef] = {}
    for body in bodies:
        for name in body.graph.captures():
            found = captured.setdefault(name, body.captures[name])
            require(found == body.captures[name], f"the bodies read two values as {name}")
    return {**plain, CAPTURES: tuple(captured)} if bodies else plain, [tensor.handle for tensor in captured.values()]


def _output_count(
    context: RuleContext, op: str, attrs: Mapping[str, AttrValue], children: Sequence[int], outputs: int | None
) -> int:
    if op == "Split":
        sizes = context.egraph.value(children[1]) if len(children) > 1 and children[1] != ABSENT else None
        if sizes is not None:
            return len(sizes.dims)
        number = attrs.get("num_outputs")
        if isinstance(number, int):
            return number
    if CAPTURES in attrs:
        body = next((value for value in attrs.values() if isinstance(value, Graph)), None)
        outputs = None if body is None else len(body.outputs) - (op == "Loop")
    count, found = known(outputs, f"the number of outputs of {op} is not known"), signature(op)
    return count if found is None else max(count, found.min_outputs)  # TopK has two outputs even if one is used
