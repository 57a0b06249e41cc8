"""Task of the saturation process: the stages from encoding to extraction, for each graph of a model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ..grammar.library.load import Library
from ..system.progress import Progress, ignore
from . import pipeline
from .cost.cost_model import CostModel
from .ir.bodies import all_bodies, body_number
from .ir.constants import ConstantInfo, summarize
from .ir.description import Description
from .ir.graph import Graph
from .operators.schemas import declared_operators, standard_signature
from .options import Options
from .rewriting.rule_library import load_rules, operators_of, parsed_standard_rules
from .saturation.saturate import Limits, Saturation
from .saturation.why_not import NearMiss, WhyNot, why_not
from .stage_values import Chosen, Saturated, Setup

_ready: list[Library] = []
"""The standard library, loaded before the job arrived; for this process, which has one job."""
_NUMBERS = 2000
"""Numbers of a list that take as long to be sent and compared as a node."""
_LARGE = 1 << 16
"""Bytes from which a constant is summarized in a thread."""


@dataclass(slots=True)
class Outcome:
    """Result for one graph: the nodes chosen for each target, the saturation report, the answer to --why-not, and where
    rules that changed nothing came closest.

    `seconds` are wall-clock times by stage, `computed` is the processor time of all stages."""

    chosen: dict[str, Chosen]
    saturation: Saturation
    seconds: dict[str, float] = field(default_factory=dict)
    why_not: WhyNot | None = None
    near_misses: dict[str, NearMiss] = field(default_factory=dict)
    computed: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """The graphs to optimize (a main graph and the bodies in it), the options, and the remaining limits.

    The main graph comes without its constants, which `constants` summarizes. `targets` are the results to extract."""

    graphs: Sequence[Graph]
    constants: Mapping[str, ConstantInfo]
    options: Options
    costs: Sequence[CostModel]
    limits: Limits
    targets: Sequence[str] = pipeline.TARGETS

    @classmethod
    def of(
        cls, graph: Graph, options: Options, costs: Sequence[CostModel], targets: Sequence[str] = pipeline.TARGETS
    ) -> Job:
        """Make the job for a graph with marked bodies and for the bodies in it."""
        constants = graph.constants
        large = {name: constant for name, constant in constants.items() if constant.nbytes >= _LARGE}
        with ThreadPoolExecutor(2) as pool:  # hashing them releases the interpreter's lock
            found = dict(zip(large, pool.map(summarize, large.values()), strict=True))
        infos = {name: found.get(name) or summarize(constant) for name, constant in constants.items()}
        bodies = sorted(all_bodies(graph), key=body_number)
        limits = Limits(options.time_limit, options.node_limit)
        light = replace(graph, constants={}, about=Description())
        return cls((light, *bodies), infos, options, costs, limits, targets)

    @property
    def memory(self) -> int:
        """Bytes that the job may use."""
        return self.options.memory_limit << 20

    @property
    def size(self) -> int:
        """Nodes of all graphs; some thousand numbers in the attributes of one take as long as another."""
        nodes = [node for graph in self.graphs for node in graph.nodes]
        lists = (value for node in nodes for value in node.attrs.values() if isinstance(value, tuple))
        return len(nodes) + sum(map(len, lists)) // _NUMBERS

    def within(self, limits: Limits) -> Job:
        """Return the same job with other limits."""
        return replace(self, limits=limits)

    def __call__(self, progress: Progress = ignore, library: Library | None = None) -> list[Outcome]:
        """Optimize the graphs in turn, each in the time that the ones before it left."""
        if library is None:
            standard = self.options.std_rules and not self.options.rules
            library = _ready[0] if standard and _ready else load_rules(self.options.rules, std=self.options.std_rules)
        opsets = self.graphs[0].opset
        setup = pipeline.prepare(library, opsets, self.options, self.costs)
        end = time.process_time() + self.limits.seconds
        outcomes = []

        def of_bodies(_: str, facts: Mapping[str, Any]) -> None:
            progress("saturate", facts)  # there may be many: they are one stage

        with declared_operators(operators_of(library, opsets)):
            for i, graph in enumerate(self.graphs):
                limits = replace(self.limits, seconds=max(0.0, end - time.process_time()))
                reported = of_bodies if i else progress
                outcomes.append(_optimize(self, graph, {} if i else self.constants, setup, limits, reported))
        return outcomes


def warm_up() -> Iterator[None]:
    """Do in steps what a job of the child process begins with, while the parent reads the model."""
    standard_signature("Identity")  # imports `onnx`, which takes a tenth of a second
    yield
    library = parsed_standard_rules()
    if library is not None:
        _ready[:] = [library]
        yield
        for entry in library.entries:
            if entry.kind == "Op" and "." not in entry.name:  # declared for every model
                _ = entry.item


def _optimize(
    job: Job, graph: Graph, constants: Mapping[str, ConstantInfo], setup: Setup, limits: Limits, progress: Progress
) -> Outcome:
    """Run the stages on one graph of a job, and record the time of each."""
    begun, last = time.process_time(), time.perf_counter()
    chosen: dict[str, Chosen] = {}
    runs: dict[str, Saturated] = {}
    seconds: dict[str, float] = {}

    def remaining() -> Limits:
        return replace(limits, seconds=max(0.0, limits.seconds - (time.process_time() - begun)))

    for stage, value in pipeline.optimize_graph(graph, setup, remaining, constants, progress, job.targets):
        now = time.perf_counter()
        seconds[stage], last = seconds.get(stage, 0.0) + now - last, now
        if isinstance(value, Chosen):
            chosen[value.target] = value
        elif isinstance(value, Saturated):
            runs[stage] = value
    saturation = runs.get("lower precision", runs["saturate"]).saturation
    for later in ("saturate for the file", "saturate for kernels"):
        if later in runs:
            saturation.add(runs[later].saturation)
    # last, because it adds the right sides that it tries to the e-graph
    missed = _why_not(runs, setup, job.options.why_not) if job.options.why_not else None
    near = _near_misses(runs, setup, saturation) if job.options.near_misses else {}
    return Outcome(chosen, saturation, seconds, missed, near, time.process_time() - begun)


def _near_misses(runs: Mapping[str, Saturated], setup: Setup, saturation: Saturation) -> dict[str, NearMiss]:
    """Return where each rule that changed nothing came closest to it, if anywhere."""
    idle = [name for name, count in saturation.counts.items() if not count.applied]
    answers = {name: _why_not(runs, setup, name) for name in idle}
    return {name: found.misses[0] for name, found in answers.items() if found is not None and found.misses}


def _why_not(runs: Mapping[str, Saturated], setup: Setup, name: str) -> WhyNot | None:
    """Explain a rule on the e-graph that it runs on."""
    rules, own_rulesets = setup.rules, setup.rules.native.rulesets() - setup.rules.plan.rulesets()
    asked = [rule for rule in rules.rules if rule.name == name]
    own = [rule for rule in asked if rule.ruleset in own_rulesets]
    on: Any = runs["saturate"]
    if own and "saturate for kernels" in runs:
        asked, on = own, runs["saturate for kernels"]
    return why_not(on.evaluator, asked) if asked else None
