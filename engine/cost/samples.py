"""Samples: nodes of a graph with the measured time of the kernel that computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.graph import AttrValue, ValueType
from .cost_model import CostModel
from .operator_cost import pointwise


@dataclass(frozen=True, slots=True)
class Application:
    """An operator's attributes and the types of its inputs and outputs at the sizes of a run, None where absent."""

    op: str
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[ValueType | None]
    outputs: Sequence[ValueType | None]


@dataclass(frozen=True, slots=True)
class Sample:
    """Nodes that one group of kernels computes, and its time in seconds. `kernels` names the templates."""

    kernels: str
    seconds: float
    nodes: Sequence[Application]

    def predicted(self, cost: CostModel, *, known: bool = True) -> float:
        """Return the predicted time in seconds: the sum over the nodes.

        The first of nodes that are all elementwise stands alone, and the others join it. While a graph is chosen this
        is not `known`: each such node is assumed to join a neighbor."""
        alone = known and all(pointwise(n.op) for n in self.nodes)
        parts = (
            cost.node_cost(n.op, n.attrs, n.inputs, n.outputs, joins=not alone or i > 0)
            for i, n in enumerate(self.nodes)
        )
        return sum(parts)
