"""Inference of matrix products, attention, recurrent networks and quantization."""

from __future__ import annotations

from ...ir.graph import DType, TensorType
from ...ir.symbolic import Dim, broadcast_dims
from .inference_call import Call, Shape, Types, rule


def factors(call: Call) -> tuple[Shape | None, Shape | None, DType | None]:
    """Return the shapes of both factors of a matrix product or a convolution, and the element type of the sums.

    Sums of bytes have 32 bits, those of bf16 the type of the weights; quantized ones have the type of the output's zero
    point."""
    if call.op.startswith("QLinear"):
        return call.shape(0), call.shape(3), call.dtype(7)
    first = None if call.op == "rewrite.MatMulBf16" else call.dtype(0)
    dtype = DType.I32 if call.op.endswith("Integer") else first or call.dtype(1)
    return call.shape(0), call.shape(1), dtype


@rule("MatMul rewrite.MatMulBf16 MatMulInteger QLinearMatMul")
def matmul(call: Call) -> Types:
    """Matrix product as in NumPy: vectors count as a row or column, batch dims broadcast."""
    a, b, dtype = factors(call)
    if a is None or b is None:
        return [TensorType(dtype)]
    if not a or not b:
        raise call.refuse("a scalar has no rows")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    call.agree(left[-1], right[-2], "inner dims")
    batch = call.join_shapes(left[:-2], right[:-2]) or ()
    return [TensorType(dtype, (*batch, *((left[-2],) if len(a) > 1 else ()), *((right[-1],) if len(b) > 1 else ())))]


@rule("Gemm")
def gemm(call: Call) -> Types:
    """`op(A) op(B) + C`; C broadcasts to the product."""
    a, b, dtype = factors(call)
    c = call.shape(2) or ()
    if any(s is not None and len(s) != 2 for s in (a, b)):
        raise call.refuse("the operands are not matrices")
    rows, inner = (None, None) if a is None else a[::-1] if call.integer("transA") else a
    other, columns = (None, None) if b is None else b[::-1] if call.integer("transB") else b
    if inner is not None and other is not None:
        call.agree(inner, other, "inner dims")
    for size, whole in zip(reversed(c), (columns, rows), strict=False):  # C never enlarges the product
        if whole is not None:
            call.fit(size, whole, "C")
    if len(c) > 2:
        raise call.refuse(f"C has rank {len(c)}")
    return [TensorType(dtype, tuple(call.fresh() if d is None else d for d in (rows, columns)))]


@rule("Einsum")
def einsum(call: Call) -> Types:
    """The dims that the equation names; `...` broadcasts."""
    types = [call.type(i) for i in range(call.n_inputs)]
    dtype = next((t.dtype for t in types if t.dtype), None)
    equation = call.text("equation").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    terms = operands.split(",")
    shapes = [t.shape for t in types if t.shape is not None]
    if len(terms) != len(types):
        raise call.refuse(f"{len(types)} inputs for {equation!r}")
    if len(shapes) < len(types):
        return [TensorType(dtype)]
    sizes: dict[str, Dim] = {}
    ellipsis: list[Shape] = []
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        first, last = len(before), len(shape) - len(after)
        if first > last or (not dots and first != len(shape)):
            raise call.refuse(f"rank {len(shape)} for {term!r}")
        for letter, dim in zip(before + after, (*shape[:first], *shape[last:]), strict=True):
            # A dim of 1 broadcasts against the same letter elsewhere.
            joined = broadcast_dims(sizes.get(letter, 1), dim)
            if joined is None:
                raise call.refuse(f"sizes {sizes[letter]} and {dim} for {letter!r}")
            call.join_shapes((sizes.get(letter, 1),), (dim,))
            sizes[letter] = joined
        if dots:
            ellipsis.append(shape[first:last])
    batch = call.join_shapes(*ellipsis) or ()
    if not arrow:
        result = ("..." if ellipsis else "") + "".join(sorted(c for c in sizes if operands.count(c) == 1))
    before, dots, after = result.partition("...")
    if any(c not in sizes for c in before + after):
        raise call.refuse(f"an unknown index in {result!r}")
    return [TensorType(dtype, (*(sizes[c] for c in before), *(batch if dots else ()), *(sizes[c] for c in after)))]


@rule("Attention rewrite.ScaledDotProductAttention rewrite.AttentionBf16")
def attention(call: Call) -> Types:
    """Scaled dot-product attention on (batch, heads, length, size) or (batch, length, heads * size)."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    dtypes = (call.dtype(0), call.dtype(1), call.dtype(2), call.dtype(0))
    if q is None or k is None or v is None:
        return [*map(TensorType, dtypes)]
    queries, keys, values = q, k, v
    if len(q) == 3:
        if not heads or not kv_heads:
            raise call.refuse("inputs of rank 3 need q_num_heads and kv_num_heads")
        queries, keys, values = ((s[0], n, s[1], s[2] // n) for s, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    elif not len(q) == len(k) == len(v) == 4:
        raise call.refuse(f"ranks {len(q)}, {len(k)} and {len(v)}")
    length = keys[2]
    if call.present(4):
        past = call.shape(4)
        length = call.fresh() if past is None else past[2] + length
    result = (q[0], q[1], heads * values[3]) if len(q) == 3 else (*queries[:3], values[3])
    if call.integer("rows"):
        result = (q[0], q[2], q[1], values[3])
    caches = [(*heads_of[:2], length, heads_of[3]) for heads_of in (keys, values)]
    return [*map(TensorType, dtypes, (result, *caches, (*queries[:3], length)))]


@rule("RNN GRU LSTM")
def recurrent(call: Call) -> Types:
    """All states, the last state and, for LSTM, the last cell; batch first with `layout` 1."""
    for i in (0, 1, 2, 5, 6):
        if call.rank(i) not in (None, 3):
            raise call.refuse(f"input {i} has rank {call.rank(i)}, which must be 3")
    x, r = call.shape(0), call.shape(2)
    directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
    hidden: Dim = r[2] if r is not None else call.integer("hidden_size") or call.fresh()
    outer, inner = (call.fresh(), call.fresh()) if x is None else x[:2]  # steps and batch, or the reverse
    last = (outer, directions, hidden) if call.integer("layout") else (directions, inner, hidden)
    states = (outer, inner, directions, hidden) if call.integer("layout") else (outer, *last)
    return [TensorType(call.dtype(), states), TensorType(call.dtype(), last), TensorType(call.dtype(), last)]


@rule("QuantizeLinear")
def quantize(call: Call) -> Types:
    """The same shape in the type of the zero point, else `output_dtype`, else bytes."""
    dtype = call.dtype(2) if call.present(2) else call.dtype_attr("output_dtype", DType.U8)
    return [TensorType(dtype, call.shape())]


@rule("DequantizeLinear")
def dequantize(call: Call) -> Types:
    """The same shape in `output_dtype`, else the type of the scale."""
    return [TensorType(call.dtype_attr("output_dtype", call.dtype(1)), call.shape())]


@rule("DynamicQuantizeLinear")
def dynamic_quantize(call: Call) -> Types:
    """The bytes, their scale and their zero point."""
    return [TensorType(DType.U8, call.shape()), TensorType(DType.F32, ()), TensorType(DType.U8, ())]
