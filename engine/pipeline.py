"""Stages of the engine.

    read → encode → saturate → extract
                      |    → restrict → saturate for the file → extract → decode → export   the portable graph
                      ↘ lower precision → extract
                           → restrict → saturate for kernels → extract → decode             the native graph

A model that computes with 16-bit floats is promoted to f32 for the native graph. It goes through the stages twice:

    read → encode … extract → decode → export                                               the portable graph
       ↘ promote → encode … extract → decode                                                the native graph

Each stage is a function from value to value; `print(value)` summarizes it (`stage_values`). `optimizer` runs the part
`optimize_graph` in a child process, within limits of time and memory; `stages` runs everything here and yields the
value of each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..grammar.library.load import Library
from ..system.progress import Progress, ignore
from .cost.cost_model import CostModel
from .cost.cost_model import Target as CostTarget
from .cost.likely_sizes import likely_sizes
from .cost.machine import load as load_machine
from .egraph import encode as encoding
from .egraph.egraph import EGraph
from .extraction import decode as decoding
from .extraction import extract as extraction
from .extraction.restrict import restricted_egraph
from .ir.constants import ConstantInfo
from .ir.graph import Graph
from .onnx_io import exporter
from .onnx_io.importer import read as read_model
from .onnx_io.opsets import can_express
from .operators.schemas import declared_operators
from .options import Options
from .rewriting import float_promotion
from .rewriting.evaluate import Evaluator
from .rewriting.matching.compiled_patterns import CompiledRule
from .rewriting.rule_library import RuleSet, load_rules, operators_of, rule_set, traits_of
from .rewriting.schedule import Plan
from .saturation import precision_rules
from .saturation.saturate import Limits, Saturator
from .stage_values import Chosen, Decoded, Encoded, Saturated, Setup, Source

TARGETS = ("portable", "native")
"""The two results: a file, and a graph for our kernels."""
BODY_ROUNDS = 3
"""Maximum number of rounds over bodies of If, Loop and Scan that rules created."""
Stage = tuple[str, object]
"""The name of a stage and its value."""


def read(model: Any, options: Options, library: Library) -> Source:
    """Read a model: a path, bytes, a `ModelProto`, or a `Graph`, which is taken as it is."""
    if isinstance(model, Graph):
        return Source(model, library, operators_of(library, model.opset))
    declared = partial(operators_of, library)
    graph = read_model(model, shapes=options.shapes or None, declared=declared, mapped=options.mapped)
    return Source(graph, library, operators_of(library, graph.opset))


def promote(source: Source, options: Options) -> Graph | None:
    """Return the graph of a model with its 16-bit floats computed in f32; None if it computes with none."""
    # what operators are does not depend on which rules run
    libraries = [source.library] if options.std_rules else [load_rules((), std=True), source.library]
    traits = traits_of(libraries, source.graph.opset)
    with declared_operators(source.operators):
        if not float_promotion.needs_promotion(source.graph, traits):
            return None
        return float_promotion.promote(source.graph, traits, exact=options.numerics == "exact")


def cost_models(graph: Graph, options: Options) -> list[CostModel]:
    """Return the cost models of the results for a graph, whose free sizes are taken to be likely ones."""
    exact, likely = options.numerics == "exact", likely_sizes(graph)

    def model(target: CostTarget, isa: str) -> CostModel:
        machine = load_machine(isa=isa)
        return CostModel(options.cost, target, machine, options.threads, likely, exact=exact)  # type: ignore[arg-type]

    return [model("portable", ""), model("native", options.isa)]


def prepare(library: Library, opsets: Mapping[str, int], options: Options, costs: Sequence[CostModel]) -> Setup:
    """Select the rules that the options admit for a model that uses these opsets."""
    rules = rule_set(
        library, options.numerics, options.disabled,
        schedule=options.schedule, opsets=opsets, precision=options.precision,
    )  # fmt: skip
    return Setup(rules, {cost.target: cost for cost in costs}, options.precision, options.plan)


def encode(graph: Graph, setup: Setup, constants: Mapping[str, ConstantInfo] | None = None) -> Encoded:
    """Add a graph to a new e-graph. `constants` summarizes constants that are not in the graph."""
    egraph = EGraph.create(setup.rules.commutative)
    encoding.encode(graph, egraph, constants)
    return Encoded(graph, egraph)


def saturate(encoded: Encoded, setup: Setup, limits: Limits, progress: Progress = ignore) -> Saturated:
    """Run the schedule to its end; rules that lower the precision of products are excluded."""
    done = _run(encoded, precision_rules.general(setup.rules), setup.rules, limits, progress)
    later = setup.rules.native.rulesets() | setup.rules.portable.rulesets()  # their rulesets are not unscheduled
    done.saturation.unscheduled = tuple(name for name in done.saturation.unscheduled if name not in later)
    return done


def lower_precision(saturated: Saturated, setup: Setup, limits: Limits, *, for_kernels: bool = False) -> Saturated:
    """Run the rules that lower the precision of products: those that do not depend on layouts before kernels are
    chosen, the others after."""
    names = precision_rules.rulesets(saturated.egraph, setup.precision, for_kernels=for_kernels)
    if not names:
        return saturated
    done = precision_rules.run(saturated.egraph, names, setup.rules, limits, saturated.saturation)
    return Saturated(saturated.graph, saturated.egraph, done, saturated.evaluator)


def extract(
    value: Saturated, setup: Setup, target: str, effort: extraction.Limits | None = None,
    written: Collection[str] = (),
) -> Chosen:  # fmt: skip
    """Choose the cheapest admissible nodes for a target.

    A file may also contain the operators in `written`, whatever its opset."""
    opset, defined = value.graph.opset, setup.rules.declared
    lacking = frozenset(op for op in written if not can_express(op, {}, opset))
    cost, plan = replace(setup.costs[target], lacking=lacking), setup.plan if target == "native" else ""
    usable = extraction.admissible(value.egraph, cost.target, opset, defined, written)
    try:
        found = extraction.extract(value.egraph, cost, admissible=usable, limits=effort, plan=plan)
    except extraction.ExtractionError:
        # Some definition does not apply: the graph keeps its operator, and the backend says which and why.
        usable = extraction.admissible(value.egraph, cost.target, opset, ())
        found = extraction.extract(value.egraph, cost, admissible=usable, limits=effort, plan=plan)
    return Chosen(target, value.egraph, found)


def restrict(chosen: Chosen, graph: Graph, setup: Setup) -> Encoded:
    """Copy the chosen nodes to a separate e-graph, so that rules about kernels see nothing else."""
    return Encoded(graph, restricted_egraph(chosen.egraph, chosen.extraction, setup.rules.commutative))


def saturate_for_kernels(encoded: Encoded, setup: Setup, limits: Limits) -> Saturated:
    """Run the schedule `native`: layouts, algorithms and fusions of our own kernels."""
    rules = setup.rules
    saturated = _run(encoded, rules.rules, rules, limits, plan=rules.native)
    return lower_precision(saturated, setup, limits, for_kernels=True)


def extract_portable(saturated: Saturated, setup: Setup, remaining: Callable[[], Limits]) -> Iterator[Stage]:
    """Choose the graph of the file, in which an operator costs one dispatch even where its opset lacks it, if runtimes
    recognize it by its parts.

    Rules of the schedule `portable` then write its parts as runtimes recognize them, on an e-graph of the chosen
    nodes."""
    rules, opset = setup.rules, saturated.graph.opset
    written = rules.written()
    while True:
        yield "extract portable", (chosen := extract(saturated, setup, "portable", written=written))
        nodes = (
            chosen.egraph.nodes[h] for c, h in chosen.extraction.choice.items() if c not in chosen.extraction.folded
        )
        if not any(node.op in written and not can_express(node.op, node.attrs, opset) for node in nodes):
            return
        yield "restrict for the file", (restricted := restrict(chosen, saturated.graph, setup))
        general = precision_rules.general(rules)
        yield "saturate for the file", (done := _run(restricted, general, rules, remaining(), plan=rules.portable))
        refused = _unwritten(done, setup, written)
        if not refused:
            break
        written -= refused
    yield "extract portable", extract(done, setup, "portable")


def _unwritten(saturated: Saturated, setup: Setup, written: frozenset[str]) -> set[str]:
    """Return the operators among `written` of which a node has no form at the model's opset: no rule applied to it."""
    egraph = saturated.egraph
    usable = extraction.admissible(egraph, "portable", saturated.graph.opset, setup.rules.declared)
    stuck = (members for members in egraph.classes().values() if not any(map(usable, members)))
    return {egraph.nodes[h].op for members in stuck for h in members} & written


def decode(chosen: Chosen, original: Graph, terms: decoding.TermValues | None = None) -> Decoded:
    """Make a graph of the chosen nodes; `original` has the constants and the names."""
    return Decoded(chosen.target, *decoding.decode_named(chosen.egraph, chosen.extraction, original, evaluated=terms))


def export(graph: Graph) -> Any:
    """Write a graph as a `ModelProto` at the input's opset."""
    return exporter.write(graph)


def optimize_graph(
    graph: Graph, setup: Setup, remaining: Callable[[], Limits],
    constants: Mapping[str, ConstantInfo] | None = None, progress: Progress = ignore,
    targets: Sequence[str] = TARGETS,
) -> Iterator[Stage]:  # fmt: skip
    """Run the stages from encoding to the last extraction on one graph; `remaining` returns the remaining limits.

    `progress` gets two stages, alternately: saturations, and what chooses graphs after them."""
    limits = remaining()
    yield "encode", (encoded := encode(graph, setup, constants))
    yield "saturate", (saturated := saturate(encoded, setup, limits, progress))
    progress("extract", {})
    if "portable" in targets:
        yield from extract_portable(saturated, setup, remaining)
    if "native" not in targets:
        return
    lowered = lower_precision(saturated, setup, limits)
    if lowered is not saturated:
        yield "lower precision", lowered
    yield "extract native", (chosen := extract(lowered, setup, "native"))
    operators = {chosen.egraph.nodes[handle].op for handle in chosen.extraction.choice.values()}
    if precision_rules.late(setup.precision) or setup.rules.needs_kernel_rules(operators):
        yield "restrict", (restricted := restrict(chosen, graph, setup))
        progress("saturate", {})
        yield "saturate for kernels", (kernels := saturate_for_kernels(restricted, setup, remaining()))
        progress("extract", {})
        yield "extract native", extract(kernels, setup, "native", extraction.REGIONS)


def stages(model: Any, options: Options | None = None) -> Iterator[Stage]:
    """Optimize a model in this process and yield the name and value of every stage.

    Of a model with control flow these are the stages of its main graph. Rules are not stopped by a memory limit."""
    options = options or Options()
    source = read(model, options, load_rules(options.rules, std=options.std_rules))
    yield "read", source
    limits = Limits(options.time_limit, options.node_limit)
    setup = prepare(source.library, source.graph.opset, options, cost_models(source.graph, options))
    runs: list[tuple[Graph, Sequence[str]]] = [(source.graph, TARGETS)]
    if (promoted := promote(source, options)) is not None:
        yield "promote", promoted
        runs = [(source.graph, TARGETS[:1]), (promoted, TARGETS[1:])]
    with declared_operators(source.operators):
        for graph, targets in runs:
            chosen: dict[str, Chosen] = {}
            for name, value in optimize_graph(graph, setup, lambda: limits, targets=targets):
                yield name, value
                if isinstance(value, Chosen):
                    chosen[value.target] = value
            for found in chosen.values():
                yield "decode", (decoded := decode(found, graph))
                if decoded.target == "portable":
                    yield "export", export(decoded.graph)


def _run(
    encoded: Encoded, chosen: Sequence[CompiledRule], rules: RuleSet, limits: Limits,
    progress: Progress = ignore, plan: Plan | None = None,
) -> Saturated:  # fmt: skip
    saturator = Saturator(
        Evaluator(encoded.egraph, rules.declared, rules.kinds), chosen, limits, plan=plan or rules.plan,
        progress=lambda iteration, nodes: progress("saturate", {"iterations": iteration, "nodes": nodes}),
    )  # fmt: skip
    return Saturated(encoded.graph, encoded.egraph, saturator.run(), saturator.context)
