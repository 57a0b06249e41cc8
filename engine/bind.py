"""From a match back to the rule's variables: what the matcher could not see is checked here."""

from __future__ import annotations

from collections.abc import Mapping

from ..grammar import ast
from .attributes import Attributes, Binding
from .egraph import CAPTURES
from .evaluate import Evaluator
from .matcher import Row
from .nary import Nary, is_whole
from .patterns import WHOLE, CompiledRule, Demand, Variant
from .spread import Spread
from .values import BodyRef, OpRef, TensorRef, Unprovable


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
    for name, (op, attrs) in variant.heads.items():
        env[name] = OpRef(egraph.op_name(at[op]), egraph.attrs_of(at[attrs]))
    attributes = Attributes(env, evaluator, rule.rule.numerics == "exact")
    for demand in variant.demands:
        if demand.literal is not None:
            evaluator.match_literal(demand.literal, at[demand.variable], exact=attributes.exact)
        else:
            _node(demand, at[demand.variable], attributes)
    for node, parts in variant.spreads:
        children = [egraph.find(c) for c in egraph.nodes[at[node]].children]
        captured = egraph.nodes[at[node]].attrs.get(CAPTURES, ())
        if captured:
            assert isinstance(captured, tuple)
            children, values = children[: -len(captured)], children[-len(captured) :]
            around = {str(name): TensorRef(c) for name, c in zip(captured, values, strict=True)}
        else:
            around = {}
        if CAPTURES in egraph.nodes[at[node]].attrs:
            _give_surroundings(evaluator, at[node], around, env)
        Spread(children, parts, at, env, evaluator, attributes.exact, rule.rule.given).bind()
    for variable, call in variant.naries:
        handle = egraph.find(at[variable])
        if variable in variant.roots and not is_whole(egraph, handle, call.head):
            raise Unprovable(f"it is a part of a larger {call.head}")
        Nary(call, handle, env, evaluator, attributes.exact, rule.rule.given).bind()
    for name, default in variant.defaults.items():
        if name not in env:
            env[name] = evaluator.evaluate(default, env)
    attributes.settle()
    return env


def _give_surroundings(evaluator: Evaluator, node: int, around: Mapping[str, TensorRef], env: Binding) -> None:
    """Says what the bodies of a node read from around it, and which outputs of the node are read."""
    egraph = evaluator.egraph
    attrs = egraph.nodes[node].attrs
    read = {egraph.nodes[user].attrs["index"] for user in egraph.users(node) if egraph.nodes[user].op == "Proj"}
    places = frozenset(index for index in read if isinstance(index, int))
    if egraph.nodes[node].outputs == 1:
        places = frozenset((0,))
    for name, value in env.items():
        if isinstance(value, BodyRef) and any(value.graph is graph for graph in attrs.values()):
            env[name] = BodyRef(value.graph, around, value.op, places)


def _node(demand: Demand, attr_id: int, attributes: Attributes) -> None:
    """Checks the outputs and attributes of an e-node, and binds the variables there."""
    egraph, env = attributes.evaluator.egraph, attributes.env
    attrs = egraph.attrs_of(attr_id)
    if demand.outputs is not None and egraph.outputs_of(attr_id) != demand.outputs:
        raise Unprovable(f"{demand.op} has {egraph.outputs_of(attr_id)} outputs")
    if demand.any_index:
        number = attrs.get("index", 0)  # a node with one output is its own first
        if env.setdefault(demand.any_index, number) != number:
            raise Unprovable(f"it is output {number!r}, not {env[demand.any_index]}")
    elif demand.index is not None:
        if attrs["index"] != demand.index:
            raise Unprovable(f"it is output {attrs['index']!r}, not {demand.index}")
    else:
        assert demand.call is not None
        attributes.node(demand.call, demand.op or demand.call.head, attrs)
