"""Transforms of Loop and Scan bodies: hoisting invariant nodes, dropping values that need not be carried.

A transformed body reads newly captured values under names that begin with `$`, which no model uses. Decoding replaces
them by the names of the captured values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from ...ir.bodies import originals, substitute, unmarked
from ...ir.constants import summarize
from ...ir.graph import Graph, Node, content_text
from ...ir.names import LOCAL
from ...ir.symbolic import Dim, same
from ...ir.values import BodyRef, TensorRef, Unprovable, Value
from ...operators.schemas import is_pure
from ..build_nodes import build_node
from ..rule_context import RuleContext, require
from .body_inlining import MAX_NODES, add_body_nodes
from .function_registry import body_function

FIRST_INPUT, FIRST_OUTPUT = 2, 1
"""Position of the first carried value in a Loop's body, after the iteration number and the condition."""


# --- hoisting ---


@body_function
def hoisted(context: RuleContext, body: BodyRef) -> BodyRef:
    """Move the nodes of a body that depend only on constants and captured values out of the loop.

    Raises `Unprovable` if there are none; nodes over constants alone do not count and stay, to be folded in place:
    rules of the body have to see their contents."""
    graph = body.graph
    require(body.op in ("Loop", "Scan"), "only the body of a Loop or Scan runs more than once")
    require(len(graph.nodes) <= MAX_NODES, "the body is too large")
    constants = {name: c for name, c in graph.constants.items() if summarize(c).elements is not None}
    varying = {*graph.inputs, *(graph.constants.keys() - constants.keys())}
    constant = set(constants)
    moved: list[Node] = []
    rest: list[Node] = []
    for node in graph.nodes:
        reads, outputs = set(_reads(node)), _outputs(node)
        if reads & varying or not is_pure(node.op, node.attrs):
            varying |= outputs
            rest.append(node)
            continue
        moved.append(node)
        if reads <= constant:
            constant |= outputs
            rest.append(node)
    outside = {name for node in moved for name in _outputs(node)} - constant
    require(outside, "each node of the body depends on the iteration")
    used = {name for node in rest for name in _reads(node)} | set(graph.outputs)
    needed = {name for node in moved for name in _reads(node)}
    at = {"": 0, **{name: tensor.handle for name, tensor in body.captures.items()}}
    add_body_nodes(context, {name: c for name, c in constants.items() if name in needed}, moved, at)
    names = {name: _captured_name(name) for name in sorted(outside & used)}
    captures = {new: TensorRef(at[old]) for old, new in names.items()}
    constants = {name: c for name, c in graph.constants.items() if name in used}
    return transformed(context, body, replace(graph, nodes=rest, constants=constants), names, captures)


@body_function
def products(context: RuleContext, body: BodyRef, count: int, values: Sequence[Value]) -> list[Value]:
    """Return the operands of a Scan with its products by captured matrices computed outside, as one product each.

    The last `count` operands are scanned. First come the operands that `multiplied` still reads, then the products.
    Raises `Unprovable` if there are no such products."""
    found, remaining = _scan_products(context, body, count, values)
    outside = [build_node(context, "MatMul", {}, [values[at], body.captures[node.inputs[1]]]) for node, at in found]
    return [*(values[at] for at in remaining), *outside]


@body_function
def multiplied(context: RuleContext, body: BodyRef, count: int, values: Sequence[Value]) -> BodyRef:
    """Return the body of a Scan that scans `products` in place of their left operands."""
    graph = body.graph
    found, remaining = _scan_products(context, body, count, values)
    inputs = (*(graph.inputs[at] for at in remaining), *(node.outputs[0] for node, _ in found))
    rest = _nodes_except(graph, [node for node, _ in found])
    return transformed(context, body, replace(graph, inputs=inputs, nodes=rest), {}, {})


def _scan_products(
    context: RuleContext, body: BodyRef, count: int, values: Sequence[Value]
) -> tuple[list[tuple[Node, int]], list[int]]:
    """Return the products of scanned slices with captured matrices, each with the position of its slices, and the
    positions of the operands that the rest of the body reads."""
    graph = body.graph
    require(body.op == "Scan" and 0 < count <= len(values) == len(graph.inputs), "this is not the body of a Scan")
    scanned = {name: at for at, name in enumerate(graph.inputs) if at >= len(values) - count}
    found = []
    for node in (n for n in graph.nodes if n.op == "MatMul" and n.outputs[0] not in graph.outputs):
        piece, matrix = node.inputs
        if piece not in scanned or matrix not in body.captures:
            continue
        whole, weights = context.type(values[scanned[piece]]).shape, context.type(body.captures[matrix]).shape
        if _multiplies(whole, weights):
            found.append((node, scanned[piece]))
    require(found, "no scanned slice is multiplied by a captured matrix")
    rest = _nodes_except(graph, [node for node, _ in found])
    read = {name for node in rest for name in _reads(node)} | set(graph.outputs)
    return found, [at for at, name in enumerate(graph.inputs) if name not in scanned or name in read]


def _multiplies(rows: Sequence[Dim] | None, matrix: Sequence[Dim] | None) -> bool:
    """Return whether rows and a matrix are known to have a product: it must not fail where the body does not run."""
    known = rows is not None and matrix is not None and len(rows) >= 2 and len(matrix) == 2
    return known and same(rows[-1], matrix[0])  # type: ignore[index]


@body_function
def gathered(context: RuleContext, body: BodyRef) -> BodyRef:
    """Compute products of gathered rows of a tensor with a matrix, both captured, as rows of one product outside.

    Raises `Unprovable` if a Loop's body has none."""
    graph, _ = loop_body(body)
    makers = {node.outputs[0]: node for node in graph.nodes if node.op == "Gather" and node.attrs.get("axis", 0) == 0}
    captures: dict[str, TensorRef] = {}

    def changed(node: Node) -> Node:
        rows = makers.get(node.inputs[0]) if node.op == "MatMul" and node.inputs[1] in body.captures else None
        if rows is None or rows.inputs[0] not in body.captures:
            return node
        whole, matrix = (body.captures[v] for v in (rows.inputs[0], node.inputs[1]))
        if not _multiplies(context.type(whole).shape, context.type(matrix).shape):
            return node
        name = _captured_name(node.outputs[0])
        captures[name] = build_node(context, "MatMul", {}, [whole, matrix])
        return replace(rows, inputs=(name, rows.inputs[1]), outputs=node.outputs, name=node.name)

    nodes = [changed(node) for node in graph.nodes]
    require(captures, "no gathered rows of a captured tensor are multiplied by a captured matrix")
    return transformed(context, body, replace(graph, nodes=nodes), {}, captures)


# --- carried values of a Loop ---


@body_function
def unchanged(context: RuleContext, body: BodyRef) -> list[int]:
    """Return the positions of the carried values that every iteration passes on unchanged."""
    graph, count = loop_body(body)
    original = originals(graph)
    return [i for i in range(count) if original(graph.outputs[FIRST_OUTPUT + i]) == graph.inputs[FIRST_INPUT + i]]


@body_function
def captured(context: RuleContext, body: BodyRef, positions: Sequence[int], values: Sequence[Value]) -> BodyRef:
    """Return a Loop's body that captures the unchanged carried values at these positions."""
    graph, count = loop_body(body)
    passed_on = len(values) == count and set(positions) <= set(unchanged(context, body))
    require(passed_on, "an iteration may change these values")
    require(all(isinstance(values[p], TensorRef) for p in positions), "a carried value is not a tensor")
    at = {graph.inputs[FIRST_INPUT + p]: values[p] for p in sorted(set(positions))}
    names = {name: _captured_name(name) for name in at}
    captures = {names[name]: value for name, value in at.items()}
    return transformed(context, body, _without_carried(graph, positions, count), names, captures)


@body_function
def unread(context: RuleContext, body: BodyRef) -> list[int]:
    """Return the positions of a Loop's dead outputs: not read, and not needed for an output that is."""
    graph, count = loop_body(body)
    positions = range(len(graph.outputs) - FIRST_OUTPUT)
    live = body.read & {*positions}
    while True:
        needed = _needed(graph, [graph.outputs[0], *(graph.outputs[FIRST_OUTPUT + p] for p in sorted(live))])
        more = {p for p in range(count) if graph.inputs[FIRST_INPUT + p] in needed} - live
        if not more:
            return [p for p in positions if p not in live]
        live |= more


@body_function
def without(context: RuleContext, body: BodyRef, positions: Sequence[int]) -> BodyRef:
    """Return a Loop's body without the outputs at these positions and the values carried for them."""
    graph, count = loop_body(body)
    outputs = len(graph.outputs) - FIRST_OUTPUT
    require(positions and set(positions) < {*range(outputs)}, "these outputs cannot be left out")
    found = _without_carried(graph, positions, count)
    needed = _needed(found, found.outputs)
    left = {graph.inputs[FIRST_INPUT + p] for p in positions if p < count}
    require(left.isdisjoint(needed), "another output is computed from these values")
    return transformed(context, body, found, {}, {})


@body_function
def twins(context: RuleContext, body: BodyRef, values: Sequence[Value]) -> list[int]:
    """For each carried value of a Loop, return the position of the first one equal to it in every iteration.

    Partition refinement: classes of values are split by the value number of their next value, until no
    iteration distinguishes the members of a class."""
    graph, count = loop_body(body)
    require(len(values) == count and all(isinstance(v, TensorRef) for v in values), "the carried values are not known")
    classes: list[Any] = [context.egraph.find(v.handle) for v in values]
    while True:
        firsts = [classes.index(c) for c in classes]
        numbers = _value_numbers(graph, firsts)
        after = [(firsts[i], numbers[graph.outputs[FIRST_OUTPUT + i]]) for i in range(count)]
        if [after.index(c) for c in after] == firsts:
            return firsts
        classes = list(after)


@body_function
def merged(context: RuleContext, body: BodyRef, values: Sequence[Value]) -> BodyRef:
    """Return a Loop's body that carries one value in place of all those that are always equal."""
    graph, count = loop_body(body)
    firsts = twins(context, body, values)
    positions = [i for i, first in enumerate(firsts) if first != i]
    require(positions, "no two carried values are always equal")
    names = {graph.inputs[FIRST_INPUT + i]: graph.inputs[FIRST_INPUT + firsts[i]] for i in positions}
    return transformed(context, body, _without_carried(graph, positions, count), names, {})


def loop_body(body: BodyRef) -> tuple[Graph, int]:
    """Return the body of a Loop and the number of values that it carries."""
    count = len(body.graph.inputs) - FIRST_INPUT
    if body.op != "Loop" or count < 0 or len(body.graph.outputs) < FIRST_OUTPUT + count:
        raise Unprovable("this is not the body of a Loop")
    return body.graph, count


def _without_carried(graph: Graph, positions: Iterable[int], count: int) -> Graph:
    """Return a Loop's body without the outputs at these positions and their carried inputs."""
    dropped = set(positions)
    inputs = tuple(v for i, v in enumerate(graph.inputs, -FIRST_INPUT) if i not in dropped or not 0 <= i < count)
    outputs = tuple(v for i, v in enumerate(graph.outputs, -FIRST_OUTPUT) if i not in dropped)
    return replace(graph, inputs=inputs, outputs=outputs)


# --- bodies in general ---


def _captured_name(name: str) -> str:
    return name if name.startswith(LOCAL) else f"{LOCAL}{name}"


def _nodes_except(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    excluded = {id(node) for node in nodes}
    return [node for node in graph.nodes if id(node) not in excluded]


def _reads(node: Node) -> Iterable[str]:
    yield from (name for name in node.inputs if name)
    for _, inner in node.subgraphs():
        yield from inner.captures()


def _outputs(node: Node) -> set[str]:
    return {name for name in node.outputs if name}


def _needed(graph: Graph, outputs: Iterable[str]) -> set[str]:
    """Return the values that some values of a body are computed from, themselves included."""
    found = set(outputs)
    for node in reversed(graph.nodes):
        if found & _outputs(node):
            found.update(_reads(node))
    return found


def _value_numbers(graph: Graph, firsts: Sequence[int]) -> dict[str, Any]:
    """Number the values of a body so that equal numbers mean equal values.

    Carried values are taken to be equal if they have the same first one in `firsts`."""
    known: dict[str, Any] = {"": None}
    for carried, name in enumerate(graph.inputs, -FIRST_INPUT):
        known[name] = ("input", firsts[carried] if carried >= 0 else carried)
    known |= {name: ("constant", constant.digest) for name, constant in graph.constants.items()}
    known |= {name: ("captured", name) for name in graph.captures()}
    numbers: dict[Any, int] = {}
    for i, node in enumerate(graph.nodes):
        if node.op == "Identity":
            known[node.outputs[0]] = known[node.inputs[0]]
            continue
        pure = is_pure(node.op, node.attrs) and not any(True for _ in node.subgraphs())
        key = (node.op, _attributes(node), tuple(known[v] for v in node.inputs)) if pure else ("node", i)
        for position, name in enumerate(node.outputs):
            known[name] = numbers.setdefault((key, len(node.outputs), position), len(numbers))
    return known


def _attributes(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple((k, content_text(v)) for k, v in sorted(node.attrs.items()))


def transformed(
    context: RuleContext, body: BodyRef, graph: Graph, names: Mapping[str, str], captures: Mapping[str, TensorRef]
) -> BodyRef:
    """Return a body with values renamed and dead nodes removed; equal bodies share one graph."""
    found = unmarked(substitute(graph, names))
    needed = _needed(found, found.outputs)
    nodes = [node for node in found.nodes if needed & _outputs(node)]
    constants = {name: constant for name, constant in found.constants.items() if name in needed}
    types = {**found.types, **{name: context.type(tensor) for name, tensor in captures.items()}}
    found = replace(found, nodes=nodes, constants=constants, types=types)
    contents = [sorted(items.items(), key=itemgetter(0)) for items in (found.constants, found.types)]
    key = content_text((found.inputs, found.outputs, found.nodes, *contents))
    found = context.bodies.setdefault(key, found)
    every = {**body.captures, **captures}
    return BodyRef(found, {name: every[name] for name in found.captures()}, body.op)
