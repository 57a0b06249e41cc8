"""Lowering of RotaryEmbedding: rows of heads, read where a projection has left them."""

from __future__ import annotations

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import same
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Access, Extents, contiguous, sources
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone


@lowering_alone("RotaryEmbedding", f64=True)
def lower_rotary_embedding(node: Node, ctx: Context) -> list[Step] | None:
    """[batch, heads, length, size], or [batch, length, heads * size], with cos and sin by position or by row."""
    x, *tables = (ctx.type(value) for value in node.inputs[:3])
    ids = next(iter(node.inputs[3:4]), "")
    heads = int_attr(node, "num_heads", 0)
    read = next((a for a in (_rows(s, heads) for s in sources(node.inputs[0], ctx)) if a is not None), None)
    write = None if x.shape is None else _rows(contiguous(node.outputs[0], x.shape), heads)
    if read is None or write is None or any(t.dtype is not ctx.real or t.shape is None for t in (x, *tables)):
        return None
    batch, count, length, size = write.shape
    cosine, sine = (t.shape or () for t in tables)
    turned = int_attr(node, "rotary_embedding_dim", 0) or size
    if not isinstance(size, int) or not isinstance(turned, int) or turned % 2 or turned > size:
        return None
    half = turned // 2
    wanted = (*cosine[:1], half) if ids else (batch, length, half)
    for shape in (cosine, sine):
        if len(shape) != len(wanted) or not all(same(a, b) for a, b in zip(shape, wanted, strict=True)):
            return None
    if ids and (ctx.type(ids).dtype is not DType.I64 or len(ctx.type(ids).shape or ()) != 2):
        return None
    extents = Extents()
    params: dict[str, object] = {
        "batch": extents(batch),
        "heads": extents(count),
        "length": extents(length),
        "half": half,
        "rest": size - turned,
        "interleaved": bool(int_attr(node, "interleaved", 0)),
        "ids": bool(ids),
        "positions": extents(cosine[0]),
    }
    for name, access in (("x", read), ("y", write)):
        params[name] = {"o": extents(access.offset), **dict(zip("bhs", extents.all(access.strides[:3]), strict=True))}
    inputs = (read.value, *node.inputs[1:3], *([ids] if ids else []))
    return [launch(Kernel("rotary", params), node, inputs, node.outputs, extents, threads((*write.shape,), 4))]


def _rows(access: Access, heads: int) -> Access | None:
    """View a tensor as [batch, heads, length, size] with contiguous rows; None if that is not possible."""
    if len(access.shape) == 3:
        width = access.shape[2]
        if not isinstance(width, int) or heads < 1 or width % heads:
            return None
        access = access.split(2, (heads, width // heads)).permuted((0, 2, 1, 3))
    return access if len(access.shape) == 4 and same(access.strides[3], 1) else None
