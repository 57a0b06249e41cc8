"""Matrix products, attention, recurrent networks and quantisation."""

from __future__ import annotations

from ..graph import DType, TensorType
from ..symbolic import Dim, broadcast_dims, certainly_differ
from .core import Call, Shape, Types, agree, dtype_attr, join_shapes, refuse, rule


def _matmul(call: Call, a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a matrix product as NumPy defines it: vectors count as a row or column, batch dims broadcast."""
    if a is None or b is None:
        return None
    if not a or not b:
        raise refuse(call, "a scalar has no rows")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    agree(call, left[-1], right[-2], "inner dims")
    batch = join_shapes(call, left[:-2], right[:-2])
    assert batch is not None
    return (*batch, *((left[-2],) if len(a) > 1 else ()), *((right[-1],) if len(b) > 1 else ()))


@rule("MatMul", "rewrite.MatMulBf16")
def matmul(call: Call) -> Types:
    """A matrix product with broadcast batch dims."""
    return [TensorType(call.dtype(0) or call.dtype(1), _matmul(call, call.shape(0), call.shape(1)))]


@rule("MatMulInteger")
def matmul_integer(call: Call) -> Types:
    """A matrix product of bytes in 32 bits."""
    return [TensorType(DType.I32, _matmul(call, call.shape(0), call.shape(1)))]


@rule("QLinearMatMul")
def qlinear_matmul(call: Call) -> Types:
    """A matrix product of quantised matrices; the type is that of the output's zero point."""
    return [TensorType(call.dtype(7), _matmul(call, call.shape(0), call.shape(3)))]


@rule("Gemm")
def gemm(call: Call) -> Types:
    """`op(A) op(B) + C`; C broadcasts to the product."""
    a, b = call.shape(0), call.shape(1)
    if any(s is not None and len(s) != 2 for s in (a, b)):
        raise refuse(call, "the operands are no matrices")
    rows = None if a is None else a[1 if call.integer("transA") else 0]
    columns = None if b is None else b[0 if call.integer("transB") else 1]
    if a is not None and b is not None:
        agree(call, a[0 if call.integer("transA") else 1], b[1 if call.integer("transB") else 0], "inner dims")
    c = call.shape(2) if call.present(2) else None
    for size, whole in zip(reversed(c or ()), (columns, rows), strict=False):  # C never enlarges the product
        if whole is not None and certainly_differ(size, 1) and certainly_differ(size, whole):
            raise refuse(call, f"C has {size} where the product has {whole}")
    if c is not None and len(c) > 2:
        raise refuse(call, f"C has rank {len(c)}")
    return [
        TensorType(
            call.dtype(0) or call.dtype(1),
            (call.fresh() if rows is None else rows, call.fresh() if columns is None else columns),
        )
    ]


@rule("Einsum")
def einsum(call: Call) -> Types:
    """The dims that the equation names, `...` broadcast together."""
    dtype = next((call.dtype(i) for i in range(call.n_inputs) if call.dtype(i)), None)
    equation = call.text("equation").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    terms = operands.split(",")
    shapes = [call.shape(i) for i in range(call.n_inputs)]
    if len(terms) != len(shapes):
        raise refuse(call, f"{len(shapes)} inputs for {equation!r}")
    sizes: dict[str, Dim] = {}
    ellipsis: list[Shape] = []
    if any(s is None for s in shapes):
        return [TensorType(dtype)]
    for term, shape in zip(terms, shapes, strict=True):
        assert shape is not None
        before, dots, after = term.partition("...")
        if len(before) + len(after) > len(shape) or (not dots and len(before) != len(shape)):
            raise refuse(call, f"rank {len(shape)} for {term!r}")
        for letter, dim in (
            *zip(before, shape, strict=False),
            *zip(after, shape[len(shape) - len(after) :], strict=True),
        ):
            # A dim of 1 broadcasts against the same letter elsewhere.
            joined = broadcast_dims(sizes.get(letter, 1), dim)
            if joined is None:
                raise refuse(call, f"sizes {sizes[letter]} and {dim} for {letter!r}")
            sizes[letter] = joined
        if dots:
            ellipsis.append(shape[len(before) : len(shape) - len(after)])
    batch = join_shapes(call, *ellipsis) or ()
    if not arrow:
        letters = [c for c in operands if c.isalpha()]
        result = ("..." if ellipsis else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    before, dots, after = result.partition("...")
    if any(c not in sizes for c in before + after):
        raise refuse(call, f"an unknown index in {result!r}")
    return [TensorType(dtype, (*(sizes[c] for c in before), *(batch if dots else ()), *(sizes[c] for c in after)))]


@rule("Attention", "rewrite.ScaledDotProductAttention", "rewrite.AttentionBf16")
def attention(call: Call) -> Types:
    """Scaled dot-product attention on (batch, heads, length, size) or (batch, length, heads * size)."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    dtype = call.dtype(0)
    if q is None or k is None or v is None:
        return [TensorType(dtype), TensorType(call.dtype(1)), TensorType(call.dtype(2)), TensorType(dtype)]
    if len(q) == 3:
        if not heads or not kv_heads:
            raise refuse(call, "inputs of rank 3 need q_num_heads and kv_num_heads")
        queries: Shape = (q[0], heads, q[1], q[2] // heads)
        keys: Shape = (k[0], kv_heads, k[1], k[2] // kv_heads)
        values: Shape = (v[0], kv_heads, v[1], v[2] // kv_heads)
    elif len(q) == len(k) == len(v) == 4:
        queries, keys, values = q, k, v
    else:
        raise refuse(call, f"ranks {len(q)}, {len(k)} and {len(v)}")
    length = keys[2]
    if call.present(4):
        past = call.shape(4)
        length = call.fresh() if past is None else past[2] + length
    result = (q[0], q[1], heads * values[3]) if len(q) == 3 else (*queries[:3], values[3])
    if call.integer("rows"):
        result = (q[0], q[2], q[1], values[3])
    return [
        TensorType(dtype, result),
        TensorType(call.dtype(1), (keys[0], keys[1], length, keys[3])),
        TensorType(call.dtype(2), (values[0], values[1], length, values[3])),
        TensorType(dtype, (queries[0], queries[1], queries[2], length)),
    ]


@rule("RNN", "GRU", "LSTM")
def recurrent(call: Call) -> Types:
    """All states, the last state and, for LSTM, the last cell; batch first with `layout` 1."""
    for i in (0, 1, 2, 5, 6):
        if call.rank(i) not in (None, 3):
            raise refuse(call, f"input {i} has rank {call.rank(i)}, which must be 3")
    x, r = call.shape(0), call.shape(2)
    dtype = call.dtype(0)
    directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
    hidden: Dim | None = r[2] if r is not None and len(r) == 3 else call.integer("hidden_size") or None
    hidden = call.fresh() if hidden is None else hidden
    length, batch = (x[0], x[1]) if x is not None and len(x) == 3 else (call.fresh(), call.fresh())
    if call.integer("layout"):
        length, batch = batch, length
        states: Shape = (batch, length, directions, hidden)
        last: Shape = (batch, directions, hidden)
    else:
        states, last = (length, directions, batch, hidden), (directions, batch, hidden)
    return [TensorType(dtype, states), TensorType(dtype, last), TensorType(dtype, last)]


@rule("QuantizeLinear")
def quantize(call: Call) -> Types:
    """The same shape; the type of the zero point, else `output_dtype`, else bytes."""
    dtype = call.dtype(2) if call.present(2) else dtype_attr(call, "output_dtype", DType.U8)
    return [TensorType(dtype, call.shape())]


@rule("DequantizeLinear")
def dequantize(call: Call) -> Types:
    """The same shape in `output_dtype`, else the type of the scale."""
    return [TensorType(dtype_attr(call, "output_dtype", call.dtype(1)), call.shape())]


@rule("DynamicQuantizeLinear")
def dynamic_quantize(call: Call) -> Types:
    """The bytes, their scale and their zero point."""
    return [TensorType(DType.U8, call.shape()), TensorType(DType.F32, ()), TensorType(DType.U8, ())]
