"""Bodies of If, Loop and Scan: inlined where their node stands, unrolled, or inspected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...egraph.encode import add_node
from ...ir.constants import summarize
from ...ir.graph import Constant, DType, Graph, Node
from ...ir.names import ABSENT
from ...ir.values import BodyRef, OpRef, TensorRef, Unprovable, Value
from ...operators.inference import IllTyped
from ...operators.schemas import is_pure
from ..build_nodes import as_tensor, build_node
from ..rule_context import RuleContext, known, require
from .function_registry import body_function, function

MAX_NODES = 400
"""Maximum number of nodes that one application of a rule may build from bodies."""


@body_function
def inline(context: RuleContext, body: BodyRef, *inputs: Value) -> list[TensorRef]:
    """Build the nodes of a body where the rule stands, and return its outputs for these inputs."""
    graph, egraph, values = body.graph, context.egraph, _flat(inputs)
    require(len(values) == len(graph.inputs), f"the body has {len(graph.inputs)} inputs; {len(values)} were given")
    require(len(graph.nodes) <= MAX_NODES, "the body is too large")
    at = {"": ABSENT, **{name: tensor.handle for name, tensor in body.captures.items()}}
    for name, value in zip(graph.inputs, values, strict=True):
        at[name] = as_tensor(context, value, graph.type(name).dtype)
    add_body_nodes(context, graph.constants, graph.nodes, at)
    return [TensorRef(egraph.find(at[name])) for name in graph.outputs]


def add_body_nodes(
    context: RuleContext, constants: Mapping[str, Constant], nodes: Sequence[Node], at: dict[str, int]
) -> None:
    """Build nodes of a body where the rule stands; `at` maps values to classes, and receives those of the nodes."""
    egraph = context.egraph
    for name, constant in constants.items():
        info = summarize(constant)
        require(info.elements is not None, "the body holds a large constant")
        at[name] = egraph.add_constant(info)
    for node in nodes:
        require(is_pure(node.op, node.attrs), f"{node.op} in the body is not pure, so it cannot be moved")
        try:
            add_node(egraph, node, at, {*node.outputs} - {""}, origins=context.origins, made_by=context.made_by)
        except IllTyped as error:
            raise Unprovable(f"{node.op} of the body would be invalid here: {error}") from error


@body_function
def iterate(context: RuleContext, body: BodyRef, count: int, *values: Value) -> list[Value]:
    """Unroll a Loop `count` times: the final carried values, then the stacked scan outputs.

    The condition must be known to hold after each iteration."""
    carried = _flat(values)
    few = 0 <= count <= MAX_NODES and count * len(body.graph.nodes) <= MAX_NODES
    require(few, f"unrolling would take more than {MAX_NODES} nodes")
    stacked: list[list[Value]] = [[] for _ in range(len(body.graph.outputs) - 1 - len(carried))]
    for number in range(count):
        goes_on, *found = inline(context, body, number, True, carried)
        require(context.contents(goes_on).all(), "the loop may end earlier")
        carried = [*found[: len(carried)]]
        for outputs, value in zip(stacked, found[len(carried) :], strict=True):
            outputs.append(build_node(context, "Unsqueeze", {}, [value, [0]]))
    require(count > 0 or not stacked, "a scan output of no iterations has no type")
    return [*carried, *(build_node(context, "Concat", {"axis": 0}, outputs) for outputs in stacked)]


@body_function
def node_count(context: RuleContext, body: BodyRef) -> int:
    """Return the number of nodes of a body, those of the bodies in it included."""
    return _node_count(body.graph)


def _node_count(graph: Graph) -> int:
    return sum(1 + sum(_node_count(inner) for _, inner in node.subgraphs()) for node in graph.nodes)


_CASTS = ("Cast", "CastLike")
_PARTIAL = frozenset(("Div", "Mod", "Pow", "BitShift", *_CASTS))
"""Elementwise operators without a result for some integers, such as 0, and casts of floats that no integer holds."""


@function
def total(context: RuleContext, computation: Value, operands: DType | None = None) -> bool:
    """Return whether the elementwise operators of a body, or one on operands of a type, have a result for all operands.

    Only then may they be computed where they were not asked for: an integer division by zero ends the program."""
    if isinstance(computation, OpRef):
        type_ = known(operands, "the element type of its operands is not known")
        return computation.op not in _PARTIAL or type_.is_float != (computation.op in _CASTS)
    if not isinstance(computation, BodyRef):
        raise Unprovable("this is neither a body nor an operator")
    nodes = (node for node in computation.graph.nodes if node.op in _PARTIAL)
    dtypes = (computation.graph.type(node.outputs[0]).dtype for node in nodes)
    return all(known(dtype, "an element type in the body is not known").is_float for dtype in dtypes)


@body_function
def pointwise(context: RuleContext, body: BodyRef) -> bool:
    """Return whether a body computes every element of its outputs from the same elements of its inputs.

    It does so whatever leading dims are added to the inputs."""
    graph = body.graph
    computed = {*graph.inputs, *(o for node in graph.nodes for o in node.outputs)}
    ranks = {graph.type(name).rank for name in computed}
    require(None not in ranks, "a rank in the body is not known")
    if len(ranks) != 1 or any(context.kinds.get(node.op) != "elementwise" for node in graph.nodes):
        return False
    (rank,) = ranks
    captured = [context.egraph.type(tensor.handle).rank for tensor in body.captures.values()]
    captured += [constant.type.rank for constant in graph.constants.values()]
    require(None not in captured, "the rank of a value that the body captures is not known")
    return set(graph.outputs) <= computed and all(r <= rank for r in captured if r is not None and rank is not None)


def _flat(values: Iterable[Value]) -> list[Value]:
    return [item for v in values for item in (v if isinstance(v, list) else [v])]
