"""Products of int8 matrices of which the right one is known at run time only: a step of its own packs it.

That step also finds the sums of its columns, with which the zero points of both operands are subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.symbolic import Dim, ceildiv, product, required_equal
from ...codegen.template_params import launch, serial_below
from ...ir.iteration_space import Access, Extents, collapse, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ..gemm import tiles as tiling
from ..gemm.epilogue import Axes, same_shape
from ..gemm.matmul import PACK_WORK, padded_rows, prefetched_lines
from ..gemm.problem import SMALL_WORK
from ..gemm.tiles import Precision, Tiles
from .requantize import INT8, Operands, Sums, requantized_epilogue

_BYTES = {DType.U8: "uint8_t", DType.I8: "int8_t"}


def variable_product(group: Group, ctx: Context, operands: Operands) -> list[Step] | None:
    """Return the steps of a product [.., M, K] x [.., K, N] of any two int8 types; batch dims broadcast.

    The zero point of A is one number or one per row, that of B one or one per column; None for others."""
    a, b, out = operands.type, ctx.type(operands.w), ctx.type(group.node.outputs[0])
    if a.dtype not in INT8 or b.dtype not in INT8 or not a.shape or not b.shape or out.shape is None:
        return None
    if len(a.shape) < 2 or len(b.shape) < 2 or (depth := required_equal(a.shape[-1], b.shape[-2])) is None:
        return None
    k, n = b.shape[-2] if isinstance(b.shape[-2], int) else a.shape[-1], b.shape[-1]
    if 0 in (k, n):
        return None
    batched = any(d != 1 for d in b.shape[:-2])
    batch, m = (out.shape[:-2], a.shape[-2]) if batched else ((), product(a.shape[:-1]))
    copied = a.dtype is DType.I8 or not isinstance(k, int) or k % 4 != 0
    choice = _tiles(batch, m, n, k, copied, ctx)
    words = ceildiv(ceildiv(k, 4), choice.amx or 1) * (choice.amx or 1)
    made = _packed(group, operands, choice, (k, n, words), ctx)
    if made is None:
        return None
    packing, packed, sums = made
    steps: list[Step] = [packing, *sums.steps]
    scaled = operands.scaled(sums, n if isinstance(n, int) else 1, (n,) if isinstance(n, int) else (1,))
    requantized = scaled and requantized_epilogue(group, ctx, Axes(out.shape, len(batch), len(out.shape) - 1), scaled)
    value = operands.x
    if copied:
        value, step = padded_rows(value, product(a.shape[:-1]), k, words, group, ctx, a.dtype is DType.I8)
        steps.append(step)
    rows, panels = (
        contiguous(value, (*a.shape[:-1], words)),
        contiguous(packed, (*b.shape[:-2], _size(choice, n, words, ctx))),
    )
    left = Access(value, rows.shape[:-2], rows.strides[:-2]).broadcast(batch) if batched else None
    right = Access(packed, panels.shape[:-1], panels.strides[:-1]).broadcast(batch) if batched else None
    if not requantized or (batched and (left is None or right is None)):
        return None
    epilogue, extents, dims = requantized.epilogue, Extents(), []
    extents(depth)  # checked when the extents of a run are known
    if left is not None and right is not None:
        space = collapse(batch, (left.strides, right.strides))
        for extent, a_stride, b_stride in zip(space.extents, *space.strides, strict=True):
            dims.append({"extent": extents(extent), "a": extents(a_stride), "b": extents(b_stride)})
    row, nr = extents(words), choice.nv * ctx.target.lanes
    tiles = choice.params(row, "1", f"{choice.mr} * (int64_t)({row})", nr, _tail(choice, ctx))
    params: dict[str, Any] = {
        "m": extents(m),
        "n": extents(n),
        "k": row,
        "batch": dims,
        "packed": True,
        "kc": 0,
        "prefetch": prefetched_lines(choice, ctx.target, m, n, words),
        "tiles": {**tiles, "dot": Precision.INT8.dot(), "out": epilogue.c},
        "epilogue": epilogue.params(extents),
    }
    work = serial_below(product((*batch, m, n, words)), SMALL_WORK)
    inputs = (value, packed, *epilogue.values)
    return [*steps, launch(Kernel("gemm", params), group, inputs, (epilogue.output,), extents, work)]


def _tiles(batch: tuple[Dim, ...], m: Dim, n: Dim, k: Dim, copied: bool, ctx: Context) -> Tiles:
    """Return the tiles of the product; rows of A that are copied may be padded by zeros."""
    images, words = product(batch), ceildiv(k, 4)
    return tiling.choose_words(
        ctx.target,
        Precision.INT8,
        m if isinstance(m, int) else None,
        n if isinstance(n, int) else None,
        words if isinstance(words, int) else tiling.NOMINAL_ROWS,
        threads=ctx.threads,
        batch=images if isinstance(images, int) and images > 0 else 1,
        run=words if isinstance(words, int) and not copied else 0,
        by_rows=not batch,
    )


def _tail(choice: Tiles, ctx: Context) -> int:
    """Return the columns of the last panel, of whole vectors."""
    return (choice.tail if choice.tail > 0 else choice.nv) * ctx.target.lanes


def _size(choice: Tiles, n: Dim, words: Dim, ctx: Context) -> Dim:
    """Return the words of a packed matrix."""
    nr = choice.nv * ctx.target.lanes
    rest = _tail(choice, ctx) if choice.tail > 0 else 0
    return words * ((n // nr * nr + rest) if choice.tail >= 0 else ceildiv(n, nr) * nr)


def _packed(
    group: Group, operands: Operands, choice: Tiles, sizes: tuple[Dim, Dim, Dim], ctx: Context
) -> tuple[Step, str, Sums] | None:
    """Return the step that packs B, the packed value, and what is to be added to the products; see `pack_int8.c.j2`.

    `sizes` are K, N and the words of a column."""
    (k, n, words), a, b = sizes, operands.type.shape or (), ctx.type(operands.w).shape or ()
    extents, images = Extents(), product(b[:-2])
    columns = TensorType(DType.I32, (*b[:-2], 1, n) if images != 1 else (n,))
    zeros = operands.row_zeros()
    terms = ZeroTerms.of(operands, n, columns, TensorType(DType.I32, (n,)), by_rows=zeros is not None)
    if terms is None:
        return None
    packed = ctx.bytes_value(product((4, images, _size(choice, n, words, ctx))), "panels")
    params = {
        "k": extents(k),
        "n": extents(n),
        "words": extents(words),
        "images": extents(images),
        "size": extents(_size(choice, n, words, ctx)),
        "nr": choice.nv * ctx.target.lanes,
        "tail": _tail(choice, ctx),
        **terms.params,
    }
    work = serial_below(product((images, n, k)), PACK_WORK)
    step = launch(Kernel("pack_int8", params), group, terms.inputs, (packed, *terms.outputs), extents, work)
    sums = Sums(terms.addends)
    if zeros is not None:
        sums = Sums((), (zeros[0],), rows=((zeros[1], terms.addends[0]),))
    if terms.shifts is not None:
        row = TensorType(DType.I32, (*a[:-1], 1))
        found = ctx.new_value(row, "row_sums")
        added = operands.row_sums_step(found, a)
        sums = replace(sums, steps=(*sums.steps, added), rows=(*sums.rows, ((found, row), terms.shifts)))
    return step, packed, sums


@dataclass(frozen=True)
class ZeroTerms:
    """What zero points of x and of weights known at run time only add to sums of products; see `pack_int8.c.j2`.

    Attributes:
        params: of the template that packs the weights.
        inputs: of that template.
        addends: a number per column, if any is added, with the type that it is viewed with.
        shifts: the factors of the sums of x, if any are added.
    """

    params: Mapping[str, Any]
    inputs: tuple[str, ...]
    addends: tuple[tuple[str, TensorType], ...]
    shifts: tuple[str, TensorType] | None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Values that the template writes beside the packed weights."""
        return tuple(value for value, _ in (*self.addends, *([self.shifts] if self.shifts else [])))

    @classmethod
    def of(
        cls, operands: Operands, count: Dim, addend: TensorType, shift: TensorType, *, by_rows: bool = False
    ) -> ZeroTerms | None:
        """Return the terms of operands with `count` columns; None if x has several zero points, or types do not fit.

        `addend` and `shift` are the types that a number per column is viewed with. If the zero points of x are one per
        row (`by_rows`), the addends are what each of them is to be multiplied by."""
        ctx, x, w = operands.ctx, operands.type, operands.ctx.type(operands.w)
        x_zero = "" if by_rows else operands.x_zero
        y, z = (ctx.type(v) if v else None for v in (x_zero, operands.w_zero))
        if (
            x.dtype not in _BYTES
            or w.dtype not in _BYTES
            or (y is not None and (y.dtype is not x.dtype or not _one(y)))
        ):
            return None
        if z is not None and (z.dtype is not w.dtype or not (_one(z) or same_shape(z.shape, (count,)))):
            return None
        zero = ctx.constant(operands.w_zero) if z is not None else None
        symmetric = z is None or (zero is not None and not zero.array.any())
        addends, shifts = [], None
        if x.dtype is DType.I8 or y is not None or by_rows:
            addends = [(ctx.new_value(addend, "zero_term"), addend)]
        if w.dtype is DType.U8 or not symmetric:
            shifts = ctx.new_value(shift, "shifts"), shift
        params = {
            "unsigned": w.dtype is DType.U8,
            "y": "" if y is None else _BYTES[x.dtype],
            "z": "" if z is None else _BYTES[w.dtype],
            "y_shift": 1 if by_rows else 128 if x.dtype is DType.I8 else 0,
            "each": z is not None and not _one(z),
            "wants_columns": bool(addends),
            "wants_shifts": shifts is not None,
        }
        inputs = tuple(v for v in (operands.w, x_zero, operands.w_zero) if v)
        return cls(params, inputs, tuple(addends), shifts)


def _one(kind: TensorType) -> bool:
    """Whether a tensor has one element."""
    return kind.shape is not None and all(d == 1 for d in kind.shape)
