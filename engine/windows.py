"""How long our kernels take for convolutions and pools, by layout and algorithm.

Times are in cycles of one core that begins two multiply-adds of vectors in each, the unit of `Machine.flops`. With the
channels of an image first a vector holds pixels, with the channels last it holds channels: what is wasted in vectors
that are not full differs, and so does what has to be gathered, turned and stored. The figures were measured on a Zen 5
core with AVX-512, over the layers of residual, depthwise and detection networks; there the two layouts are ranked right
but for differences of some per cent. They are what a microarchitecture makes of the algorithms, not of one network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

PRODUCT = 1.06
"""Cycles of a product of matrices by those that its multiply-adds take, with vectors of channels …"""
PRODUCT_FIRST = 1.08
"""… and with vectors of pixels."""
FEW_PIXELS, FEW_PIXELS_FACTOR, TURNED = 256, 1.15, 3.0
"""Up to so many pixels there are vectors of channels even where channels come first: that takes so much longer, and so
many cycles for each number that is turned into its place."""
ONE_VECTOR = 1.15
"""A tile that is one vector wide loads as often as it multiplies."""
GATHERED, GATHERED_APART = 2.0, 6.0
"""Cycles for a vector of pixels under one weight of a filter, and of pixels that do not lie side by side."""
RUN = 1.03
"""Where channels come last their runs are read in place, by pointers, which costs little."""
STORED = 2.0
"""Cycles to store a vector of results."""
QUANTISED, WORD, STEP = 5.0, 0.3, 3.0
"""Cycles to make bytes of a vector of results and store them, to put four channels together to a word, and besides the
products of a depthwise filter."""
DIRECT = 0.8
"""Winograd's algorithm is chosen where it takes less than this share of the time of the direct one."""
TILES = ((4, 36 / 144), (2, 16 / 36))
"""Its tiles: how many results on a side, and the products that are left of the direct ones."""
TILE_PRODUCT, TILE_TURN, TILE_WEIGHT, TILE_LAST = 1.1, 0.92, 0.15, 0.97
"""Its product, cycles for each number that is transformed, for each weight read, and the share with channels last."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sizes of a convolution: `channels` and `filters` are those of one group, `pixels` those of one result.

    `unit` is whether neither strides nor dilations lie between the pixels under a filter; `square` the size of a filter
    of two equal dims, else 0."""

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

    @property
    def products(self) -> float:
        """Cycles that the multiply-adds take at the machine's peak."""
        every = self.images * self.pixels * self.groups * self.filters * self.channels * self.taps
        return every / (2 * self.lanes)

    @property
    def depthwise(self) -> bool:
        """Whether every channel has one filter of its own."""
        return self.groups > 1 and self.channels == 1 and self.filters == 1

    def waste(self, extent: float) -> float:
        """How many times as long vectors along a dim of this extent take as if all were full."""
        return math.ceil(extent / self.lanes) * self.lanes / extent if extent else 1.0


def channels_first(c: Convolution) -> float:
    """The cycles of a convolution from [N, C, ..] to [N, M, ..]."""
    lines = max(c.pixels / max(c.width, 1.0), 1.0)
    if c.groups > 1 and c.channels == 1:
        vectors = c.images * c.groups * c.filters * lines * math.ceil(c.width / c.lanes)
        return vectors * (0.6 * c.taps + 4) * (2.5 if c.stride > 1 else 1.0)
    direct = c.taps == 1 and c.unit
    inputs = c.images * c.groups * c.channels * c.taps * math.ceil(c.pixels / c.lanes)
    gathering = 0.0 if direct else inputs * (GATHERED if c.stride == 1 else GATHERED_APART)
    stored = c.images * c.groups * c.filters * math.ceil(c.pixels / c.lanes) * STORED
    found = c.products * PRODUCT_FIRST * c.waste(c.pixels) + stored
    if c.pixels <= FEW_PIXELS and c.filters >= 2 * c.lanes:
        turned = TURNED * c.images * c.groups * c.filters * c.pixels
        found = min(found, c.products * FEW_PIXELS_FACTOR * c.waste(c.filters) + turned)
    fits = c.channels % c.lanes == 0 and c.filters % c.lanes == 0
    return _or_winograd(c, found + gathering, 1.0 if fits else math.inf)


def direct_first(c: Convolution) -> float:
    """The same without Winograd's algorithm, whose sums are too long for numbers of few bits."""
    return channels_first(replace(c, square=0))


def channels_last(c: Convolution) -> float:
    """The cycles of a convolution from [N, .., C] to [N, .., M]."""
    if c.depthwise:
        return c.images * c.pixels * math.ceil(c.groups / c.lanes) * (0.5 * c.taps + 4)
    narrow = ONE_VECTOR if c.filters <= c.lanes else 1.0
    stored = c.images * c.pixels * c.groups * math.ceil(c.filters / c.lanes) * STORED
    found = c.products * PRODUCT * narrow * c.waste(c.filters) * (1.0 if c.taps == 1 else RUN) + stored
    return _or_winograd(c, found, TILE_LAST)


def bytes_first(c: Convolution, rate: float) -> float:
    """The cycles of a convolution of bytes from [N, C, ..] to [N, M, ..], where `rate` times as many of them as of
    floats are multiplied in a cycle: four channels become words, with padding, and lines of pixels are gathered."""
    quads, vectors = math.ceil(c.channels / 4), math.ceil(c.pixels / c.lanes)
    words = c.images * c.groups * quads * c.pixels * c.stride**2
    gathered = GATHERED if c.stride == 1 else GATHERED_APART
    gathering = 0.0 if c.taps == 1 and c.unit else c.images * c.groups * quads * c.taps * vectors * gathered
    products = c.products / rate * (4 * quads / max(c.channels, 1.0)) * PRODUCT_FIRST * c.waste(c.pixels)
    return products + gathering + WORD * words + c.images * c.groups * c.filters * vectors * QUANTISED


def bytes_last(c: Convolution, rate: float) -> float:
    """The same from [N, .., C] to [N, .., M], where they are words as they lie."""
    if c.depthwise:
        return c.images * c.pixels * math.ceil(c.groups / (4 * c.lanes)) * (0.6 * c.taps + STEP)
    wasted = 4 * math.ceil(c.channels / 4) / max(c.channels, 1.0) if c.channels > 8 or c.groups > 1 else 1.0
    narrow = ONE_VECTOR if c.filters <= c.lanes else 1.0
    stored = c.images * c.pixels * c.groups * math.ceil(c.filters / c.lanes) * QUANTISED
    return c.products / rate * wasted * PRODUCT * narrow * c.waste(c.filters) * (1.0 if c.taps == 1 else RUN) + stored


def direct_last(c: Convolution) -> float:
    """The same without Winograd's algorithm."""
    return channels_last(replace(c, square=0))


def _or_winograd(c: Convolution, direct: float, factor: float) -> float:
    """The cycles of the direct algorithm or of Winograd's, whichever is taken."""
    if c.square != 3 or not c.unit or c.groups != 1:
        return direct
    height = c.pixels / max(c.width, 1.0)
    numbers = c.images * c.pixels * (c.channels + c.filters)
    best = math.inf
    for size, share in TILES:
        edge = math.ceil(height / size) * math.ceil(c.width / size) * size**2 / max(c.pixels, 1.0)
        weights = c.channels * c.filters * (size + 2) ** 2
        best = min(best, TILE_PRODUCT * share * edge * c.products + TILE_TURN * numbers + TILE_WEIGHT * weights)
    best *= factor
    return best if best < DIRECT * direct else direct


def pool_first(taps: float, outputs: float, lanes: int) -> float:
    """The cycles of a pool with so many results, of windows of `taps` elements, over [N, C, ..]."""
    return outputs / lanes * (1.6 * taps + 4)


def pool_last(taps: float, outputs: float, channels: float, lanes: int) -> float:
    """The same over [N, .., C]."""
    return outputs / max(channels, 1.0) * math.ceil(channels / lanes) * (taps + 4)
