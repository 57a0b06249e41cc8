"""Lowering of DFT and STFT."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import Node
from ....engine.ir.symbolic import Dim, minimum, product, same, symbol_name
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone

MOST = 31
"""Largest prime factor of a length that is transformed factor by factor."""
_LARGEST = 1 << 24
"""Largest length with tables."""
_WORK = 40
"""Simple operations per sample."""


@lowering_alone("DFT", f64=True)
def lower_dft(node: Node, ctx: Context) -> list[Step] | None:
    """Along a known axis, forward and inverse, of real or complex signals; lengths may be run-time dims."""
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    _, length, axis = [*node.inputs, "", ""][:3]
    axes = ctx.ints(axis) if axis else (-2,)
    if not x.shape or not y.shape or x.dtype is not ctx.real or axes is None or x.shape[-1] not in (1, 2):
        return None
    at, last = axes[0] % len(x.shape), len(x.shape) - 1
    inverse, onesided = bool(int_attr(node, "inverse", 0)), bool(int_attr(node, "onesided", 0))
    is_real = inverse and onesided
    if at == last or (is_real and x.shape[-1] != 2):
        return None
    stated = ctx.contents(length) if length else (2 * (x.shape[at] - 1) if is_real else x.shape[at],)
    if stated is None or len(stated) != 1:
        return None
    n, inner = stated[0], product(x.shape[at + 1 : -1])
    bins = n // 2 + 1 if onesided and not inverse else n
    if not same(y.shape[at], bins) or y.shape[-1] != (1 if is_real else 2):
        return None
    signals = (product(x.shape[:at]), inner)
    strides = (x.shape[at] * inner, 1, inner)
    used = minimum(x.shape[at], n // 2 + 1 if is_real else n)
    how = {"inverse": inverse, "real_result": is_real, "frames": False}
    return _step(node, ctx, x.shape[-1], (n, bins, used), signals, strides, how)


@lowering_alone("STFT", f64=True)
def lower_stft(node: Node, ctx: Context) -> list[Step] | None:
    """Frames of a length that is known before the run, a known number of samples apart.

    Real signals may lack the axis of parts, as some exporters write them and ONNX Runtime takes them."""
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    _, apart, window, length = [*node.inputs, "", ""][:4]
    step, weights = ctx.ints(apart), ctx.type(window).shape if window else None
    if not x.shape or not y.shape or x.dtype is not ctx.real:
        return None
    if len(x.shape) != 2 and (len(x.shape) != 3 or x.shape[2] not in (1, 2)):
        return None
    if length:
        stated = ctx.contents(length)
    else:
        stated = weights if window else (x.shape[1],)
    if not step or step[0] < 1 or stated is None or len(stated) != 1:
        return None
    n = stated[0]
    if window and (weights is None or not same(product(weights), n)):
        return None
    bins = n // 2 + 1 if int_attr(node, "onesided", 1) else n
    if not same(y.shape[2], bins) or not same(x.shape[0], y.shape[0]):
        return None
    signals, strides = (x.shape[0], y.shape[1]), (x.shape[1], step[0], 1)
    how = {"inverse": False, "real_result": False, "frames": True}
    parts = 1 if len(x.shape) == 2 else x.shape[2]
    return _step(node, ctx, parts, (n, bins, minimum(n, x.shape[1])), signals, strides, how, window)


def _step(
    node: Node,
    ctx: Context,
    parts: Dim,
    lengths: tuple[Dim, Dim, Dim],
    signals: tuple[Dim, Dim],
    strides: tuple[Dim, Dim, Dim],
    how: dict[str, bool],
    window: str = "",
) -> list[Step] | None:
    """Return the step for `outer` times `per` signals of `parts` numbers a sample: 1 if they are real, else 2.

    `lengths` are those of the transform, of its result, and of the signal that is read; the rest is 0. `strides` are
    those of the two axes of signals and of samples, in samples."""
    (n, bins, used), (outer, per), (outer_stride, per_stride, stride) = lengths, signals, strides
    if isinstance(n, int) and not 1 <= n <= _LARGEST:
        return None
    count = outer * per
    plain = isinstance(count, int) or symbol_name(count) is not None  # numbers of frames are expressions
    lanes = 1 if plain and ctx.likely(count) <= 1 else ctx.target.lanes
    extents, inputs = Extents(), [node.inputs[0], *([window] if window else [])]
    m = 0
    halved = isinstance(n, int) and parts == 1 and n % 2 == 0 and is_smooth(n) and not how["inverse"]
    if isinstance(n, int):
        m = 0 if is_smooth(n) else 1 << (2 * n - 2).bit_length()
        inputs.append(ctx.add_constant(tables(n, m).astype(ctx.real.numpy), "roots"))
        room: Dim = 4 * (m or n) * lanes
    else:
        room = n * (16 * lanes + 18)
    scratch = (room * ctx.target.element_bytes + 63) // 64 * 64
    params = {
        **how,
        "lanes": lanes,
        "most": MOST,
        "factors": sorted(set(factors(m or n // (1 + halved)))) if isinstance(n, int) else None,
        "n": extents(n),
        "m": str(m),
        "used": extents(used),
        "bins": extents(bins),
        "outer": extents(outer),
        "per": extents(per),
        "outer_stride": extents(outer_stride),
        "per_stride": extents(per_stride),
        "stride": extents(stride * parts),
        "target_stride": extents((1 if how["real_result"] else 2) * (1 if how["frames"] else per)),
        "parts": parts,
        "halved": halved,
        "window": bool(window),
        "tables": isinstance(n, int),
        "scratch": extents(scratch),
    }
    work = threads((outer, per, n), _WORK)
    return [launch(Kernel("fourier", params), node, inputs, node.outputs, extents, work, scratch=scratch)]


def factors(n: int) -> list[int]:
    """Return the factors of a length up to `MOST`, in the order in which it is transformed by them."""
    found = []
    for r in (4, *range(2, MOST + 1)):
        while n % r == 0:
            found.append(r)
            n //= r
    return found


def is_smooth(n: int) -> bool:
    """Return whether a length has no prime factor above `MOST`."""
    return math.prod(factors(n)) == n


def tables(n: int, m: int) -> NDArray[np.float64]:
    """Return the roots of unity of a length, cosines before sines.

    For a length that is transformed by a convolution of length `m`, it is the roots of `m`, then the chirp of `n`
    and its spectrum, which is divided by `m`."""
    size = m or n
    turns = -2 * np.pi * np.arange(size) / size
    found = [np.cos(turns), np.sin(turns)]
    if m:
        k = np.arange(n, dtype=np.int64)
        chirp = np.exp(-1j * np.pi * (k * k % (2 * n)) / n)
        around = np.zeros(m, np.complex128)
        around[:n] = chirp.conj()
        around[m - n + 1 :] = chirp[1:].conj()[::-1]
        spectrum = np.fft.fft(around) / m
        found += [chirp.real, chirp.imag, spectrum.real, spectrum.imag]
    return np.concatenate(found)
