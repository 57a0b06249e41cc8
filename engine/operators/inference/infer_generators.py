"""Inference of operators that make tensors from shapes, sizes and counts."""

from __future__ import annotations

import math

from ...ir.dim_parser import parse
from ...ir.graph import Constant, DType, TensorType
from ...ir.names import SIZES
from ...ir.symbolic import Dim, at_least, ceildiv, maximum, product
from .inference_call import MAX_ELEMENTS, Call, SymbolicValue, Types, countable, rule


@rule("Shape")
def shape(call: Call) -> Types:
    """The dims from `start` to `end` as a list of integers."""
    dims = call.shape()
    if dims is None:
        return [TensorType(DType.I64, (call.fresh(),))]
    picked = dims[call.integer("start") : call.integer("end", len(dims))]
    if len(picked) <= MAX_ELEMENTS:
        call.contents[0] = SymbolicValue(picked, sizes=frozenset(picked))
    return [TensorType(DType.I64, (len(picked),))]


@rule(SIZES)
def sizes(call: Call) -> Types:
    """The integers in `dims`, as texts; `scalar` is for a single one of rank 0."""
    texts = call.attrs.get("dims")
    dims = tuple(parse(text) for text in texts if isinstance(text, str)) if isinstance(texts, tuple) else ()
    value = call.contents[0] = SymbolicValue(dims, 0 if call.integer("scalar") else 1)
    return [TensorType(call.dtype_attr("to"), value.shape)]


@rule("Size")
def size(call: Call) -> Types:
    """The number of elements."""
    dims = call.shape()
    if dims is not None:
        call.contents[0] = SymbolicValue((product(dims),), 0, sizes=frozenset({product(dims)}))
    return [TensorType(DType.I64, ())]


@rule("Constant")
def constant(call: Call) -> Types:
    """The tensor in an attribute."""
    value = call.attrs.get("value")
    if isinstance(value, Constant):
        return [value.type]
    for name, dtype in (("value_int", DType.I64), ("value_float", DType.F32), ("value_string", DType.STRING)):
        if name in call.attrs:
            return [TensorType(dtype, ())]
        listed = call.attrs.get(name + "s")
        if isinstance(listed, tuple):
            return [TensorType(dtype, (len(listed),))]
    return [TensorType()]


@rule("ConstantOfShape")
def constant_of_shape(call: Call) -> Types:
    """One value everywhere, in the shape that the input lists."""
    value = call.attrs.get("value")
    dtype = value.type.dtype if isinstance(value, Constant) else DType.F32
    target = call.dims(0)
    if target is None:
        return [TensorType(dtype, call.unknown_dims(call.length(0)))]
    dims = tuple(call.size_of(d) for d in target)
    n = product(dims)
    if len(dims) <= 1 and isinstance(n, int) and n <= MAX_ELEMENTS and isinstance(value, Constant) and countable(dtype):
        call.contents[0] = SymbolicValue((int(value.array.reshape(-1)[0]),) * n, len(dims))
    return [TensorType(dtype, dims)]


@rule("RandomNormal RandomUniform")
def random_numbers(call: Call) -> Types:
    """Floats in the shape that an attribute has."""
    shape = call.int_list("shape")
    dims = None if shape is None else tuple(call.size_of(d) for d in shape)
    return [TensorType(call.dtype_attr("dtype", DType.F32), dims)]


@rule("Bernoulli RandomNormalLike RandomUniformLike")
def random_numbers_like(call: Call) -> Types:
    """Numbers in the shape of the input, and of its type if no attribute has one."""
    return [TensorType(call.dtype_attr("dtype", call.dtype()), call.shape())]


@rule("Multinomial")
def multinomial(call: Call) -> Types:
    """Classes of each row."""
    shape, samples = call.shape(), call.integer("sample_size", 1)
    if shape is not None and len(shape) != 2:
        raise call.refuse(f"rank {len(shape)}")
    dims = (call.fresh() if shape is None else shape[0], call.size_of(samples))
    return [TensorType(call.dtype_attr("dtype", DType.I32), dims)]


@rule("Range")
def range_(call: Call) -> Types:
    """`max(ceil((limit - start) / delta), 0)` numbers."""
    dtype = call.dtype(0) or call.dtype(1) or call.dtype(2)
    if any(call.rank(i) not in (None, 0) for i in range(3)):
        raise call.refuse("its operands must be scalars")
    n: Dim | None = None
    operands = [found for i in range(3) if (found := call.numbers(i)) is not None and found.is_exact]
    if len(operands) == 3 and all(len(found.dims) == 1 for found in operands):
        over = max(found.over for found in operands)
        start, limit, step = (found.dims[0] * (over // found.over) for found in operands)
        if isinstance(step, int) and step:
            n = maximum(ceildiv(limit - start, step) if step > 0 else ceildiv(start - limit, -step), 0)
            if isinstance(n, int) and n <= MAX_ELEMENTS and over == 1:
                call.contents[0] = SymbolicValue(tuple(start + i * step for i in range(n)))
    else:
        first, last, by = (call.number(i) for i in range(3))
        if first is not None and last is not None and by:
            n = max(math.ceil((last - first) / by), 0)
    return [TensorType(dtype, (call.fresh() if n is None else n,))]


@rule("OneHot")
def one_hot(call: Call) -> Types:
    """A new dim of size `depth` at `axis`."""
    indices, number = call.shape(0), call.number(1)
    if indices is None:
        return [TensorType(call.dtype(2))]
    axis = call.axis(len(indices) + 1, -1)
    if not call.dims(1) and number is not None and number >= 0:
        length: Dim = int(number)  # Any numeric type is allowed.
    else:
        length = call.given_size(1)
    return [TensorType(call.dtype(2), (*indices[:axis], length, *indices[axis:]))]


@rule("NonZero")
def non_zero(call: Call) -> Types:
    """The indices of all non-zero elements, one row for each axis; a scalar counts as one."""
    rank = call.rank()
    return [TensorType(DType.I64, (call.fresh() if rank is None else max(rank, 1), call.fresh()))]


@rule("BlackmanWindow HammingWindow HannWindow")
def window(call: Call) -> Types:
    """As many numbers as the input says."""
    return [TensorType(call.dtype_attr("output_datatype", DType.F32), (call.given_size(0),))]


@rule("MelWeightMatrix")
def mel_weight_matrix(call: Call) -> Types:
    """`dft_length // 2 + 1` rows of `num_mel_bins` weights."""
    length = call.dims(1)
    rows = length[0] // 2 + 1 if length and at_least(length[0], 0) else call.fresh()
    return [TensorType(call.dtype_attr("output_datatype", DType.F32), (rows, call.given_size(0)))]


@rule("AffineGrid")
def affine_grid(call: Call) -> Types:
    """A coordinate vector for each pixel of a 2-D or 3-D image of the size in the second input."""
    target = call.dims(1)
    if target is None:
        return [TensorType(call.dtype())]
    if len(target) not in (4, 5):
        raise call.refuse(f"{len(target)} sizes")
    batch, *spatial = (call.size_of(d) for d in (target[0], *target[2:]))
    return [TensorType(call.dtype(), (batch, *spatial, len(spatial)))]
