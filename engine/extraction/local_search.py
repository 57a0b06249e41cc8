"""Local improvement of a choice of nodes, by reference counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter

from .priced_egraph import PricedEGraph


class LocalSearch:
    """A choice of nodes with reference counts, which is changed in place.

    `steps` counts the work done so far."""

    def __init__(self, problem: PricedEGraph, best: Mapping[int, int]) -> None:
        self.problem = problem
        self.pick = dict(best)  # also of classes that are not used now
        self.counts: dict[int, int] = {}
        self.steps = 0
        self.scale = sum(self._count(root, 1) for root in problem.roots)

    def chosen(self) -> dict[int, int]:
        """Return the nodes that are used, by class, in order of handles."""
        return {c: self.pick[c] for c in sorted(c for c, n in self.counts.items() if n)}

    def improve(self, budget: int) -> bool:
        """Apply moves until none lowers the cost or the step budget is exhausted.

        Returns whether the cost was lowered. A move changes the node of one class, of all users of an unused class
        together, or of all users of a used one."""
        deps, best = self.problem.deps, set(self.pick)
        options = {
            c: [h for h in nodes if best.issuperset(deps[h])]
            for c, nodes in sorted(self.problem.members.items())
            if len(nodes) > 1
        }
        readers: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Nodes that read a class, with their classes."""
        every = [(c, handle) for c, nodes in options.items() for handle in nodes]
        for c, handle in every:
            for child in deps[handle]:
                readers[child].append((c, handle))
        shared = [(child, nodes) for child, nodes in sorted(readers.items()) if child not in self.problem.leaf]
        ever = False
        while self.steps < budget:
            improved = False
            for child, nodes in shared:
                if self.steps <= budget and not self.counts.get(child):
                    improved |= self._switch_users_to(nodes)
            for child, nodes in shared:
                if self.steps <= budget and self.counts.get(child):
                    improved |= self._switch_users_from(child, nodes, options)
            for c, handle in every:
                if self.steps <= budget and self.counts.get(c) and handle != self.pick[c]:
                    improved |= self._try([(c, handle)])
            if not improved:
                break
            ever = True
        return ever

    def change(self, c: int, handle: int) -> float | None:
        """Return the change of cost if a used class were computed by another node; None if it would need itself.

        All classes that the node reads must have a pick."""
        before = self.pick[c]
        change = self._switch(c, handle)
        acyclic = self._acyclic([c])
        self._switch(c, before)
        return change if acyclic else None

    # --- moves ---

    def _try(self, moves: Iterable[tuple[int, int]]) -> bool:
        """Make moves together if that is cheaper."""
        undo: list[tuple[int, int]] = []
        change = 0.0
        for c, handle in moves:
            if self.counts.get(c) and self.pick[c] != handle:
                undo.append((c, self.pick[c]))
                change += self._switch(c, handle)
        return self._accept(change, undo)

    def _switch_users_to(self, nodes: Iterable[tuple[int, int]]) -> bool:
        """Make all classes that can read an unused class do so, each by its first node, if that is cheaper."""
        moves = dict(reversed([(c, h) for c, h in nodes if self.counts.get(c)]))
        return len(moves) > 1 and self._try(sorted(moves.items()))

    def _switch_users_from(
        self, dropped: int, nodes: Iterable[tuple[int, int]], options: Mapping[int, list[int]]
    ) -> bool:
        """Compute all classes that read a used class without it, if that is cheaper: one alone gains nothing."""
        readers = sorted({c for c, h in nodes if self.counts.get(c) and self.pick[c] == h})
        if len(readers) < 2:
            return False
        deps = self.problem.deps
        undo: list[tuple[int, int]] = []
        change = 0.0
        for c in readers:
            before = self.pick[c]
            if not self.counts.get(c) or dropped not in deps[before]:
                continue
            costs = []
            for handle in options[c]:
                if dropped not in deps[handle]:
                    costs.append((self._switch(c, handle), handle))
                    self._switch(c, before)
            if not costs:
                return self._accept(math.inf, undo)
            undo.append((c, before))
            change += self._switch(c, min(costs, key=itemgetter(0))[1])
        return self._accept(change, undo)

    def _accept(self, change: float, undo: list[tuple[int, int]]) -> bool:
        """Accept switches if they lower the cost of the whole; otherwise undo them."""
        if change < -1e-9 * self.scale and self._acyclic([c for c, _ in undo]):
            return True
        for c, handle in reversed(undo):
            self._switch(c, handle)
        return False

    def _switch(self, c: int, handle: int) -> float:
        """Compute a used class by another node, and return the change of cost. Switching back undoes it."""
        before = self.pick[c]
        change = self.problem.weight[handle] - self.problem.weight[before]
        for child in self.problem.deps[handle]:
            change += self._count(child, 1)
        self.pick[c] = handle
        for child in self.problem.deps[before]:
            change += self._count(child, -1)
        return change

    def _count(self, c: int, by: int) -> float:
        """Count one use more (1) or less (-1) of a class, and return what that adds to the cost."""
        added = 0.0
        pending = [c]
        while pending:
            at = pending.pop()
            self.steps += 1
            before = self.counts.get(at, 0)
            self.counts[at] = before + by
            if not min(before, before + by):  # its first use, or its last
                added += by * self.problem.weight[self.pick[at]]
                pending.extend(self.problem.deps[self.pick[at]])
        return added

    def _acyclic(self, changed: Iterable[int]) -> bool:
        """Return whether no used class is needed for itself, if that was so before the nodes of some classes changed.

        Depth-first search from these: a cycle would go through one of them."""
        deps, pick = self.problem.deps, self.pick
        open_: set[int] = set()
        done: set[int] = set()
        pending = [c for c in changed if self.counts.get(c)]
        while pending:
            c = pending[-1]
            if c in done:
                pending.pop()
            elif c in open_:
                done.add(pending.pop())
            else:
                open_.add(c)
                self.steps += 1
                below = [d for d in deps[pick[c]] if d not in done]
                if not open_.isdisjoint(below):
                    return False
                pending += below
        return True
