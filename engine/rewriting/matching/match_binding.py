"""Binding: from a row that egglog found to the rule's variables, checking what the query could not express."""

from __future__ import annotations

from collections.abc import Mapping

from ....grammar.syntax import ast
from ...egraph.egraph import EGraph
from ...ir.names import ABSENT, CAPTURES
from ...ir.values import BodyRef, OpRef, Refuted, TensorRef, Unprovable
from ..notation import WHOLE
from ..rule_context import Bindings, RuleContext, require
from .attribute_matching import PartialMatch
from .compiled_patterns import CompiledRule, PatternConstraint, Variant
from .many_operands import VariadicMatch, bind_terms, is_maximal


def bind_match(context: RuleContext, rule: CompiledRule, variant: Variant, at: Mapping[str, int]) -> Bindings:
    """Return the rule's variables where the query's are `at`; raise `Unprovable` with the reason if a demand is not
    met."""
    egraph = context.egraph
    env: Bindings = {}
    for name, variable in variant.tensors.items():
        if (handle := egraph.find(at[variable])) != ABSENT:
            env[name] = TensorRef(handle)
        elif name not in variant.defaults:
            raise Unprovable(f"{name} is absent")
    if isinstance(rule.lhs, ast.Roots):
        for binding, root in zip(rule.lhs.bindings, variant.roots, strict=True):
            env[binding.target.name] = TensorRef(egraph.find(at[root]))
    if variant.whole is not None:
        env[WHOLE] = TensorRef(egraph.find(at[variant.whole]))
    for name, (op, attrs) in variant.heads.items():
        env[name] = OpRef(egraph.op_name(at[op]), egraph.interned[at[attrs]][0])
    found = PartialMatch(env, context, rule.rule.numerics == "exact", variant.defaults)
    for demand in variant.demands:
        if demand.literal is not None:
            found.add_literal(demand.literal, at[demand.variable])
        else:
            _check_node(egraph, demand, at[demand.variable], found)
    for variable, parts in variant.variadics:
        children = _operands(egraph, at[variable], env)
        VariadicMatch(context, rule.rule, children, parts, at, env).bind()
    for variable, call in variant.ac_trees:
        handle = egraph.find(at[variable])
        ends = variable not in variant.roots or is_maximal(egraph, handle, call.head)
        require(ends, f"it is part of a larger {call.head}")
        bind_terms(context, rule.rule, call, handle, env)
    found.finish()
    return env


def _operands(egraph: EGraph, handle: int, env: Bindings) -> list[int]:
    """Return the inputs of a node without its captured values, which complete the bodies bound in `env`.

    A body also gets the numbers of the node's outputs that are read."""
    node = egraph.nodes[handle]
    children = [egraph.find(c) for c in node.children]
    if CAPTURES not in node.attrs:
        return children
    names = node.attrs[CAPTURES]
    assert isinstance(names, tuple)
    inputs = len(children) - len(names)
    captures = {str(name): TensorRef(c) for name, c in zip(names, children[inputs:], strict=True)}
    projections = [egraph.nodes[user] for user in egraph.users(handle) if egraph.nodes[user].op == "Proj"]
    read = frozenset(index for p in projections if isinstance(index := p.attrs["index"], int))
    if node.outputs == 1:
        read = frozenset((0,))
    for name, value in env.items():
        if isinstance(value, BodyRef) and any(value.graph is graph for graph in node.attrs.values()):
            env[name] = BodyRef(value.graph, captures, value.op, read)
    return children[:inputs]


def _check_node(egraph: EGraph, demand: PatternConstraint, attr_id: int, found: PartialMatch) -> None:
    env, (attrs, outputs) = found.env, egraph.interned[attr_id]
    if demand.outputs is not None and outputs != demand.outputs:
        raise Refuted(f"{demand.op} has {outputs} outputs")
    if demand.any_index:
        number = attrs.get("index", 0)  # a node with one output is its own first
        if env.setdefault(demand.any_index, number) != number:
            raise Refuted(f"it is output {number!r}, not {env[demand.any_index]}")
    elif demand.index is not None:
        if attrs["index"] != demand.index:
            raise Refuted(f"it is output {attrs['index']!r}, not {demand.index}")
    else:
        assert demand.call is not None
        found.add_node(demand.call, demand.op or demand.call.head, attrs)
