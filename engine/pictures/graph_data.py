"""A graph with provenance and predicted costs as plain JSON values; docs/json.md lists the fields."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.graph import AttrValue, Constant, Graph, Node, OtherType, ValueType
from .scope_tree import Group, fold, scopes, signature
from .scope_tree import Path as Scope

if TYPE_CHECKING:
    from ...grammar.library.load import Library
    from ..cost.cost_model import CostModel
    from ..saturation.why_not import NearMiss

_ELEMENTS = 8
_LONGEST = 200
"""Characters of an attribute's text."""


def graphs_data(before: Graph, portable: Graph, native: Graph, costs: Mapping[str, CostModel]) -> dict[str, Any]:
    """Return the graphs of a run by name: the `model` as read, the `optimized` one, the `native` one for kernels."""
    paths = scopes(before, before.nodes)
    return {
        "model": graph_data(before, costs["portable"], paths),
        "optimized": graph_data(portable, costs["portable"], paths),
        "native": graph_data(native, costs["native"], paths),
    }


def graph_data(graph: Graph, cost: CostModel, paths: Mapping[str, Scope]) -> dict[str, Any]:
    """Return the nodes, values and groups of a graph; `paths` has the scopes of the model's nodes by name.

    Bodies of If, Loop and Scan are groups with the node that runs them; their nodes follow those of the graph."""
    nodes = list(graph.nodes)
    costs = [*cost.node_costs(graph)]
    types, constants = dict(graph.types), dict(graph.constants)
    top = fold(nodes, paths)
    _add_bodies(top, nodes, types, constants, paths)
    groups: list[dict[str, Any]] = []
    of_node = [0] * len(nodes)
    _number(top, -1, nodes, groups, of_node)
    used = dict.fromkeys((*graph.inputs, *graph.outputs, *(v for n in nodes for v in (*n.inputs, *n.outputs) if v)))
    return {
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "nodes": [
            {
                "name": node.name,
                "operator": node.op,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "attributes": {key: attribute_text(value) for key, value in node.attrs.items()},
                "rules": list(node.rules),
                "origins": list(node.origins),
                "cost": price,
                "group": at,
            }
            for node, price, at in itertools.zip_longest(nodes, costs, of_node)
        ],
        "groups": groups,
        "types": {value: type_text(types.get(value)) for value in used},
        "constants": {value: constants[value].nbytes for value in used if value in constants},
    }


def _add_bodies(
    at: Group,
    nodes: list[Node],
    types: dict[str, ValueType],
    constants: dict[str, Constant],
    paths: Mapping[str, Scope],
) -> None:
    """Append the nodes of all bodies to `nodes`, and put them into groups with the node that runs them."""
    for place, child in enumerate(at.children):
        if isinstance(child, Group):
            _add_bodies(child, nodes, types, constants, paths)
            continue
        node = nodes[child]
        inside: list[int | Group] = []
        for name, body in node.subgraphs():
            first = len(nodes)
            nodes += body.nodes
            types |= {key: value for key, value in body.types.items() if key not in types}
            constants |= body.constants
            group = _shifted(fold(body.nodes, paths), first)
            group.name = name
            _add_bodies(group, nodes, types, constants, paths)
            inside.append(group)
        if inside:
            at.children[place] = Group(f"{node.op} {node.name}", [child, *inside])


def _shifted(group: Group, by: int) -> Group:
    return Group(group.name, [_shifted(c, by) if isinstance(c, Group) else c + by for c in group.children])


def _number(group: Group, parent: int, nodes: Sequence[Node], groups: list[dict[str, Any]], of_node: list[int]) -> None:
    """List the groups, outer ones first, and note the group of each node; equal groups share the number `kind`."""
    number = len(groups)
    ops = [node.op for node in nodes]
    groups.append({"name": group.name, "parent": parent, "kind": signature(group, ops)})
    for child in group.children:
        if isinstance(child, Group):
            _number(child, number, nodes, groups, of_node)
        else:
            of_node[child] = number
    if parent < 0:
        kinds = {kind: n for n, kind in enumerate(dict.fromkeys(found["kind"] for found in groups))}
        for found in groups:
            found["kind"] = kinds[found["kind"]]


def type_text(kind: ValueType | None) -> str:
    """Return the type of a value for people, such as `f32[1, 3, 224, 224]`; `?` if nothing is known."""
    return "?" if kind is None else "not a tensor" if isinstance(kind, OtherType) else str(kind)


def attribute_text(value: AttrValue) -> str:
    """Return an attribute for people: the first elements of a tensor, the size of a graph."""
    if isinstance(value, Graph):
        return f"graph of {len(value.nodes)} nodes"
    if isinstance(value, Constant):
        first = ", ".join(map(str, value.array.ravel()[:_ELEMENTS].tolist()))
        return f"{value.type} {first}{', …' if value.array.size > _ELEMENTS else ''}"[:_LONGEST]
    if isinstance(value, OtherType):
        return "a type"
    if isinstance(value, float):
        return f"{value:.7g}"
    text = f"[{', '.join(map(attribute_text, value))}]" if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def rule_sources(library: Library, wanted: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the source, the class and the file of some rules, by name; implied rules have that of their operator."""
    from ...grammar.syntax.ast import Op, Rule
    from ...grammar.syntax.parse import read

    found = {}
    items: Sequence[Rule | Op] = (*library.rules, *library.ops)
    for item in items:
        names = (item.name,) if isinstance(item, Rule) else (f"recognize_{item.name}", f"define_{item.name}")
        for name in filter(wanted.__contains__, names):
            lines = read(item.span.file).split("\n")[item.span.line - 1 : item.span.end_line]
            numerics = getattr(item, "numerics", "exact")
            found[name] = {"class": numerics, "file": Path(item.span.file).name, "text": "\n".join(lines)}
    return found


def near_miss_data(near_misses: Mapping[str, NearMiss]) -> dict[str, dict[str, Any]]:
    """Return where rules came closest to changing something, by the rule's name."""
    return {
        name: {
            "node": miss.node,
            "others": len(miss.others),
            "matched": miss.matched,
            "parts": miss.total,
            "reason": miss.reason,
            "line": miss.span.line,
        }
        for name, miss in near_misses.items()
    }
