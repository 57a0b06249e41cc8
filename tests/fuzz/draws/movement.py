"""Operators that move elements: shapes, slices, gathers and scatters, padding."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from ..eager import Invalid
from ..maker import (
    ANY,
    BOOL,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    NUMBERS,
    Maker,
)
from .registry import draws


@draws(4)
def reshape(m: Maker) -> object:
    x = m.some(ANY)
    dims = list(m.dims(x))
    total = int(np.prod(dims))
    options: list[list[int]] = [[total], [-1], dims[::-1], [1, *dims], [*dims, 1], [-1, *dims[1:]] if dims else [1]]
    if len(dims) > 1:
        options += [[dims[0] * dims[1], *dims[2:]], [0, -1], [*dims[:-2], dims[-2] * dims[-1]]]
    options += [[d, total // d] for d in (2, 3, 4) if total and total % d == 0]
    return m.emit("Reshape", [x, m.constant(m.pick(options))])


@draws(4)
def transpose(m: Maker) -> object:
    x = m.some(ANY)
    perm = [int(i) for i in m.rng.permutation(len(m.dims(x)))]
    return m.emit("Transpose", [x], perm=perm if m.chance(0.8) and perm else None)


@draws(1.5)
def squeeze(m: Maker) -> object:
    x = m.some(ANY)
    kind = m.between(0, 2)
    if kind == 0:
        return m.emit("Flatten", [x], axis=m.axis(x))
    if kind == 1:
        ones = [i for i, d in enumerate(m.dims(x)) if d == 1]
        return m.emit("Squeeze", [x, m.constant(ones)] if ones and m.chance(0.8) else [x])
    rank = len(m.dims(x)) + 1
    return m.emit("Unsqueeze", [x, m.constant([m.between(-rank, rank - 1)])])


@draws(2)
def expand(m: Maker) -> object:
    x = m.some(ANY, 0, 3)
    dims = [m.size() if d == 1 else m.pick((d, 1)) for d in m.dims(x)]
    if m.chance(0.3):
        dims = [m.size(), *dims]
    if m.chance(0.5):
        return m.emit("Expand", [x, m.constant(dims)])
    return m.emit("Tile", [x, m.constant([m.between(0 if m.chance(0.1) else 1, 3) for _ in m.dims(x)])])


@draws(3)
def concat(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    axis = m.axis(x)
    parts = [x]
    for _ in range(m.between(0, 3)):
        dims = list(m.dims(x))
        dims[axis] = m.size(0.1)
        parts.append(m.like(m.dtype(x), dims))
    order = [parts[int(i)] for i in m.rng.permutation(len(parts))]
    return m.emit("Concat", order, axis=axis)


@draws(3)
def split(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    axis = m.axis(x)
    size = m.dims(x)[axis]
    if m.opset >= 18 and m.chance(0.4) and size > 1:
        count = m.between(1, min(size, 4))
        return m.emit("Split", [x], count, axis=axis, num_outputs=count)
    cuts = sorted(m.between(0, size) for _ in range(m.between(0, 2)))
    sizes = np.diff([0, *cuts, size])
    return m.emit("Split", [x, m.constant(sizes)], len(sizes), axis=axis)


@draws(4)
def slice_(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    axes = m.axes(x) or [m.axis(x)]
    starts, ends, steps = [], [], []
    for axis in axes:
        size = m.dims(x)[axis]
        starts.append(m.between(-size - 1, size + 1))
        ends.append(m.pick((m.between(-size - 1, size + 1), 2**63 - 1, -(2**63))))
        steps.append(m.pick((1, 1, 1, 2, 3, -1, -2)))
        if m.chance(0.6) and size:
            starts[-1] = m.between(0, size - 1)
            ends[-1], steps[-1] = (m.between(starts[-1] + 1, size), 1) if m.chance(0.7) else (-size - 1, -1)
        if steps[-1] < 0:  # backwards from before the beginning: the standard takes one element, NumPy none
            starts[-1] = max(starts[-1], -size)
    ends = [-(2**63) if s < 0 and e == 2**63 - 1 else e for s, e in zip(steps, ends, strict=True)]
    kind = m.pick((I64, I32))
    if kind == I32:
        ends = [int(np.clip(e, -(2**31), 2**31 - 1)) for e in ends]
    return m.emit("Slice", [x, *(m.constant(v, kind) for v in (starts, ends, axes, steps))])


@draws(2)
def pad(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    mode = m.pick(("constant", "constant", "reflect", "edge", "wrap"))
    rank = len(m.dims(x))
    low = -1 if mode == "constant" and m.chance(0.2) else 0
    pads = [m.between(low, min(3, max(d - 1, 0)) if mode != "constant" else 3) for d in m.dims(x)]
    pads += [m.between(low, min(3, max(d - 1, 0)) if mode != "constant" else 3) for d in m.dims(x)]
    if m.chance(0.3):
        axis = m.axis(x)
        operands = [x, m.constant([pads[axis % rank], pads[rank + axis % rank]]), "", m.constant([axis])]
    else:
        operands = [x, m.constant(pads)]
    if mode == "constant" and m.chance(0.6):
        operands = [*operands[:2], m.constant(m.array(m.dtype(x), ()), m.dtype(x)), *operands[3:]]
    return m.emit("Pad", operands, mode=mode)


@draws(3)
def gather(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    axis = m.axis(x)
    size = m.dims(x)[axis]
    if not size:
        raise Invalid("nothing to gather")
    kind = m.pick((I64, I64, I32))
    op = m.pick(("Gather", "Gather", "GatherElements"))
    shape = m.shape(0, 2) if op == "Gather" else tuple(m.between(0, d) if m.chance(0.3) else d for d in m.dims(x))
    low = -size if m.chance(0.5) else 0
    indices = np.asarray(m.rng.integers(low, size, shape)).astype(kind)
    return m.emit(op, [x, m.fresh(indices, 0.5)], axis=axis)


@draws(1)
def gather_nd(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    dims = m.dims(x)
    batch = m.between(0, len(dims) - 1) if m.chance(0.3) else 0
    depth = m.between(1, len(dims) - batch)
    if 0 in dims:
        raise Invalid("nothing to gather")
    shape = (*dims[:batch], *m.shape(0, 2))
    indices = np.stack([m.rng.integers(-d, d, shape) for d in dims[batch : batch + depth]], -1).astype(I64)
    return m.emit("GatherND", [x, m.fresh(indices, 0.4)], batch_dims=batch)


@draws(1.5)
def scatter(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    dims = m.dims(x)
    if 0 in dims:
        raise Invalid("nothing to scatter to")
    reduction = "none" if m.chance(0.5) or m.opset < 18 else m.pick(("add", "mul", "max", "min"))
    if m.dtype(x) == BOOL:
        reduction = "none"
    given = reduction if m.opset >= 16 else None
    if m.chance(0.5):
        axis = m.axis(x)
        shape = tuple(m.between(1, d) for d in dims)
        if reduction == "none":  # each place once: the order is undefined
            indices = np.argsort(m.rng.random(dims), axis)[tuple(slice(d) for d in shape)].astype(I64)
        else:
            indices = m.rng.integers(-dims[axis], dims[axis], shape)
        updates = m.like(m.dtype(x), shape)
        return m.emit("ScatterElements", [x, m.fresh(indices, 0.4), updates], axis=axis, reduction=given)
    depth = m.between(1, len(dims))
    total = int(np.prod(dims[:depth]))
    count = m.between(1, min(total, 6))
    places = m.rng.permutation(total)[:count] if reduction == "none" else m.rng.integers(0, total, count)
    indices = np.stack(np.unravel_index(places, dims[:depth]), -1).astype(I64)
    return m.emit("ScatterND", [x, m.fresh(indices, 0.4), m.like(m.dtype(x), (count, *dims[depth:]))], reduction=given)


@draws(1)
def depth_space(m: Maker) -> object:
    block = m.between(1, 3)
    n, c, h, w = (m.between(1, 3) for _ in range(4))
    dtype = m.pick(ANY)
    if m.chance(0.5):
        return m.emit("SpaceToDepth", [m.like(dtype, (n, c, h * block, w * block))], blocksize=block)
    x = m.like(dtype, (n, c * block * block, h, w))
    return m.emit("DepthToSpace", [x], blocksize=block, mode=m.pick(("DCR", "CRD")))


@draws(0.7)
def reverse_sequence(m: Maker) -> object:
    x = m.some(ANY, 2, 4)
    time = m.between(0, 1)
    lengths = m.rng.integers(1, max(m.dims(x)[time], 1), m.dims(x)[1 - time], endpoint=True)
    return m.emit("ReverseSequence", [x, m.fresh(lengths, 0.5)], time_axis=time, batch_axis=1 - time)


@draws(1)
def trilu(m: Maker) -> object:
    x = m.some(ANY, 2, 4)
    if m.chance(0.3):
        kind = m.pick((None, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE))
        return m.emit("EyeLike", [m.some(NUMBERS, 2, 2)], k=m.between(-2, 2), dtype=kind)
    return m.emit("Trilu", [x, m.constant(m.between(-3, 3))] if m.chance(0.7) else [x], upper=m.between(0, 1))


@draws(1)
def made_from_sizes(m: Maker) -> object:
    kind = m.between(0, 4)
    if kind == 0:
        return m.emit("Shape", [m.some(ANY)], **({"start": m.between(-2, 2)} if m.opset >= 15 else {}))
    if kind == 1:
        return m.emit("Size", [m.some(ANY)])
    dtype = m.pick(ANY)
    if kind == 2:
        value = numpy_helper.from_array(m.array(dtype, (1,)))
        return m.emit("ConstantOfShape", [m.fresh(np.array(m.shape(0, 3), I64), 0.7)], value=value)
    if kind == 3:
        dtype = m.pick((F32, F64, I32, I64))
        start, limit, delta = m.between(-3, 3), m.between(-5, 20), m.pick((1, 2, 3, -1))
        return m.emit("Range", [m.fresh(np.asarray(v).astype(dtype), 0.7) for v in (start, limit, delta)])
    x = m.some(ANY, 1, 4)
    [shape] = m.emit("Shape", [x])
    return m.emit("Expand", [m.new(dtype, ()), shape])


@draws(0.7)
def crop_pad(m: Maker) -> object:
    x = m.some(ANY, 1, 4)
    return m.emit("CenterCropPad", [x, m.constant([m.size(0) for _ in m.dims(x)])])


@draws(2)
def data_dependent(m: Maker) -> object:
    op = m.pick(("NonZero", "Compress", "Unique", "OneHot"))
    if op == "NonZero":
        return m.emit(op, [m.some((*NUMBERS, BOOL), 1, 4)])
    if op == "Compress":
        x = m.some(ANY, 1, 4)
        axis = m.axis(x) if m.chance(0.7) else None
        size = m.dims(x)[axis] if axis is not None else int(np.prod(m.dims(x)))
        return m.emit(op, [x, m.like(BOOL, (size,))], axis=axis)
    if op == "Unique":
        x = m.new(m.pick(NUMBERS), m.shape(1, 3), "small", 0)
        outputs = [True, m.chance(0.5), m.chance(0.5), m.chance(0.5)]
        return m.emit(op, [x], outputs, sorted=m.between(0, 1), axis=m.axis(x) if m.chance(0.4) else None)
    depth = m.between(1, 9)
    indices = m.fresh(np.asarray(m.rng.integers(-depth, depth, m.shape(0, 3))).astype(m.pick((I64, I32))), 0.3)
    rank = len(m.dims(indices)) + 1
    values = m.new(m.pick((F32, I64, I32, F64)), (2,))
    return m.emit(op, [indices, m.fresh(np.asarray(depth, I64), 0.8), values], axis=m.between(-rank, rank - 1))


@draws(0.5)
def tensor_scatter(m: Maker) -> object:
    b, h, s, d = m.between(1, 3), m.between(1, 3), m.between(2, 8), m.between(1, 5)
    dtype = m.pick(ANY)
    n = m.between(1, s)
    at = m.fresh(np.asarray(m.rng.integers(0, s - n, b, endpoint=True)))
    x, update = m.like(dtype, (b, h, s, d)), m.like(dtype, (b, h, n, d))
    return m.emit("TensorScatter", [x, update, at], mode=m.pick(("linear", "circular")))


@draws(0.5)
def col2im(m: Maker) -> object:
    kernel, dil = (m.between(1, 3), m.between(1, 3)), m.between(1, 2)
    image = (m.between(5, 8), m.between(5, 8))
    pads, strides = [m.between(0, 1) for _ in range(4)], [m.between(1, 2), m.between(1, 2)]
    blocks = [
        (image[i] + pads[i] + pads[2 + i] - dil * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)
    ]  # fmt: skip
    x = m.like(m.pick(FLOATS), (m.between(1, 2), m.between(1, 3) * kernel[0] * kernel[1], blocks[0] * blocks[1]))
    sizes = [m.constant(image), m.constant(kernel)]
    return m.emit("Col2Im", [x, *sizes], pads=pads, strides=strides, dilations=[dil, dil])
