"""Constants of the cost model: what our kernels take, in units that a machine profile turns into seconds.

Formulas say how the time of a kernel depends on its sizes. These constants say how fast a CPU with some vector
extension runs them. `rewrite calibrate` fits them to measured kernels; the defaults were measured on a Zen 5 core with
AVX-512, over the layers of residual, depthwise and detection networks.

A *cycle* is one of a core that issues two vector multiply-adds per cycle at the measured peak, the unit of
`Machine.flops`. A *relative time* multiplies the cycles of a kernel's multiply-adds at that peak.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class KernelConstants:
    """Constants of the formulas of `conv_cycles`, `operator_cost` and `cost_model`; all are positive.

    Attributes:
        product: relative time of a GEMM with vectors of channels.
        product_first: the same with vectors of pixels.
        few_pixels: relative time of NCHW products of few pixels, which use vectors of channels.
        transposed: cycles for each number that these transpose.
        one_vector: relative time of a tile that is one vector wide: it loads as often as it multiplies.
        gathered, gathered_strided: cycles to gather a vector of pixels under one filter tap, where pixels are adjacent
            and where they are not.
        rows_in_place: relative time of reading NHWC rows in place through pointers.
        run: cycles to begin a run of channels of a volume, relative to the products of a channel.
        added, addressed: cycles to add a number to its place in a transposed convolution, and to find the inputs of one
            of its pixels.
        stored: cycles to store a vector of results.
        quantized: cycles to quantize and store a vector of results.
        packed: cycles to pack four channels into a word.
        product_quantized, tile_quantized: time of products of bytes relative to what their rate says, in general and in
            Winograd's algorithm.
        near_quantized, depthwise_quantized: cycles of a depthwise filter of bytes, for four vectors of results: of each
            tap, and besides.
        window, window_grouped, window_stored: cycles of a multiply-add where inputs are loaded once for all windows
            that contain them, of one channel and of several, and to begin and store a vector of results.
        near, far: cycles of a multiply-add of a depthwise NCHW filter: of the first ones, whose inputs stay in
            registers for several rows, and of the others.
        tile_product, tile_transform, tile_weight: relative time of Winograd's products, cycles per transformed number
            and per weight that a cache holds.
        tile_nhwc: relative time of Winograd's algorithm in NHWC.
        pooled_first, pooled_last, pooled: cycles of an element of a window in NCHW and in NHWC, and to begin and store
            a vector of a pool's results.
        pooled_again: relative time of the elements that the window before contains too.
        row_product: cycles of two vectors of a dot product, relative to those of a multiply-add.
        matrix: cycles to lay out a number of a second factor that is not constant.
        attention: relative time of the products of attention.
        pointwise, normalized, reduced: relative time of the arithmetic of elementwise operators, of normalizations, and
            of reductions.
        row: cycles to begin and end a row of a normalization or reduction.
        copied, permuted: time of movement, relative to that of its traffic in order: of runs, and of single elements.
        moved: cycles to begin a run.
        interpolated, picked: cycles of Resize: for each tap of a vector, and for each element of the nearest mode.
        recurrent: relative time of the products of recurrent operators.
        exposed: share of the shorter one of arithmetic and traffic that the longer one does not hide.
        l1, l2, l3, dram: time of the traffic of kernels, relative to that of a stream in each level of memory.
        weights: time of reading weights, which other kernels evicted, relative to a stream from the outermost cache
            that holds them.
    """

    def __repr__(self) -> str:
        changed = sum(getattr(self, field.name) != field.default for field in fields(self))
        return f"<KernelConstants: {changed} of {len(fields(self))} measured>"

    product: float = 1.06
    product_first: float = 1.08
    few_pixels: float = 1.15
    transposed: float = 3.0
    one_vector: float = 1.15
    gathered: float = 2.0
    gathered_strided: float = 6.0
    rows_in_place: float = 1.03
    run: float = 1.7
    added: float = 2.4
    addressed: float = 8.0
    stored: float = 2.0
    quantized: float = 5.0
    packed: float = 0.3
    product_quantized: float = 1.0
    tile_quantized: float = 1.0
    near_quantized: float = 0.6
    depthwise_quantized: float = 3.0
    window: float = 0.56
    window_grouped: float = 0.56
    window_stored: float = 4.0
    near: float = 0.6
    far: float = 0.95
    tile_product: float = 1.1
    tile_transform: float = 0.92
    tile_weight: float = 0.15
    tile_nhwc: float = 0.97
    pooled_first: float = 1.6
    pooled_last: float = 1.0
    pooled: float = 4.0
    pooled_again: float = 1.0
    row_product: float = 2.0
    matrix: float = 1.0
    attention: float = 1.1
    pointwise: float = 4.0
    normalized: float = 4.0
    reduced: float = 4.0
    row: float = 30.0
    copied: float = 1.0
    permuted: float = 2.0
    moved: float = 8.0
    interpolated: float = 2.5
    picked: float = 2.0
    recurrent: float = 3.3
    exposed: float = 0.1
    l1: float = 1.0
    l2: float = 1.0
    l3: float = 1.0
    dram: float = 1.0
    weights: float = 1.0


DEFAULT = KernelConstants()
AVX2 = KernelConstants(quantized=2.0, near_quantized=3.4, depthwise_quantized=3.7)
"""Constants for AVX2, which multiplies bytes as 16-bit integers: those of bytes were fitted on a Zen 3 core."""
NAMES = tuple(field.name for field in fields(KernelConstants))
"""Names of all constants."""
LEAST, MOST = 1e-3, 1e3
"""Bounds of a constant in a stored profile."""
