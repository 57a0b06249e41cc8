"""NHWC convolutions by AMX that read the taps of a filter where they lie, in planes of the input.

AMX loads rows at equal distances: the inputs of neighboring pixels under one tap, if their lines follow each other with
the padding between them. The input under a block of output rows is copied so once, not once per tap, to one plane for
each place within a stride. Of few channels a line of the filter is one run, so columns stay as they lie, and rows are a
stride apart.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

from numpy.typing import NDArray

from ....engine.cost.conv_cycles import FEW_CHANNELS
from ...codegen.template_params import serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..gemm import tiles as tiling
from ..gemm.matmul import pack_columns, prefetched_lines
from ..gemm.problem import SMALL_WORK
from ..gemm.tiles import Tiles
from .problem import COPIED_SHARE, ConvProblem, Window, block_rows, known

WIDENED = 4
"""Largest number of channels of NCHW images, in whole words, that the copy to planes interleaves."""


@dataclass(frozen=True)
class Run:
    """Taps that are neighbors in a plane: the plane's number, the shifts of line and column, and the taps' numbers."""

    plane: int
    line: int
    column: int
    taps: tuple[int, ...]


@dataclass(frozen=True)
class Planes:
    """Places of the taps of a filter. A plane has `lines` and `columns` more than the outputs.

    A place has `pitch` columns of the input; shifts of columns count these."""

    runs: tuple[Run, ...]
    count: int
    lines: int
    columns: int
    pitch: int

    @classmethod
    def of(cls, window: Window, channels: int) -> Planes:
        """Return the planes of a window over two dims."""
        (_, height, width), (_, down, across), (_, high, wide) = window.kernel, window.stride, window.dilation
        pitch = across if channels <= FEW_CHANNELS and wide == 1 else 1
        across //= pitch
        places = []
        for number, (i, j) in enumerate(itertools.product(range(height), range(width))):
            row, column = i * high, j * wide
            places.append((i, row % down * across + column % across, row // down, column // across, number))
        runs: list[Run] = []
        for line, plane, row, column, number in sorted(places):
            same = runs and (runs[-1].plane, runs[-1].taps[-1] // width) == (plane, line)
            if same and runs[-1].column + len(runs[-1].taps) == column:
                runs[-1] = Run(plane, row, runs[-1].column, (*runs[-1].taps, number))
            else:
                runs.append(Run(plane, row, column, (number,)))
        last = (width - 1) * wide
        columns = last // across if pitch == 1 else max(0, -(-(last + 1) // pitch) - 1)
        return cls(tuple(runs), down * across, (height - 1) * high // down, columns, pitch)

    def elements(self, rows: int, columns: int, channels: int) -> int:
        """Return the largest number of elements of all planes under a block of rows x columns pixels."""
        return self.count * ((rows + self.lines) * (columns + self.columns) + self.columns) * self.pitch * channels


def plane_step(
    problem: ConvProblem,
    words: NDArray[Any],
    inputs: tuple[str, ...],
    params: dict[str, Any],
    ctx: Context,
    *,
    in_place: bool = True,
    leads: bool = True,
    channels_first: bool = False,
) -> Step | None:
    """Return the step, None where the CPU has no AMX for it, or vectors or a copy per tap are faster.

    `words` are the weights, [groups, taps, words of a tap, M / groups], `inputs` those before them, `params` the
    parameters of zero points; y has a leading dimension if `leads`. With `channels_first`, x is NCHW and f32."""
    window, target, epilogue, groups = problem.window, ctx.target, problem.epilogue, problem.groups
    size = 4 // problem.precision.value
    c = problem.precision.words(problem.channels) * problem.precision.value
    flat = window.kernel[0] == window.outputs[0] == window.inputs[0] == 1 and window.pad[0] == 0
    if not flat or window.taps == 1:
        return None
    planes = Planes.of(window, c)
    if channels_first and (problem.groups > 1 or c > WIDENED or planes.count != window.stride[1]):
        return None  # columns that do not stay as they lie
    rows, columns, choice = blocking(problem, planes, ctx)
    if not choice.amx:
        return None
    shapes = [(rows, columns)] if window.is_known else [(rows, columns), (1, rows * columns), (rows * columns, 1)]
    scratch = -(-max(planes.elements(*shape, c) for shape in shapes) * size // 64) * 64
    order = [tap for run in planes.runs for tap in run.taps]
    k = c * size // 4 * window.taps
    packed = pack_columns(words[:, order].reshape(groups, k, problem.m), choice.nv * target.lanes, target.lanes)
    extents = Extents()
    all_params = {
        **problem.params(problem.channels * groups, extents),
        "bytes": size,
        "channels_first": channels_first,
        "runs": [[run.plane, run.line, run.column, len(run.taps)] for run in planes.runs],
        "lines": planes.lines,
        "columns": planes.columns,
        "pitch": planes.pitch,
        "shares": window.stride[2] == 1,
        "block": rows * columns,
        "most": columns,
        "prefetch": prefetched_lines(choice, target, rows * columns, problem.m, k),
        "scratch": scratch,
        "tiles": {**choice.sizes, "dot": problem.precision.dot(), "out": epilogue.c},
        **params,
    }
    leading = epilogue.row_leading_dimensions(problem.channels * groups, problem.m * groups) if leads else ()
    leading = leading[channels_first:]
    kernel, work = Kernel("conv_planes", all_params), serial_below(problem.macs(k), SMALL_WORK)
    constants = (*inputs, ctx.add_constant(packed, "packed"))
    return problem.launch(kernel, constants, extents, work, in_place, scratch=scratch, leading_dimensions=leading)


def blocking(problem: ConvProblem, planes: Planes, ctx: Context) -> tuple[int, int, Tiles]:
    """Return the maximum number of rows in a block and of pixels in a row of it, and the tiles."""
    window, target, words = problem.window, ctx.target, problem.precision.words(problem.channels)
    _, height, width = (max(1, ctx.likely(dim)) for dim in window.outputs)
    copied = words * planes.count * planes.pitch
    room = target.l2 // COPIED_SHARE // (4 * copied)
    columns = width
    while columns > 1 and (1 + planes.lines) * (columns + planes.columns) > room:
        columns = -(-columns // 2)
    most = max(1, room // (columns + planes.columns) - planes.lines) if columns == width else 1
    rows = block_rows(height, most, ctx.threads if problem.batch == 1 else 1)
    run = reduce(math.gcd, (len(run.taps) * words for run in planes.runs))
    blocks = math.ceil(height / rows)
    places = blocks * ((rows - 1) * (columns + planes.columns) + columns) * math.ceil(width / columns)
    choice = tiling.choose_words(
        target,
        problem.precision,
        places if known(window.pixels) else None,
        problem.m,
        words * window.taps,
        threads=ctx.threads,
        batch=problem.batch,
        run=run,
        copied=copied,
        by_rows=True,
    )
    return rows, columns, choice
