"""Lowering of MatMul and Gemm to the GEMM kernel.

A constant right operand is packed at compile time into panels of columns, `[N / nr][K][nr]`, the layout that the
micro-kernel streams. One known at run time is read where it lies if it is small or read few times, else packed by a
step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...engine.graph import DType, TensorType
from ...engine.symbolic import Dim, ceildiv, product, same
from ..arrays import aligned
from ..iteration import Access, Extents, collapse, contiguous
from ..kernel_graph import Pitch, Target
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from . import tiles as tiling
from .epilogue import Axes, Epilogue, of_group
from .tiles import Tiles

SMALL_WORK = 250_000
"""Below this many multiply-adds a second thread costs more than it does."""


@dataclass(frozen=True)
class Matrices:
    """One operand as a batch of matrices: extents and element strides of the batch's dims, strides of the two axes."""

    value: str
    batch: Access
    row: Dim
    column: Dim


@dataclass(frozen=True)
class Product:
    """A batched product C = A * B with C contiguous: `batch` x m x n, over k."""

    a: Matrices
    b: Matrices
    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim


@lowering("MatMul")
def lower_matmul(group: Group, ctx: Context) -> list[Step] | None:
    """MatMul by NumPy's rules: batch dims broadcast, operands of rank 1 are a row or a column."""
    node = group.anchor
    assert node is not None
    a, b = (ctx.type(v) for v in node.inputs)
    out = ctx.type(node.outputs[0])
    if not _f32(a, b, out) or not a.shape or not b.shape or out.shape is None:
        return None
    a_shape = a.shape if len(a.shape) > 1 else (1, *a.shape)
    b_shape = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = out.shape[: len(out.shape) - (len(a.shape) > 1) - (len(b.shape) > 1)]
    rows, columns = len(batch), len(batch) + (len(a.shape) > 1)
    if all(d == 1 for d in b_shape[:-2]) and len(batch) == len(a_shape) - 2:
        # one matrix B for the whole batch: its dims are rows as well
        a_shape, batch, rows = (product(a_shape[:-1]), a_shape[-1]), (), 0
        b_shape = b_shape[-2:]
    left, right = _matrices(node.inputs[0], a_shape, batch), _matrices(node.inputs[1], b_shape, batch)
    if left is None or right is None or not same(a_shape[-1], b_shape[-2]):
        return None
    found = of_group(group, ctx, Axes(out.shape, rows, columns), halves=True)
    if found is None:
        return None
    return lower_product(Product(left, right, batch, a_shape[-2], b_shape[-1], a_shape[-1]), found, group, ctx)


@lowering("Gemm")
def lower_gemm(group: Group, ctx: Context) -> list[Step] | None:
    """Gemm: alpha * A' * B' + beta * C, where C broadcasts and joins the epilogue."""
    node = group.anchor
    assert node is not None
    a, b = (ctx.type(v) for v in node.inputs[:2])
    out = ctx.type(node.outputs[0])
    if not _f32(a, b, out) or a.shape is None or b.shape is None or out.shape is None:
        return None
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))  # type: ignore[arg-type]
    flip_a, flip_b = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    m, k = reversed(a.shape) if flip_a else a.shape
    k2, n = reversed(b.shape) if flip_b else b.shape
    if not same(k, k2):
        return None
    addend = None
    if len(node.inputs) > 2 and node.inputs[2] and beta != 0.0:
        addend = (node.inputs[2], ctx.type(node.inputs[2]), beta)
    found = of_group(group, ctx, Axes(out.shape, 0, 1), scale=alpha, addend=addend, halves=True)
    if found is None:
        return None
    none = contiguous("", ())
    left = Matrices(node.inputs[0], none, *((1, m) if flip_a else (k, 1)))
    right = Matrices(node.inputs[1], none, *((1, k) if flip_b else (n, 1)))
    return lower_product(Product(left, right, (), m, n, k), found, group, ctx)


def _f32(*types: TensorType) -> bool:
    return all(t.dtype is DType.F32 for t in types)


def _matrices(value: str, shape: Sequence[Dim], batch: Sequence[Dim]) -> Matrices | None:
    """A contiguous tensor as matrices in its last two axes, its other dims broadcast to `batch`."""
    whole = contiguous(value, shape)
    seen = Access(value, whole.shape[:-2], whole.strides[:-2]).broadcast(batch)
    return None if seen is None else Matrices(value, seen, whole.strides[-2], whole.strides[-1])


def lower_product(work: Product, epilogue: Epilogue, group: Group, ctx: Context) -> list[Step]:
    """The steps for a product: packing B if it has to be, then the GEMM kernel."""
    m, n, k = work.m, work.n, work.k
    images = product(work.batch)
    choice = tiling.choose(
        ctx.target,
        m if isinstance(m, int) else None,
        n if isinstance(n, int) else None,
        k if isinstance(k, int) else tiling.NOMINAL_ROWS,
        threads=ctx.threads,
        batch=images if isinstance(images, int) and images > 0 else 1,
    )
    extents = Extents()
    steps: list[Step] = []
    names = tuple(node.name for node in group.nodes)
    nr = choice.nv * ctx.target.lanes
    constant = ctx.constant(work.b.value)
    b_value, b_batch = work.b.value, work.b.batch.strides
    panels = True
    b_k: str | int = nr
    tail_k: str | int = nr
    if constant is not None and isinstance(n, int) and isinstance(k, int) and n * k > 0:
        matrices = _constant_matrices(constant.array, work.b, k, n)
        b_value = ctx.add_constant(pack_columns(matrices, nr, ctx.target.lanes), "packed")
        tail_k = choice.tail * ctx.target.lanes
        size = (n // nr * nr + tail_k) * k
        b_batch = tuple(stride // (k * n) * size for stride in b_batch)
    elif _worth_packing(work, ctx.target):
        b_value, b_batch = _pack_step(work, nr, names, steps, ctx)
    else:
        panels = False
        b_k = tail_k = extents(work.b.row)
    kc = 0
    if isinstance(k, int):
        blocks = -(-m // choice.mr) if isinstance(m, int) else None
        kc = tiling.k_block(ctx.target, k, nr, blocks)
        kc = 0 if kc >= k or epilogue.half else kc  # partial sums are floats
    space = collapse(work.batch, (work.a.batch.strides, b_batch)) if work.batch else None
    batch = []
    if space is not None:
        for extent, a_stride, b_stride in zip(space.extents, *space.strides, strict=True):
            batch.append({"extent": extents(extent), "a": extents(a_stride), "b": extents(b_stride)})
    a_row, a_k = extents(work.a.row), extents(work.a.column)
    params = {
        "m": extents(m),
        "n": extents(n),
        "k": extents(k),
        "batch": batch,
        "packed": panels,
        "kc": kc,
        "group": 0 if kc else group_rows(ctx.target, m, n, k) // choice.mr,
        "fits": ctx.target.l2,
        "ahead": lines_ahead(choice, ctx.target, m, n, k) if panels else 0,
        "tiles": {
            **tile_params(choice, a_row, a_k, f"{choice.mr} * (int64_t)({a_row})", b_k, tail_k),
            "out": epilogue.c,
        },
        "epilogue": epilogue.params(extents),
    }
    pitches: tuple[Pitch, ...] = ()
    if not batch and isinstance(n, int) and isinstance(k, int):
        pitches = (Pitch(2 + len(epilogue.values), n, ((("c_row",), 1),)), *epilogue.pitches(2, n))
        if work.a.row == k and work.a.column == 1:
            pitches = (Pitch(0, k, ((("tiles", "a_row"), 1), (("tiles", "a_step"), choice.mr))), *pitches)
    macs = product((*work.batch, m, n, k))
    steps.append(
        Step(
            Kernel("gemm", params, kernel_weight(choice)),
            (work.a.value, b_value, *epilogue.values),
            (epilogue.output,),
            dims=tuple(extents.dims),
            in_place=() if kc else epilogue.in_place(2),
            threads=serial_below(macs, SMALL_WORK),
            nodes=names,
            pitches=pitches,
        )
    )
    return steps


def lines_ahead(choice: Tiles, target: Target, m: Dim, n: Dim, k: Dim) -> int:
    """How many cache lines of the next panel of B a tile should fetch in each step of k; 0: none.

    Weights larger than the second-level cache come from memory once per run; the hardware's prefetchers stop at the
    ends of pages and see a panel only when its first tile has begun. Spread over all tiles of a panel, fetching the
    next one costs a load a step. With one tile of rows there is no time to fetch in: the memory decides."""
    if isinstance(n, int) and isinstance(k, int) and n * k * 4 <= target.l2 // 4:
        return 0
    if not isinstance(m, int):
        return 2
    blocks = -(-m // choice.mr)
    return 0 if blocks < 2 else max(1, -(-choice.nv * target.vector_bytes // (64 * blocks)))


def group_rows(target: Target, m: Dim, n: Dim, k: Dim) -> int:
    """How many rows of A all panels of B should be done for before the next rows; 0: all.

    An A larger than the second-level cache comes from the third for every panel, B for every group of rows. So rows
    are grouped where B is small enough to stay in the third, such that a group takes half of the second, but no more
    than what shares few pages with the rows of C."""
    if not isinstance(n, int) or not isinstance(k, int) or not 0 < n * k * 4 <= target.l3 // 8:
        return 0
    if isinstance(m, int) and m * k * 4 <= target.l2:
        return 0
    return min(192, max(32, target.l2 // 2 // (4 * k)))


def tile_sizes(choice: Tiles) -> dict[str, Any]:
    """A register tile and those at the edges as templates take them."""
    return {
        "mr": choice.mr,
        "nv": choice.nv,
        "rest": list(choice.rest),
        "tail": choice.tail,
        "full": choice.full,
    }


def tile_params(choice: Tiles, a_row: str, a_k: str, a_step: str, b_k: str | int, tail_k: str | int) -> dict[str, Any]:
    """What the macros of `tile.j2` want to know of the tiles and the strides of A and B (C expressions)."""
    return {
        **tile_sizes(choice),
        "a_row": a_row,
        "a_k": a_k,
        "a_step": a_step,
        "b_k": str(b_k),
        "tail_k": str(tail_k),
    }


def kernel_weight(choice: Tiles) -> float:
    """The time to compile the tiles, relative to an elementwise kernel."""
    return 1.0 + (1 + len(choice.rest)) * (choice.full + (choice.tail != 0)) * 0.7


def pack_columns(matrices: NDArray[Any], nr: int, lanes: int) -> NDArray[Any]:
    """A batch of matrices [..][K][N] as panels of nr columns, flat: for each matrix `[N // nr][K][nr]`, then what is
    left, `[K][w]` with w the remaining columns rounded up to whole vectors; missing columns are zero."""
    *_, k, n = matrices.shape
    stack = matrices.reshape(-1, k, n)
    full, rest = divmod(n, nr)
    count = len(stack)
    width = -(-rest // lanes) * lanes
    packed = aligned((count * k * (full * nr + width),), matrices.dtype)
    each = packed.reshape(count, -1)
    panels = each[:, : full * k * nr].reshape(count, full, k, nr)
    panels[...] = stack[:, :, : full * nr].reshape(count, k, full, nr).transpose(0, 2, 1, 3)
    if rest:
        last = each[:, full * k * nr :].reshape(count, k, width)
        last[:, :, :rest] = stack[:, :, full * nr :]
        last[:, :, rest:] = 0
    return packed


def _constant_matrices(array: NDArray[Any], b: Matrices, k: int, n: int) -> NDArray[Any]:
    """A constant B as matrices [images][K][N]."""
    transposed = b.row == 1 and b.column != 1
    return array.reshape(-1, n, k).transpose(0, 2, 1) if transposed else array.reshape(-1, k, n)


def _worth_packing(work: Product, target: Target) -> bool:
    """Whether a B known at run time only is better packed: always if columns aren't contiguous, else if it is large
    and read often."""
    if work.b.column != 1:
        return True
    if not (isinstance(work.n, int) and isinstance(work.k, int)):
        return False
    often = not isinstance(work.m, int) or work.m > 32
    return often and work.n * work.k * 4 > target.l2 // 2


def _pack_step(
    work: Product, nr: int, names: tuple[str, ...], steps: list[Step], ctx: Context
) -> tuple[str, tuple[Dim, ...]]:
    """Adds the step that packs B; the packed value, and its strides over the batch."""
    extents = Extents()
    kind = ctx.type(work.b.value)
    assert kind.shape is not None
    matrix = work.k * work.n
    images = product(kind.shape[:-2])
    panel = ceildiv(work.n, nr) * nr * work.k
    packed = ctx.bytes_value(panel * images * 4, "panels")
    params = {
        "k": extents(work.k),
        "n": extents(work.n),
        "nr": nr,
        "images": extents(images),
        "image_stride": extents(matrix),
        "b_row": extents(work.b.row),
        "b_column": extents(work.b.column),
    }
    steps.append(Step(Kernel("pack", params, 1.5), (work.b.value,), (packed,), dims=tuple(extents.dims), nodes=names))
    whole = contiguous(packed, (*kind.shape[:-2], panel))
    seen = Access(packed, whole.shape[:-1], whole.strides[:-1]).broadcast(work.batch)
    assert seen is not None
    return packed, seen.strides
