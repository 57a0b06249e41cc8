"""The pipeline as users call it: around its stages a child process, retries, limits, progress, bodies, the report.

`optimize` reads the model while the child imports the engine, hands it the graphs, decodes what comes back, and
repeats that for bodies of If, Loop and Scan that rules created.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UserError
from ..grammar.library.load import Library
from ..system.progress import Progress, ignore
from ..system.short_text import clipped
from . import pipeline
from .cost.cost_model import CostModel
from .extraction.decode import TermValues
from .graph_job import Job, Outcome
from .ir import bodies
from .ir.graph import Graph, Requirement
from .operators.schemas import Declared, declared_operators
from .operators.size_requirements import size_requirements
from .options import NUMERICS, Options
from .report import Report, make_report
from .rewriting.rule_library import load_rules, recognitions
from .rewriting.schedule import make_plan
from .saturation import child_process, degraded_retry
from .saturation.child_process import Child
from .saturation.saturate import Limits
from .saturation.why_not import NearMiss, WhyNot, combined
from .stage_values import Source

if TYPE_CHECKING:
    from onnx import ModelProto

    from ..pages.page import Page
    from .trails.trail import Trail
    from .verification.verify import Verification

LOG = logging.getLogger("rewrite.engine")
_T = TypeVar("_T")


@dataclass
class Optimized:
    """Result of optimizing a model.

    `graph_in` is the model as read, `portable` the graph that `model` is written from (standard operators at the
    input's opset), `native` the graph for our own kernels. `library` holds the rules, `operators` those that the
    library declares for this model. `why_not` explains the rule that the options name, `near_misses` has where rules
    that changed nothing came closest. `costs` are the cost models of the results, by target."""

    graph_in: Graph
    portable: Graph
    native: Graph
    report: Report
    options: Options
    library: Library = field(repr=False)
    operators: Mapping[str, Declared] = field(default_factory=dict, repr=False)
    why_not: WhyNot | None = None
    near_misses: Mapping[str, NearMiss] = field(default_factory=dict, repr=False)
    costs: Mapping[str, CostModel] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"<Optimized {clipped(self.graph_in.name, 30)}: {self.report.summary()}; .model, .show()>"

    @cached_property
    def model(self) -> ModelProto:
        """The optimized ONNX model, written on first access."""
        return pipeline.export(self.portable)  # type: ignore[no-any-return]

    def expanded(self) -> tuple[ModelProto, ModelProto]:
        """Return the original and the result with operators from outside the standard replaced by their definitions.

        Raises `UserError` if one has none."""
        from .rewriting.definition_expansion import expand_definitions

        before, after = (pipeline.export(expand_definitions(g, self.operators)) for g in (self.graph_in, self.portable))
        return before, after

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def page(self) -> Page:
        """Return the report as an HTML page: both graphs with their derivations, predicted costs, rules."""
        from ..pages.page import make_page

        return make_page("report", self.graph_in.name, {**self.report.as_json(), **self.pictures()})

    def pictures(self) -> dict[str, Any]:
        """Return what a report shows besides `report`: graphs, near misses, texts of rules (docs/json.md)."""
        from .pictures import graph_data  # slow to import

        matched = {rule.name for rule in self.report.rules if rule.matches}
        made = {name for graph in (self.portable, self.native) for node in graph.nodes for name in node.rules}
        return {
            "graphs": graph_data.graphs_data(self.graph_in, self.portable, self.native, self.costs),
            "near_misses": graph_data.near_miss_data(self.near_misses),
            "rule_texts": graph_data.rule_sources(self.library, matched | made),
        }

    def show(self) -> None:
        """Show the report in the notebook, or in the browser; `rewrite MODEL --report` measures the kernels, too."""
        self.page().show()

    def explain(self, node: str) -> list[str]:
        """Return the history of a node of the result, or of the original model, as lines of text."""
        from .extraction.provenance import explain

        return explain(self.graph_in, self.portable, node)

    def trail(self, node: str | None = None) -> Trail:
        """Return the steps that lead from the model to `portable`; with `node`, a node or value of it, those that it
        needs. The optimization is run again in this process, with its e-graphs kept.

        Raises `UserError` for a name that the result does not have."""
        from .trails import make

        return make.trail_of(make.run(self.graph_in, self.options), self.options, node)

    def verify(self, original: Any, *, seconds: float = 60.0) -> Verification:
        """Run the original and the optimized model on the same inputs and compare; see `check_model`."""
        from .verification.verify import check_model

        return check_model(
            original, self.model, self.graph_in,
            numerics=self.options.numerics, seconds=seconds, expand=self.expanded,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NativeOnly:
    """The graph for our own kernels without that of a file: all that a program is compiled from.

    `is_repeatable` says whether another run ends with the same graph; the others are attributes of `Optimized`."""

    native: Graph
    options: Options
    library: Library = field(repr=False)
    is_repeatable: bool


def optimize(
    model: Any, options: Options | None = None, progress: Progress | None = None, child: Child | None = None
) -> Optimized:
    """Optimize a model: a path, bytes, a `ModelProto` or a `Graph`.

    `child` is a process that was started before this module was imported, to save time; None starts one. Raises
    `UserError` for bad models and rules, with everything that is wrong. Warns with `SaturationWarning` where saturation
    exceeds its limits of time or memory, and returns the best result within them."""
    options, clock = options or Options(), _StageTimer(progress or ignore)
    library, source, works = _optimized(model, options, clock, child, pipeline.TARGETS)
    portable, native = (clock("extract", work.assembled, target) for work in works for target in work.targets)
    first, last = works[0].outcomes[0], works[-1].outcomes[0]
    if last is not first:
        first.saturation.add(last.saturation)
    seconds = clock.seconds | {f"saturate.{stage}": value for stage, value in last.seconds.items()}
    graphs, extraction = (source.graph, portable, native), first.chosen["portable"].extraction
    with declared_operators(source.operators):
        cost = works[0].costs[0]
        report = make_report(library, graphs, first.saturation, extraction, cost, options.precision, seconds)
    missed = combined([outcome.why_not for work in works for outcome in work.outcomes if outcome.why_not])
    near = {name: miss for work in works for outcome in work.outcomes for name, miss in outcome.near_misses.items()}
    costs: dict[str, CostModel] = {model.target: model for model in works[0].costs}
    return Optimized(
        source.graph, portable, native, report, options, library, source.operators, missed, near, costs
    )  # fmt: skip


def optimize_native(
    model: Any, options: Options | None = None, progress: Progress | None = None, child: Child | None = None,
    on_graph: Callable[[Graph], None] = lambda graph: None,
) -> NativeOnly:  # fmt: skip
    """Optimize a model for our own kernels alone, which takes less time than `optimize`; the graph is the same.

    `on_graph` is called with the model's graph before it is optimized."""
    options, clock = options or Options(), _StageTimer(progress or ignore)
    library, _, (work,) = _optimized(model, options, clock, child, ("native",), on_graph)
    native = clock("extract", work.assembled, "native")
    return NativeOnly(native, options, library, work.outcomes[0].saturation.is_repeatable)


def _optimized(
    model: Any, options: Options, clock: _StageTimer, child: Child | None, targets: Sequence[str],
    on_graph: Callable[[Graph], None] = lambda graph: None,
) -> tuple[Library, Source, list[_ModelGraphs]]:  # fmt: skip
    """Read a model and optimize its graphs for some targets."""
    with contextlib.nullcontext(child) if child is not None else child_process.start() as child:
        library = clock("rules", load_rules, options.rules, std=options.std_rules)
        _check_names(library, options)
        source = clock("read", pipeline.read, model, options, library)
        on_graph(source.graph)
        return library, source, _run(clock("read", _works, source, options, targets), clock, child)


def _works(source: Source, options: Options, targets: Sequence[str]) -> list[_ModelGraphs]:
    """Return the graphs to optimize: one for all targets, or one for each if kernels need another than the file."""
    promoted = pipeline.promote(source, options)
    if promoted is None:
        return [_ModelGraphs(source, source.graph, options, targets)]
    graphs = {"portable": source.graph, "native": promoted}
    return [_ModelGraphs(source, graphs[target], options, (target,)) for target in targets]


def _run(works: list[_ModelGraphs], clock: _StageTimer, child: Child) -> list[_ModelGraphs]:
    """Optimize the last of some graphs in `child`, the others beside it in children of their own; return all."""
    *others, last = works
    with ThreadPoolExecutor(max(1, len(others))) as pool, ExitStack() as stack:
        children = [stack.enter_context(child_process.start()) for _ in others]
        running = [pool.submit(work.run, _StageTimer(ignore), its) for work, its in zip(others, children, strict=True)]
        last.run(clock, child)
        for done in running:
            done.result()
    return works


class _StageTimer:
    """Stage timer: reports each stage and adds up its time."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[..., _T], *args: Any, **options: Any) -> _T:
        self.progress(stage, {})
        start = time.perf_counter()
        result = work(*args, **options)
        seconds = time.perf_counter() - start
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        LOG.info("%s: %.2f s", stage, seconds)
        return result


class _ModelGraphs:
    """The graphs of a model: its main graph, the bodies in it, the bodies that rules create; and their results for some
    targets."""

    def __init__(self, source: Source, graph: Graph, options: Options, targets: Sequence[str]) -> None:
        self.source, self.options, self.targets = source, options, targets
        self.costs = pipeline.cost_models(graph, options)
        self.parts = bodies.Numbering(bodies.mark_bodies(graph))
        self.outcomes: list[Outcome] = []
        self._decoded: dict[str, list[Graph]] = {target: [] for target in targets}
        self._terms = TermValues()

    def run(self, clock: _StageTimer, child: Child | None) -> None:
        """Do all jobs, the first one in a child process that waits for it."""

        def report(stage: str, facts: Mapping[str, Any]) -> None:
            clock.progress(stage, facts)
            _ = self._required  # while the child works

        for job in self.jobs():
            self.outcomes += clock("saturate", degraded_retry.run, job, report, child)
            child = None  # a child runs one job only
            clock("extract", self.decode)

    def jobs(self) -> Iterator[Job]:
        """Yield the job for the graphs of the model, then those for new bodies, in the time that is left."""
        done = len(self.parts.graphs)
        first = Job.of(self.parts.graphs[0], self.options, self.costs, self.targets)
        yield first
        for _ in range(pipeline.BODY_ROUNDS):
            new = tuple(self.parts.graphs[done:])
            if not new:
                return
            done += len(new)
            left = max(0.0, self.options.time_limit - sum(outcome.computed for outcome in self.outcomes))
            yield replace(first, graphs=new, constants={}, limits=Limits(left, self.options.node_limit))

    def decode(self) -> None:
        """Decode the outcomes that are not decoded yet, and number the bodies that they contain."""
        with declared_operators(self.source.operators):
            for target, graphs in self._decoded.items():
                for number in range(len(graphs), len(self.outcomes)):
                    chosen, original = self.outcomes[number].chosen[target], self.parts.graphs[number]
                    graphs.append(self.parts.mark(pipeline.decode(chosen, original, self._terms).graph))

    def assembled(self, target: str) -> Graph:
        """Return the main graph for a target with the optimized bodies in it, and with what the model requires."""
        graphs = self._decoded[target]

        def body(number: int) -> Graph:
            return (graphs if number + 1 < len(graphs) else self.parts.graphs)[number + 1]

        return replace(bodies.replace_bodies(graphs[0], body), requirements=self._required)

    @cached_property
    def _required(self) -> tuple[Requirement, ...]:
        """What the sizes of the model's inputs have to meet."""
        with declared_operators(self.source.operators):
            return size_requirements(self.source.graph)


def _check_names(library: Library, options: Options) -> None:
    """Raise `UserError` for an unknown schedule, and for a rule to explain that is unknown or not admitted."""
    make_plan(options.schedule, library.schedules, library.rulesets)
    name = options.why_not
    if name is None:
        return
    classes = {rule.name: rule.numerics for rule in (*recognitions(library), *library.rules)}
    if name not in classes:
        near = difflib.get_close_matches(name, classes, 3)
        hint = f"Did you mean {', '.join(near)}?" if near else "`rewrite rules` lists all rules."
        raise UserError(f"unknown rule {name!r}", hint=hint)
    found, admitted = classes[name], options.numerics
    if NUMERICS.index(found) > NUMERICS.index(admitted):
        message = f"rule {name!r} does not run: its class is {found}, and this run admits only {admitted}"
        raise UserError(message, hint=f"Use --numerics {found}.")
