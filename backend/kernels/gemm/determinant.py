"""Lowering of Det."""

from __future__ import annotations

from ....engine.ir.graph import Node
from ....engine.ir.symbolic import ceildiv, product, same
from ...codegen.template_params import launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone


@lowering_alone("Det", f64=True)
def lower_det(node: Node, ctx: Context) -> list[Step] | None:
    """Matrices of any size."""
    x = ctx.type(node.inputs[0])
    if x.shape is None or len(x.shape) < 2 or x.dtype is not ctx.real or not same(x.shape[-1], x.shape[-2]):
        return None
    size, extents = x.shape[-1], Extents()
    scratch = ceildiv(size * size * 8, 64) * 64
    params = {"size": extents(size), "count": extents(product(x.shape[:-2])), "scratch": extents(scratch)}
    work = threads((*x.shape, size))
    return [launch(Kernel("determinant", params), node, node.inputs, node.outputs, extents, work, scratch=scratch)]
