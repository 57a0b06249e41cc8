"""Recurrent cells and attention."""

from __future__ import annotations

import numpy as np

from ..eager import BF16
from ..maker import (
    BOOL,
    F16,
    F32,
    F64,
    I32,
    Maker,
)
from .registry import draws


@draws(1.5)
def recurrent(m: Maker) -> object:
    op, gates = m.pick((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    dtype = m.pick((F32, F32, F64, F16))
    hidden, length, batch, width = m.between(1, 9), m.between(1, 5), m.between(1, 3), m.between(1, 6)
    direction = m.pick(("forward", "forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    layout = 1 if m.chance(0.1) else None
    fixed = 0.8
    x = m.like(dtype, (batch, length, width) if layout else (length, batch, width))
    operands = [
        x,
        m.new(dtype, (d, gates * hidden, width), "unit", fixed),
        m.new(dtype, (d, gates * hidden, hidden), "unit", fixed),
    ]
    operands.append(m.new(dtype, (d, 2 * gates * hidden), "unit", fixed) if m.chance(0.6) else "")
    lengths = np.asarray(m.rng.integers(1, length, batch, endpoint=True)).astype(I32)
    operands.append(m.fresh(lengths) if m.chance(0.3) else "")
    state = (batch, d, hidden) if layout else (d, batch, hidden)
    operands.append(m.new(dtype, state, "unit") if m.chance(0.4) else "")
    if op == "LSTM":
        operands.append(m.new(dtype, state, "unit") if m.chance(0.4) else "")
        operands.append(m.new(dtype, (d, 3 * hidden), "unit", fixed) if m.chance(0.2) else "")
    outputs = [m.chance(0.8), m.chance(0.6), *([m.chance(0.6)] if op == "LSTM" else [])]
    outputs[0] = outputs[0] or not any(outputs)
    extra: dict[str, object] = {}
    if op == "GRU":
        extra["linear_before_reset"] = m.between(0, 1)
    if m.chance(0.15):
        extra["clip"] = 0.5
    if m.chance(0.15):
        given = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Tanh", "Softsign"]}[op]
        extra["activations"] = given * d
    return m.emit(op, operands, outputs, hidden_size=hidden, direction=direction, layout=layout, **extra)


@draws(1)
def attention(m: Maker) -> object:
    dtype = m.pick((F32, F32, F16, BF16, F64))
    b, heads, head, q, k = m.between(1, 2), m.pick((1, 2, 4)), m.pick((4, 8, 16)), m.between(1, 6), m.between(1, 7)
    groups = m.pick([g for g in (1, 2, 4) if heads % g == 0])
    flat = m.chance(0.3)
    shapes = [(b, heads, q, head), (b, groups, k, head), (b, groups, k, head)]
    if flat:
        shapes = [(b, s, n * d) for _, n, s, d in shapes]
    operands = [m.like(dtype, s) for s in shapes]
    if m.chance(0.4):
        operands.append(m.new(m.pick((dtype, BOOL)), (q, k)))
    extra = {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    return m.emit(
        "Attention", operands, is_causal=m.between(0, 1), scale=m.pick((None, 0.3)),
        softcap=m.pick((None, 2.0)), **extra,
    )  # fmt: skip


@draws(1)
def rotary(m: Maker) -> object:
    dtype = m.pick((F32, F32, F16, BF16))
    b, heads, s, d = m.between(1, 2), m.between(1, 3), m.between(1, 5), m.pick((4, 8, 16))
    if m.chance(0.3):
        n = m.pick((1, 3))
        rows = m.like(dtype, (b, heads, n * 3, d)), m.like(dtype, (b, heads, n * 3, d))
        return m.emit("SwiGLU", list(rows))
    x = m.like(dtype, (b, heads, s, d))
    part = m.pick((None, d // 2)) if d >= 8 else None
    width = (part or d) // 2
    spread = m.between(0, 1)
    if m.chance(0.5):
        caches = [m.new(dtype, (9, width)) for _ in range(2)]
        operands = [x, *caches, m.fresh(np.asarray(m.rng.integers(0, 9, (b, s))))]
    else:
        operands = [x, *(m.new(dtype, (b, s, width)) for _ in range(2))]
    return m.emit("RotaryEmbedding", operands, interleaved=spread, rotary_embedding_dim=part)


@draws(0.6)
def state_space(m: Maker) -> object:
    dtype = m.pick((F32, F32, F16))
    b, s = m.between(1, 2), m.between(1, 5)
    if m.chance(0.5):
        c, k = m.between(1, 4), m.between(1, 4)
        operands = [m.like(dtype, (b, c, s)), m.new(dtype, (c, 1, k))]
        if m.chance(0.5):
            operands += [m.new(dtype, (c,)), m.new(dtype, (b, c, k - 1))] if k > 1 else [m.new(dtype, (c,))]
        return m.emit("CausalConvWithState", operands, 2, activation=m.pick((None, "silu", "swish")))
    heads, d = m.pick((1, 2)), m.pick((2, 4))
    rule = m.pick(("linear", "gated", "delta", "gated_delta"))
    operands = [m.like(dtype, (b, s, heads * d)) for _ in range(3)]
    operands += [
        m.new(dtype, (b, heads, d, d)) if m.chance(0.4) else "",
        m.new(dtype, (b, s, heads * d), "unit") if "gated" in rule else "",
        m.new(dtype, (b, s, heads), "positive") if "delta" in rule else "",
    ]  # fmt: skip
    return m.emit("LinearAttention", operands, 2, q_num_heads=heads, kv_num_heads=heads, update_rule=rule)
