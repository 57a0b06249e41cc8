"""Planning: from a graph to the plan of a model, in two stages.

`group` cuts each version of the graph into groups of nodes that become kernels, and items that need none: aliases,
numbers known from shapes, control flow, fallbacks. `lower` turns the groups into steps that call kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...engine.ir import symbolic
from ...engine.ir.graph import Constant, Graph, Node, Requirement, TensorType, ValueType, symbols_of
from ...engine.ir.names import OWN_DOMAIN
from ...engine.ir.symbolic import Dim
from ...engine.operators.inference import countable
from ...engine.operators.schemas import find_schema
from ...engine.operators.size_requirements import distinct, named, needed_nodes
from ...engine.operators.type_inference import FreshSymbols, TypeEnvironment, complete_type
from ...engine.rewriting.definition_expansion import definition_graph
from ..ir.dataflow import extents_of, is_dense, kinds_of, needed, plain_symbols, pruned, writes
from ..ir.kernel import Kernel, Origin
from ..ir.kernel_graph import Control, Fallback, Item, ModelPlan, Shape, Step, Version
from ..ir.lower import Context, Group
from ..ir.schedule import Schedules
from ..ir.target import Target
from ..ir.weight_memory import ReadyMemory
from ..kernels.conv.expanded import expands
from ..kernels.registry import lowerer_of
from ..kernels.selection.selection import is_sized_by_data
from .aliases import views_of
from .concat_in_place import assign_leading_dimensions, concat_in_place
from .denormal_weights import without_denormals
from .group import FusePolicy, Uses, group_nodes, join_groups, split
from .guarded_branches import BranchInliner
from .loop_plan import REPEATED, native_loop
from .repeated_results import without_repeated_results
from .shape_versions import VersionGraph, versions_of

_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_LONG = 64
"""Most elements of a list that reports show."""
_WORD = 1 << 63
"""Bound of what the runtime takes as a number."""
OnKernel = Callable[[Kernel], None]


@dataclass(frozen=True)
class PlanSettings:
    """What a plan depends on besides the graph.

    `threads` is the likely number of threads of a run; kernels must be right with any number. Without `reassociate` no
    algorithm is used that rounds differently from the plain order of operations (Winograd's does). Without `kernels`
    every node that computes is a fallback, so nothing is compiled. `schedules` are those of kernels that were tuned.
    `memory` for weights was provided ahead; without it they are packed in new memory."""

    policy: FusePolicy
    target: Target
    threads: int
    reassociate: bool = True
    kernels: bool = True
    schedules: Schedules | None = None
    memory: ReadyMemory | None = None


@dataclass(frozen=True)
class Grouping:
    """One version of a graph, cut into groups and items that need no kernel, in the order in which they run.

    `symbols` are the extents known before a body runs; `fails` if some operator is not defined on its operands.
    `requirements` are those of the graph's nodes, and of the model that it was made from."""

    context: Context
    parts: tuple[Group | list[Item], ...]
    settings: PlanSettings
    symbols: frozenset[str]
    fails: bool
    requirements: tuple[Requirement, ...]

    def __str__(self) -> str:
        """One line for each part: the nodes of a group, or the kinds of items and the values that they write."""

        def line(part: Group | list[Item]) -> str:
            if isinstance(part, Group):
                return part.label
            return "; ".join(f"{type(item).__name__}: {', '.join(writes(item))}" for item in part)

        return "\n".join(map(line, self.parts))


@dataclass(frozen=True)
class GroupedGraph:
    """A graph with a grouping for each of its shape versions; nearly always there is one version."""

    graph: Graph
    symbols: frozenset[str]
    versions: tuple[tuple[VersionGraph, Grouping], ...]

    def __str__(self) -> str:
        """The groupings, each after the guards of its version."""
        return "\n\n".join("".join(f"if {g}\n" for g in version.guards) + str(one) for version, one in self.versions)


def group(graph: Graph, settings: PlanSettings, symbols: Collection[str] = ()) -> GroupedGraph:
    """Group the nodes of a graph: the main one, or a body whose captured values have become inputs.

    `symbols` are the extents known before a body runs."""
    known = frozenset(symbols)
    graph = without_repeated_results(graph)
    if settings.kernels and settings.reassociate:
        graph = without_denormals(graph)
    versions = versions_of(graph, known.union(*(plain_symbols(graph.types.get(v)) for v in graph.inputs)))
    return GroupedGraph(graph, known, tuple((v, _group_version(_guarded(v), settings, known)) for v in versions))


def _guarded(version: VersionGraph) -> Graph:
    """Return the graph of a version with its guards among the requirements: nodes need not ask for the same again."""
    graph = version.graph
    held = tuple(Requirement(g.left - g.right, f"{g.left} is not {g.right}") for g in version.guards if g.equal)
    return replace(graph, requirements=(*held, *graph.requirements))


def lower(grouped: GroupedGraph, on_kernel: OnKernel | None = None) -> ModelPlan:
    """Turn groups into steps. `on_kernel` is called with each kernel as soon as it is known."""
    plans = [_lower_version(one, on_kernel or (lambda kernel: None)) for _, one in grouped.versions]
    if len(plans) == 1:
        return plans[0]
    graph, versions = grouped.graph, [version for version, _ in grouped.versions]
    asked = {s for v in versions for g in v.guards for d in (g.left, g.right) for s in symbolic.symbols(d)}
    types = {v: graph.types[v] for v in (*graph.inputs, *graph.outputs) if v in graph.types}
    found = _plan(graph, (), {}, types, (asked & grouped.symbols).union(*(plan.symbols for plan in plans)))
    pairs = zip(versions, plans, strict=True)
    return replace(found, versions=tuple(Version(v.guards, plan, v.fails) for v, plan in pairs))


def _plan(
    graph: Graph,
    items: Sequence[Item],
    constants: Mapping[str, Constant],
    types: Mapping[str, ValueType],
    symbols: Collection[str],
    requirements: tuple[Requirement, ...] = (),
) -> ModelPlan:
    interface, asked = (graph.name, graph.inputs, graph.outputs), tuple(sorted(symbols))
    defaults = dict(graph.defaults)
    return pruned(ModelPlan(*interface, tuple(items), constants, types, asked, defaults, requirements=requirements))


# --- group ------------------------------------------------------------------------------------------------------------


def _group_version(graph: Graph, settings: PlanSettings, symbols: frozenset[str]) -> Grouping:
    """Group one version of a graph, after removing dead nodes and completing types."""
    graph = _without_dead(graph)
    contents, fails, requirements = _contents(graph)
    context = Context(
        graph, settings.target, settings.threads, contents, settings.reassociate, settings.schedules, settings.memory
    )  # fmt: skip
    fixed = _without_kernel(graph, context, settings, symbols)
    if not settings.kernels:
        items = tuple(fixed.get(id(node), [Fallback(node)]) for node in graph.nodes)
        return Grouping(context, items, settings, symbols, fails, requirements)
    native = [node for node in graph.nodes if id(node) not in fixed]
    grouped = group_nodes(graph, native, settings.policy)
    grouped = join_groups(grouped, Uses(graph), settings.policy, partial(expands, ctx=context))
    parts = [p if isinstance(p, Group) else fixed[id(p)] for p in grouped]
    return Grouping(context, tuple(parts), settings, symbols, fails, requirements)


def _without_kernel(
    graph: Graph, context: Context, settings: PlanSettings, symbols: Collection[str]
) -> dict[int, list[Item]]:
    """Return the items of each node that needs no kernel, by the node's identity."""
    bound = set(symbols).union(*(plain_symbols(graph.types.get(v)) for v in graph.inputs))
    fixed: dict[int, list[Item]] = {}
    for node in graph.nodes:
        # Constants of any type are left to the lowerers, which pack them.
        types = [graph.types.get(v) for v in (*node.inputs, *node.outputs) if v and v not in graph.constants]
        sized = is_sized_by_data(node, context, bound)  # the kernels find out the extents of the results
        if sized:
            context.measured.update(node.outputs)
        computable = all(is_dense(t) and (sized or symbols_of(t) <= bound) for t in types)
        computable &= not sized or all(symbols_of(graph.types.get(v)) <= bound for v in node.inputs if v)
        items: Sequence[Item] | None = None
        if node.op in _CONTROL:
            control = _control(graph, node, settings, bound)
            loop = native_loop(graph, node, control, context, bound) if node.op in REPEATED else None
            items = loop or [control]
        elif computable:
            items = _as_shape(node, context, bound) or (None if sized else views_of(node, context))
        if items is None and (not computable or any(True for _ in node.subgraphs())):
            items = [Fallback(node)]
        if items is not None:
            fixed[id(node)] = list(items)
        bound.update(*(plain_symbols(graph.types.get(v)) for v in node.outputs if v))
    return fixed


def _as_shape(node: Node, context: Context, bound: set[str]) -> list[Item]:
    """Return a node as numbers known from dims; nothing unless all its outputs are such, of 64 bits with a sign."""
    found = [(value, context.contents(value)) for value in node.outputs if value]
    if any(dims is None or not symbols_of(TensorType(None, dims)) <= bound for _, dims in found):
        return []
    if any(isinstance(dim, int) and not -_WORD <= dim < _WORD for _, dims in found for dim in dims or ()):
        return []
    return [Shape(value, dims, (node.name,)) for value, dims in found if dims is not None]


def _control(graph: Graph, node: Node, settings: PlanSettings, bound: set[str]) -> Control:
    """Return a control-flow operator with its bodies planned."""
    bodies = sorted(node.subgraphs(), key=lambda named: (named[0] != "then_branch", named[0]))
    closed = [_close_body(body, graph) for _, body in bodies]
    plans = tuple(lower(group(body, settings, bound)) for body, _ in closed)
    plain = {key: value for key, value in sorted(node.attrs.items()) if not isinstance(value, Graph)}
    return Control(node.op, node.inputs, node.outputs, plain, plans, tuple(c for _, c in closed), node.name)


def _close_body(body: Graph, around: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Return a body without captures, and the values that became inputs after its own.

    Captured constants become constants of the body instead."""
    captured = body.captures()
    constants = {v: around.constants[v] for v in captured if v in around.constants}
    values = tuple(v for v in captured if v not in constants)
    types = {v: around.types.get(v, TensorType()) for v in captured}
    inputs = (*body.inputs, *values)
    closed = replace(body, inputs=inputs, constants={**body.constants, **constants}, types={**types, **body.types})
    return closed, values


def _without_dead(graph: Graph) -> Graph:
    """Return the graph without nodes whose results are unused."""
    wanted = needed_nodes(graph)
    return replace(graph, nodes=[node for node in graph.nodes if id(node) in wanted], types=dict(graph.types))


def _contents(graph: Graph) -> tuple[dict[str, tuple[Dim, ...]], bool, tuple[Requirement, ...]]:
    """Return the small integer tensors whose elements are known in terms of dims; complete missing types on the way.

    Also returns whether some operator is not defined on its operands, and what sizes have to meet."""
    fresh = FreshSymbols("v", {s for kind in graph.types.values() for s in symbols_of(kind)})
    graph.types.update({name: constant.type for name, constant in graph.constants.items()})
    known = TypeEnvironment(fresh, graph.types, graph.constants)

    def complete(value: str, kind: ValueType) -> ValueType:
        return complete_type(graph.types.get(value, TensorType()), kind, lambda dim, inferred: False)

    fails, required = False, list(graph.requirements)
    for node in graph.nodes:
        found = known.infer(node, requirements=True)
        required += named(node, found.required)
        if found.error is None:
            known.record(node, found, complete)
        fails |= found.error is not None  # the node always fails, but it may be in a branch that is never taken
    contents = ((value, found.whole) for value, found in known.contents.items() if countable(known.type(value).dtype))
    followed = {v: d for v, d in contents if d is not None and not symbols_of(TensorType(None, d)) & fresh.made}
    return followed, fails, distinct(r for r in required if not symbolic.symbols(r.excess) & fresh.made)


# --- lower ------------------------------------------------------------------------------------------------------------


def _lower_version(grouping: Grouping, on_kernel: OnKernel) -> ModelPlan:
    """Return the plan of one version; operators that no kernel takes are replaced by their definitions."""
    while True:
        plan = _lower_parts(grouping, on_kernel)
        graph = _by_definition(grouping.context.graph, plan, grouping.settings.policy)
        if graph is None:
            return replace(plan, fails=True) if grouping.fails else plan
        grouping = _group_version(graph, grouping.settings, grouping.symbols)


def _lower_parts(grouping: Grouping, on_kernel: OnKernel) -> ModelPlan:
    context, policy = grouping.context, grouping.settings.policy
    graph = context.graph
    uses = Uses(graph)
    items: list[Item] = []
    for part in grouping.parts:
        found = _lower_group(uses, part, context, policy) if isinstance(part, Group) else part
        items += found
        context.made.update(v for item in found for v in writes(item))
        for step in (item for item in found if isinstance(item, Step)):
            if not (step.leading_dimensions and context.columns & {*step.inputs, *step.outputs}):
                on_kernel(step.kernel)  # those of others may still change
    types: dict[str, ValueType] = {**graph.types, **context.added_types}
    constants = {**graph.constants, **context.added_constants}
    inliner = BranchInliner(types, constants, grouping.requirements)
    items = [inlined for item in items for inlined in inliner.inline(item)]
    items = assign_leading_dimensions(needed(items, graph.outputs, types), graph.outputs, types)
    items = concat_in_place(items, graph.outputs, types)
    symbols = {s for item in items for d in extents_of(item, types) for s in symbolic.symbols(d)}
    requirements = distinct((*grouping.requirements, *inliner.requirements))
    symbols |= {s for r in requirements for s in symbolic.symbols(r.excess)}
    return _plan(graph, items, constants, types, symbols & grouping.symbols, requirements)


def _lower_group(uses: Uses, group: Group, context: Context, policy: FusePolicy) -> list[Item]:
    """Return a group as steps. It is split if no kernel takes it whole; a node that no kernel takes falls back."""
    found = _native(group, context)
    if found is not None:
        return found
    if len(group.nodes) == 1:
        return [Fallback(group.nodes[0])]
    *splits, single = split(uses, group, policy)
    for parts in splits:
        lowered = [_native(part, context) for part in parts]
        pairs = list(zip(parts, lowered, strict=True))
        if lowered[0] is not None and all(p is not None or len(g.nodes) > 1 for g, p in pairs):
            nested = (_lower_group(uses, g, context, policy) if p is None else p for g, p in pairs)
            return list(itertools.chain(*nested))
    return [item for part in single for item in _lower_group(uses, part, context, policy)]


def _native(group: Group, context: Context) -> list[Item] | None:
    """Return the steps of the lowerer for this group, or None if it declines."""
    lowerer = lowerer_of(group.op)
    found = None if lowerer is None else lowerer(group, context)
    if found is None:
        return None
    names = tuple(n.name or n.outputs[0] for n in group.nodes)
    own = tuple(_origin(node, context) for node in group.nodes)
    steps = (replace(i, nodes=i.nodes or names, origins=i.origins or own) if isinstance(i, Step) else i for i in found)
    return list(steps)


def _origin(node: Node, context: Context) -> Origin:
    """Return a node for reports: without tensors, bodies and long lists among its attributes."""
    inputs, outputs = (kinds_of(values, context.graph.types) for values in (node.inputs, node.outputs))
    attrs = {key: value for key, value in node.attrs.items() if _is_plain(value)}
    return Origin(node.op, node.name or node.outputs[0], attrs, inputs, outputs)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return len(value) <= _LONG and all(map(_is_plain, value))
    return isinstance(value, str | int | float)


def _by_definition(graph: Graph, plan: ModelPlan, policy: FusePolicy) -> Graph | None:
    """Return the graph with the definitions of operators that fell back; None if none of these has a definition."""
    lost = {id(item.node) for item in plan.items if isinstance(item, Fallback)}
    result = replace(graph, nodes=[], constants=dict(graph.constants), types=dict(graph.types))
    replaced = False
    for node in graph.nodes:
        own = "." in node.op or find_schema(node.op) is None  # else ONNX's own, of the same name
        known = own and node.op.removeprefix(f"{OWN_DOMAIN}.") in policy.defined
        meant = definition_graph(graph, node, policy.defined) if known and id(node) in lost else None
        result.nodes += [node] if meant is None else meant.nodes
        if meant is not None:
            replaced = True
            result.constants.update(meant.constants)
            result.types.update(meant.types)
    return result if replaced else None
