"""Epilogues: what the compute-bound kernels do with a result before it goes to memory.

Those kernels make their output in tiles of a matrix, one for each index of a batch: a convolution's output is, for each
image, channels x pixels. An `Epilogue` is the pointwise program of a group's elementwise nodes in terms of one vector
`x` of such a tile (along the columns) and one vector `e<i>` for each operand. An operand is read at
`b * batch + m * row + n * column` elements; a column stride of 0 means that the row has one value for all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...engine.graph import DType, TensorType
from ...engine.symbolic import Dim, same
from ..iteration import Extents, contiguous
from ..kernel_graph import Pitch
from ..lower import Context, Group
from ..pointwise import from_nodes
from ..pointwise_c import emit, vectorisable

BYTES = {DType.U8: "uint8_t", DType.I8: "int8_t"}
"""The C types of bytes."""
HEAVY = 10
"""An epilogue of more statements than this is applied in a loop over the tile instead of once per register."""


@dataclass(frozen=True)
class Axes:
    """The output's dims by their part in the tiling: `shape[:rows]` is the batch, then come row dims, then columns."""

    shape: tuple[Dim, ...]
    rows: int
    columns: int

    def parts(self) -> tuple[slice, slice, slice]:
        """The dims of batch, rows and columns."""
        return slice(0, self.rows), slice(self.rows, self.columns), slice(self.columns, len(self.shape))


@dataclass(frozen=True)
class Operand:
    """A tensor that the epilogue reads, with its strides in elements; `type` is that of its elements in C if they are
    bytes or bf16."""

    value: str
    strides: tuple[Dim, Dim, int]
    type: str = ""


@dataclass(frozen=True)
class Epilogue:
    """Statements that compute `result` from `x` and the operands `e0`, `e1` ..; `output` is the group's result, f32 or,
    with `half`, bf16."""

    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    result: str
    output: str
    elementwise: tuple[int, ...]  # the operands that lie as the output does, of the same element type
    half: bool = False

    def params(self, extents: Extents) -> dict[str, Any]:
        """For the templates: the text, and the operands' strides as C expressions (columns as 0 or 1)."""
        operands = []
        for o in self.operands:
            b, m, n = o.strides
            place = {"b": extents(b), "m": extents(m), "n": int(n)}
            operands.append({**place, "type": o.type} if o.type else place)
        return {
            "operands": operands,
            "lines": list(self.lines),
            "result": self.result,
            "heavy": len(self.lines) > HEAVY,
        }

    @property
    def c(self) -> str:
        """The C type of the result's elements."""
        return "v_bf16" if self.half else "float"

    @property
    def values(self) -> tuple[str, ...]:
        """The operands' names, in order."""
        return tuple(o.value for o in self.operands)

    def in_place(self, first: int) -> tuple[tuple[int, int], ...]:
        """The pairs for `Step.in_place`, if the operands follow `first` other inputs."""
        return tuple((first + i, 0) for i in self.elementwise)

    def pitches(self, first: int, length: int) -> tuple[Pitch, ...]:
        """The same for `Step.pitches`, if rows of the output have so many elements."""
        found = []
        for i in self.elementwise:
            b, m, n = self.operands[i].strides
            if n == 1 and m == length and isinstance(b, int) and b % length == 0:
                path = ("epilogue", "operands", i)
                batch = (((*path, "b"), b // length),) if b else ()
                found.append(Pitch(first + i, length, (((*path, "m"), 1), *batch)))
        return tuple(found)


IDENTITY = Epilogue((), (), "x", "", ())
"""Nothing to be done; give it an output with `dataclasses.replace`."""


def of_group(
    group: Group,
    ctx: Context,
    axes: Axes,
    *,
    scale: float = 1.0,
    addend: tuple[str, TensorType, float] | None = None,
    residual: str = "",
    halves: bool = False,
) -> Epilogue | None:
    """The epilogue of a group whose anchor has one output with these axes; None if it can't be fused.

    `scale`, `addend` (a value, the type it is seen with, a factor) and `residual` (a value) belong to the anchor: x
    becomes `scale * x + factor * addend + residual` first. None also where the group has a prologue, several outputs or
    another element type than f32 (`halves`: or bf16), or where an operand's strides don't fit."""
    dtypes = (DType.F32, DType.BF16) if halves else (DType.F32,)
    anchor = group.anchor
    if anchor is None or group.prologue or len(group.outputs) != 1:
        return None
    made = anchor.outputs[0]
    output = group.outputs[0]
    dtype = ctx.type(output).dtype
    if dtype not in dtypes or not same_shape(ctx.type(output).shape, axes.shape):
        return None
    program = from_nodes(group.epilogue, [made], [output], ctx)
    if program is None or not vectorisable(program, halves=halves):
        return None
    operands: list[Operand] = []
    elementwise: list[int] = []
    lines: list[str] = []

    def operand(value: str, kind: TensorType) -> str | None:
        if kind.dtype not in dtypes or kind.shape is None:
            return None
        strides = strides_of(value, kind.shape, axes)
        if strides is None:
            return None
        if same_shape(kind.shape, axes.shape) and kind.dtype is dtype:
            elementwise.append(len(operands))
        operands.append(Operand(value, strides, "v_bf16" if kind.dtype is DType.BF16 else ""))
        return f"e{len(operands) - 1}"

    start = "x" if scale == 1.0 else f"x * {_number(scale)}"
    for value, kind, factor in filter(None, (addend, (residual, ctx.type(residual), 1.0) if residual else None)):
        name = operand(value, kind)
        if name is None:
            return None
        start = f"{start} + {name}" if factor == 1.0 else f"{start} + {name} * {_number(factor)}"
    if start != "x":
        lines.append(f"const vf y = {start};")
        start = "y"
    names = []
    for item in program.inputs:
        if item.value == made:
            names.append(start)
            continue
        name = operand(item.value, item.type)
        if name is None:
            return None
        names.append(name)
    statements, results = emit(program, names, vector=True)
    return Epilogue(tuple(operands), (*lines, *statements), results[0], output, tuple(elementwise), dtype is DType.BF16)


@dataclass(frozen=True)
class Sums:
    """What integer sums are before the group's other nodes see them: `addends` (i32 values with the types they are seen
    with) are added; with `scale` they are quantised anew: round(sum * scale), then `zero`, between `low` and `high`."""

    addends: tuple[tuple[str, TensorType], ...] = ()
    scale: tuple[str, TensorType] | None = None
    zero: float = 0.0
    low: float = 0.0
    high: float = 0.0


def of_sums(group: Group, ctx: Context, axes: Axes, sums: Sums) -> tuple[Epilogue, DType] | None:
    """The epilogue of a group whose anchor sums integers, and the type of its result: bytes, i32 or f32.

    None as for `of_group`, and where nodes follow an anchor that quantises."""
    anchor = group.anchor
    if anchor is None or group.prologue or len(group.outputs) != 1:
        return None
    made, output = anchor.outputs[0], group.outputs[0]
    dtype = ctx.type(output).dtype
    if dtype not in (DType.F32, DType.I32, DType.U8, DType.I8) or not same_shape(ctx.type(output).shape, axes.shape):
        return None
    operands: list[Operand] = []

    def operand(value: str, kind: TensorType, wanted: DType = DType.F32) -> str | None:
        fits = kind.dtype is wanted or (wanted is DType.F32 and kind.dtype in BYTES)
        strides = None if not fits or kind.shape is None else strides_of(value, kind.shape, axes)
        if strides is None:
            return None
        operands.append(Operand(value, strides, BYTES.get(kind.dtype, "") if kind.dtype else ""))
        return f"e{len(operands) - 1}"

    terms = ["(vi)x"]
    for value, kind in sums.addends:
        name = operand(value, kind, DType.I32)
        if name is None:
            return None
        terms.append(f"(vi){name}")
    lines = [f"const vi n = {' + '.join(terms)};"]
    if sums.scale is not None:
        name = operand(*sums.scale)
        if name is None or group.epilogue:
            return None
        whole = f"vround(__builtin_convertvector(n, vf) * {name}) + {_number(sums.zero)}"
        result = f"vmin({_number(sums.high)}, vmax({_number(sums.low)}, {whole}))"
        return Epilogue(tuple(operands), tuple(lines), result, output, ()), dtype
    if not group.epilogue:
        return Epilogue(tuple(operands), tuple(lines), "(vf)n", output, ()), dtype
    program = from_nodes(group.epilogue, [made], [output], ctx)
    if program is None or dtype is DType.I32 or not vectorisable(program, narrow=True):
        return None
    names = []
    for item in program.inputs:
        name = "n" if item.value == made else operand(item.value, item.type)
        if name is None:
            return None
        names.append(name)
    statements, results = emit(program, names, vector=True, narrow=True)
    return Epilogue(tuple(operands), (*lines, *statements), results[0], output, ()), dtype


def _number(value: float) -> str:
    from ..render import c_float

    return f"vset1({c_float(value)})"


def same_shape(a: Sequence[Dim] | None, b: Sequence[Dim]) -> bool:
    """Whether a shape is known, and provably the other one."""
    return a is not None and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def strides_of(value: str, shape: Sequence[Dim], axes: Axes) -> tuple[Dim, Dim, int] | None:
    """The strides of a tensor broadcast over the output along batch, rows and columns; None if one of them is none."""
    seen = contiguous(value, shape).broadcast(axes.shape)
    if seen is None:
        return None
    found = [_stride(seen.shape[part], seen.strides[part]) for part in axes.parts()]
    b, m, n = found
    if b is None or m is None or not isinstance(n, int) or n not in (0, 1):
        return None
    return b, m, n


def _stride(extents: Sequence[Dim], strides: Sequence[Dim]) -> Dim | None:
    """The stride of several dims walked as one (0 for none), None if they can't be."""
    dims = [(e, s) for e, s in zip(extents, strides, strict=True) if e != 1]
    for (_, outer), (extent, inner) in pairwise(dims):
        if not same(outer, inner * extent):
            return None
    return dims[-1][1] if dims else 0
