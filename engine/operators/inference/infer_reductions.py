"""Inference of operators that reduce along axes, sort, or normalize with statistics among their outputs."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import DType, TensorType
from ...ir.symbolic import Dim, maximum, minimum, product, total
from .inference_call import Call, Shape, SymbolicValue, Types, rule, shape_rule, with_dims


@rule(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
def reduce(call: Call) -> Types:
    """The axes in the second input, by default all, become 1 or are dropped."""
    shape, axes, keep = call.shape(), call.ints(1), bool(call.integer("keepdims", 1))
    noop = call.integer("noop_with_empty_axes") and not axes
    if call.present(1) and axes is None:
        dropped = 0 if keep else call.length(1)
        rank = None if shape is None or not (keep or dropped) else len(shape) - (dropped or 0)
        return [TensorType(call.dtype(), call.unknown_dims(rank))]
    if shape is None:
        return [TensorType(call.dtype(), None if axes or keep or noop else ())]
    if noop:
        return [call.type()]
    axes = call.axes_of(axes or range(len(shape)), len(shape))
    value, function = call.value(0), _FOLD.get(call.op)
    if value is not None and function is not None and (value.rank == 0 or (value.rank == 1 and axes == (0,))):
        folded = function(value.dims)
        if folded is not None:
            sizes = frozenset({folded} if all(map(call.is_size, value.dims)) else ())
            call.contents[0] = SymbolicValue((folded,), value.rank if keep else 0, sizes=sizes)
    return [
        TensorType(call.dtype(), tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes))
    ]


_FOLD: dict[str, Callable[[tuple[Dim, ...]], Dim | None]] = {
    "ReduceProd": product,
    "ReduceSum": total,
    "ReduceMax": lambda dims: maximum(*dims) if dims else None,
    "ReduceMin": lambda dims: minimum(*dims) if dims else None,
}


@rule("ArgMax ArgMin")
def arg(call: Call) -> Types:
    """One index along `axis`."""
    shape = call.shape()
    if shape is None:
        return [TensorType(DType.I64)]
    kept = (1,) if call.integer("keepdims", 1) else ()
    return [TensorType(DType.I64, with_dims(shape, call.axis(len(shape)), *kept))]


@rule("TopK")
def top_k(call: Call) -> Types:
    """The k largest along `axis`, and their indices."""
    shape = call.shape()
    if shape is not None:
        shape = with_dims(shape, call.axis(len(shape), -1), call.given_size(1))
    return [TensorType(call.dtype(), shape), TensorType(DType.I64, shape)]


@rule("BatchNormalization")
def batch_normalization(call: Call) -> Types:
    """The type of the data; in training mode the running mean and variance follow."""
    return [call.type(0), call.type(3), call.type(4)][: max(call.n_outputs, 1)]


@rule("LayerNormalization RMSNormalization")
def layer_normalization(call: Call) -> Types:
    """The type of the data; then mean and inverse deviation, with 1 for the normalized axes."""
    shape = call.shape()
    if shape is not None:
        axis = call.axis(len(shape), -1)
        shape = (*shape[:axis], *(1 for _ in shape[axis:]))
    statistics = TensorType(call.dtype_attr("stash_type", DType.F32), shape)
    return [call.type(0), statistics, statistics]


@rule("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss")
def loss(call: Call) -> Types:
    """A loss for each label or one for all; then the logarithms of the probabilities."""
    each = call.text("reduction", "mean") == "none"
    return [TensorType(call.dtype(), call.shape(1) if each else ()), call.type(0)]


@shape_rule("Det")
def det(call: Call, shape: Shape) -> Shape:
    """One number for each of the matrices in the last two dims."""
    if len(shape) < 2:
        raise call.refuse(f"rank {len(shape)}")
    return shape[:-2]
