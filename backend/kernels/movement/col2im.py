"""Lowering of Col2Im."""

from __future__ import annotations

import math

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import Dim, product, same
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import ints_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone


@lowering_alone("Col2Im")
def lower_col2im(node: Node, ctx: Context) -> list[Step] | None:
    """Blocks of known size; run-time dims if the number of blocks is provably that of the columns."""
    x, y, block = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), ctx.ints(node.inputs[2])
    if x.shape is None or len(x.shape) != 3 or y.shape is None or not block or min(block) < 1:
        return None
    c = None if x.dtype in (None, DType.BOOL) else C_TYPES.get(x.dtype)
    rank, sizes = len(block), y.shape[2:]
    strides, dilations = (ints_attr(node, name, (1,) * rank) for name in ("strides", "dilations"))
    pads = ints_attr(node, "pads", (0,) * (2 * rank))
    if c is None or len(sizes) != rank or not same(x.shape[1], y.shape[1] * math.prod(block)):
        return None
    counts: list[Dim] = [
        (size + pads[a] + pads[a + rank] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a, size in enumerate(sizes)
    ]
    if any(isinstance(n, int) and n < 1 for n in counts) or not same(x.shape[2], product(counts)):
        return None
    extents = Extents()
    params = {
        "c": c,
        "block": list(block),
        "taps": math.prod(block),
        "strides": list(strides),
        "dilations": list(dilations),
        "pads": list(pads),
        "sizes": extents.all(sizes),
        "planes": extents(product(y.shape[:2])),
    }
    return [launch(Kernel("col2im", params), node, node.inputs[:1], node.outputs, extents, threads(x.shape))]
