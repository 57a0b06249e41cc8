"""Epilogues of kernels that sum products of bytes and write bytes, i32 or floats.

The elementwise nodes behind such a kernel scale its sums, add a bias, quantise, and often dequantise again to add a
residual and quantise once more. On vectors bytes are floats that hold whole numbers. What leads to a rounding is most
often linear in the sums and in operands of bytes, so it is folded, if results may be rounded otherwise than in plain
order: a product and a sum for each of them, with constants made in f64 when compiling. A result that is
quantised is left to the kernel to round, as that takes fewer instructions: `zero` is added, and it is clamped.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, TensorType
from ..lower import Context, Group
from ..pointwise import Builder, Instruction, Pointwise, Unsupported, from_nodes
from ..pointwise_c import emit, vectorisable
from .epilogue import BYTES, Axes, Epilogue, Operand, Sums, same_shape, strides_of

C_TYPES = {DType.F32: "float", DType.I32: "float", **BYTES}
"""The C types of results; i32 is stored as it is."""
RANGES = {DType.U8: (0, 255), DType.I8: (-128, 127)}
"""The least and the largest byte."""
_FOLDED = 1 << 16
"""Constants of more elements are left as they are."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Requantised:
    """The epilogue, the type of its results and, if the kernel has to quantise them, the zero point; `start` says that
    the first operand is what the sums begin with, and is not in them otherwise."""

    epilogue: Epilogue
    dtype: DType
    zero: int | None
    start: bool

    @property
    def out(self) -> dict[str, Any]:
        """For the templates."""
        return {"out": C_TYPES[self.dtype], "zero_point": self.zero, "start": self.start}


def of_bytes(group: Group, ctx: Context, axes: Axes, sums: Sums) -> Requantised | None:
    """The epilogue of a group whose anchor sums products of bytes, its columns being the innermost axis.

    None where the group has a prologue or several outputs, or an operand's strides don't fit."""
    anchor = group.anchor
    if anchor is None or group.prologue or len(group.outputs) != 1:
        return None
    made, output = anchor.outputs[0], group.outputs[0]
    dtype = ctx.type(output).dtype
    if dtype not in C_TYPES or not same_shape(ctx.type(output).shape, axes.shape):
        return None
    operands: list[Operand] = []
    lines: list[str] = []

    def operand(value: str, kind: TensorType) -> str | None:
        strides = None if kind.shape is None else strides_of(value, kind.shape, axes)
        if strides is None or kind.dtype not in C_TYPES:
            return None
        operands.append(Operand(value, strides, BYTES.get(kind.dtype, "")))
        return f"e{len(operands) - 1}"

    if any(operand(value, kind) is None for value, kind in sums.addends):
        return None
    start = len(sums.addends) > 0 and operands[0].strides == (0, 0, 1)
    lines.append(
        f"const vi n = {' + '.join(f'(vi){e}' for e in ['x', *(f'e{i}' for i in range(start, len(operands)))])};"
    )
    name = "n"
    if sums.scale is not None:
        scale = operand(*sums.scale)
        if scale is None:
            return None
        lines.append(f"const vf scaled = __builtin_convertvector(n, vf) * {scale};")
        if not group.epilogue:
            return Requantised(
                Epilogue(tuple(operands), tuple(lines), "scaled", output, ()), dtype, int(sums.zero), start
            )
        bounds = ", ".join(f"vset1({v:.1f}f)" for v in (sums.high, sums.low))
        high, low = bounds.split(", ")
        lines.append(f"const vf quantised = vmin({high}, vmax({low}, vround(scaled) + vset1({sums.zero:.1f}f)));")
        name = "quantised"
    elif not group.epilogue:
        return Requantised(Epilogue(tuple(operands), tuple(lines), "(vf)n", output, ()), dtype, None, start)
    program = from_nodes(group.epilogue, [made], [output], ctx)
    if program is None or dtype is DType.I32:
        return None
    program, zero = _unquantised(program)
    if not vectorisable(program, narrow=True):
        return None
    if ctx.reassociate:
        with contextlib.suppress(Unsupported):
            program = _folded(program, ctx)
    names = []
    for item in program.inputs:
        found = name if item.value == made else operand(item.value, item.type)
        if found is None:
            return None
        names.append(found)
    statements, results = emit(program, names, vector=True, narrow=True)
    epilogue = Epilogue(tuple(operands), (*lines, *statements), results[0], output, ())
    return Requantised(epilogue, dtype, zero, start)


def _unquantised(program: Pointwise) -> tuple[Pointwise, int | None]:
    """A program without the rounding, zero point and clamp that its only result ends with, and that zero point."""
    first = len(program.inputs)

    def made(index: int, op: str) -> Instruction | None:
        found = program.instructions[index - first] if index >= first else None
        return found if found is not None and found.op == op else None

    def number(index: int) -> float:
        found = made(index, "Const")
        return math.nan if found is None else float(found.attr("value"))

    narrow = made(program.results[0], "Narrow")
    upper = narrow and made(narrow.args[0], "AtMost")
    lower = upper and made(upper.args[0], "AtLeast")
    if not (narrow and upper and lower) or RANGES.get(narrow.dtype) != (number(lower.args[1]), number(upper.args[1])):
        return program, None
    zero, rounded = 0.0, made(lower.args[0], "Round")
    if rounded is None:
        shifted = made(lower.args[0], "Add")
        if shifted is None:
            return program, None
        zero, rounded = number(shifted.args[1]), made(shifted.args[0], "Round")
    if rounded is None or not zero.is_integer():
        return program, None
    return Pointwise(program.inputs, program.instructions, rounded.args, program.outputs), int(zero)


@dataclass(frozen=True)
class _Linear:
    """A sum of values of the new program, by handle, each times a constant, and of a constant."""

    terms: tuple[tuple[int, Array], ...]
    constant: Array


def _folded(program: Pointwise, ctx: Context) -> Pointwise:
    """The same program with what is linear before a rounding, or at the end, as few products and sums.

    Raises Unsupported if a constant does not fit f32."""
    b = Builder(ctx, listed=[o.value for o in program.inputs])
    known: list[_Linear] = []
    for item in program.inputs:
        constant = ctx.constant(item.value)
        if constant is not None and item.dtype is DType.F32 and constant.array.size <= _FOLDED:
            known.append(
                _Linear(
                    (),
                    constant.array.reshape([d for d in item.type.shape or () if isinstance(d, int)]).astype(np.float64),
                )
            )
        else:
            known.append(_plain(b.operand(item.value, item.type)))
    for instruction in program.instructions:
        args = [known[a] for a in instruction.args]
        found = _linear(instruction, args)
        if found is None:
            handles = [_written(b, ctx, a) for a in args]
            found = _plain(b.op(instruction.op, *handles, dtype=instruction.dtype, **dict(instruction.attrs)))
        known.append(found)
    results = [_written(b, ctx, known[r]) for r in program.results]
    return b.finish(results, program.outputs)


def _plain(handle: int) -> _Linear:
    return _Linear(((handle, np.ones(())),), np.zeros(()))


def _linear(instruction: Instruction, args: Sequence[_Linear]) -> _Linear | None:
    """What an instruction gives if that is linear in values of f32."""
    op = instruction.op
    if instruction.dtype is not DType.F32:
        return None
    if op == "Const":
        return _Linear((), np.asarray(float(instruction.attr("value"))))
    if op in ("Add", "Sub"):
        left, right = args
        sign = 1.0 if op == "Add" else -1.0
        terms = dict(left.terms)
        for handle, factor in right.terms:
            terms[handle] = terms[handle] + sign * factor if handle in terms else sign * factor
        return _Linear(tuple(terms.items()), left.constant + sign * right.constant)
    if op in ("Mul", "Div"):
        left, right = args
        if op == "Mul" and not left.terms:
            left, right = right, left
        if right.terms or (op == "Div" and not right.constant.all()):
            return None
        factor = right.constant if op == "Mul" else 1.0 / right.constant
        return _Linear(tuple((h, f * factor) for h, f in left.terms), left.constant * factor)
    if op == "Neg":
        return _Linear(tuple((h, -f) for h, f in args[0].terms), -args[0].constant)
    return None


def _written(b: Builder, ctx: Context, value: _Linear) -> int:
    """The handle of a linear value in the new program."""
    found: int | None = None
    if not value.terms or value.constant.any():
        found = _constant(b, ctx, value.constant)
    for handle, factor in value.terms:
        term = handle if (factor == 1.0).all() else b.op("Mul", handle, _constant(b, ctx, factor))
        found = term if found is None else b.op("Add", term, found)
    assert found is not None
    return found


def _constant(b: Builder, ctx: Context, array: Array) -> int:
    with np.errstate(over="ignore"):
        narrowed = array.astype(np.float32)
    if not np.isfinite(narrowed).all():
        raise Unsupported("a constant beyond f32")
    if narrowed.size and (narrowed == narrowed.flat[0]).all():
        return b.const(float(narrowed.flat[0]), DType.F32)
    name = ctx.add_constant(np.ascontiguousarray(narrowed), "factors")
    return b.operand(name, TensorType(DType.F32, narrowed.shape))
