"""Making of a trail: an optimization is run here, all that its e-graphs recorded is repeated, and the steps that the
result needs are kept.

What a step needs is found in two ways. The instance of its left side rests on equalities, and the path of unions
between two equal nodes is unique (`replay.ProofForest`). Its types and conditions rest on facts of classes, of which
nothing is recorded: the steps kept so far are repeated, and where one lacks a fact, the steps that merged its classes
are added, until all hold.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import RewriteError, UserError
from .. import pipeline
from ..egraph.reasons import Applied, Defined, Reason
from ..ir.bodies import all_bodies
from ..ir.graph import Graph
from ..ir.names import ABSENT, LEAVES
from ..operators.schemas import declared_operators
from ..options import Options
from ..rewriting.rule_library import RuleSet
from ..stage_values import Chosen, Decoded, Source
from .check import Contents, Stage, follows, next_replay, reaches
from .repetition import Repetition, Translation
from .replay import Gap, Replay, paired, values_of
from .term_list import LEFT_OUT, TermList
from .trail import Named, StageTrail, Step, Trail

ROUNDS = 12
"""Maximum number of times that the steps kept are repeated to find those that lack a fact."""


class NoTrail(RewriteError):
    """What was recorded does not lead from the model to its result: an error of the program, not of its user."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one e-graph recorded: the reasons of its unions, and the nodes chosen from it."""

    chosen: Chosen
    unions: Sequence[tuple[int, int, str | None]]
    reasons: Sequence[Reason | None]


@dataclass(frozen=True, slots=True)
class Run:
    """One optimization: the model as read, the result of a target, the rules, and what each e-graph recorded."""

    source: Source
    before: Graph
    decoded: Decoded
    rules: RuleSet
    recorded: Sequence[Recorded]


def run(model: Any, options: Options, target: str = "portable") -> Run:
    """Optimize a model's main graph in this process and return what was recorded on the way to a target."""
    source: Source | None = None
    before: Graph | None = None
    recorded: list[Recorded] = []
    for _, value in pipeline.stages(model, options):
        match value:
            case Source():
                source, before = value, value.graph
            case Graph():
                before = value if target == "native" else before
            case Chosen() if value.target == target:
                egraph = value.egraph
                if recorded and recorded[0].chosen.egraph is egraph:
                    recorded.clear()  # extracted again, with other operators admitted
                recorded = [*recorded[:1], Recorded(value, list(egraph.unions), list(egraph.reasons))]
            case Decoded() if value.target == target:
                assert source is not None
                assert before is not None
                costs = pipeline.cost_models(before, options)
                setup = pipeline.prepare(source.library, before.opset, options, costs)
                return Run(source, before, value, setup.rules, recorded)
    raise AssertionError("the pipeline decodes every target")


def trail_of(found: Run, options: Options, goal: str | None = None) -> Trail:
    """Return the trail of an optimization; with `goal`, the name of a value of the result, only what it needs.

    Raises `NoTrail` if what was recorded does not suffice."""
    with declared_operators(found.source.operators):
        return _Maker(found, options, goal).trail()


def settings(options: Options) -> dict[str, Any]:
    """Return the options that decide which rules may stand in a trail."""
    return {
        "numerics": options.numerics,
        "precision": options.precision,
        "disabled": list(options.disabled),
        "shapes": dict(options.shapes),
    }


@dataclass(slots=True)
class _Repeated:
    """A full repetition, the stage of the trail without its steps, the equalities that its end needs, and the nodes of
    values of the model and of the result by name."""

    full: Repetition
    part: StageTrail
    goals: list[tuple[int, int]]
    names: dict[str, int]


class _Maker:
    """State of the making of one trail."""

    def __init__(self, found: Run, options: Options, goal: str | None) -> None:
        self.found = found
        self.options = options
        self.goal = goal
        self.contents = Contents.of(found.before, found.decoded.graph)

    def trail(self) -> Trail:
        """Return the trail; a whole one is checked."""
        repeated = list(self._repeated())
        if self.goal is not None:
            self._restrict_goals(repeated, self.goal)
        parts: list[StageTrail] = []
        for number, found in enumerate(repeated):
            needed, last = found.full.needed(found.goals), number == len(repeated) - 1
            if self.goal is None:
                parts.append(self._with_facts(found, needed, parts, last=last))
            else:
                parts.append(self._with_steps(found, sorted(needed)))
        return Trail(self.found.before.name, settings(self.options), parts)

    def _repeated(self) -> Iterator[_Repeated]:
        """Repeat all that each e-graph recorded, and yield it with its end."""
        replay, names = Replay.of(self.found.rules, self.found.before)
        for number, recorded in enumerate(self.found.recorded):
            last = number == len(self.found.recorded) - 1
            full = Repetition(replay, Translation(recorded.chosen.egraph, replay), len(replay.egraph.nodes))
            full.repeat(recorded.unions, recorded.reasons)
            part, goals, ends = self._ends(full, recorded, last=last)
            yield _Repeated(full, part, goals, {name: h for name, h in {**names, **ends}.items() if name})
            if not last:
                replay, names = next_replay(Stage(part, replay, self.contents)), {}

    def _restrict_goals(self, repeated: Sequence[_Repeated], name: str) -> None:
        """Leave only the goal that a value of the result is equal to what it was at the start."""
        values = self._values(name)
        handles = [repeated[-1].names[value] for value in values if value in repeated[-1].names]
        read = self._operands(values, repeated[-1])
        for at in reversed(range(len(repeated))):
            full = repeated[at].full
            pairs = [(start, h) for h in handles if (start := full.start(h)) is not None]
            repeated[at].goals = [*pairs, *read]
            read = []
            if at:
                terms = TermList(full.replay.egraph, repeated[at - 1].part.terms)
                earlier = Stage(repeated[at - 1].part, repeated[at - 1].full.replay, self.contents)
                numbers = [terms.number(start) for start, _ in pairs]
                handles = [earlier.term(n) for n in numbers if n < len(earlier.trail.terms)]

    def _operands(self, values: Sequence[str], last: _Repeated) -> list[tuple[int, int]]:
        """Return what the nodes of values of the result read, each with what the equal node of the replay reads."""
        egraph, names = last.full.replay.egraph, last.names
        pairs: list[tuple[int, int]] = []
        for node in self.found.decoded.graph.nodes:
            if not set(values) & set(node.outputs) or any(True for _ in node.subgraphs()):
                continue
            made = names.get(next((v for v in node.outputs if v), ""))
            if made is not None and egraph.nodes[made].op == node.op:
                read = [names.get(v, ABSENT) if v else ABSENT for v in node.inputs]
                pairs += paired(egraph, read, egraph.nodes[made].children[: len(read)])
        return [(a, b) for a, b in pairs if ABSENT not in (a, b) and egraph.find(a) == egraph.find(b)]

    def _values(self, name: str) -> list[str]:
        """Return the values of the result that a name stands for: those of a node, or itself; and, of a value that the
        model does not have, those that are computed from it.

        Raises `UserError` if the result has no such node or value."""
        graph, given = self.found.decoded.graph, {v for node in self.found.before.nodes for v in node.outputs}
        values = [v for node in graph.nodes if name in (node.name, *node.outputs) for v in node.outputs if v]
        if not values:
            known = [v for node in graph.nodes for v in (node.name, *node.outputs) if v]
            close = difflib.get_close_matches(name, list(dict.fromkeys(known)), 3)
            hint = (
                f"Did you mean {', '.join(close)}?"
                if close
                else "`rewrite explain MODEL --node` says what became of it."
            )
            raise UserError(f"the result has no node or value {name!r}", hint=hint)
        found: dict[str, None] = {}
        pending = list(values)
        while pending:
            value = pending.pop(0)
            if value in found:
                continue
            found[value] = None
            if value not in given:
                pending += [v for node in graph.nodes if value in node.inputs for v in node.outputs if v]
        return list(found)

    def _ends(
        self, full: Repetition, recorded: Recorded, *, last: bool
    ) -> tuple[StageTrail, list[tuple[int, int]], dict[str, int]]:
        """Return a stage without steps that has the terms of its end, the equalities that its end needs, and the nodes
        of the result's values."""
        egraph, choice = recorded.chosen.egraph, recorded.chosen.extraction.choice
        terms = TermList(egraph)
        composed = terms.compose(choice)
        folded = recorded.chosen.extraction.folded
        decoded = self.found.decoded
        evaluated = []
        if last:
            for name, constant in decoded.graph.constants.items():
                c = decoded.classes.get(name)
                if c is not None and c in composed and egraph.nodes[choice[c]].op != "Const":
                    evaluated.append((composed[c], constant.digest))
        part = StageTrail(
            terms.terms,
            [],
            tuple(dict.fromkeys(evaluated)),
            () if last else tuple(composed.values()),
            () if last else tuple(composed[c] for c in folded if c in composed),
            {} if last else {name: composed[egraph.find(root)] for name, root in egraph.roots.items()},
        )
        stage = Stage(part, full.replay, self.contents)
        tables = full.replay.egraph
        tables.take()
        ends: dict[str, int] = {}
        try:
            if last:
                exact = self.options.numerics == "exact"
                goals, ends = reaches(stage, self.found.before, decoded.graph, exact=exact)
            else:
                follows(stage)
                goals = [(root, stage.term(part.roots[name])) for name, root in tables.roots.items()]
                for number in part.chosen:
                    stage.term(number)
        except Gap as gap:
            count = len(full.gaps)
            more = f"; {count} steps could not be repeated, the first since {full.gaps[0]}" if count else ""
            hint = "Trails cover main graphs only." if any(True for _ in all_bodies(decoded.graph)) else ""
            raise NoTrail(f"{gap}{more}", hint=hint) from gap
        return part, [*goals, *tables.take()], ends

    def _with_facts(
        self, found: _Repeated, needed: set[int], before: Sequence[StageTrail], *, last: bool
    ) -> StageTrail:
        """Return the stage with the needed steps, and with further ones where a step lacks a fact."""
        for _ in range(ROUNDS):
            made = self._with_steps(found, sorted(needed))
            failed = self._failures(made, before, last=last)
            if failed is None:
                return made
            more = self._suppliers(found.full, sorted(needed), failed)
            if more <= needed:
                more = set(range(len(found.full.done)))
            needed |= more
        raise NoTrail("the steps that were kept do not hold without others")

    def _failures(self, part: StageTrail, before: Sequence[StageTrail], *, last: bool) -> list[int | None] | None:
        """Repeat the steps of a stage after those of earlier ones; return the positions of those that do not hold.

        None stands for the end; the answer None means that all hold."""
        replay, _ = Replay.of(self.found.rules, self.found.before)
        for earlier in before:
            stage = Stage(earlier, replay, self.contents)
            for step in earlier.steps:
                stage.repeat(step)
            follows(stage)
            replay = next_replay(stage)
        stage = Stage(part, replay, self.contents)
        failed: list[int | None] = []
        at = -1
        for step in part.steps:
            at += not isinstance(step, Named)
            try:
                stage.repeat(step)
            except Gap:
                failed.append(at)
        if not failed:
            try:
                if last:
                    exact = self.options.numerics == "exact"
                    reaches(stage, self.found.before, self.found.decoded.graph, exact=exact)
                else:
                    follows(stage)
                    next_replay(stage)
            except Gap:
                failed.append(None)
        return failed or None

    def _suppliers(self, full: Repetition, kept: Sequence[int], failed: Sequence[int | None]) -> set[int]:
        """Return the steps that merged the classes which steps that do not hold read."""
        find = full.replay.egraph.find
        steps = [at for at in failed if at is not None and at >= 0]
        read: dict[int, int] = {}
        for at in steps:
            step = full.done[kept[at]]
            handles = {step.node} if isinstance(step, Defined) else {*step.roots, *step.values, *values_of(step.env)}
            handles |= {h for pair in full.premises[kept[at]] for h in pair}
            for handle in handles:
                for c in (handle, *full.replay.egraph.nodes[handle].children):
                    read[find(c)] = max(read.get(find(c), 0), kept[at])
        unions = full.replay.egraph.unions
        goals: list[tuple[int, int]] = []
        more: set[int] = set()
        for k, (start, end) in enumerate(full.ranges):
            touched = [find(unions[n][0]) for n in range(start, end)]
            if any(k < read.get(c, -1) for c in touched):
                more.add(k)
                goals += full.premises[k]
        return more | full.needed(goals)

    def _with_steps(self, found: _Repeated, kept: Sequence[int]) -> StageTrail:
        """Return a stage with some steps of the full repetition, in order."""
        full = found.full
        terms = TermList(full.replay.egraph, found.part.terms)
        steps = self._mentions(full, terms, -1)
        for at, k in enumerate(kept):
            step = full.done[k]
            if isinstance(step, Defined):
                steps.append(Defined(terms.number(step.node)))
            else:
                env = {n: coded for n, v in step.env.items() if (coded := terms.value(v)) is not LEFT_OUT}
                roots, values = (tuple(map(terms.number, handles)) for handles in (step.roots, step.values))
                steps.append(Applied(step.rule, step.backward, roots, values, env))
            for later in range(k, kept[at + 1] if at + 1 < len(kept) else len(full.done)):
                steps += self._mentions(full, terms, later)
        names = {terms.known[h]: name for name, h in reversed(found.names.items()) if h in terms.known}
        return replace(found.part, terms=terms.terms, steps=steps, names=names)

    def _mentions(self, full: Repetition, terms: TermList, k: int) -> list[Step]:
        """Return the step that names the nodes found to be equal to others in step `k`; none if there are none."""
        nodes = full.replay.egraph.nodes
        named = (h for h in full.between.get(k, ()) if nodes[h].op not in LEAVES)
        between = tuple(dict.fromkeys(map(terms.number, named)))
        return [Named(between)] if between else []
