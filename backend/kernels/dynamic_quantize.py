"""DynamicQuantizeLinear: one pass for the range of a tensor, one for its bytes.

The scale of a tensor of zeros is 1, as in ONNX Runtime; the standard leaves it open."""

from __future__ import annotations

from ...engine.graph import DType, TensorType
from ...engine.symbolic import product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from .movement import single

PARTS = 64
"""The range is found in so many parts, whatever the number of threads."""


@lowering("DynamicQuantizeLinear")
def lower_dynamic_quantize(group: Group, ctx: Context) -> list[Step] | None:
    """f32 of any shape to u8, with the scale and the zero point."""
    node = single(group)
    if node is None or len(node.outputs) != 3:
        return None
    x = ctx.type(node.inputs[0])
    if x.dtype is not DType.F32 or x.shape is None:
        return None
    count = product(x.shape)
    y, scale, zero = (
        name or ctx.new_value(TensorType(dtype, shape), "quantised")
        for name, dtype, shape in zip(node.outputs, (DType.U8, DType.F32, DType.U8), (x.shape, (), ()), strict=True)
    )
    ranges = ctx.new_value(TensorType(DType.F32, (PARTS, 2)), "ranges")
    first, second = Extents(), Extents()
    threads = serial_below(count, 1 << 15)
    names = (node.name,)
    return [
        Step(
            Kernel("byte_range", {"n": first(count), "parts": PARTS}),
            (node.inputs[0],),
            (ranges,),
            dims=tuple(first.dims),
            threads=threads,
            nodes=names,
        ),
        Step(
            Kernel("byte_quantize", {"n": second(count), "parts": PARTS}),
            (node.inputs[0], ranges),
            (y, scale, zero),
            dims=tuple(second.dims),
            threads=threads,
            nodes=names,
        ),
    ]
