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
from ...ir.kernel import Kernel
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
    """Unit of work: `band` rows and `strip` columns of the result; phases are copied with `beyond` more columns."""

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
    line, room = problem.channels * (strip + beyond) * apart * target.element_bytes, target.l2 // 4
    most = ((room // line) - window.reach(1, 1)) // window.stride[1] + 1
    return None if most < 1 else Lines(block_rows(height, most, ctx.threads), strip, beyond)


def lines_step(problem: ConvProblem, units: Lines, ctx: Context) -> Step:
    """Return the step of the `conv_lines` kernel."""
    window, target = problem.window, ctx.target
    lines = window.reach(1, units.band)
    width = max(1, ctx.likely(window.outputs[2]))
    rows, vectors = _tile(target, problem.m, width, problem.k)
    extents = Extents()
    line = problem.channels * (units.strip + units.beyond) * window.stride[2] * target.element_bytes
    scratch = -(-(lines * line + target.vector_bytes) // 64) * 64
    params: dict[str, Any] = {
        **problem.params(problem.channels, extents),
        "band": units.band,
        "strip": units.strip,
        "beyond": units.beyond,
        "lines": lines,
        "scratch": scratch,
        "tiles": {"mr": rows, "nv": vectors, "out": problem.epilogue.c},
    }
    columns = problem.w.reshape(problem.groups, problem.m, problem.channels, -1).transpose(0, 3, 2, 1)
    packed = pack_columns(columns.reshape(problem.groups, problem.k, problem.m), rows, rows)
    inputs = (problem.x, ctx.add_constant(packed, "packed"))
    work = serial_below(problem.macs(problem.k), SMALL_WORK)
    return problem.launch(Kernel("conv_lines", params), inputs, extents, work, scratch=scratch)


def _tile(target: Target, m: int, width: int, k: int) -> tuple[int, int]:
    """Return the channels and vectors of a tile: those that compute m channels of a row in the fewest cycles.

    A step takes a cycle for two products, or for two loads, where a vector counts twice: most lie across two lines of
    the cache. Vectors behind the last full tile are computed one by one."""

    def step(rows: int, vectors: int) -> float:
        return max(rows * vectors / 2, (rows + 2 * vectors) / 2, _LATENCY) + _LOADED * (rows + 3 * vectors) + _TILE / k

    def cycles(shape: tuple[int, int]) -> float:
        rows, vectors = shape
        full, rest = divmod(-(-width // target.lanes), vectors)
        heights = [rows] * (m // rows) + [m % rows] * (m % rows > 0)
        return sum(full * step(height, vectors) + rest * step(height, 1) for height in heights)

    free = target.registers - 1  # less one without fused multiply-adds, for the product
    shapes = itertools.product(range(1, min(m, 16) + 1), range(1, 9))
    return min((s for s in shapes if s[0] * s[1] + min(s) <= free - (target.isa == "portable")), key=cycles)
