"""Grouping: which nodes become one kernel.

The `fuse` declarations of the rules say which nodes may join, in terms of the kinds that `op` declarations give to
operators. Nodes are merged along edges under three conditions. A group has at most one node that is not elementwise,
its anchor. All values inside and at the end of it have one shape. It is convex: no path leaves a group and returns, so
that groups can run one after the other. Two groups with anchors are joined where one kernel computes both.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import TopologicalSorter

from ...engine.ir.graph import Graph, Node
from ...engine.operators.schemas import graph_name
from ...errors import UserError
from ...grammar.library.load import Library
from ...grammar.syntax import ast
from ..ir.lower import Group

ELEMENTWISE = "elementwise"
OPAQUE = "opaque"
_SCALED = ("QuantizeLinear", "DequantizeLinear")  # elementwise to kernels, but not to rules, because they have an axis
MAX_NODES = 32  # bounds the registers of a kernel and its compile time
MAX_SPAN = 400  # maximum distance of a group's nodes in the graph's order: their values stay in the CPU caches


@dataclass(frozen=True)
class FusePolicy:
    """Kinds of operators, and the pairs (producer, consumer) that may share a kernel, each a kind or an operator.

    `defined` are the operators that have a definition, by their names in rules."""

    kinds: dict[str, str]
    pairs: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    defined: Mapping[str, ast.Op] = field(default_factory=dict)

    def kind(self, op: str) -> str:
        """Return the kind of an operator; opaque if not declared."""
        return self.kinds.get(op.partition("@")[0], OPAQUE)

    def allows(self, producer: Node, consumer: Node) -> bool:
        """Return whether the consumer may join its producer's kernel."""
        sides = ((node.op, self.kind(node.op)) for node in (producer, consumer))
        return not self.pairs.isdisjoint(itertools.product(*sides))


@lru_cache(maxsize=1)
def standard_policy() -> FusePolicy:
    """Return the policy of the standard rules."""
    from ...engine.rewriting.rule_library import load_rules

    return policy(load_rules())


def policy(library: Library) -> FusePolicy:
    """Return the policy that a rule library declares.

    A `fuse` pattern is a consumer over a producer, each an operator or a class head: `elementwise f(complex g(..))`.
    Raises UserError for any other pattern."""
    kinds = {name: op.kind for op in library.ops if op.kind for name in (op.name, graph_name(op.name))}
    pairs = set()
    for fuse in library.fuses:
        consumer = fuse.lhs
        producers = [arg for arg in getattr(consumer, "args", ()) if isinstance(arg, ast.Call)]
        if not isinstance(consumer, ast.Call) or len(producers) != 1 or fuse.where or fuse.given:
            raise UserError(
                f"fuse {fuse.name}: not a consumer over one producer",
                where=f"{fuse.span.file}:{fuse.span.line}",
                hint="The form is `fuse NAME elementwise f(complex g(..)) => group(g, f)`.",
            )
        pairs.add((producers[0].kind or producers[0].head, consumer.kind or consumer.head))
    kinds |= dict.fromkeys(_SCALED, ELEMENTWISE)
    return FusePolicy(kinds, frozenset(pairs), {op.name: op for op in library.ops if op.definition is not None})


def group_nodes(graph: Graph, nodes: Sequence[Node], policy: FusePolicy) -> list[Group | Node]:
    """Return the graph in execution order, with `nodes` (those for kernels, in its order) merged into groups.

    The other nodes stand unchanged between the groups."""
    grouper = _Grouper(graph, nodes, policy)
    grouper.merge_all()
    chosen = set(grouper.free)
    uses = Uses(graph)
    return [
        make_group(uses, [graph.nodes[i] for i in members], policy) if members[0] in chosen else graph.nodes[members[0]]
        for members in grouper.ordered()
    ]


def join_groups(
    parts: Sequence[Group | Node], uses: Uses, policy: FusePolicy, joins: Callable[[Group, Group], bool]
) -> list[Group | Node]:
    """Return the parts with groups joined that both have an anchor: a producer, and the only reader of its result.

    The result is the first operand of the reader's anchor. The policy allows the pair, and `joins` says that a kernel
    computes it. The producer becomes the reader's prologue."""
    made = {part.outputs[0]: part for part in parts if isinstance(part, Group) and len(part.outputs) == 1}
    joined: dict[int, Group | None] = {}
    for part in parts:
        if not isinstance(part, Group) or part.anchor is None or part.prologue or not part.anchor.inputs:
            continue
        producer = made.get(part.anchor.inputs[0])
        if producer is None or producer.anchor is None or id(producer) in joined:
            continue
        if not policy.allows(producer.anchor, part.anchor):
            continue
        (value,), inside = producer.outputs, {id(node) for node in part.nodes}
        if not uses.needed_outside(value, inside) and joins(producer, part):
            inputs = dict.fromkeys((*producer.inputs, *(v for v in part.inputs if v != value)))
            joined[id(producer)] = None
            joined[id(part)] = Group((*producer.nodes, *part.nodes), part.anchor, tuple(inputs), part.outputs)
    return [found for part in parts if (found := joined.get(id(part), part)) is not None]


class Uses:
    """Position of each node of a graph and readers of each value, looked up for every group."""

    def __init__(self, graph: Graph) -> None:
        self.position = {id(node): i for i, node in enumerate(graph.nodes)}
        self.readers = {value: {id(node) for node in nodes} for value, nodes in graph.consumers().items()}
        self.outputs = frozenset(graph.outputs)

    def needed_outside(self, value: str, inside: set[int]) -> bool:
        """Return whether a value is an output of the graph or is read by nodes other than these (identities)."""
        return value in self.outputs or not self.readers.get(value, set()) <= inside


def make_group(uses: Uses, nodes: Sequence[Node], policy: FusePolicy) -> Group:
    """Return a group of these nodes (in the graph's order) with its interface."""
    made = {v: k for k, node in enumerate(nodes) for v in node.outputs if v}
    inside = {id(node) for node in nodes}
    inputs = dict.fromkeys(v for node in nodes for v in node.inputs if v and v not in made)
    outputs = tuple(v for v in made if uses.needed_outside(v, inside))
    anchor = next((k for k, node in enumerate(nodes) if policy.kind(node.op) != ELEMENTWISE), None)
    if anchor is None:
        return Group(tuple(nodes), None, tuple(inputs), outputs)
    # The prologue is what the anchor depends on; all else comes after it.
    before = _reached(anchor, lambda k: [made[v] for v in nodes[k].inputs if v in made])
    order = sorted(range(len(nodes)), key=lambda k: (k not in before, k != anchor))
    return Group(tuple(nodes[k] for k in order), nodes[anchor], tuple(inputs), outputs)


def split(uses: Uses, group: Group, policy: FusePolicy) -> list[list[Group]]:
    """Return alternative splits of a group that no kernel takes whole, those with more fusion first.

    The last one has each node alone."""
    before, after = list(group.prologue), list(group.epilogue)
    ways: list[list[list[Node]]] = []
    if group.anchor:
        for count in range(len(after), -1, -1):
            core, rest = [group.anchor, *after[:count]], after[count:]
            if before and rest:
                ways.append([[*before, *core], rest])
            if before or rest:
                ways.append([before, core, rest])
    elif half := len(after) // 2:
        ways.append([after[:half], after[half:]])
    found = [[part for piece in way for part in _components(piece)] for way in ways]
    found.append([[node] for node in group.nodes])
    return [
        [make_group(uses, sorted(part, key=lambda node: uses.position[id(node)]), policy) for part in way]
        for way in found
    ]


def _components(nodes: Sequence[Node]) -> list[list[Node]]:
    """Split nodes into connected components."""
    parts: list[list[Node]] = []
    for node in nodes:
        feeds = [any(v in node.inputs for other in part for v in other.outputs if v) for part in parts]
        rest = [part for part, joins in zip(parts, feeds, strict=True) if not joins]
        parts = [*rest, [*itertools.chain(*itertools.compress(parts, feeds)), node]]
    return parts


def _reached(start: int, following: Callable[[int], Iterable[int]]) -> set[int]:
    """Return what a node or group reaches by `following`, without itself."""
    found, todo = set[int](), [start]
    while todo:
        fresh = set(following(todo.pop())) - found
        found |= fresh
        todo += fresh
    return found


class _Grouper:
    """Merges nodes, known by their number in the graph, along edges.

    `rank` is a topological order of the groups, updated as they merge, so that the search for a cycle is limited to the
    groups between the two: the algorithm of Pearce and Kelly, "A dynamic topological sort algorithm for directed
    acyclic graphs" (2006), with contraction in place of insertion."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], policy: FusePolicy) -> None:
        self.graph, self.policy = graph, policy
        count = len(graph.nodes)
        numbers = {id(node): i for i, node in enumerate(graph.nodes)}
        self.free = [numbers[id(node)] for node in nodes]
        self.leader = list(range(count))
        self.members: dict[int, list[int]] = {i: [i] for i in range(count)}
        self.rank = {i: i for i in range(count)}
        self.outputs = frozenset(graph.outputs)
        maker = {v: i for i, node in enumerate(graph.nodes) for v in node.outputs if v}
        self.sources = [list(dict.fromkeys(maker[v] for v in node.reads() if v in maker)) for node in graph.nodes]
        self.users: list[list[int]] = [[] for _ in graph.nodes]
        for i, sources in enumerate(self.sources):
            for source in sources:
                self.users[source].append(i)

    def merge_all(self) -> None:
        """Visit consumers in order, each with the producers that it may join: anchored ones first, then the latest."""
        free = set(self.free)
        for i in self.free:
            candidates = [s for s in self.sources[i] if s in free]
            candidates.sort(key=lambda s: (self._anchor(s) is None, -s))
            for source in candidates:
                self._merge_if_allowed(source, i)
        self._move_widened()

    def _move_widened(self) -> None:
        """Move a widening node from the end of its group to the group that reads it, if that reads narrow elements."""
        moved = [i for i in self.free if self._moves(i)]
        if not moved:
            return
        self.rank = {self.leader[members[0]]: n for n, members in enumerate(self.ordered())}
        for i in moved:
            self._merge_if_allowed(i, self.users[i][0])
            if len(self.members[self.leader[i]]) == 1:
                self._merge_if_allowed(self.sources[i][0], i)

    def _moves(self, i: int) -> bool:
        """Take a node out of its group if it widens for one reader, which is outside and reads narrow elements."""
        group, users, sources = self.leader[i], self.users[i], self.sources[i]
        anchors = {self._anchor(u) for u in users}
        if len(self.members[group]) < 2 or len(anchors) != 1 or any(self.leader[u] == group for u in users):
            return False
        anchor = anchors.pop()
        if anchor is None or not sources or i == group or set(self.graph.nodes[i].outputs) & self.outputs:
            return False
        if not self._widens([i], anchor) or users[0] in (anchor, *self._before(anchor)):
            return False
        if self.leader[sources[0]] != group:
            return False
        self.members[group].remove(i)
        self.members[i], self.leader[i] = [i], i
        return True

    def _anchor(self, i: int) -> int | None:
        nodes, kind = self.graph.nodes, self.policy.kind
        return next((m for m in self.members[self.leader[i]] if kind(nodes[m].op) != ELEMENTWISE), None)

    def _merge_if_allowed(self, source: int, user: int) -> None:
        a, b = self.leader[source], self.leader[user]
        if a == b or not self.policy.allows(self.graph.nodes[source], self.graph.nodes[user]):
            return
        left, right = self._anchor(source), self._anchor(user)
        if left is not None and right is not None:
            return
        if right is not None and user not in (right, *self._before(right)):
            right = None if self._widens(self.members[a], right) else right
        size = len(self.members[a]) + len(self.members[b])
        if size > MAX_NODES or not self._shapes_agree(a, b, left, right):
            return
        if left not in (None, source) and left not in self._before(source):
            return  # the node that others join does not follow the anchor
        merged = sorted(self.members[a] + self.members[b])
        if self._anchor(user) is not None and not self._only_feeds(a, set(merged)):
            return  # a prologue with other readers would be computed twice or stored
        if merged[-1] - merged[0] > MAX_SPAN:
            return
        after = self._between(a, b)
        if after is None:
            return  # a path connects them through a third group
        self._reorder(a, b, after)
        self.members[a] = merged
        for m in self.members.pop(b):
            self.leader[m] = a

    def _widens(self, members: Sequence[int], anchor: int) -> bool:
        """Return whether this is one node that widens narrow elements, and its consumer's anchor takes narrow ones.

        An epilogue reads such an operand better as it is stored."""
        node, reader = self.graph.nodes[members[0]], self.graph.nodes[anchor]
        narrow, made, taken = (self.graph.type(v).dtype for v in (node.inputs[0], node.outputs[0], reader.inputs[0]))
        if len(members) > 1 or narrow is None or made is None or taken is None:
            return False
        return narrow.bits < made.bits and taken.bits == narrow.bits

    def _shapes_agree(self, a: int, b: int, left: int | None, right: int | None) -> bool:
        """Return whether all values in the merged group have one shape.

        A prologue has that of the anchor's first input."""
        nodes, first, second = self.graph.nodes, self.members[a], self.members[b]
        if left is not None and left != right and len([v for v in nodes[left].outputs if v]) != 1:
            return False
        # The epilogue of the consumer group was checked when it was made; the anchor's result differs in shape.
        checked = [m for m in (*first, *second) if right is None or (m != right and m not in second)]
        shapes = {self.graph.type(v).shape for m in checked for v in nodes[m].outputs if v}
        if None in shapes:
            return False
        if left is not None:
            prologue = {nodes[m].outputs[0] for m in self._before(left)}
            values = (v for m in (*first, *second) for v in nodes[m].outputs if v and v not in prologue)
            shapes = {self.graph.type(v).shape for v in values}
        if right is not None:
            shapes.add(self.graph.type(nodes[right].inputs[0]).shape)
        return len(shapes) == 1 and (right is None or None not in shapes)

    def _before(self, i: int) -> set[int]:
        """Return the members of a node's group from which a path inside it leads to the node."""
        members = set(self.members[self.leader[i]])
        return _reached(i, lambda here: members.intersection(self.sources[here]))

    def _only_feeds(self, group: int, inside: set[int]) -> bool:
        members = self.members[group]
        return all(
            inside.issuperset(self.users[m]) and self.outputs.isdisjoint(self.graph.nodes[m].outputs) for m in members
        )

    def _between(self, a: int, b: int) -> set[int] | None:
        """Return the groups ranked between two that depend on the first; None if the second depends on one of them."""
        end = self.rank[b]

        def users(group: int) -> list[int]:
            return [u for u in self._neighbors(group, self.users) if self.rank[u] < end or (u == b and group != a)]

        found = _reached(a, users)
        return None if b in found else found

    def _reorder(self, a: int, b: int, after: Iterable[int]) -> None:
        """Rank the groups between two that merge into `a`: dependencies of `b`, then `a`, then dependents of `a`."""
        start = self.rank[a]
        before = _reached(
            b, lambda here: [s for s in self._neighbors(here, self.sources) if s != a and self.rank[s] > start]
        )
        order = [*sorted(before, key=self.rank.__getitem__), a, *sorted(after, key=self.rank.__getitem__)]
        places = sorted(self.rank[g] for g in (*order, b))
        del self.rank[b]
        self.rank.update(zip(order, places, strict=False))

    def ordered(self) -> list[list[int]]:
        """Return the groups in dependency order; among ready ones, the first in the graph."""
        sorter = TopologicalSorter({group: self._neighbors(group, self.sources) for group in self.members})
        sorter.prepare()  # raises CycleError if grouping made a cycle
        ready: list[tuple[int, int]] = []
        order = []
        while sorter.is_active():
            for group in sorter.get_ready():
                heapq.heappush(ready, (self.members[group][0], group))
            _, group = heapq.heappop(ready)
            order.append(self.members[group])
            sorter.done(group)
        return order

    def _neighbors(self, group: int, edges: Sequence[Sequence[int]]) -> set[int]:
        """Return the groups that the `sources` or `users` of a group's nodes belong to, without itself."""
        return {self.leader[other] for m in self.members[group] for other in edges[m]} - {group}
