"""Greedy DAG extraction, in the order of Dijkstra's algorithm."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..cost.operator_cost import moves
from .priced_egraph import PricedEGraph


def greedy(problem: PricedEGraph, movement: float = 1.0) -> dict[int, int]:
    """Return the node of every reachable class that has a derivation, if moving data costs `movement` times as much."""
    nodes = problem.egraph.nodes
    return _Greedy(problem, {h: w * movement if moves(nodes[h].op) else w for h, w in problem.weight.items()}).solve()


@dataclass(slots=True)
class _Greedy:
    """State of one greedy extraction.

    The shared classes that a derivation needs are the bits of an integer; a class is *shared* if several classes use
    it. Costs of unshared classes are simply added. `needs` are the shared classes that the derivation of a class
    needs, `alone` is the cost of what only that class needs, and `bits` are the costs of the shared classes."""

    problem: PricedEGraph
    weights: Mapping[int, float]
    needs: dict[int, int] = field(default_factory=dict)
    alone: dict[int, float] = field(default_factory=dict)
    total: dict[int, float] = field(default_factory=dict)
    bits: list[float] = field(default_factory=list)

    def solve(self) -> dict[int, int]:
        deps, find = self.problem.deps, self.problem.egraph.find
        above: defaultdict[int, set[int]] = defaultdict(set, {root: {-1} for root in self.problem.roots})
        """Classes whose nodes read a class; -1 is the program itself."""
        users: defaultdict[int, list[int]] = defaultdict(list)
        waiting = {handle: len(deps[handle]) for nodes in self.problem.members.values() for handle in nodes}
        for at, nodes in self.problem.members.items():
            for handle in nodes:
                for child in deps[handle]:
                    users[child].append(handle)
                    above[child].add(at)
        best: dict[int, int] = {}
        heap = [(self._price(handle), handle) for handle, count in waiting.items() if not count]
        heapq.heapify(heap)
        while heap:
            value, handle = heapq.heappop(heap)
            at = find(handle)
            if at in best:
                continue
            best[at] = handle
            self.needs[at], weight = self._union(deps[handle])
            self.alone[at] = self.weights[handle] + sum(self.alone[c] for c in deps[handle])
            if len(above[at]) > 1 and self.alone[at] > 0:
                self.needs[at] |= 1 << len(self.bits)
                self.bits.append(self.alone[at])
                weight, self.alone[at] = weight + self.alone[at], 0.0
            self.total[at] = weight + self.alone[at]
            for user in users[at]:
                waiting[user] -= 1
                if not waiting[user] and find(user) not in best:
                    heapq.heappush(heap, (max(self._price(user), value), user))
        return best

    def _union(self, children: tuple[int, ...]) -> tuple[int, float]:
        """Return the shared classes that children need together, and the cost of these."""
        if not children:
            return 0, 0.0
        first = max(children, key=lambda c: self.total[c] - self.alone[c])
        whole, weight = self.needs[first], self.total[first] - self.alone[first]
        for child in children:
            extra = self.needs[child] & ~whole
            whole |= extra
            while extra:
                low = extra & -extra
                weight += self.bits[low.bit_length() - 1]
                extra ^= low
        return whole, weight

    def _price(self, handle: int) -> float:
        children = self.problem.deps[handle]
        return self.weights[handle] + sum(self.alone[c] for c in children) + self._union(children)[1]
