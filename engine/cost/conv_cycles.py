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

PRODUCT = 1.06
"""Cycles of a GEMM relative to those of its multiply-adds, with vectors of channels."""
PRODUCT_FIRST = 1.08
"""The same with vectors of pixels."""
FEW_PIXELS, FEW_PIXELS_FACTOR, TRANSPOSED = 256, 1.15, 3.0
"""Up to this number of pixels NCHW kernels use vectors of channels too: relative time of their products, and cycles for
each number that is transposed."""
ONE_VECTOR = 1.15
"""Relative time of a tile that is one vector wide: it loads as often as it multiplies."""
GATHERED, GATHERED_STRIDED = 2.0, 6.0
"""Cycles to gather a vector of pixels under one filter tap, where pixels are adjacent and where they are not."""
ROWS_IN_PLACE = 1.03
"""Relative time of reading NHWC rows in place through pointers."""
FEW_CHANNELS, RUN = 8, 1.7
"""Up to this number of channels the lines of images are copied, those of volumes are not: a run of channels takes time
to begin, relative to the products of a channel."""
ADDED, ADDRESSED = 2.4, 8.0
"""Cycles to add a number to its place in a transposed convolution, and to find the inputs of one of its pixels."""
STORED = 2.0
"""Cycles to store a vector of results."""
QUANTIZED, PACKED, DEPTHWISE_QUANTIZED = 5.0, 0.3, 3.0
"""Cycles to quantize and store a vector of results, to pack four channels into a word, and to quantize in a depthwise
filter besides its products."""
WINDOW, WINDOW_STORED = 0.56, 4.0
"""Cycles of a multiply-add where inputs are loaded once for all windows that contain them, and to begin and store a
vector of results."""
NEAR, FAR, HELD = 0.6, 0.95, 25
"""Cycles of a multiply-add of a depthwise NCHW filter: of the first ones, whose inputs stay in registers for several
rows, and of the others; and the number of the former."""
DIRECT = 0.8
"""Winograd's algorithm is chosen where it takes less than this share of the direct algorithm's time."""
TILES = ((4, 36 / 144), (2, 16 / 36))
"""Winograd tiles: results on a side, and the share of the direct products that remains."""
TILE_PRODUCT, TILE_TRANSFORM, TILE_WEIGHT, TILE_NHWC = 1.1, 0.92, 0.15, 0.97
"""Relative time of Winograd's products, cycles per transformed number and per weight read, and relative time in
NHWC."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution: `channels` and `filters` are those of one group, `pixels` those of one result.

    `unit` means that strides and dilations are 1; `square` is the size of a filter whose height and width are equal,
    else 0. Of volumes, `depth` is the number of planes of a result, 0 of images; `slices` is that of a filter."""

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
    lines = max(c.pixels / max(c.width, 1.0), 1.0)
    if c.groups > 1 and c.channels == 1:
        vectors = c.images * c.groups * c.filters * lines * math.ceil(c.width / c.lanes)
        taps = NEAR * min(c.taps, HELD) + FAR * max(0.0, c.taps - HELD)
        return vectors * (taps + 4) * (2.5 if c.stride > 1 else 1.0)
    direct = c.taps == 1 and c.unit
    inputs = c.images * c.groups * c.channels * c.taps * math.ceil(c.pixels / c.lanes)
    gathering = 0.0 if direct else inputs * (GATHERED if c.stride == 1 else GATHERED_STRIDED)
    stored = c.images * c.groups * c.filters * math.ceil(c.pixels / c.lanes) * STORED
    found = c.products * PRODUCT_FIRST * c.waste(c.pixels) + stored
    if c.pixels <= FEW_PIXELS and c.filters >= 2 * c.lanes:
        turned = TRANSPOSED * c.images * c.groups * c.filters * c.pixels
        found = min(found, c.products * FEW_PIXELS_FACTOR * c.waste(c.filters) + turned)
    fits = c.channels % c.lanes == 0 and c.filters % c.lanes == 0
    return _or_winograd(c, found + gathering, 1.0 if fits and not c.depth and c.groups == 1 else math.inf)


def conv_nhwc(c: Convolution) -> float:
    """Return the cycles of a convolution in NHWC layout."""
    direct = _rows(c, c.products, STORED)
    found = _or_winograd(c, direct, TILE_NHWC)
    return min(found, _windows(c)) if c.groups > 1 else found


def _windows(c: Convolution) -> float:
    """Return the cycles of a grouped convolution that slides windows over vectors with as many groups as they hold."""
    together = max(1.0, min(c.lanes // max(c.channels, 1.0), c.lanes // max(c.filters, 1.0)))
    vectors = math.ceil(c.groups / together) * math.ceil(c.filters * together / c.lanes)
    return c.images * c.pixels * vectors * (WINDOW * c.taps * c.channels + WINDOW_STORED)


def _rows(c: Convolution, products: float, stored: float) -> float:
    """Return the cycles of products on NHWC rows, and of storing each vector of results."""
    narrow = ONE_VECTOR if c.filters <= c.lanes else 1.0
    vectors = c.images * c.pixels * c.groups * math.ceil(c.filters / c.lanes)
    in_place = 1.0 if c.taps == 1 else ROWS_IN_PLACE
    if c.depth and c.taps > 1 and c.channels <= FEW_CHANNELS:
        in_place += RUN / max(c.channels, 1.0)
    return products * PRODUCT * narrow * c.waste(c.filters) * in_place + vectors * stored


def conv_int8_nchw(c: Convolution, rate: float) -> float:
    """Return the cycles of an int8 convolution in NCHW layout.

    `rate` is the speedup of products over f32. Four channels become a word, with padding, and rows of pixels are
    gathered."""
    quads, vectors = math.ceil(c.channels / 4), math.ceil(c.pixels / c.lanes)
    words = c.images * c.groups * quads * c.pixels * c.stride**2
    gathered = GATHERED if c.stride == 1 else GATHERED_STRIDED
    gathering = 0.0 if c.taps == 1 and c.unit else c.images * c.groups * quads * c.taps * vectors * gathered
    products = c.products / rate * (4 * quads / max(c.channels, 1.0)) * PRODUCT_FIRST * c.waste(c.pixels)
    return products + gathering + PACKED * words + c.images * c.groups * c.filters * vectors * QUANTIZED


def conv_int8_nhwc(c: Convolution, rate: float) -> float:
    """Return the cycles of an int8 convolution in NHWC layout, where four channels already form a word in memory."""
    if c.depthwise:
        return c.images * c.pixels * math.ceil(c.groups / (4 * c.lanes)) * (0.6 * c.taps + DEPTHWISE_QUANTIZED)
    wasted = 4 * math.ceil(c.channels / 4) / max(c.channels, 1.0) if c.channels > 8 or c.groups > 1 else 1.0
    return _rows(c, c.products / rate * wasted, QUANTIZED)


def _or_winograd(c: Convolution, direct: float, factor: float) -> float:
    """Return the cycles of the direct algorithm or of Winograd's, whichever the kernels choose."""
    narrow = c.groups > 1 and (2 * c.channels < c.lanes or c.filters < c.lanes)
    if c.square != 3 or not c.unit or narrow:
        return direct
    height = c.pixels / max(c.width, 1.0) / max(c.depth, 1.0)
    numbers = c.images * c.pixels * c.groups * (c.channels * c.slices + c.filters)
    best = math.inf
    for size, share in TILES:
        edge = math.ceil(height / size) * math.ceil(c.width / size) * size**2 / max(height * c.width, 1.0)
        weights = c.groups * c.channels * c.slices * c.filters * (size + 2) ** 2
        best = min(best, TILE_PRODUCT * share * edge * c.products + TILE_TRANSFORM * numbers + TILE_WEIGHT * weights)
    best *= factor
    return best if best < DIRECT * direct else direct


def conv_transpose_nchw(products: float, columns: float) -> float:
    """Return the cycles of a transposed convolution in NCHW layout: products, then sums of numbers of columns."""
    return products * PRODUCT_FIRST + columns * ADDED


def conv_transpose_nhwc(products: float, filters: float, outputs: float, lanes: int) -> float:
    """Return the cycles of a transposed convolution in NHWC layout, by phases."""
    vectors = math.ceil(filters / lanes)
    wasted = vectors * lanes / filters * (ONE_VECTOR if vectors == 1 else 1.0)
    return products * PRODUCT * ROWS_IN_PLACE * wasted + outputs / filters * (vectors * STORED + ADDRESSED)


def pool_nchw(taps: float, outputs: float, lanes: int) -> float:
    """Return the cycles of a pool in NCHW layout, with windows of `taps` elements."""
    return outputs / lanes * (1.6 * taps + 4)


def pool_nhwc(taps: float, outputs: float, channels: float, lanes: int) -> float:
    """Return the cycles of a pool in NHWC layout."""
    return outputs / max(channels, 1.0) * math.ceil(channels / lanes) * (taps + 4)
