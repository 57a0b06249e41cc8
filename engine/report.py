"""What a run reports: the values behind the final table and `--json` (documented in `docs/json.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .operators import LOWER_PRECISION

if TYPE_CHECKING:
    from ..grammar.library import Library
    from .cost import CostModel
    from .graph import Graph
    from .worker import Outcome


@dataclass(slots=True)
class RuleReport:
    """One rule in one run: how often it matched, changed the e-graph, and how many nodes of the result it made."""

    name: str
    file: str
    line: int
    matches: int
    applied: int
    in_result: int
    seconds: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Report:
    """A run in figures. Costs are in the unit of the cost model, times in seconds by stage."""

    nodes_before: int
    nodes_after: int
    cost_before: float
    cost_after: float
    seconds: dict[str, float]
    egraph: dict[str, Any]
    rules: list[RuleReport]
    extraction: dict[str, Any]
    precision: dict[str, Any]
    verify: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """The report that `as_json` gave. Raises TypeError or KeyError for anything else."""
        return cls(**{**data, "rules": [RuleReport(**rule) for rule in data["rules"]]})


def count_nodes(graph: Graph) -> int:
    """The nodes of a graph and of the graphs inside it."""
    return sum(1 + sum(count_nodes(body) for _, body in node.subgraphs()) for node in graph.nodes)


def make_report(
    library: Library,
    before: Graph,
    after: Graph,
    native: Graph,
    outcome: Outcome,
    cost: CostModel,
    seconds: dict[str, float],
    precision: str = "f32",
) -> Report:
    """The report of a run, with how many products are done in the `precision` asked for.

    `in_result` counts the nodes of both results that carry the rule's name."""
    made: dict[str, int] = {}
    for graph in (after, native):
        for node in graph.nodes:
            for rule in node.rules:
                made[rule] = made.get(rule, 0) + 1
    places = library.places()
    places |= {f"{way}_{name}": place for name, place in places.items() for way in ("recognise", "define")}
    if not outcome.saturation.counts.keys() <= places.keys():
        raise UserError("a rule file was changed while it was in use", hint="Run again.")
    rules = [
        RuleReport(
            name, *places[name], count.matches, count.applied, made.get(name, 0), count.seconds,
            count.reason,
        )
        for name, count in outcome.saturation.counts.items()
    ]  # fmt: skip
    saturation, extraction = outcome.saturation, outcome.extractions["portable"]
    return Report(
        nodes_before=before.written or count_nodes(before),
        nodes_after=count_nodes(after),
        cost_before=cost.graph_cost(before),
        cost_after=cost.graph_cost(after),
        seconds=seconds,
        egraph={
            "classes": saturation.classes,
            "nodes": saturation.nodes,
            "iterations": saturation.iterations,
            "stop_reason": saturation.stop_reason,
            "limited": saturation.limited,
            "limits": [asdict(met) for met in saturation.limits],
            "unscheduled": list(saturation.unscheduled),
        },
        rules=rules,
        extraction={"method": extraction.method, "bound": extraction.bound, "gap": _gap(extraction)},
        precision={"asked": precision, **_products(native, precision)},
    )


_PRODUCTS = ("MatMul", "Gemm", "Conv")


_BYTES = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")


def _products(graph: Graph, precision: str) -> dict[str, int]:
    """How many products with constants the native graph has in that precision, and how many in f32."""
    ops = [node.op for node in graph.nodes if any(v in graph.constants for v in node.inputs)]
    low = {"bf16": LOWER_PRECISION, "int8": _BYTES}.get(precision, ())
    return {
        "lowered": sum(op in low for op in ops),
        "kept": sum(op.rpartition(".")[2].endswith(_PRODUCTS) for op in ops),
    }


def _gap(extraction: Any) -> float | None:
    if extraction.bound is None or not extraction.cost:
        return None
    return float((extraction.cost - extraction.bound) / extraction.cost)
