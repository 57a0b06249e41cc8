"""Inference of operators with windows or sampling: convolution, pooling, resizing, regions, Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...ir.graph import DType, TensorType
from ...ir.names import OWN_DOMAIN
from ...ir.symbolic import Dim, at_least, ceildiv, maximum, minimum
from .infer_linear import factors
from .inference_call import RULES, Call, Misfit, Shape, Types, rule, shape_rule

_SAME = ("SAME_UPPER", "SAME_LOWER")
_DEFAULTS = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}


def _by_axis(call: Call, n: int, *names: str) -> list[tuple[int, ...]]:
    """Return attributes with a number for each of `n` spatial axes (two for `pads`); refuses other lengths."""
    counts = [2 * n if name == "pads" else n for name in names]
    found = [call.int_list(name) or (_DEFAULTS[name],) * count for name, count in zip(names, counts, strict=True)]
    if [*map(len, found)] != counts:
        raise call.refuse(f"{', '.join(names[:-1])} or {names[-1]} do not fit {n} spatial dims")
    return found


def _windows(call: Call, spatial: Shape, kernel: Shape) -> Shape:
    """Return the spatial dims of the output of a convolution or pool."""
    n = len(spatial)
    if len(kernel) != n:
        raise call.refuse(f"a kernel of {len(kernel)} dims over {n}")
    strides, dilations, pads = _by_axis(call, n, "strides", "dilations", "pads")
    if any(step < 1 for step in (*strides, *dilations)):
        raise call.refuse(f"strides {list(strides)} and dilations {list(dilations)}")
    mode = call.text("auto_pad", "NOTSET")
    result: list[Dim] = []
    for i, (size, step) in enumerate(zip(spatial, strides, strict=True)):
        if mode in _SAME:
            result.append(ceildiv(size, step))
            continue
        low, high = (0, 0) if mode == "VALID" else (pads[i], pads[i + n])
        reach = dilations[i] * (kernel[i] - 1) + 1
        span = size + low + high - reach
        count = span // step + 1
        # ceil_mode counts with VALID, too, for ONNX's own inference and ONNX Runtime, but not in the standard's text.
        if call.integer("ceil_mode"):
            count = ceildiv(span, step) + 1
            if step > 1:  # a last window that would begin in the padding after the data is left out
                count = minimum(count, (size + low - 1) // step + 1)
        if at_least(-1, count):
            raise Misfit(f"{call.op}: axis {i + 2}: a window of {reach} does not fit into {size + low + high}")
        result.append(call.size_of(count))
    return tuple(result)


def _convolved(call: Call, x: Shape, w: Shape | None) -> Shape:
    if len(x) < (2 if call.op == "Conv" else 3):
        raise call.refuse(f"rank {len(x)}")
    if w is None:
        return (x[0], *(call.unknown_dims(len(x) - 1) or ()))
    if len(w) != len(x):
        raise call.refuse(f"weights of rank {len(w)} on data of rank {len(x)}")
    call.agree(x[1], w[1] * call.integer("group", 1), "channels")
    kernel = call.int_list("kernel_shape") or w[2:]
    if len(kernel) != len(w) - 2:
        raise call.refuse(f"a kernel_shape of {len(kernel)} dims over {len(w) - 2}")
    for stated, own in zip(kernel, w[2:], strict=True):
        call.agree(stated, own, "extents of the kernel")
    return (x[0], w[0], *_windows(call, x[2:], w[2:]))


@rule("Conv rewrite.ConvBf16 ConvInteger QLinearConv DeformConv")
def conv(call: Call) -> Types:
    """Convolution."""
    x, w, dtype = factors(call)
    if call.op in ("Conv", "rewrite.ConvBf16"):
        _check_bias(call, w[0] if w else None)
    return [TensorType(dtype, None if x is None else _convolved(call, x, w))]


def _check_bias(call: Call, channels: Dim | None) -> None:
    """Refuse a bias that does not hold one number for each channel."""
    bias = call.shape(2)
    if bias is not None and len(bias) != 1:
        raise call.refuse(f"a bias of rank {len(bias)}")
    if bias is not None and channels is not None:
        call.agree(bias[0], channels, "numbers in the bias")


@rule("ConvTranspose")
def conv_transpose(call: Call) -> Types:
    """Transposed convolution; `output_shape`, if given, decides."""
    x, w, dtype = factors(call)
    if x is None or w is None:
        return [TensorType(dtype, None if x is None else (x[0], *(call.unknown_dims(len(x) - 1) or ())))]
    if len(w) != len(x):
        raise call.refuse(f"weights of rank {len(w)} on data of rank {len(x)}")
    call.agree(x[1], w[0], "channels")
    channels = w[1] * call.integer("group", 1)
    _check_bias(call, channels)
    n, wanted = len(x) - 2, call.int_list("output_shape")
    strides, dilations, pads, extra = _by_axis(call, n, "strides", "dilations", "pads", "output_padding")
    if wanted and len(wanted) < n:
        raise call.refuse(f"an output_shape of {len(wanted)} dims for {n}")
    mode = call.text("auto_pad", "NOTSET")
    spatial: list[Dim] = []
    for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True)):
        beyond = extra[i] + (kernel - 1) * dilations[i] + 1 - strides[i]  # of the sums over a stride for each input
        if wanted:
            spatial.append(wanted[i - n])
        elif mode in _SAME:  # padding takes off, it adds nothing
            spatial.append(call.size_of(size * strides[i] + minimum(0, beyond)))
        else:
            ends = 0 if mode == "VALID" else pads[i] + pads[i + n]
            spatial.append(call.size_of(strides[i] * size + beyond - ends))
    return [TensorType(dtype, (x[0], channels, *spatial))]


@rule("AveragePool MaxPool LpPool")
def pool(call: Call) -> Types:
    """A number for each window; MaxPool also returns its index."""
    x, kernel = call.shape(), call.int_list("kernel_shape")
    shape = None if x is None or kernel is None else (*x[:2], *_windows(call, x[2:], kernel))
    return [TensorType(call.dtype(), shape), TensorType(DType.I64, shape)]


@rule(
    "rewrite.ChannelsLastConv rewrite.ChannelsLastConvBf16 rewrite.ChannelsLastMaxPool rewrite.ChannelsLastAveragePool"
    " rewrite.ChannelsLastGroupNormalization rewrite.ChannelsLastConvTranspose"
)
def channels_last(call: Call) -> Types:
    """The standard operator on images in NHWC layout; sums of bf16 have the type of the weights."""
    x = call.shape()
    op = call.op.removeprefix(f"{OWN_DOMAIN}.ChannelsLast")
    data = TensorType(call.dtype(int(op == "ConvBf16")), None if x is None else (x[0], x[-1], *x[1:-1]))
    plain = replace(call, op=op.removesuffix("Bf16"), types=[data, *call.types[1:]])
    result = RULES[plain.op](plain)[0]
    shape = result.shape if isinstance(result, TensorType) else None
    return [TensorType(data.dtype, None if shape is None else (shape[0], *shape[2:], shape[1]))]


@rule("rewrite.ImageConvBf16")
def image_conv(call: Call) -> Types:
    """A Conv from NCHW to NHWC layout."""
    result = RULES["Conv"](replace(call, op="Conv"))[0]
    shape = result.shape if isinstance(result, TensorType) else None
    return [TensorType(call.dtype(), None if shape is None else (shape[0], *shape[2:], shape[1]))]


@shape_rule("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def global_pool(call: Call, shape: Shape) -> Shape:
    """A number for each channel; the spatial dims become 1."""
    return (*shape[:2], *(1 for _ in shape[2:]))


@rule("MaxUnpool")
def max_unpool(call: Call) -> Types:
    """The inverse of MaxPool, of the size in the third input if there is one."""
    x, kernel, wanted = call.shape(), call.int_list("kernel_shape"), call.dims(2)
    if wanted is not None:
        return [TensorType(call.dtype(), tuple(call.size_of(d) for d in wanted))]
    if x is None or kernel is None or call.present(2):
        return [TensorType(call.dtype(), call.unknown_dims(call.rank()))]
    n = len(kernel)
    strides, pads = _by_axis(call, n, "strides", "pads")
    spatial = (call.size_of((x[i + 2] - 1) * strides[i] - pads[i] - pads[i + n] + kernel[i]) for i in range(n))
    return [TensorType(call.dtype(), (*x[:2], *spatial))]


@shape_rule("Resize Upsample")
def resize(call: Call, shape: Shape) -> Shape:
    """The sizes in the fourth input, or `floor(dim * scale)` for the scales in the third."""
    axes = call.axes_of(call.int_list("axes") or range(len(shape)), len(shape))
    given = [shape[axis] for axis in axes]
    sizes, scales = call.dims(3), call.array(2)
    found: Sequence[Dim] | None = None
    if not call.present(3):
        if scales is not None and scales.size == len(axes):
            found = [_scaled(call, d, float(scale)) for d, scale in zip(given, scales.reshape(-1), strict=True)]
    elif call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        found = _keep_aspect(call, given)
    elif sizes is not None:
        found = [call.size_of(d) for d in sizes]
    result = list(shape)
    for i, axis in enumerate(axes):
        result[axis] = call.fresh() if found is None else found[i]
    return tuple(result)


_MOST = float(1 << 31)
"""Maximum factor by which an image is enlarged."""


def _scaled(call: Call, size: Dim, scale: float) -> Dim:
    if not 0 < scale < _MOST:
        raise call.refuse(f"a scale of {scale:g}")
    above, below = scale.as_integer_ratio()
    return size * above // below if below <= _MOST else call.fresh()


def _keep_aspect(call: Call, given: Sequence[Dim]) -> Shape | None:
    wanted, sizes = call.ints(3), [d for d in given if isinstance(d, int) and d > 0]
    if wanted is None or not len(wanted) == len(sizes) == len(given):
        return None
    least = call.text("keep_aspect_ratio_policy") == "not_larger"
    scale = (min if least else max)(w / d for w, d in zip(wanted, sizes, strict=True))
    return tuple(math.floor(scale * d + 0.5) for d in sizes)


@rule("GridSample")
def grid_sample(call: Call) -> Types:
    """The channels of the data at each point of the grid."""
    x, grid = call.shape(0), call.shape(1)
    if x is None or grid is None:
        return [TensorType(call.dtype(), call.unknown_dims(call.rank(0) or call.rank(1)))]
    return [TensorType(call.dtype(), (x[0], x[1], *grid[1:-1]))]


@rule("ImageDecoder")
def image_decoder(call: Call) -> Types:
    """An image of (height, width, channels) bytes."""
    channels = 1 if call.text("pixel_format", "RGB") == "Grayscale" else 3
    return [TensorType(DType.U8, (call.fresh(), call.fresh(), channels))]


@shape_rule("DFT")
def dft(call: Call, shape: Shape) -> Shape:
    """Fourier transform along one axis; the last dim is 2 (complex) or 1 (real)."""
    where = call.ints(2) if call.present(2) else (-2,)
    onesided, inverse = call.integer("onesided"), call.integer("inverse")
    last = 1 if onesided and inverse else 2
    if where is None:
        return (*(call.fresh() for _ in shape[:-1]), last)
    axis = call.axis_of(where[0], len(shape))
    size = call.given_size(1) if call.present(1) else shape[axis]
    if onesided and not inverse:
        size = size // 2 + 1
    elif onesided and not call.present(1):
        size = call.size_of(2 * (size - 1))
    return (*shape[:axis], size, *shape[axis + 1 : -1], last)


@rule("STFT")
def stft(call: Call) -> Types:
    """Fourier transforms of frames: (batch, frames, bins, 2)."""
    signal, step, length, window = call.shape(0), call.ints(1), call.dims(3), call.shape(2)
    frame = length[0] if length else window[0] if window and not call.present(3) else None
    if signal is not None and not call.present(2) and not call.present(3):
        frame = signal[1]
    if signal is None or frame is None or not call.dims(1):
        return [TensorType(call.dtype(), (signal[0] if signal else call.fresh(), call.fresh(), call.fresh(), 2))]
    bins = call.size_of(frame // 2 + 1 if call.integer("onesided", 1) else frame)
    frames = maximum((signal[1] - frame) // step[0] + 1, 0) if step and step[0] > 0 else call.fresh()
    return [TensorType(call.dtype(), (signal[0], frames, bins, 2))]
