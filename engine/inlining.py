"""Bodies of If, Loop and Scan as rules see them: put in where their node stands, repeated, or looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .constants import summarise
from .egraph import ABSENT, CAPTURES
from .graph import AttrValue, Constant, Graph, Node
from .operators import is_pure, signature
from .scope import Scope
from .shapes import IllTyped
from .values import BodyRef, TensorRef, Unprovable, Value

MAX_NODES = 400
"""How many nodes one application of a rule may make of bodies."""


def inline(scope: Scope, body: BodyRef, inputs: Sequence[Value]) -> list[TensorRef]:
    """The outputs of a body with these inputs, its nodes being made where the rule stands."""
    graph, egraph = body.graph, scope.egraph
    if len(inputs) != len(graph.inputs):
        raise Unprovable(f"the body has {len(graph.inputs)} inputs, here {len(inputs)}")
    if len(graph.nodes) > MAX_NODES:
        raise Unprovable("the body is too large")
    at = {"": ABSENT, **{name: tensor.handle for name, tensor in body.captures.items()}}
    for name, value in zip(graph.inputs, inputs, strict=True):
        at[name] = value.handle if isinstance(value, TensorRef) else scope.constant(value, graph.type(name).dtype)
    place(scope, graph.constants, graph.nodes, at)
    return [TensorRef(egraph.find(at[name])) for name in graph.outputs]


def place(scope: Scope, constants: Mapping[str, Constant], nodes: Sequence[Node], at: dict[str, int]) -> None:
    """Makes nodes of a body where the rule stands; `at` has the classes of what they read, and gets theirs."""
    egraph = scope.egraph
    for name, constant in constants.items():
        info = summarise(constant)
        if info.elements is None:
            raise Unprovable("the body holds a large constant")
        at[name] = egraph.add_constant(info)
    for node in nodes:
        if not is_pure(node.op, node.attrs):
            raise Unprovable(f"{node.op} in the body may not be moved")
        captured = tuple(dict.fromkeys(c for _, inner in node.subgraphs() for c in inner.captures()))
        attrs = {**node.attrs, CAPTURES: captured} if any(True for _ in node.subgraphs()) else node.attrs
        children = [at[name] for name in node.inputs]
        sig = signature(node.op)
        if sig is not None and sig.max_inputs is not None:
            children += [ABSENT] * (sig.max_inputs - len(children))
        children += [at[name] for name in captured]
        made_by, origins = scope.made_by, scope.origins
        try:
            handle = egraph.add(node.op, attrs, children, max(1, len(node.outputs)), made_by=made_by, origins=origins)
            if len(node.outputs) == 1:
                at[node.outputs[0]] = handle
                continue
            for index, name in enumerate(node.outputs):
                if name:
                    at[name] = egraph.add("Proj", {"index": index}, (handle,), made_by=made_by, origins=origins)
        except IllTyped as error:
            raise Unprovable(f"{node.op} of the body would be invalid here: {error}") from error


def surroundings(attrs: Mapping[str, AttrValue | BodyRef]) -> tuple[dict[str, AttrValue], list[int]]:
    """The attributes of a node whose bodies are values of rules, and the classes of what these read from around it."""
    found: dict[str, AttrValue] = {}
    around: dict[str, TensorRef] = {}
    for attribute, value in attrs.items():
        if not isinstance(value, BodyRef):
            found[attribute] = value
            continue
        found[attribute] = value.graph
        for name in value.graph.captures():
            if around.setdefault(name, value.captures[name]) != value.captures[name]:
                raise Unprovable(f"the bodies read two values as {name}")
    if any(isinstance(value, BodyRef) for value in attrs.values()):
        found[CAPTURES] = tuple(around)
    return found, [tensor.handle for tensor in around.values()]


def output_count(op: str, attrs: Mapping[str, AttrValue]) -> int | None:
    """How many outputs a node with bodies has; None for one without."""
    body = next((value for value in attrs.values() if isinstance(value, Graph)), None)
    return None if body is None else len(body.outputs) - (op == "Loop")


def iterate(scope: Scope, body: BodyRef, count: int, carried: Sequence[Value]) -> list[Value]:
    """The outputs of a Loop with this body after `count` runs: the carried values, then what each run adds, stacked.

    The body must be known to go on each time."""
    if not 0 <= count <= MAX_NODES or count * len(body.graph.nodes) > MAX_NODES:
        raise Unprovable("this is too much to write out")
    stacked: list[list[Value]] = [[] for _ in range(len(body.graph.outputs) - 1 - len(carried))]
    for number in range(count):
        goes_on, *found = inline(scope, body, [number, True, *carried])
        if not bool(scope.contents(goes_on).all()):
            raise Unprovable("the loop may end before")
        carried = found[: len(carried)]
        for values, value in zip(stacked, found[len(carried) :], strict=True):
            values.append(scope.node("Unsqueeze", {}, [value, [0]]))
    if stacked and not count:
        raise Unprovable("what no run adds has no type")
    return [*carried, *(scope.node("Concat", {"axis": 0}, values) for values in stacked)]


_PARTIAL = frozenset(("Div", "Mod", "Pow", "BitShift", "Cast", "CastLike"))
"""Elementwise operators without a result for some integers, by zero for one; and casts of what no integer holds."""


def is_total(body: BodyRef) -> bool:
    """Whether the elementwise operators of a body have a result whatever they are given, so that it may be computed
    where it was not asked for: a division of integers by zero ends the program."""
    graph = body.graph
    for node in graph.nodes:
        if node.op in _PARTIAL:
            dtype = graph.type(node.outputs[0]).dtype
            if dtype is None:
                raise Unprovable("an element type in the body is not known")
            if not dtype.is_float:
                return False
    return True


def is_pointwise(scope: Scope, body: BodyRef) -> bool:
    """Whether a body computes every element of its outputs from the same elements of its inputs, of whatever more dims
    these have in front."""
    graph = body.graph
    made = {*graph.inputs, *(o for node in graph.nodes for o in node.outputs)}
    ranks = {graph.type(name).rank for name in made}
    if None in ranks:
        raise Unprovable("a rank in the body is not known")
    if len(ranks) != 1 or any(scope.kinds.get(node.op) != "elementwise" for node in graph.nodes):
        return False
    (rank,) = ranks
    around = [scope.egraph.type(tensor.handle).rank for tensor in body.captures.values()]
    around += [constant.type.rank for constant in graph.constants.values()]
    if None in around:
        raise Unprovable("the rank of what the body reads is not known")
    return set(graph.outputs) <= made and all(r <= rank for r in around if r is not None and rank is not None)
