"""Rotary embeddings against the reference implementation: layouts, partial rotation, positions, run-time dims."""

from __future__ import annotations

from typing import Any

import numpy as np
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(23)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def _case(x: Array, half: int, ids: bool, **attrs: Any) -> Case:
    batch, length = x.shape[0], x.shape[-2]
    shape = (40, half) if ids else (batch, length, half)
    inputs = {"x": x, "c": floats(*shape), "s": floats(*shape)}
    if ids:
        inputs["i"] = RNG.integers(0, 40, (batch, length))
    return Case([Node("RotaryEmbedding", tuple(inputs), ("y",), attrs)], inputs, reference=True)


def test_layouts_and_pairs() -> None:
    cases = []
    for interleaved in (0, 1):
        for ids in (False, True):
            cases += [_case(floats(2, 3, 5, 64), 32, ids, interleaved=interleaved)]
            cases += [_case(floats(2, 5, 3 * 12), 6, ids, interleaved=interleaved, num_heads=3)]
            cases += [_case(floats(1, 4, 1, 80), 20, ids, interleaved=interleaved, rotary_embedding_dim=40)]
            partly = {"rotary_embedding_dim": 10, "num_heads": 4}
            cases += [_case(floats(1, 1, 4 * 16), 5, ids, interleaved=interleaved, **partly)]
    check(cases)


def test_positions_outside_are_clamped() -> None:
    x, c, s = floats(1, 1, 2, 8), floats(9, 4), floats(9, 4)
    inputs = {"x": x, "c": c, "s": s, "i": np.array([[-1, 99]])}
    inside = Case([Node("RotaryEmbedding", ("x", "c", "s", "i"), ("y",), {})], {**inputs, "i": np.array([[0, 8]])})
    from .oracle import oracle

    inside.reference = True
    check([Case(inside.nodes, inputs, expected={"y": oracle(inside)["y"]})])


def test_tables_without_positions_are_not_read() -> None:
    inputs = {"x": floats(1, 1, 2, 8), "c": floats(0, 4), "s": floats(0, 4), "i": np.array([[0, 3]])}
    expected = {"y": np.zeros((1, 1, 2, 8), np.float32)}
    check([Case([Node("RotaryEmbedding", ("x", "c", "s", "i"), ("y",), {})], inputs, expected=expected)])


def test_dims_known_at_run_time() -> None:
    n, s = symbol("N"), symbol("S")
    cases = []
    for batch, length in ((2, 7), (1, 1), (3, 0)):
        case = _case(floats(batch, 2, length, 16), 8, True)
        case.symbolic = {"x": ("N", 2, "S", 16), "i": ("N", "S")}
        case.types = {"y": TensorType(DType.F32, (n, 2, s, 16))}
        cases.append(case)
    check(cases)
