"""Operators that make tensors out of shapes, sizes and counts."""

from __future__ import annotations

import math

from ..graph import Constant, DType, TensorType
from ..symbolic import Dim, at_least, ceildiv, maximum, product
from .core import MAX_ELEMENTS, Call, SymbolicValue, Types, axis_of, dtype_attr, refuse, rule, size_of


@rule("Shape")
def shape(call: Call) -> Types:
    """The dims from `start` to `end` as a list of integers."""
    dims = call.shape()
    if dims is None:
        return [TensorType(DType.I64, (call.fresh(),))]
    end = call.attr("end")
    picked = dims[slice(call.integer("start"), end if isinstance(end, int) else None)]
    if len(picked) <= MAX_ELEMENTS:
        call.contents[0] = SymbolicValue(picked)
    return [TensorType(DType.I64, (len(picked),))]


@rule("Size")
def size(call: Call) -> Types:
    """The number of elements."""
    dims = call.shape()
    if dims is not None:
        call.contents[0] = SymbolicValue((product(dims),), 0)
    return [TensorType(DType.I64, ())]


@rule("Constant")
def constant(call: Call) -> Types:
    """The tensor in an attribute."""
    value = call.attr("value")
    if isinstance(value, Constant):
        return [value.type]
    for name, dtype in (("value_int", DType.I64), ("value_float", DType.F32), ("value_string", DType.STRING)):
        if name in call.attrs:
            return [TensorType(dtype, ())]
        listed = call.attr(name + "s")
        if isinstance(listed, tuple):
            return [TensorType(dtype, (len(listed),))]
    return [TensorType()]


@rule("ConstantOfShape")
def constant_of_shape(call: Call) -> Types:
    """One value everywhere, in the shape that the input lists."""
    value = call.attr("value")
    dtype = value.type.dtype if isinstance(value, Constant) else DType.F32
    target = call.dims(0)
    if target is None:
        length = call.shape(0)
        rank = length[0] if length and isinstance(length[0], int) else None
        return [TensorType(dtype, call.unknown_dims(rank))]
    dims = tuple(size_of(call, d) for d in target)
    if (
        len(dims) <= 1
        and isinstance(value, Constant)
        and dtype is not None
        and (dtype.is_integer or dtype is DType.BOOL)
    ):
        n = dims[0] if dims else 1
        if isinstance(n, int) and n <= MAX_ELEMENTS:
            call.contents[0] = SymbolicValue((int(value.array.reshape(-1)[0]),) * n, len(dims))
    return [TensorType(dtype, dims)]


@rule("Range")
def range_(call: Call) -> Types:
    """`max(ceil((limit - start) / delta), 0)` numbers."""
    dtype = call.dtype(0) or call.dtype(1) or call.dtype(2)
    if any(call.rank(i) not in (None, 0) for i in range(3)):
        raise refuse(call, "its operands must be scalars")
    start, limit, delta = (call.dims(i) for i in range(3))
    n: Dim | None = None
    if start and limit and delta and isinstance(delta[0], int) and delta[0]:
        step = delta[0]
        n = maximum(ceildiv(limit[0] - start[0], step) if step > 0 else ceildiv(start[0] - limit[0], -step), 0)
        if isinstance(n, int) and n <= MAX_ELEMENTS:
            call.contents[0] = SymbolicValue(tuple(start[0] + i * step for i in range(n)))
    else:
        arrays = [call.array(i) for i in range(3)]
        if all(a is not None and a.size == 1 for a in arrays):
            first, last, by = (float(a.reshape(-1)[0]) for a in arrays if a is not None)
            if by:
                n = max(math.ceil((last - first) / by), 0)
    return [TensorType(dtype, (call.fresh() if n is None else n,))]


@rule("OneHot")
def one_hot(call: Call) -> Types:
    """A new dim of the size `depth` at `axis`."""
    indices, depth = call.shape(0), call.dims(1)
    if indices is None:
        return [TensorType(call.dtype(2))]
    axis = axis_of(call, call.integer("axis", -1), len(indices) + 1)
    number = call.array(1)
    if depth:
        length = size_of(call, depth[0])
    elif number is not None and number.size == 1 and float(number.reshape(-1)[0]) >= 0:
        length = int(number.reshape(-1)[0])  # any numeric type is allowed
    else:
        length = call.fresh()
    return [TensorType(call.dtype(2), (*indices[:axis], length, *indices[axis:]))]


@rule("NonZero")
def non_zero(call: Call) -> Types:
    """The indices of all non-zero elements, one row for each axis."""
    rank = call.rank()
    # A scalar counts as one dim.
    return [TensorType(DType.I64, (call.fresh() if rank is None else max(rank, 1), call.fresh()))]


@rule("BlackmanWindow", "HammingWindow", "HannWindow")
def window(call: Call) -> Types:
    """As many numbers as the input says."""
    size = call.dims(0)
    length = size_of(call, size[0]) if size else call.fresh()
    return [TensorType(dtype_attr(call, "output_datatype", DType.F32), (length,))]


@rule("MelWeightMatrix")
def mel_weight_matrix(call: Call) -> Types:
    """`dft_length // 2 + 1` rows of `num_mel_bins` weights."""
    bins, length = call.dims(0), call.dims(1)
    rows = length[0] // 2 + 1 if length and at_least(length[0], 0) else call.fresh()
    columns = size_of(call, bins[0]) if bins else call.fresh()
    return [TensorType(dtype_attr(call, "output_datatype", DType.F32), (rows, columns))]


@rule("AffineGrid")
def affine_grid(call: Call) -> Types:
    """A coordinate vector for each pixel of a 2-D or 3-D image of the size in the second input."""
    target = call.dims(1)
    if target is None:
        return [TensorType(call.dtype())]
    if len(target) not in (4, 5):
        raise refuse(call, f"{len(target)} sizes")
    spatial = tuple(size_of(call, d) for d in target[2:])
    return [TensorType(call.dtype(), (size_of(call, target[0]), *spatial, len(spatial)))]
