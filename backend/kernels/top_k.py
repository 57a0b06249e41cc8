"""TopK, by a heap of the best elements (Knuth, The Art of Computer Programming, vol. 3, 5.2.3)."""

from __future__ import annotations

from ...engine.graph import DType, TensorType
from ...engine.symbolic import product
from ..iteration import Extents
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..pointwise_c import C_TYPES
from ..template_params import int_attr, threads
from .movement import single


@lowering("TopK")
def lower_top_k(group: Group, ctx: Context) -> list[Step] | None:
    """Along any axis; k is that of the inferred outputs. Sorted, even where that was not asked for."""
    node = single(group)
    if node is None:
        return None
    kind = ctx.type(node.inputs[0])
    names = [*node.outputs, "", ""][:2]
    shape = next((ctx.type(v).shape for v in names if v), None)
    if not kind.shape or shape is None or kind.dtype not in C_TYPES or kind.dtype in (None, DType.BOOL):
        return None
    axis = int_attr(node, "axis", -1) % len(kind.shape)
    k = shape[axis]
    types = (kind.dtype, DType.I64)
    outputs = [v or ctx.new_value(TensorType(t, shape), "unused") for v, t in zip(names, types, strict=True)]
    scratch = (k * 16 + 127) // 64 * 64
    extents = Extents()
    params = {
        "c": C_TYPES[kind.dtype],
        "largest": bool(int_attr(node, "largest", 1)),
        "outer": extents(product(kind.shape[:axis])),
        "count": extents(kind.shape[axis]),
        "inner": extents(product(kind.shape[axis + 1 :])),
        "k": extents(k),
        "scratch": extents(scratch),
    }
    return [
        Step(
            Kernel("top_k", params),
            inputs=node.inputs[:1],
            outputs=tuple(outputs),
            dims=tuple(extents.dims),
            scratch=scratch,
            threads=threads(kind.shape, 8),
            nodes=(node.name,),
        )
    ]
