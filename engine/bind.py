"""From a match back to the rule's variables: what the matcher could not see is checked here."""

from __future__ import annotations

from collections.abc import Mapping

from ..grammar import ast
from .egraph import EGraph
from .evaluate import Evaluator, is_literal
from .graph import AttrValue, Constant
from .matcher import Row
from .operators import default_attrs
from .patterns import WHOLE, CompiledRule, Demand, Part, Unsupported, Variant
from .values import OpRef, RestRef, TensorRef, Unprovable, Value

Binding = dict[str, Value]


def bind(rule: CompiledRule, variant: Variant, row: Row, evaluator: Evaluator) -> Binding:
    """The rule's variables for one match. Raises `Unprovable` with the reason if a demand is not met."""
    egraph = evaluator.egraph
    names = (*variant.query.classes, *variant.query.integers)
    at = dict(zip(names, row, strict=True))
    env: Binding = {}
    for name, variable in variant.tensors.items():
        if isinstance(variable, list):
            env[name] = [TensorRef(egraph.find(at[v])) for v in variable]
        else:
            handle = egraph.find(at[variable])
            if handle == 0:
                if name not in variant.defaults:
                    raise Unprovable(f"{name} is absent")
                continue
            env[name] = TensorRef(handle)
    if isinstance(rule.lhs, ast.Roots):
        for binding, root in zip(rule.lhs.bindings, variant.roots, strict=True):
            env[binding.target.name] = TensorRef(egraph.find(at[root]))
    if variant.whole is not None:
        env[WHOLE] = TensorRef(egraph.find(at[variant.whole]))
    for node, parts in variant.spreads:
        _spread(at, at[node], parts, env, egraph)
    for name, (op, attrs) in variant.heads.items():
        env[name] = OpRef(egraph.op_name(at[op]), egraph.attrs_of(at[attrs]))
    later: list[tuple[ast.Expr, object, str]] = []
    missing: list[ast.Attribute] = []
    exact = rule.rule.numerics == "exact"
    for demand in variant.demands:
        if demand.literal is not None:
            evaluator.match_literal(demand.literal, at[demand.variable], exact=exact)
        else:
            _attributes(demand, at, env, evaluator, later, missing, exact=exact)
    for name, default in variant.defaults.items():
        if name not in env:
            env[name] = evaluator.evaluate(default, env)
    for attribute in missing:
        assert attribute.default is not None
        value = evaluator.evaluate(attribute.default, env)
        variable = _variable(attribute.value)
        if variable is not None and variable not in env:
            env[variable] = value
        else:
            later.append((attribute.value, value, f"the default of {attribute.name}"))
    for expr, value, what in later:
        if not evaluator.equal(evaluator.evaluate(expr, env), value):
            raise Unprovable(f"{what} is {value!r}")
    return env


def _spread(at: Mapping[str, int], node: int, parts: tuple[Part, ...], env: Binding, egraph: EGraph) -> None:
    """Binds the starred variables of a variadic operator to the inputs between those that were matched."""
    children = [egraph.find(c) for c in egraph.nodes[node].children]
    start = 0
    for i, part in enumerate(parts):
        if part.name:
            following = next((p for p in parts[i + 1 :]), None)
            if following is not None and following.name:
                raise Unsupported("two starred variables in a row")
            end = len(children) if following is None else at[following.position]
            if end < start or (end == start and len(parts) == 1):
                raise Unprovable(f"nothing is left for {part.name}")
            found = [TensorRef(c) for c in children[start:end]]
            if env.setdefault(part.name, found) != found:
                raise Unprovable(f"{part.name} stands for other inputs elsewhere")
            start = end
            continue
        if at[part.position] != start:
            raise Unprovable("an input is at another position")
        if part.whole:
            whole = egraph.find(at[part.whole])
            count = len(egraph.types(whole))
            if not all(
                start + k < len(children) and egraph.is_output(children[start + k], whole, k) for k in range(count)
            ):
                raise Unprovable("its inputs are not all the outputs of one node in order")
            start += count
        else:
            start += 1
    if start != len(children):
        raise Unprovable("it has more inputs")


def _attributes(
    demand: Demand,
    at: Mapping[str, int],
    env: Binding,
    evaluator: Evaluator,
    later: list[tuple[ast.Expr, object, str]],
    missing: list[ast.Attribute],
    *,
    exact: bool,
) -> None:
    """Checks an e-node's outputs and attributes and binds the variables there; comparisons go to `later`, attributes
    that are absent and have a default to `missing`."""
    egraph = evaluator.egraph
    attr_id = at[demand.variable]
    attrs = egraph.attrs_of(attr_id)
    if demand.outputs is not None and egraph.outputs_of(attr_id) != demand.outputs:
        raise Unprovable(f"{demand.op} has {egraph.outputs_of(attr_id)} outputs")
    if demand.any_index:
        number = attrs["index"]
        if env.setdefault(demand.any_index, number) != number:
            raise Unprovable(f"it is output {number!r}, not {env[demand.any_index]}")
        return
    if demand.index is not None:
        if attrs["index"] != demand.index:
            raise Unprovable(f"it is output {attrs['index']!r}, not {demand.index}")
        return
    call = demand.call
    assert call is not None
    what = demand.op or call.head
    named = {a.name: a for a in call.attributes}
    for name, attribute in named.items():
        expr = attribute.value
        if name not in attrs:
            if attribute.default is not None:
                missing.append(attribute)
                continue
            raise Unprovable(f"{what} has no {name}")
        value = attrs[name]
        if isinstance(value, Constant):
            _tensor_attribute(attribute, egraph.add_constant(value), env, evaluator, exact=exact)
            continue
        variable = _variable(expr)
        if variable is not None and variable not in env:
            env[variable] = list(value) if isinstance(value, tuple) else value
            continue
        later.append((expr, value, f"{what}'s {name}"))
    others = {k: v for k, v in attrs.items() if k not in named}
    if demand.kind is not None:
        _same_head(env[call.head], others)
    if call.rest is not None:
        if call.rest.name is not None:
            if env.setdefault(call.rest.name, RestRef(others)) != RestRef(others):
                raise Unprovable(f"the other attributes of {what} differ")
        return
    if demand.kind is not None:
        return
    defaults = evaluator.own_defaults(demand.op) or default_attrs(demand.op)
    for name, value in others.items():
        if name not in defaults or defaults[name] != value:
            raise Unprovable(f"{demand.op}'s {name} is {value!r}")


def _variable(expr: ast.Expr) -> str | None:
    """The variable that an attribute's pattern is: `a`, or `t` for the `t[i]` of one member of a group."""
    if isinstance(expr, ast.Subscript) and isinstance(expr.index, ast.Name):
        expr = expr.base
    return expr.id if isinstance(expr, ast.Name) and not is_literal(expr.id) else None


def _tensor_attribute(
    attribute: ast.Attribute, handle: int, env: Binding, evaluator: Evaluator, *, exact: bool
) -> None:
    """An attribute that holds a tensor is a constant: bound, the same as one that is bound, or equal to a literal."""
    variable = _variable(attribute.value)
    if variable is None:
        evaluator.match_literal(attribute.value, handle, exact=exact)
        return
    known = env.setdefault(variable, TensorRef(handle))
    if not isinstance(known, TensorRef) or evaluator.egraph.find(known.handle) != evaluator.egraph.find(handle):
        raise Unprovable(f"{attribute.name} is another constant than {variable}")


def _same_head(bound: Value, others: Mapping[str, AttrValue]) -> None:
    """An operator that a pattern names twice has equal attributes, those apart that the pattern names."""
    assert isinstance(bound, OpRef)
    for name, value in others.items():
        if name in bound.attrs and bound.attrs[name] != value:
            raise Unprovable(f"{bound.op} has another {name} elsewhere")
