"""What random graphs are made of: for each operator of the standard and of ai.onnx.ml, how to draw its operands.

Constraints that are easily stated hold by construction; an oracle refuses what violates the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .eager import BF16, Invalid
from .maker import (
    ANY,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    SIGNED,
    U8,
    U16,
    U32,
    U64,
    UNSIGNED,
    Maker,
    is_float,
)  # fmt: skip

Draw = Callable[[Maker], object]
DRAWS: dict[str, tuple[float, Draw]] = {}
"""Weight and function of each kind of node."""


def draws(weight: float) -> Callable[[Draw], Draw]:
    """Register a function with this weight."""

    def register(draw: Draw) -> Draw:
        DRAWS[draw.__name__] = weight, draw
        return draw

    return register


def step(maker: Maker) -> None:
    """Add one node, or a few that belong together. Raises `Invalid` if it cannot be."""
    names = list(DRAWS)
    weights = np.array([DRAWS[name][0] for name in names])
    chosen = names[int(maker.rng.choice(len(names), p=weights / weights.sum()))]
    maker.nan = chosen in NAN
    DRAWS[chosen][1](maker)


NAN = frozenset((
    "unary", "unary_with_attributes", "binary", "compare", "variadic", "where", "clip", "reshape", "transpose",
    "concat", "split", "slice_", "gather", "matmul", "cast",
))  # fmt: skip
"""Draws whose operators have the same meaning for NaN and infinities everywhere."""


# --- elementwise ------------------------------------------------------------------------------------------------------

PLAIN = (
    "Abs", "Neg", "Relu", "Sign", "Identity", "Ceil", "Floor", "Round", "Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid",
    "Tanh", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh",
    "Acosh", "Atanh", "Mish", "HardSwish", "IsNaN", "IsInf",
)  # fmt: skip


@draws(6)
def unary(m: Maker) -> object:
    return m.emit(m.pick(PLAIN), [m.some(FLOATS)])


@draws(3)
def unary_with_attributes(m: Maker) -> object:
    op, attributes = m.pick((
        ("Celu", {"alpha": 1.5}), ("Elu", {"alpha": 0.7}), ("Gelu", {"approximate": m.pick(("none", "tanh"))}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("LeakyRelu", {"alpha": m.pick((0.1, -0.5, 2.0))}),
        ("Selu", {}), ("Selu", {"alpha": 2.0, "gamma": 3.0}), ("Shrink", {"lambd": 0.6, "bias": 0.2}),
        ("Swish", {"alpha": m.pick((1.0, 1.7))}), ("ThresholdedRelu", {"alpha": 0.3}),
        ("IsInf", {"detect_negative": m.between(0, 1), "detect_positive": m.between(0, 1)}),
    ))  # fmt: skip
    return m.emit(op, [m.some(FLOATS)], **attributes)


@draws(1.5)
def unary_on_integers(m: Maker) -> object:
    if m.chance(0.2):
        return m.emit("Not", [m.some((BOOL,))])
    op = m.pick(("Abs", "Neg", "Sign", "Relu", "Identity", "BitwiseNot", "Clip"))
    x = m.some(SIGNED if op in ("Neg", "Relu", "Abs") else INTEGERS)
    if op == "Clip":
        low, high = sorted((m.between(0, 100), m.between(0, 100)))
        return m.emit(op, [x, m.constant(low, m.dtype(x)), m.constant(high, m.dtype(x))])
    return m.emit(op, [x])


@draws(7)
def binary(m: Maker) -> object:
    op = m.pick(("Add", "Sub", "Mul", "Div", "Add", "Mul", "Max", "Min", "Pow", "PRelu"))
    x = m.some(FLOATS if op in ("Pow", "PRelu") or m.chance(0.7) else INTEGERS)
    if op == "Div":
        return m.emit(op, [x, m.against(x, "nonzero")])
    if op == "Pow":
        y = m.constant(m.pick((0.5, 2, 3, -1, 1, 0)), m.dtype(x)) if m.chance(0.5) else m.against(x, "unit")
        return m.emit(op, [x, y])
    pair = [x, m.against(x)]
    return m.emit(op, pair if op == "PRelu" or m.chance(0.7) else pair[::-1])


@draws(0.7)
def pow_of_mixed_types(m: Maker) -> object:
    if m.chance(0.5):
        x = m.some((F32, F64, F16))
        return m.emit("Pow", [x, m.new(m.pick((I32, I64)), m.dims(x), "small")])
    x = m.new(m.pick((I32, I64)), m.shape(), "small")
    return m.emit("Pow", [x, m.new(m.pick((I32, I64, F32)), m.dims(x), "small")])


@draws(2)
def compare(m: Maker) -> object:
    op = m.pick(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
    x = m.some(NUMBERS)
    return m.emit(op, [x, m.against(x)])


@draws(1.5)
def logical(m: Maker) -> object:
    x = m.some((BOOL,))
    return m.emit(m.pick(("And", "Or", "Xor", "Equal")), [x, m.against(x)])


@draws(1.5)
def bits(m: Maker) -> object:
    if m.chance(0.3):
        x = m.some(UNSIGNED)
        y = m.fresh(np.asarray(m.rng.integers(0, m.dtype(x).itemsize * 8, m.dims(x))).astype(m.dtype(x)))
        return m.emit("BitShift", [x, y], direction=m.pick(("LEFT", "RIGHT")))
    x = m.some(INTEGERS)
    return m.emit(m.pick(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), [x, m.against(x)])


@draws(1)
def mod(m: Maker) -> object:
    x = m.some(NUMBERS)
    fmod = 1 if is_float(m.dtype(x)) else m.between(0, 1)
    return m.emit("Mod", [x, m.against(x, "nonzero")], fmod=fmod)


@draws(1.5)
def variadic(m: Maker) -> object:
    op = m.pick(("Max", "Min", "Sum", "Mean"))
    x = m.some(NUMBERS if op in ("Max", "Min") else FLOATS)
    return m.emit(op, [x, *(m.against(x) for _ in range(m.between(0, 3)))])


@draws(2)
def where(m: Maker) -> object:
    x = m.some(ANY)
    return m.emit("Where", [m.like(BOOL, m.dims(x) if m.chance(0.7) else m.dims(x)[-1:]), x, m.against(x)])


@draws(1.5)
def clip(m: Maker) -> object:
    x = m.some(FLOATS)
    low = m.fresh(np.asarray(-0.5).astype(m.dtype(x)), 0.7) if m.chance(0.7) else ""
    high = m.fresh(np.asarray(m.pick((0.7, 0.1, -1.0))).astype(m.dtype(x)), 0.7) if m.chance(0.7) else ""
    return m.emit("Clip", [x, low, high])


@draws(4)
def cast(m: Maker) -> object:
    x = m.some(ANY)
    to = m.pick(ANY)
    value = m.values[x].astype(np.float64)
    if not is_float(to) and to != BOOL and value.size:
        if not np.isfinite(value).all() or (
            is_float(m.dtype(x)) and not 0 <= np.floor(value).min() <= value.max() < 127
        ):
            x = m.new(m.dtype(x), m.dims(x), "positive")
    kind = helper.np_dtype_to_tensor_dtype(to)
    if m.chance(0.2):
        return m.emit("CastLike", [x, m.new(to, (1,))])
    return m.emit("Cast", [x], to=kind)


@draws(0.4)
def bit_cast(m: Maker) -> object:
    x = m.some((F32, I32, U32, F64, I64, F16, U16, U8, I8))
    to = {4: (F32, I32, U32), 8: (F64, I64, U64), 2: (F16, U16), 1: (U8, I8)}[m.dtype(x).itemsize]
    return m.emit("BitCast", [x], to=helper.np_dtype_to_tensor_dtype(m.pick(to)))


# --- movement ---------------------------------------------------------------------------------------------------------


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


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip


@draws(5)
def reduce(m: Maker) -> object:
    op = m.pick(REDUCTIONS)
    integers = op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1")
    kinds = INTEGERS if integers and m.chance(0.3) else FLOATS
    domain = "positive" if op == "ReduceLogSum" else "small" if op == "ReduceProd" or kinds is INTEGERS else ""
    x = m.some(kinds, 0, 4, domain)
    axes = m.axes(x)
    keep = m.between(0, 1)
    if m.opset >= 18 or (m.opset >= 13 and op == "ReduceSum"):
        operands = [x] if m.chance(0.2) else [x, m.constant(axes)]
        return m.emit(op, operands, keepdims=keep, noop_with_empty_axes=m.between(0, 1) if m.chance(0.2) else None)
    return m.emit(op, [x], keepdims=keep, axes=axes or None)


@draws(2)
def arg_reduce(m: Maker) -> object:
    x = m.some(NUMBERS, 1, 4)
    op = m.pick(("ArgMax", "ArgMin"))
    return m.emit(op, [x], axis=m.axis(x), keepdims=m.between(0, 1), select_last_index=m.between(0, 1))


@draws(1.5)
def cumulative(m: Maker) -> object:
    op = m.pick(("CumSum", "CumSum", "CumProd"))
    x = m.some((*FLOATS, I64, I32), 1, 4)
    axis = m.fresh(np.asarray(m.axis(x), m.pick((I64, I32))), 0.8)
    return m.emit(op, [x, axis], exclusive=m.between(0, 1), reverse=m.between(0, 1))


@draws(1.5)
def top_k(m: Maker) -> object:
    x = m.some((*FLOATS, I64, I32, U8), 1, 3)
    axis = m.axis(x)
    k = m.between(0 if m.chance(0.1) else 1, max(m.dims(x)[axis], 1))
    count = m.fresh(np.array([k], I64), 0.8)
    return m.emit("TopK", [x, count], 2, axis=axis, largest=m.between(0, 1), sorted=1)


@draws(3)
def softmax(m: Maker) -> object:
    x = m.some(FLOATS, 1, 4)
    op = m.pick(("Softmax", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization"))
    if op == "LpNormalization":
        return m.emit(op, [x], axis=m.axis(x), p=m.between(1, 2))
    return m.emit(op, [x], axis=m.axis(x))


@draws(3)
def normalize(m: Maker) -> object:
    op = m.pick((
        "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization",
        "LRN", "MeanVarianceNormalization",
    ))  # fmt: skip
    if op in ("LayerNormalization", "RMSNormalization"):
        x = m.some(FLOATS, 1, 4)
        axis = m.axis(x)
        dims = m.dims(x)[axis:]
        weights = [m.like(m.dtype(x), dims, fixed=0.7) for _ in range(2 if op[0] == "L" and m.chance(0.6) else 1)]
        return m.emit(op, [x, *weights], axis=axis, epsilon=m.pick((1e-5, 1e-3)))
    x = m.some(FLOATS, *((4, 4) if op in ("LRN", "MeanVarianceNormalization") else (3, 4) if op[0] == "I" else (2, 4)))
    if op == "LRN":
        return m.emit(op, [x], size=m.pick((1, 3, 5)), alpha=0.01, beta=0.7, bias=1.5)
    if op == "MeanVarianceNormalization":
        x = m.new(m.pick((F32, F64)), (2, 3, 4, 5), "plain")  # else the difference of squares is only rounding
        return m.emit(op, [x], axes=sorted({a % 4 for a in m.axes(x)}) or None)
    channels = m.dims(x)[1]
    pair = [m.like(m.dtype(x), (channels,), fixed=0.8) for _ in range(2)]
    if op == "BatchNormalization":
        rest = [m.new(m.dtype(x), (channels,), fixed=0.8), m.new(m.dtype(x), (channels,), "positive", 0.8)]
        return m.emit(op, [x, *pair, *rest])
    if op == "GroupNormalization":
        groups = m.pick([g for g in (1, 2, 4, channels) if g and channels % g == 0] or [1])
        return m.emit(op, [x, *pair], num_groups=groups)
    return m.emit(op, [x, *pair])


# --- products ---------------------------------------------------------------------------------------------------------


@draws(5)
def matmul(m: Maker) -> object:
    x = m.some(FLOATS, 1, 4)
    inner, columns = m.dims(x)[-1], m.size()
    batch = m.dims(x)[:-2] if m.chance(0.3) else (1,) if m.chance(0.1) else ()
    shape = (inner,) if m.chance(0.1) else (*batch, inner, columns)
    pair = [x, m.like(m.dtype(x), shape, fixed=0.6)]
    if m.chance(0.1) and len(m.dims(x)) == 2:
        pair = [m.like(m.dtype(x), (columns, m.dims(x)[0])), x]
    [y] = m.emit("MatMul", pair)
    if m.chance(0.4) and m.dims(y):
        return m.emit("Add", [y, m.like(m.dtype(y), m.dims(y)[-1:], fixed=0.8)])
    return y


@draws(2)
def gemm(m: Maker) -> object:
    x = m.some(FLOATS, 2, 2)
    across, beyond = m.between(0, 1), m.between(0, 1)
    rows, inner = m.dims(x) if not across else m.dims(x)[::-1]
    columns = m.size()
    w = m.like(m.dtype(x), (columns, inner) if beyond else (inner, columns), fixed=0.7)
    operands = [x, w]
    if m.chance(0.7):
        operands.append(
            m.like(m.dtype(x), m.pick(((columns,), (1, columns), (rows, 1), (rows, columns), ())), fixed=0.7)
        )
    return m.emit(
        "Gemm", operands, transA=across, transB=beyond, alpha=m.pick((1.0, 0.5)), beta=m.pick((1.0, 2.0, 0.0))
    )


EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij->ji", "ij->i", "ij->", "ii->i", "ii", "i,j->ij", "ij,ij->i",
    "bhid,bhjd->bhij", "bhij,bhjd->bhid", "bij,jk", "i,i->", "...ij,...jk->...ik", "ij,jk,kl->il", "bi,bj->bij",
    "abc,cd,bd->ad", "ijk->kij",
)  # fmt: skip


@draws(1.5)
def einsum(m: Maker) -> object:
    equation = m.pick(EQUATIONS)
    sizes = {letter: m.size() % 9 for letter in "abcdhijkl"}
    dots = m.shape(0, 2)
    dtype = m.pick(FLOATS)
    operands = []
    for term in equation.split("->")[0].split(","):
        letters = tuple(sizes[c] for c in term.replace("...", ""))
        operands.append(m.like(dtype, (*dots, *letters) if "..." in term else letters))
    return m.emit("Einsum", operands, equation=equation)


@draws(1.5)
def integer_products(m: Maker) -> object:
    a, b = m.pick((U8, I8)), m.pick((U8, I8))
    rows, inner, columns = m.size(), m.size(0), m.size()
    batch = m.shape(0, 2)
    x, w = m.like(a, (*batch, rows, inner)), m.like(b, (inner, columns), fixed=0.7)
    if m.chance(0.5):
        zeros = [m.constant(m.array(a, ()), a), m.constant(m.array(b, () if m.chance(0.5) else (columns,)), b)]
        return m.emit("MatMulInteger", [x, w, *zeros[: m.between(0, 2)]])
    out = m.pick((U8, I8))
    scales = [m.constant(s, F32) for s in (0.02, 0.03, 0.1)]
    zeros = [m.constant(m.array(d, ()) // 4, d) for d in (a, b, out)]
    return m.emit("QLinearMatMul", [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]])


@draws(0.6)
def det(m: Maker) -> object:
    n = m.between(1, 6)
    return m.emit("Det", [m.like(m.pick(FLOATS), (*m.shape(0, 2), n, n))])


# --- windows ----------------------------------------------------------------------------------------------------------


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
    spatial = m.pick((2, 2, 3))
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
    rounding = m.pick(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")) if mode == "nearest" else None
    smooth = 1 if m.opset >= 18 and mode != "nearest" and m.chance(0.3) else None
    attributes = {"mode": mode, "coordinate_transformation_mode": way, "nearest_mode": rounding, "antialias": smooth}
    if m.chance(0.5):
        scales = [1.0, 1.0, *(m.pick((2.0, 0.5, 1.5, 1.0, 3.0, 0.6)) for _ in range(spatial))]
        return m.emit("Resize", [x, "", m.constant(scales, F32)], **attributes)
    least = 2 if way == "half_pixel_symmetric" else 1  # ONNX Runtime takes the first element for a single one
    sizes = [*m.dims(x)[:2], *(m.between(least, 12) for _ in range(spatial))]
    return m.emit("Resize", [x, "", "", m.constant(sizes)], **attributes)


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


# --- recurrent, attention ---------------------------------------------------------------------------------------------


@draws(1.5)
def recurrent(m: Maker) -> object:
    op, gates = m.pick((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    dtype = m.pick((F32, F32, F64, F16))
    hidden, length, batch, width = m.between(1, 9), m.between(1, 5), m.between(1, 3), m.between(1, 6)
    direction = m.pick(("forward", "forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    layout = 1 if m.chance(0.1) else None
    fixed = 0.8
    x = m.like(dtype, (batch, length, width) if layout else (length, batch, width))
    operands = [
        x,
        m.new(dtype, (d, gates * hidden, width), "unit", fixed),
        m.new(dtype, (d, gates * hidden, hidden), "unit", fixed),
    ]
    operands.append(m.new(dtype, (d, 2 * gates * hidden), "unit", fixed) if m.chance(0.6) else "")
    lengths = np.asarray(m.rng.integers(1, length, batch, endpoint=True)).astype(I32)
    operands.append(m.fresh(lengths) if m.chance(0.3) else "")
    state = (batch, d, hidden) if layout else (d, batch, hidden)
    operands.append(m.new(dtype, state, "unit") if m.chance(0.4) else "")
    if op == "LSTM":
        operands.append(m.new(dtype, state, "unit") if m.chance(0.4) else "")
        operands.append(m.new(dtype, (d, 3 * hidden), "unit", fixed) if m.chance(0.2) else "")
    outputs = [m.chance(0.8), m.chance(0.6), *([m.chance(0.6)] if op == "LSTM" else [])]
    outputs[0] = outputs[0] or not any(outputs)
    extra: dict[str, object] = {}
    if op == "GRU":
        extra["linear_before_reset"] = m.between(0, 1)
    if m.chance(0.15):
        extra["clip"] = 0.5
    if m.chance(0.15):
        given = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Tanh", "Softsign"]}[op]
        extra["activations"] = given * d
    return m.emit(op, operands, outputs, hidden_size=hidden, direction=direction, layout=layout, **extra)


@draws(1)
def attention(m: Maker) -> object:
    dtype = m.pick((F32, F32, F16, BF16, F64))
    b, heads, head, q, k = m.between(1, 2), m.pick((1, 2, 4)), m.pick((4, 8, 16)), m.between(1, 6), m.between(1, 7)
    groups = m.pick([g for g in (1, 2, 4) if heads % g == 0])
    flat = m.chance(0.3)
    shapes = [(b, heads, q, head), (b, groups, k, head), (b, groups, k, head)]
    if flat:
        shapes = [(b, s, n * d) for _, n, s, d in shapes]
    operands = [m.like(dtype, s) for s in shapes]
    if m.chance(0.4):
        operands.append(m.new(m.pick((dtype, BOOL)), (q, k)))
    extra = {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    return m.emit(
        "Attention", operands, is_causal=m.between(0, 1), scale=m.pick((None, 0.3)),
        softcap=m.pick((None, 2.0)), **extra,
    )  # fmt: skip


@draws(1)
def rotary(m: Maker) -> object:
    dtype = m.pick((F32, F32, F16, BF16))
    b, heads, s, d = m.between(1, 2), m.between(1, 3), m.between(1, 5), m.pick((4, 8, 16))
    if m.chance(0.3):
        n = m.pick((1, 3))
        rows = m.like(dtype, (b, heads, n * 3, d)), m.like(dtype, (b, heads, n * 3, d))
        return m.emit("SwiGLU", list(rows))
    x = m.like(dtype, (b, heads, s, d))
    part = m.pick((None, d // 2)) if d >= 8 else None
    width = (part or d) // 2
    spread = m.between(0, 1)
    if m.chance(0.5):
        caches = [m.new(dtype, (9, width)) for _ in range(2)]
        operands = [x, *caches, m.fresh(np.asarray(m.rng.integers(0, 9, (b, s))))]
    else:
        operands = [x, *(m.new(dtype, (b, s, width)) for _ in range(2))]
    return m.emit("RotaryEmbedding", operands, interleaved=spread, rotary_embedding_dim=part)


@draws(0.6)
def state_space(m: Maker) -> object:
    dtype = m.pick((F32, F32, F16))
    b, s = m.between(1, 2), m.between(1, 5)
    if m.chance(0.5):
        c, k = m.between(1, 4), m.between(1, 4)
        operands = [m.like(dtype, (b, c, s)), m.new(dtype, (c, 1, k))]
        if m.chance(0.5):
            operands += [m.new(dtype, (c,)), m.new(dtype, (b, c, k - 1))] if k > 1 else [m.new(dtype, (c,))]
        return m.emit("CausalConvWithState", operands, 2, activation=m.pick((None, "silu", "swish")))
    heads, d = m.pick((1, 2)), m.pick((2, 4))
    rule = m.pick(("linear", "gated", "delta", "gated_delta"))
    operands = [m.like(dtype, (b, s, heads * d)) for _ in range(3)]
    operands += [
        m.new(dtype, (b, heads, d, d)) if m.chance(0.4) else "",
        m.new(dtype, (b, s, heads * d), "unit") if "gated" in rule else "",
        m.new(dtype, (b, s, heads), "positive") if "delta" in rule else "",
    ]  # fmt: skip
    return m.emit("LinearAttention", operands, 2, q_num_heads=heads, kv_num_heads=heads, update_rule=rule)


# --- losses, quantization, signals, detection -------------------------------------------------------------------------


@draws(0.8)
def loss(m: Maker) -> object:
    op = m.pick(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    n, c = m.between(1, 4), m.between(1, 6)
    rest = m.shape(0, 2)
    scores = m.like(m.pick((F32, F32, F64, F16)), (n, c, *rest))
    labels = m.fresh(np.asarray(m.rng.integers(0, c, (n, *rest))).astype(m.pick((I64, I32))))
    weights = [m.new(m.dtype(scores), (c,), "positive")] if m.chance(0.4) else []
    ignore = m.between(-1, c - 1) if m.chance(0.4) else None
    outputs = m.between(1, 2) if op[0] == "S" else 1
    reduction = m.pick(("mean", "sum", "none"))
    return m.emit(op, [scores, labels, *weights], outputs, reduction=reduction, ignore_index=ignore)


@draws(2)
def quantize(m: Maker) -> object:
    kind = m.between(0, 2)
    if kind == 0:
        return m.emit("DynamicQuantizeLinear", [m.some((F32,), 1, 4)], 3)
    to = m.pick((U8, I8, U16, np.dtype(np.int16)) if m.opset >= 21 else (U8, I8))
    x = m.some((F32, F32, F16) if kind == 1 else (to,), 1, 4)
    axis = m.axis(x)
    per = (m.dims(x)[axis],) if m.chance(0.4) else ()
    scaled = m.dtype(x) if kind == 1 else F32
    scale = m.constant(np.abs(m.array(F64, per, "positive")) * 0.05, scaled)
    zero = m.constant(np.abs(m.array(I8, per) // 4), to)
    if kind == 1:
        [y] = m.emit("QuantizeLinear", [x, scale, zero], axis=axis if per else None)
        return m.emit("DequantizeLinear", [y, scale, zero], axis=axis if per else None) if m.chance(0.6) else y
    return m.emit("DequantizeLinear", [x, scale, zero][: m.between(2, 3)], axis=axis if per else None)


@draws(0.8)
def signal(m: Maker) -> object:
    kind = m.between(0, 3)
    if kind == 0:
        op = m.pick(("HannWindow", "HammingWindow", "BlackmanWindow"))
        dtype = m.pick((None, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16))
        return m.emit(
            op, [m.fresh(np.asarray(m.between(1, 20), I64), 0.8)], periodic=m.between(0, 1), output_datatype=dtype
        )
    dtype = m.pick((F32, F32, F64))
    if kind == 1:
        n = m.pick((8, 16))
        operands = [m.like(dtype, (m.between(1, 2), m.between(20, 40), 1)), m.constant(m.between(3, 8))]
        operands += [m.new(dtype, (n,), fixed=0.8) if m.chance(0.6) else "", m.constant(n)]
        return m.emit("STFT", operands, onesided=m.between(0, 1))
    if kind == 2:
        values = (m.between(3, 8), m.pick((16, 32)), 8000)
        ends = [m.constant(0.0, F32), m.constant(4000.0, F32)]
        return m.emit("MelWeightMatrix", [*(m.constant(v) for v in values), *ends])
    x = m.like(
        dtype, (m.between(1, 2), m.pick((1, 2, 3, 4, 6, 7, 8, 10, 15, 16, 17, 31)), m.between(1, 6), m.between(1, 2))
    )
    length = m.constant(m.between(2, 12)) if m.chance(0.3) else ""
    one, back = m.between(0, 1), m.between(0, 1)
    return m.emit("DFT", [x, length, m.constant(m.between(1, 2))], onesided=one if not back else 0, inverse=back)


@draws(0.6)
def suppression(m: Maker) -> object:
    b, n, c = m.between(1, 2), m.pick((1, 5, 20)), m.between(1, 3)
    low = m.rng.random((b, n, 2)) * 5
    boxes = np.concatenate([low, low + m.rng.random((b, n, 2)) * 3 + 0.1], -1).astype(F32)
    scores = m.rng.random((b, c, n)).astype(F32)
    limits = [m.constant([m.between(0, 5)]), m.constant([0.4], F32), m.constant([0.3], F32)]
    return m.emit("NonMaxSuppression", [m.fresh(boxes), m.fresh(scores), *limits], center_point_box=m.between(0, 1))


# --- control flow and sequences ---------------------------------------------------------------------------------------


def _inside(m: Maker, parameters: dict[str, object]) -> Maker:
    """Return an inner maker whose values are those of this one and the parameters, with a few nodes."""
    inner = Maker(m.rng, m.opset, m)
    inner.values |= parameters
    inner.shy -= set(parameters)
    return inner


def _grow(inner: Maker, count: int) -> None:
    for _ in range(count):
        try:
            step(inner)
        except Invalid:
            continue


@draws(1.2)
def branch(m: Maker) -> object:
    x = m.some(FLOATS, 0, 3)
    flag = m.fresh(np.asarray(m.chance(0.5)), 0.2)
    graphs = []
    for _ in range(2):
        inner = _inside(m, {})
        _grow(inner, m.between(0, 2))
        made = [o for s in inner.steps for o in s.example if isinstance(s.example[o], np.ndarray)]
        fits = [o for o in made if inner.dtype(o) == m.dtype(x) and inner.dims(o) == m.dims(x)]
        result = inner.pick(fits) if fits else inner.emit(inner.pick(("Neg", "Abs", "Identity", "Relu")), [x])[0]
        graphs.append(inner.body([result], {}))
    reads = [n for g in graphs for n in m.outer_reads(g)]
    return m.emit("If", [flag], reads=reads, then_branch=graphs[0], else_branch=graphs[1])


@draws(1.2)
def loop(m: Maker) -> object:
    x = m.some(FLOATS, 0, 3)
    count, go, carried = m.name(), m.name(), m.name()
    state = {count: np.asarray(0, I64), go: np.asarray(True), carried: m.values[x]}
    inner = _inside(m, dict(state))
    _grow(inner, m.between(0, 2))
    made = [o for s in inner.steps for o in s.example if isinstance(s.example[o], np.ndarray)]
    fits = [o for o in made if inner.dtype(o) == m.dtype(x) and inner.dims(o) == m.dims(x)]
    if fits and m.chance(0.7):
        result = inner.pick(fits)
    else:
        [half] = inner.emit("Mul", [carried, inner.constant(0.5, m.dtype(x))])
        [result] = inner.emit("Add", [half, inner.new(m.dtype(x), m.dims(x)[-1:])])
    if inner.dims(result) != m.dims(x):
        raise Invalid("the state changes its shape")
    [keep] = inner.emit("Identity", [go])
    scanned = [inner.emit("Identity", [inner.pick(made)])[0]] if made and m.chance(0.4) else []
    graph = inner.body([keep, result, *scanned], state)
    trips = m.fresh(np.asarray(m.between(0 if m.chance(0.1) else 1, 4), I64), 0.6)
    reads = m.outer_reads(graph)
    begin = m.constant(True, BOOL)  # the reference implementation does nothing without a condition
    return m.emit("Loop", [trips, begin, x], 1 + len(scanned), reads=reads, body=graph)


@draws(0.8)
def scan(m: Maker) -> object:
    x = m.some(FLOATS, 1, 3)
    if not m.dims(x)[0]:
        raise Invalid("nothing to scan")
    start = m.like(m.dtype(x), m.dims(x)[1:])
    carried, item = m.name(), m.name()
    inner = _inside(m, {carried: m.values[start], item: m.values[x][0]})
    [total] = inner.emit(m.pick(("Add", "Max", "Sub")), [carried, item])
    _grow(inner, m.between(0, 1))
    made = [o for s in inner.steps for o in s.example if isinstance(s.example[o], np.ndarray)]
    [out] = inner.emit("Identity", [inner.pick(made)])
    graph = inner.body([total, out], {carried: m.values[start], item: m.values[x][0]})
    back = [m.between(0, 1)]
    return m.emit(
        "Scan", [start, x], 2, reads=m.outer_reads(graph), body=graph, num_scan_inputs=1, scan_input_directions=back
    )


@draws(1.5)
def sequence(m: Maker) -> object:
    x = m.some(ANY, 1, 3)
    kind = m.between(0, 3)
    if kind == 0:
        axis = m.axis(x)
        keep = m.between(0, 1)
        size = m.dims(x)[axis]
        split = [m.constant(m.between(1, max(size, 1)))] if keep and m.chance(0.5) else []
        [list_] = m.emit("SplitToSequence", [x, *split], axis=axis, keepdims=keep)
    else:
        parts = [x, *(m.like(m.dtype(x), m.dims(x)) for _ in range(m.between(0, 2)))]
        [list_] = m.emit("SequenceConstruct", parts)
    count = len(m.values[list_])
    if m.chance(0.3) and count:
        item = m.like(m.dtype(x), m.dims(x))
        [list_] = m.emit("SequenceInsert", [list_, item, *([m.constant(m.between(0, count))] if m.chance(0.6) else [])])
        count += 1
    if m.chance(0.3) and count > 1:
        [list_] = m.emit("SequenceErase", [list_, *([m.constant(m.between(0, count - 1))] if m.chance(0.7) else [])])
        count -= 1
    if not count:
        raise Invalid("an empty sequence")
    if m.chance(0.3):
        return m.emit("ConcatFromSequence", [list_], axis=m.between(-1, 0), new_axis=m.between(0, 1))
    if m.chance(0.2):
        return m.emit("SequenceLength", [list_])
    return m.emit("SequenceAt", [list_, m.constant(m.between(-count, count - 1))])


# --- ai.onnx.ml -------------------------------------------------------------------------------------------------------

ML = "ai.onnx.ml"


@draws(2)
def classical(m: Maker) -> object:
    rows, width = m.between(1, 5), m.between(1, 6)
    dtype = m.pick((F32, F32, F64, I64, I32))
    x = m.new(dtype, (rows, width), "small" if dtype.kind == "i" else "")
    numbers = [float(v) for v in m.array(F32, (64,), "unit")]
    kind = m.between(0, 9)
    if kind == 0:
        return m.emit("ArrayFeatureExtractor", [x, m.fresh(np.asarray(m.rng.integers(0, width, 3)))], domain=ML)
    if kind == 1:
        return m.emit("Binarizer", [m.new(F32, (rows, width))], domain=ML, threshold=0.3)
    if kind == 2:
        y = m.new(m.dtype(x), (rows, 2), "small")
        return m.emit("FeatureVectorizer", [x, y], domain=ML, inputdimensions=[width, 2])
    if kind == 3:
        y = m.new(F32, (rows, width), "small")
        return m.emit("Imputer", [y], domain=ML, imputed_value_floats=numbers[:width], replaced_value_float=1.0)
    if kind == 4:
        y = m.new(I64, (rows, width), "small")
        return m.emit("LabelEncoder", [y], domain=ML, keys_int64s=[0, 1, 3], values_int64s=[5, -2, 7], default_int64=9)
    if kind == 5:
        targets = m.between(1, 3)
        post = m.pick(("NONE", "NONE", "LOGISTIC", "SOFTMAX"))
        if m.chance(0.5):
            return m.emit(
                "LinearRegressor", [x], domain=ML, coefficients=numbers[: width * targets], targets=targets,
                intercepts=numbers[-targets:],
            )  # fmt: skip
        classes = m.between(2, 4)
        return m.emit(
            "LinearClassifier", [x], 2, domain=ML, coefficients=numbers[: width * classes],
            intercepts=numbers[-classes:], classlabels_ints=list(range(classes)), post_transform=post,
        )  # fmt: skip
    if kind == 6:
        return m.emit("Normalizer", [x], domain=ML, norm=m.pick(("MAX", "L1", "L2")))
    if kind == 7:
        return m.emit("Scaler", [x], domain=ML, offset=numbers[:width], scale=numbers[-width:])
    if kind == 8:
        y = m.new(I64, (rows, width), "small")
        return m.emit("OneHotEncoder", [y], domain=ML, cats_int64s=[0, 1, 2, 3])
    depth = m.between(1, 4)
    inner, leaves = 2**depth - 1, 2**depth
    count = inner + leaves
    nodes = {
        "nodes_treeids": [0] * count, "nodes_nodeids": list(range(count)),
        "nodes_featureids": [m.between(0, width - 1) for _ in range(inner)] + [0] * leaves,
        "nodes_modes": [m.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"))] * inner + ["LEAF"] * leaves,
        "nodes_values": (numbers * 2)[:inner] + [0.0] * leaves,
        "nodes_truenodeids": [2 * i + 1 for i in range(inner)] + [0] * leaves,
        "nodes_falsenodeids": [2 * i + 2 for i in range(inner)] + [0] * leaves,
    }  # fmt: skip
    at = list(range(inner, count))
    if m.chance(0.5):
        way = m.pick(("SUM", "AVERAGE", "MIN", "MAX"))
        return m.emit(
            "TreeEnsembleRegressor", [x], domain=ML, n_targets=1, target_ids=[0] * leaves, target_nodeids=at,
            target_treeids=[0] * leaves, target_weights=numbers[:leaves], aggregate_function=way, **nodes,
        )  # fmt: skip
    return m.emit(
        "TreeEnsembleClassifier", [x], 2, domain=ML, class_ids=[i % 3 for i in range(leaves)], class_nodeids=at,
        class_treeids=[0] * leaves, class_weights=[abs(v) + 0.01 for v in numbers[:leaves]],
        classlabels_int64s=[0, 1, 2], **nodes,
    )  # fmt: skip


@draws(0.7)
def vector_machine(m: Maker) -> object:
    rows, width, vectors = m.between(1, 4), m.between(1, 4), 4
    x = m.new(m.pick((F32, F32, F64)), (rows, width))
    numbers = [float(v) for v in m.array(F32, (32,), "unit")]
    kernel = m.pick(("LINEAR", "RBF", "POLY", "SIGMOID"))
    common = {"kernel_type": kernel, "kernel_params": [0.5, 0.1, 3.0], "support_vectors": numbers[: vectors * width]}
    if m.chance(0.5):
        return m.emit(
            "SVMRegressor", [x], domain=ML, coefficients=numbers[-vectors:], n_supports=vectors, rho=[0.2], **common
        )
    return m.emit(
        "SVMClassifier", [x], 2, domain=ML, coefficients=numbers[-vectors:], rho=[0.1], vectors_per_class=[2, 2],
        classlabels_ints=[0, 1], **common,
    )  # fmt: skip


# --- operators that ONNX Runtime's optimizer writes -------------------------------------------------------------------

MS = "com.microsoft"


@draws(2)
def contributed(m: Maker) -> object:
    kind = m.between(0, 8)
    width = m.pick((4, 8, 16))
    x = m.like(F32, (m.between(1, 2), m.between(1, 5), width))
    row = (width,)
    if kind == 0:
        return m.emit(m.pick(("Gelu", "FastGelu", "QuickGelu")), [x], domain=MS)
    if kind == 1:
        return m.emit(m.pick(("BiasGelu", "FastGelu")), [x, m.new(F32, row)], domain=MS)
    if kind == 2:
        operands = [x, m.like(F32, m.dims(x)), *(m.new(F32, row) for _ in range(m.between(1, 3)))]
        return m.emit("SkipLayerNormalization", operands, domain=MS, epsilon=1e-5)
    if kind == 3:
        operands = [x, m.like(F32, m.dims(x)), *(m.new(F32, row) for _ in range(m.between(1, 2)))]
        return m.emit("SkipSimplifiedLayerNormalization", operands, domain=MS, epsilon=1e-5)
    if kind == 4:
        beyond = m.between(0, 1)
        shape = (m.size(0), width) if beyond else (width, m.size(0))
        return m.emit("FusedMatMul", [x, m.new(F32, shape)], domain=MS, transB=beyond, alpha=m.pick((1.0, 0.3)))
    if kind == 5:
        w = m.new(m.pick((U8, I8)), (width, m.size(0)), fixed=1.0)
        return m.emit("DynamicQuantizeMatMul", [x, w, m.constant(0.02, F32), m.constant(0, m.dtype(w))], domain=MS)
    if kind == 6:
        q = m.like(F32, (2, m.between(1, 4), width))
        return m.emit(
            "MultiHeadAttention", [q, *(m.like(F32, (2, 3, width)) for _ in range(2))], domain=MS, num_heads=2
        )
    if kind == 7:
        packed = m.new(F32, (width, 3 * width), fixed=1.0), m.new(F32, (3 * width,), fixed=1.0)
        return m.emit("Attention", [x, *packed], domain=MS, num_heads=2)
    columns, block = m.pick((1, 8, 17)), 32
    weights = m.constant(m.array(U8, (columns, 1, block // 2)), U8)
    scales = m.constant(m.array(F32, (columns,), "unit"), F32)
    y = m.like(F32, (m.between(1, 4), block))
    return m.emit("MatMulNBits", [y, weights, scales], domain=MS, K=block, N=columns, bits=4, block_size=block)
