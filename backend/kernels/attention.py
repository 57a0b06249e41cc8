"""Attention as one kernel: the ONNX operator without a key-value cache, in both of its layouts, and our own, which is
its parts and nothing else. Operands are read where a projection has left them, however their heads were split off, and
our own puts the heads of its result side by side if asked to: nothing is transposed outside the kernel.

With rounded operands both products are of bf16, summed in f32, and the softmax between them is f32. Weights are rounded
before they are divided by their sum, which is that of weights as they were: a result is off by no more than 2^-8 of the
mean of the values' magnitudes, beside what rounding the operands does.

They differ in queries that see no key, whose scores are all -∞: a softmax of those is NaN, the ONNX operator gives
zeros."""

from __future__ import annotations

import math

from ...engine.graph import DType, Node
from ...engine.symbolic import Dim, ceildiv, exact_div, known, minimum, same
from ..iteration import Access, Extents, contiguous
from ..kernel_graph import Group, Kernel, Step, Target
from ..lower import Context, lowering
from ..render import c_float
from ..sources import sources
from ..template_params import float_attr, int_attr, operand, threads
from .movement import single

BLOCK = 48  # queries of one head that a task has


@lowering("Attention")
def lower_attention(group: Group, ctx: Context) -> list[Step] | None:
    """f32 with a boolean or additive mask, causal or not, with shared key-value heads; no cache, no soft cap."""
    return _lower(single(group), ctx, "masked")


@lowering("rewrite.ScaledDotProductAttention")
def lower_parts(group: Group, ctx: Context) -> list[Step] | None:
    """The same as the sum of its parts; with `nan_to_zero` rows of weights that are NaN count as zeros."""
    node = single(group)
    guarded = node is not None and bool(int_attr(node, "nan_to_zero", 0))
    return _lower(node, ctx, "nan" if guarded else "")


@lowering("rewrite.AttentionBf16")
def lower_rounded(group: Group, ctx: Context) -> list[Step] | None:
    """The sum of its parts with the operands of both products rounded to bf16; f32 for one or two queries, which read
    keys and values where they lie."""
    node = single(group)
    guarded = node is not None and bool(int_attr(node, "nan_to_zero", 0))
    return _lower(node, ctx, "nan" if guarded else "", words=True)


def _lower(node: Node | None, ctx: Context, zeros: str, words: bool = False) -> list[Step] | None:
    """`zeros` says which rows of weights are zeros: `masked` of queries that see nothing, `nan` all that are NaN. With
    `words` the products' operands are words of two bf16."""
    if node is None or any(node.inputs[4:]) or any(node.outputs[1:]) or float_attr(node, "softcap", 0.0):
        return None
    heads, kv_heads = (node.attrs.get(k) for k in ("q_num_heads", "kv_num_heads"))
    q = _operand(node.inputs[0], ctx, heads)
    k, v = (_operand(value, ctx, kv_heads) for value in node.inputs[1:3])
    y = _result(node, ctx, heads)
    if q is None or k is None or v is None or y is None:
        return None
    share = exact_div(q.shape[1], k.shape[1])
    if share is None or not same(q.shape[3], k.shape[3]) or not same(k.shape[1], v.shape[1]):
        return None
    queries, keys, depth = q.shape[2], k.shape[2], q.shape[3]
    if "scale" in node.attrs:
        factor = float_attr(node, "scale", 0.0)
    elif isinstance(depth, int):
        factor = 1 / math.sqrt(depth) if depth else 1.0
    else:
        return None
    masked = bool(node.inputs[3:] and node.inputs[3])
    mask = _mask(node, ctx, (q.shape[0], q.shape[1], queries, keys)) if masked else None
    if masked and mask is None:
        return None
    extents = Extents()
    wide = ctx.target.lanes * (2 if ctx.target.isa == "avx2" else 4)  # of a panel: 16 keys are packed at a time
    room = ceildiv(keys, wide) * wide
    pitch = minimum(room, span(ctx.target, wide))
    half, line = ceildiv(depth, 2), ceildiv(v.shape[3], ctx.target.lanes) * ctx.target.lanes
    if words:
        scratch: Dim = 4 * (BLOCK * pitch + room * half + ceildiv(room, 2) * line + (BLOCK + 16) * half)
    else:
        scratch = 4 * (BLOCK * pitch + room * (depth + v.shape[3]))
    params = {
        "scale": c_float(factor),
        "late": not masked and factor > 0,
        "causal": bool(int_attr(node, "is_causal", 0)),
        "zeros": zeros,
        "words": words,
        "block": BLOCK,
        "pitch": extents(pitch),
        "online": not same(pitch, room),
        "batch": extents(q.shape[0]),
        "heads": extents(q.shape[1]),
        "share": extents(share),
        "queries": extents(queries),
        "keys": extents(keys),
        "depth": extents(depth),
        "width": extents(v.shape[3]),
        **({"half": extents(half), "line": extents(line)} if words else {}),
        "scratch": extents(scratch),
        "mask": operand("mask", mask[0], mask[1].strides, extents) if mask else None,
    }
    for name, access in (("q", q), ("k", k), ("v", v), ("y", y)):
        params[name] = {"o": extents(access.offset), **dict(zip("bhs", extents.all(access.strides[:3]), strict=True))}
    work = (q.shape[0], q.shape[1], queries, keys)
    return [
        Step(
            Kernel("attention", params, weight=4.0),
            inputs=(q.value, k.value, v.value, *(m for m in node.inputs[3:4] if m)),
            outputs=node.outputs[:1],
            dims=tuple(extents.dims),
            scratch=scratch,
            threads=threads(work, 8),
            nodes=(node.name,),
        )
    ]


def span(target: Target, wide: int) -> int:
    """How many keys are done at a time, in whole panels of `wide`: as many as leave room in the second-level cache for
    the panel of keys and the chunk of values that go by. The fewer the spans, the less there is to bring together."""
    return max(1, target.l2 // 3 // (4 * BLOCK * wide)) * wide


def _operand(value: str, ctx: Context, heads: object) -> Access | None:
    """A tensor seen as [batch, heads, length, size] where its elements lie before they are moved to it."""
    if ctx.type(value).dtype is not DType.F32:
        return None
    found = (_heads(access, heads) for access in sources(value, ctx))
    return next((access for access in found if access is not None and same(access.strides[3], 1)), None)


def _result(node: Node, ctx: Context, heads: object) -> Access | None:
    kind = ctx.type(node.outputs[0])
    if kind.dtype is not DType.F32 or kind.shape is None:
        return None
    whole = contiguous(node.outputs[0], kind.shape)
    return whole.permuted((0, 2, 1, 3)) if int_attr(node, "rows", 0) else _heads(whole, heads)


def _heads(access: Access, heads: object) -> Access | None:
    """A tensor seen as [batch, heads, length, size]; one of rank 3 has the heads side by side in its last dim."""
    if len(access.shape) == 4:
        return access
    if len(access.shape) != 3 or not isinstance(heads, int) or heads < 1:
        return None
    size = exact_div(access.shape[2], heads)
    return None if size is None else access.split(2, (heads, size)).permuted((0, 2, 1, 3))


def _mask(node: Node, ctx: Context, shape: tuple[Dim, ...]) -> tuple[DType, Access] | None:
    """The mask's type and access over all scores, None if it cannot be used."""
    kind = ctx.type(node.inputs[3])
    if kind.dtype not in (DType.F32, DType.BOOL) or kind.dtype is None or kind.shape is None:
        return None
    last = kind.shape[-1] if kind.shape else 1
    if known(last) and known(shape[-1]) and not same(last, shape[-1]) and last != 1:
        return None  # a mask for fewer keys than there are
    access = contiguous(node.inputs[3], kind.shape).broadcast(shape)
    return None if access is None else (kind.dtype, access)
