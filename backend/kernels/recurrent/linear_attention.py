"""Lowering of LinearAttention."""

from __future__ import annotations

from ....engine.ir.graph import Node, TensorType
from ....engine.ir.symbolic import Dim, ceildiv, same
from ...codegen.template_params import float_attr, int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone

_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""Whether the state decays, and whether it is corrected, by update rule."""


@lowering_alone("LinearAttention", f64=True)
def lower_linear_attention(node: Node, ctx: Context) -> list[Step] | None:
    """All update rules, for heads of known sizes; the numbers of sequences and tokens may be run-time dims."""
    names = [*node.inputs, "", "", ""][:6]
    present = [value for value in names if value]
    q, k, v = (ctx.type(value).shape for value in names[:3])
    past, decay, beta = names[3:]
    rule = _RULES.get(str(node.attrs.get("update_rule", "gated_delta")))
    q_heads, kv_heads = int_attr(node, "q_num_heads"), int_attr(node, "kv_num_heads")
    if q is None or k is None or v is None or any(ctx.type(value).dtype is not ctx.real for value in present):
        return None
    if rule != (bool(decay), bool(beta)) or min(q_heads, kv_heads) < 1 or q_heads % kv_heads:
        return None
    widths = [shape[2] for shape in (q, k, v) if len(shape) == 3 and isinstance(shape[2], int)]
    if len(widths) != 3 or widths[0] % q_heads or widths[1] % kv_heads or widths[2] % kv_heads:
        return None
    d_k, d_v = widths[0] // q_heads, widths[2] // kv_heads
    if widths[1] // kv_heads != d_k or min(d_k, d_v) < 1:
        return None
    if not all(same(a, b) for shape in (k, v) for a, b in zip(shape[:2], q[:2], strict=True)):
        return None
    if past and not _is(ctx, past, (q[0], kv_heads, d_k, d_v)):
        return None
    decay_width = _width(ctx, decay, (kv_heads, kv_heads * d_k)) if decay else 0
    beta_width = _width(ctx, beta, (kv_heads, 1)) if beta else 0
    if decay_width is None or beta_width is None:
        return None
    outputs = [*node.outputs, ""][:2]
    state = outputs[1] or ctx.new_value(TensorType(ctx.real, (q[0], kv_heads, d_k, d_v)), "state")
    result = outputs[0] or ctx.new_value(TensorType(ctx.real, (*q[:2], q_heads * d_v)), "unused")
    scratch = ceildiv((d_v + ctx.target.lanes) * ctx.target.element_bytes, 64) * 64
    extents = Extents()
    params = {
        "batch": extents(q[0]),
        "tokens": extents(q[1]),
        "kv_heads": kv_heads,
        "groups": q_heads // kv_heads,
        "d_k": d_k,
        "d_v": d_v,
        "past": present.index(past) if past else 0,
        "decay": present.index(decay, 3) if decay else 0,
        "beta": present.index(beta, 3) if beta else 0,
        "decay_width": decay_width // kv_heads,
        "beta_width": beta_width,
        "delta": rule[1],
        "scale": float_attr(node, "scale", 0.0) or d_k**-0.5,
        "first": len(present),
        "scratch": scratch,
    }
    work = threads((q[0], q[1], q_heads + 2 * kv_heads, d_k, d_v))
    kernel = Kernel("linear_attention", params)
    return [launch(kernel, node, present, [result, state], extents, work, scratch=scratch)]


def _is(ctx: Context, value: str, wanted: tuple[Dim, ...]) -> bool:
    shape = ctx.type(value).shape
    return shape is not None and len(shape) == len(wanted) and all(map(same, shape, wanted))


def _width(ctx: Context, value: str, allowed: tuple[int, ...]) -> int | None:
    """Return the last extent of a matrix for each sequence; None if it is not one of those allowed."""
    shape = ctx.type(value).shape
    found = shape[2] if shape is not None and len(shape) == 3 else None
    return found if isinstance(found, int) and found in allowed else None
