"""Prices of the e-graph below the roots, and which classes are constants of the result."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from ..cost.cost_model import CostModel
from ..egraph.egraph import EGraph
from ..ir.graph import TensorType, ValueType
from ..ir.names import ABSENT
from ..operators.folding import supports

_LAST = 1 << 40
"""More operators than a term has: a constant is taken so late that is the result of an operator that is kept, for one
that is also an operand of that, such as the scale of a weight of 1."""


def dependencies(egraph: EGraph, handle: int) -> tuple[int, ...]:
    """Return the classes that a node reads, each once: its inputs and the values that its bodies capture."""
    return tuple(dict.fromkeys(egraph.find(c) for c in egraph.nodes[handle].children if c != ABSENT))


def post_order(starts: Iterable[int], reads: Callable[[int], Sequence[int]]) -> list[int]:
    """Return the classes reachable from some, depth first, each after those that it reads."""
    done: dict[int, None] = {}
    stack = [(c, False) for c in reversed([*starts])]
    while stack:
        c, ready = stack.pop()
        if ready:
            done[c] = None
        elif c not in done:
            stack.append((c, True))
            stack.extend((d, False) for d in reversed(reads(c)) if d not in done)
    return list(done)


class PricedEGraph:
    """The classes reachable from the roots, with their usable nodes and prices.

    `members` are the usable nodes of each class, `deps` the classes that a node reads, `weight` its price. `leaf` are
    the classes that are evaluated beforehand, with the cost of storing them; `term` is the node that a constant class
    is evaluated by. `prefer` is a factor on the price of an operator, see `plans`."""

    def __init__(
        self, egraph: EGraph, cost: CostModel, admissible: Callable[[int], bool], roots: Sequence[int],
        prefer: Callable[[str], float] = lambda op: 1.0,
    ) -> None:  # fmt: skip
        self.egraph = egraph
        self.roots = roots
        self.members: dict[int, list[int]] = {}
        self.deps: dict[int, tuple[int, ...]] = {}
        self.leaf: dict[int, float] = {}
        self.term: dict[int, int] = {}
        self._cost = cost
        self._admissible = admissible
        self._prefer = prefer
        self._classes = egraph.classes()
        self._reads = cache(partial(dependencies, egraph))
        self._prices: dict[tuple[object, ...], float] = {}
        self._type_ids: dict[tuple[ValueType, ...], int] = {}
        self._operand_ids: dict[int, int] = {}
        self._find_leaves()
        self._collect()

    def _collect(self) -> None:
        """Collect and price the classes below the roots."""
        pending = list(reversed(self.roots))
        while pending:
            at = pending.pop()
            if at in self.members:
                continue
            if at in self.leaf:
                self.members[at] = [self.term[at]]
                self.deps[self.term[at]] = ()
                continue
            nodes = self.members[at] = [h for h in self._unfolded(at) if self._usable(h)]
            for handle in nodes:
                self.deps[handle] = self._reads(handle)
                pending.extend(reversed([c for c in self.deps[handle] if c not in self.members]))
        self.weight = {handle: self._price(handle) for nodes in self.members.values() for handle in nodes}

    def _usable(self, handle: int) -> bool:
        return self.egraph.nodes[handle].op in ("Input", "Const", "Proj") or self._admissible(handle)

    def _find_leaves(self) -> None:
        """Choose how constant classes are evaluated, by Knuth's algorithm on the number of operators."""
        egraph, heap, waiting = self.egraph, [], {}
        users: defaultdict[int, list[int]] = defaultdict(list)
        for c in filter(self._is_constant, self._classes):
            unfolded = self._unfolded(c)
            for handle in self._classes[c]:
                if egraph.nodes[handle].op == "Const":
                    heap.append((0 if handle in unfolded else _LAST, handle, c))
                elif self._folds(handle):
                    waiting[handle] = len(self._reads(handle))
                    for child in self._reads(handle):
                        users[child].append(handle)
        heapq.heapify(heap)
        size: dict[int, int] = {}
        source: dict[int, float] = {}
        while heap:
            steps, handle, c = heapq.heappop(heap)
            if c in size:
                continue
            size[c] = steps
            self.term[c] = handle
            types = egraph.types(c)
            stored = egraph.nodes[handle].op == "Const"
            nbytes = sum(self._cost.nbytes(t) for t in types)
            source[c] = nbytes if stored else sum(source[d] for d in self._reads(handle))
            evaluable = len(types) == 1 and isinstance(types[0], TensorType) and types[0].is_static
            kept = self._cost.keeps(egraph.nodes[handle].op)
            if stored or (self._cost.stores(nbytes, source[c]) and evaluable and not kept):
                self.leaf[c] = sum(self._cost.constant_cost(t) for t in types)
            for user in users[c]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(heap, (1 + sum(size[d] for d in self._reads(user)), user, egraph.find(user)))

    def _unfolded(self, c: int) -> list[int]:
        """Return the nodes of a class, without its constant if it is the result of an operator that is kept."""
        handles = self._classes[c]
        if not any(self._cost.keeps(self.egraph.nodes[h].op) and self._folds(h) for h in handles):
            return list(handles)
        return [h for h in handles if self.egraph.nodes[h].op != "Const"]

    def _is_constant(self, c: int) -> bool:
        return c != self.egraph.find(ABSENT) and self.egraph.is_const(c)

    def _folds(self, handle: int) -> bool:
        """Whether a node over constants can be evaluated."""
        node, reads = self.egraph.nodes[handle], self._reads(handle)
        return not node.serial and bool(reads) and all(map(self.egraph.is_const, reads)) and supports(node.op)

    def _price(self, handle: int) -> float:
        egraph, node = self.egraph, self.egraph.nodes[handle]
        at = egraph.find(handle)
        if at in self.leaf:
            return self.leaf[at]
        if node.op in ("Input", "Proj"):
            return 0.0
        children = [ABSENT if c == ABSENT else egraph.find(c) for c in node.children]
        # attributes are interned and many nodes have the same operand types: price those once
        first = children[0] if children and children[0] != ABSENT else at
        fused = self._cost.fuses(node.op, self._operators(first))
        hides = self._cost.hides(node.op, self._operators(first))
        made = [c for c in children if c != ABSENT and c not in self.leaf]
        joins = any(self._cost.takes_pointwise(op) for c in made for op in self._operators(c))
        key = (node.op, id(node.attrs), fused, hides, joins, self._type_id(at), *map(self._operand_id, children))
        if key in self._prices:
            return self._prices[key]
        types = [None if c == ABSENT else egraph.types(c)[0] for c in children]
        mask = [c in self.leaf for c in children]
        if all(m or t is None for m, t in zip(mask, types, strict=True)):
            mask = []  # a node over constants that is not evaluated beforehand runs
        price = self._cost.node_cost(node.op, node.attrs, types, egraph.types(at), mask, joins, fused, hides)
        price *= self._prefer(node.op)
        self._prices[key] = price
        return price

    def _operators(self, c: int) -> Iterator[str]:
        """Enumerate the operators of the nodes of a class."""
        return (self.egraph.nodes[handle].op for handle in self._classes[c])

    def _type_id(self, c: int) -> int:
        """Return a number that equal types share."""
        return self._type_ids.setdefault(self.egraph.types(c), len(self._type_ids))

    def _operand_id(self, c: int) -> int:
        """Return a number that operands of equal types share, both or neither constant or input; -1 if absent."""
        if c == ABSENT:
            return -1
        if c not in self._operand_ids:
            kind = 0 if c in self.leaf else 1 if self.egraph.nodes[c].op == "Input" else 2
            self._operand_ids[c] = 3 * self._type_id(c) + kind
        return self._operand_ids[c]

    def add_term(self, c: int, chosen: dict[int, int]) -> None:
        """Add the classes that a constant is evaluated from to a choice."""
        pending = [c]
        while pending:
            at = pending.pop()
            chosen.setdefault(at, self.term[at])
            if self.egraph.nodes[self.term[at]].op != "Const":
                pending.extend(d for d in self._reads(self.term[at]) if d not in chosen)

    def bound(self) -> float:
        """Return a lower bound of any solution's cost: the cheapest nodes of the classes that every solution needs.

        A class is needed if it is a root or read by all nodes of a needed class."""
        needed = dict.fromkeys(self.roots)
        pending = list(self.roots)
        total = 0.0
        while pending:
            at = pending.pop()
            nodes = [h for h in self.members[at] if at not in self.deps[h]]
            total += min((self.weight[h] for h in nodes), default=0.0)
            if not nodes:
                continue
            shared = set(self.deps[nodes[0]]).intersection(*(self.deps[h] for h in nodes[1:]))
            common = [c for c in self.deps[nodes[0]] if c in shared and c not in needed]
            needed.update(dict.fromkeys(common))
            pending.extend(common)
        return total

    def diagnosis(self, root: int, best: Mapping[int, int]) -> str:
        """Describe where the derivations below a root end: the operators of a class without one."""
        seen: set[int] = set()
        pending = [self.egraph.find(root)]
        while pending:
            at = pending.pop()
            if at in seen or at in best:
                continue
            seen.add(at)
            missing = [c for h in self.members.get(at, ()) for c in self.deps[h] if c not in best]
            if not missing:
                names = dict.fromkeys(self.egraph.nodes[h].op for h in self._classes[at])
                return f"A value that it needs is computed only by: {', '.join(names)}"
            pending.extend(missing)
        return "The values that it needs depend on each other"
