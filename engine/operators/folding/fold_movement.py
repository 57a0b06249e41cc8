"""Operators on constants that move, repeat or select elements, and those about shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.graph import Constant
from .fold_call import Array, Call, Fast, Refused, front_axis, numeric


def _where(call: Call) -> Array:
    condition, a, b = call[0], call[1], call[2]
    if a.dtype != b.dtype:
        raise Refused
    call.allow(np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)
    return np.where(condition, a, b)


def _trilu(call: Call) -> Array:
    k = call.ints(1)
    function = np.triu if call.integer("upper", 1) else np.tril
    return np.asarray(function(call[0], k[0] if k else 0))


def _indices(call: Call) -> tuple[int, Array]:
    """Return the attribute `axis` and the indices along it, both counted from the front."""
    data, indices = call[0], call[1]
    axis = front_axis(call.integer("axis", 0), data.ndim)
    size = data.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise Refused
    return axis, np.where(indices < 0, indices + size, indices)


def _gather(call: Call) -> Array:
    data, (axis, indices) = call[0], _indices(call)
    call.allow((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)
    return np.take(data, indices, axis=axis)


def _gather_elements(call: Call) -> Array:
    axis, indices = _indices(call)
    index: list[Any] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    index[axis] = indices
    return np.asarray(call[0][tuple(index)])


def _slice(call: Call) -> Array:
    data, starts, ends, axes, steps = call[0], *(call.ints(i) for i in range(1, 5))
    if starts is None or ends is None:
        raise Refused
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = front_axis(axis, data.ndim)
        # Unlike in Python, a start before the beginning is the beginning also for a negative step.
        index[axis] = slice(max(start, -data.shape[axis]) if step < 0 else start, end, step)
    return data[tuple(index)]


def _unsqueeze(call: Call) -> Array:
    axes = call.axes(1, call[0].ndim + len(call.ints(1) or ()))
    if axes is None:
        raise Refused
    return np.expand_dims(call[0], axes)


def _reshape(call: Call) -> Array:
    data, shape = call[0], call.ints(1)
    if shape is None:
        raise Refused
    if not call.integer("allowzero", 0):
        shape = [data.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return data.reshape(shape)


def _flatten(call: Call) -> Array:
    data, axis = call[0], call.integer("axis", 1)
    axis = axis + data.ndim if axis < 0 else axis
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


def _concat(call: Call) -> Array:
    arrays = call.present()
    if any(a.dtype != arrays[0].dtype for a in arrays):
        raise Refused
    return np.concatenate(arrays, front_axis(call.integer("axis", 0), arrays[0].ndim))


def _split(call: Call) -> list[Array]:
    data, sizes = call[0], call.ints(1)
    axis = front_axis(call.integer("axis", 0), data.ndim)
    size = data.shape[axis]
    if sizes is None:
        count = call.integer("num_outputs", call.outputs)
        chunk = -(-size // count)
        sizes = [min(chunk, max(0, size - i * chunk)) for i in range(count)]
    if sum(sizes) != size or min(sizes, default=0) < 0 or len(sizes) != call.outputs:
        raise Refused
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


def _expand(call: Call) -> Array:
    target = tuple(call.ints(1) or ())
    if len(target) > 32:  # more dims than a NumPy array supports
        raise Refused
    shape = np.broadcast_shapes(call[0].shape, target)
    call.allow(shape, call[0].dtype)
    return np.broadcast_to(call[0], shape).copy()


def _tile(call: Call) -> Array:
    data, repeats = call[0], call.ints(1)
    if repeats is None or len(repeats) != data.ndim:
        raise Refused
    shape = [d * r for d, r in zip(data.shape, repeats, strict=True)]
    call.allow(shape, data.dtype)
    if 0 in shape:  # NumPy repeats axis by axis, so that a step on the way to an empty result may be huge
        return np.empty(shape, data.dtype)
    return np.tile(data, repeats)


def _constant_of_shape(call: Call) -> Array:
    value, shape = call.attrs.get("value"), call.ints(0)
    fill = value.array if isinstance(value, Constant) else np.zeros(1, np.float32)
    if shape is None or fill.size != 1 or any(d < 0 for d in shape):
        raise Refused
    call.allow(shape, fill.dtype)
    return np.full(shape, fill.reshape(-1)[0], fill.dtype)


def _range(call: Call) -> Array:
    start, limit, delta = (call[i].reshape(()) for i in range(3))
    numeric(start, limit, delta)
    if delta == 0:
        raise Refused
    count = 0
    if start.dtype.kind == "f":
        count = max(math.ceil((limit.astype(np.float64) - start) / delta), 0)
    elif start.dtype.kind in "iu":
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    call.allow((count,), start.dtype)
    return np.asarray(start + np.arange(count).astype(start.dtype) * delta, dtype=start.dtype)


def _pad(call: Call) -> Array:
    data, pads, fill = call[0], call.ints(1), call.get(2)
    mode = str(call.attrs.get("mode", "constant"))
    if pads is None or mode not in ("constant", "edge", "reflect", "wrap"):
        raise Refused
    axes = call.axes(3, data.ndim)
    axes = tuple(range(data.ndim)) if axes is None else axes
    widths = [(0, 0)] * data.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    if mode != "constant" and any(w < 0 for pair in widths for w in pair):
        raise Refused
    grow = [(max(low, 0), max(high, 0)) for low, high in widths]
    call.allow([d + sum(w) for d, w in zip(data.shape, grow, strict=True)], data.dtype)
    if mode != "constant":
        return np.pad(data, grow, mode=mode)  # type: ignore[call-overload, no-any-return]
    crop = tuple(slice(max(-low, 0), d - max(-high, 0)) for d, (low, high) in zip(data.shape, widths, strict=True))
    value = np.zeros(1, data.dtype) if fill is None or not fill.size else fill.reshape(-1)[:1]
    return np.pad(data[crop], grow, constant_values=value)


def _shape(call: Call) -> Array:
    shape = call[0].shape
    return np.array(shape[call.integer("start", 0) : call.integer("end", len(shape))], np.int64)


MOVEMENT: dict[str, Fast] = {
    "Identity": lambda call: call[0],
    "Where": _where,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": lambda call: np.squeeze(call[0], call.axes(1, call[0].ndim)),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Pad": _pad,
    "Transpose": lambda call: np.transpose(call[0], call.attrs.get("perm")),  # type: ignore[arg-type]
    "Shape": _shape,
    "Size": lambda call: np.array(call[0].size, np.int64),
    "Trilu": _trilu,
}
