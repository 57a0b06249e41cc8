"""Lowering of MatMul and Gemm to the GEMM kernel, in f32, f64 or with operands rounded to bf16.

A constant B is packed at compile time into panels of columns, `[N / NR][K][NR]`, the layout that the micro-kernel
streams. A B known at run time only is read where it lies if it is small or rarely read, else packed by its own step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.symbolic import Dim, product, required_equal
from ...codegen.template_params import float_attr, launch, serial_below
from ...ir.arrays import NewArray, aligned
from ...ir.iteration_space import Access, Extents, collapse, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import LeadingDimension, Step
from ...ir.lower import Context, Group
from ...ir.schedule import Knob, Point, Space
from ...ir.target import Target
from ..registry import lowering
from ..scheduling import at_width, bits_knob, schedule
from . import tiles as tiling
from .dot import dot_steps
from .epilogue import Axes, Epilogue, of_group
from .problem import SMALL_WORK, UNBATCHED, GemmProblem, Matrices, narrowest, pack_step
from .tiles import Precision, Tiles

PACK_WORK = 1 << 15
"""Fewer bytes are copied or quantized by one thread."""
_GROUPED = 256
"""Most rows of A that meet all panels of B before the next rows, in tiles of AMX."""
_MOST_ROWS, _BESIDE_C = 192, 112
"""Most rows of A that meet all panels of B before the next rows, on vectors: where A outgrows the second-level cache,
and where only A and C together do."""
_WIDTHS = {"real": 4, "v_bf16": 2, "v_f16": 2, "uint8_t": 1, "int8_t": 1}
"""Bytes of an element of C, by its C type."""
MANY_ROWS = 300
"""Rows for which any B beyond the first-level cache is packed."""


@lowering("MatMul", f64=True)
def lower_matmul(group: Group, ctx: Context) -> list[Step] | None:
    """MatMul by NumPy's rules: batch dims broadcast, operands of rank 1 are a row or a column."""
    node = group.node
    a, b = (ctx.type(v) for v in node.inputs)
    out = ctx.type(node.outputs[0])
    if any(t.dtype is not ctx.real for t in (a, b, out)) or not a.shape or not b.shape or out.shape is None:
        return None
    a_shape = a.shape if len(a.shape) > 1 else (1, *a.shape)
    b_shape = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = out.shape[: len(out.shape) - (len(a.shape) > 1) - (len(b.shape) > 1)]
    rows, columns = len(batch), len(batch) + (len(a.shape) > 1)
    if all(d == 1 for d in b_shape[:-2]) and len(batch) == len(a_shape) - 2:
        # one matrix B for the whole batch, whose dims are rows as well
        a_shape, batch, rows = (product(a_shape[:-1]), a_shape[-1]), (), 0
        b_shape = b_shape[-2:]
    left, right = _matrices(node.inputs[0], a_shape, batch), _matrices(node.inputs[1], b_shape, batch)
    depth = required_equal(a_shape[-1], b_shape[-2])
    epilogue = of_group(group, ctx, Axes(out.shape, rows, columns), narrow=True)
    if left is None or right is None or depth is None or epilogue is None:
        return None
    m, k, n = a_shape[-2], _number(a_shape[-1], b_shape[-2]), b_shape[-1]
    return gemm_steps(GemmProblem(group, epilogue, left, right, batch, m, n, k, depth), ctx)


@lowering("Gemm", f64=True)
def lower_gemm(group: Group, ctx: Context) -> list[Step] | None:
    """Gemm: alpha * A' * B' + beta * C, where C broadcasts and joins the epilogue."""
    node = group.node
    a, b = (ctx.type(v) for v in node.inputs[:2])
    out = ctx.type(node.outputs[0])
    if any(t.dtype is not ctx.real for t in (a, b, out)) or a.shape is None or b.shape is None or out.shape is None:
        return None
    alpha, beta = float_attr(node, "alpha", 1.0), float_attr(node, "beta", 1.0)
    trans_a, trans_b = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    m, k = reversed(a.shape) if trans_a else a.shape
    k2, n = reversed(b.shape) if trans_b else b.shape
    depth = required_equal(k, k2)
    c = next(iter(node.inputs[2:]), "") if beta != 0.0 else ""
    addend = (c, ctx.type(c), beta) if c else None
    epilogue = of_group(group, ctx, Axes(out.shape, 0, 1), scale=alpha, addend=addend, narrow=True)
    if depth is None or epilogue is None:
        return None
    k = _number(k, k2)
    left = Matrices(node.inputs[0], UNBATCHED, *((1, m) if trans_a else (k, 1)))
    right = Matrices(node.inputs[1], UNBATCHED, *((1, k) if trans_b else (n, 1)))
    return gemm_steps(GemmProblem(group, epilogue, left, right, (), m, n, k, depth), ctx)


def _number(a: Dim, b: Dim) -> Dim:
    """Return the one of two equal dims that is a number, if one is."""
    return b if isinstance(b, int) else a


@lowering("rewrite.MatMulBf16")
def lower_matmul_bf16(group: Group, ctx: Context) -> list[Step] | None:
    """bf16 [.., M, K] times a constant f32 [K, N], rounded to bf16 and packed at compile time; sums are f32.

    The micro-kernel reads words of two bf16 that are neighbors along k, so the product is one of floats with half the
    depth and another multiply-add. Rows that are no whole words, or no whole steps of AMX's tiles, are copied."""
    node = group.node
    a, out = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    weights = ctx.constant(node.inputs[1])
    if weights is None or weights.array.ndim != 2 or weights.array.dtype != np.float32 or not weights.array.size:
        return None
    if a.dtype is not DType.BF16 or not a.shape or out.shape is None or a.shape[-1] != weights.array.shape[0]:
        return None
    epilogue = of_group(group, ctx, Axes(out.shape, 0, len(out.shape) - 1), narrow=True)
    if epilogue is None:
        return None
    rows, k, words = product(a.shape[:-1]), weights.array.shape[0], pair_rows(weights.array)
    copy, direct = (choose_tiles(rows, words, Precision.BF16, ctx, pads) for pads in (True, False))
    if k % 2 == 0 and direct.cycles <= 1.1 * copy.cycles:
        return [packed_gemm_step(node.inputs[0], rows, words, Precision.BF16, epilogue, group, ctx, pads=False)]
    padded, step = padded_rows(node.inputs[0], rows, 2 * k, tiling.padded(copy, len(words)), group, ctx)
    return [step, packed_gemm_step(padded, rows, words, Precision.BF16, epilogue, group, ctx)]


def padded_rows(
    value: str, rows: Dim, nbytes: Dim, words: Dim, group: Group, ctx: Context, signed: bool = False
) -> tuple[str, Step]:
    """Return rows of `nbytes` as rows of words, zeros behind them, and the step that copies them.

    With `signed`, bytes become unsigned by adding 128."""
    extents = Extents()
    padded = ctx.new_value(TensorType(DType.U32, (rows, words)), "padded")
    kernel = Kernel(
        "pad_rows", {"rows": extents(rows), "k": extents(nbytes), "length": extents(4 * words), "signed": signed}
    )
    return padded, launch(kernel, group, (value,), (padded,), extents, serial_below(product((rows, nbytes)), PACK_WORK))


def _matrices(value: str, shape: Sequence[Dim], batch: Sequence[Dim]) -> Matrices | None:
    """View a contiguous tensor as matrices in its last two axes, its other dims broadcast to `batch`."""
    whole = contiguous(value, shape)
    seen = Access(value, whole.shape[:-2], whole.strides[:-2]).broadcast(batch)
    return None if seen is None else Matrices(value, seen, whole.strides[-2], whole.strides[-1])


@dataclass(frozen=True)
class _PackedB:
    """B as the kernel reads it: the value, its strides over the batch, and whether it consists of panels."""

    value: str
    batch: tuple[Dim, ...]
    panels: bool
    row: Dim  # row stride of full panels and of the last one
    tail_row: Dim
    stored: str = "real"  # C type of the elements


def gemm_steps(problem: GemmProblem, ctx: Context) -> list[Step]:
    """Return the steps of a product: packing B where needed, then the GEMM kernel, or dot products."""
    if (steps := dot_steps(problem, ctx)) is not None:
        return steps
    m, n, k, epilogue = problem.m, problem.n, problem.k, problem.epilogue
    weights = ctx.constant(problem.b.value) is not None
    described, schedules = partial(problem.describe, weights=weights), partial(gemm_space, problem, ctx, weights)
    point = schedule(problem.group, ctx, f"gemm {m}x{k}x{n}", described, schedules)
    images = product(problem.batch)

    def chosen(ctx: Context) -> partial[Tiles]:
        return partial(
            tiling.choose,
            ctx.target,
            m if isinstance(m, int) else None,
            n if isinstance(n, int) else None,
            k if isinstance(k, int) else tiling.NOMINAL_ROWS,
            threads=ctx.threads,
            batch=images if isinstance(images, int) and images > 0 else 1,
            tile=str(point.get("tile", "")),
            by_rows=not problem.batch,
        )

    ctx = at_width(point, ctx, lambda ctx: tiling.cycles_by_halves(chosen(ctx)))
    choice = chosen(ctx)()
    choice = replace(choice, near=int(point.get("near", choice.near)))
    nr = choice.nv * ctx.target.lanes
    b, steps = _packed(problem, choice, ctx)
    choice = replace(choice, streams=choice.streams and b.panels)
    kc = 0
    if isinstance(k, int):
        blocks = -(-m // choice.mr) if isinstance(m, int) else None
        kc = tiling.k_block(ctx.target, k, nr, blocks)
        kc = -(-k // int(point["k_parts"])) if "k_parts" in point else kc
        kc = 0 if kc >= k or epilogue.is_narrow else kc  # partial sums are floats
    extents = Extents()
    extents(problem.depth)  # checked when the extents of a run are known
    b_rows = [extents(b.row), extents(b.tail_row)]
    batch = []
    if problem.batch:
        space = collapse(problem.batch, (problem.a.batch.strides, b.batch))
        for extent, a_stride, b_stride in zip(space.extents, *space.strides, strict=True):
            batch.append({"extent": extents(extent), "a": extents(a_stride), "b": extents(b_stride)})
    a_row, a_k, depth = extents(problem.a.row), extents(problem.a.column), extents(k)
    of_rows: tuple[LeadingDimension, ...] = ()
    if isinstance(k, int) and problem.a.row == k and problem.a.column == 1:
        of_rows = (LeadingDimension(0, k, ((("tiles", "a_row"), 1), (("tiles", "a_step"), choice.mr))),)
    # products with weights share kernels, whatever their numbers of rows, terms and columns
    shared = b.panels and not steps and not batch
    rows = f"dims[{extents.variable(m)}]" if shared and isinstance(m, int) else extents(m)
    if shared and of_rows and isinstance(k, int) and not kc and tiling.shares_terms(choice.mr, k):
        depth, place = f"dims[{extents.variable(k)}]", extents.variable(k)
        a_row, of_rows = f"dims[{place}]", (LeadingDimension(0, k, (), ((place, 1),)),)
    columns, leading = _columns(problem, extents, shared)
    narrow = {} if b.stored == "real" else {"stored": b.stored}
    params = {
        "m": rows,
        **columns,
        "k": depth,
        "batch": batch,
        "packed": b.panels,
        "kc": kc,
        "group": int(point.get("group", 0 if kc else group_rows(ctx.target, m, n, k) // choice.mr)),
        "fits": 0 if isinstance(m, int) else ctx.target.l2,  # of known rows, `group` is decided
        "prefetch": int(point.get("prefetch", prefetched_lines(choice, ctx.target, m, n, k))) if b.panels else 0,
        "tiles": {
            **choice.params(a_row, a_k, f"{choice.mr} * (int64_t)({a_row})", *b_rows),
            **tiling.few_rows(ctx.target, choice, m, n),
            **tiling.odd_rows(ctx.target, choice, m, k),
            "out": epilogue.c,
            **narrow,
        },
    }
    kernel = ctx.kernel("gemm", params)
    inputs = (problem.a.value, b.value, *epilogue.values)
    leading = (*of_rows, *leading) if not batch and isinstance(k, int) else ()
    in_place = () if kc else epilogue.in_place(2)
    work = serial_below(problem.macs, SMALL_WORK)
    outputs = (epilogue.output,)
    step = launch(kernel, problem.group, inputs, outputs, extents, work, in_place=in_place, leading_dimensions=leading)
    return [*steps, step]


def _columns(
    problem: GemmProblem, extents: Extents, shared: bool
) -> tuple[dict[str, Any], tuple[LeadingDimension, ...]]:
    """Return the parameters that depend on N, and the leading dimensions of C and the operands.

    If `shared`, N is an entry of `dims`, so that products with any number of columns share a kernel."""
    n, epilogue = problem.n, problem.epilogue
    if not isinstance(n, int):
        return {"n": extents(n), "epilogue": epilogue.params(extents)}, ()
    c = LeadingDimension(2 + len(epilogue.values), n, ((("c_row",), 1),))
    if not shared:
        return {"n": extents(n), "epilogue": epilogue.params(extents)}, (c, *epilogue.leading_dimensions(2, n))
    count, row = extents.variable(n), extents.variable(n)
    written, leading = epilogue.shared_params(extents, 2, n)
    params = {"n": f"dims[{count}]", "c_row": f"dims[{row}]", "epilogue": written}
    return params, (replace(c, params=(), dims=((row, 1),)), *leading)


def gemm_space(problem: GemmProblem, ctx: Context, weights: bool) -> Space:
    """Return the schedules of a product; `weights`: B is constant.

    `k_parts`: blocks of k; `group`: tiles of rows of A that meet all panels of B before the next ones, 0: all;
    `prefetch`: lines of the next panel of B, which is packed, for each step of k; see `tiles` and `scheduling` for the
    others."""
    knobs = [
        tiling.tile_knob(ctx.target),
        Knob("k_parts", () if problem.epilogue.is_narrow else (1, 2, 3, 4, 6, 8)),
        Knob("group", (0, 1, 2, 4, 8, 16)),
        tiling.near_knob(),
        Knob("prefetch", (0, 1, 2, 4) if weights else ()),
        bits_knob(ctx),
    ]
    return Space(("gemm",), tuple(knobs))


def _packed(problem: GemmProblem, choice: Tiles, ctx: Context) -> tuple[_PackedB, list[Step]]:
    """Return B as the kernel reads it, and the step that packs it if it is packed at run time."""
    b, n, k = problem.b, problem.n, problem.k
    nr = choice.nv * ctx.target.lanes
    constant = ctx.constant(b.value)
    if constant is not None and isinstance(n, int) and isinstance(k, int) and n * k > 0:
        transposed = b.row == 1 and b.column != 1
        stored, array = "real", constant.array
        if isinstance(problem.m, int) and problem.m <= choice.mr and array.nbytes > ctx.target.l2:
            stored, array = narrowest(array, ctx.target)
        matrices = array.reshape(-1, n, k).transpose(0, 2, 1) if transposed else array.reshape(-1, k, n)
        value = ctx.add_constant(pack_columns(matrices, nr, ctx.target.lanes, ctx.memory.new), "packed")
        tail = choice.tail * ctx.target.lanes
        size = (n // nr * nr + tail) * k
        return _PackedB(value, tuple(s // (k * n) * size for s in b.batch.strides), True, nr, tail, stored), []
    # many rows read each panel often enough to pay for copying it, unless all of B stays in the first-level cache
    rows, nbytes = problem.m, n * k * ctx.target.element_bytes
    large = isinstance(nbytes, int) and nbytes > ctx.target.l2 // 2 and (not isinstance(rows, int) or rows > 32)
    often = isinstance(nbytes, int) and nbytes > ctx.target.l2 // 32 and isinstance(rows, int) and rows >= MANY_ROWS
    if b.column != 1 or large or often:
        value, strides, step = pack_step(problem, nr, ctx)
        return _PackedB(value, strides, True, nr, nr), [step]
    return _PackedB(b.value, b.batch.strides, False, b.row, b.row), []


def choose_tiles(
    rows: Dim, words: NDArray[Any], precision: Precision, ctx: Context, pads: bool = True, tile: str = ""
) -> Tiles:
    """Return the tiles of a product of [rows, K] with words [K, N]; with `pads`, rows of A may be padded by zeros.

    `tile` is one of `tiles.tile_knob`; a search chooses among those of vectors."""
    k, n = words.shape
    known = rows if isinstance(rows, int) else None
    return tiling.choose_words(
        ctx.target, precision, known, n, k, threads=ctx.threads, run=0 if pads else k, by_rows=True, tile=tile
    )


def words_space(precision: Precision, epilogue: Epilogue, target: Target) -> Space:
    """Return the schedules of a product of words on vectors; knobs are those of `gemm_space`.

    Partial sums of bytes are no floats, so all of k is computed at once."""
    whole = epilogue.is_narrow or precision is Precision.INT8
    knobs = [
        tiling.tile_knob(target),
        Knob("k_parts", () if whole else (1, 2, 3, 4, 6, 8)),
        Knob("group", (0, 1, 2, 4, 8, 16)),
        tiling.near_knob(),
        Knob("prefetch", (0, 1, 2, 4)),
    ]
    return Space(("gemm",), tuple(knobs))


def _words_point(
    rows: Dim, words: NDArray[Any], precision: Precision, epilogue: Epilogue, group: Group, ctx: Context, pads: bool
) -> Point:
    """Return the schedule of a product of [rows, K] with words [K, N]; tiles of AMX have none."""
    k, n = words.shape

    def described(extents: Extents) -> dict[str, Any]:
        sizes = {"sizes": [extents(rows), k, n], "precision": precision.name}
        return {**sizes, "epilogue": {"out": epilogue.c, **epilogue.params(extents)}}

    def space() -> Space | None:
        amx = choose_tiles(rows, words, precision, ctx, pads).amx
        return None if amx else words_space(precision, epilogue, ctx.target)

    return schedule(group, ctx, f"gemm {rows}x{k * precision.value}x{n} {precision.name.lower()}", described, space)


def packed_gemm_step(
    a: str,
    rows: Dim,
    words: NDArray[Any],
    precision: Precision,
    epilogue: Epilogue,
    group: Group,
    ctx: Context,
    pads: bool = True,
) -> Step:
    """Return the step that multiplies [rows, K] with a constant [K, N], both of words of several elements along k.

    With `pads`, rows of A are padded by zeros to the `padded` length that the tiles ask for."""
    point = _words_point(rows, words, precision, epilogue, group, ctx, pads)
    choice = choose_tiles(rows, words, precision, ctx, pads, str(point.get("tile", "")))
    choice = replace(choice, near=int(point.get("near", choice.near)))
    k, n = tiling.padded(choice, len(words)), words.shape[1]
    if len(words) < k:  # most need no copy
        words = np.pad(words, ((0, k - len(words)), (0, 0)))
    nr, lanes = choice.nv * ctx.target.lanes, ctx.target.lanes
    kc = tiling.k_block(ctx.target, k, nr, -(-rows // choice.mr) if isinstance(rows, int) else None)
    kc = -(-k // int(point["k_parts"])) if "k_parts" in point else kc
    if kc >= k or epilogue.is_narrow or precision is Precision.INT8 or choice.amx:
        kc = 0  # partial sums would have to be stored as floats; those of AMX's tiles are in a buffer
    extents = Extents()
    tiles = choice.params(str(k), "1", str(choice.mr * k), nr, choice.tail * lanes)
    params = {
        "m": extents(rows),
        "n": n,
        "k": k,
        "batch": [],
        "packed": True,
        "kc": kc,
        **(grouped_rows(ctx.target, n, k, _WIDTHS[epilogue.c]) if choice.amx else {}),
        **({"group": point["group"], "fits": 0} if point.get("group") else {}),
        "prefetch": int(point.get("prefetch", prefetched_lines(choice, ctx.target, rows, n, k))),
        "tiles": {**tiles, **tiling.few_rows(ctx.target, choice, rows, n), "dot": precision.dot(), "out": epilogue.c},
        "epilogue": epilogue.params(extents),
    }
    macs = rows * n * k
    small = isinstance(macs, int) and 2 * macs < SMALL_WORK
    work = serial_below(macs, SMALL_WORK) if precision is Precision.INT8 else int(small)
    kernel = Kernel("gemm", params)
    inputs = (a, ctx.add_constant(pack_columns(words[None], nr, lanes, ctx.memory.new), "packed"), *epilogue.values)
    in_place = () if kc else epilogue.in_place(2)
    leading = (LeadingDimension(len(inputs), n, ((("c_row",), 1),)), *epilogue.leading_dimensions(2, n))
    if choice.amx and not pads and precision is Precision.BF16:  # tiles load rows at any distance in bytes
        leading = (LeadingDimension(0, 2 * k, ((("tiles", "a_bytes"), 2),)), *leading)
    outputs = (epilogue.output,)
    return launch(kernel, group, inputs, outputs, extents, work, in_place=in_place, leading_dimensions=leading)


def prefetched_lines(choice: Tiles, target: Target, m: Dim, n: Dim, k: Dim, *, alone: bool = False) -> int:
    """Return the cache lines of the next panel of B that a tile prefetches per step of k; 0: none.

    In a network, kernels before have evicted all weights but the smallest from the second-level cache. The hardware's
    prefetchers stop at the ends of pages and see a panel only when its first tile has begun. Spread over all tiles of a
    panel, prefetching the next one costs a load per step. With one tile of rows there is no time to prefetch: memory
    bandwidth decides, unless products are many and small (`alone`)."""
    if isinstance(n, int) and isinstance(k, int) and n * k * target.element_bytes <= target.l2 // 64:
        return 0
    if not isinstance(m, int):
        return 2
    blocks = -(-m // choice.mr)
    return 0 if blocks < 2 and not alone else max(1, -(-choice.nv * target.vector_bytes // (64 * blocks)))


def group_rows(target: Target, m: Dim, n: Dim, k: Dim) -> int:
    """Return MC, the rows of A that meet all panels of B before the next rows; 0: all.

    An A larger than the second-level cache is read from the third for every panel, B for every group of rows. So rows
    are grouped where B is small enough to stay in the third-level cache. A group takes half of the second-level cache,
    but no more than what shares few pages with the rows of C.

    Panel by panel, C is written in parts of lines. So where A and C outgrow the cache only together, rows are grouped
    as well, if B takes at most half of it."""
    if not isinstance(n, int) or not isinstance(k, int) or not 0 < n * k * target.element_bytes <= target.l3 // 8:
        return 0
    size = target.element_bytes
    if isinstance(m, int) and m * k * size <= target.l2:
        together = 2 * m * (k + n) * size > 3 * target.l2 and 2 * n * k * size <= target.l2
        return min(_BESIDE_C, max(32, target.l2 // 2 // (size * k))) if together else 0
    return min(_MOST_ROWS, max(32, target.l2 // 2 // (size * k)))


def grouped_rows(target: Target, n: int, k: int, width: int) -> dict[str, int]:
    """Return the template parameters that group rows of A, of k words, in tiles of AMX: `group` and `fits`.

    Panel by panel of B, a large A comes from the third-level cache once per panel, and C in columns of a cache line.
    Where B stays in the second-level cache, groups of rows meet all panels, so A is read once and C row by row."""
    if n * k * target.element_bytes > target.l2 // 4 or n <= target.lanes * 2:
        return {}
    row = 4 * k
    tall = max(2, min(_GROUPED, target.l2 // 8 // row) // 32)
    return {"group": tall, "fits": target.l2 // 2 // (row + width * n) * row}


def pack_columns(matrices: NDArray[Any], nr: int, lanes: int, new: NewArray = aligned) -> NDArray[Any]:
    """Pack a batch of matrices [..][K][N] into panels of NR columns, flat, in an array that `new` returns.

    Each matrix becomes `[N // NR][K][NR]`, then `[K][w]` with w the remaining columns rounded up to whole vectors;
    missing columns are zero."""
    *batch, k, n = matrices.shape
    count, (full, rest) = math.prod(batch), divmod(n, nr)  # any of them may be zero
    stack = matrices.reshape(count, k, n)
    width = -(-rest // lanes) * lanes
    size = k * (full * nr + width)
    packed = new((count * size,), matrices.dtype)
    each = packed.reshape(count, size)
    panels = each[:, : full * k * nr].reshape(count, full, k, nr)
    panels[...] = stack[:, :, : full * nr].reshape(count, k, full, nr).transpose(0, 2, 1, 3)
    if rest:
        last = each[:, full * k * nr :].reshape(count, k, width)
        last[:, :, :rest] = stack[:, :, full * nr :]
        last[:, :, rest:] = 0
    return packed


def to_bf16(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Return the bits of f32 numbers rounded to bf16, to nearest and ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def pair_rows(matrix: NDArray[Any]) -> NDArray[np.uint32]:
    """Return f32 [.., K, N] as words [.., (K + 1) / 2, N] of two bf16, the one of the smaller k in the low half."""
    *batch, k, n = matrix.shape
    bits = np.zeros((*batch, k + k % 2, n), np.uint16)
    bits[..., :k, :] = to_bf16(matrix)
    return bits[..., ::2, :].astype(np.uint32) | bits[..., 1::2, :].astype(np.uint32) << np.uint32(16)
