"""Lowering of ConvTranspose: a product of matrices, then a kernel that sums what falls on each output.

For each image and group, columns[output channel x tap][pixels of x] = W' * x, a convolution with a filter of one tap;
y at o is the sum over the taps k of column k at each i with o = stride * i - pad + dilation * k.
"""

from __future__ import annotations

from dataclasses import replace

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim, ceildiv, product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step, lowering
from .conv import conv_step
from .epilogue import IDENTITY, Axes, of_group
from .window import Window, filters, geometry, ints, number


@lowering("ConvTranspose")
def lower_conv_transpose(group: Group, ctx: Context) -> list[Step] | None:
    """ConvTranspose over one to three spatial dims, with constant weights."""
    node = group.anchor
    assert node is not None
    x, out, w = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), filters(node, ctx)
    if w is None:
        return None
    assert x.shape is not None
    assert out.shape is not None
    groups = number(node, "group", 1)
    shape = _window(node, x, out, w.shape[2:])
    if shape is None:
        return None
    channels, m = w.shape[0] // groups, w.shape[1]
    addend = None
    if len(node.inputs) > 2 and node.inputs[2]:
        addend = (node.inputs[2], TensorType(DType.F32, (m * groups, *(1,) * (w.ndim - 2))), 1.0)
    epilogue = of_group(group, ctx, Axes(out.shape, 1, 2), addend=addend)
    if epilogue is None:
        return None
    images, pixels = x.shape[0], product(shape.inputs)
    # W[channel][m][tap] as the weights [m x tap][channel] of a convolution with one tap
    turned = w.reshape(groups, channels, m * shape.taps).transpose(0, 2, 1).reshape(groups * m * shape.taps, channels)
    columns = ctx.new_value(TensorType(DType.F32, (images, groups * m * shape.taps, pixels)), "columns")
    single = replace(
        shape,
        outputs=shape.inputs,
        kernel=(1, 1, 1),
        stride=(1, 1, 1),
        dilation=(1, 1, 1),
        pad=(0, 0, 0),
        pad_end=(0, 0, 0),
    )
    first = conv_step(
        group, ctx, single, replace(IDENTITY, output=columns), images, groups, turned[:, :, None], node.inputs[0]
    )
    extents = Extents()
    scratch = ceildiv((shape.outputs[2] + ctx.target.lanes) * 4, 64) * 64
    params = {
        "images": extents(images),
        "channels": groups * m,
        "scratch": extents(scratch),
        "g": {
            **geometry(shape, channels, extents),
            "kernel": list(shape.kernel),
        },
        "epilogue": epilogue.params(extents),
    }
    second = Step(
        Kernel("scatter", params, 1.5),
        (columns, *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        scratch=scratch,
        nodes=tuple(n.name for n in group.nodes),
    )
    return [first, second]


def _window(node: Node, x: TensorType, out: TensorType, kernel: tuple[int, ...]) -> Window | None:
    """The window, with the padding before the first output made explicit."""
    assert x.shape is not None
    assert out.shape is not None
    inputs, outputs = x.shape[2:], out.shape[2:]
    rank = len(inputs)
    if not 1 <= rank <= 3 or len(outputs) != rank or len(kernel) != rank:
        return None
    stride = ints(node, "strides", (1,) * rank)
    dilation = ints(node, "dilations", (1,) * rank)
    begin: list[Dim] = list(ints(node, "pads", (0,) * (2 * rank))[:rank])
    mode = node.attrs.get("auto_pad", "NOTSET")
    if mode == "VALID":
        begin = [0] * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER") or node.attrs.get("output_shape"):
        extra = ints(node, "output_padding", (0,) * rank)
        for a in range(rank):
            reach = dilation[a] * (kernel[a] - 1) + 1
            excess = (inputs[a] - 1) * stride[a] + extra[a] + reach - outputs[a]
            begin[a] = excess // 2 if mode == "SAME_UPPER" else excess - excess // 2
    lead = (1,) * (3 - rank)
    zero = (0,) * (3 - rank)
    return Window(
        lead + tuple(inputs),
        lead + tuple(outputs),
        lead + tuple(kernel),
        lead + stride,
        lead + dilation,
        zero + tuple(begin),
        (0, 0, 0),
    )
