"""Bodies that rules make of bodies: what is the same in every run taken out, values left out that need not be carried.

What a new body reads from around it besides what the old one did has a name that begins with `$`, which no model has in
an e-graph; decoding gives it the name of what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .bodies import substitute, unmarked
from .constants import summarise
from .egraph import LOCAL
from .graph import Constant, Graph, Node
from .inlining import MAX_NODES, place
from .operators import is_pure
from .scope import Scope
from .values import BodyRef, TensorRef, Unprovable, Value

_FIRST_INPUT, _FIRST_OUTPUT = 2, 1
"""Where in a Loop's body what it carries begins: after the number of the run and the condition."""


def hoisted(scope: Scope, body: BodyRef) -> BodyRef:
    """A body whose nodes that only read constants and what is around it are made where the rule stands.

    `Unprovable` if there is none: nodes over constants alone are no reason, they are evaluated where they are."""
    graph = body.graph
    if body.op not in ("Loop", "Scan"):
        raise Unprovable("only the body of a Loop or Scan is run more than once")
    if len(graph.nodes) > MAX_NODES:
        raise Unprovable("the body is too large")
    constants = {name: c for name, c in graph.constants.items() if summarise(c).elements is not None}
    varying = {*graph.inputs, *(graph.constants.keys() - constants.keys())}
    fixed = set(constants)
    moved: list[Node] = []
    for node in graph.nodes:
        reads = set(_reads(node))
        outputs = [name for name in node.outputs if name]
        if reads & varying or not is_pure(node.op, node.attrs):
            varying.update(outputs)
            continue
        moved.append(node)
        if reads <= fixed:
            fixed.update(outputs)
    if all(name in fixed for node in moved for name in node.outputs if name):
        raise Unprovable("each node of the body depends on the run")
    gone = {id(node) for node in moved}
    left = [node for node in graph.nodes if id(node) not in gone]
    made = {name for node in moved for name in node.outputs if name}
    used = {name for node in left for name in _reads(node)} | set(graph.outputs)
    inner = {name for node in moved for name in _reads(node)}
    at = {"": 0, **{name: tensor.handle for name, tensor in body.captures.items()}}
    place(scope, {name: c for name, c in constants.items() if name in inner}, moved, at)
    names = {name: _around(name) for name in sorted(made & used)}
    constants = {name: c for name, c in graph.constants.items() if name in used}
    around = {new: TensorRef(at[old]) for old, new in names.items()}
    return _made(scope, body, replace(graph, nodes=left, constants=constants), names, around)


def products(scope: Scope, body: BodyRef, count: int, values: Sequence[Value]) -> list[Value]:
    """The operands of a Scan, of which it scans the last `count`, with all products of pieces with matrices from around
    the body made at once: those that `multiplied` still reads, then the products.

    `Unprovable` if there are none."""
    found, kept = _products(scope, body, count, values)
    made = [scope.node("MatMul", {}, [values[at], body.captures[node.inputs[1]]]) for node, at in found]
    return [*(values[at] for at in kept), *made]


def multiplied(scope: Scope, body: BodyRef, count: int, values: Sequence[Value]) -> BodyRef:
    """A Scan's body that scans `products` in place of what they are made of."""
    graph = body.graph
    found, kept = _products(scope, body, count, values)
    gone = {id(node) for node, _ in found}
    inputs = (*(graph.inputs[at] for at in kept), *(node.outputs[0] for node, _ in found))
    nodes = [node for node in graph.nodes if id(node) not in gone]
    return _made(scope, body, replace(graph, inputs=inputs, nodes=nodes), {}, {})


def _products(
    scope: Scope, body: BodyRef, count: int, values: Sequence[Value]
) -> tuple[list[tuple[Node, int]], list[int]]:
    """The products of pieces with matrices from around a Scan's body, each with the place of its pieces; and the places
    of the operands that are read without them."""
    graph = body.graph
    if body.op != "Scan" or len(values) != len(graph.inputs) or not 0 < count <= len(values):
        raise Unprovable("this is the body of no Scan")
    places = {name: at for at, name in enumerate(graph.inputs) if at >= len(values) - count}
    found = []
    for node in graph.nodes:
        if node.op != "MatMul" or node.outputs[0] in graph.outputs:
            continue
        piece, matrix = node.inputs
        if piece not in places or matrix not in body.captures:
            continue
        whole, weights = scope.type(values[places[piece]]).shape, scope.type(body.captures[matrix]).shape
        if whole is not None and weights is not None and len(whole) >= 2 and len(weights) == 2:
            found.append((node, places[piece]))
    if not found:
        raise Unprovable("no piece is multiplied by a matrix")
    gone = {id(node) for node, _ in found}
    read = {name for node in graph.nodes if id(node) not in gone for name in _reads(node)} | set(graph.outputs)
    return found, [at for at, name in enumerate(graph.inputs) if name not in places or name in read]


def unchanged(body: BodyRef) -> list[int]:
    """The places of the values that each run of a Loop's body passes on as they came."""
    graph, count = _loop(body)
    copied = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.op == "Identity"}

    def source(name: str) -> str:
        while name in copied:
            name = copied[name]
        return name

    return [i for i in range(count) if source(graph.outputs[_FIRST_OUTPUT + i]) == graph.inputs[_FIRST_INPUT + i]]


def captured(scope: Scope, body: BodyRef, places: Sequence[int], values: Sequence[Value]) -> BodyRef:
    """A Loop's body that reads the carried values at these places, which no run changes, from around it instead."""
    graph, count = _loop(body)
    if len(values) != count or not set(places) <= set(unchanged(body)):
        raise Unprovable("a run may change these values")
    names, around = {}, {}
    for place_ in sorted(set(places)):
        value, name = values[place_], graph.inputs[_FIRST_INPUT + place_]
        if not isinstance(value, TensorRef):
            raise Unprovable("what is carried is no tensor")
        names[name] = _around(name)
        around[names[name]] = value
    return _made(scope, body, _dropped(graph, places, count), names, around)


def unread(body: BodyRef) -> list[int]:
    """The places of a Loop's outputs that nothing reads and that nothing that is read is computed from."""
    graph, count = _loop(body)
    places = range(len(graph.outputs) - _FIRST_OUTPUT)
    wanted = {place_ for place_ in places if place_ in body.read}
    while True:
        needed = _needed(graph, [graph.outputs[0], *(graph.outputs[_FIRST_OUTPUT + p] for p in sorted(wanted))])
        more = {p for p in range(count) if graph.inputs[_FIRST_INPUT + p] in needed} - wanted
        if not more:
            return [p for p in places if p not in wanted]
        wanted |= more


def without(scope: Scope, body: BodyRef, places: Sequence[int]) -> BodyRef:
    """A Loop's body without the outputs at these places and the values carried for them, which the others do not
    need."""
    graph, count = _loop(body)
    outputs = len(graph.outputs) - _FIRST_OUTPUT
    if not places or not all(0 <= p < outputs for p in places) or len(set(places)) == outputs:
        raise Unprovable("these outputs cannot be left out")
    found = _dropped(graph, places, count)
    needed = _needed(found, found.outputs)
    if any(graph.inputs[_FIRST_INPUT + p] in needed for p in places if p < count):
        raise Unprovable("another output is computed from these values")
    return _made(scope, body, found, {}, {})


def twins(scope: Scope, body: BodyRef, values: Sequence[Value]) -> list[int]:
    """For each carried value of a Loop the place of the first one that is equal to it before and after every run.

    They are told apart until no run tells more of them apart, each node being numbered by what it computes."""
    graph, count = _loop(body)
    if len(values) != count or not all(isinstance(v, TensorRef) for v in values):
        raise Unprovable("what is carried is not known")
    classes: list[Any] = [scope.egraph.find(v.handle) for v in values]
    while True:
        firsts = [classes.index(c) for c in classes]
        numbers = _numbered(graph, firsts)
        after = [(firsts[i], numbers[graph.outputs[_FIRST_OUTPUT + i]]) for i in range(count)]
        if [after.index(c) for c in after] == firsts:
            return firsts
        classes = list(after)


def merged(scope: Scope, body: BodyRef, values: Sequence[Value]) -> BodyRef:
    """A Loop's body that carries one value for all those that are always equal."""
    graph, count = _loop(body)
    firsts = twins(scope, body, values)
    places = [i for i, first in enumerate(firsts) if first != i]
    if not places:
        raise Unprovable("no two carried values are always equal")
    names = {graph.inputs[_FIRST_INPUT + i]: graph.inputs[_FIRST_INPUT + firsts[i]] for i in places}
    return _made(scope, body, _dropped(graph, places, count), names, {})


def _loop(body: BodyRef) -> tuple[Graph, int]:
    """The body of a Loop, and how many values it carries."""
    count = len(body.graph.inputs) - _FIRST_INPUT
    if body.op != "Loop" or count < 0 or len(body.graph.outputs) < _FIRST_OUTPUT + count:
        raise Unprovable("this is the body of no Loop")
    return body.graph, count


def _around(name: str) -> str:
    return name if name.startswith(LOCAL) else f"{LOCAL}{name}"


def _reads(node: Node) -> Iterable[str]:
    yield from (name for name in node.inputs if name)
    for _, inner in node.subgraphs():
        yield from inner.captures()


def _dropped(graph: Graph, places: Iterable[int], count: int) -> Graph:
    """A Loop's body without these outputs and what is carried for them."""
    gone = set(places)
    inputs = tuple(v for i, v in enumerate(graph.inputs, -_FIRST_INPUT) if i not in gone or not 0 <= i < count)
    outputs = tuple(v for i, v in enumerate(graph.outputs, -_FIRST_OUTPUT) if i not in gone)
    return replace(graph, inputs=inputs, outputs=outputs)


def _needed(graph: Graph, outputs: Iterable[str]) -> set[str]:
    """The values that some values of a body are computed from, themselves included."""
    found = set(outputs)
    for node in reversed(graph.nodes):
        if found.intersection(name for name in node.outputs if name):
            found.update(_reads(node))
    return found


def _numbered(graph: Graph, firsts: Sequence[int]) -> dict[str, Any]:
    """A key for each value of a body: equal ones are equal, if those carried are that have the same first one."""
    numbers: dict[Any, int] = {}
    known: dict[str, Any] = {"": None}

    def number(key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    for i, name in enumerate(graph.inputs):
        carried = i - _FIRST_INPUT
        known[name] = number(("input", firsts[carried] if carried >= 0 else carried))
    for name, constant in graph.constants.items():
        known[name] = number(("constant", constant.digest))
    for name in graph.captures():
        known[name] = number(("around", name))
    for i, node in enumerate(graph.nodes):
        if node.op == "Identity":
            known[node.outputs[0]] = known[node.inputs[0]]
            continue
        same = is_pure(node.op, node.attrs) and not any(True for _ in node.subgraphs())
        key = (node.op, _attributes(node), tuple(known[v] for v in node.inputs)) if same else ("node", i)
        for place_, name in enumerate(node.outputs):
            known[name] = number((key, len(node.outputs), place_))
    return known


def _attributes(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple((name, _text(value)) for name, value in sorted(node.attrs.items()))


def _text(value: object) -> str:
    return value.digest if isinstance(value, Constant) else repr(value)


def _made(
    scope: Scope, body: BodyRef, graph: Graph, names: Mapping[str, str], around: Mapping[str, TensorRef]
) -> BodyRef:
    """A new body in which values are read by new names, without nodes that nobody needs; like ones are one."""
    found = unmarked(substitute(graph, names))
    needed = _needed(found, found.outputs)
    nodes = [node for node in found.nodes if needed.intersection(name for name in node.outputs if name)]
    constants = {name: constant for name, constant in found.constants.items() if name in needed}
    found = replace(found, nodes=nodes, constants=constants)
    types = {name: scope.type(tensor) for name, tensor in around.items()}
    captures = {**body.captures, **around}
    found = replace(found, types={**found.types, **types})
    key = repr((found.inputs, found.outputs, found.nodes, sorted((n, c.digest) for n, c in found.constants.items())))
    found = scope.bodies.setdefault(key, found)
    return BodyRef(found, {name: captures[name] for name in found.captures()}, body.op)
