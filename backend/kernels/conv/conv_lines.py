"""Lowering of NCHW convolutions of few output channels on copies of lines, which gathered panels would not pay for."""

from __future__ import annotations

import itertools
import math
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
"""Cycles of a sum, of a load beside products, and of the stores of a tile."""
_CHANNELS = 64
"""Most input channels where the width is known at run time only: of narrow images they would be copied for little."""


def lines_step(problem: ConvProblem, ctx: Context) -> Step | None:
    """Return the step of the `conv_lines` kernel; None for what it does not compute, or not fast."""
    window, target = problem.window, ctx.target
    flat = window.kernel[0] == window.stride[0] == 1 and window.inputs[0] == window.outputs[0] == 1
    plain = problem.precision is Precision.F32 and ctx.real is DType.F32 and not problem.computed
    if not flat or not plain or window.stride[2] != 1 or window.taps < _TAPS or problem.m > MOST:
        return None
    height, width = (max(1, ctx.likely(n)) for n in window.outputs[1:])
    if width < target.lanes or (width < 2 * target.lanes and width % target.lanes * 4 < target.lanes * 3):
        return None
    if not isinstance(window.outputs[2], int) and problem.channels > _CHANNELS:
        return None
    strip = math.ceil(width / math.ceil(width / _STRIP) / target.lanes) * target.lanes
    beyond = -(-(window.kernel[2] - 1) * window.dilation[2] // target.lanes) * target.lanes
    line, room = problem.channels * (strip + beyond) * target.element_bytes, target.l2 // 4
    most = ((room // line) - window.reach(1, 1)) // window.stride[1] + 1
    if most < 1:
        return None
    band = block_rows(height, most, ctx.threads)
    lines = window.reach(1, band)
    rows, vectors = _tile(target, problem.m, width, problem.k)
    extents = Extents()
    scratch = -(-(lines * line + target.vector_bytes) // 64) * 64
    params: dict[str, Any] = {
        **problem.params(problem.channels, extents),
        "band": band,
        "strip": strip,
        "lines": lines,
        "beyond": beyond,
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
