"""Report of a run: the values behind the final table and `--json` (documented in `docs/json.md`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..pages import short_tables
from ..system.short_text import clipped, duration, listed, plural
from .ir.bodies import all_bodies
from .ir.names import LOWER_PRECISION

if TYPE_CHECKING:
    from ..grammar.library.load import Library
    from .cost.cost_model import CostModel
    from .extraction.extract import Extraction
    from .ir.graph import Graph
    from .saturation.saturate import Saturation


@dataclass(slots=True)
class RuleReport:
    """Counts of one rule in one run: matches, changes of the e-graph, nodes of the result that it made."""

    name: str
    file: str
    line: int
    matches: int
    applied: int
    in_result: int
    seconds: float = 0.0
    reason: str = ""

    def __repr__(self) -> str:
        counts = f"{self.matches} matches, {self.applied} applied, {plural(self.in_result, 'node')} made"
        return f"<RuleReport {clipped(self.name)}: {counts}>"


@dataclass(slots=True)
class Report:
    """Figures of one run. Costs are in the unit of the cost model, times are seconds by stage.

    `operators` has the number of nodes by operator, `before` and `after`. `nbytes` has the sizes of the weights in
    both, and those of the files once they are written. `likely_sizes` are those that costs assume where the model
    leaves sizes free. `measured` is the time of a run of the program, empty if it did not run."""

    nodes_before: int
    nodes_after: int
    operators: dict[str, dict[str, int]]
    nbytes: dict[str, int]
    cost_before: float
    cost_after: float
    seconds: dict[str, float]
    egraph: dict[str, Any]
    rules: list[RuleReport]
    extraction: dict[str, Any]
    precision: dict[str, Any]
    likely_sizes: dict[str, int] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    verify: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Report: {self.summary()}>"

    def _repr_html_(self) -> str:
        used = sorted((rule for rule in self.rules if rule.in_result), key=lambda r: (-r.in_result, r.name))
        rows = [(rule.name, rule.in_result, rule.applied, rule.matches) for rule in used]
        title = f"{self.nodes_before} → {plural(self.nodes_after, 'node')}, predicted "
        title += f"{duration(self.cost_before)} → {duration(self.cost_after)}"
        return short_tables.table(title, ("rule", "nodes made", "fired", "matches"), rows, "`.show()` opens the report")

    @property
    def is_repeatable(self) -> bool:
        """Whether optimizing the model again gives the same."""
        from .saturation.saturation_report import MACHINE_LIMITS

        return self.egraph["stop_reason"] not in MACHINE_LIMITS

    def summary(self) -> str:
        """Return nodes, predicted time and the rules that made most nodes, on one line."""
        used = sorted((rule for rule in self.rules if rule.in_result), key=lambda r: (-r.in_result, r.name))
        rules = listed(rule.name for rule in used) or "no rules used"
        times = f"predicted {duration(self.cost_before)} → {duration(self.cost_after)}"
        return f"{self.nodes_before} → {plural(self.nodes_after, 'node')}, {times}; {rules}"

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """Return the report behind the result of `as_json`. Raises TypeError or KeyError for anything else."""
        return cls(**{**data, "rules": [RuleReport(**rule) for rule in data["rules"]]})


def make_report(
    library: Library, graphs: tuple[Graph, Graph, Graph], saturation: Saturation, extraction: Extraction,
    cost: CostModel, precision: str, seconds: dict[str, float],
) -> Report:  # fmt: skip
    """Return the report of a run; `graphs` are the model as read and the two results.

    `in_result` counts the nodes of both results that carry the rule's name."""
    before, after, native = graphs
    made = Counter(rule for graph in (after, native) for node in graph.nodes for rule in node.rules)
    places = library.places()
    places |= {f"{verb}_{name}": place for name, place in places.items() for verb in ("recognize", "define")}
    if not saturation.counts.keys() <= places.keys():
        raise UserError("a rule file was changed during the run", hint="Run again.")
    rules = [
        RuleReport(name, *places[name], n.matches, n.applied, made[name], n.seconds, n.reason)
        for name, n in saturation.counts.items()
    ]
    operators = {"before": dict(before.written) or _count_operators(before), "after": _count_operators(after)}
    return Report(
        nodes_before=sum(operators["before"].values()),
        nodes_after=sum(operators["after"].values()),
        operators=operators,
        nbytes={"weights_before": _weights(before), "weights_after": _weights(after)},
        cost_before=cost.graph_cost(before),
        cost_after=cost.graph_cost(after),
        seconds=seconds,
        egraph={
            **{
                name: getattr(saturation, name) for name in ("classes", "nodes", "iterations", "stop_reason", "limited")
            },
            "limits": [asdict(met) for met in saturation.limits],
            "unscheduled": list(saturation.unscheduled),
        },
        rules=rules,
        extraction={"method": extraction.method, "bound": extraction.bound, "gap": _gap(extraction)},
        precision={"requested": precision, **_products(native, precision)},
        likely_sizes=dict(cost.hints),
    )


def _count_operators(graph: Graph) -> dict[str, int]:
    nodes = (node for part in (graph, *all_bodies(graph)) for node in part.nodes)
    return dict(Counter(node.op.partition("@")[0] for node in nodes))


def _weights(graph: Graph) -> int:
    parts = (graph, *all_bodies(graph))
    return sum(c.nbytes for part in parts for c in (*part.constants.values(), *part.defaults.values()))


_PRODUCTS = ("MatMul", "Gemm", "Conv")
_BYTES = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")


def _products(graph: Graph, precision: str) -> dict[str, int]:
    """Count the products with constants of the native graph: in the low precision, and in f32."""
    ops = [node.op for node in graph.nodes if any(v in graph.constants for v in node.inputs)]
    low = {"bf16": LOWER_PRECISION, "int8": _BYTES}.get(precision, ())
    return {
        "lowered": sum(op in low for op in ops),
        "in_f32": sum(op.rpartition(".")[2].endswith(_PRODUCTS) for op in ops),
    }


def _gap(extraction: Extraction) -> float | None:
    if extraction.bound is None or not extraction.cost:
        return None
    return float((extraction.cost - extraction.bound) / extraction.cost)
