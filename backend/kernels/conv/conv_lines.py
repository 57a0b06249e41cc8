"""Lowering of NCHW convolutions of few output channels, on copies of the lines of their images.

Few channels make little of the inputs that `conv` gathers for each tap: it took up to 4.5 times as long."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from ....engine.ir.graph import DType
from ...codegen.template_params import serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ...ir.target import Target
from ..gemm.matmul import pack_columns
from ..gemm.problem import SMALL_WORK
from ..gemm.tiles import Precision
from .problem import ConvProblem, block_rows

MOST = 32
"""Most output channels of a group; with more, a gathered panel is read often enough."""
_TAPS = 3
"""Fewest taps: fewer inputs are gathered about as fast as they are copied."""
_STRIP = 320
"""Most columns of a unit of work."""
_LATENCY, _LOADED, _TILE = 4.0, 0.1, 60.0
"""Cycles of a sum, of what each load adds to the products, and of the stores of a tile."""
_CHANNELS = 64
"""Most input channels where the width is known at run time only: of narrow images they would be copied for little."""


@dataclass(frozen=True)
class Lines:
    """Unit of work: `band` rows and `strip` columns of the result; phases are copied with `beyond` more columns.

    If the width is known at run time only, these are the largest numbers for a likely width: the kernel divides columns
    evenly, and copies more rows of a narrower image."""

    band: int
    strip: int
    beyond: int


def division(problem: ConvProblem, ctx: Context) -> Lines | None:
    """Return the units of the `conv_lines` kernel; None where it cannot compute the problem, or not fast."""
    window, target = problem.window, ctx.target
    flat = window.kernel[0] == window.stride[0] == 1 and window.inputs[0] == window.outputs[0] == 1
    plain = problem.precision is Precision.F32 and ctx.real is DType.F32 and not problem.computed
    if not flat or not plain or window.stride[2] > 2 or window.taps < _TAPS or problem.m > MOST:
        return None
    height, width = (max(1, ctx.likely(n)) for n in window.outputs[1:])
    rest = width % target.lanes * 4
    if width < target.lanes or (width < 2 * target.lanes and 0 < rest < 3 * target.lanes):
        return None
    if not isinstance(window.outputs[2], int) and problem.channels > _CHANNELS:
        return None
    units, strips = problem.groups * max(1, ctx.likely(window.images)), math.ceil(width / _STRIP)
    if units * height * strips < ctx.threads:
        strips = math.ceil(ctx.threads / (units * height))
    strip = math.ceil(width / strips / target.lanes) * target.lanes
    apart = window.stride[2]
    beyond = math.ceil((window.kernel[2] - 1) * window.dilation[2] // apart / target.lanes) * target.lanes
    line = problem.channels * (strip + beyond) * apart * target.element_bytes
    most = ((_room(target) // line) - window.reach(1, 1)) // window.stride[1] + 1
    return None if most < 1 else Lines(block_rows(height, most, ctx.threads), strip, beyond)


def lines_step(problem: ConvProblem, units: Lines, ctx: Context) -> Step:
    """Return the step of the `conv_lines` kernel."""
    window, target = problem.window, ctx.target
    lines = window.reach(1, units.band)
    width = max(1, ctx.likely(window.outputs[2]))
    fixed = isinstance(window.outputs[2], int)
    rows, vectors = _tile(target, problem.m, width, problem.k, fixed)
    extents = Extents()
    line = problem.channels * (units.strip + units.beyond) * window.stride[2]
    room = lines * line if fixed else _room(target) // target.element_bytes
    scratch = -(-(room * target.element_bytes + target.vector_bytes) // 64) * 64
    params: dict[str, Any] = {
        **problem.params(problem.channels, extents),
        "strip": units.strip,
        "beyond": units.beyond,
        "scratch": scratch,
        "tiles": {"mr": rows, "nv": vectors, "out": problem.epilogue.c},
        "widths": _widths(vectors, fixed),
    }
    params |= {"band": units.band, "lines": lines} if fixed else {"room": room}
    columns = problem.w.reshape(problem.groups, problem.m, problem.channels, -1).transpose(0, 3, 2, 1)
    packed = pack_columns(columns.reshape(problem.groups, problem.k, problem.m), rows, rows)
    inputs = (problem.x, ctx.add_constant(packed, "packed"))
    work = serial_below(problem.macs(problem.k), SMALL_WORK)
    return problem.launch(ctx.kernel("conv_lines", params), inputs, extents, work, scratch=scratch)


def _room(target: Target) -> int:
    """Return the bytes of copied lines that leave the second-level cache to others."""
    return target.l2 // 4


def _widths(vectors: int, fixed: bool) -> list[int]:
    """Return the vectors of the tiles of a row, descending.

    What is left of a row of known width is computed one by one, or `_tile` would have chosen another tile. Of others it
    may be most of the row: there each tile is half as wide as the one before."""
    found = [vectors]
    while found[-1] > 1:
        found.append(1 if fixed else -(-found[-1] // 2))
    return found


def _tile(target: Target, m: int, width: int, k: int, fixed: bool = True) -> tuple[int, int]:
    """Return the channels and vectors of a tile: those that compute m channels of a row in the fewest cycles.

    A step takes a cycle for two products, or for two loads, where a vector counts twice: most lie across two lines of
    the cache. Unless the width is `fixed`, rows of one vector to twice as many as the likely one are taken together."""

    def step(rows: int, vectors: int) -> float:
        return max(rows * vectors / 2, (rows + 2 * vectors) / 2, _LATENCY) + _LOADED * (rows + 3 * vectors) + _TILE / k

    def cycles(shape: tuple[int, int]) -> float:
        rows, vectors = shape
        heights = [rows] * (m // rows) + [m % rows] * (m % rows > 0)
        wide = -(-width // target.lanes)
        total = 0.0
        for left in [wide] if fixed else range(1, 2 * wide + 1):
            for tile in _widths(vectors, fixed):
                total += left // tile * sum(step(height, tile) for height in heights)
                left %= tile
        return total

    free = target.registers - 1  # less one without fused multiply-adds, for the product
    shapes = itertools.product(range(1, min(m, 16) + 1), range(1, 9))
    return min((s for s in shapes if s[0] * s[1] + min(s) <= free - (target.isa == "portable")), key=cycles)
