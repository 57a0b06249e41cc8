"""MaxPool of bytes: quantised networks pool their integers."""

from __future__ import annotations

from ...engine.graph import DType
from ...engine.symbolic import product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step
from ..template_params import serial_below
from .window import Window, geometry

LARGEST = 1024
"""The largest window, in elements, with channels last: the kernel puts down where they lie."""


def byte_pool(group: Group, ctx: Context, shape: Window, last: bool = False) -> list[Step] | None:
    """The step for a MaxPool node alone on u8 or i8, with its channels first or `last`; what windows see of padding
    counts nothing."""
    node = group.anchor
    if node is None or len(group.nodes) != 1:
        return None
    x = ctx.type(node.inputs[0])
    if x.dtype not in (DType.U8, DType.I8) or x.shape is None or (last and shape.taps > LARGEST):
        return None
    extents = Extents()
    signed = x.dtype is DType.I8
    images, channels = x.shape[0], x.shape[-1 if last else 1]
    items = (
        {"images": extents(images), "channels": extents(channels), "taps": shape.taps}
        if last
        else {"planes": extents(images * channels)}
    )
    params = {
        **items,
        "g": geometry(shape, 1, extents),
        "type": "int8_t" if signed else "uint8_t",
        "low": -128 if signed else 0,
    }
    work = product((images, channels, *shape.outputs, shape.taps))
    return [
        Step(
            Kernel("byte_pool_last" if last else "byte_pool", params),
            (node.inputs[0],),
            (node.outputs[0],),
            dims=tuple(extents.dims),
            threads=serial_below(work, 1 << 15),
            nodes=(node.name,),
        )
    ]
