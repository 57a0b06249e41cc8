"""Extraction: of every class that is needed, the node to compute it by, so that the whole costs least.

Cost counts shared work once (DAG cost), which makes the optimum NP-hard to find. What is done here:

1. Terms over constants are taken out of the question. They are evaluated before the program runs, so a class of
   constants is a leaf that costs its storage; how it is evaluated is settled by Knuth's algorithm on term size.
2. A greedy solution, after the "faster greedy DAG" extractor of the extraction gym (egraphs-good/extraction-gym): every
   class keeps the *set* of classes that its best derivation needs, and a node is priced by the union of its children's
   sets. Here it is organised like Dijkstra's algorithm: a node costs no less than any of its children, so a class
   that is taken in order of cost is final when taken. Each node is priced once, and since a derivation is made of
   classes taken before, the result is acyclic by construction.
   The price of moving data may be changed for this step, to begin in other regions of the space.
3. Local improvement by reference counts: one class, or all the users of one unused class together (consumers that pay
   only when they switch as one, such as merged products), or all those of a used one, which then goes, change their
   node when that lowers the cost of the whole.

Ties go to the lower handle everywhere, so that the same e-graph gives the same result.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import RewriteError
from .cost import CostModel
from .graph import AttrValue, TensorType, ValueType
from .work import moves

ABSENT = 0


class ENodeLike(Protocol):
    """An e-node as extraction sees it; see `egraph.ENode`."""

    @property
    def op(self) -> str:
        """The operator, or `Absent`, `Input`, `Const`, `Proj`."""

    @property
    def attrs(self) -> Mapping[str, AttrValue]:
        """The normalised attributes."""

    @property
    def children(self) -> tuple[int, ...]:
        """The classes of the inputs, then those of the values that subgraphs capture."""

    @property
    def outputs(self) -> int:
        """The number of outputs."""

    @property
    def serial(self) -> int:
        """Not 0 for a node that must not be evaluated beforehand or merged."""


class EGraphLike(Protocol):
    """What extraction and decoding ask of an e-graph; see `egraph.EGraph`."""

    @property
    def nodes(self) -> Sequence[ENodeLike]:
        """All e-nodes by handle."""

    @property
    def made_by(self) -> Sequence[str | None]:
        """The rule that made each node."""

    @property
    def unions(self) -> Sequence[tuple[int, int, str | None]]:
        """The merges: two nodes and the rule that found them equal."""

    @property
    def origins(self) -> Sequence[tuple[str, ...]]:
        """The original nodes that each node stands for."""

    @property
    def roots(self) -> Mapping[str, int]:
        """The classes of the graph's outputs, by name."""

    def find(self, handle: int) -> int:
        """The canonical handle of a class."""

    def classes(self) -> Mapping[int, Sequence[int]]:
        """The nodes of each class."""

    def types(self, handle: int) -> tuple[ValueType, ...]:
        """The types of a class's outputs."""

    def is_const(self, handle: int) -> bool:
        """Whether the class has a term over constants only."""


class ExtractionError(RewriteError):
    """A needed class has no derivation that is allowed: an error of the program, not of its user."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The chosen node of every class that is needed, by canonical handle.

    `folded` are the classes to be evaluated beforehand; their terms are in `choice` too. `cost` is the DAG cost of
    what runs and is stored, `bound` a proven lower bound of it."""

    choice: dict[int, int]
    folded: frozenset[int]
    cost: float
    method: str
    bound: float | None = None


@dataclass(slots=True)
class Limits:
    """How far extraction goes. `steps` bounds the improvement by work, not time, so that the result does not depend on
    the machine's load. For each of `movement` a greedy solution is made in which moving data (`work.moves`) costs so
    many times what it does; each is improved under the true cost, and the best is taken."""

    steps: int = 400_000
    movement: tuple[float, ...] = (1.0,)


REGIONS = Limits(movement=(1.0, 0.0, 8.0))
"""For choices that pay in whole regions only, bordered by moves of data: as if these were free, and very dear."""


def dependencies(egraph: EGraphLike, handle: int) -> tuple[int, ...]:
    """The classes that a node reads, each once: its inputs and what its subgraphs capture."""
    return tuple(dict.fromkeys(egraph.find(c) for c in egraph.nodes[handle].children if c != ABSENT))


def extract(
    egraph: EGraphLike,
    cost: CostModel,
    *,
    outputs: Iterable[str] | None = None,
    admissible: Callable[[ENodeLike], bool] = lambda node: True,
    limits: Limits | None = None,
) -> Extraction:
    """The cheapest derivation found of the roots named in `outputs` (all, if None).

    Nodes that are not `admissible` are not used at run time (they may be evaluated beforehand). Raises
    `ExtractionError` naming the first root that has no derivation."""
    limits = limits or Limits()
    names = list(egraph.roots) if outputs is None else list(outputs)
    roots = list(dict.fromkeys(egraph.find(egraph.roots[name]) for name in names))
    problem = _Problem(egraph, cost, admissible, limits, roots)
    found: tuple[float, str, dict[int, int]] | None = None
    for factor in limits.movement:
        best = problem.greedy(factor)
        for name in names:
            if egraph.find(egraph.roots[name]) not in best:
                why = problem.diagnosis(egraph.roots[name], best)
                raise ExtractionError(f"no derivation of the output {name!r} can be written", hint=why)
        solution = _Solution(problem, best, roots)
        method = "greedy DAG, improved" if solution.improve(limits.steps) else "greedy DAG"
        chosen = solution.chosen()
        total = sum(problem.leaf[c] if c in problem.leaf else problem.weight[h] for c, h in chosen.items())
        if found is None or total < found[0] * (1 - 1e-9):
            found = total, method if factor == 1.0 else f"{method}, movement x {factor:g}", chosen
    assert found is not None
    total, method, chosen = found
    folded = [c for c in chosen if c in problem.leaf]
    for c in folded:
        problem.add_term(c, chosen)
    return Extraction(chosen, frozenset(folded), total, method, min(problem.bound(roots), total))


@dataclass(slots=True)
class _Problem:
    """The e-graph below the roots, priced."""

    egraph: EGraphLike
    cost: CostModel
    admissible: Callable[[ENodeLike], bool]
    limits: Limits
    roots: list[int]
    members: dict[int, list[int]] = field(default_factory=dict)
    """The usable nodes of each reachable class."""
    deps: dict[int, tuple[int, ...]] = field(default_factory=dict)
    weight: dict[int, float] = field(default_factory=dict)
    leaf: dict[int, float] = field(default_factory=dict)
    """The classes that are evaluated beforehand, with the cost of storing them."""
    term: dict[int, int] = field(default_factory=dict)
    """The node that a constant class is evaluated by."""
    _read: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _prices: dict[tuple[object, ...], float] = field(default_factory=dict)
    _type_ids: dict[tuple[ValueType, ...], int] = field(default_factory=dict)
    _operands: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        classes = self.egraph.classes()
        self._constants(classes)
        pending = list(reversed(self.roots))
        while pending:
            at = pending.pop()
            if at in self.members:
                continue
            if at in self.leaf:
                self.members[at] = [self.term[at]]
                self.deps[self.term[at]] = ()
                continue
            nodes = [h for h in classes[at] if self._usable(h)]
            self.members[at] = nodes
            for handle in nodes:
                self.deps[handle] = self._reads(handle)
                pending.extend(reversed([c for c in self.deps[handle] if c not in self.members]))
        for nodes in self.members.values():
            for handle in nodes:
                if handle not in self.weight:
                    self.weight[handle] = self._price(handle)

    def _reads(self, handle: int) -> tuple[int, ...]:
        found = self._read.get(handle)
        if found is None:
            found = self._read[handle] = dependencies(self.egraph, handle)
        return found

    def _usable(self, handle: int) -> bool:
        node = self.egraph.nodes[handle]
        return node.op in ("Input", "Const", "Proj") or self.admissible(node)

    def _constants(self, classes: Mapping[int, Sequence[int]]) -> None:
        """Settles how constant classes are evaluated, by Knuth's algorithm on the number of operators."""
        from .fold import supports

        egraph = self.egraph
        constant = [c for c in classes if c != egraph.find(ABSENT) and egraph.is_const(c)]
        waiting: dict[int, int] = {}
        users: dict[int, list[int]] = {}
        heap: list[tuple[int, int, int]] = []
        for c in constant:
            for handle in classes[c]:
                node = egraph.nodes[handle]
                if node.op == "Const":
                    heapq.heappush(heap, (0, handle, c))
                    continue
                reads = self._reads(handle)
                if node.serial or not reads or not all(map(egraph.is_const, reads)) or not supports(node.op):
                    continue
                waiting[handle] = len(reads)
                for child in reads:
                    users.setdefault(child, []).append(handle)
        size: dict[int, int] = {}
        source: dict[int, float] = {}
        while heap:
            steps, handle, c = heapq.heappop(heap)
            if c in size:
                continue
            size[c] = steps
            self.term[c] = handle
            node = egraph.nodes[handle]
            nbytes = sum(self.cost.nbytes(t) for t in egraph.types(c))
            source[c] = nbytes if node.op == "Const" else sum(source[d] for d in self._reads(handle))
            if node.op == "Const" or (self.cost.stores(nbytes, source[c]) and self._evaluable(c)):
                self.leaf[c] = sum(self.cost.constant_cost(t) for t in egraph.types(c))
            for user in users.get(c, ()):
                waiting[user] -= 1
                if waiting[user] == 0:
                    total = 1 + sum(size[d] for d in self._reads(user))
                    heapq.heappush(heap, (total, user, egraph.find(user)))

    def _evaluable(self, c: int) -> bool:
        """Whether the contents of a class can be a constant of the result: one tensor of known size."""
        types = self.egraph.types(c)
        return len(types) == 1 and isinstance(types[0], TensorType) and types[0].is_static

    def _price(self, handle: int) -> float:
        node = self.egraph.nodes[handle]
        at = self.egraph.find(handle)
        if at in self.leaf:
            return self.leaf[at]
        if node.op in ("Input", "Proj"):
            return 0.0
        egraph = self.egraph
        children = [ABSENT if c == ABSENT else egraph.find(c) for c in node.children]
        # attributes are interned and many nodes have the same operand types: price those once
        key = (node.op, id(node.attrs), self._types_id(at), *map(self._operand_id, children))
        price = self._prices.get(key)
        if price is not None:
            return price
        types = [None if c == ABSENT else egraph.types(c)[0] for c in children]
        mask = [c in self.leaf for c in children]
        joins = any(c != ABSENT and c not in self.leaf and egraph.nodes[c].op != "Input" for c in children)
        if all(m or t is None for m, t in zip(mask, types, strict=True)):
            mask = []  # a node over constants that is not evaluated beforehand runs
        price = self.cost.node_cost(node.op, node.attrs, types, egraph.types(at), mask, joins)
        self._prices[key] = price
        return price

    def _types_id(self, c: int) -> int:
        """A number that equal types share."""
        types = self.egraph.types(c)
        return self._type_ids.setdefault(types, len(self._type_ids))

    def _operand_id(self, c: int) -> int:
        """A number that operands share whose types, constness and being inputs are the same; negative if absent."""
        if c == ABSENT:
            return -1
        found = self._operands.get(c)
        if found is None:
            kind = 0 if c in self.leaf else 1 if self.egraph.nodes[c].op == "Input" else 2
            found = self._operands[c] = 3 * self._types_id(c) + kind
        return found

    def add_term(self, c: int, chosen: dict[int, int]) -> None:
        """Adds the classes that a constant is evaluated from to the choice."""
        pending = [c]
        while pending:
            at = pending.pop()
            chosen.setdefault(at, self.term[at])
            node = self.egraph.nodes[self.term[at]]
            if node.op != "Const":
                pending.extend(d for d in self._reads(self.term[at]) if d not in chosen)

    def greedy(self, movement: float = 1.0) -> dict[int, int]:
        """The node of every reachable class that has a derivation, if moving data cost so many times what it does.

        The set of classes that a derivation needs is kept as an integer's bits, and only for *shared* classes, those
        with users in several classes; what is not shared is carried along as a sum."""
        weights = self.weight
        if movement != 1.0:
            enodes = self.egraph.nodes
            weights = {h: w * movement if moves(enodes[h].op) else w for h, w in weights.items()}
        above: dict[int, dict[int, None]] = {}
        users: dict[int, list[int]] = {}
        waiting: dict[int, int] = {}
        for at, nodes in self.members.items():
            for handle in nodes:
                waiting[handle] = len(self.deps[handle])
                for child in self.deps[handle]:
                    users.setdefault(child, []).append(handle)
                    above.setdefault(child, {})[at] = None
        for root in self.roots:
            above.setdefault(root, {})[-1] = None  # the program itself uses it
        best: dict[int, int] = {}
        needs: dict[int, int] = {}
        alone: dict[int, float] = {}
        total: dict[int, float] = {}
        bits: list[float] = []  # the weight of each bit
        heap: list[tuple[float, int]] = []

        def union(children: tuple[int, ...]) -> tuple[int, float]:
            """The bits that children need together and the weight of these."""
            first = max(children, key=lambda c: total[c] - alone[c])
            whole, weight = needs[first], total[first] - alone[first]
            for child in children:
                extra = needs[child] & ~whole
                if not extra:
                    continue
                whole |= extra
                while extra:
                    low = extra & -extra
                    weight += bits[low.bit_length() - 1]
                    extra ^= low
            return whole, weight

        def price(handle: int) -> float:
            children = self.deps[handle]
            if not children:
                return weights[handle]
            _, weight = union(children) if len(children) > 1 else (0, total[children[0]] - alone[children[0]])
            return weights[handle] + sum(alone[c] for c in children) + weight

        for handle, count in waiting.items():
            if not count:
                heapq.heappush(heap, (price(handle), handle))
        while heap:
            value, handle = heapq.heappop(heap)
            at = self.egraph.find(handle)
            if at in best:
                continue
            best[at] = handle
            children = self.deps[handle]
            needs[at], weight = union(children) if children else (0, 0.0)
            alone[at] = weights[handle] + sum(alone[c] for c in children)
            if len(above.get(at, ())) > 1 and alone[at] > 0:
                needs[at] |= 1 << len(bits)
                bits.append(alone[at])
                weight, alone[at] = weight + alone[at], 0.0
            total[at] = weight + alone[at]
            for user in users.get(at, ()):
                waiting[user] -= 1
                if not waiting[user] and self.egraph.find(user) not in best:
                    heapq.heappush(heap, (max(price(user), value), user))
        return best

    def bound(self, roots: list[int]) -> float:
        """A lower bound of any solution's cost: the cheapest nodes of the classes that every solution needs.

        A class is needed if it is a root or read by all nodes of a needed class."""
        needed = dict.fromkeys(roots)
        pending = list(roots)
        total = 0.0
        while pending:
            at = pending.pop()
            nodes = [h for h in self.members[at] if at not in self.deps[h]]
            total += min((self.weight[h] for h in nodes), default=0.0)
            if not nodes:
                continue
            common = dict.fromkeys(self.deps[nodes[0]])
            for handle in nodes[1:]:
                reads = set(self.deps[handle])
                common = {c: None for c in common if c in reads}
            for child in common:
                if child not in needed:
                    needed[child] = None
                    pending.append(child)
        return total

    def diagnosis(self, root: int, best: Mapping[int, int]) -> str:
        """Where below a root the derivations end: the operators of a class with none."""
        seen: set[int] = set()
        pending = [self.egraph.find(root)]
        classes = self.egraph.classes()
        while pending:
            at = pending.pop()
            if at in seen or at in best:
                continue
            seen.add(at)
            missing = [c for h in self.members.get(at, ()) for c in self.deps[h] if c not in best]
            if not missing:
                names = dict.fromkeys(self.egraph.nodes[h].op for h in classes[at])
                return f"A value that it needs is made only by: {', '.join(names)}"
            pending.extend(missing)
        return "The values that it needs depend on each other"


class _Solution:
    """A choice with reference counts, that can be changed in place."""

    def __init__(self, problem: _Problem, best: dict[int, int], roots: list[int]) -> None:
        self.problem = problem
        self.pick = dict(best)  # also of classes that are not used now
        self.counts: dict[int, int] = {}
        self.roots = roots
        self.steps = 0
        self.scale = sum(self._acquire(root) for root in roots)

    def chosen(self) -> dict[int, int]:
        """The nodes that are used, by class, in order of handles."""
        return {c: self.pick[c] for c in sorted(c for c, n in self.counts.items() if n)}

    def _acquire(self, c: int) -> float:
        """Counts one more use of a class; gives what that adds to the cost."""
        added = 0.0
        pending = [c]
        while pending:
            at = pending.pop()
            self.steps += 1
            count = self.counts.get(at, 0)
            self.counts[at] = count + 1
            if not count:
                added += self.problem.weight[self.pick[at]]
                pending.extend(self.problem.deps[self.pick[at]])
        return added

    def _release(self, c: int) -> float:
        """Counts one use less; gives what that takes from the cost."""
        taken = 0.0
        pending = [c]
        while pending:
            at = pending.pop()
            self.steps += 1
            self.counts[at] -= 1
            if not self.counts[at]:
                taken += self.problem.weight[self.pick[at]]
                pending.extend(self.problem.deps[self.pick[at]])
        return taken

    def _switch(self, c: int, handle: int) -> float:
        """Computes a used class by another node; gives the change of cost. Undone by switching back."""
        before = self.pick[c]
        change = self.problem.weight[handle] - self.problem.weight[before]
        for child in self.problem.deps[handle]:
            change += self._acquire(child)
        self.pick[c] = handle
        for child in self.problem.deps[before]:
            change -= self._release(child)
        return change

    def _acyclic(self) -> bool:
        """Whether no used class is needed for itself."""
        done: set[int] = set()
        active: set[int] = set()
        stack = [(root, False) for root in self.roots]
        while stack:
            at, leaving = stack.pop()
            if leaving:
                active.discard(at)
                done.add(at)
                continue
            if at in done:
                continue
            active.add(at)
            self.steps += 1
            stack.append((at, True))
            for child in self.problem.deps[self.pick[at]]:
                if child in active:
                    return False
                if child not in done:
                    stack.append((child, False))
        return True

    def _try(self, moves: list[tuple[int, int]]) -> bool:
        """Makes moves together if that is cheaper; else leaves all as it was."""
        back: list[tuple[int, int]] = []
        change = 0.0
        for c, handle in moves:
            if self.counts.get(c) and self.pick[c] != handle:
                back.append((c, self.pick[c]))
                change += self._switch(c, handle)
        return self._settled(change, back)

    def _settled(self, change: float, back: list[tuple[int, int]]) -> bool:
        """Keeps what was switched if the whole costs less by it; else switches back."""
        if change < -1e-9 * self.scale and self._acyclic():
            return True
        for c, handle in reversed(back):
            self._switch(c, handle)
        return False

    def _without(self, gone: int, readers: Iterable[int], options: Mapping[int, list[int]]) -> bool:
        """Computes every class that reads `gone` without it, if that is cheaper: one reader alone gains nothing."""
        deps = self.problem.deps
        back: list[tuple[int, int]] = []
        change = 0.0
        for c in readers:
            before = self.pick[c]
            if not self.counts.get(c) or gone not in deps[before]:
                continue
            cheapest, at = float("inf"), before
            for handle in options[c]:
                if gone in deps[handle]:
                    continue
                cost = self._switch(c, handle)
                self._switch(c, before)
                if cost < cheapest:
                    cheapest, at = cost, handle
            if at == before:
                break
            back.append((c, before))
            change += self._switch(c, at)
        else:
            return self._settled(change, back)
        return self._settled(float("inf"), back)

    def improve(self, budget: int) -> bool:
        """Moves that lower the cost, until there is none or the budget of steps is used up."""
        members, deps = self.problem.members, self.problem.deps
        best = dict(self.pick)
        options = {
            c: [h for h in nodes if all(d in best for d in deps[h])] for c, nodes in members.items() if len(nodes) > 1
        }
        by_child: dict[int, list[tuple[int, int]]] = {}
        for c, nodes in options.items():
            for handle in nodes:
                for child in deps[handle]:
                    by_child.setdefault(child, []).append((c, handle))
        improved = True
        ever = False
        while improved and self.steps < budget:
            improved = False
            for child in sorted(by_child):
                if self.counts.get(child) or child in self.problem.leaf or self.steps > budget:
                    continue
                moves = [(c, h) for c, h in by_child[child] if self.counts.get(c)]
                distinct = dict(reversed(moves))  # the lowest handle of each class
                if len(distinct) > 1 and self._try(sorted(distinct.items())):
                    improved = True
            for child in sorted(by_child):
                if not self.counts.get(child) or child in self.problem.leaf or self.steps > budget:
                    continue
                readers = sorted({c for c, h in by_child[child] if self.counts.get(c) and self.pick[c] == h})
                if len(readers) > 1 and self._without(child, readers, options):
                    improved = True
            for c in sorted(options):
                for handle in options[c]:
                    if self.steps > budget:
                        break
                    if self.counts.get(c) and handle != self.pick[c] and self._try([(c, handle)]):
                        improved = True
            ever = ever or improved
        return ever
