"""Cycles that our kernels take for convolutions and pools, by layout and algorithm.

A cycle is one of a core that issues two vector multiply-adds per cycle, the unit of `Machine.flops`. In NCHW layout a
vector holds pixels, in NHWC layout channels. So the layouts differ in what they waste in partial vectors, and in what
they gather, transpose and store. The figures were measured on a Zen 5 core with AVX-512 over the layers of residual,
depthwise and detection networks. There they rank the two layouts correctly, except for differences of a few percent.
They describe how a microarchitecture runs the algorithms, not one network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .constants import DEFAULTS, Constants

FEW_PIXELS = 256
"""Up to this number of pixels NCHW kernels use vectors of channels too."""
FEW_CHANNELS = 8
"""Up to this number of channels NHWC kernels copy the lines of images; those of volumes are not copied."""
HELD = 25
"""Number of taps of a depthwise NCHW filter whose inputs stay in registers for several rows."""
DIRECT_FIRST, DIRECT_LAST = 0.8, 0.9
"""Winograd's algorithm is chosen where it takes less than this share of the direct algorithm's time, by layout."""
TILES = ((4, 36 / 144), (2, 16 / 36))
"""Winograd tiles: results on a side, and the share of the direct products that remains."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution: `channels` and `filters` are those of one group, `pixels` those of one result.

    `unit` means that strides and dilations are 1; `square` is the size of a filter whose height and width are equal,
    else 0. Of volumes, `depth` is the number of planes of a result, 0 of images; `slices` is that of a filter. `cache`
    is the size of the second-level cache in bytes."""

    images: float
    pixels: float
    width: float
    groups: float
    channels: float
    filters: float
    taps: float
    stride: int
    unit: bool
    square: int
    lanes: int
    depth: float = 0.0
    slices: float = 1.0
    constants: Constants = DEFAULTS
    cache: float = 1 << 20

    @property
    def products(self) -> float:
        """Cycles of the multiply-adds at the machine's peak."""
        every = self.images * self.pixels * self.groups * self.filters * self.channels * self.taps
        return every / (2 * self.lanes)

    @property
    def depthwise(self) -> bool:
        """Whether every channel has one filter of its own."""
        return self.groups > 1 and self.channels == 1 and self.filters == 1

    def waste(self, extent: float) -> float:
        """Return the slowdown by partial vectors along a dim of this extent."""
        return math.ceil(extent / self.lanes) * self.lanes / extent if extent else 1.0


def conv_nchw(c: Convolution) -> float:
    """Return the cycles of a convolution in NCHW layout."""
    k = c.constants
    lines = max(c.pixels / max(c.width, 1.0), 1.0)
    if c.groups > 1 and c.channels == 1:
        vectors = c.images * c.groups * c.filters * lines * math.ceil(c.width / c.lanes)
        taps = k.near * min(c.taps, HELD) + k.far * max(0.0, c.taps - HELD)
        return vectors * (taps + k.line) * (k.strided if c.stride > 1 else 1.0)
    direct = c.taps == 1 and c.unit
    inputs = c.images * c.groups * c.channels * c.taps * math.ceil(c.pixels / c.lanes)
    gathering = 0.0 if direct else inputs * (k.gathered if c.stride == 1 else k.gathered_strided)
    stored = c.images * c.groups * c.filters * math.ceil(c.pixels / c.lanes) * k.stored
    found = c.products * k.first_product * c.waste(c.pixels) + stored
    if c.pixels <= FEW_PIXELS and c.filters >= 2 * c.lanes:
        turned = k.turned * c.images * c.groups * c.filters * c.pixels
        found = min(found, c.products * k.few_pixels * c.waste(c.filters) + turned)
    return _or_winograd(c, found + gathering, last=False)


def conv_nhwc(c: Convolution) -> float:
    """Return the cycles of a convolution in NHWC layout."""
    found = _or_winograd(c, _rows(c, c.products, c.constants.stored), last=True)
    return min(found, _windows(c)) if c.groups > 1 else found


def _windows(c: Convolution) -> float:
    """Return the cycles of a grouped convolution that slides windows over vectors with as many groups as they hold."""
    k = c.constants
    together = max(1.0, min(c.lanes // max(c.channels, 1.0), c.lanes // max(c.filters, 1.0)))
    vectors = math.ceil(c.groups / together) * math.ceil(c.filters * together / c.lanes)
    return c.images * c.pixels * vectors * (k.window * c.taps * c.channels + k.window_stored)


def _rows(c: Convolution, products: float, stored: float) -> float:
    """Return the cycles of products on NHWC rows, and of storing each vector of results."""
    k = c.constants
    narrow = k.one_vector if c.filters <= c.lanes else 1.0
    vectors = c.images * c.pixels * c.groups * math.ceil(c.filters / c.lanes)
    in_place = 1.0 if c.taps == 1 else k.tap_run
    copied = 0.0
    if c.taps > 1 and c.channels <= FEW_CHANNELS:
        if c.depth:
            in_place += k.run / max(c.channels, 1.0)
        else:
            copied = k.copied * c.images * c.pixels * c.stride**2 * c.groups * c.channels
    return products * k.last_product * narrow * c.waste(c.filters) * in_place + vectors * stored + copied


def conv_int8_nchw(c: Convolution, rate: float) -> float:
    """Return the cycles of an int8 convolution in NCHW layout.

    `rate` is the speedup of products over f32. Four channels become a word, with padding, and rows of pixels are
    gathered."""
    k = c.constants
    quads, vectors = math.ceil(c.channels / 4), math.ceil(c.pixels / c.lanes)
    words = c.images * c.groups * quads * c.pixels * c.stride**2
    gathered = k.gathered if c.stride == 1 else k.gathered_strided
    gathering = 0.0 if c.taps == 1 and c.unit else c.images * c.groups * quads * c.taps * vectors * gathered
    products = c.products / rate * (4 * quads / max(c.channels, 1.0)) * k.first_product * c.waste(c.pixels)
    return products + gathering + k.packed * words + c.images * c.groups * c.filters * vectors * k.quantized


def conv_int8_nhwc(c: Convolution, rate: float) -> float:
    """Return the cycles of an int8 convolution in NHWC layout, where four channels already form a word in memory."""
    k = c.constants
    if c.depthwise:
        return c.images * c.pixels * math.ceil(c.groups / (4 * c.lanes)) * (0.6 * c.taps + k.depthwise_quantized)
    wasted = 4 * math.ceil(c.channels / 4) / max(c.channels, 1.0) if c.channels > 8 or c.groups > 1 else 1.0
    return _rows(c, c.products / rate * wasted, k.quantized)


def _or_winograd(c: Convolution, direct: float, *, last: bool) -> float:
    """Return the cycles of the direct algorithm or of Winograd's, whichever the kernels choose."""
    k = c.constants
    few = 2 * c.channels < c.lanes or c.filters < c.lanes if last else c.channels % c.lanes or c.filters < 2 * c.lanes
    if c.square != 3 or not c.unit or few or (not last and (c.depth or c.groups > 1)):
        return direct
    height = c.pixels / max(c.width, 1.0) / max(c.depth, 1.0)
    vectors = c.slices * math.ceil(c.channels / c.lanes) + math.ceil(c.filters / c.lanes)
    best = math.inf
    for size, share in TILES:
        edge = math.ceil(height / size) * math.ceil(c.width / size) * size**2 / max(height * c.width, 1.0)
        products = share * edge * c.products * c.waste(c.filters)
        weights = c.groups * c.channels * c.slices * c.filters * (size + 2) ** 2
        numbers = c.images * c.pixels * edge * c.groups * vectors * c.lanes
        work = k.winograd_product * products + k.winograd_transform * numbers * 16 / c.lanes
        # filters that outgrow the cache are transformed in the kernel
        filters = k.winograd_weight if 4 * weights / c.groups <= c.cache else k.winograd_filter
        took = math.hypot(work, filters * weights)
        best = min(best, took * (k.winograd_last if last else 1.0))
    return best if best < (DIRECT_LAST if last else DIRECT_FIRST) * direct else direct


def conv_transpose_nchw(products: float, columns: float, k: Constants = DEFAULTS) -> float:
    """Return the cycles of a transposed convolution in NCHW layout: products, then sums of numbers of columns."""
    return products * k.first_product + columns * k.added


def conv_transpose_nhwc(products: float, filters: float, outputs: float, lanes: int, k: Constants = DEFAULTS) -> float:
    """Return the cycles of a transposed convolution in NHWC layout, by phases."""
    vectors = math.ceil(filters / lanes)
    wasted = vectors * lanes / filters * (k.one_vector if vectors == 1 else 1.0)
    return products * k.last_product * k.tap_run * wasted + outputs / filters * (vectors * k.stored + k.addressed)


def pool_nchw(taps: float, outputs: float, lanes: int, k: Constants = DEFAULTS) -> float:
    """Return the cycles of a pool in NCHW layout, with windows of `taps` elements."""
    return outputs / lanes * (k.pool_first * taps + k.pool_stored)


def pool_nhwc(taps: float, outputs: float, channels: float, lanes: int, k: Constants = DEFAULTS) -> float:
    """Return the cycles of a pool in NHWC layout."""
    return outputs / max(channels, 1.0) * math.ceil(channels / lanes) * (k.pool_last * taps + k.pool_stored)
