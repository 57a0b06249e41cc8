"""Operators with windows or sampling over spatial dims: convolution, pooling, resizing, regions, Fourier transforms."""

from __future__ import annotations

import math
from dataclasses import replace

from ..graph import DType, TensorType
from ..operators import OWN_DOMAIN
from ..symbolic import Dim, ceildiv, certainly_differ, maximum, minimum
from .core import RULES, Call, Shape, Types, agree, axes_of, axis_of, refuse, rule, size_of


def window_size(
    call: Call, size: Dim, kernel: Dim, stride: int, dilation: int, pads: tuple[int, int], ceil: bool
) -> Dim:
    """The number of windows along one dim, for explicit pads.

    With `ceil_mode` a last window that would begin in the padding after the data is left out."""
    span = size + sum(pads) - dilation * (kernel - 1) - 1
    if not ceil:
        return size_of(call, span // stride + 1)
    count = ceildiv(span, stride) + 1
    if stride == 1:
        return size_of(call, count)
    # The last window is there only if it begins before size + pads[0].
    return size_of(call, minimum(count, (size + pads[0] - 1) // stride + 1))


def windows(call: Call, spatial: Shape, kernel: Shape) -> Shape:
    """The spatial dims of a convolution's or a pooling's output."""
    n = len(spatial)
    if len(kernel) != n:
        raise refuse(call, f"a kernel of {len(kernel)} dims over {n}")
    strides = call.int_list("strides") or (1,) * n
    dilations = call.int_list("dilations") or (1,) * n
    pads = call.int_list("pads") or (0,) * (2 * n)
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        raise refuse(call, f"strides, dilations or pads do not fit {n} spatial dims")
    if any(step < 1 for step in (*strides, *dilations)):
        raise refuse(call, f"strides {list(strides)} and dilations {list(dilations)}")
    mode = call.text("auto_pad", "NOTSET")
    ceil = bool(call.integer("ceil_mode"))
    result: list[Dim] = []
    for i, size in enumerate(spatial):
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            result.append(ceildiv(size, strides[i]))
            continue
        ends = (0, 0) if mode == "VALID" else (pads[i], pads[i + n])
        if mode == "VALID" and ceil:
            # VALID is defined as ceil((size - span + 1) / stride), which ceil_mode does not change
            result.append(window_size(call, size, kernel[i], strides[i], dilations[i], ends, False))
            continue
        result.append(window_size(call, size, kernel[i], strides[i], dilations[i], ends, ceil))
    return tuple(result)


def _convolve(call: Call, x: Shape | None, w: Shape | None) -> Shape | None:
    if x is None:
        return None
    if len(x) < (2 if call.op == "Conv" else 3):
        raise refuse(call, f"rank {len(x)}")
    if w is None:
        return (x[0], *(call.unknown_dims(len(x) - 1) or ()))
    if len(w) != len(x):
        raise refuse(call, f"weights of rank {len(w)} on data of rank {len(x)}")
    agree(call, x[1], w[1] * call.integer("group", 1), "channels")
    kernel = call.int_list("kernel_shape") or w[2:]
    if len(kernel) != len(w) - 2:
        raise refuse(call, f"a kernel_shape of {len(kernel)} dims over {len(w) - 2}")
    for told, own in zip(kernel, w[2:], strict=True):
        agree(call, told, own, "extents of the kernel")
    return (x[0], w[0], *windows(call, x[2:], w[2:]))


@rule("Conv", "rewrite.ConvBf16")
def conv(call: Call) -> Types:
    """A convolution."""
    w = call.shape(1)
    _bias(call, w[0] if w else None)
    return [TensorType(call.dtype(0) or call.dtype(1), _convolve(call, call.shape(0), w))]


def _bias(call: Call, channels: Dim | None) -> None:
    """Refuses a bias that does not hold one number for each channel."""
    bias = call.shape(2) if call.present(2) else None
    if bias is not None and len(bias) != 1:
        raise refuse(call, f"a bias of rank {len(bias)}")
    if bias is not None and channels is not None:
        if certainly_differ(bias[0], channels):
            raise refuse(call, f"{bias[0]} numbers in the bias for {channels} channels")


@rule("ConvInteger")
def conv_integer(call: Call) -> Types:
    """A convolution of bytes in 32 bits."""
    return [TensorType(DType.I32, _convolve(call, call.shape(0), call.shape(1)))]


@rule("QLinearConv")
def qlinear_conv(call: Call) -> Types:
    """A quantised convolution; the type is that of the output's zero point."""
    return [TensorType(call.dtype(7), _convolve(call, call.shape(0), call.shape(3)))]


@rule("DeformConv")
def deform_conv(call: Call) -> Types:
    """A convolution with learned offsets."""
    return [TensorType(call.dtype(0), _convolve(call, call.shape(0), call.shape(1)))]


@rule("ConvTranspose")
def conv_transpose(call: Call) -> Types:
    """The transpose of a convolution; `output_shape`, if given, decides."""
    x, w = call.shape(0), call.shape(1)
    dtype = call.dtype(0) or call.dtype(1)
    if x is None or w is None:
        return [TensorType(dtype, None if x is None else (x[0], *(call.unknown_dims(len(x) - 1) or ())))]
    if len(w) != len(x):
        raise refuse(call, f"weights of rank {len(w)} on data of rank {len(x)}")
    agree(call, x[1], w[0], "channels")
    _bias(call, w[1] * call.integer("group", 1))
    n = len(x) - 2
    strides = call.int_list("strides") or (1,) * n
    dilations = call.int_list("dilations") or (1,) * n
    pads = call.int_list("pads") or (0,) * (2 * n)
    extra = call.int_list("output_padding") or (0,) * n
    wanted = call.int_list("output_shape")
    if any(len(given) != count for given, count in ((strides, n), (dilations, n), (pads, 2 * n), (extra, n))):
        raise refuse(call, f"strides, dilations, pads or output_padding do not fit {n} spatial dims")
    if wanted and len(wanted) < n:
        raise refuse(call, f"an output_shape of {len(wanted)} dims for {n}")
    mode = call.text("auto_pad", "NOTSET")
    spatial: list[Dim] = []
    for i in range(n):
        if wanted:
            spatial.append(wanted[i - n])
        elif mode in ("SAME_UPPER", "SAME_LOWER"):
            spatial.append(x[i + 2] * strides[i])
        else:
            ends = 0 if mode == "VALID" else pads[i] + pads[i + n]
            full = strides[i] * (x[i + 2] - 1) + extra[i] + (w[i + 2] - 1) * dilations[i] + 1
            spatial.append(size_of(call, full - ends))
    return [TensorType(dtype, (x[0], w[1] * call.integer("group", 1), *spatial))]


@rule("AveragePool", "MaxPool", "LpPool")
def pool(call: Call) -> Types:
    """A number for each window; MaxPool also says where it was."""
    x, kernel = call.shape(), call.int_list("kernel_shape")
    if x is None or kernel is None:
        return [TensorType(call.dtype()), TensorType(DType.I64)]
    shape = (*x[:2], *windows(call, x[2:], kernel))
    return [TensorType(call.dtype(), shape), TensorType(DType.I64, shape)]


@rule(f"{OWN_DOMAIN}.ChannelsLastConvBf16")
def channels_last_conv_bf16(call: Call) -> Types:
    """A convolution of bf16, whose sums have the type of the weights."""
    return channels_last(replace(call, op=f"{OWN_DOMAIN}.ChannelsLastConv", types=[_typed(call), *call.types[1:]]))


def _typed(call: Call) -> TensorType:
    """The first operand's type with the element type of the second."""
    return TensorType(call.dtype(1), call.shape())


@rule(f"{OWN_DOMAIN}.ChannelsLastConv", f"{OWN_DOMAIN}.ChannelsLastMaxPool", f"{OWN_DOMAIN}.ChannelsLastAveragePool")
def channels_last(call: Call) -> Types:
    """The operator of the standard on images with their channels after their rows and columns."""
    x = call.shape()
    op = call.op.removeprefix(f"{OWN_DOMAIN}.ChannelsLast")
    turned = None if x is None else (x[0], x[-1], *x[1:-1])
    plain = replace(call, op=op, types=[TensorType(call.dtype(), turned), *call.types[1:]])
    result = RULES[op](plain)[0]
    shape = result.shape if isinstance(result, TensorType) else None
    return [TensorType(call.dtype(), None if shape is None else (shape[0], *shape[2:], shape[1]))]


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call) -> Types:
    """A number for each channel; the spatial dims become 1."""
    x = call.shape()
    return [TensorType(call.dtype(), None if x is None else (*x[:2], *(1 for _ in x[2:])))]


@rule("MaxUnpool")
def max_unpool(call: Call) -> Types:
    """The inverse of MaxPool, of the size in the third input if there is one."""
    x, kernel, wanted = call.shape(), call.int_list("kernel_shape"), call.dims(2)
    if wanted is not None:
        return [TensorType(call.dtype(), tuple(size_of(call, d) for d in wanted))]
    if x is None or kernel is None or call.present(2):
        return [TensorType(call.dtype(), call.unknown_dims(None if x is None else len(x)))]
    n = len(kernel)
    strides = call.int_list("strides") or (1,) * n
    pads = call.int_list("pads") or (0,) * (2 * n)
    spatial = (size_of(call, (x[i + 2] - 1) * strides[i] - pads[i] - pads[i + n] + kernel[i]) for i in range(n))
    return [TensorType(call.dtype(), (*x[:2], *spatial))]


@rule("Resize", "Upsample")
def resize(call: Call) -> Types:
    """The sizes in the fourth input, or `floor(dim * scale)` for the scales in the third."""
    shape = call.shape()
    if shape is None:
        return [TensorType(call.dtype())]
    axes = axes_of(call, call.int_list("axes") or range(len(shape)), len(shape))
    result: list[Dim] = list(shape)
    sizes, scales = call.dims(3), call.array(2)
    if call.present(3):
        if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            known = _keep_aspect(call, shape, axes)
        else:
            known = None if sizes is None else tuple(size_of(call, d) for d in sizes)
        for i, axis in enumerate(axes):
            result[axis] = call.fresh() if known is None else known[i]
    else:
        for i, axis in enumerate(axes):
            scale = None if scales is None or scales.size != len(axes) else float(scales.reshape(-1)[i])
            result[axis] = _scaled(call, shape[axis], scale)
    return [TensorType(call.dtype(), tuple(result))]


_MOST = float(1 << 31)
"""No image is made larger than by this."""


def _scaled(call: Call, size: Dim, scale: float | None) -> Dim:
    if scale is None:
        return call.fresh()
    if not 0 < scale < _MOST:
        raise refuse(call, f"a scale of {scale:g}")
    if isinstance(size, int):
        return math.floor(size * scale)
    return size * int(scale) if scale == int(scale) else call.fresh()


def _keep_aspect(call: Call, shape: Shape, axes: tuple[int, ...]) -> Shape | None:
    wanted = call.ints(3)
    if wanted is None or len(wanted) != len(axes):
        return None
    sizes = [shape[axis] for axis in axes]
    if not all(isinstance(d, int) and d > 0 for d in sizes):
        return None
    ratios = [w / d for w, d in zip(wanted, sizes, strict=True) if isinstance(d, int)]
    scale = min(ratios) if call.text("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    return tuple(math.floor(scale * d + 0.5) for d in sizes if isinstance(d, int))


@rule("GridSample")
def grid_sample(call: Call) -> Types:
    """The channels of the data at each point of the grid."""
    x, grid = call.shape(0), call.shape(1)
    if x is None or grid is None:
        return [TensorType(call.dtype(), call.unknown_dims(call.rank(0) or call.rank(1)))]
    return [TensorType(call.dtype(), (x[0], x[1], *grid[1:-1]))]


@rule("RoiAlign")
def roi_align(call: Call) -> Types:
    """A small image of fixed size for each region."""
    x, rois = call.shape(0), call.shape(1)
    channels = call.fresh() if x is None else x[1]
    size = (call.integer("output_height", 1), call.integer("output_width", 1))
    return [TensorType(call.dtype(), (call.fresh() if rois is None else rois[0], channels, *size))]


@rule("MaxRoiPool")
def max_roi_pool(call: Call) -> Types:
    """A small image of fixed size for each region."""
    x, rois, size = call.shape(0), call.shape(1), call.int_list("pooled_shape")
    if size is None:
        return [TensorType(call.dtype())]
    channels = call.fresh() if x is None else x[1]
    return [TensorType(call.dtype(), (call.fresh() if rois is None else rois[0], channels, *size))]


@rule("NonMaxSuppression")
def non_max_suppression(call: Call) -> Types:
    """Rows of (batch, class, box)."""
    return [TensorType(DType.I64, (call.fresh(), 3))]


@rule("ImageDecoder")
def image_decoder(call: Call) -> Types:
    """An image of (height, width, channels) bytes."""
    channels = 1 if call.text("pixel_format", "RGB") == "Grayscale" else 3
    return [TensorType(DType.U8, (call.fresh(), call.fresh(), channels))]


@rule("DFT")
def dft(call: Call) -> Types:
    """A Fourier transform along one axis; the last dim is 2 (complex) or 1 (real)."""
    shape, length = call.shape(), call.dims(1)
    where = call.ints(2) if call.present(2) else (-2,)
    if shape is None:
        return [TensorType(call.dtype())]
    if where is None:
        parts = 1 if call.integer("onesided") and call.integer("inverse") else 2
        return [TensorType(call.dtype(), (*(call.fresh() for _ in shape[:-1]), parts))]
    axis = axis_of(call, where[0], len(shape))
    size: Dim = shape[axis]
    if call.present(1):
        size = size_of(call, length[0]) if length else call.fresh()
    last: Dim = 2
    if call.integer("onesided"):
        if call.integer("inverse"):
            last = 1
            size = size if call.present(1) else call.fresh()
        else:
            size = size // 2 + 1
    return [TensorType(call.dtype(), (*shape[:axis], size, *shape[axis + 1 : -1], last))]


@rule("STFT")
def stft(call: Call) -> Types:
    """Fourier transforms of frames: (batch, frames, bins, 2)."""
    signal, step, length, window = call.shape(0), call.dims(1), call.dims(3), call.shape(2)
    if signal is None:
        return [TensorType(call.dtype(), (*(call.fresh() for _ in range(3)), 2))]
    frame: Dim | None = length[0] if length else window[0] if window and not call.present(3) else None
    if frame is None or not step:
        return [TensorType(call.dtype(), (signal[0], call.fresh(), call.fresh(), 2))]
    bins = frame // 2 + 1 if call.integer("onesided", 1) else frame
    stride = step[0]
    if not isinstance(stride, int) or stride <= 0:
        return [TensorType(call.dtype(), (signal[0], call.fresh(), size_of(call, bins), 2))]
    frames = maximum((signal[1] - frame) // stride + 1, 0)
    return [TensorType(call.dtype(), (signal[0], frames, size_of(call, bins), 2))]
