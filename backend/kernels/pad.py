"""Pad, in all modes."""

from __future__ import annotations

from ...engine.symbolic import Dim
from ..iteration import Extents, contiguous
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..template_params import threads
from .movement import single, word


@lowering("Pad")
def lower_pad(group: Group, ctx: Context) -> list[Step] | None:
    """Margins known in terms of dims; the constant may be a run-time value."""
    node = single(group)
    if node is None:
        return None
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    c = word(ctx, node.inputs[0])
    pads = ctx.contents(node.inputs[1])
    if c is None or not x.shape or y.shape is None or pads is None:
        return None
    rank = len(x.shape)
    value, axes_input = [*node.inputs[2:4], "", ""][:2]
    axes = ctx.ints(axes_input) if axes_input else tuple(range(rank))
    if axes is None or len(pads) != 2 * len(axes):
        return None
    before: list[Dim] = [0] * rank
    for k, axis in enumerate(axes):
        before[axis % rank] = pads[k]
    extents = Extents()
    params = {
        "c": c,
        "mode": node.attrs.get("mode", "constant"),
        "value": bool(value),
        "extents": extents.all(y.shape),
        "sizes": extents.all(x.shape),
        "strides": extents.all(contiguous("", x.shape).strides),
        "before": extents.all(before),
    }
    return [
        Step(
            Kernel("pad", params),
            inputs=(node.inputs[0], value) if value else node.inputs[:1],
            outputs=node.outputs,
            dims=tuple(extents.dims),
            threads=threads(y.shape),
            nodes=(node.name,),
        )
    ]
