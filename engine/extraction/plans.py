"""Plans: other graphs for kernels that a cost model should propose, since it may be wrong about the one it prefers.

A plan multiplies the prices of some operators while a graph is chosen. Where regions are priced nearly alike, it tips
the choice of layouts, of moves between them, and of what joins which kernel. Every plan is a graph of the same e-graph:
another one is slower at worst.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..cost.operator_cost import is_pointwise, moves

PLANS: Mapping[str, Mapping[str, float]] = {
    "channels-last": {"channels first": 3.0},
    "channels-first": {"channels last": 3.0},
    "few-moves": {"movement": 3.0},
    "many-moves": {"movement": 1 / 3},
    "few-elementwise": {"elementwise": 3.0},
}
"""Factors on the prices of families of operators, by the name of the plan; the plan of the cost model has no name."""
_LAST = "rewrite.ChannelsLast"
_FIRST = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "QLinearConv", "ConvInteger", "rewrite.ConvBf16")
)


def _family(op: str) -> str:
    op = op.partition("@")[0]
    if op.startswith(_LAST):
        return "channels last"
    if op in _FIRST:
        return "channels first"
    return "movement" if moves(op) else "elementwise" if is_pointwise(op) else ""


def preference(plan: str) -> Callable[[str], float]:
    """Return the factor of a plan on the price of an operator; 1 for all without a plan."""
    factors = PLANS[plan] if plan else {}
    return lambda op: factors.get(_family(op), 1.0)
