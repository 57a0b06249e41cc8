"""Windowed operators, normalizations and matrix products in NumPy, in double precision and rounded once.

The reference implementation takes milliseconds for each, and uses single precision where the soundness check must tell
a wrong constant from rounding. A kernel returns None where it leaves the case to the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .fold_arithmetic import erf
from .fold_call import Array, Attrs, real
from .fold_sums import gemm
from .signed_extrema import largest, maximum, minimum

Kernel = Callable[[Attrs, Sequence[Any]], "list[Any] | None"]


@dataclass(frozen=True, slots=True)
class Wide:
    """Kernel of floats from a function of the attributes and the operands: in double precision, rounded once."""

    function: Callable[..., Array | None]

    def __call__(self, attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
        """Compute in double precision."""
        return self.run(attrs, arrays, np.dtype(np.float64))

    def run(self, attrs: Attrs, arrays: Sequence[Any], precision: np.dtype[Any]) -> list[Any] | None:
        """Compute in this precision; None for other types than floats, or where the function leaves the case."""
        if not all(a is None or real(a.dtype) for a in arrays):
            return None
        found = self.function(attrs, *(None if a is None else a.astype(precision, copy=False) for a in arrays))
        return None if found is None else [np.asarray(found).astype(arrays[0].dtype, copy=False)]


def _ints(attrs: Attrs, name: str, default: Sequence[int]) -> list[int]:
    value = attrs.get(name)
    return [int(v) for v in value] if isinstance(value, tuple) else list(default)  # type: ignore[arg-type]


def _real(attrs: Attrs, name: str, default: float) -> float:
    return float(attrs.get(name, default))  # type: ignore[arg-type]


def _by_channel(values: Array, rank: int) -> Array:
    """Reshape one number for each channel so that it broadcasts."""
    return values.reshape(1, -1, *[1] * (rank - 2))


def _pads(attrs: Attrs, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding before and after each spatial axis."""
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


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of an image: along each spatial axis their extent, distance and number, and the padding on both sides."""

    spans: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[int, int]]
    counts: list[int]

    def of(self, x: Array, fill: Any = 0.0) -> Array:
        """Return all windows of an image: shape [N, C, *counts, *kernel]."""
        n = len(self.spans)
        widths = [(0, 0), (0, 0)]
        for i, (low, _) in enumerate(self.pads):
            need = (self.counts[i] - 1) * self.strides[i] + self.spans[i]
            widths.append((low, max(need - x.shape[2 + i] - low, 0)))
        padded = np.pad(x, widths, constant_values=fill)
        view = sliding_window_view(padded, tuple(self.spans), axis=tuple(range(2, 2 + n)))
        steps = [slice(None, (c - 1) * s + 1, s) for c, s in zip(self.counts, self.strides, strict=True)]
        taps = [slice(None, None, d) for d in self.dilations]
        return np.asarray(view[(slice(None), slice(None), *steps, *taps)])


def _windows(attrs: Attrs, x: Array, kernel: Sequence[int]) -> _Windows | None:
    """Return the windows of a convolution or pool; None if there is none, or padding is negative."""
    n = x.ndim - 2
    if n < 1 or 0 in x.shape[2:] or len(kernel) != n:
        return None
    strides, dilations = _ints(attrs, "strides", [1] * n), _ints(attrs, "dilations", [1] * n)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = _pads(attrs, x.shape[2:], spans, strides)
    counts = []
    for size, span, stride, (low, high) in zip(x.shape[2:], spans, strides, pads, strict=True):
        extent = size + low + high - span
        count = extent // stride + 1
        if attrs.get("ceil_mode", 0) and attrs.get("auto_pad", "NOTSET") in ("NOTSET", "", "VALID"):
            count = -(-extent // stride) + 1
            if (count - 1) * stride >= size + low:
                count -= 1  # a window that would begin in the padding after the data
        counts.append(count)
    if min(counts) < 1 or min(map(min, pads)) < 0:
        return None
    return _Windows(spans, strides, dilations, pads, counts)


def _conv(attrs: Attrs, x: Array, w: Array, b: Array | None = None) -> Array | None:
    group = int(attrs.get("group", 1))  # type: ignore[arg-type]
    if 0 in x.shape[1:] or not w.size or x.ndim != w.ndim:
        return None
    windows = _windows(attrs, x, w.shape[2:])
    if windows is None or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        return None
    view, n = windows.of(x), x.ndim - 2
    taps_first = view.transpose(0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n))
    columns = taps_first.reshape(x.shape[0], group, w[0].size, math.prod(windows.counts))
    filters = w.reshape(group, w.shape[0] // group, w[0].size)
    if np.isfinite(x).all() and np.isfinite(w).all():
        product = np.matmul(filters, columns)
    else:  # BLAS may skip factors of 0, but 0 · ∞ is NaN
        product = np.einsum("goi,ngis->ngos", filters, columns, optimize=False)
    found: Array = product.reshape(x.shape[0], w.shape[0], *windows.counts)
    return found if b is None else found + _by_channel(b, x.ndim)


def _max_pool(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x = arrays[0]
    windows = _windows(attrs, x, _ints(attrs, "kernel_shape", [1] * (x.ndim - 2)))
    if windows is None or not (real(x.dtype) or x.dtype.kind in "iu"):
        return None
    fill = -np.inf if real(x.dtype) else np.iinfo(x.dtype).min
    found = largest(windows.of(x, fill), tuple(range(x.ndim, 2 * x.ndim - 2)))
    return [np.asarray(found, x.dtype), None]


def _average_pool(attrs: Attrs, x: Array) -> Array | None:
    windows = _windows(attrs, x, _ints(attrs, "kernel_shape", [1] * (x.ndim - 2)))
    if windows is None:
        return None
    axes = tuple(range(x.ndim, 2 * x.ndim - 2))
    inside, over = np.ones((1, 1, *x.shape[2:])), windows
    if attrs.get("count_include_pad", 0):
        inside = np.pad(inside, [(0, 0), (0, 0), *windows.pads], constant_values=1.0)
        over = replace(windows, pads=[(0, 0)] * len(windows.pads))
    return np.asarray(windows.of(x).sum(axis=axes) / over.of(inside).sum(axis=axes))


def _lp_pool(attrs: Attrs, x: Array) -> Array | None:
    windows = _windows(attrs, x, _ints(attrs, "kernel_shape", [1] * (x.ndim - 2)))
    if windows is None:
        return None
    p, axes = _real(attrs, "p", 2), tuple(range(x.ndim, 2 * x.ndim - 2))
    return np.asarray((np.abs(windows.of(x)) ** p).sum(axis=axes) ** (1 / p))


def _global(function: Callable[..., Array]) -> Kernel:
    def run(attrs: Attrs, x: Array) -> Array | None:
        if x.ndim < 3 or 0 in x.shape[2:]:
            return None
        return function(x, axis=tuple(range(2, x.ndim)), keepdims=True)

    return Wide(run)


def _global_lp_pool(attrs: Attrs, x: Array) -> Array | None:
    if x.ndim < 3:
        return None
    p, axes = _real(attrs, "p", 2), tuple(range(2, x.ndim))
    return np.asarray((np.abs(x) ** p).sum(axis=axes, keepdims=True) ** (1 / p))


def _batch_norm(attrs: Attrs, x: Array, *statistics: Array) -> Array | None:
    if attrs.get("training_mode", 0) or x.ndim < 2:
        return None
    scale, bias, mean, var = (_by_channel(a, x.ndim) for a in statistics)
    return np.asarray(scale * (x - mean) / np.sqrt(var + _real(attrs, "epsilon", 1e-5)) + bias)


def _normalized(x: Array, axes: tuple[int, ...], attrs: Attrs) -> tuple[Array, Array, Array]:
    """Return the normalized data, the mean and the inverse deviation."""
    mean = x.mean(axis=axes, keepdims=True)
    centered = x - mean
    inverse = 1 / np.sqrt((centered * centered).mean(axis=axes, keepdims=True) + _real(attrs, "epsilon", 1e-5))
    return centered * inverse, mean, inverse


def _layer_norm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    x, scale, bias = (*arrays, None)[:3]
    if not all(a is None or real(a.dtype) for a in arrays) or not x.size or not x.ndim:
        return None
    axis = int(attrs.get("axis", -1)) % x.ndim  # type: ignore[arg-type]
    found, mean, inverse = _normalized(x.astype(np.float64), tuple(range(axis, x.ndim)), attrs)
    found = found * scale.astype(np.float64)
    if bias is not None:
        found = found + bias.astype(np.float64)
    if found.shape != x.shape:
        raise ValueError("scale and bias must broadcast to x")
    stash = x.dtype if x.dtype.itemsize == 8 else np.dtype(np.float32)
    return [found.astype(x.dtype), mean.astype(stash), inverse.astype(stash)]


def _rms_norm(attrs: Attrs, x: Array, scale: Array) -> Array | None:
    if not x.size or not x.ndim:
        return None
    axis = int(attrs.get("axis", -1)) % x.ndim  # type: ignore[arg-type]
    square = (x * x).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    found = x / np.sqrt(square + _real(attrs, "epsilon", 1e-5)) * scale
    if found.shape != x.shape:
        raise ValueError("the scale must broadcast to x")
    return np.asarray(found)


def _instance_norm(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array | None:
    if not x.size or x.ndim < 3:
        return None
    found, _, _ = _normalized(x, tuple(range(2, x.ndim)), attrs)
    return found * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)


def _group_norm(attrs: Attrs, x: Array, scale: Array, bias: Array) -> Array | None:
    groups = int(attrs["num_groups"])  # type: ignore[arg-type]
    if not x.size or x.ndim < 2 or x.shape[1] % groups:
        return None
    found, _, _ = _normalized(x.reshape(x.shape[0], groups, -1), (2,), attrs)
    return found.reshape(x.shape) * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)


def _mean_variance(attrs: Attrs, x: Array) -> Array | None:
    """Deviation from the mean in units of the standard deviation, plus 1e-9: not by the difference of mean squares, of
    which nothing may be left."""
    axes = attrs.get("axes", (0, 2, 3))
    if not isinstance(axes, tuple) or not x.size or not all(isinstance(a, int) and -x.ndim <= a < x.ndim for a in axes):
        return None
    along = tuple(int(a) for a in axes if isinstance(a, int))
    centered = x - x.mean(axis=along, keepdims=True)
    return np.asarray(centered / (np.sqrt((centered * centered).mean(axis=along, keepdims=True)) + 1e-9))


def _softmax(attrs: Attrs, x: Array, *, log: bool = False) -> Array | None:
    if not x.size or not x.ndim:
        return None
    axis = int(attrs.get("axis", -1))  # type: ignore[arg-type]
    shifted = x - x.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(total) if log else np.exp(shifted) / total)


def _gelu(attrs: Attrs, x: Array) -> Array:
    if attrs.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def _conv_transpose(attrs: Attrs, x: Array, w: Array, b: Array | None = None) -> Array | None:
    if x.ndim < 3 or 0 in x.shape[1:] or not w.size or x.ndim != w.ndim:
        return None
    n = x.ndim - 2
    strides, dilations = _ints(attrs, "strides", [1] * n), _ints(attrs, "dilations", [1] * n)
    extra, group = _ints(attrs, "output_padding", [0] * n), int(attrs.get("group", 1))  # type: ignore[arg-type]
    misfit = any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True))
    if x.shape[1] != w.shape[0] or w.shape[0] % group or misfit:
        return None
    reach = [strides[i] * (x.shape[2 + i] - 1) + 1 for i in range(n)]  # of the pixels under one tap of the filter
    full = [reach[i] + (w.shape[2 + i] - 1) * dilations[i] + extra[i] for i in range(n)]
    ranges = _transposed_ranges(attrs, full, [s * d for s, d in zip(strides, x.shape[2:], strict=True)])
    if ranges is None:
        return None
    beyond = [max(size, stop) for size, (_, stop) in zip(full, ranges, strict=True)]
    out = np.zeros((x.shape[0], w.shape[1] * group, *beyond))
    for own, part, taps in zip(np.split(out, group, 1), np.split(x, group, 1), np.split(w, group), strict=True):
        for at in np.ndindex(*w.shape[2:]):
            starts = [at[i] * dilations[i] for i in range(n)]
            place = (slice(a, a + r, s) for a, r, s in zip(starts, reach, strides, strict=True))
            product = _contract(part, taps[(slice(None), slice(None), *at)], ([1], [0]))
            own[(slice(None), slice(None), *place)] += np.moveaxis(product, -1, 1)
    found = out[(slice(None), slice(None), *(slice(*span) for span in ranges))]
    return found if b is None else found + _by_channel(b, x.ndim)


def _transposed_ranges(attrs: Attrs, full: Sequence[int], scaled: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return begin and end, along each spatial axis, of what a transposed convolution keeps of all its sums.

    `full` are the sizes of all sums, `scaled` those of the data times the strides, at which automatic padding aims. It
    takes off and adds nothing. A size that is asked for may lie past the sums, where there are zeros; None if these
    would have to come first, too."""
    n, mode = len(full), attrs.get("auto_pad", "NOTSET")
    wanted, same = _ints(attrs, "output_shape", []), mode in ("SAME_UPPER", "SAME_LOWER")
    if not wanted and not same:
        pads = [0] * (2 * n) if mode == "VALID" else _ints(attrs, "pads", [0] * (2 * n))
        return [(pads[i], full[i] - pads[i + n]) for i in range(n)]
    if wanted and len(wanted) < n:
        return None
    found = []
    for size, target in zip(full, wanted[-n:] if wanted else map(min, full, scaled), strict=True):
        missing = size - target
        begin = 0 if mode == "VALID" else missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
        found.append((begin, begin + target))
    return found if min(begin for begin, _ in found) >= 0 else None


def _hard_sigmoid(attrs: Attrs, x: Array) -> Array:
    inner = _real(attrs, "alpha", 0.2) * x + _real(attrs, "beta", 0.5)
    return minimum(maximum(inner, np.zeros(())), np.ones(()))


def _selu(attrs: Attrs, x: Array) -> Array:
    alpha, gamma = _real(attrs, "alpha", 1.6732632), _real(attrs, "gamma", 1.0507010)
    return np.where(x > 0, gamma * x, gamma * (alpha * np.exp(np.minimum(x, 0)) - alpha))


def _celu(attrs: Attrs, x: Array) -> Array:
    alpha = _real(attrs, "alpha", 1.0)
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x)


def _prelu(attrs: Attrs, x: Array, slope: Array) -> Array | None:
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        return None
    return np.where(x < 0, x * slope, x)


def _product(a: Array, b: Array) -> Array:
    """Matrix product in which 0 · ∞ is NaN (BLAS may skip factors of 0), independent of the memory layout.

    Narrow types are summed in double precision, and double precision is rounded only once."""
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
"""Maximum number of products that are summed without rounding, which is slow in Python."""


def _exact_product(a: Array, b: Array, otherwise: Array) -> Array:
    """Return the matrix product with sums that are rounded once.

    Each product of two numbers is written as the sum of two, by Veltkamp's and Dekker's method, and `math.fsum` adds up
    all of them. `otherwise` is used where that takes too long, or where numbers are too large or small for it."""
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
    """Split a number into the sum of two with half its digits."""
    scaled = _SPLIT * x
    high = scaled - (scaled - x)
    return high, x - high


def _matmul(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    a, b = arrays[0], arrays[1]
    if a.dtype.kind != "f" or a.dtype != b.dtype or not a.ndim or not b.ndim:
        return None
    return [_product(a, b).astype(a.dtype)]


def _gemm(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    a, b, c = (*arrays, None)[:3]
    if a.dtype.kind == "f":
        return [gemm(attrs, a, b, c, product=_product)]
    factors = [_real(attrs, "alpha", 1.0), 1.0 if c is None else _real(attrs, "beta", 1.0)]
    whole = a.dtype.kind in "iu" and all(factor.is_integer() for factor in factors)
    return [gemm(attrs, a, b, c)] if whole else None


def _contract(x: Array, w: Array, axes: tuple[list[int], list[int]]) -> Array:
    """`np.tensordot` in which 0 · ∞ is NaN."""
    if np.isfinite(x).all() and np.isfinite(w).all():
        return np.asarray(np.tensordot(x, w, axes=axes))
    left, right = [*range(x.ndim)], [*range(x.ndim, x.ndim + w.ndim)]
    for i, j in zip(*axes, strict=True):
        right[j] = left[i]
    free = [i for i in (*left, *right) if i not in axes[0]]
    return np.asarray(np.einsum(x, left, w, right, free, optimize=False))


def _whole_power(attrs: Attrs, arrays: Sequence[Any]) -> list[Any] | None:
    """Power of integers, for any type of the exponent; the reference computes it through reals."""
    base, exponent = arrays[0], arrays[1]
    if base.dtype.kind not in "iu" or exponent.dtype.kind in "iu":
        return None
    real = exponent.astype(np.float64)
    if not bool((np.isfinite(real) & (real >= 0) & (real == np.round(real)) & (real < 64)).all()):
        return None
    return [np.asarray(np.power(base, real.astype(base.dtype)), base.dtype)]


def _each(function: Callable[[Array], Array]) -> Kernel:
    """Return the kernel of a function of single numbers. In f32 NumPy's differ by where in a vector a number is."""
    return Wide(lambda _, x: function(x))


FLOAT64_KERNELS: dict[str, Kernel] = {
    "Acos": _each(np.arccos),
    "Acosh": _each(np.arccosh),
    "Asin": _each(np.arcsin),
    "Asinh": _each(np.arcsinh),
    "Atan": _each(np.arctan),
    "Atanh": _each(np.arctanh),
    "Cosh": _each(np.cosh),
    "Sinh": _each(np.sinh),
    "Tan": _each(np.tan),
    "Pow": _whole_power,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ConvTranspose": Wide(_conv_transpose),
    "PRelu": Wide(_prelu),
    "LeakyRelu": Wide(lambda a, x: np.where(x < 0, x * _real(a, "alpha", 0.01), x)),
    "Softplus": Wide(lambda a, x: np.logaddexp(0, x)),
    "Elu": Wide(lambda a, x: np.where(x < 0, _real(a, "alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)),
    "Celu": Wide(_celu),
    "Selu": Wide(_selu),
    "HardSigmoid": Wide(_hard_sigmoid),
    "HardSwish": Wide(lambda a, x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "ThresholdedRelu": Wide(lambda a, x: np.where(x > _real(a, "alpha", 1.0), x, 0)),
    "Softsign": Wide(lambda a, x: x / (1 + np.abs(x))),
    "Mish": Wide(lambda a, x: x * np.tanh(np.logaddexp(0, x))),
    "Conv": Wide(_conv),
    "MaxPool": _max_pool,
    "AveragePool": Wide(_average_pool),
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(largest),
    "GlobalLpPool": Wide(_global_lp_pool),
    "LpPool": Wide(_lp_pool),
    "BatchNormalization": Wide(_batch_norm),
    "LayerNormalization": _layer_norm,
    "RMSNormalization": Wide(_rms_norm),
    "InstanceNormalization": Wide(_instance_norm),
    "GroupNormalization": Wide(_group_norm),
    "MeanVarianceNormalization": Wide(_mean_variance),
    "Softmax": Wide(_softmax),
    "LogSoftmax": Wide(lambda attrs, x: _softmax(attrs, x, log=True)),
    "Gelu": Wide(_gelu),
}
