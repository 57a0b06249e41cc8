"""Operators that reduce along axes, sort, or normalise with statistics among their outputs."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import DType, TensorType
from ..symbolic import Dim, maximum, minimum, product, total
from .core import Call, SymbolicValue, Types, axes_of, axis_of, dtype_attr, refuse, rule, size_of


@rule(
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)
def reduce(call: Call) -> Types:
    """The axes in the second input, by default all, become 1 or go."""
    shape, axes, keep = call.shape(), call.ints(1), bool(call.integer("keepdims", 1))
    if call.present(1) and axes is None:
        length = call.shape(1)
        count = length[0] if length and isinstance(length[0], int) else None
        if shape is None or (not keep and not count):
            return [TensorType(call.dtype())]
        return [TensorType(call.dtype(), call.unknown_dims(len(shape) - (0 if keep else count or 0)))]
    if shape is None:
        return [
            TensorType(call.dtype(), () if not axes and not keep and not call.integer("noop_with_empty_axes") else None)
        ]
    if not axes:
        if call.integer("noop_with_empty_axes"):
            return [TensorType(call.dtype(), shape)]
        axes = tuple(range(len(shape)))
    axes = axes_of(call, axes, len(shape))
    value, function = call.value(0), _FOLD.get(call.op)
    if value is not None and function is not None and (value.rank == 0 or axes == (0,)):
        folded = function(value.dims)
        if folded is not None:
            call.contents[0] = SymbolicValue((folded,), value.rank if keep else 0)
    if keep:
        return [TensorType(call.dtype(), tuple(1 if i in axes else d for i, d in enumerate(shape)))]
    return [TensorType(call.dtype(), tuple(d for i, d in enumerate(shape) if i not in axes))]


_FOLD: dict[str, Callable[[tuple[Dim, ...]], Dim | None]] = {
    "ReduceProd": product,
    "ReduceSum": total,
    "ReduceMax": lambda dims: maximum(*dims) if dims else None,
    "ReduceMin": lambda dims: minimum(*dims) if dims else None,
}


@rule("ArgMax", "ArgMin")
def arg(call: Call) -> Types:
    """One index along `axis`."""
    shape = call.shape()
    if shape is None:
        return [TensorType(DType.I64)]
    axis = axis_of(call, call.integer("axis"), len(shape))
    middle = (1,) if call.integer("keepdims", 1) else ()
    return [TensorType(DType.I64, (*shape[:axis], *middle, *shape[axis + 1 :]))]


@rule("TopK")
def top_k(call: Call) -> Types:
    """The k largest along `axis`, and where they were."""
    shape, k = call.shape(), call.dims(1)
    if shape is None:
        return [TensorType(call.dtype()), TensorType(DType.I64)]
    axis = axis_of(call, call.integer("axis", -1), len(shape))
    length = size_of(call, k[0]) if k else call.fresh()
    picked = (*shape[:axis], length, *shape[axis + 1 :])
    return [TensorType(call.dtype(), picked), TensorType(DType.I64, picked)]


@rule("BatchNormalization")
def batch_normalization(call: Call) -> Types:
    """The type of the data; in training mode the running mean and variance follow."""
    return [call.type(0), call.type(3), call.type(4)][: max(call.n_outputs, 1)]


@rule("LayerNormalization", "RMSNormalization")
def layer_normalization(call: Call) -> Types:
    """The type of the data; then mean and inverse deviation, with 1 for the normalised axes."""
    shape = call.shape()
    statistics = None
    if shape is not None:
        axis = axis_of(call, call.integer("axis", -1), len(shape))
        statistics = TensorType(
            dtype_attr(call, "stash_type", DType.F32), tuple(d if i < axis else 1 for i, d in enumerate(shape))
        )
    else:
        statistics = TensorType(dtype_attr(call, "stash_type", DType.F32))
    return [call.type(0), statistics, statistics]


@rule("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(call: Call) -> Types:
    """A loss for each label or one for all; then the log of the probabilities."""
    each = call.text("reduction", "mean") == "none"
    return [TensorType(call.dtype(), call.shape(1) if each else ()), call.type(0)]


@rule("Det")
def det(call: Call) -> Types:
    """One number for each of the matrices in the last two dims."""
    shape = call.shape()
    if shape is not None and len(shape) < 2:
        raise refuse(call, f"rank {len(shape)}")
    return [TensorType(call.dtype(), None if shape is None else shape[:-2])]
