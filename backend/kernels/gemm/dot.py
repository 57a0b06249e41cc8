"""Products with one or few columns, as dot products along k.

The GEMM kernel holds columns in the lanes of vectors, so a product with one column would leave all lanes but one empty,
and read A with a stride. Here the lanes run along k: A is read once, as it lies, at the speed of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import launch, serial_below
from ...ir.iteration_space import Extents, collapse
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ...ir.schedule import Knob, Point, Space
from ..scheduling import at_width, bits_knob, schedule
from .epilogue import Epilogue
from .problem import SMALL_WORK, GemmProblem, Matrices, narrowest, pack_step

_COLUMNS, _DEEP_COLUMNS = 4, 6
"""Most columns, and most of them where k has `_DEEP_STEPS` vectors or more and sums of four rows fit the registers. The
more there are, the fuller the vectors of the GEMM kernel."""
_DEEP_STEPS = 16
_LEAST_ROWS = 16
"""Fewest rows of A for which B is transposed by a step of its own."""
_LEAST_STEPS = 4
"""Fewest vectors of k: each row ends with a sum across lanes."""


@dataclass(frozen=True)
class _Dot:
    """Long rows of A and the n rows of B that each is multiplied with; both are contiguous along k."""

    long: Matrices
    short: Matrices
    m: Dim
    n: int
    epilogue: Epilogue


def dot_steps(problem: GemmProblem, ctx: Context) -> list[Step] | None:
    """Return the step of a product with few columns, or with one row and B transposed; None for any other."""
    k = problem.k
    if isinstance(k, int) and k < _LEAST_STEPS * ctx.target.lanes:
        return None
    dot, steps = _oriented(problem, ctx) or (None, [])
    if dot is None:
        return None
    extents = Extents()
    extents(problem.depth)  # checked when the extents of a run are known
    long, stored = dot.long, "real"
    constant = ctx.constant(long.value)
    if constant is not None and constant.array.nbytes > ctx.target.l2:
        stored, array = narrowest(constant.array, ctx.target)
        if stored != "real":
            long = replace(long, value=ctx.add_constant(array, "narrow"))
    batch = []
    if problem.batch:
        space = collapse(problem.batch, (long.batch.strides, dot.short.batch.strides))
        for extent, a_stride, b_stride in zip(space.extents, *space.strides, strict=True):
            batch.append({"extent": extents(extent), "a": extents(a_stride), "b": extents(b_stride)})
    described = partial(problem.describe, weights=constant is not None)
    label = f"dot {problem.m}x{k}x{problem.n}"
    point = schedule(problem.group, ctx, label, described, partial(dot_space, dot.n, ctx))
    ctx = at_width(point, ctx)
    rows = int(point.get("rows", 4 if dot.n < 3 or ctx.target.registers >= 32 else 2))
    params = {
        "m": extents(dot.m),
        "n": dot.n,
        "k": extents(k),
        "batch": batch,
        "a_row": extents(long.row),
        "b_row": extents(dot.short.row),
        "rows": rows,
        "unroll": int(point.get("unroll", 2 if dot.n == 1 else 1)),
        "out": dot.epilogue.c,
        "stored": stored,
        "epilogue": dot.epilogue.params(extents),
    }
    inputs = (long.value, dot.short.value, *dot.epilogue.values)
    work = serial_below(product((*problem.batch, dot.m, dot.n, k)), SMALL_WORK)
    outputs = (dot.epilogue.output,)
    in_place = dot.epilogue.in_place(2)
    step = launch(ctx.kernel("dot", params), problem.group, inputs, outputs, extents, work, in_place=in_place)
    return [*steps, step]


def dot_space(columns: int, ctx: Context) -> Space:
    """Return the schedules of dot products of a number of columns: rows at once, and vectors of a step of k.

    Their sums, a vector of each row and those of B fit the registers. See `scheduling` for the other knob."""

    def constraint(point: Point) -> bool:
        rows, unroll = int(point.get("rows", 2)), int(point.get("unroll", 1))
        return rows * unroll * columns + columns < ctx.target.registers

    knobs = (Knob("rows", (1, 2, 3, 4, 6, 8)), Knob("unroll", (1, 2, 4)), bits_knob(ctx))
    return Space(("dot",), knobs, constraint)


def _oriented(problem: GemmProblem, ctx: Context) -> tuple[_Dot, list[Step]] | None:
    """Return a product as dot products, and the step that transposes B if one does.

    None if rows of A are not contiguous along k, or if columns are many."""
    a, b, m, n = problem.a, problem.b, problem.m, problem.n
    if a.column != 1:
        return None
    if n == 1 and b.row == 1:
        flat = _rows_as_columns(problem.epilogue)
        return None if flat is None else (_Dot(a, _turned(b), m, 1, flat), [])
    if m == 1 and b.row == 1 and ctx.constant(b.value) is None:
        return _Dot(_turned(b), a, n, 1, problem.epilogue), []
    if not isinstance(n, int) or not 1 < n <= _most_columns(problem.k, ctx):
        return None
    if b.row == 1:
        return _Dot(a, _turned(b), m, n, problem.epilogue), []
    constant = ctx.constant(b.value)
    if constant is not None and isinstance(problem.k, int) and b.column == 1 and b.row == n:
        rows = np.ascontiguousarray(constant.array.reshape(-1, problem.k, n).transpose(0, 2, 1))
        return _Dot(a, Matrices(ctx.add_constant(rows, "rows"), b.batch, problem.k, 1), m, n, problem.epilogue), []
    if isinstance(m, int) and m < _LEAST_ROWS:
        return None
    value, strides, step = pack_step(problem, 1, ctx)  # panels of one column
    packed = Matrices(value, replace(b.batch, value=value, strides=strides), problem.k, 1)
    return _Dot(a, packed, m, n, problem.epilogue), [step]


def _most_columns(k: Dim, ctx: Context) -> int:
    deep = isinstance(k, int) and k >= _DEEP_STEPS * ctx.target.lanes and ctx.target.registers >= 32
    return min(_DEEP_COLUMNS if deep else _COLUMNS, ctx.target.lanes // 2)


def _turned(b: Matrices) -> Matrices:
    """Return B transposed."""
    return replace(b, row=b.column, column=b.row)


def _rows_as_columns(epilogue: Epilogue) -> Epilogue | None:
    """Return the epilogue of a result with one column in terms of its transpose, which lies in memory alike."""
    if any(operand.strides[1] not in (0, 1) for operand in epilogue.operands):
        return None
    turned = tuple(replace(o, strides=(o.strides[0], 0, 1 if o.strides[1] == 1 else 0)) for o in epilogue.operands)
    return replace(epilogue, operands=turned)
