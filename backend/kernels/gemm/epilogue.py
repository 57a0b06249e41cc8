"""Epilogues: what GEMM-like kernels apply to their results before they store them.

Such a kernel computes its output in tiles of a matrix, one matrix per batch index; a convolution's output is, for each
image, channels x pixels. An `Epilogue` is the pointwise program of a group's elementwise nodes in terms of one vector
`x` of a tile (along the columns) and one vector `e<i>` per operand. An operand is read at
`b * batch + m * row + n * column` elements; a column stride of 0 broadcasts one value along the row.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.symbolic import Dim, same
from ...codegen.pointwise_emit import CURVES, HALVES, emit, vectorizable
from ...codegen.pointwise_ops import from_nodes
from ...codegen.pointwise_program import Pointwise, Unsupported
from ...codegen.render import c_float
from ...codegen.template_params import HEAVY
from ...ir.iteration_space import Extents, contiguous
from ...ir.kernel_graph import LeadingDimension
from ...ir.lower import Context, Group

PACKED = {DType.U8: "uint8_t", DType.I8: "int8_t", DType.F16: "v_f16", DType.BF16: "v_bf16"}
"""C types of elements that are smaller than a vector lane: loads widen them, stores round or narrow."""
STORED = {DType.F32: "real", DType.F64: "real", DType.I32: "real", **PACKED}
"""C types of results: `real` is the kernel's element type; the bits of an i32 are stored as they are."""
_MOST_STATEMENTS = 10
_LONG = re.compile(rf"\bv({'|'.join(sorted(HEAVY | {*CURVES})).lower()})\(")
"""An epilogue of more statements, or with a function of some 20 instructions such as the sigmoid, is applied in a loop
over the tile. Once per register it is no faster, and most of what a C compiler works at."""


@dataclass(frozen=True)
class Axes:
    """Partition of the output's dims for tiling: `shape[:rows]` is the batch, then come row dims, then columns."""

    shape: tuple[Dim, ...]
    rows: int
    columns: int


@dataclass(frozen=True)
class Operand:
    """Tensor that the epilogue reads: element strides per batch, row and column, and a C type if it is in `PACKED`."""

    value: str
    strides: tuple[Dim, Dim, int]
    type: str = ""


@dataclass(frozen=True)
class Epilogue:
    """Statements that compute `result` from `x` and the operands `e0`, `e1` ..; `output` is the group's result.

    Attributes:
        elementwise: the operands laid out as the output is, of the same element type.
        c: C type of the output's elements.
        addend: whether x gets the first operand, a bias, added before the statements; sums may begin with it instead.
    """

    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    result: str
    output: str
    elementwise: tuple[int, ...] = ()
    c: str = "real"
    addend: bool = False

    def params(self, extents: Extents) -> dict[str, Any]:
        """Return the template parameters: the text, and the operands' strides as C expressions (columns: 0 or 1)."""
        operands = []
        for o in self.operands:
            b, m, n = o.strides
            operands.append({"b": extents(b), "m": extents(m), "n": int(n)} | ({"type": o.type} if o.type else {}))
        heavy = len(self.lines) + self.addend > _MOST_STATEMENTS or self.is_long
        found = {"operands": operands, "lines": list(self.lines), "result": self.result, "heavy": heavy}
        return found | ({"addend": True} if self.addend else {})

    def shared_params(
        self, extents: Extents, first: int, length: int
    ) -> tuple[dict[str, Any], tuple[LeadingDimension, ...]]:
        """Return `params` with the row strides of whole tensors in `dims`, and the `leading_dimensions`.

        So layers with any number of channels share a kernel."""
        params, leading = self.params(extents), []
        for i in self.elementwise:
            b, m, _ = self.operands[i].strides
            if not isinstance(m, int) or m == 0:
                continue
            written, entries = params["operands"][i], [(extents.variable(m), 1)]
            written["m"] = f"dims[{entries[0][0]}]"
            if isinstance(b, int) and b:
                entries.append((extents.variable(b), b // m))
                written["b"] = f"dims[{entries[1][0]}]"
            if m == length and isinstance(b, int) and b % m == 0:
                leading.append(LeadingDimension(first + i, length, (), tuple(entries)))
        return params, tuple(leading)

    @property
    def is_narrow(self) -> bool:
        """Whether elements of the output are smaller than the sums, so that partial sums cannot be stored in it."""
        return self.c != "real"

    @property
    def is_long(self) -> bool:
        """Whether the statements call a function of some 20 instructions."""
        return any(map(_LONG.search, self.lines))

    @property
    def values(self) -> tuple[str, ...]:
        """The operands' names, in order."""
        return tuple(o.value for o in self.operands)

    def in_place(self, first: int) -> tuple[tuple[int, int], ...]:
        """Return the pairs for `Step.in_place` if the operands follow `first` other inputs."""
        return tuple((first + i, 0) for i in self.elementwise)

    def leading_dimensions(self, first: int, length: int) -> tuple[LeadingDimension, ...]:
        """Return the operands' entries for `Step.leading_dimensions` if rows of the output have `length` elements."""
        found = []
        for i in self.elementwise:
            b, m, n = self.operands[i].strides
            if n == 1 and m == length and isinstance(b, int) and b % length == 0:
                path = ("epilogue", "operands", i)
                batch = (((*path, "b"), b // length),) if b else ()
                found.append(LeadingDimension(first + i, length, (((*path, "m"), 1), *batch)))
        return tuple(found)

    def row_leading_dimensions(self, row: int, length: int, inputs: int = 2) -> tuple[LeadingDimension, ...]:
        """Return `Step.leading_dimensions` of an NHWC kernel: pixels of x have `row` channels, those of y `length`."""
        y = LeadingDimension(inputs + len(self.operands), length, ((("y_row",), 1),))
        return (LeadingDimension(0, row, ((("x_row",), 1),)), *self.leading_dimensions(inputs, length), y)


class EpilogueBuilder:
    """Collector of the operands of a group's epilogue.

    Raises Unsupported for a group with a prologue, several outputs, a result whose type is not in `results`, or another
    shape than the kernel writes."""

    def __init__(self, group: Group, ctx: Context, axes: Axes, results: Container[DType]) -> None:
        if group.anchor is None or group.prologue or len(group.outputs) != 1:
            raise Unsupported(group.label)
        self.group, self.ctx, self.axes = group, ctx, axes
        self.output = group.outputs[0]
        kind = ctx.type(self.output)
        if kind.dtype is None or kind.dtype not in results or not same_shape(kind.shape, axes.shape):
            raise Unsupported(self.output)
        self.dtype = kind.dtype
        self.sums = DType.I32 in results  # of int8 products: never in place, their elements differ in size
        self.operands: list[Operand] = []
        self.elementwise: list[int] = []

    def operand(self, value: str, kind: TensorType, allowed: Container[DType]) -> str:
        """Add a tensor viewed with a type and return its variable; Unsupported if type or strides do not fit."""
        strides = None if kind.shape is None else _strides_of(value, kind.shape, self.axes)
        if kind.dtype is None or kind.dtype not in allowed or strides is None:
            raise Unsupported(value)
        if same_shape(kind.shape, self.axes.shape) and kind.dtype is self.dtype:
            self.elementwise.append(len(self.operands))
        self.operands.append(Operand(value, strides, PACKED.get(kind.dtype, "")))
        return f"e{len(self.operands) - 1}"

    def program(self) -> Pointwise:
        """Return the program of the group's nodes after the anchor."""
        found = from_nodes(self.group.epilogue, [self.group.node.outputs[0]], [self.output], self.ctx)
        if found is None:
            raise Unsupported(self.group.label)
        return found

    def apply(self, program: Pointwise, start: str, lines: Sequence[str], allowed: Container[DType]) -> Epilogue:
        """Return the epilogue that runs `lines`, then the program on the anchor's result `start`."""
        made = self.group.node.outputs[0]
        names = [start if o.value == made else self.operand(o.value, o.type, allowed) for o in program.inputs]
        statements, results = emit(program, names, vector=True, int8=DType.I8 in allowed)
        return self.finish((*lines, *statements), results[0])

    def finish(self, lines: Sequence[str], result: str) -> Epilogue:
        """Return the epilogue of these statements."""
        elementwise = () if self.sums else tuple(self.elementwise)
        return Epilogue(tuple(self.operands), tuple(lines), result, self.output, elementwise, STORED[self.dtype])


def of_group(
    group: Group,
    ctx: Context,
    axes: Axes,
    *,
    scale: float = 1.0,
    addend: tuple[str, TensorType, float] | None = None,
    residual: str = "",
    narrow: bool = False,
) -> Epilogue | None:
    """Return the epilogue of a group whose anchor has one float output with these axes; None if it cannot be fused.

    `scale`, `addend` (a value, the type it is viewed with, a factor) and `residual` (a value) belong to the anchor: x
    becomes `scale * x + factor * addend + residual` first. `narrow` admits operands and results of 16-bit floats and of
    bytes, which quantization makes."""
    narrow = narrow and ctx.real is DType.F32
    dtypes = (ctx.real, *HALVES, DType.U8, DType.I8) if narrow else (ctx.real,)
    try:
        builder = EpilogueBuilder(group, ctx, axes, dtypes)
        program = builder.program()
        if not vectorizable(program, int8=narrow, half=narrow) or any(o.dtype not in dtypes for o in program.inputs):
            return None
        start = "x" if scale == 1.0 else f"x * {vector(scale)}"
        plain = scale == 1.0 and addend is not None and addend[2] == 1.0
        for value, kind, factor in filter(None, (addend, (residual, ctx.type(residual), 1.0) if residual else None)):
            name = builder.operand(value, kind, dtypes)
            if not plain or name != "e0":
                start = f"{start} + {name}" if factor == 1.0 else f"{start} + {name} * {vector(factor)}"
        lines = [] if start == "x" else [f"const vf y = {start};"]
        return replace(builder.apply(program, "y" if lines else "x", lines, dtypes), addend=plain)
    except Unsupported:
        return None


def vector(value: float) -> str:
    """Return a C vector whose lanes all have this value."""
    return f"vset1({c_float(value)})"


def same_shape(a: Sequence[Dim] | None, b: Sequence[Dim]) -> bool:
    """Whether a shape is known and provably equal to another."""
    return a is not None and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def _strides_of(value: str, shape: Sequence[Dim], axes: Axes) -> tuple[Dim, Dim, int] | None:
    """Return the strides of a tensor broadcast over the output along batch, rows and columns; None if not strided."""
    seen = contiguous(value, shape).broadcast(axes.shape)
    if seen is None:
        return None
    parts = pairwise((0, axes.rows, axes.columns, len(axes.shape)))
    b, m, n = (_stride(seen.shape[start:end], seen.strides[start:end]) for start, end in parts)
    return (b, m, n) if b is not None and m is not None and isinstance(n, int) and n in (0, 1) else None


def _stride(extents: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """Return the stride of several dims walked as one (0 without dims), or None if they have no common one."""
    dims = [(e, s) for e, s in zip(extents, strides, strict=True) if e != 1]
    if not all(same(outer, inner * extent) for (_, outer), (extent, inner) in pairwise(dims)):
        return None
    return dims[-1][1] if dims else 0
