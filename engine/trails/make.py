"""Making of a trail: an optimization is run here, all that its e-graphs recorded is repeated, and the steps that the
result needs are kept.

What a step needs is found in two ways. The instance of its left side rests on equalities, and the path of unions
between two equal nodes is unique (`replay.ProofForest`). Its types and conditions rest on facts of classes, of which
nothing is recorded: the steps kept so far are repeated, and where one lacks a fact, the steps that merged its classes
are added, until all hold.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import RewriteError, UserError
from .. import pipeline
from ..egraph.reasons import Applied, Defined, Reason
from ..ir.bodies import Numbering, body_number, is_marked, mark_bodies, new_names, replace_bodies
from ..ir.graph import Graph
from ..ir.names import ABSENT, LEAVES
from ..operators.schemas import declared_operators
from ..options import Options
from ..rewriting.rule_library import RuleSet, load_rules
from ..saturation.saturate import Limits
from ..stage_values import Chosen, Decoded, Setup, Source
from .bodies import Bodies, Result, direct_bodies
from .check import Contents, Stage, follows, next_replay, reaches
from .coding import body_digest
from .repetition import Repetition, Translation
from .replay import Gap, Replay, paired, values_of
from .term_list import LEFT_OUT, TermList
from .trail import GraphTrail, Inner, Named, StageTrail, Step, Trail

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


@dataclass(slots=True)
class Recorder:
    """Recorder of what the e-graphs on the way to a target record; it is given all nodes chosen, in order."""

    target: str
    recorded: list[Recorded] = field(default_factory=list)

    def add(self, chosen: Chosen) -> None:
        """Copy what the e-graph has recorded so far, if these nodes are chosen for the target."""
        if chosen.target != self.target:
            return
        egraph = chosen.egraph
        if self.recorded and self.recorded[0].chosen.egraph is egraph:
            self.recorded.clear()  # extracted again, with other operators admitted
        self.recorded = [*self.recorded[:1], Recorded(chosen, list(egraph.unions), list(egraph.reasons))]


@dataclass(frozen=True, slots=True)
class GraphRun:
    """The optimization of one graph, a main graph or a body: the graph, its result, and what each e-graph recorded.

    `marked` is the graph of the result with its bodies numbered."""

    start: Graph
    decoded: Decoded
    marked: Graph
    recorded: Sequence[Recorded]


@dataclass(frozen=True, slots=True)
class Run:
    """One optimization: the model as read, as it goes into the pipeline, and its result, the rules, and the run of each
    graph, of which the first is the main one."""

    source: Source
    before: Graph
    after: Graph
    rules: RuleSet
    graphs: Sequence[GraphRun]


def run(model: Any, options: Options, target: str = "portable") -> Run:
    """Optimize a model in this process and return what was recorded on the way to a target."""
    source = pipeline.read(model, options, load_rules(options.rules, std=options.std_rules))
    promoted = pipeline.promote(source, options) if target == "native" else None
    before = source.graph if promoted is None else promoted
    setup = pipeline.prepare(source.library, before.opset, options, pipeline.cost_models(before, options))
    limits = Limits(options.time_limit, options.node_limit)
    parts = Numbering(mark_bodies(before))
    graphs: list[GraphRun] = []
    with declared_operators(source.operators):
        for _ in range(1 + pipeline.BODY_ROUNDS):
            for start in parts.graphs[len(graphs) :]:
                graphs.append(_run_graph(start, setup, limits, target, parts))
    if len(parts.graphs) > len(graphs):
        raise NoTrail("rules made bodies again and again")
    after = replace_bodies(graphs[0].marked, lambda number: graphs[number + 1].marked)
    return Run(source, before, after, setup.rules, graphs)


def _run_graph(start: Graph, setup: Setup, limits: Limits, target: str, parts: Numbering) -> GraphRun:
    """Optimize one graph, and number the bodies in its result."""
    recorder = Recorder(target)
    for _, value in pipeline.optimize_graph(start, setup, lambda: limits, targets=(target,)):
        if isinstance(value, Chosen):
            recorder.add(value)
    decoded = pipeline.decode(recorder.recorded[-1].chosen, start)
    return GraphRun(start, decoded, parts.mark(decoded.graph), recorder.recorded)


def trail_of(found: Run, options: Options, goal: str | None = None) -> Trail:
    """Return the trail of an optimization; with `goal`, the name of a value of the result, only what it needs.

    Raises `NoTrail` if what was recorded does not suffice."""
    with declared_operators(found.source.operators):
        bodies: Bodies = {}
        starts = _starts(found)
        places = {number: at for at, number in enumerate(starts)}
        asked = None if goal is None else _graph_with(found, goal)
        graphs: list[GraphTrail] = []
        for number, part in ((number, found.graphs[number]) for number in starts):
            stages: Sequence[StageTrail] = [StageTrail([], [])]
            if asked in (None, number):
                stages = _Maker(found, part, options, goal, bodies).stages()
            outputs = part.start.outputs if number else ()
            graphs.append(GraphTrail(stages, _inner(part, places), *starts[number], outputs))
        return Trail(found.before.name, settings(options), graphs)


def _starts(found: Run) -> dict[int, tuple[str, Mapping[str, str]]]:
    """Return for each graph that the result has, by number, the digest of the body that it starts as, with new names of
    what that captures.

    A body that rules made is known by where it first stands."""
    starts: dict[int, tuple[str, Mapping[str, str]]] = {0: ("", {})}
    pending = [0]
    while pending:
        for (body, renamed), marked in _bodies(found.graphs[pending.pop(0)]):
            number = body_number(marked) + 1
            if number not in starts:
                own = is_marked(body)
                starts[number] = (body_digest(found.graphs[number].start if own else body), {} if own else renamed)
                pending.append(number)
    return starts


def _inner(part: GraphRun, places: Mapping[int, int]) -> list[Inner]:
    """Return the entries of the bodies in a result; `places` has the position of each graph in the trail."""
    return [
        Inner(places[body_number(marked) + 1], body_digest(body), renamed, new_names(marked) if is_marked(body) else {})
        for (body, renamed), marked in _bodies(part)
    ]


def _bodies(part: GraphRun) -> Iterator[tuple[tuple[Graph, Mapping[str, str]], Graph]]:
    return zip(part.decoded.names.bodies, direct_bodies(part.marked), strict=True)


def _graph_with(found: Run, name: str) -> int:
    """Return the number of the graph whose result has a node or value of a name; 0 if none has."""
    numbered = ((i, node) for i in _starts(found) for node in found.graphs[i].decoded.graph.nodes)
    return next((i for i, node in numbered if name in (node.name, *node.outputs)), 0)


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
    values of the model (`given`, in the first stage) and of the result by name."""

    full: Repetition
    part: StageTrail
    goals: list[tuple[int, int]]
    names: dict[str, int]
    given: dict[str, int]


class _Maker:
    """State of the making of the trail of one graph."""

    def __init__(self, run: Run, found: GraphRun, options: Options, goal: str | None, bodies: Bodies) -> None:
        self.rules = run.rules
        self.found = found
        self.options = options
        self.goal = goal
        self.contents = Contents.of(found.start, found.decoded.graph, bodies)
        standing = [
            (body, {name: renamed.get(name, name) for name in body.captures()})
            for body, renamed in found.decoded.names.bodies
        ]
        captured = {name: (name,) for name in found.start.captures()}
        self.result = Result(found.decoded.graph, standing, captured)

    def stages(self) -> list[StageTrail]:
        """Return the stages; those of a whole trail are checked."""
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
        return parts

    def _repeated(self) -> Iterator[_Repeated]:
        """Repeat all that each e-graph recorded, and yield it with its end."""
        replay, names = Replay.of(self.rules, self.found.start)
        for number, recorded in enumerate(self.found.recorded):
            last = number == len(self.found.recorded) - 1
            full = Repetition(replay, Translation(recorded.chosen.egraph, replay), len(replay.egraph.nodes))
            full.repeat(recorded.unions, recorded.reasons)
            part, goals, ends = self._ends(full, recorded, last=last)
            yield _Repeated(full, part, goals, {name: h for name, h in {**names, **ends}.items() if name}, names)
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
            own = [repeated[at].given[value] for value in values if value in repeated[at].given]
            pairs += [(start, h) for start in own for h in handles if full.equal(start, h)]
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
        graph, given = self.found.decoded.graph, {v for node in self.found.start.nodes for v in node.outputs}
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
                c = decoded.names.classes.get(name)
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
        stage.collect()
        try:
            if last:
                exact = self.options.numerics == "exact"
                goals, ends = reaches(stage, self.found.start, self.result, exact=exact)
            else:
                follows(stage)
                goals = [(root, stage.term(part.roots[name])) for name, root in tables.roots.items()]
                for number in part.chosen:
                    stage.term(number)
        except Gap as gap:
            count = len(full.gaps)
            more = f"; {count} steps could not be repeated, the first since {full.gaps[0]}" if count else ""
            raise NoTrail(f"{gap}{more}") from gap
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
        replay, _ = Replay.of(self.rules, self.found.start)
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
                    reaches(stage, self.found.start, self.result, exact=exact)
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
