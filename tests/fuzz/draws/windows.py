"""Convolutions, pools, and what else reads windows or positions of images."""

from __future__ import annotations

import math

import numpy as np

from ..eager import BF16, Invalid
from ..maker import (
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    U8,
    Maker,
    is_float,
)
from .registry import draws


def _window(m: Maker, spatial: int, dilated: bool = True) -> dict[str, object]:
    """Return random attributes of a window over as many axes."""
    found: dict[str, object] = {}
    if m.chance(0.5):
        found["strides"] = [m.between(1, 3) for _ in range(spatial)]
    if m.chance(0.3) and dilated:
        found["dilations"] = [m.between(1, 2) for _ in range(spatial)]
    if m.chance(0.2):
        found["auto_pad"] = m.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif m.chance(0.6):
        found["pads"] = [m.between(0, 2) for _ in range(2 * spatial)]
    return found


def _image(m: Maker, dtypes: tuple[np.dtype, ...], channels: int | None = None) -> tuple[str, int]:
    """Return an operand with batch and channels, and the number of its other axes."""
    spatial = m.pick((1, 2, 2, 2, 3))
    fits = [
        n for n in m._usable()
        if m.dtype(n) in dtypes and len(m.dims(n)) == spatial + 2 and min(m.dims(n)[2:]) > 2
        and channels in (None, m.dims(n)[1])
    ]  # fmt: skip
    if fits and m.chance(0.7):
        return m.pick(fits), spatial
    extents = [m.pick((3, 4, 5, 7, 8, 9, 14)) if spatial < 3 else m.between(3, 5) for _ in range(spatial)]
    return m.new(
        m.pick(dtypes), (m.pick((1, 2)), channels or m.pick((1, 2, 3, 4, 8, 16, 17)), *extents), fixed=0.0
    ), spatial


@draws(5)
def conv(m: Maker) -> object:
    x, spatial = _image(m, FLOATS)
    channels = m.dims(x)[1]
    groups = m.pick([g for g in (1, 1, 2, 4, channels) if g and channels % g == 0] or [1])
    filters = groups * m.pick((1, 2, 3, 8))
    kernel = [m.pick((1, 2, 3, 3, 5)) for _ in range(spatial)]
    if m.chance(0.4):
        kernel = [kernel[0]] * spatial
    w = m.like(m.dtype(x), (filters, channels // groups, *kernel), fixed=0.8)
    operands = [x, w, m.like(m.dtype(x), (filters,), fixed=0.8)][: m.between(2, 3)]
    [y] = m.emit("Conv", operands, group=groups, kernel_shape=kernel if m.chance(0.7) else None, **_window(m, spatial))
    if m.chance(0.4):
        [y] = m.emit(m.pick(("Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Clip")), [y])
    return y


@draws(1.5)
def conv_transpose(m: Maker) -> object:
    x, spatial = _image(m, FLOATS)
    channels = m.dims(x)[1]
    groups = m.pick([g for g in (1, 1, 2, channels) if g and channels % g == 0] or [1])
    kernel = [m.pick((1, 2, 3, 4)) for _ in range(spatial)]
    w = m.like(m.dtype(x), (channels, m.pick((1, 2, 4)), *kernel), fixed=0.8)
    operands = [x, w]
    if m.chance(0.5):
        operands.append(m.like(m.dtype(x), (m.dims(w)[1] * groups,), fixed=0.8))
    window = _window(m, spatial)
    strides = window.get("strides", [1] * spatial)
    extra = [m.between(0, s - 1) for s in strides] if m.chance(0.3) else None  # type: ignore[attr-defined]
    return m.emit("ConvTranspose", operands, group=groups, output_padding=extra, **window)


@draws(1.5)
def quantized_conv(m: Maker) -> object:
    x, spatial = _image(m, (U8, I8))
    channels = m.dims(x)[1]
    groups = m.pick([g for g in (1, 1, channels) if g and channels % g == 0] or [1])
    filters = groups * m.pick((1, 2, 4, 8))
    b = m.pick((U8, I8)) if m.dtype(x) == U8 else I8
    w = m.new(b, (filters, channels // groups, *(m.pick((1, 3)) for _ in range(spatial))), fixed=0.8)
    if m.chance(0.4):
        zeros = [m.constant(m.array(m.dtype(x), ()), m.dtype(x)), m.constant(m.array(b, ()), b)]
        return m.emit("ConvInteger", [x, w, *zeros[: m.between(0, 2)]], group=groups, **_window(m, spatial))
    per = (filters,) if m.chance(0.5) else ()
    operands = [
        x, m.constant(0.02, F32), m.constant(m.array(m.dtype(x), ()) // 4, m.dtype(x)),
        w, m.constant(np.abs(m.array(F32, per)) * 0.02 + 0.001, F32), m.constant(np.zeros(per), b),
        m.constant(0.1, F32), m.constant(m.array(m.dtype(x), ()) // 4, m.dtype(x)),
    ]  # fmt: skip
    if m.chance(0.5):
        operands.append(m.constant(m.array(I32, (filters,)), I32))
    return m.emit("QLinearConv", operands, group=groups, **_window(m, spatial))


@draws(2.5)
def pool(m: Maker) -> object:
    op = m.pick(("AveragePool", "AveragePool", "MaxPool", "MaxPool", "LpPool"))
    kinds = (*FLOATS, U8, I8) if op == "MaxPool" else FLOATS
    x, spatial = _image(m, kinds)
    window = _window(m, spatial, m.opset >= {"AveragePool": 19, "MaxPool": 10, "LpPool": 18}[op])
    kernel = [m.between(1, 3) for _ in range(spatial)]
    if "pads" in window:
        window["pads"] = [min(p, k - 1) for p, k in zip(window["pads"], kernel * 2, strict=True)]  # type: ignore[call-overload]
    ceil = m.between(0, 1) if m.chance(0.3) else None
    if op == "AveragePool":
        inside = m.between(0, 1) if m.chance(0.5) else None
        return m.emit(op, [x], kernel_shape=kernel, ceil_mode=ceil, count_include_pad=inside, **window)
    if op == "LpPool":
        return m.emit(
            op, [x], kernel_shape=kernel, p=m.between(1, 3), ceil_mode=ceil if m.opset >= 18 else None, **window
        )
    order = m.between(0, 1) if m.chance(0.3) else None
    return m.emit(op, [x], m.between(1, 2), kernel_shape=kernel, ceil_mode=ceil, storage_order=order, **window)


@draws(1.5)
def global_pool(m: Maker) -> object:
    x, _ = _image(m, FLOATS)
    op = m.pick(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    return m.emit(op, [x], **({"p": m.between(1, 3)} if op == "GlobalLpPool" else {}))


@draws(0.6)
def unpool(m: Maker) -> object:
    x = m.new(m.pick((F32, F64, F16)), (1, m.between(1, 3), 2 * m.between(1, 4), 2 * m.between(1, 4)))
    top, where = m.emit("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    return m.emit("MaxUnpool", [top, where], kernel_shape=[2, 2], strides=[2, 2])


@draws(1)
def regions(m: Maker) -> object:
    dtype = m.pick(FLOATS)
    x = m.like(dtype, (m.between(1, 2), m.between(1, 4), m.between(6, 12), m.between(6, 12)))
    count = m.pick((0, 1, 3, 5)) if m.chance(0.3) else m.between(1, 5)
    corners = np.sort(m.rng.random((2, count, 2)) * 12, axis=0)
    boxes = np.concatenate(list(corners), -1)
    batch = m.rng.integers(0, m.dims(x)[0], count)
    if m.chance(0.3):
        rois = np.concatenate([batch[:, None], np.round(boxes)], -1)
        size = [m.between(1, 4), m.between(1, 4)]
        scale = m.pick((1.0, 0.5))
        return m.emit("MaxRoiPool", [x, m.fresh(rois.astype(dtype))], pooled_shape=size, spatial_scale=scale)
    mode = m.pick(("half_pixel", "output_half_pixel")) if m.opset >= 16 else None
    return m.emit(
        "RoiAlign", [x, m.fresh(boxes.astype(dtype)), m.fresh(batch)], output_height=m.between(1, 4),
        output_width=m.between(1, 4), sampling_ratio=m.between(0, 3), spatial_scale=m.pick((1.0, 0.5)),
        mode=m.pick(("avg", "max")) if dtype != F16 else "avg", coordinate_transformation_mode=mode,
    )  # fmt: skip


@draws(1)
def grid_sample(m: Maker) -> object:
    dtype = m.pick((F32, F32, F64, F16, BF16))
    spatial = min(m.pick((2, 2, 3)), 3 if m.opset >= 20 else 2)  # before, ONNX Runtime took what the standard did not
    n = m.between(1, 2)
    corners = m.between(0, 1)
    if m.chance(0.3):
        theta = m.new(dtype, (n, spatial, spatial + 1), "plain")
        size = m.constant([n, m.between(1, 3), *(m.between(2, 5) for _ in range(spatial))])
        [grid] = m.emit("AffineGrid", [theta, size], align_corners=corners)
    else:
        grid = m.new(dtype, (n, *(m.between(1, 5) for _ in range(spatial)), spatial), m.pick(("unit", "plain")))
    x = m.like(dtype, (n, m.between(1, 5), *(m.between(2, 6) for _ in range(spatial))))
    modes = ("linear", "nearest", "cubic") if m.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = m.pick(modes[: 3 if spatial == 2 else 2])
    padding = m.pick(("zeros", "border", "reflection"))
    return m.emit("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=corners)


@draws(2)
def resize(m: Maker) -> object:
    x, spatial = _image(m, (F32, F32, F16, BF16, F64, U8, I8))
    mode = m.pick(("nearest", "linear", "cubic")) if spatial == 2 else m.pick(("nearest", "linear"))
    if not is_float(m.dtype(x)):
        mode = "nearest"
    way = m.pick(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"))
    if way == "half_pixel_symmetric" and m.opset < 19:
        way = "half_pixel"  # ONNX Runtime has the other at every opset
    rounding = m.pick(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")) if mode == "nearest" else None
    smooth = 1 if m.opset >= 18 and mode != "nearest" and m.chance(0.3) else None
    attributes = {"mode": mode, "coordinate_transformation_mode": way, "nearest_mode": rounding, "antialias": smooth}
    if m.chance(0.5):
        inexact = 0.625 if mode == "nearest" else 0.6  # whose rounding decides what is nearest
        scales = [1.0, 1.0, *(m.pick((2.0, 0.5, 1.5, 1.0, 3.0, inexact)) for _ in range(spatial))]
        symmetric = mode == "nearest" and way == "half_pixel_symmetric"
        if symmetric and any(_centering_decides(*pair) for pair in zip(m.dims(x)[2:], scales[2:], strict=True)):
            raise Invalid("a position lies on an element or in the middle between two, and both oracles round it")
        return m.emit("Resize", [x, "", m.constant(scales, F32)], **attributes)
    least = 2 if way == "half_pixel_symmetric" else 1  # ONNX Runtime takes the first element for a single one
    sizes = [*m.dims(x)[:2], *(m.between(least, 12) for _ in range(spatial))]
    if mode == "nearest" and any(_rounding_decides(*pair, way) for pair in zip(m.dims(x)[2:], sizes[2:], strict=True)):
        raise Invalid("a position lies on an element or in the middle between two, and the scale is not exact")
    return m.emit("Resize", [x, "", "", m.constant(sizes)], **attributes)


def _rounding_decides(size: int, resized: int, way: str) -> bool:
    """Return whether the rounding of an inexact scale decides which element is nearest to one of a resized axis."""
    denominator = size // math.gcd(size, resized)
    if way == "align_corners" or denominator & (denominator - 1) == 0:
        return False
    shift = 0.5 if "half_pixel" in way else 0.0
    doubled = 2 * ((np.arange(0 if shift else 1, resized) + shift) * size / resized - shift)
    return bool((np.abs(doubled - np.rint(doubled)) < 1e-6).any())


def _centering_decides(size: int, scale: float) -> bool:
    """Return whether the rounding of half_pixel_symmetric's offset decides which element is nearest.

    ONNX Runtime and the reference divide by the fractional size before they center: they find 0.9999999 for 1 where 3
    elements shrink by 0.625. `test_resize_by_exact_scales` compares such positions with exact arithmetic."""
    resized = math.floor(size * scale)
    if resized == size * scale:
        return False
    doubled = size - 1 + (2 * np.arange(resized) + 1 - resized) / scale
    return bool((np.abs(doubled - np.rint(doubled)) < 1e-6).any())


@draws(0.6)
def deform_conv(m: Maker) -> object:
    dtype = m.pick((F32, F32, F64, F16, BF16))
    n, c, h, w = m.between(1, 2), m.pick((1, 2, 4)), m.between(4, 7), m.between(4, 7)
    kh, kw, stride, dilation, pads = m.between(1, 3), m.between(1, 3), m.between(1, 2), 1, m.between(0, 1)
    group, offset = m.pick((1, c)), m.pick((1, c))
    oh, ow = (h + 2 * pads - kh) // stride + 1, (w + 2 * pads - kw) // stride + 1
    filters = group * m.between(1, 3)
    operands = [
        m.like(dtype, (n, c, h, w)), m.like(dtype, (filters, c // group, kh, kw)),
        m.new(dtype, (n, offset * kh * kw * 2, oh, ow), "plain"),
        m.like(dtype, (filters,)) if m.chance(0.5) else "", m.new(dtype, (n, offset * kh * kw, oh, ow)),
    ]  # fmt: skip
    return m.emit(
        "DeformConv", operands[: m.pick((3, 4, 5))], group=group, offset_group=offset, kernel_shape=[kh, kw],
        strides=[stride] * 2, pads=[pads] * 4, dilations=[dilation] * 2,
    )  # fmt: skip
