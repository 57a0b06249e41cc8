"""Lowering of attention to one kernel: ONNX's operator without a key-value cache, in both layouts, and our own ones.

`rewrite.ScaledDotProductAttention` and `rewrite.AttentionBf16` are exactly their definitions. Operands are read where a
projection has left them, however their heads were split off. Ours may also put the heads of the result side by side, so
nothing is transposed outside the kernel.

In bf16 both products are summed in f32, and the softmax between them is f32. Weights are rounded before they are
divided by the sum of the unrounded ones. Beside the rounding of the operands, that adds an error of at most 2^-8 of the
mean magnitude of the values.

The operators differ for queries with all keys masked, whose scores are all -inf: their softmax is NaN, ONNX's operator
returns zeros.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import Dim, ceildiv, exact_div, known, minimum, same
from ...codegen.render import c_float
from ...codegen.template_params import float_attr, int_attr, launch, operand, threads
from ...ir.iteration_space import Access, Extents, contiguous, sources
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ...ir.schedule import DEFAULT, Knob, Space
from ...ir.target import Target
from ..registry import lowering_alone
from ..scheduling import alone, at_width, bits_knob, schedule
from . import tiles as tiling

AHEAD = 4096
"""Distance in bytes at which keys and values are prefetched for a single query."""
BLOCK, AMX_BLOCK = 48, 64
"""Queries of one head per task, on vectors and in tiles of AMX."""


@lowering_alone("Attention", "rewrite.ScaledDotProductAttention", "rewrite.AttentionBf16", f64=True)
def lower_attention(node: Node, ctx: Context) -> list[Step] | None:
    """Attention with a boolean or additive mask, causal or not, with shared key-value heads, soft cap, valid lengths.

    Rules replace a key-value cache by concatenation. Our own may have `nan_to_zero`, which replaces NaN weights by
    zeros. In bf16 one or two queries are computed in f32: they read keys and values where they lie."""
    if any(node.inputs[4:6]) or any(node.outputs[1:]):
        return None
    heads, kv_heads = (node.attrs.get(name) for name in ("q_num_heads", "kv_num_heads"))
    q = _operand(node.inputs[0], ctx, heads)
    k, v = (_operand(value, ctx, kv_heads) for value in node.inputs[1:3])
    y = _result(node, ctx, heads)
    if q is None or k is None or v is None or y is None:
        return None
    share = exact_div(q.shape[1], k.shape[1])
    if share is None or not same(q.shape[3], k.shape[3]) or not same(k.shape[1], v.shape[1]):
        return None
    queries, keys, depth = q.shape[2], k.shape[2], q.shape[3]
    if "scale" not in node.attrs and not isinstance(depth, int):
        return None
    usual = 1 / math.sqrt(depth) if isinstance(depth, int) and depth else 1.0
    factor = float_attr(node, "scale", 1.0) if "scale" in node.attrs else usual
    bf16 = node.op == "rewrite.AttentionBf16"
    masked = bool(node.inputs[3:] and node.inputs[3])
    mask = _mask(node, ctx, (q.shape[0], q.shape[1], queries, keys)) if masked else None
    if masked and mask is None:
        return None
    lengths = _lengths(node, ctx)
    if lengths is None:
        return None
    softcap = max(0.0, float_attr(node, "softcap", 0.0))
    extents = Extents()
    amx = _amx_step(depth, ctx.target) if bf16 else 0

    def described(extents: Extents) -> dict[str, Any]:
        sizes = extents.all((*q.shape, k.shape[1], keys, v.shape[3]))
        masks = None if mask is None else (mask[0].value, extents.all(mask[1].strides))
        causal, zeros = int_attr(node, "is_causal", 0), int_attr(node, "nan_to_zero", 0)
        return {"op": node.op, "sizes": sizes, "mask": masks, "form": [causal, zeros, bool(lengths), softcap > 0]}

    label = f"attention {q.shape[1]}x{queries}x{depth}, {keys} keys{' bf16' * bf16}"
    space = partial(attention_space, queries, keys, ctx, bf16=bf16)
    point = DEFAULT if amx else schedule(alone(node), ctx, label, described, space)
    ctx = at_width(point, ctx)
    rows, vectors = 32 if amx else 6, 4 if ctx.target.registers >= 32 else 2
    if "tile" in point:
        rows, vectors = (int(n) for n in str(point["tile"]).split("x"))
    block = -(-int(point.get("block", AMX_BLOCK if amx else BLOCK)) // rows) * rows  # whole tiles
    wide = ctx.target.lanes * vectors
    padded = ceildiv(keys, wide) * wide
    span = -(-int(point["span"]) // wide) * wide if "span" in point else keys_per_span(ctx.target, wide)
    ld = minimum(padded, span)
    half, line = ceildiv(depth, 2), ceildiv(v.shape[3], ctx.target.lanes) * ctx.target.lanes
    if bf16:
        floats: Dim = block * ld + padded * half + ceildiv(padded, 2) * line + (block + ctx.target.lanes) * half
    else:
        floats = block * ld + padded * (depth + v.shape[3])
    scratch = ceildiv(floats * ctx.target.element_bytes, 64) * 64
    sizes = (depth, v.shape[3])
    uneven = not bf16 and ctx.real is DType.F32 and any(isinstance(size, int) and wide % max(1, size) for size in sizes)
    size_text = extents.entry if uneven else extents
    written = operand("mask", mask[0], mask[1].strides, extents) if mask else None
    params = {
        "scale": f"k_float({extents.entry(_bits(factor))})" if uneven else c_float(factor),
        "late": not masked and factor > 0 and not softcap,
        "softcap": {"value": c_float(softcap), "inverse": c_float(1 / softcap)} if softcap else None,
        "lengths": bool(lengths),
        "few": _heads_at_once(share),
        "ahead": int(point.get("ahead", AHEAD)),
        "causal": bool(int_attr(node, "is_causal", 0)),
        "zeros": "masked" if node.op == "Attention" else "nan" if int_attr(node, "nan_to_zero", 0) else "",
        "bf16": bf16,
        **({"amx": amx} if amx else {}),
        "tile_rows": rows,
        "tile_vectors": vectors,
        "block": block,
        **({"chunk": point["chunk"]} if "chunk" in point else {}),
        "ld": extents(ld),
        "online": not same(ld, padded),
        "batch": extents.entry(q.shape[0]),
        "heads": extents.entry(q.shape[1]),
        "share": extents(share),
        "queries": extents(queries),
        "keys": extents(keys) if isinstance(keys, int) else extents.entry(keys),
        "depth": size_text(depth),
        "width": size_text(v.shape[3]),
        **({"half": extents(half), "line": extents(line)} if bf16 else {}),
        "scratch": extents(scratch),
        "mask": written,
    }
    # heads of one size share a kernel, however many there are and wherever they lie; those that do not fill whole
    # panels need the code for other sizes as well, and share it, too
    for name, access in (("q", q), ("k", k), ("v", v), ("y", y)):
        params[name] = dict(zip("obhs", map(extents.entry, (access.offset, *access.strides[:3])), strict=True))
    if mask and written:
        written["strides"] = [*map(extents.entry, mask[1].strides[:3]), written["inner"]]
    inputs = (q.value, k.value, v.value, *(m for m in node.inputs[3:4] if m), *lengths)
    work = threads((q.shape[0], q.shape[1], queries, keys), 8)
    kernel = ctx.kernel("attention", params)
    return [launch(kernel, node, inputs, node.outputs[:1], extents, work, scratch=scratch)]


def attention_space(queries: Dim, keys: Dim, ctx: Context, *, bf16: bool) -> Space:
    """Return the schedules of attention on vectors.

    `tile`: register tile of both products, queries x vectors of keys or values; `block`: queries of a task; `span`:
    keys whose scores are computed before their values are added; `chunk`: rows of values that all tiles of a block
    read before the next ones. For one or two queries, which read keys and values where they lie, only `ahead`: the
    distance in bytes at which these are prefetched. See `scheduling` for the other."""
    bits = [] if bf16 else [bits_knob(ctx)]
    m, n = (dim if isinstance(dim, int) else 0 for dim in (queries, keys))
    if m <= 2:
        return Space(("attention",), (Knob("ahead", (512, 1024, 2048, 4096, 8192)), *bits))
    knobs = [
        tiling.tile_knob(ctx.target),
        Knob("block", tuple(size for size in (8, 16, 24, 32, 48, 64, 96, 128, 192) if size < 2 * m)),
        Knob("span", tuple(size for size in (64, 128, 256, 512, 1024) if size < 2 * n)),
        Knob("chunk", tuple(size for size in (32, 64, 128, 256, 512) if size < 2 * n)),
        *bits,
    ]
    return Space(("attention",), tuple(knobs))


def _amx_step(depth: Dim, target: Target) -> int:
    """Return the words of a step of AMX's tiles along queries and keys of this depth; 0 where vectors do better."""
    if not isinstance(depth, int) or "amx_bf16" not in target.features:
        return 0
    words = -(-depth // 2)
    least = -(-words // 16)
    return next((words // steps for steps in range(least, 2 * least + 1) if words % steps == 0), 0)


def _heads_at_once(share: Dim) -> int:
    """Return how many heads that share keys and values a single query is computed for at once; 2 for two queries."""
    if not isinstance(share, int):
        return 4
    return next((n for n in (4, 3, 2) if share % n == 0), 2 if share == 1 else 4)


def _lengths(node: Node, ctx: Context) -> tuple[str, ...] | None:
    """Return the value with the numbers of valid keys, if there is one; None if it has another type."""
    value = next(iter(node.inputs[6:7]), "")
    if value and (ctx.type(value).dtype is not DType.I64 or len(ctx.type(value).shape or ()) != 1):
        return None
    return (value,) if value else ()


def keys_per_span(target: Target, wide: int) -> int:
    """Return the keys that are computed on at once, in whole panels of `wide`.

    Their scores leave room in the second-level cache for the panel of keys and the chunk of values that stream by. The
    fewer the spans, the less there is to combine."""
    return max(1, target.l2 // 3 // (target.element_bytes * BLOCK * wide)) * wide


def _bits(factor: float) -> int:
    """Return the bits of a number in f32 as an integer, which an entry of `dims` can hold."""
    return int(np.float32(factor).view(np.int32))


def _operand(value: str, ctx: Context, heads: object) -> Access | None:
    """View a tensor as [batch, heads, length, size] where its elements lie before they are moved to it."""
    if ctx.type(value).dtype is not ctx.real:
        return None
    found = (_heads(access, heads) for access in sources(value, ctx))
    return next((access for access in found if access is not None and same(access.strides[3], 1)), None)


def _result(node: Node, ctx: Context, heads: object) -> Access | None:
    """View the result as [batch, heads, length, size]."""
    kind = ctx.type(node.outputs[0])
    if kind.dtype is not ctx.real or kind.shape is None:
        return None
    whole = contiguous(node.outputs[0], kind.shape)
    return whole.permuted((0, 2, 1, 3)) if int_attr(node, "rows", 0) else _heads(whole, heads)


def _heads(access: Access, heads: object) -> Access | None:
    """View a tensor as [batch, heads, length, size]; one of rank 3 has the heads side by side in its last dim."""
    if len(access.shape) == 4:
        return access
    if len(access.shape) != 3 or not isinstance(heads, int) or heads < 1:
        return None
    size = exact_div(access.shape[2], heads)
    return None if size is None else access.split(2, (heads, size)).permuted((0, 2, 1, 3))


def _mask(node: Node, ctx: Context, shape: tuple[Dim, ...]) -> tuple[DType, Access] | None:
    """Return the mask's type and access over all scores, or None if it cannot be used."""
    kind = ctx.type(node.inputs[3])
    if kind.dtype not in (ctx.real, DType.BOOL) or kind.dtype is None or kind.shape is None:
        return None
    last = kind.shape[-1] if kind.shape else 1
    if known(last) and known(shape[-1]) and not same(last, shape[-1]) and last != 1:
        return None  # a mask for fewer keys than there are
    access = contiguous(node.inputs[3], kind.shape).broadcast(shape)
    return None if access is None else (kind.dtype, access)
