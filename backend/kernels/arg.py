"""ArgMax and ArgMin."""

from __future__ import annotations

from ...engine.graph import DType
from ..iteration import Access, Extents, collapse, contiguous
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..pointwise_c import C_TYPES
from ..template_params import int_attr, operand, threads


@lowering("ArgMax", "ArgMin")
def lower_arg(group: Group, ctx: Context) -> list[Step] | None:
    """Along any axis of any plain element type."""
    node = group.anchor
    assert node is not None
    kind = ctx.type(node.inputs[0])
    if len(group.nodes) > 1 or kind.dtype not in C_TYPES or not kind.shape or kind.dtype is None:
        return None
    axis = int_attr(node, "axis", 0) % len(kind.shape)
    read = contiguous(node.inputs[0], kind.shape)
    thin = contiguous(node.outputs[0], (*kind.shape[:axis], 1, *kind.shape[axis + 1 :]))
    write = Access(thin.value, kind.shape, tuple(0 if k == axis else s for k, s in enumerate(thin.strides)))
    roles = "".join("R" if k == axis else "o" for k in range(len(kind.shape)))
    space = collapse(kind.shape, [read.strides, write.strides], roles)
    at = space.roles.index("R")
    order = [*(k for k in range(len(space.extents)) if k != at), at]
    extents = Extents()
    pair = [
        operand(name, dtype, [strides[k] for k in order], extents)
        for name, dtype, strides in zip("xy", (kind.dtype, DType.I64), space.strides, strict=True)
    ]
    sizes = extents.all([space.extents[k] for k in order])
    params = {
        "most": node.op == "ArgMax",
        "last": bool(node.attrs.get("select_last_index", 0)),
        "outer": sizes[:-1],
        "count": sizes[-1],
        "read": pair[0],
        "write": pair[1],
    }
    return [
        Step(
            Kernel("arg", params),
            inputs=(read.value,),
            outputs=(write.value,),
            dims=tuple(extents.dims),
            threads=threads(kind.shape, 4),
            nodes=(node.name,),
        )
    ]
