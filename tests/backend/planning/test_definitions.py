"""Operators of this package that no kernel takes."""

from __future__ import annotations

from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import detect
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings, group, lower
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType


def test_an_operator_that_no_kernel_takes_is_planned_by_its_definition() -> None:
    """A convolution with computed weights has a kernel in one layout; in the other it is transposed there and back."""
    attrs = {"group": 1, "kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1)}
    graph = Graph(
        ("x", "w"),
        ("y",),
        [Node("rewrite.ChannelsLastConv", ("x", "w"), ("y",), attrs, "conv")],
        types={
            "x": TensorType(DType.F32, (1, 5, 6, 2)),
            "w": TensorType(DType.F32, (4, 2, 3, 3)),
            "y": TensorType(DType.F32, (1, 5, 6, 4)),
        },
    )
    plan = lower(group(graph, PlanSettings(standard_policy(), detect(), 1)))
    assert plan.fallbacks() == {}
    templates = [item.kernel.template for item in plan.items if isinstance(item, Step)]
    assert templates.count("pack_filters") == templates.count("conv") == 1
    assert len(templates) == 4
    assert plan.outputs == ("y",)
