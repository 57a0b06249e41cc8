"""Integer products in exact arithmetic: ONNX Runtime saturates products of u8 and s8 where the CPU has no VNNI."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.engine.ir.graph import Node

Array = NDArray[Any]
EXACT = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")


def exact_product(node: Node, values: Mapping[str, Array]) -> Array:
    """Return the result of a node in EXACT: int32 sums, or what they become in the type of the output's zero point."""
    given = [values[name] if name else None for name in node.inputs]
    quantized, conv = node.op.startswith("QLinear"), node.op.endswith("Conv") or node.op == "ConvInteger"
    places = (0, 2, 3, 5) if quantized else (0, 2, 1, 3)  # x, its zero point, w, its zero point
    x, x_zero, w, w_zero = (given[i] if i < len(given) else None for i in places)
    assert x is not None
    assert w is not None
    shape = (-1, *[1] * (w.ndim - 1)) if conv else (-1,)
    left = x.astype(np.int64) - (0 if x_zero is None else _of_rows(x_zero).astype(np.int64))
    right = w.astype(np.int64) - (
        0 if w_zero is None else w_zero.astype(np.int64).reshape(shape if w_zero.size > 1 else ())
    )
    sums = _conv(left, right, node.attrs) if conv else left @ right
    if not quantized:
        return sums.astype(np.int32)
    channel = (-1, *[1] * (w.ndim - 2)) if conv else (-1,)
    if len(given) > 8 and given[8] is not None:
        sums = sums + given[8].astype(np.int64).reshape(channel)
    _, sx, _, _, sw, _, sy, zero = given[:8]
    assert sx is not None
    assert sw is not None
    assert sy is not None
    assert zero is not None
    weights = sw.astype(np.float32).reshape(channel if sw.size > 1 else ())
    scaled = np.rint(sums.astype(np.float32) * (_of_rows(sx).astype(np.float32) * weights / np.float32(sy)))
    limits = np.iinfo(zero.dtype)
    return np.clip(scaled.astype(np.float64) + float(zero), limits.min, limits.max).astype(zero.dtype)


def _of_rows(numbers: Array) -> Array:
    """Return scales or zero points of a left factor: a list of several has one for each row."""
    return numbers.reshape(-1, 1) if numbers.ndim == 1 and numbers.size > 1 else numbers


def _conv(x: Array, w: Array, attrs: Mapping[str, Any]) -> Array:
    """Convolve int64 images [N, C, ..] with filters [M, C / group, ..]; padding counts as zero."""
    rank, group = x.ndim - 2, int(attrs.get("group", 1))
    strides, dilations = (tuple(attrs.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    pads = tuple(attrs.get("pads", (0,) * (2 * rank)))
    assert attrs.get("auto_pad", "NOTSET") == "NOTSET"
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    out = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    y = np.zeros((x.shape[0], group, w.shape[0] // group, *out), np.int64)
    images = x.reshape(x.shape[0], group, -1, *x.shape[2:])
    filters = w.reshape(group, -1, *w.shape[1:])
    for tap in product(*map(range, w.shape[2:])):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        window = tuple(slice(s, s + (n - 1) * step + 1, step) for s, n, step in zip(starts, out, strides, strict=True))
        y += np.einsum("ngc...,gmc->ngm...", images[(..., *window)], filters[(..., *tap)])
    return y.reshape(x.shape[0], -1, *out)
