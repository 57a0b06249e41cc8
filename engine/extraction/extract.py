"""Extraction: of every class that is needed, the node to compute it by, so that the whole costs least.

Cost counts shared work once (DAG cost), which makes finding the optimum NP-hard. Three steps approximate it:

1. Terms over constants are evaluated before the program runs, so a class of constants is a leaf that costs its storage.
   Knuth's algorithm on term size chooses how it is evaluated (`priced_egraph`).
2. A greedy solution after the "faster greedy DAG" extractor of the extraction gym (egraphs-good/extraction-gym). Each
   class keeps the *set* of classes that its best derivation needs, and a node is priced by the union of its children's
   sets. Classes are taken in order of cost, as in Dijkstra's algorithm: a node costs no less than any child, so each
   node is priced once, and the result is acyclic by construction (`greedy`).
3. Local search by reference counts: one class, all users of an unused class together (merged products pay only if all
   consumers switch at once), or all users of a used one change their node if the whole gets cheaper (`local_search`).

Ties go to the lower handle everywhere, so that the same e-graph gives the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from ...errors import RewriteError
from ..cost.cost_model import CostModel
from ..egraph.egraph import EGraph
from ..ir.graph import TensorType, ValueType
from ..ir.names import ABSENT, KERNEL_OPERATORS, OWN_DOMAIN
from ..onnx_io.opsets import can_express
from ..onnx_io.runtime_support import has_kernel
from .greedy import greedy
from .local_search import LocalSearch
from .plans import preference
from .priced_egraph import PricedEGraph
from .priced_egraph import dependencies as dependencies


class ExtractionError(RewriteError):
    """A needed class has no admissible derivation: an error of the program, not of its user."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The chosen node of every class that is needed, by canonical handle.

    `folded` are the classes to be evaluated beforehand; their terms are in `choice` too. `cost` is the DAG cost of
    what runs and is stored, `bound` a proven lower bound of it."""

    choice: dict[int, int]
    folded: frozenset[int]
    cost: float
    method: str
    bound: float | None = None

    def __repr__(self) -> str:
        return f"<Extraction: {len(self.choice):,} classes chosen by {self.method}, cost {self.cost:.4g}>"


@dataclass(frozen=True, slots=True)
class Limits:
    """Effort of extraction.

    `steps` limits local search by work, not time, so that the result does not depend on the machine's load. For each
    factor of `movement` a greedy solution is made in which moving data costs that many times as much; each is
    improved under the true cost, and the best one is taken."""

    steps: int = 400_000
    movement: tuple[float, ...] = (1.0,)


REGIONS = Limits(movement=(1.0, 0.0, 8.0))
"""For choices that pay only in whole regions, bordered by moves of data: as if these were free, and very expensive."""


def admissible(
    egraph: EGraph, target: str, opset: Mapping[str, int], defined: Container[str], written: Container[str] = ()
) -> Callable[[int], bool]:
    """Return the predicate for nodes that a result may contain: `native`, or a file at the model's opset.

    A file may also contain the operators in `written`, which are written as others later.

    `defined` holds operators with a definition, which the native graph uses instead of them. A file must not need more
    kernels of ONNX Runtime than the model did: nodes that rules made are on element types and of opsets that it has
    kernels for, or the model itself has the operator without one on the same types."""
    nodes = egraph.nodes
    if target == "native":
        own = f"{OWN_DOMAIN}."

        def has_form(handle: int) -> bool:
            op = nodes[handle].op
            return op in KERNEL_OPERATORS or not (op.startswith(own) or op in defined)

        return has_form

    def operands(handle: int) -> list[ValueType | None]:
        return [None if c == ABSENT else egraph.types(c)[0] for c in nodes[handle].children]

    def kind(handle: int) -> tuple[object, ...]:
        return nodes[handle].op, *(t.dtype if isinstance(t, TensorType) else None for t in operands(handle))

    def runs(handle: int) -> bool:
        return has_kernel(nodes[handle].op, operands(handle), opset)

    lacking = {kind(handle) for handle, by in enumerate(egraph.made_by) if by is None and not runs(handle)}

    def is_expressible(handle: int) -> bool:
        node = nodes[handle]
        expressible = node.op in written or can_express(node.op, node.attrs, opset)
        return expressible and (egraph.made_by[handle] is None or runs(handle) or kind(handle) in lacking)

    return is_expressible


def extract(
    egraph: EGraph,
    cost: CostModel,
    *,
    admissible: Callable[[int], bool] = lambda handle: True,
    limits: Limits | None = None,
    plan: str = "",
) -> Extraction:
    """Return the cheapest derivation found of all roots.

    Prices are those of a `plan` (`plans`). Nodes that are not `admissible` are not used at run time; they may be
    evaluated beforehand. Raises `ExtractionError` naming the first root without a derivation."""
    limits = limits or Limits()
    roots = list(dict.fromkeys(map(egraph.find, egraph.roots.values())))
    problem = PricedEGraph(egraph, cost, admissible, roots, preference(plan))
    total, method, chosen = math.inf, "", {}
    for factor in limits.movement:
        best = greedy(problem, factor)
        for name, root in egraph.roots.items():
            if egraph.find(root) not in best:
                hint = problem.diagnosis(root, best)
                raise ExtractionError(f"no derivation of the output {name!r} can be written", hint=hint)
        solution = LocalSearch(problem, best)
        improved = ", improved" if solution.improve(limits.steps) else ""
        found = solution.chosen()
        price = sum(problem.leaf[c] if c in problem.leaf else problem.weight[h] for c, h in found.items())
        if not method or price < total * (1 - 1e-9):
            moved = "" if factor == 1.0 else f", movement x {factor:g}"
            total, method, chosen = price, f"greedy DAG{improved}{moved}", found
    folded = [c for c in chosen if c in problem.leaf]
    for c in folded:
        problem.add_term(c, chosen)
    return Extraction(chosen, frozenset(folded), total, method, min(problem.bound(), total))
