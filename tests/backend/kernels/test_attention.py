"""Attention against the formula in float64: layouts, masks, shared heads, odd sizes, run-time dims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rewrite.backend.ir.kernel import Kernel
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target
from rewrite.backend.kernels.gemm import attention
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(19)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) * 2, np.float32)


def _expected(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    causal: bool,
    scale: float | None,
    valid: Array | None = None,
    softcap: float = 0.0,
) -> Array:
    share = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, share, 1).astype(np.float64), np.repeat(v, share, 1).astype(np.float64)
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    scores = np.tanh(scores / softcap) * softcap if softcap else scores
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    rows, columns = np.ogrid[: scores.shape[-2], : scores.shape[-1]]
    ends = np.zeros((1, 1, 1, 1), np.int64) if valid is None else valid.reshape(-1, 1, 1, 1)
    if causal:
        scores = np.where(columns <= rows + (ends - len(rows) if valid is not None else 0), scores, -np.inf)
    if valid is not None:
        scores = np.where(columns < ends, scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = (scores / scores.sum(-1, keepdims=True) @ v).astype(np.float32)
    return result


def _case(
    b: int,
    heads: tuple[int, int],
    lengths: tuple[int, int],
    sizes: tuple[int, int],
    mask: Array | None = None,
    *,
    flat: bool = False,
    causal: bool = False,
    scale: float | None = None,
    valid: list[int] | None = None,
    softcap: float = 0.0,
    **more: Any,
) -> Case:
    (h, g), (s, t), (d, e) = heads, lengths, sizes
    q, k, v = floats(b, h, s, d), floats(b, g, t, d), floats(b, g, t, e)
    ends = None if valid is None else np.array(valid, np.int64)
    y = _expected(q, k, v, mask, causal, scale, ends, softcap)
    attrs: dict[str, Any] = {"is_causal": int(causal), "softcap": softcap} | ({} if scale is None else {"scale": scale})
    if flat:
        q, k, v, y = (a.swapaxes(1, 2).reshape(b, a.shape[2], -1).copy() for a in (q, k, v, y))
        attrs |= {"q_num_heads": h, "kv_num_heads": g}
    inputs = {"q": q, "k": k, "v": v} | ({} if mask is None else {"m": mask})
    names = (*inputs, *("",) * (6 - len(inputs)), "n") if ends is not None else tuple(inputs)
    inputs |= {} if ends is None else {"n": ends}
    node = Node("Attention", names, ("y",), attrs)
    return Case([node], inputs, expected={"y": y}, rtol=2e-5, atol=2e-5, **more)


def test_sizes() -> None:
    cases = []
    for lengths in ((1, 1), (1, 77), (2, 9), (3, 5), (5, 64), (33, 65), (70, 130)):
        cases.append(_case(2, (3, 3), lengths, (64, 64)))
    cases += [_case(1, (2, 2), (17, 19), sizes) for sizes in ((8, 8), (32, 80), (5, 7), (100, 33))]
    check(cases)


def test_layouts_heads_and_scale() -> None:
    cases = [_case(2, (4, 4), (20, 30), (16, 16), flat=True), _case(2, (6, 2), (20, 30), (16, 24), flat=True)]
    cases += [
        _case(2, (6, 2), (9, 9), (16, 16)),
        _case(1, (4, 1), (1, 40), (64, 64)),
        _case(1, (2, 2), (9, 9), (8, 8), scale=0.7),
    ]
    check(cases)


def test_masks() -> None:
    cases = []
    s, t = 21, 37
    for shape in ((s, t), (2, 1, 1, t), (2, 3, s, t), (1, 3, s, 1), (t,)):
        cases.append(_case(2, (3, 3), (s, t), (16, 16), floats(*shape)))
        truth = RNG.random(shape) > 0.4
        truth[..., 0] = True
        cases.append(_case(2, (3, 3), (s, t), (16, 16), truth))
    cases += [_case(2, (3, 3), lengths, (16, 16), causal=True) for lengths in ((40, 40), (5, 70), (70, 5), (1, 9))]
    cases.append(_case(1, (2, 1), (40, 40), (16, 16), floats(40, 40), causal=True, flat=True))
    check(cases)


def test_one_query_of_heads_that_share_keys() -> None:
    """As many heads as share keys and values are computed together, in parts of at most four."""
    cases = [_case(2, (2 * g, 2), (1, 77), (64, 64)) for g in (2, 3, 4, 5, 7, 8)]
    cases += [_case(1, (6, 2), (1, 50), (20, 7), floats(6, 1, 50)), _case(1, (10, 2), (1, 9), (16, 16), flat=True)]
    cases += [_case(1, (8, 2), (2, 40), (64, 64)), _case(1, (8, 2), (2, 40), (16, 16), causal=True, valid=[17])]
    check(cases)


def test_valid_keys() -> None:
    """Keys behind the valid ones have no effect; causal queries are the last ones among these."""
    cases = []
    for queries in (1, 2, 7, 50):
        for causal in (False, True):
            for valid in ([60, 50], [131, 77]):
                cases.append(_case(2, (4, 2), (queries, 131), (16, 24), valid=valid, causal=causal))
    cases.append(_case(2, (3, 3), (1, 40), (16, 16), floats(2, 1, 1, 40), valid=[40, 3], causal=True))
    cases.append(_case(2, (3, 3), (9, 40), (16, 16), RNG.random((9, 40)) > -1, valid=[9, 40], causal=True))
    check(cases)


def test_queries_before_all_valid_keys() -> None:
    """More queries than valid keys: the first ones see nothing and their results are zeros."""
    q, k, v, n = floats(2, 2, 5, 16), floats(2, 2, 9, 16), floats(2, 2, 9, 16), np.array([3, 0])
    with np.errstate(invalid="ignore"):
        y = np.nan_to_num(_expected(q, k, v, None, True, None, n))
    assert not y[0, :, :2].any()
    assert not y[1].any()
    node = Node("Attention", ("q", "k", "v", "", "", "", "n"), ("y",), {"is_causal": 1})
    cases = [Case([node], {"q": q, "k": k, "v": v, "n": n}, expected={"y": y}, rtol=2e-5, atol=2e-5)]
    few = {"q": q[:, :, -1:].copy(), "k": k, "v": v, "n": n}
    cases.append(Case([node], few, expected={"y": y[:, :, -1:].copy()}, rtol=2e-5, atol=2e-5))
    check(cases)


def test_capped_scores() -> None:
    mask = RNG.random((20, 30)) > 0.4
    mask[:, 0] = True
    cases = [_case(2, (4, 2), (s, 30), (16, 16), softcap=2.5) for s in (1, 2, 20)]
    cases.append(_case(2, (4, 2), (20, 30), (16, 16), mask, softcap=0.5, scale=0.7))
    cases.append(_case(2, (4, 2), (20, 30), (16, 16), softcap=30.0, causal=True, valid=[30, 21]))
    check(cases)


def test_dims_known_at_run_time() -> None:
    n, s, t = symbol("N"), symbol("S"), symbol("T")
    cases = []
    for b, x, y in ((2, 20, 33), (1, 1, 7), (1, 70, 4), (0, 3, 3)):
        names = {"q": ("N", 2, "S", 16), "k": ("N", 2, "T", 16), "v": ("N", 2, "T", 16), "m": ("N", 1, 1, "T")}
        kind = {"y": TensorType(DType.F32, (n, 2, s, 16))}
        cases.append(_case(b, (2, 2), (x, y), (16, 16), floats(b, 1, 1, y), symbolic=names, types=kind))
    assert t != s
    check(cases)


def test_queries_that_see_nothing() -> None:
    """The ONNX operator returns zeros for them, its parts NaN, and the guarded parts zeros instead of NaN."""
    q, k, v = floats(1, 2, 9, 16), floats(1, 2, 13, 16), floats(1, 2, 13, 16)
    q[0, 0, 5] = np.nan
    mask = RNG.random((9, 13)) > 0.4
    mask[:, 0] = True
    mask[3] = False
    with np.errstate(invalid="ignore"):
        parts = _expected(q, k, v, mask, False, 0.25)
    assert np.isnan(parts[0, :, 3]).all()
    onnx, guarded = parts.copy(), np.nan_to_num(parts)
    onnx[:, :, 3] = 0
    inputs = {"q": q, "k": k, "v": v, "m": mask}
    cases = []
    for op, attrs, y in (
        ("Attention", {}, onnx),
        ("rewrite.ScaledDotProductAttention", {}, parts),
        ("rewrite.ScaledDotProductAttention", {"nan_to_zero": 1}, guarded),
    ):
        node = Node(op, tuple(inputs), ("y",), {"scale": 0.25, **attrs})
        cases.append(Case([node], inputs, expected={"y": y}, rtol=2e-5, atol=2e-5))
    check(cases)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of one panel of keys, as if the second-level cache were tiny."""
    monkeypatch.setattr(attention, "keys_per_span", lambda target, wide: wide)


def test_rows_in_spans(short: None) -> None:
    """Running maximum and sum over spans, with the largest score first, last, or anywhere."""
    n, s, t = symbol("N"), symbol("S"), symbol("T")
    cases = [_case(2, (3, 3), lengths, (16, 24)) for lengths in ((1, 300), (2, 129), (7, 64), (53, 65), (50, 333))]
    cases += [_case(1, (4, 2), (20, 150), (16, 16), flat=True), _case(1, (2, 2), (9, 200), (8, 8), scale=-0.7)]
    cases += [_case(1, (2, 2), lengths, (16, 16), causal=True) for lengths in ((150, 150), (5, 200), (200, 70))]
    cases.append(_case(1, (2, 1), (100, 100), (16, 16), floats(100, 100), causal=True))
    cases += [_case(2, (6, 2), (x, 333), (16, 16), causal=True, valid=[333, 130], softcap=3.0) for x in (1, 2, 70)]
    for slope in (0.5, -0.5):
        cases.append(_case(1, (2, 2), (20, 300), (16, 16), np.asarray(slope * np.arange(300), np.float32)))
        cases.append(_case(1, (2, 2), (2, 300), (16, 16), np.asarray(slope * np.arange(300), np.float32)))
    for b, x, y in ((2, 20, 133), (1, 1, 200), (1, 3, 0)):
        names = {"q": ("N", 2, "S", 16), "k": ("N", 2, "T", 16), "v": ("N", 2, "T", 16), "m": ("N", 1, 1, "T")}
        kind = {"y": TensorType(DType.F32, (n, 2, s, 16))}
        if y:
            case = _case(b, (2, 2), (x, y), (16, 16), floats(b, 1, 1, y), symbolic=names, types=kind)
        else:  # a sum of nothing
            shapes = {"q": (b, 2, x, 16), "k": (b, 2, y, 16), "v": (b, 2, y, 16), "m": (b, 1, 1, y)}
            ins = {name: floats(*shape) for name, shape in shapes.items()}
            node = Node("Attention", tuple(ins), ("y",), {})
            zeros = np.zeros((b, 2, x, 16), np.float32)
            case = Case([node], ins, expected={"y": zeros}, symbolic=names, types=kind)
        cases.append(case)
    assert t != s
    check(cases)


def test_spans_that_a_query_does_not_see(short: None) -> None:
    """An unseen span has no effect, an unseen row is as without spans.

    NaN and infinite scores turn only their own rows into NaN."""
    q, k, v = floats(1, 2, 9, 16), floats(1, 2, 205, 16), floats(1, 2, 205, 16)
    q[0, 0, 5, 3] = np.nan
    q[0, 1, 6] = np.abs(q[0, 1, 6])
    k[0, 1, 150] = np.inf
    seen = RNG.random((9, 205)) > 0.4
    seen[0, :130] = False
    seen[1, 70:] = False
    seen[2, 64:128] = False
    seen[3] = False
    seen[4, :204], seen[4, 204] = False, True
    seen[:, 150] = False
    seen[6, 150] = True
    added = np.where(seen, 0, -np.inf).astype(np.float32)
    keys = np.where(np.isinf(k), 3.0, k).astype(np.float32)  # for the mask that is added: -inf + inf would be NaN
    cases = []
    for mask, used in ((seen, k), (added, keys)):
        with np.errstate(invalid="ignore"):
            parts = _expected(q, used, v, mask, False, 0.25)
        assert np.isnan(parts[0, :, 3]).all()
        assert np.isnan(parts[0, 0, 5]).all()
        assert np.isfinite(parts[0, 1, [0, 1, 2, 4, 5, 7, 8]]).all()
        assert np.isnan(parts[0, 1, 6]).any() == (used is k)
        onnx, guarded = parts.copy(), np.nan_to_num(parts)
        onnx[:, :, 3] = 0
        onnx[0, 0, 3] = 0
        inputs = {"q": q, "k": used, "v": v, "m": mask}
        for op, attrs, y in (
            ("Attention", {}, onnx),
            ("rewrite.ScaledDotProductAttention", {}, parts),
            ("rewrite.ScaledDotProductAttention", {"nan_to_zero": 1}, guarded),
        ):
            for rows in (9, 2) if op == "Attention" else (9,):  # two queries read keys where they lie
                few = {**inputs, "q": q[:, :, :rows].copy(), "m": mask[:rows].copy()}
                node = Node(op, tuple(few), ("y",), {"scale": 0.25, **attrs})
                cases.append(Case([node], few, expected={"y": y[:, :, :rows].copy()}, rtol=2e-5, atol=2e-5))
    check(cases)


def test_scores_near_the_largest_number(short: None) -> None:
    """Products with log2(e) would overflow where the scores do not."""
    q, k, v = floats(1, 1, 5, 4), floats(1, 1, 100, 4), floats(1, 1, 100, 4)
    q, k = np.asarray(q * 1e18, np.float32), np.asarray(k * 3e18, np.float32)
    y = _expected(q, k, v, None, False, 1.0)
    assert np.isfinite(y).all()
    node = Node("Attention", ("q", "k", "v"), ("y",), {"scale": 1.0})
    check([Case([node], {"q": q, "k": k, "v": v}, expected={"y": y}, rtol=2e-5, atol=2e-5)])


def test_a_span_leaves_room_in_the_cache() -> None:
    for l2 in (1, 256 << 10, 1 << 20, 2 << 20):
        target = replace(make_target("native"), l2=l2)
        keys = attention.keys_per_span(target, 64)
        assert keys % 64 == 0
        assert keys == 64 or keys * attention.BLOCK * 4 <= l2 / 3


def _kernel(heads: int, queries: int, size: int, masks: int) -> Kernel:
    """Return the kernel of attention over four windows, whose masks are `masks` or repeat."""
    q = floats(4, queries, heads * size)
    attrs = {"q_num_heads": heads, "kv_num_heads": heads}
    inputs = {"q": q, "k": q, "v": q, "m": floats(masks, 1, queries, queries)}
    items, _ = harness.lower(harness.make_graph([Node("Attention", tuple(inputs), ("y",), attrs)], inputs))
    [step] = [item for item in items or () if isinstance(item, Step)]
    return step.kernel


def test_layers_share_a_kernel() -> None:
    """Whatever their numbers of heads and masks; heads that fill no whole panels even if their sizes differ."""
    assert len({_kernel(heads, 49, 32, masks) for heads, masks in ((3, 1), (6, 4), (12, 1))}) == 1
    assert _kernel(3, 49, 32, 1) != _kernel(3, 49, 16, 1)
    sizes = {_kernel(4, 49, size, 1).params["depth"] for size in (36, 48, 60)}
    assert len(sizes) == 1
    assert sizes != {_kernel(4, 49, 64, 1).params["depth"]}
