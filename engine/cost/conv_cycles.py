"""Cycles that our kernels take for convolutions and pools, by layout and algorithm.

In NCHW layout a vector holds pixels, in NHWC layout channels. So the layouts differ in what they waste in partial
vectors, and in what they gather, transpose and store. How long each of these takes are the `KernelConstants` of a
machine, which also say what a cycle is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .kernel_constants import DEFAULT, KernelConstants

FEW_PIXELS = 256
"""Up to this number of pixels NCHW kernels use vectors of channels too."""
FEW_CHANNELS = 8
"""Up to this number of channels the lines of images are copied, those of volumes are not."""
HELD = 25
"""Number of taps of a depthwise NCHW filter whose inputs stay in registers for several rows."""
DIRECT = 0.8
"""Winograd's algorithm is chosen where it takes less than this share of the direct algorithm's time."""
FILTERED_CHANNELS = 1800
"""Largest number of channels of a convolution of bytes by Winograd's algorithm: four times the sums, 4 * 9 * 255 * 128
for each channel, fit 32 bits."""
SKIPPED = 0.85
"""NHWC kernels look for taps that read padding only where less than this share of the products reads the input."""
TILE_PIXELS = 14
"""Pixels of a tile of NHWC kernels, about: taps are skipped for whole tiles."""
TILES = ((6, 6), (4, 4), (4, 2), (2, 2))
"""Winograd tiles: results down and across. One of t x u takes (t + 2) (u + 2) products."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution: `channels` and `filters` are those of one group, `pixels` those of one result.

    `unit` means that strides are 1, and dilations too, but for images in f32 with channels last; `dilated` are the
    latter along height and width. `square` is the size of a filter whose height and width are equal, else 0. Of
    volumes, `depth` is the number of planes of a result, 0 of images; `slices` is that of a filter. `cache` are the
    bytes of weights that stay in a cache from run to run, `far` the cycles per number of larger ones. `read` is the
    share of the products that an NHWC kernel does not skip."""

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
    cache: float = math.inf
    far: float = 0.0
    constants: KernelConstants = DEFAULT
    dilated: tuple[int, int] = (1, 1)
    read: float = 1.0

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
        return vectors * (taps + k.window_stored) * (2.5 if c.stride > 1 else 1.0)
    direct = c.taps == 1 and c.unit
    inputs = c.images * c.groups * c.channels * c.taps * math.ceil(c.pixels / c.lanes)
    gathering = 0.0 if direct else inputs * (k.gathered if c.stride == 1 else k.gathered_strided)
    stored = c.images * c.groups * c.filters * math.ceil(c.pixels / c.lanes) * k.stored
    found = c.products * k.product_first * c.waste(c.pixels) + stored
    if c.pixels <= FEW_PIXELS and c.filters >= 2 * c.lanes:
        turned = k.transposed * c.images * c.groups * c.filters * c.pixels
        found = min(found, c.products * k.few_pixels * c.waste(c.filters) + turned)
    found += gathering
    fits = c.channels % c.lanes == 0 and c.filters >= 2 * c.lanes and not c.depth and c.groups == 1
    return _or_winograd(c, found, 1.0) if fits else found


def conv_nhwc(c: Convolution) -> float:
    """Return the cycles of a convolution in NHWC layout."""
    found = _rows(c, c.products * c.read, c.constants.stored)
    if 2 * c.channels >= c.lanes and c.filters >= c.lanes:
        found = _or_winograd(c, found, c.constants.tile_nhwc)
    return min(found, _windows(c)) if c.groups > 1 else found


@dataclass(frozen=True, slots=True)
class Axis:
    """Sizes of a convolution along an axis; `pad` is before the first element."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    def share_read(self, pixels: int) -> float:
        """Return the share of the outputs under all taps that read the input, or are among the first `pixels` of a tap
        that do not."""
        every = self.kernel * self.outputs
        if every <= 0:
            return 1.0
        unread = 0
        for shift in (tap * self.dilation - self.pad for tap in range(self.kernel)):
            first = max(-(shift // self.stride), 0)
            until = min((self.inputs - 1 - shift) // self.stride + 1, self.outputs)
            unread += max(self.outputs - max(until - first, 0) - pixels, 0)
        return 1.0 - unread / every


def share_read(axes: Sequence[Axis]) -> float:
    """Return the share of the products of an NHWC convolution that are computed. Kernels skip taps that read padding
    only, for whole tiles of a row; where few do, they do not look for them, and the share is 1."""
    share = math.prod(axis.share_read(0) for axis in axes[:-1]) * axes[-1].share_read(TILE_PIXELS)
    return share if share < SKIPPED else 1.0


def _windows(c: Convolution) -> float:
    """Return the cycles of a grouped convolution that slides windows over vectors with as many groups as they hold."""
    together = max(1.0, min(c.lanes // max(c.channels, 1.0), c.lanes // max(c.filters, 1.0)))
    vectors = math.ceil(c.groups / together) * math.ceil(c.filters * together / c.lanes)
    each = c.constants.window if c.channels == 1 else c.constants.window_grouped
    return c.images * c.pixels * vectors * (each * c.taps * c.channels + c.constants.window_stored)


def _rows(c: Convolution, products: float, stored: float) -> float:
    """Return the cycles of products on NHWC rows, and of storing each vector of results."""
    k = c.constants
    narrow = k.one_vector if c.filters <= c.lanes else 1.0
    vectors = c.images * c.pixels * c.groups * math.ceil(c.filters / c.lanes)
    in_place = 1.0 if c.taps == 1 else k.rows_in_place
    if c.depth and c.taps > 1 and c.channels <= FEW_CHANNELS:
        in_place += k.run / max(c.channels, 1.0)
    return products * k.product * narrow * c.waste(c.filters) * in_place + vectors * stored


def product(rows: float, depth: float, columns: float, lanes: int, k: KernelConstants) -> float:
    """Return the cycles of a product of matrices, rows x depth by depth x columns: a filter of one tap, or, of less
    than a vector of columns, dot products."""
    c = Convolution(1.0, rows, rows, 1.0, depth, columns, 1.0, 1, True, 0, lanes, constants=k)
    found = _rows(c, c.products, k.stored)
    if columns < lanes:
        found = min(found, rows * columns * (math.ceil(depth / lanes) * k.row_product / 2 + k.stored))
    return found


def conv_int8_nchw(c: Convolution, rate: float) -> float:
    """Return the cycles of an int8 convolution in NCHW layout.

    `rate` is the speedup of products over f32. Four channels become a word, with padding, and rows of pixels are
    gathered."""
    k = c.constants
    quads, vectors = math.ceil(c.channels / 4), math.ceil(c.pixels / c.lanes)
    words = c.images * c.groups * quads * c.pixels * c.stride**2
    gathered = k.gathered if c.stride == 1 else k.gathered_strided
    gathering = 0.0 if c.taps == 1 and c.unit else c.images * c.groups * quads * c.taps * vectors * gathered
    wasted = 4 * quads / max(c.channels, 1.0) * c.waste(c.pixels)
    products = c.products / rate * k.product_quantized * k.product_first * wasted
    return products + gathering + k.packed * words + c.images * c.groups * c.filters * vectors * k.quantized


def conv_int8_nhwc(c: Convolution, rate: float, filtered: float = 0.0) -> float:
    """Return the cycles of an int8 convolution in NHWC layout, where four channels already form a word in memory.

    `filtered` is the speedup over f32 of the products of Winograd's algorithm in 16 bits, 0 if there is no kernel."""
    if c.depthwise:
        vectors = c.images * c.pixels * math.ceil(c.groups / (4 * c.lanes))
        return vectors * (c.constants.near_quantized * c.taps + c.constants.depthwise_quantized)
    wasted = 4 * math.ceil(c.channels / 4) / max(c.channels, 1.0) if c.channels > 8 or c.groups > 1 else 1.0
    found = _rows(c, c.products / rate * c.constants.product_quantized * wasted, c.constants.quantized)
    if filtered and 2 * c.lanes <= c.channels <= FILTERED_CHANNELS and c.filters >= 2 * c.lanes and not c.depth:
        stored = c.images * c.pixels * c.groups * math.ceil(c.filters / c.lanes) * c.constants.quantized
        found = _or_winograd(c, found, 1.0, TILES[-1:], filtered / c.constants.tile_quantized, 0.5, stored)
    return found


def _or_winograd(
    c: Convolution,
    direct: float,
    factor: float,
    tiles: Sequence[tuple[int, int]] = TILES,
    rate: float = 1.0,
    size_of: float = 1.0,
    stored: float = 0.0,
) -> float:
    """Return the cycles of the direct algorithm or of Winograd's, whichever the kernels choose.

    `rate` is the speedup of products over f32, `size_of` the size of inputs and weights relative to those of f32;
    `stored` are the cycles to store results, where the constants of transforms do not include them."""
    if c.square != 3 or not c.unit:
        return direct
    k = c.constants
    height = c.pixels / max(c.width, 1.0) / max(c.depth, 1.0)
    numbers = c.images * c.pixels * c.groups * (c.channels * c.slices + c.filters)
    best = math.inf
    for t, u in tiles:
        lines = (
            (height, t, c.dilated[0]),
            (c.width, u, c.dilated[1]),
        )  # a dilated filter has tiles of each set of lines
        edge = math.prod(n * math.ceil(extent / (n * size)) * size / max(extent, 1.0) for extent, size, n in lines)
        places = (t + 2) * (u + 2)
        weights = c.groups * c.channels * c.slices * c.filters * places
        products = k.tile_product * places / (9 * t * u) * edge * c.products / rate
        each = k.tile_weight if 4 * size_of * weights <= c.cache else max(k.tile_weight, c.far)
        best = min(best, products + size_of * (k.tile_transform * numbers + each * weights))
    best = best * factor + stored
    return best if best < DIRECT * direct else direct


def conv_transpose_nchw(products: float, columns: float, k: KernelConstants) -> float:
    """Return the cycles of a transposed convolution in NCHW layout: products, then sums of numbers of columns."""
    return products * k.product_first + columns * k.added


def conv_transpose_nhwc(products: float, filters: float, outputs: float, lanes: int, k: KernelConstants) -> float:
    """Return the cycles of a transposed convolution in NHWC layout, by phases."""
    vectors = math.ceil(filters / lanes)
    wasted = vectors * lanes / filters * (k.one_vector if vectors == 1 else 1.0)
    stored = outputs / filters * (vectors * k.stored + k.addressed)
    return products * k.product * k.rows_in_place * wasted + stored


def pool_taps(window: Sequence[int], stride: int, width: float, k: KernelConstants) -> float:
    """Return the elements of a window for a line of `width` results, counting less those that windows share."""
    *outer, across = window
    step = min(stride, across)
    fresh = (across + (width - 1) * step) / max(width, 1.0)
    return math.prod(outer) * (fresh + k.pooled_again * (across - fresh))


def pool_nchw(taps: float, outputs: float, lanes: int, k: KernelConstants) -> float:
    """Return the cycles of a pool in NCHW layout, with windows of `taps` elements."""
    return outputs / lanes * (k.pooled_first * taps + k.pooled)


def pool_nhwc(taps: float, outputs: float, channels: float, lanes: int, k: KernelConstants) -> float:
    """Return the cycles of a pool in NHWC layout."""
    return outputs / max(channels, 1.0) * math.ceil(channels / lanes) * (k.pooled_last * taps + k.pooled)
