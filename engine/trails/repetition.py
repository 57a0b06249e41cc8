"""Repetition of all that an e-graph recorded, in plain tables, and what each step of it rests on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..egraph.egraph import EGraph
from ..egraph.reasons import Applied, Congruence, Defined, Reason
from ..extraction.priced_egraph import post_order
from ..ir.names import ABSENT
from ..ir.values import BodyRef, TensorRef, Value
from .replay import Gap, ProofForest, Replay, paired


@dataclass(slots=True)
class Translation:
    """Translation from an e-graph that was saturated to the one in which its steps are repeated."""

    egraph: EGraph
    replay: Replay
    at: dict[int, int] = field(default_factory=lambda: {ABSENT: ABSENT})

    def term(self, handle: int) -> int:
        """Return the node of the replay for a node. Raises `Gap`."""
        nodes = self.egraph.nodes
        for h in post_order([handle], lambda h: () if h in self.at else nodes[h].children):
            if h not in self.at:
                self.at[h] = self._node(h)
        return self.at[handle]

    def _node(self, handle: int) -> int:
        node, into = self.egraph.nodes[handle], self.replay.egraph
        if node.op == "Const":
            return into.add_constant(self.egraph.constants[str(node.attrs["digest"])])
        if node.op == "Input" or node.serial:
            same = (
                h
                for h, other in enumerate(into.nodes)
                if other.op == node.op
                and (other.attrs == node.attrs if not node.serial else into.origins[h] == self.egraph.origins[handle])
            )
            found = next(same, None)
            if found is None:
                raise Gap(f"{node.op} is not in the model")
            return found
        return self.replay.add(node.op, node.attrs, [self.at[c] for c in node.children], node.outputs)

    def value(self, value: Value) -> Value:
        """Translate the value of a variable. Raises `Gap`."""
        if isinstance(value, TensorRef):
            return TensorRef(self.replay.egraph.find(self.term(value.handle)))
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, BodyRef):
            return replace(value, captures={name: self.value(t) for name, t in value.captures.items()})
        return value

    def step(self, reason: Applied) -> Applied:
        """Translate the application of a rule. Raises `Gap`."""
        find = self.replay.egraph.find
        names = self.replay.names(reason.rule, reason.backward)  # what the rule's conditions bind follows from them
        env = {name: self.value(value) for name, value in reason.env.items() if name in names}
        roots, values = (tuple(find(self.term(h)) for h in handles) for handles in (reason.roots, reason.values))
        return Applied(reason.rule, reason.backward, roots, values, env)


@dataclass(slots=True)
class Repetition:
    """A repetition of all recorded steps of one e-graph, which began with as many nodes as `begun` says.

    `done` has each step in terms of the replay, `ranges` the numbers of the unions that it made, `premises` what it
    rests on. `between` are the nodes that equalities lead through, by the step (-1 for none) in which they were found
    to be equal to others: the trail names them, so that a replay finds that, too. From number `ended` on, nodes are
    those of the result, which a replay has when all steps are done. `gaps` says why steps do not hold."""

    replay: Replay
    translation: Translation
    begun: int
    done: list[Applied | Defined] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    premises: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    between: dict[int, dict[int, None]] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    ended: int = 0

    def repeat(self, unions: Sequence[tuple[int, int, str | None]], reasons: Sequence[Reason | None]) -> None:
        """Repeat steps; those that do not hold here are left out, and so are definitions that came with a step."""
        egraph, term = self.replay.egraph, self.translation.term
        egraph.take()
        last: Reason | None = None
        for (a, b, _), reason in zip(unions, reasons, strict=True):
            if reason is last or not isinstance(reason, Applied | Defined):
                continue
            last, start = reason, len(egraph.unions)
            try:
                if isinstance(reason, Defined):
                    if egraph.find(term(a)) == egraph.find(term(b)):
                        continue
                    step: Applied | Defined = Defined(self.translation.term(reason.node))
                    self.replay.define(step.node)  # type: ignore[union-attr]
                    rests_on: tuple[tuple[int, int], ...] = ()
                else:
                    step = self.translation.step(reason)
                    rests_on = self.replay.apply(step)
            except Gap as gap:
                self.gaps.append(str(gap))
                egraph.take()
                continue
            self.done.append(step)
            self.ranges.append((start, len(egraph.unions)))
            self.premises.append((*rests_on, *egraph.take()))
        self.ended = len(egraph.nodes)

    def needed(self, goals: Sequence[tuple[int, int]]) -> set[int]:
        """Return the numbers of the steps that equalities follow from, and add the nodes in between to `between`."""
        egraph = self.replay.egraph
        forest = ProofForest(egraph)
        step_of = {number: k for k, (start, end) in enumerate(self.ranges) for number in range(start, end)}
        starts = [start for start, _ in self.ranges]
        needed: set[int] = set()

        def premises(number: int) -> tuple[tuple[int, int], ...]:
            reason = egraph.reasons[number]
            found: tuple[tuple[int, int], ...] = ()
            a, b, _ = egraph.unions[number]
            found_in = self.between.setdefault(bisect_right(starts, number) - 1, {})
            found_in.update((h, None) for h in (a, b) if h < self.ended)
            if isinstance(reason, Congruence):
                return paired(
                    egraph, egraph.nodes[reason.first].children, egraph.nodes[reason.second].children
                )  # fmt: skip
            if number in step_of and reason is not None:
                needed.add(step_of[number])
                found = self.premises[step_of[number]]
            elif reason is None:
                found = self._constants(number)
            return found

        forest.needed(goals, premises)
        return needed

    def equal(self, a: int, b: int) -> bool:
        """Return whether two nodes are in one class."""
        return self.replay.egraph.find(a) == self.replay.egraph.find(b)

    def start(self, handle: int) -> int | None:
        """Return the node that a class had at the start; None if it had none."""
        members = self.replay.egraph.members(handle)
        return min((m for m in members if m < self.begun), default=None)

    def _constants(self, number: int) -> tuple[tuple[int, int], ...]:
        """Return the equalities by which the operands of a folded node are constants."""
        egraph = self.replay.egraph
        pairs = []
        for child in egraph.nodes[egraph.unions[number][0]].children:
            constant = next((m for m in egraph.members(child) if egraph.nodes[m].op == "Const"), None)
            if constant is not None:
                pairs.append((child, constant))
        return tuple(pairs)
