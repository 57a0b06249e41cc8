"""From a graph to the plan of a model: what becomes kernels, views, numbers known from shapes, or falls back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..engine import shapes, symbolic
from ..engine.expansion import meaning
from ..engine.graph import Constant, DType, Graph, Node, TensorType, ValueType
from ..engine.operators import OWN_DOMAIN, find_schema
from ..engine.shapes.core import IllTyped
from ..engine.symbolic import Dim
from .branches import substitute
from .carried import REPEATED
from .conditional import Conditionals
from .group import FusePolicy, Uses, group_nodes, split
from .joining import joined
from .kernel_graph import (
    Control,
    Fallback,
    Group,
    Item,
    Kernel,
    ModelPlan,
    Origin,
    Shape,
    Step,
    Target,
    Version,
    extents_of,
    is_host,
    reads,
    writes,
)
from .lengths import range_lengths
from .loop_plan import driven
from .lower import Context, lowerer_of
from .pitch import settled
from .versions import versions_of
from .views import views_of

_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def plan_graph(
    graph: Graph,
    policy: FusePolicy,
    target: Target,
    threads: int,
    symbols: Collection[str] = (),
    *,
    reassociate: bool = True,
    announce: Callable[[Kernel], None] | None = None,
) -> ModelPlan:
    """Plans a graph: the main one, or a body whose captured values have been made inputs.

    `symbols` are the extents that are known around a body; without `reassociate` no algorithm is used that rounds
    otherwise than the plain order of operations. `announce` is called with kernels of the main graph as soon as they
    are known, when other constants have not been packed yet."""

    def plan(one: Graph) -> ModelPlan:
        while True:
            one = _without_dead(one)
            contents, fails = _contents(one)
            if lengths := range_lengths(one, contents):
                one = substitute(one, lengths)
                contents, fails = _contents(one)
            context = Context(one, target, threads, contents, reassociate)
            found = _plan(context, policy, symbols, announce or (lambda kernel: None))
            plainer = _by_definition(one, found, policy)
            if plainer is None:
                return replace(found, fails=True) if fails else found
            one = plainer

    bound = {*symbols, *(s for value in graph.inputs for s in _plain_symbols(graph.types.get(value)))}
    versions = versions_of(graph, bound)
    if len(versions) == 1:
        return plan(versions[0].graph)
    plans = tuple(Version(v.guards, plan(v.graph), v.fails) for v in versions)
    asked = {s for v in versions for g in v.guards for d in (g.left, g.right) for s in symbolic.symbols(d)}
    return ModelPlan(
        name=graph.name,
        inputs=graph.inputs,
        outputs=graph.outputs,
        items=(),
        constants={},
        types={v: graph.types[v] for v in (*graph.inputs, *graph.outputs) if v in graph.types},
        defaults=dict(graph.defaults),
        symbols=tuple(sorted((asked & set(symbols)) | {s for version in plans for s in version.plan.symbols})),
        versions=plans,
    )


def _plan(
    context: Context, policy: FusePolicy, symbols: Collection[str], announce: Callable[[Kernel], None]
) -> ModelPlan:
    """The plan of one version of a graph."""
    graph = context.graph
    fixed, native = _classify(graph, context, policy, symbols)
    items: list[Item] = []
    uses = Uses(graph)
    for part in group_nodes(graph, native, policy):
        found = _lower(uses, part, context, policy) if isinstance(part, Group) else fixed[id(part)]
        items += found
        context.made.update(v for item in found for v in writes(item))
        if isinstance(part, Group):
            for item in found:
                if isinstance(item, Step) and not (item.pitches and context.columns & {*item.inputs, *item.outputs}):
                    announce(item.kernel)  # else it may be told of other distances of rows yet
    types: dict[str, ValueType] = {**graph.types, **context.added_types}
    constants = {**graph.constants, **context.added_constants}
    items = _inlined(items, Conditionals(types, constants))
    items = settled(_needed(items, graph.outputs, types), graph.outputs, types)
    items = joined(items, graph.outputs, types)
    used = {v for item in items for v in (*reads(item), *writes(item))} | {*graph.inputs, *graph.outputs}
    return ModelPlan(
        name=graph.name,
        inputs=graph.inputs,
        outputs=graph.outputs,
        items=tuple(items),
        constants={name: constant for name, constant in constants.items() if name in used},
        types={v: t for v, t in types.items() if v in used},
        defaults=dict(graph.defaults),
        symbols=tuple(
            sorted({s for item in items for d in extents_of(item, types) for s in symbolic.symbols(d)} & set(symbols))
        ),
    )


def _inlined(items: Sequence[Item], conditionals: Conditionals) -> list[Item]:
    """The items with guarded steps in place of the `If`s that allow it."""
    found: list[Item] = []
    for item in items:
        steps = conditionals.inline(item) if isinstance(item, Control) and item.op == "If" else None
        found += [item] if steps is None else steps
    return found


def _lower(uses: Uses, group: Group, context: Context, policy: FusePolicy) -> list[Item]:
    """A group as kernels; split when no kernel takes it whole; a node that none takes alone falls back."""
    found = _native(group, context)
    if found is not None:
        return found
    if len(group.nodes) == 1:
        return [Fallback(group.nodes[0])]
    *ways, alone = split(uses, group, policy)
    for way in ways:
        parts = [_native(part, context) for part in way]
        if parts[0] is not None and all(p is not None or len(g.nodes) > 1 for p, g in zip(parts, way, strict=True)):
            return [
                item
                for part, lowered in zip(way, parts, strict=True)
                for item in (lowered if lowered is not None else _lower(uses, part, context, policy))
            ]
    return [item for part in alone for item in _lower(uses, part, context, policy)]


def _native(group: Group, context: Context) -> list[Item] | None:
    lowerer = lowerer_of(group.op)
    found = None if lowerer is None else lowerer(group, context)
    if found is None:
        return None
    names = tuple(n.name or n.outputs[0] for n in group.nodes)
    origins = tuple(_origin(node, context) for node in group.nodes)
    return [
        replace(item, nodes=item.nodes or names, origins=item.origins or origins) if isinstance(item, Step) else item
        for item in found
    ]


def _origin(node: Node, context: Context) -> Origin:
    """A node as reports want it: without tensors and bodies among its attributes."""
    return Origin(
        node.op,
        node.name or node.outputs[0],
        {key: value for key, value in node.attrs.items() if _is_plain(value)},
        tuple(context.graph.types.get(v, TensorType()) if v else None for v in node.inputs),
        tuple(context.graph.types.get(v, TensorType()) if v else None for v in node.outputs),
    )


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(v) for v in value)
    return isinstance(value, str | int | float)


def _classify(
    graph: Graph, context: Context, policy: FusePolicy, symbols: Collection[str]
) -> tuple[dict[int, list[Item]], list[Node]]:
    """Each node that isn't for a kernel as items, by the node's identity; and the nodes that may become kernels."""
    bound: set[str] = set(symbols)
    for value in graph.inputs:
        bound |= _plain_symbols(graph.types.get(value))
    fixed: dict[int, list[Item]] = {}
    native: list[Node] = []
    for node in graph.nodes:
        types = [graph.types.get(v) for v in (*node.inputs, *node.outputs) if v]
        computable = all(_is_dense(t) and _symbols(t) <= bound for t in types)
        if node.op in _CONTROL:
            control = _control(graph, node, policy, context, bound)
            loop = driven(graph, node, control, context, bound) if node.op in REPEATED else None
            fixed[id(node)] = loop or [control]
        elif computable and (shape := _as_shape(node, context, bound)) is not None:
            fixed[id(node)] = shape
        elif computable and (views := views_of(node, context)) is not None:
            fixed[id(node)] = list(views)
        elif computable and not any(True for _ in node.subgraphs()):
            native.append(node)
        else:
            fixed[id(node)] = [Fallback(node)]
        for value in node.outputs:
            if value:
                bound |= _plain_symbols(graph.types.get(value))
    return fixed, native


def _is_dense(kind: ValueType | None) -> bool:
    return (
        isinstance(kind, TensorType)
        and kind.shape is not None
        and kind.dtype is not None
        and kind.dtype is not DType.STRING
        and kind.dtype.bits >= 8
    )


def _symbols(kind: ValueType | None) -> set[str]:
    shape = kind.shape if isinstance(kind, TensorType) else None
    return {s for d in shape or () for s in symbolic.symbols(d)}


def _plain_symbols(kind: ValueType | None) -> set[str]:
    """The symbols that a value of this type tells the number of when it is there."""
    shape = kind.shape if isinstance(kind, TensorType) else None
    return {name for d in shape or () if (name := symbolic.symbol_name(d)) is not None}


def _as_shape(node: Node, context: Context, bound: set[str]) -> list[Item] | None:
    """The node as numbers known from dims, if all its outputs are."""
    items: list[Item] = []
    for value in node.outputs:
        if not value:
            continue
        found = context.contents(value)
        if found is None or not {s for d in found for s in symbolic.symbols(d)} <= bound:
            return None
        items.append(Shape(value, found, (node.name,)))
    return items or None


def _control(graph: Graph, node: Node, policy: FusePolicy, context: Context, bound: set[str]) -> Control:
    bodies, captures = [], []
    plain: dict[str, Any] = {}
    for key, value in sorted(node.attrs.items(), key=lambda kv: (kv[0] != "then_branch", kv[0])):
        if isinstance(value, Graph):
            body, captured = closed(value, graph)
            settings = (policy, context.target, context.threads, bound)
            bodies.append(plan_graph(body, *settings, reassociate=context.reassociate))
            captures.append(captured)
        else:
            plain[key] = value
    return Control(node.op, node.inputs, node.outputs, plain, tuple(bodies), tuple(captures), node.name)


def closed(body: Graph, around: Graph) -> tuple[Graph, tuple[str, ...]]:
    """A body whose captured values are inputs after its own (those that are constants around it: constants of its
    own), and which values these are."""
    captured = body.captures()
    constants = {v: around.constants[v] for v in captured if v in around.constants}
    values = tuple(v for v in captured if v not in constants)
    types = {v: around.types.get(v, TensorType()) for v in captured}
    return (
        replace(
            body,
            inputs=(*body.inputs, *values),
            constants={**body.constants, **constants},
            types={**types, **body.types},
        ),
        values,
    )


def _by_definition(graph: Graph, plan: ModelPlan, policy: FusePolicy) -> Graph | None:
    """The graph with operators that no kernel takes replaced by their definitions; None if there is none to replace."""
    lost = {id(item.node) for item in plan.items if isinstance(item, Fallback)}
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    replaced = False
    for node in graph.nodes:
        known = node.op.removeprefix(f"{OWN_DOMAIN}.") in policy.defined and find_schema(node.op) is None
        meant = meaning(graph, node, policy.defined) if known and id(node) in lost else None
        if meant is None:
            nodes.append(node)
            continue
        replaced = True
        nodes += meant.nodes
        constants |= meant.constants
        types |= meant.types
    return replace(graph, nodes=nodes, constants=constants, types=types) if replaced else None


def _without_dead(graph: Graph) -> Graph:
    """The graph without nodes whose results nobody reads."""
    wanted = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in wanted for v in node.outputs):
            kept.append(node)
            wanted.update(v for v in node.inputs if v)
            wanted.update(v for _, g in node.subgraphs() for v in g.captures())
    return replace(graph, nodes=kept[::-1], types=dict(graph.types))


def _contents(graph: Graph) -> tuple[dict[str, tuple[Dim, ...]], bool]:
    """The small integer tensors whose elements are known in terms of dims, and whether some operator is not defined on
    its operands; completes missing types on the way."""
    fails = False
    taken = {s for kind in graph.types.values() for s in _symbols(kind)}
    fresh_names: set[str] = set()

    def fresh() -> Dim:
        number = len(fresh_names)
        while (name := f"v{number}") in taken:
            number += 1
        taken.add(name)
        fresh_names.add(name)
        return symbolic.symbol(name)

    graph.types.update({name: constant.type for name, constant in graph.constants.items()})
    values: dict[str, Any] = {}
    for node in graph.nodes:
        constants: list[Constant | None] = [graph.constants.get(v) if v else None for v in node.inputs]
        try:
            found = shapes.infer(
                node.op,
                node.attrs,
                [graph.types.get(v) if v else None for v in node.inputs],
                [values.get(v) if v else None for v in node.inputs],
                len(node.outputs),
                constants=constants,
                fresh=fresh,
            )
        except IllTyped:  # it fails whenever it is run: it may stand in a branch that never is
            fails = True
            continue
        for value, kind, content in zip(node.outputs, found.types, found.values, strict=False):
            if not value:
                continue
            known = graph.types.get(value)
            if known is None or (isinstance(known, TensorType) and (known.shape is None or known.dtype is None)):
                graph.types[value] = kind
            if content is not None:
                values[value] = content
    contents = {
        value: content.dims
        for value, content in values.items()
        if not {s for d in content.dims for s in symbolic.symbols(d)} & fresh_names
    }
    return contents, fails


def _needed(items: Sequence[Item], outputs: Sequence[str], types: Mapping[str, ValueType]) -> list[Item]:
    """The items without those whose results nobody reads, and that tell no extent that others need."""
    wanted = set(outputs)
    extents: set[str] = set()
    kept = []
    for item in reversed(items):
        told = {s for v in writes(item) for s in _plain_symbols(types.get(v))} if is_host(item) else set()
        if any(v in wanted for v in writes(item)) or told & extents:
            kept.append(item)
            wanted.update(reads(item))
            extents.update(s for d in extents_of(item, types) for s in symbolic.symbols(d))
    return kept[::-1]
