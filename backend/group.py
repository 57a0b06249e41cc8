"""Grouping: which nodes become one kernel.

What may join what is said by the `fuse` declarations of the rules, over the kinds that `op` declarations give to
operators. Nodes are merged along edges as far as that allows, under three conditions: a group has at most one node that
isn't elementwise (its anchor); all values inside and at the end of it have one shape; and it is convex: no path leaves
a group and comes back, so that groups can be run one after the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..engine.graph import Graph, Node
from ..engine.operators import graph_name
from ..engine.symbolic import Dim
from ..errors import UserError
from ..grammar import ast
from ..grammar.library import Library
from .kernel_graph import Group

ELEMENTWISE = "elementwise"
OPAQUE = "opaque"
_SCALED = ("QuantizeLinear", "DequantizeLinear")  # elementwise to kernels, but not to rules, for they have an axis
MAX_NODES = 32  # keeps the registers of a kernel and its compile time in bounds
MAX_SPAN = 400  # groups reach no further than this many nodes in the graph's order: their values stay in the caches


@dataclass(frozen=True)
class FusePolicy:
    """The kinds of operators, and which pairs (producer, consumer) may share a kernel, each a kind or an operator.

    `defined` are the operators that have a definition, by their names in rules."""

    kinds: dict[str, str]
    pairs: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    defined: Mapping[str, ast.Op] = field(default_factory=dict)

    def kind(self, op: str) -> str:
        """The kind of an operator; opaque if not declared."""
        return self.kinds.get(op.partition("@")[0], OPAQUE)

    def allows(self, producer: Node, consumer: Node) -> bool:
        """Whether the consumer may join its producer's kernel."""
        return any(
            (p, c) in self.pairs
            for p in (producer.op, self.kind(producer.op))
            for c in (consumer.op, self.kind(consumer.op))
        )


def policy(library: Library) -> FusePolicy:
    """The policy that a rule library declares.

    A `fuse` pattern is a consumer over a producer, each an operator or a class head: `elementwise f(complex g(..))`.
    Raises UserError for a pattern of another form."""
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
        producer = producers[0]
        pairs.add((producer.kind or producer.head, consumer.kind or consumer.head))
    kinds |= dict.fromkeys(_SCALED, ELEMENTWISE)
    return FusePolicy(kinds, frozenset(pairs), {op.name: op for op in library.ops if op.definition is not None})


def group_nodes(graph: Graph, nodes: Sequence[Node], policy: FusePolicy) -> list[Group | Node]:
    """The graph in an order to run, `nodes` (those that are to become kernels, in its order) merged to groups.

    Its other nodes stand between the groups as they are."""
    grouper = _Grouper(graph, nodes, policy)
    grouper.merge_all()
    chosen = set(grouper.free)
    uses = Uses(graph)
    return [
        make_group(uses, [graph.nodes[i] for i in members], policy) if members[0] in chosen else graph.nodes[members[0]]
        for members in grouper.ordered()
    ]


class Uses:
    """Where each node of a graph stands and who reads each value: looked up for every group that is made."""

    def __init__(self, graph: Graph) -> None:
        self.position = {id(node): i for i, node in enumerate(graph.nodes)}
        self.readers: dict[str, list[int]] = {}
        for node in graph.nodes:
            for value in _reads(node):
                self.readers.setdefault(value, []).append(id(node))
        self.outputs = frozenset(graph.outputs)

    def needed_outside(self, value: str, inside: set[int]) -> bool:
        """Whether a value is read by nodes other than these (given by identity), or is an output of the graph."""
        return value in self.outputs or any(reader not in inside for reader in self.readers.get(value, ()))


def make_group(uses: Uses, nodes: Sequence[Node], policy: FusePolicy) -> Group:
    """A group of these nodes (in the graph's order) with its interface."""
    made = {v for node in nodes for v in node.outputs if v}
    inside = {id(node) for node in nodes}
    outside = {v for v in made if uses.needed_outside(v, inside)}
    return _make_group(nodes, made, outside, policy)


def _make_group(nodes: Sequence[Node], made: set[str], outside: set[str], policy: FusePolicy) -> Group:
    inputs = dict.fromkeys(v for node in nodes for v in node.inputs if v and v not in made)
    outputs = [v for node in nodes for v in node.outputs if v in outside]
    anchors = [node for node in nodes if policy.kind(node.op) != ELEMENTWISE]
    anchor = anchors[0] if anchors else None
    if anchor is not None:  # the prologue is what the anchor needs; everything else comes after it
        needed = _ancestors(anchor, nodes)
        before = [n for n in nodes if id(n) in needed]
        nodes = [*before, anchor, *(n for n in nodes if id(n) not in needed and n is not anchor)]
    return Group(tuple(nodes), anchor, tuple(inputs), tuple(outputs))


def split(uses: Uses, group: Group, policy: FusePolicy) -> list[list[Group]]:
    """Ways to run a group as several, to be tried in turn when no kernel takes it whole: more fused ones first.

    The last way has each node alone."""
    before, after = list(group.prologue), list(group.epilogue)
    anchor = [group.anchor] if group.anchor else []
    ways: list[list[list[Node]]] = []
    if anchor:
        for kept in range(len(after), -1, -1):
            if before and kept < len(after):
                ways.append([[*before, *anchor, *after[:kept]], after[kept:]])
            if before:
                ways.append([before, [*anchor, *after[:kept]], after[kept:]])
            elif kept < len(after):
                ways.append([[*anchor, *after[:kept]], after[kept:]])
    else:
        half = len(after) // 2
        if half:
            ways.append([after[:half], after[half:]])
    found = [[part for piece in way for part in _components(piece)] for way in ways]
    found.append([[node] for node in group.nodes])
    return [
        [make_group(uses, sorted(part, key=lambda node: uses.position[id(node)]), policy) for part in way]
        for way in found
    ]


def _components(nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes, parted where nothing connects them."""
    parts: list[list[Node]] = []
    for node in nodes:
        mine = [node]
        rest = []
        for part in parts:
            if any(v in node.inputs for other in part for v in other.outputs if v):
                mine = [*part, *mine]
            else:
                rest.append(part)
        parts = [*rest, mine]
    return parts


def _reads(node: Node) -> tuple[str, ...]:
    return (*node.inputs, *(c for _, g in node.subgraphs() for c in g.captures()))


def _ancestors(node: Node, nodes: Sequence[Node]) -> set[int]:
    makers = {v: n for n in nodes for v in n.outputs if v}
    found: set[int] = set()
    todo = [node]
    while todo:
        for v in todo.pop().inputs:
            maker = makers.get(v)
            if maker is not None and id(maker) not in found:
                found.add(id(maker))
                todo.append(maker)
    return found


class _Grouper:
    """Merges nodes, known by their number in the graph, along edges.

    `rank` is a topological order of the groups, kept up to date as they merge, so that whether a merge makes a cycle is
    looked for only among the groups between the two: the algorithm of Pearce and Kelly, "A dynamic topological sort
    algorithm for directed acyclic graphs" (2006), with contraction in place of insertion."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], policy: FusePolicy) -> None:
        self.graph = graph
        self.policy = policy
        numbers = {id(node): i for i, node in enumerate(graph.nodes)}
        self.free = [numbers[id(node)] for node in nodes]
        self.leader = list(range(len(graph.nodes)))
        self.members: dict[int, list[int]] = {i: [i] for i in range(len(graph.nodes))}
        maker = {v: i for i, node in enumerate(graph.nodes) for v in node.outputs if v}
        self.sources: list[list[int]] = [
            list(dict.fromkeys(maker[v] for v in _reads(node) if v in maker)) for node in graph.nodes
        ]
        self.rank = {i: i for i in range(len(graph.nodes))}
        self.outputs = frozenset(graph.outputs)
        self.users: list[list[int]] = [[] for _ in graph.nodes]
        for i, sources in enumerate(self.sources):
            for source in sources:
                self.users[source].append(i)

    def merge_all(self) -> None:
        """Consumers in order, each with the producers that it may join: anchored ones first, then the latest."""
        free = set(self.free)
        for i in self.free:
            candidates = [s for s in self.sources[i] if s in free]
            candidates.sort(key=lambda s: (self._anchor(s) is None, -s))
            for source in candidates:
                self._try(source, i)
        self._move_widened()

    def _move_widened(self) -> None:
        """What ends a group by making wider elements goes to the group that reads them, if that reads narrow ones."""
        moved = []
        for i in self.free:
            group, users = self.leader[i], self.users[i]
            anchors = {self._anchor(u) for u in users}
            inside = any(self.leader[u] == group for u in users)
            if (
                len(self.members[group]) < 2
                or inside
                or len(anchors) != 1
                or set(self.graph.nodes[i].outputs) & self.outputs
            ):
                continue
            anchor = next(iter(anchors))
            if anchor is None or not self.sources[i] or i == group or not self._widens([i], anchor):
                continue
            if users[0] in (anchor, *self._before(anchor)) or self.leader[self.sources[i][0]] != group:
                continue
            self.members[group].remove(i)
            self.members[i], self.leader[i] = [i], i
            moved.append(i)
        if not moved:
            return
        self.rank = {self.leader[members[0]]: n for n, members in enumerate(self.ordered())}
        for i in moved:
            self._try(i, self.users[i][0])
            if len(self.members[self.leader[i]]) == 1:
                self._try(self.sources[i][0], i)

    def _anchor(self, i: int) -> int | None:
        for m in self.members[self.leader[i]]:
            if self.policy.kind(self.graph.nodes[m].op) != ELEMENTWISE:
                return m
        return None

    def _try(self, source: int, user: int) -> None:
        a, b = self.leader[source], self.leader[user]
        if a == b or not self.policy.allows(self.graph.nodes[source], self.graph.nodes[user]):
            return
        left, right = self._anchor(source), self._anchor(user)
        if left is not None and right is not None:
            return
        if right is not None and user not in (right, *self._before(right)):
            right = None if self._widens(self.members[a], right) else right
        size = len(self.members[a]) + len(self.members[b])
        if size > MAX_NODES or not self._shapes_agree(a, b, left, right) or not self._joins_anchor(a, source, left):
            return
        merged = sorted(self.members[a] + self.members[b])
        if self._anchor(user) is not None and not self._only_feeds(a, set(merged)):
            return  # a prologue that others need too would be computed twice or stored after all
        if merged[-1] - merged[0] > MAX_SPAN:
            return
        after = self._between(a, b)
        if after is None:
            return  # a path leads from one to the other through a third
        self._reorder(a, b, after)
        self.members[a] = merged
        for m in self.members.pop(b):
            self.leader[m] = a

    def _widens(self, members: Sequence[int], anchor: int) -> bool:
        """Whether this is one node that makes wider elements of narrow ones, as the anchor of its consumer takes: an
        operand of an epilogue that is better read as it is stored."""
        nodes = [self.graph.nodes[m] for m in members]
        narrow, made, taken = (
            self.graph.type(v).dtype
            for v in (nodes[0].inputs[0], nodes[0].outputs[0], self.graph.nodes[anchor].inputs[0])
        )
        if len(nodes) > 1 or narrow is None or made is None or taken is None:
            return False
        return narrow.bits < made.bits and taken.bits == narrow.bits

    def _joins_anchor(self, group: int, source: int, anchor: int | None) -> bool:
        """What joins an anchored group must follow the anchor, not a node of its prologue."""
        if anchor is None or source == anchor:
            return True
        todo, inside = [source], set(self.members[group])
        while todo:
            here = todo.pop()
            if here == anchor:
                return True
            todo += [s for s in self.sources[here] if s in inside]
        return False

    def _shapes_agree(self, a: int, b: int, left: int | None, right: int | None) -> bool:
        """Whether all values made in the merged group have one shape; a prologue that of the anchor's first input."""
        shapes: set[tuple[Dim, ...] | None] = set()
        for m in self.members[a] + self.members[b]:
            node = self.graph.nodes[m]
            if m == right:
                continue  # its result differs from what its prologue gives
            outs = [v for v in node.outputs if v]
            if m == left and len(outs) != 1:
                return False
            if right is not None and m in self.members[b] and m != right:
                continue  # epilogue of the consumer group, checked when it was made
            for v in outs:
                shape = self.graph.type(v).shape
                if shape is None:
                    return False
                shapes.add(shape)
        if left is not None:
            prologue = {self.graph.nodes[m].outputs[0] for m in self._before(left)}
            shapes = {
                self.graph.type(v).shape
                for m in self.members[a] + self.members[b]
                for v in self.graph.nodes[m].outputs
                if v and v not in prologue
            }
        if right is not None:
            first = self.graph.type(self.graph.nodes[right].inputs[0]).shape
            if first is None:
                return False
            shapes.add(first)
        return len(shapes) == 1

    def _before(self, anchor: int) -> list[int]:
        inside, found, todo = set(self.members[self.leader[anchor]]), set[int](), [anchor]
        while todo:
            for s in self.sources[todo.pop()]:
                if s in inside and s not in found:
                    found.add(s)
                    todo.append(s)
        return sorted(found)

    def _only_feeds(self, group: int, inside: set[int]) -> bool:
        return all(user in inside for m in self.members[group] for user in self.users[m]) and not any(
            v in self.outputs for m in self.members[group] for v in self.graph.nodes[m].outputs
        )

    def _between(self, a: int, b: int) -> list[int] | None:
        """The groups ranked between two that depend on the first; None if the second depends on one of them."""
        end, found, todo = self.rank[b], set[int](), [a]
        while todo:
            here = todo.pop()
            for user in self._group_users(here):
                if user == b:
                    if here != a:
                        return None
                elif self.rank[user] < end and user not in found:
                    found.add(user)
                    todo.append(user)
        return list(found)

    def _reorder(self, a: int, b: int, after: list[int]) -> None:
        """Ranks for the groups between two that become one, `a`: what `b` needs, then `a`, then what needs `a`."""
        start, before, todo = self.rank[a], set[int](), [b]
        while todo:
            for source in self._group_sources(todo.pop()):
                if source != a and self.rank[source] > start and source not in before:
                    before.add(source)
                    todo.append(source)
        order = [*sorted(before, key=self.rank.__getitem__), a, *sorted(after, key=self.rank.__getitem__)]
        places = sorted(self.rank[g] for g in (*order, b))
        del self.rank[b]
        self.rank.update(zip(order, places, strict=False))

    def _group_users(self, group: int) -> set[int]:
        return {self.leader[u] for m in self.members[group] for u in self.users[m]} - {group}

    def ordered(self) -> list[list[int]]:
        """The groups in an order in which each comes after all that it reads; of those ready the first in the graph."""
        waiting = {g: len(self._group_sources(g)) for g in self.members}
        ready = [(self.members[g][0], g) for g, n in waiting.items() if n == 0]
        heapq.heapify(ready)
        order = []
        while ready:
            _, group = heapq.heappop(ready)
            order.append(self.members[group])
            for user in sorted(self._group_users(group)):
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, (self.members[user][0], user))
        assert len(order) == len(self.members), "grouping made a cycle"
        return order

    def _group_sources(self, group: int) -> set[int]:
        return {self.leader[s] for m in self.members[group] for s in self.sources[m]} - {group}
