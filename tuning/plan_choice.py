"""Choice of a model's graph by measurement: the cost model proposes plans, the machine decides.

Each plan of `engine.extraction.plans` is extracted, and those that differ are compiled as whole models, the cheapest
ones by the cost model first. They run in a child process, copies of each in turn with copies of the graph that the cost
model prefers. Another plan is kept if it is faster, and gives the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backend.compile_model import compile_optimized, plan_key
from ..backend.ir.target import costs_of, parse_targets, runs_here, thread_count
from ..backend.schedules.plan_records import PlanFile, PlanRecord
from ..engine import pipeline
from ..engine.ir.graph import content_text
from ..engine.optimizer import optimize_native
from ..engine.options import PLANS, Options
from ..engine.verification.random_inputs import assignments, make_inputs
from ..errors import RewriteError, UserError
from ..system import scoped
from ..system.progress import Progress, ignore
from .measuring_process import CandidateDied, MeasuringProcess, measuring_cores, places
from .race import TOLERANCE

if TYPE_CHECKING:
    from ..backend.schedules.records import Records
    from ..engine.ir.graph import Graph
    from ..engine.optimizer import NativeOnly

FASTER = 0.98
"""Time relative to the cost model's graph up to which another plan is kept: copies of one program differ by 1 %."""
PROPOSED = 4
"""Plans that are measured at most, that of the cost model included."""
_ROUNDS, _SECONDS = 9, 600.0
_LOWERED = 0.05  # difference of results that a lower precision of products admits


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan: `predicted` seconds of a run by the cost model, `measured` ones (0 if it did not run).

    `ratio` is its time relative to the cost model's graph beside it. `problem` says why it is not used: `wrong`
    results, a `crash`, a `timeout`, or an `error`; empty otherwise."""

    plan: str
    predicted: float
    measured: float = 0.0
    ratio: float = 1.0
    problem: str = ""


@dataclass(frozen=True)
class PlanChoice:
    """The plan that was fastest, empty if it is that of the cost model, and all that were measured."""

    plan: str
    plans: tuple[MeasuredPlan, ...]

    @property
    def gain(self) -> float:
        """Time of the cost model's graph over that of the plan."""
        return next((1 / found.ratio for found in self.plans if found.plan == self.plan), 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return the result as docs/json.md describes it."""
        plans = [
            {
                "plan": found.plan, "predicted_s": found.predicted, "measured_s": found.measured,
                "ratio": found.ratio, "problem": found.problem,
            }
            for found in self.plans
        ]  # fmt: skip
        return {"plan": self.plan, "gain": self.gain, "measured": plans}

    def __str__(self) -> str:
        others = len(self.plans) - 1
        if not others:
            return "all plans are the cost model's graph"
        if not self.plan:
            return f"the cost model's graph is the fastest of {others + 1}"
        return f"{self.plan} is {self.gain:.2f} times as fast as the cost model's graph, of {others + 1} measured"


@dataclass(frozen=True)
class _Proposal:
    plan: str
    optimized: NativeOnly
    predicted: float


def choose_plan(
    model: Any, options: Options, *, threads: int | None = None, target: str = "native", key: str | None = None,
    progress: Progress = ignore, most: int = PROPOSED,
) -> PlanChoice:  # fmt: skip
    """Measure the graphs that plans give for a model, and record the fastest under `key`, if there is one.

    Raises UserError if this CPU cannot run the target, if the model does not run on random inputs, or without a C
    compiler."""
    [kind] = parse_targets(target)[:1]
    if "," in target or not runs_here(kind):
        raise UserError(f"this CPU cannot run kernels for {target!r}", hint="Measure for one target that runs here.")
    first, *others = _proposals(model, options, progress)
    others = sorted(others, key=lambda proposal: proposal.predicted)[: most - 1]
    plans = [MeasuredPlan(first.plan, first.predicted)]
    if others:
        progress("compile", {})
        count = thread_count(threads)
        with (
            scoped.directory("plans") as folder,
            measuring_cores(count) as cores,
            MeasuringProcess(cores, 0) as process,
        ):
            race = _Race(process, folder, count, target, options.precision)
            plans = race.run(first, others, progress)
    best = min((found for found in plans if not found.problem), key=lambda found: found.ratio)
    choice = PlanChoice(best.plan if best.ratio <= FASTER else "", tuple(plans))
    if key is not None:
        ratios = {found.plan or "model": found.ratio for found in plans if not found.problem}
        PlanFile().append(PlanRecord(key, choice.plan, ratios))
    return choice


def measured_plan(
    model: Any, options: Options, threads: int, target: str, records: Records, progress: Progress
) -> tuple[Options, PlanChoice]:
    """Measure and record the fastest plan of a model, and return the options with it."""
    options = replace(options, plan="", isa=costs_of(target))
    key = plan_key(model, options, threads, target, records)
    choice = choose_plan(model, options, threads=threads, target=target, key=key, progress=progress)
    return replace(options, plan=choice.plan), choice


def _proposals(model: Any, options: Options, progress: Progress) -> list[_Proposal]:
    """Return the distinct graphs of all plans, that of the cost model first."""
    found: list[_Proposal] = []
    seen: set[str] = set()
    for plan in ("", *PLANS):
        optimized = optimize_native(model, replace(options, plan=plan), progress)
        if (graph := _text(optimized.native)) not in seen:
            seen.add(graph)
            _, cost = pipeline.cost_models(optimized.native, options)
            found.append(_Proposal(plan, optimized, cost.graph_cost(optimized.native)))
    return found


def _text(graph: Graph) -> str:
    """Return a text that equal graphs share: names of the same e-graph's values are stable."""
    nodes = [(node.op, node.inputs, node.outputs, sorted(node.attrs.items())) for node in graph.nodes]
    return content_text([nodes, sorted((name, constant.digest) for name, constant in graph.constants.items())])


class _Race:
    """The measurement of compiled plans in a child process."""

    def __init__(self, process: MeasuringProcess, folder: Path, threads: int, target: str, precision: str) -> None:
        self._process, self._folder, self._threads, self._target = process, folder, threads, target
        self._tolerance = TOLERANCE if precision == "f32" else _LOWERED
        self._feeds: Mapping[str, Any] = {}

    def run(self, first: _Proposal, others: list[_Proposal], progress: Progress) -> list[MeasuredPlan]:
        """Compile, check and compare; return what was measured, the cost model's graph first."""
        bundles = [self._compiled(proposal, progress) for proposal in (first, *others)]
        self._feeds = self._runnable(bundles[0], first.optimized.native)
        progress("bench", {})
        base, found = 0.0, []
        for proposal, bundle in zip(others, bundles[1:], strict=True):
            try:
                measured, ours = self._compared(bundles[0], proposal, bundle)
            except CandidateDied as died:
                measured, ours = MeasuredPlan(proposal.plan, proposal.predicted, problem=died.reason), 0.0
            except RewriteError:
                measured, ours = MeasuredPlan(proposal.plan, proposal.predicted, problem="error"), 0.0
            base = base or ours
            found.append(measured)
        return [MeasuredPlan(first.plan, first.predicted, base), *found]

    def _compiled(self, proposal: _Proposal, progress: Progress) -> Path:
        program = compile_optimized(proposal.optimized, threads=self._threads, target=self._target, progress=progress)
        path = self._folder / (proposal.plan or "model")
        program.save(path)
        return path

    def _runnable(self, bundle: Path, graph: Graph) -> Mapping[str, Any]:
        """Load the cost model's graph, and return inputs on which it runs."""
        refused = ""
        for sizes in assignments(graph):
            feeds = make_inputs(graph, sizes)
            try:
                self._process.load(0, bundle, feeds, _SECONDS)
            except RewriteError as error:
                refused = str(error)
            else:
                return feeds
        raise UserError(f"no sizes found for which the model runs: {refused}", hint="Give them with --shape.")

    def _compared(self, base: Path, proposal: _Proposal, bundle: Path) -> tuple[MeasuredPlan, float]:
        """Return what was measured of a plan, and the seconds of the cost model's graph beside it."""
        base_at, own_at = places(base)
        if not self._process.is_running:
            self._process.load(0, base, self._feeds, _SECONDS)
        difference = self._process.load(1, bundle, self._feeds, _SECONDS)
        if not difference <= self._tolerance:
            self._process.drop(1)
            return MeasuredPlan(proposal.plan, proposal.predicted, problem="wrong"), 0.0
        for number, path in ((n, path) for at, path in ((base_at, base), (own_at, bundle)) for n in at[1:]):
            self._process.load(number, path, self._feeds, _SECONDS)
        before, after, _, _ = self._process.compare(base_at, own_at, _ROUNDS, _SECONDS)
        for number in own_at:
            self._process.drop(number)
        return MeasuredPlan(proposal.plan, proposal.predicted, after, after / before), before
