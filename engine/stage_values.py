"""Values that the stages of `pipeline` pass on; each prints as a summary of a few lines.

E-graphs are mutable: a value that holds one describes it until a later stage continues with the same e-graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..system.short_text import clipped
from .cost.cost_model import CostModel
from .egraph.egraph import EGraph
from .extraction.decode import Naming
from .extraction.extract import Extraction
from .ir.graph import Graph
from .rewriting.rule_library import RuleSet
from .saturation.saturate import Saturation

if TYPE_CHECKING:
    from ..grammar.library.load import Library
    from .operators.schemas import Declared
    from .rewriting.evaluate import Evaluator

_SHOWN = 12  # operators or rules in a summary


def _repr(value: object) -> str:
    return f"<{type(value).__name__}: {clipped(str(value).partition(chr(10))[0], 120)}>"


@dataclass(frozen=True, slots=True)
class Setup:
    """What all stages of a run share: rules, the cost model of each target, the precision of products, the plan."""

    rules: RuleSet
    costs: Mapping[str, CostModel]
    precision: str = "f32"
    plan: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A model as read, with the rules it is optimized by and the operators that they declare for it."""

    graph: Graph
    library: Library
    operators: Mapping[str, Declared]

    __repr__ = _repr

    def __str__(self) -> str:
        return _summary(self.graph)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An e-graph with the nodes of one graph: of all of it, or only of those that extraction chose."""

    graph: Graph
    egraph: EGraph

    __repr__ = _repr

    def __str__(self) -> str:
        return _sizes(self.egraph)


@dataclass(frozen=True, slots=True)
class Saturated:
    """A saturated e-graph, the saturation report, and the rule context."""

    graph: Graph
    egraph: EGraph
    saturation: Saturation
    evaluator: Evaluator

    __repr__ = _repr

    def __str__(self) -> str:
        run = self.saturation
        applied = Counter({name: count.applied for name, count in run.counts.items() if count.applied})
        head = f"{run.iterations} iterations, then {run.stop_reason.replace('_', ' ')}"
        return f"{head}\n{_sizes(self.egraph)}\nrules applied: {_listed(applied)}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The e-nodes that extraction chose for a target: `portable` (ONNX) or `native` (our kernels)."""

    target: str
    egraph: EGraph
    extraction: Extraction

    __repr__ = _repr

    def __str__(self) -> str:
        found = self.extraction
        live = [handle for c, handle in found.choice.items() if c not in found.folded]
        bound = "" if found.bound is None else f", at least {1e3 * found.bound:.3g} ms"
        cost = f"predicted {1e3 * found.cost:.3g} ms{bound}, {len(found.folded)} classes folded"
        return f"{self.target}: {cost}\nchosen: {_listed(Counter(self.egraph.nodes[handle].op for handle in live))}"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The graph of a target, and what its names stand for."""

    target: str
    graph: Graph
    names: Naming

    __repr__ = _repr

    def __str__(self) -> str:
        return f"{self.target}: {_summary(self.graph)}"


def _summary(graph: Graph) -> str:
    """Return the size, the interface and the operators of a graph as two lines."""
    interface = f"{', '.join(graph.inputs)} → {', '.join(graph.outputs)}"
    head = f"{len(graph.nodes)} nodes, {len(graph.constants)} constants, {interface}"
    return f"{head}\noperators: {_listed(Counter(node.op for node in graph.nodes))}"


def _sizes(egraph: EGraph) -> str:
    operators = _listed(Counter(node.op for node in egraph.nodes))
    return f"{len(egraph.nodes):,} e-nodes in {len(egraph.classes()):,} classes: {operators}"


def _listed(counts: Counter[str]) -> str:
    first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = f", and {len(first) - _SHOWN} more" if len(first) > _SHOWN else ""
    return (", ".join(f"{name} ×{count}" for name, count in first[:_SHOWN]) or "none") + rest
