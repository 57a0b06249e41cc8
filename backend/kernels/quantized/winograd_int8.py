"""Winograd's minimal filtering F(2 x 2, 3 x 3) for NHWC int8 convolutions, exactly.

Without an instruction for products of four bytes, pairs of numbers of 16 bits are multiplied (`vpmaddwd`), and these
have room for what the transforms make of bytes: four inputs are added at most, and filters, transformed by 2G instead
of G to stay whole, are at most nine bytes. The sums are four times those of the convolution, and are divided at the
end. It takes 2.25 times fewer products. F(4 x 4, 3 x 3) would need more bits. After Lavin and Gray, "Fast Algorithms
for Convolutional Neural Networks", CVPR 2016.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.cost.conv_cycles import FILTERED_CHANNELS
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ...ir.schedule import DEFAULT, Knob, Point
from ..conv import winograd
from ..conv.problem import ConvProblem
from ..gemm.matmul import prefetched_lines
from ..scheduling import Only

_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int32)
_TILES = ("6x2", "5x2", "4x2")
"""Register tiles whose sums, with a product beside them, fit 16 registers."""


_SEARCHED = (*_TILES, "3x2", "3x3", "3x4", "2x4", "2x5", "4x3", "1x8")
"""Register tiles that a search tries."""


def plan(problem: ConvProblem, ctx: Context, point: Point = DEFAULT) -> winograd.Algorithm | None:
    """Return the best blocking by the model of `winograd`; None for other filters or strides, and for few channels."""
    m, c, lanes, window = problem.m, problem.channels, ctx.target.lanes, problem.window
    if m < 2 * lanes or not 2 * lanes <= c <= FILTERED_CHANNELS or window.kernel[0] != 1 or window.outputs[0] != 1:
        return None
    if window.dilation != (1, 1, 1):
        return None
    words = replace(problem, w=np.broadcast_to(np.int8(0), (m * problem.groups, -(-c // 2), *problem.w.shape[2:])))
    tiles = (str(point["tile"]),) if "tile" in point else _TILES
    points = ({**point, "algorithm": "winograd2", "filters": "stored", "tile": tile} for tile in tiles)
    found = [winograd.plan(words, ctx, nhwc=True, point=each) for each in points]
    return min((algorithm for algorithm in found if algorithm is not None), key=lambda a: a.cost, default=None)


def knobs(only: Only) -> list[Knob]:
    """Return the knobs of the algorithm: those of `winograd.knobs`, without filters transformed at run time."""
    return [
        Knob("tile", _SEARCHED, only),
        Knob("tiles", (8, 14, 28, 56, 84, 112), only),
        Knob("prefetch", (0, 1, 2, 4), only),
    ]


def winograd_step(
    problem: ConvProblem,
    algorithm: winograd.Algorithm,
    inputs: tuple[str, ...],
    shared: dict[str, Any],
    ctx: Context,
    point: Point = DEFAULT,
) -> Step:
    """Return the step. `inputs` are x and, if known at run time only, its zero point; `shared` parameters of these."""
    lanes, groups, window, epilogue = ctx.target.lanes, problem.groups, problem.window, problem.epilogue
    m, k, free = problem.m, -(-problem.channels // 2), not problem.window.is_known
    limits = winograd.block_limits(algorithm, ctx.target, window, k)
    choice, most = limits.tiles, limits.most
    nr = choice.nv * lanes
    ldv = -(-k // lanes) * lanes + 16
    v_plane, s_plane = (winograd.plane((most + (limits.least if free else 0)) * n) for n in (ldv, nr))
    scratch = -(-16 * (v_plane + s_plane) * 4 // 64) * 64
    panels, rest = -(-m // nr), choice.tail * lanes
    last = rest if rest and panels * nr > m else nr
    extents = Extents()
    params = {
        **winograd.image_params(problem, extents),
        "m": m,
        "c": problem.channels,
        "k": k,
        "panels": panels,
        "last_width": last,
        "filters": 16 * k * ((panels - 1) * nr + last),
        "x_row": problem.channels * groups,
        "y_row": m * groups,
        "least": limits.least,
        "most": most,
        "most_rows": limits.rows,
        "most_columns": limits.columns,
        "scratch": scratch,
        "ldv": ldv,
        "v_plane": v_plane,
        "s_plane": s_plane,
        "prefetch": int(point.get("prefetch", prefetched_lines(choice, ctx.target, most, 16 * m, k, alone=True))),
        "tiles": choice.params(str(ldv), "1", f"{choice.mr} * {ldv}", nr, rest) | {"dot": "s16"},
        "by_vector": epilogue.is_long,
        "epilogue": epilogue.params(extents),
        **shared,
    }
    filters = [transformed(g, nr, lanes) for g in problem.w.reshape(groups, m, problem.channels, 3, 3)]
    packed = ctx.add_constant(np.concatenate(filters), "packed")
    return problem.launch(Kernel("winograd_nhwc_int8", params), (*inputs, packed), extents, scratch=scratch)


def transformed(w: NDArray[np.int8], nr: int, lanes: int) -> NDArray[np.uint32]:
    """Return filters [M, C, 3, 3] as 2G w 2G' in words of two channels, packed `[panel][xi][word][NR]`, flat."""
    m, c = w.shape[:2]
    wide = np.pad(w, ((0, -m % lanes), (0, c % 2), (0, 0), (0, 0))).astype(np.int32)
    places = np.einsum("ia,mcab,jb->ijcm", _G, wide, _G, optimize=True).astype(np.int16).view(np.uint16)
    halves = places.reshape(16, -1, 2, wide.shape[0]).astype(np.uint32)
    words = halves[:, :, 0] | halves[:, :, 1] << np.uint32(16)
    return np.concatenate([words[:, :, j : j + nr].reshape(-1) for j in range(0, m, nr)])
