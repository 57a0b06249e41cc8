"""The equal forms of a value as plain JSON values: its e-class and those that its forms need, with their costs.

The change of cost is that of the whole graph: what a form and its operands add where nothing else needs them, less what
is no longer needed. Shared work counts once, so it differs from the sum of a form's tree. The picture is that of egg's
visualizer (Willsey et al., POPL 2021): classes as dashed boxes around their e-nodes.
"""

from __future__ import annotations

import difflib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UserError
from ...system.short_text import duration, plural
from .. import pipeline
from ..cost.cost_model import CostModel
from ..egraph.egraph import EGraph
from ..extraction import extract as extraction
from ..extraction.greedy import greedy
from ..extraction.local_search import LocalSearch
from ..extraction.priced_egraph import PricedEGraph
from ..ir.graph import Graph
from ..ir.names import ABSENT, CAPTURES
from ..operators.schemas import declared_operators
from ..options import Options
from ..stage_values import Chosen, Decoded, Source
from .graph_data import attribute_text, rule_sources, type_text

MOST_CLASSES = 60
MOST_FORMS = 40
"""Maximum number of classes in a picture, and of forms of one class; what is left out is counted."""


@dataclass(frozen=True, slots=True)
class Explored:
    """A saturated e-graph of a model's main graph with what extraction chose for a target.

    `classes` are those of the values of the `result`, `defined` the operators that have a definition."""

    source: Source
    chosen: Chosen
    cost: CostModel
    result: Graph
    classes: Mapping[str, int]
    defined: Container[str]


def explore(model: Any, options: Options, target: str) -> Explored:
    """Optimize a model in this process; return the last e-graph of a target, `portable` or `native`.

    Rules are not stopped by a memory limit. Raises `UserError` for a model or rule file that cannot be used."""
    source: Source | None = None
    graph: Graph | None = None
    chosen: Chosen | None = None
    for _, value in pipeline.stages(model, options):
        if isinstance(value, Source):
            source, graph = value, value.graph
        elif isinstance(value, Graph):
            graph = value if target == "native" else graph
        elif isinstance(value, Chosen) and value.target == target:
            chosen = value
        elif isinstance(value, Decoded) and value.target == target and chosen is not None:
            assert source is not None
            assert graph is not None
            costs = pipeline.cost_models(graph, options)
            setup = pipeline.prepare(source.library, graph.opset, options, costs)
            return Explored(source, chosen, setup.costs[target], value.graph, value.names.classes, setup.rules.declared)
    raise AssertionError("the pipeline decodes every target")


def egraph_data(found: Explored, name: str, depth: int) -> dict[str, Any]:
    """Return the forms of the value or node `name`, and of the values that they need, up to `depth` classes away.

    Raises `UserError` if neither the model nor the result has that name."""
    with declared_operators(found.source.operators):
        return _Picture(found).data(find_class(found, name), name, depth)


def find_class(found: Explored, name: str) -> int:
    """Return the class of a value or node of the model or the result. Raises `UserError` for an unknown name."""
    egraph = found.chosen.egraph
    values = {}
    for graph in (found.source.graph, found.result):
        for node in graph.nodes:
            values[node.name] = next(filter(None, node.outputs), "")
    value = name if name in found.classes else values.get(name, name)
    if value in found.classes:
        return egraph.find(found.classes[value])
    if value in egraph.roots:
        return egraph.find(egraph.roots[value])
    labels = {
        label
        for graph in (found.source.graph,)
        for node in graph.nodes
        if value in node.outputs
        for label in node.origins
    }
    for handle, origins in enumerate(egraph.origins):
        if egraph.made_by[handle] is None and labels & set(origins):
            return egraph.find(handle)
    known = [*values, *found.classes]
    if name in known or any(name in node.outputs for node in found.source.graph.nodes):
        hint = "Try the other graph (--graph), or a node that it became: rewrite explain MODEL --node NAME"
        raise UserError(f"the e-graph for {found.chosen.target} results has no value of {name!r} any more", hint=hint)
    close = difflib.get_close_matches(name, known, 3)
    hint = f"Did you mean {', '.join(close)}?" if close else ""
    raise UserError(f"no node or value is called {name!r}", hint=hint)


class _Picture:
    """State of one picture."""

    def __init__(self, found: Explored) -> None:
        self.found = found
        self.egraph: EGraph = found.chosen.egraph
        choice = found.chosen.extraction.choice
        roots = list(dict.fromkeys(map(self.egraph.find, self.egraph.roots.values())))
        opset = found.source.graph.opset
        for defined in (found.defined, ()):  # as `pipeline.extract` does where a definition does not apply
            usable = extraction.admissible(self.egraph, found.cost.target, opset, defined)
            self.problem = PricedEGraph(self.egraph, found.cost, usable, roots)
            if all(h in self.problem.weight for c, h in choice.items() if c in self.problem.members):
                break
        best = greedy(self.problem)
        self.search = LocalSearch(self.problem, {**best, **{c: h for c, h in choice.items() if c in best}})
        self.names = {self.egraph.find(c): name for name, c in [*found.classes.items()][::-1]}
        self.members = self.egraph.classes()

    def data(self, root: int, name: str, depth: int) -> dict[str, Any]:
        """Return the classes around `root`, breadth first."""
        shown: dict[int, int] = {root: 0}
        level = [root]
        for distance in range(1, depth + 1):
            open_ = [c for c in level if c == root or not self._is_constant(c)]
            below = [d for c in open_ for h in self._forms(c) for d in self._children(h)]
            level = [d for d in dict.fromkeys(below) if d not in shown][: max(0, MOST_CLASSES - len(shown))]
            shown |= dict.fromkeys(level, distance)
        made = {rule for c in shown for h in self._forms(c) if (rule := self.egraph.made_by[h])}
        return {
            "node": name,
            "target": self.found.cost.target,
            "depth": depth,
            "cost": self.found.chosen.extraction.cost,
            "unit": "seconds" if self.found.cost.model == "latency" else self.found.cost.model,
            "egraph": {"nodes": len(self.egraph.nodes), "classes": len(self.members)},
            "root": root,
            "classes": [self._class(c, distance) for c, distance in shown.items()],
            "rule_texts": rule_sources(self.found.source.library, made),
            "likely_sizes": dict(self.found.cost.hints),
        }

    def _is_constant(self, c: int) -> bool:
        return c in self.problem.leaf or self.egraph.is_const(c)

    def _forms(self, c: int) -> list[int]:
        """Return the e-nodes of a class, usable ones first, each form once."""
        distinct: dict[tuple[Any, ...], int] = {}
        for handle in self.members[c]:
            node = self.egraph.nodes[handle]
            key = (node.op, id(node.attrs), *map(self.egraph.find, node.children))
            if key not in distinct or handle == self._pick(c):  # congruent nodes are one form
                distinct[key] = handle
        return sorted(distinct.values(), key=lambda h: (h != self._pick(c), h not in self.problem.weight, h))[
            :MOST_FORMS
        ]

    def _children(self, handle: int) -> list[int]:
        return [
            c for d in self.egraph.nodes[handle].children if d != ABSENT and (c := self.egraph.find(d)) in self.members
        ]

    def _pick(self, c: int) -> int | None:
        """Return the e-node by which a class is computed, or would be."""
        folded = self.found.chosen.extraction.choice.get(c)
        return self.search.pick.get(c, folded)

    def _class(self, c: int, distance: int) -> dict[str, Any]:
        used = bool(self.search.counts.get(c)) or c in self.found.chosen.extraction.choice
        forms = self._forms(c)[: None if not distance or not self._is_constant(c) else 1]
        return {
            "id": c,
            "name": self.names.get(c, ""),
            "type": ", ".join(map(type_text, self.egraph.types(c))),
            "distance": distance,
            "used": used,
            "constant": self._is_constant(c),
            "hidden": len(self.members[c]) - len(forms),
            "forms": [self._form(c, handle, used) for handle in forms],
        }

    def _form(self, c: int, handle: int, used: bool) -> dict[str, Any]:
        node = self.egraph.nodes[handle]
        chosen = handle == self._pick(c)
        change, reason = self._change(c, handle, chosen)
        attrs = {key: attribute_text(value) for key, value in node.attrs.items() if key not in (CAPTURES, "digest")}
        return {
            "id": handle,
            "operator": node.op,
            "attributes": attrs,
            "children": [None if d == ABSENT else self.egraph.find(d) for d in node.children],
            "rule": self.egraph.made_by[handle],
            "origins": list(self.egraph.origins[handle]),
            "chosen": chosen,
            "used": chosen and used,
            "own": self.problem.weight.get(handle),
            "change": change,
            "reason": reason,
        }

    def _change(self, c: int, handle: int, chosen: bool) -> tuple[float | None, str]:
        """Return by how much the whole costs more with a form, and why it is not the chosen one."""
        problem, pick = self.problem, self.search.pick
        if self.egraph.is_const(c) and c not in problem.members:
            return None, "a constant, evaluated before the program runs"
        if handle not in problem.weight:
            return None, self._refusal(handle)
        if any(d not in pick for d in problem.deps[handle]):
            return None, "it needs a value for which no form can be used"
        if c in problem.leaf:
            return 0.0, "a constant, evaluated before the program runs"
        if chosen:
            return 0.0, "chosen: no other form makes the whole graph cheaper"
        if not self.search.counts.get(c):
            return None, "the result does not need this value"
        change = self.search.change(c, handle)
        if change is None:
            return None, "it would need its own result"
        own, now = problem.weight[handle], problem.weight[pick[c]]
        more = change - (own - now)
        parts = f"it costs {self._price(own)} itself, where the chosen form costs {self._price(now)}"
        if abs(more) > 1e-9 * self.found.chosen.extraction.cost:
            parts += f"; its operands add {self._price(more)}" if more > 0 else f"; operands save {self._price(-more)}"
        return change, parts

    def _price(self, value: float) -> str:
        return duration(value) if self.found.cost.model == "latency" else f"{value:.4g}"

    def _refusal(self, handle: int) -> str:
        op = self.egraph.nodes[handle].op
        if self.found.cost.target == "native":
            return f"kernels compute {op} by its definition, not as one operator"
        return f"a file at the model's opset cannot have {op} here, or ONNX Runtime has no kernel for its types"


def summary(data: dict[str, Any]) -> Sequence[str]:
    """Return the forms of the value as lines of text, the chosen one first."""
    [root] = [c for c in data["classes"] if c["id"] == data["root"]]
    lines = [f"{root['name'] or data['node']}: {root['type']}, {plural(len(root['forms']), 'form')} ({data['target']})"]
    for form in root["forms"]:
        mark = "*" if form["chosen"] else " "
        change = "" if form["change"] is None or form["chosen"] else f"+{duration(form['change'])}"
        made = f" by {form['rule']}" if form["rule"] else ""
        lines.append(f"{mark} {form['operator']:<24} {change:>12} {made}  {form['reason']}")
    return lines
