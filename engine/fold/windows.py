"""Operators over windows and normalisations in NumPy, in double precision and rounded once.

The reference implementation computes them, too, but takes milliseconds for each, and keeps to single precision where
the check wants to tell a wrong constant from rounding. A kernel gives None where it leaves the case to the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .call import Array, Attrs
from .extrema import largest, maximum, minimum

Kernel = Callable[[Attrs, Sequence[Any]], "list[Any] | None"]


def _floats(*arrays: Array | None) -> bool:
    return all(a is None or a.dtype.kind == "f" or a.dtype.name == "bfloat16" for a in arrays)


def _ints(attrs: Attrs, name: str, default: Sequence[int]) -> list[int]:
    value = attrs.get(name)
    return [int(v) for v in value] if isinstance(value, tuple) else list(default)  # type: ignore[arg-type]


def _pads(attrs: Attrs, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Padding before and after each spatial axis."""
    n = len(sizes)
    mode = attrs.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = _ints(attrs, "pads", [0] * (2 * n))
        return [(pads[i], pads[i + n]) for i in range(n)]
    if mode == "VALID":
        return [(0, 0)] * n
    found = []
    for size, span, stride in zip(sizes, spans, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
        small, large = total // 2, total - total // 2
        found.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return found


def _windows(
    x: Array, spans: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[tuple[int, int]],
    fill: Any, counts: Sequence[int],
) -> Array:  # fmt: skip
    """All windows: shape [N, C, *counts, *kernel]."""
    widths = [(0, 0), (0, 0)]
    n = len(spans)
    for i in range(n):
        need = (counts[i] - 1) * strides[i] + spans[i]
        low = pads[i][0]
        high = max(need - x.shape[2 + i] - low, 0)
        if low < 0:
            raise ValueError
        widths.append((low, high))
    padded = np.pad(x, widths, constant_values=fill)
    view = sliding_window_view(padded, tuple(spans), axis=tuple(range(2, 2 + n)))
    for i in range(n):
        at = [slice(None)] * view.ndim
        at[2 + i] = slice(0, (counts[i] - 1) * strides[i] + 1, strides[i])
        at[2 + n + i] = slice(0, None, dilations[i])
        view = view[tuple(at)]
    return np.asarray(view)


def _conv(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, w, b = arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None
    if not _floats(x, w, b) or x.ndim < 3 or 0 in x.shape[1:] or not w.size or x.ndim != w.ndim:
        return None
    n = x.ndim - 2
    strides, dilations = _ints(attrs, "strides", [1] * n), _ints(attrs, "dilations", [1] * n)
    group = int(attrs.get("group", 1))  # type: ignore[arg-type]
    spans = [(w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(n)]
    pads = _pads(attrs, x.shape[2:], spans, strides)
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group or any(p < 0 for pair in pads for p in pair):
        return None
    counts = [(x.shape[2 + i] + sum(pads[i]) - spans[i]) // strides[i] + 1 for i in range(n)]
    if any(c < 1 for c in counts):
        return None
    view = _windows(x.astype(np.float64), spans, strides, dilations, pads, 0.0, counts)
    weights = w.astype(np.float64)
    outs = []
    for g in range(group):
        part = view[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        own = weights[g * (w.shape[0] // group) : (g + 1) * (w.shape[0] // group)]
        axes = ([1, *range(2 + n, 2 + 2 * n)], [1, *range(2, 2 + n)])
        outs.append(np.moveaxis(_contract(part, own, axes), -1, 1))
    found = np.concatenate(outs, axis=1)
    if b is not None:
        found = found + b.astype(np.float64).reshape(1, -1, *[1] * n)
    return [found.astype(x.dtype)]


def _pool(attrs: Attrs, x: Array) -> tuple[Any, ...] | None:
    n = x.ndim - 2
    kernel = _ints(attrs, "kernel_shape", [1] * n)
    strides, dilations = _ints(attrs, "strides", [1] * n), _ints(attrs, "dilations", [1] * n)
    spans = [(kernel[i] - 1) * dilations[i] + 1 for i in range(n)]
    pads = _pads(attrs, x.shape[2:], spans, strides)
    if any(p < 0 for pair in pads for p in pair) or len(kernel) != n:
        return None
    counts = []
    for i in range(n):
        room = x.shape[2 + i] + sum(pads[i]) - spans[i]
        count = room // strides[i] + 1
        if attrs.get("ceil_mode", 0) and attrs.get("auto_pad", "NOTSET") in ("NOTSET", ""):
            count = -(-room // strides[i]) + 1
            if (count - 1) * strides[i] >= x.shape[2 + i] + pads[i][0]:
                count -= 1  # a window that would begin in the padding behind
        counts.append(count)
    if any(c < 1 for c in counts):
        return None
    return spans, strides, dilations, pads, counts


def _max_pool(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x = arrays[0]
    if x.dtype.name == "bfloat16":
        found = _max_pool(attrs, [x.astype(np.float32)])
        return None if found is None else [found[0].astype(x.dtype)]
    layout = _pool(attrs, x) if x.ndim > 2 and 0 not in x.shape[2:] else None
    if layout is None or x.dtype.kind not in "fiu":
        return None
    spans, strides, dilations, pads, counts = layout
    fill = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    view = _windows(x, spans, strides, dilations, pads, fill, counts)
    n = x.ndim - 2
    return [np.asarray(largest(view, tuple(range(2 + n, 2 + 2 * n))), x.dtype)]


def _max_pool_one(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    found = _max_pool(attrs, arrays)
    return None if found is None else [*found, None]


def _average_pool(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x = arrays[0]
    layout = _pool(attrs, x) if x.ndim > 2 and 0 not in x.shape[2:] else None
    if layout is None or not _floats(x):
        return None
    spans, strides, dilations, pads, counts = layout
    n = x.ndim - 2
    axes = tuple(range(2 + n, 2 + 2 * n))
    total = _windows(x.astype(np.float64), spans, strides, dilations, pads, 0.0, counts).sum(axis=axes)
    inside = np.ones((1, 1, *x.shape[2:]))
    if attrs.get("count_include_pad", 0):
        inside = np.pad(inside, [(0, 0), (0, 0), *pads], constant_values=1.0)
        pads = [(0, 0)] * n
    number = _windows(inside, spans, strides, dilations, pads, 0.0, counts).sum(axis=axes)
    return [(total / number).astype(x.dtype)]


def _global(function: Callable[..., Array]) -> Kernel:
    def run(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
        x = arrays[0]
        if x.ndim < 3 or 0 in x.shape[2:] or not _floats(x):
            return None
        found = function(x.astype(np.float64), axis=tuple(range(2, x.ndim)), keepdims=True)
        return [found.astype(x.dtype)]

    return run


def _batch_norm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x = arrays[0]
    if attrs.get("training_mode", 0) or not _floats(*arrays[:5]) or x.ndim < 2:
        return None
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, bias, mean, var = (a.astype(np.float64).reshape(shape) for a in arrays[1:5])
    epsilon = float(attrs.get("epsilon", 1e-5))  # type: ignore[arg-type]
    found = scale * (x.astype(np.float64) - mean) / np.sqrt(var + epsilon) + bias
    return [found.astype(x.dtype)]


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    wide = x.astype(np.float64)
    mean = wide.mean(axis=axes, keepdims=True)
    centred = wide - mean
    inverse = 1 / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


def _layer_norm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, scale, bias = arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None
    if not _floats(x, scale, bias) or not x.size or not x.ndim:
        return None
    axis = int(attrs.get("axis", -1)) % x.ndim  # type: ignore[arg-type]
    found, mean, inverse = _normalised(x, tuple(range(axis, x.ndim)), float(attrs.get("epsilon", 1e-5)))  # type: ignore[arg-type]
    found = found * scale.astype(np.float64)
    if bias is not None:
        found = found + bias.astype(np.float64)
    if found.shape != x.shape:
        raise ValueError("scale and bias have to broadcast to x")
    stash = x.dtype if x.dtype.itemsize == 8 else np.dtype(np.float32)
    return [found.astype(x.dtype), mean.astype(stash), inverse.astype(stash)]


def _rms_norm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, scale = arrays[0], arrays[1]
    if not _floats(x, scale) or not x.size or not x.ndim:
        return None
    axis = int(attrs.get("axis", -1)) % x.ndim  # type: ignore[arg-type]
    wide = x.astype(np.float64)
    square = (wide * wide).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    found = wide / np.sqrt(square + float(attrs.get("epsilon", 1e-5))) * scale.astype(np.float64)  # type: ignore[arg-type]
    if found.shape != x.shape:
        raise ValueError("the scale has to broadcast to x")
    return [found.astype(x.dtype)]


def _instance_norm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, scale, bias = arrays[:3]
    if not _floats(x, scale, bias) or not x.size or x.ndim < 3:
        return None
    shape = (1, -1, *[1] * (x.ndim - 2))
    found, _, _ = _normalised(x, tuple(range(2, x.ndim)), float(attrs.get("epsilon", 1e-5)))  # type: ignore[arg-type]
    found = found * scale.astype(np.float64).reshape(shape) + bias.astype(np.float64).reshape(shape)
    return [found.astype(x.dtype)]


def _group_norm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, scale, bias = arrays[:3]
    groups = int(attrs["num_groups"])  # type: ignore[arg-type]
    if not _floats(x, scale, bias) or not x.size or x.ndim < 2 or x.shape[1] % groups:
        return None
    shape = (1, -1, *[1] * (x.ndim - 2))
    grouped = x.reshape(x.shape[0], groups, -1)
    found, _, _ = _normalised(grouped, (2,), float(attrs.get("epsilon", 1e-5)))  # type: ignore[arg-type]
    found = found.reshape(x.shape) * scale.astype(np.float64).reshape(shape) + bias.astype(np.float64).reshape(shape)
    return [found.astype(x.dtype)]


def _softmax(attrs: Attrs, arrays: Sequence[Any], *, log: bool = False) -> list[Any] | None:
    x = arrays[0]
    if not _floats(x) or not x.size or not x.ndim:
        return None
    axis = int(attrs.get("axis", -1))  # type: ignore[arg-type]
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    found = shifted - np.log(total) if log else np.exp(shifted) / total
    return [found.astype(x.dtype)]


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x = arrays[0]
    if not _floats(x):
        return None
    wide = x.astype(np.float64)
    if attrs.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
        return [np.asarray(0.5 * wide * (1 + np.tanh(inner))).astype(x.dtype)]
    return [np.asarray(0.5 * wide * (1 + np.asarray(_erf(wide / math.sqrt(2)), dtype=np.float64))).astype(x.dtype)]


def _conv_transpose(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, w, b = arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None
    plain = attrs.get("auto_pad", "NOTSET") in ("NOTSET", "") and attrs.get("output_shape") is None
    if not plain or not _floats(x, w, b) or x.ndim < 3 or 0 in x.shape[1:] or not w.size or x.ndim != w.ndim:
        return None
    n = x.ndim - 2
    strides, dilations = _ints(attrs, "strides", [1] * n), _ints(attrs, "dilations", [1] * n)
    pads, extra = _ints(attrs, "pads", [0] * (2 * n)), _ints(attrs, "output_padding", [0] * n)
    group = int(attrs.get("group", 1))  # type: ignore[arg-type]
    if x.shape[1] != w.shape[0] or w.shape[0] % group or any(e >= max(s, d) for e, s, d in zip(
            extra, strides, dilations, strict=True)):  # fmt: skip
        return None
    spans = [(w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(n)]
    full = [strides[i] * (x.shape[2 + i] - 1) + spans[i] + extra[i] for i in range(n)]
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    out = np.zeros((x.shape[0], w.shape[1] * group, *full))
    per = w.shape[0] // group
    for g in range(group):
        own = out[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        part, taps = wide[:, g * per : (g + 1) * per], weights[g * per : (g + 1) * per]
        for at in np.ndindex(*w.shape[2:]):
            place = tuple(
                slice(at[i] * dilations[i], at[i] * dilations[i] + strides[i] * (x.shape[2 + i] - 1) + 1, strides[i])
                for i in range(n)
            )
            own[(slice(None), slice(None), *place)] += np.moveaxis(
                _contract(part, taps[(slice(None), slice(None), *at)], ([1], [0])), -1, 1
            )
    crop = tuple(slice(pads[i], full[i] - pads[i + n]) for i in range(n))
    found = out[(slice(None), slice(None), *crop)]
    if b is not None:
        found = found + b.astype(np.float64).reshape(1, -1, *[1] * n)
    return [found.astype(x.dtype)]


def _piecewise(function: Callable[[Array, Attrs], Array]) -> Kernel:
    """A function of one tensor of reals, as the standard defines it by cases."""

    def run(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
        x = arrays[0]
        if not _floats(x):
            return None
        return [np.asarray(function(x.astype(np.float64), attrs)).astype(x.dtype)]

    return run


def _real(attrs: Attrs, name: str, default: float) -> float:
    return float(attrs.get(name, default))  # type: ignore[arg-type]


def _hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    inner = _real(attrs, "alpha", 0.2) * x + _real(attrs, "beta", 0.5)
    return minimum(maximum(inner, np.zeros(())), np.ones(()))


def _selu(x: Array, attrs: Attrs) -> Array:
    alpha, gamma = _real(attrs, "alpha", 1.6732632), _real(attrs, "gamma", 1.0507010)
    return np.where(x > 0, gamma * x, gamma * (alpha * np.exp(np.minimum(x, 0)) - alpha))


def _prelu(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, slope = arrays[0], arrays[1]
    if not _floats(x, slope) or np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        return None
    wide = x.astype(np.float64)
    return [np.where(wide < 0, wide * slope.astype(np.float64), wide).astype(x.dtype)]


def _product(a: Array, b: Array) -> Array:
    """A product of matrices in which 0 · ∞ is NaN (BLAS may leave out a factor of 0), the same however they lie in
    memory: narrow types are summed in double precision, and double precision without any rounding but the last."""
    left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    with np.errstate(all="ignore"):
        wide = [np.ascontiguousarray(m, dtype=np.float64) for m in (left, right)]
        finite = np.isfinite(wide[0]).all() and np.isfinite(wide[1]).all()
        found = np.matmul(*wide) if finite else np.einsum("...ij,...jk->...ik", *wide, optimize=False)
        if a.dtype.itemsize == 8:
            found = _exact_product(wide[0], wide[1], found)
        found = found[..., 0, :] if a.ndim == 1 else found
        return np.asarray(found[..., 0] if b.ndim == 1 else found).astype(a.dtype)


_SPLIT = 2.0**27 + 1
_EXACTLY = 1 << 15
"""So many products are summed without rounding; it takes Python a while."""


def _exact_product(a: Array, b: Array, otherwise: Array) -> Array:
    """The product of matrices whose elements are sums rounded once; `otherwise` where that is too much or where numbers
    are so large or small that it cannot be done.

    Each product of two numbers is written as two numbers, by Veltkamp's and Dekker's method, and all of a sum are
    added up by `math.fsum`."""
    if a.shape[-1] != b.shape[-2] or otherwise.size * a.shape[-1] > _EXACTLY:
        return otherwise
    ordinary = [(m == 0) | ((np.abs(m) > 1e-100) & (np.abs(m) < 1e100)) for m in (a, b)]
    left, right = np.where(ordinary[0], a, 0)[..., :, :, None], np.where(ordinary[1], b, 0)[..., None, :, :]
    high = left * right
    (x, y), (z, w) = _halves(left), _halves(right)
    low = ((x * z - high) + x * w + y * z) + y * w
    terms = np.moveaxis(np.concatenate([high, low], axis=-2), -2, -1)
    shape = terms.shape[:-1]
    flat = terms.reshape(math.prod(shape), terms.shape[-1])
    found = np.array([math.fsum(row) for row in flat.tolist()], np.float64).reshape(shape)
    return np.where(ordinary[0].all(axis=-1)[..., :, None] & ordinary[1].all(axis=-2)[..., None, :], found, otherwise)


def _halves(x: Array) -> tuple[Array, Array]:
    """A number as the sum of two with half its digits."""
    scaled = _SPLIT * x
    high = scaled - (scaled - x)
    return high, x - high


def _matmul(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    a, b = arrays[0], arrays[1]
    if a.dtype.kind != "f" or a.dtype != b.dtype or not a.ndim or not b.ndim:
        return None
    return [_product(a, b).astype(a.dtype)]


def _gemm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    a, b, c = arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None
    if a.dtype.kind != "f":
        return _integer_gemm(attrs, arrays)
    alpha, beta = (np.asarray(_real(attrs, name, 1.0), a.dtype) for name in ("alpha", "beta"))
    found = alpha * _product(a.T if attrs.get("transA", 0) else a, b.T if attrs.get("transB", 0) else b)
    return [np.asarray(found if c is None else found + beta * c, dtype=a.dtype)]


def _contract(x: Array, w: Array, axes: tuple[list[int], list[int]]) -> Array:
    """`np.tensordot` in which 0 · ∞ is NaN."""
    if np.isfinite(x).all() and np.isfinite(w).all():
        return np.asarray(np.tensordot(x, w, axes=axes))
    letters = "abcdefghijklmnopqrstuvwxyz"
    left, right = list(letters[: x.ndim]), list(letters[x.ndim : x.ndim + w.ndim])
    for i, j in zip(*axes, strict=True):
        right[j] = left[i]
    kept = [c for i, c in enumerate(left) if i not in axes[0]] + [c for j, c in enumerate(right) if j not in axes[1]]
    return np.asarray(np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", x, w, optimize=False))


def _integer_gemm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    a, b, c = arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None
    alpha, beta = _real(attrs, "alpha", 1.0), 1.0 if c is None else _real(attrs, "beta", 1.0)
    if a.dtype.kind not in "iu" or alpha != int(alpha) or beta != int(beta):
        return None
    number = a.dtype.type
    left, right = a.T if attrs.get("transA", 0) else a, b.T if attrs.get("transB", 0) else b
    found = number(int(alpha)) * (left @ right)
    return [np.asarray(found if c is None else found + number(int(beta)) * c, a.dtype)]


def _whole_power(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    """A power of whole numbers, whatever the exponent's type; the reference goes by way of reals."""
    base, exponent = arrays[0], arrays[1]
    if base.dtype.kind not in "iu" or exponent.dtype.kind in "iu":
        return None
    real = exponent.astype(np.float64)
    if not bool((np.isfinite(real) & (real >= 0) & (real == np.round(real)) & (real < 64)).all()):
        return None
    return [np.asarray(np.power(base, real.astype(base.dtype)), base.dtype)]


WINDOWS: dict[str, Kernel] = {
    "Pow": _whole_power,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ConvTranspose": _conv_transpose,
    "PRelu": _prelu,
    "LeakyRelu": _piecewise(lambda x, a: np.where(x < 0, x * _real(a, "alpha", 0.01), x)),
    "Softplus": _piecewise(lambda x, a: np.logaddexp(0, x)),
    "Elu": _piecewise(lambda x, a: np.where(x < 0, _real(a, "alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)),
    "Celu": _piecewise(
        lambda x, a: np.where(x < 0, _real(a, "alpha", 1.0) * np.expm1(np.minimum(x, 0) / _real(a, "alpha", 1.0)), x)
    ),
    "Selu": _piecewise(_selu),
    "HardSigmoid": _piecewise(_hard_sigmoid),
    "HardSwish": _piecewise(lambda x, a: x * np.clip(x / 6 + 0.5, 0, 1)),
    "ThresholdedRelu": _piecewise(lambda x, a: np.where(x > _real(a, "alpha", 1.0), x, 0)),
    "Softsign": _piecewise(lambda x, a: x / (1 + np.abs(x))),
    "Mish": _piecewise(lambda x, a: x * np.tanh(np.logaddexp(0, x))),
    "Conv": _conv,
    "MaxPool": _max_pool_one,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(largest),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "Softmax": _softmax,
    "LogSoftmax": lambda attrs, arrays: _softmax(attrs, arrays, log=True),
    "Gelu": _gelu,
}
