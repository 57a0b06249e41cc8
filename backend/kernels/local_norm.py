"""LRN: local response normalisation across channels."""

from __future__ import annotations

from ...engine.graph import DType
from ...engine.symbolic import product
from ..iteration import Extents
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..template_params import float_attr, int_attr, threads
from .movement import single


@lowering("LRN")
def lower_lrn(group: Group, ctx: Context) -> list[Step] | None:
    """f32 of any rank from 2 on."""
    node = single(group)
    if node is None:
        return None
    kind = ctx.type(node.inputs[0])
    if kind.dtype is not DType.F32 or kind.shape is None or len(kind.shape) < 2:
        return None
    size = int_attr(node, "size")
    extents = Extents()
    params = {
        "size": size,
        "scale": float_attr(node, "alpha", 1e-4) / size,
        "beta": float_attr(node, "beta", 0.75),
        "bias": float_attr(node, "bias", 1.0),
        "batch": extents(kind.shape[0]),
        "channels": extents(kind.shape[1]),
        "inner": extents(product(kind.shape[2:])),
    }
    return [
        Step(
            Kernel("local_norm", params),
            inputs=node.inputs,
            outputs=node.outputs,
            dims=tuple(extents.dims),
            threads=threads(kind.shape, 40),
            nodes=(node.name,),
        )
    ]
