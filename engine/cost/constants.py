"""Constants of the cost model: how a microarchitecture runs our kernels, template by template.

They multiply counts that follow from an operator's sizes. Cycles are those of a core that issues two vector
multiply-adds per cycle (`Machine.flops` is its rate), so constants depend little on clock speeds. The defaults were
measured on a Zen 5 core with AVX-512. `fit` finds those of a machine.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

FACTOR = 50.0
"""A constant of a profile differs from its default by this factor at most."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of the cost model.

    Convolutions, NCHW (`first`) and NHWC (`last`):

    - `first_product`, `last_product`: cycles of products relative to those of their multiply-adds;
    - `few_pixels`, `turned`: the same for NCHW kernels of few pixels, whose vectors hold channels, and cycles for each
      number that they transpose;
    - `one_vector`: relative time of a tile that is one vector wide: it loads as often as it multiplies;
    - `gathered`, `gathered_strided`: cycles to gather a vector of pixels under one filter tap, where pixels are
      adjacent and where they are not;
    - `tap_run`: relative time of reading NHWC rows in place through pointers; `run`: that of beginning a run of
      channels, in products of a channel;
    - `copied`: cycles for each input that NHWC kernels of few channels copy;
    - `stored`: cycles to store a vector of results.

    Depthwise and grouped convolutions, and pools:

    - `near`, `far`, `line`: cycles of a multiply-add of an NCHW filter, of those whose inputs stay in registers for
      several rows and of the others; and for each vector of results;
    - `strided`: their relative time with strides;
    - `window`, `window_stored`: cycles of an NHWC multiply-add, and for each vector of results;
    - `pool_first`, `pool_last`, `pool_stored`: cycles of a vector under a tap in either layout, and for each result.

    Winograd's algorithm: `winograd_product` is the relative time of products, `winograd_transform` are
    cycles per number that is transformed, `winograd_weight` per transformed weight that is read, `winograd_filter` per
    weight that the kernel transforms, and `winograd_last` is the relative time in NHWC layout.

    Transposed convolutions: `added` are cycles to add a number to its place, `addressed` those to find the inputs of a
    pixel. Integers: `quantized`, `packed` and `depthwise_quantized` are cycles to quantize and store a vector of
    results, to pack four channels into a word, and to quantize in a depthwise filter besides its products.

    Other templates:

    - `product`, `product_stored`: relative time of matrix products, and cycles to store a vector of results;
    - `attention`, `attention_exp`, `attention_row`: relative time of attention's products, cycles per vector and flop
      of its softmax, and for each query;
    - `recurrent`: relative time of recurrent products;
    - `simple`, `exp`: cycles per vector and flop of elementwise arithmetic, and of transcendental functions;
    - `row`, `column`: of normalizations and softmax, and of reductions; `row_start`: cycles to begin a row;
    - `resized_nearest`, `resized`: of interpolation.

    Memory, relative to the time that the machine's bandwidths allow: `near_bytes` of what the caches of a core hold,
    `far_bytes` beyond, `weight_bytes` of weights, which only memory beyond holds. `hidden` is what remains of either
    traffic where products hide it. `copied_bytes`, `turned_bytes` and
    `short_bytes` are further factors for elements that move in runs, by transposition, and by transposition of a few.
    `joined` is the share of an elementwise function's traffic that remains where another kernel could compute it: not
    every such kernel can."""

    first_product: float = 1.08
    last_product: float = 1.06
    few_pixels: float = 1.15
    turned: float = 3.0
    one_vector: float = 1.15
    gathered: float = 2.0
    gathered_strided: float = 6.0
    tap_run: float = 1.03
    run: float = 1.7
    copied: float = 0.5
    stored: float = 2.0
    near: float = 0.6
    far: float = 0.95
    line: float = 4.0
    strided: float = 2.5
    window: float = 0.56
    window_stored: float = 4.0
    pool_first: float = 1.6
    pool_last: float = 1.0
    pool_stored: float = 4.0
    winograd_product: float = 1.1
    winograd_transform: float = 0.92
    winograd_weight: float = 0.5
    winograd_filter: float = 0.15
    winograd_last: float = 0.97
    added: float = 2.4
    addressed: float = 8.0
    quantized: float = 5.0
    packed: float = 0.3
    depthwise_quantized: float = 3.0
    product: float = 1.25
    product_stored: float = 1.0
    attention: float = 1.25
    attention_exp: float = 1.0
    attention_row: float = 20.0
    recurrent: float = 3.3
    simple: float = 1.0
    exp: float = 1.0
    row: float = 1.0
    row_start: float = 10.0
    column: float = 1.0
    resized_nearest: float = 2.5
    resized: float = 2.5
    near_bytes: float = 1.0
    far_bytes: float = 1.0
    copied_bytes: float = 1.0
    turned_bytes: float = 2.0
    short_bytes: float = 4.0
    weight_bytes: float = 2.0
    hidden: float = 0.7
    joined: float = 0.05


DEFAULTS = Constants()
NAMES = tuple(field.name for field in dataclasses.fields(Constants))
