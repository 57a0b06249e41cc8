"""Lowering of matrix products whose operands are rounded to bf16.

The register tile reads words of two bf16 that follow each other along k, so a product of bf16 is one of floats with
half the depth and another multiplication. The constant operand is rounded and packed when compiling, the other one by a
step of its own that costs a hundredth of the product's time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, TensorType
from ...engine.symbolic import Dim, product
from ..iteration import Extents
from ..lower import Context, Group, Kernel, Step, lowering
from . import tiles as tiling
from .epilogue import Axes, Epilogue, of_group
from .matmul import SMALL_WORK, kernel_weight, lines_ahead, pack_columns, tile_params


@lowering("rewrite.MatMulBf16")
def lower_matmul_bf16(group: Group, ctx: Context) -> list[Step] | None:
    """f32 [.., M, K] times a constant f32 [K, N], both rounded to bf16 and summed in f32."""
    node = group.anchor
    assert node is not None
    a, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    weights = ctx.constant(node.inputs[1])
    if weights is None or weights.array.ndim != 2 or weights.array.dtype != np.float32 or not weights.array.size:
        return None
    if a.dtype is not DType.F32 or not a.shape or out.shape is None or a.shape[-1] != weights.array.shape[0]:
        return None
    epilogue = of_group(group, ctx, Axes(out.shape, 0, len(out.shape) - 1), halves=True)
    if epilogue is None:
        return None
    names = tuple(n.name for n in group.nodes)
    rows = product(a.shape[:-1])
    rounded, step = round_rows(node.inputs[0], rows, weights.array.shape[0], names, ctx)
    return [step, product_step(rounded, rows, weights.array, epilogue, names, ctx)]


def product_step(a: str, rows: Dim, b: NDArray[Any], epilogue: Epilogue, names: tuple[str, ...], ctx: Context) -> Step:
    """The step that multiplies bf16 [rows, K], or words of two where K is odd, with f32 [K, N] rounded."""
    k, n = b.shape
    words = (k + 1) // 2
    choice = tiling.choose(ctx.target, rows if isinstance(rows, int) else None, n, words, threads=ctx.threads)
    nr, lanes = choice.nv * ctx.target.lanes, ctx.target.lanes
    kc = tiling.k_block(ctx.target, words, nr, -(-rows // choice.mr) if isinstance(rows, int) else None)
    kc = 0 if kc >= words or epilogue.half else kc  # partial sums would have to be kept as floats
    extents = Extents()
    panels = pack_columns(pair_rows(b)[np.newaxis], nr, lanes)
    tiles = tile_params(choice, str(words), "1", str(choice.mr * words), nr, choice.tail * lanes)
    params = {
        "m": extents(rows),
        "n": n,
        "k": words,
        "batch": [],
        "packed": True,
        "kc": kc,
        "ahead": lines_ahead(choice, ctx.target, rows, n, words),
        "tiles": {**tiles, "dot": "bf16", "out": epilogue.c},
        "epilogue": epilogue.params(extents),
    }
    macs = product((rows, n, k))
    return Step(
        Kernel("gemm", params, kernel_weight(choice)),
        (a, ctx.add_constant(panels, "packed"), *epilogue.values),
        (epilogue.output,),
        dims=tuple(extents.dims),
        in_place=() if kc else epilogue.in_place(2),
        threads=1 if isinstance(macs, int) and macs < SMALL_WORK else 0,
        nodes=names,
    )


def round_rows(value: str, rows: Dim, k: int, names: tuple[str, ...], ctx: Context) -> tuple[str, Step]:
    """The step that rounds f32 [rows, k] to bf16, and its result: `[rows][(k + 1) / 2]` words of two."""
    extents = Extents()
    rounded = ctx.new_value(TensorType(DType.U32, (rows, (k + 1) // 2)), "rounded")
    params = {"rows": extents(rows), "k": k, "even": k % 2 == 0}
    count = product((rows, k))
    return rounded, Step(
        Kernel("round_rows", params),
        (value,),
        (rounded,),
        dims=tuple(extents.dims),
        threads=1 if isinstance(count, int) and count < 1 << 15 else 0,
        nodes=names,
    )


def to_bf16(array: NDArray[Any]) -> NDArray[np.uint16]:
    """The bits of f32 numbers rounded to bf16, to nearest and ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def pair_rows(matrix: NDArray[Any]) -> NDArray[np.uint32]:
    """f32 [.., K, N] as words [.., (K + 1) / 2, N] of two bf16, the one of the smaller k in the low half."""
    *batch, k, n = matrix.shape
    bits = np.zeros((*batch, k + k % 2, n), np.uint16)
    bits[..., :k, :] = to_bf16(matrix)
    return bits[..., ::2, :].astype(np.uint32) | bits[..., 1::2, :].astype(np.uint32) << np.uint32(16)
