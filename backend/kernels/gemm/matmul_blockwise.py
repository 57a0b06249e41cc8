"""Lowering of `rewrite.MatMulBlockwise`: products with constant weights of four or eight bits, scaled by blocks.

Weights are packed at compile time: integers, scales and zero points of a block of rows lie side by side in panels of
columns, so that a thread reads one stream of memory. Up to `FEW` rows are multiplied with weights unpacked in
registers, and memory bandwidth decides. For more rows each panel is dequantized once, for the micro-kernel of GEMM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType
from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import int_attr, launch, serial_below
from ...ir.arrays import aligned
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import LeadingDimension, Step
from ...ir.lower import Context, Group
from ...ir.target import Target
from ..registry import lowering
from . import tiles as tiling
from .epilogue import Axes, Epilogue, of_group
from .problem import SMALL_WORK

FEW = 8
"""Maximum number of rows for which weights are unpacked in registers."""
SPAN_BYTES = 1 << 14
"""Size of the packed weights that stay in the first-level cache while all rows are multiplied with them."""
AHEAD = 8192
"""Distance in bytes at which packed weights are prefetched."""
LONGEST = 256
"""Maximum number of rows of a block; longer ones are cut, so that sums are rounded less and a panel can be cut too."""

Array = NDArray[Any]
_KINDS = {DType.U4: (4, 8), DType.I4: (4, 0), DType.U8: (8, 128), DType.I8: (8, 0)}
"""Bits of an integer type, and the middle of its range."""


@dataclass(frozen=True)
class BlockwiseWeights:
    """Integers [K, N] relative to the middle of their range, scales and, perhaps, zero points [K / block, N]."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    zeros: NDArray[np.int8] | None
    block: int
    bits: int

    @property
    def padded(self) -> int:
        """Number of rows that a block has in memory."""
        unit = 8 if self.bits == 4 else 4
        return -(-self.block // unit) * unit

    @property
    def blocks(self) -> int:
        """Number of blocks of a column."""
        return len(self.scales)

    def column_bytes(self) -> int:
        """Return the size of one column of a block in memory."""
        return self.padded * self.bits // 8 + 4 + (self.zeros is not None)


def weights_of(group: Group, ctx: Context) -> BlockwiseWeights | None:
    """Return the weights of a product; None if they are not constant, or not of a supported type."""
    node = group.node
    dtype = ctx.type(node.inputs[1]).dtype
    q, s = (ctx.constant(v) for v in node.inputs[1:3])
    zero = node.inputs[3] if len(node.inputs) > 3 else ""
    z = ctx.constant(zero) if zero else None
    if q is None or s is None or (zero and z is None) or dtype not in _KINDS or s.array.dtype != np.float32:
        return None
    (bits, middle), block = _KINDS[dtype], int_attr(node, "block_size")
    if q.array.ndim != 2 or not q.array.size or block < 1:
        return None
    k, n = q.array.shape
    if s.array.shape != (-(-k // block), n) or (z is not None and z.array.shape != s.array.shape):
        return None
    codes = _relative(q.array, middle)
    zeros = np.full(s.array.shape, -middle, np.int8) if z is None else _relative(z.array, middle)
    return _cut(
        BlockwiseWeights(codes, s.array.astype(np.float32), zeros if zeros.any() else None, min(block, k), bits)
    )


def _relative(array: Array, middle: int) -> NDArray[np.int8]:
    """Return integers less the middle of their range."""
    if middle == 128:
        return np.bitwise_xor(array, np.uint8(128)).view(np.int8)
    whole = array.astype(np.int8)
    return whole - np.int8(middle) if middle else whole


def _cut(weights: BlockwiseWeights) -> BlockwiseWeights:
    """Return the same weights in blocks that are not too long."""
    if weights.block <= LONGEST:
        return weights
    part = next((d for d in range(LONGEST, LONGEST // 4, -1) if weights.block % d == 0), 0)
    if not part and weights.blocks > 1:
        return weights
    part = part or LONGEST
    times, count = -(-weights.block // part), -(-len(weights.codes) // part)
    zeros = None if weights.zeros is None else np.repeat(weights.zeros, times, 0)[:count]
    return replace(weights, scales=np.repeat(weights.scales, times, 0)[:count], zeros=zeros, block=part)


@lowering("rewrite.MatMulBlockwise")
def lower_matmul_blockwise(group: Group, ctx: Context) -> list[Step] | None:
    """f32 [.., M, K] times constant integers [K, N] of four or eight bits, dequantized by blocks of rows.

    Sums are f32. Every weight is exact; a block's sum is scaled, where the definition scales each weight.
    With AVX2 numbers of a single row are rounded to 2^-23 of the largest of 32, for weights of four bits, unless the
    context forbids other rounding."""
    node = group.node
    a, out, weights = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), weights_of(group, ctx)
    if weights is None or a.dtype is not DType.F32 or not a.shape or len(a.shape) < 2 or out.shape is None:
        return None
    if a.shape[-1] != len(weights.codes):
        return None
    epilogue = of_group(group, ctx, Axes(out.shape, 0, len(out.shape) - 1), narrow=True)
    if epilogue is None:
        return None
    return [_step(weights, product(a.shape[:-1]), epilogue, group, ctx)]


def _step(weights: BlockwiseWeights, m: Dim, epilogue: Epilogue, group: Group, ctx: Context) -> Step:
    target, (k, n) = ctx.target, weights.codes.shape
    rows = m if isinstance(m, int) else None
    few, many = rows is None or rows <= FEW, rows is None or rows > FEW
    choice = tiling.choose(target, rows, n, k, threads=ctx.threads, vectors=4 if target.registers >= 32 else 2)
    nr = choice.nv * target.lanes
    padded, blocks = weights.padded, weights.blocks
    kc = k if epilogue.is_narrow else tiling.k_block(target, k, nr, None if rows is None else 2)
    kc = min(k, -(-kc // weights.block) * weights.block)
    corrected = weights.zeros is not None or (weights.bits == 4 and target.isa != "avx512")
    copied = few and (corrected or padded != weights.block or k % weights.block != 0)
    scratch = max(
        min(rows or FEW, FEW) * (padded + 2) * blocks * 4 if copied else 0,
        blocks * (padded * 3 + -(-padded // 32) * 8) if copied else 0,
        kc * nr * 4 if many else 0,
    )
    extents = Extents()
    params = {
        "m": extents(m),
        "n": n,
        "k": k,
        "bits": weights.bits,
        "block": weights.block,
        "padded": padded,
        "blocks": blocks,
        "zeros": weights.zeros is not None,
        "few": few,
        "many": many,
        "limit": min(rows or FEW, FEW),
        "most": rows or FEW,
        "copied": copied,
        "single": weights.bits == 4 and target.isa == "avx2" and ctx.reassociate,
        "kc": kc,
        "ahead": AHEAD,
        "span": blocks if rows == 1 else max(1, SPAN_BYTES // (weights.column_bytes() * nr)),
        "scratch": -(-scratch // 64) * 64,
        "tiles": {**choice.params(str(k), "1", f"{choice.mr * k}", nr, choice.tail * target.lanes), "out": epilogue.c},
        "epilogue": epilogue.params(extents),
    }
    kernel = Kernel("gemm_blockwise", params)
    inputs = (group.node.inputs[0], ctx.add_constant(pack(weights, nr, target), "packed"), *epilogue.values)
    leading = (
        LeadingDimension(0, k, ((("tiles", "a_row"), 1), (("tiles", "a_step"), choice.mr))),
        LeadingDimension(len(inputs), n, ((("c_row",), 1),)),
        *epilogue.leading_dimensions(2, n),
    )
    return launch(
        kernel,
        group,
        inputs,
        (epilogue.output,),
        extents,
        serial_below(product((m, n, k)), SMALL_WORK),
        scratch=params["scratch"],
        in_place=epilogue.in_place(2) if kc == k or not many else (),
        leading_dimensions=leading,
    )


def pack(weights: BlockwiseWeights, nr: int, target: Target) -> NDArray[np.uint8]:
    """Pack weights into panels of `nr` columns, flat, as `gemm_blockwise` reads them; the last panel is narrower."""
    k, n = weights.codes.shape
    width = -(-n // target.lanes) * target.lanes
    codes = np.zeros((weights.blocks, weights.padded, width), np.int8)
    whole = k // weights.block
    codes[:whole, : weights.block, :n] = weights.codes[: whole * weights.block].reshape(whole, weights.block, n)
    if rest := k - whole * weights.block:
        codes[whole, :rest, :n] = weights.codes[whole * weights.block :]
    parts = [_words(codes, target) if weights.bits == 4 else codes.view(np.uint8).reshape(*codes.shape, 1)]
    for grid in (weights.scales, weights.zeros):
        if grid is not None:
            filled = np.zeros((weights.blocks, 1, width), grid.dtype)
            filled[:, 0, :n] = grid
            parts.append(filled.view(np.uint8).reshape(weights.blocks, 1, width, -1))
    packed = aligned((weights.blocks * weights.column_bytes() * width,), np.dtype(np.uint8))
    start = 0
    for first, last in ((0, width // nr * nr), (width // nr * nr, width)):
        if first == last:
            continue
        columns = min(nr, last - first)
        count = (last - first) // columns
        size = weights.blocks * weights.column_bytes() * (last - first)
        to = packed[start : start + size].reshape(count, weights.blocks, -1)
        at = 0
        for part in parts:
            each = part[:, :, first:last].reshape(weights.blocks, part.shape[1], count, -1)
            end = at + part.shape[1] * each.shape[-1]
            to[:, :, at:end].reshape(count, weights.blocks, part.shape[1], -1)[...] = each.transpose(2, 0, 1, 3)
            at = end
        start += size
    return packed


def _words(codes: NDArray[np.int8], target: Target) -> NDArray[np.uint8]:
    """Return codes [blocks, padded, N] of four bits as the bytes of words [blocks, padded / 8, N, 4]."""
    nibbles = codes.view(np.uint8) + np.uint8(8)
    blocks, padded, n = codes.shape
    nibbles = nibbles.reshape(blocks, padded // 8, 4, 2, n)
    pairs = nibbles[:, :, :, 0] | nibbles[:, :, :, 1] << np.uint8(4)
    words = np.ascontiguousarray(pairs.transpose(0, 1, 3, 2))
    if target.isa != "avx512":
        words[..., 3] ^= 0x80
    return words
