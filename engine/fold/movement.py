"""Operators on constants that move, repeat or choose elements, and those about shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph import Constant
from .call import Array, Call, Fast, Refused, _axis, axes_of, numeric


def _where(call: Call) -> list[Array]:
    condition, a, b = call[0], call[1], call[2]
    if a.dtype != b.dtype:
        raise Refused
    call.allow(np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)
    return [np.where(condition, a, b)]


def _trilu(call: Call) -> list[Array]:
    k = call.ints(1)
    function = np.triu if call.integer("upper", 1) else np.tril
    return [np.asarray(function(call[0], k[0] if k else 0))]


def _gather(call: Call) -> list[Array]:
    data, indices = call[0], call[1]
    axis = _axis(call.integer("axis", 0), data.ndim)
    size = data.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise Refused
    call.allow((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)
    return [np.take(data, np.where(indices < 0, indices + size, indices), axis=axis)]


def _gather_elements(call: Call) -> list[Array]:
    data, indices = call[0], call[1]
    axis = _axis(call.integer("axis", 0), data.ndim)
    size = data.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise Refused
    wrapped = np.where(indices < 0, indices + size, indices)
    index: list[Any] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    index[axis] = wrapped
    return [data[tuple(index)]]


def _slice(call: Call) -> list[Array]:
    data = call[0]
    starts, ends = call.ints(1), call.ints(2)
    if starts is None or ends is None:
        raise Refused
    axes = call.ints(3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = call.ints(4)
    steps = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = _axis(axis, data.ndim)
        size = data.shape[axis]
        start, end = (v + size if v < 0 else v for v in (start, end))
        if step > 0:
            index[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        elif step < 0:
            first, last = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
            index[axis] = slice(first, None if last < 0 else last, step)
        else:
            raise Refused
    return [data[tuple(index)]]


def _unsqueeze(call: Call) -> list[Array]:
    axes = axes_of(call, 1, call[0].ndim + len(call.ints(1) or ()))
    if axes is None:
        raise Refused
    return [np.expand_dims(call[0], tuple(axes))]


def _squeeze(call: Call) -> list[Array]:
    axes = axes_of(call, 1, call[0].ndim)
    return [np.squeeze(call[0], None if axes is None else tuple(axes))]


def _reshape(call: Call) -> list[Array]:
    data, shape = call[0], call.ints(1)
    if shape is None:
        raise Refused
    if not call.integer("allowzero", 0):
        shape = [data.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return [data.reshape(shape)]


def _flatten(call: Call) -> list[Array]:
    data, axis = call[0], call.integer("axis", 1)
    axis = axis + data.ndim if axis < 0 else axis
    return [data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))]


def _concat(call: Call) -> list[Array]:
    arrays = call.present()
    if any(a.dtype != arrays[0].dtype for a in arrays):
        raise Refused
    return [np.concatenate(arrays, _axis(call.integer("axis", 0), arrays[0].ndim))]


def _split(call: Call) -> list[Array]:
    data = call[0]
    axis = _axis(call.integer("axis", 0), data.ndim)
    sizes = call.ints(1)
    if sizes is None:
        count = call.integer("num_outputs", call.outputs)
        chunk = -(-data.shape[axis] // count)
        sizes = [min(chunk, max(0, data.shape[axis] - i * chunk)) for i in range(count)]
    if sum(sizes) != data.shape[axis] or min(sizes, default=0) < 0 or len(sizes) != call.outputs:
        raise Refused
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


def _expand(call: Call) -> list[Array]:
    target = tuple(call.ints(1) or ())
    if len(target) > 32:  # more dims than an array may have
        raise Refused
    shape = np.broadcast_shapes(call[0].shape, target)
    call.allow(shape, call[0].dtype)
    return [np.broadcast_to(call[0], shape).copy()]


def _tile(call: Call) -> list[Array]:
    data, repeats = call[0], call.ints(1)
    if repeats is None or len(repeats) != data.ndim:
        raise Refused
    call.allow([d * r for d, r in zip(data.shape, repeats, strict=True)], data.dtype)
    return [np.tile(data, repeats)]


def _constant_of_shape(call: Call) -> list[Array]:
    value = call.attrs.get("value")
    fill = value.array if isinstance(value, Constant) else np.zeros(1, np.float32)
    shape = call.ints(0)
    if shape is None or fill.size != 1 or any(d < 0 for d in shape):
        raise Refused
    call.allow(shape, fill.dtype)
    return [np.full(shape, fill.reshape(-1)[0], fill.dtype)]


def _range(call: Call) -> list[Array]:
    start, limit, delta = (call[i].reshape(()) for i in range(3))
    numeric(start, limit, delta)
    if delta == 0:
        raise Refused
    count = max(math.ceil((limit.astype(np.float64) - start) / delta), 0) if start.dtype.kind == "f" else 0
    if start.dtype.kind in "iu":
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    call.allow((count,), start.dtype)
    return [np.asarray(start + np.arange(count).astype(start.dtype) * delta, dtype=start.dtype)]


def _pad(call: Call) -> list[Array]:
    data, pads = call[0], call.ints(1)
    mode = str(call.attrs.get("mode", "constant"))
    if pads is None or mode not in ("constant", "edge", "reflect", "wrap"):
        raise Refused
    axes = axes_of(call, 3, data.ndim)
    axes = list(range(data.ndim)) if axes is None else axes
    widths = [(0, 0)] * data.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    if mode != "constant" and any(w < 0 for pair in widths for w in pair):
        raise Refused
    crop = tuple(slice(max(-low, 0), data.shape[i] - max(-high, 0)) for i, (low, high) in enumerate(widths))
    grow = [(max(low, 0), max(high, 0)) for low, high in widths]
    call.allow([d + sum(w) for d, w in zip(data.shape, grow, strict=True)], data.dtype)
    if mode == "constant":
        fill = call.get(2)
        value = np.zeros((), data.dtype) if fill is None or not fill.size else fill.reshape(-1)[0]
        found = np.full([d + sum(w) for d, w in zip(data[crop].shape, grow, strict=True)], value, data.dtype)
        inner = tuple(slice(w[0], w[0] + d) for d, w in zip(data[crop].shape, grow, strict=True))
        found[inner] = data[crop]
        return [found]
    return [np.pad(data, grow, mode=mode)]  # type: ignore[call-overload]


def _transpose(call: Call) -> list[Array]:
    return [np.transpose(call[0], call.tuple("perm"))]


def _shape(call: Call) -> list[Array]:
    shape = call[0].shape
    end = call.attrs.get("end")
    return [np.array(shape[call.integer("start", 0) : end if isinstance(end, int) else None], np.int64)]


def _size(call: Call) -> list[Array]:
    return [np.array(call[0].size, np.int64)]


MOVEMENT: dict[str, Fast] = {
    "Identity": lambda call: [call[0]],
    "Where": _where,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Pad": _pad,
    "Transpose": _transpose,
    "Shape": _shape,
    "Size": _size,
    "Trilu": _trilu,
}
