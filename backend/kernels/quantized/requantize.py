"""Operands and epilogues of kernels that sum int8 products and write int8, i32 or f32.

The micro-kernel multiplies words of four unsigned bytes with words of four signed ones and sums them exactly in i32.
Weights less their zero points must fit signed bytes, as they do when they were quantized symmetrically. The zero point
z of the activations is subtracted from the sums: sum (a - z) w = sum a w - z sum w, a term per column that is known at
compile time if z is. Signed activations become unsigned by adding 128 to them and to z.

The elementwise nodes behind such a kernel scale its sums, add a bias and quantize. Often they dequantize again to add a
residual, and quantize once more. On vectors, int8 values are floats that hold whole numbers. The part before a rounding
is mostly linear in the sums and in int8 operands. Unless the plain order of operations is required it is folded: one
product and one sum per operand, with constants computed in f64 at compile time. An NHWC kernel rounds quantized results
itself, which takes fewer instructions: it adds the zero point and clamps.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import Constant, DType, TensorType
from ....engine.ir.symbolic import Dim, product
from ...codegen.pointwise_emit import vectorizable
from ...codegen.pointwise_program import Builder, Instruction, Pointwise, Unsupported
from ...codegen.template_params import launch, serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ..gemm.epilogue import Axes, Epilogue, EpilogueBuilder, same_shape, vector
from ..gemm.matmul import PACK_WORK

INT8 = (DType.U8, DType.I8)
RESULTS = (DType.F32, DType.I32, *INT8)
"""Types of results, and of operands."""
RANGES = {DType.U8: (0, 255), DType.I8: (-128, 127)}
"""Least and largest value of an int8 type."""
_FOLDED = 1 << 16
"""Constants of more elements are not folded."""
_MOST_FACTORS = 1 << 20
"""Maximum number of scales of a product with one per row and column."""

Array = NDArray[Any]
Factors = tuple[tuple[str, TensorType], tuple[str, TensorType]]
"""Two values, each with the type it is viewed with."""


@dataclass(frozen=True)
class Sums:
    """Integer sums before the group's other nodes: i32 `addends` (with the types they are viewed with) are added.

    With `scale` the anchor requantizes: round(sum * scale) + zero, clamped to `low` .. `high`. `steps` compute addends
    that are known at run time only. Each of `rows` is a product of two i32 values that is added, one number per row and
    one per column."""

    addends: tuple[tuple[str, TensorType], ...]
    steps: tuple[Step, ...] = ()
    scale: tuple[str, TensorType] | None = None
    zero: float = 0.0
    low: float = 0.0
    high: float = 0.0
    rows: tuple[Factors, ...] = ()


@dataclass(frozen=True)
class Operands:
    """Values that an int8 product reads, "" where absent; `scales` (of x, w, y) if it requantizes its result.

    `addend` is an i32 bias."""

    group: Group
    ctx: Context
    x: str
    w: str
    x_zero: str = ""
    w_zero: str = ""
    scales: tuple[str, str, str] | None = None
    y_zero: str = ""
    addend: str = ""

    @classmethod
    def of(cls, group: Group, ctx: Context) -> Operands:
        """Read the operands of a group's anchor."""
        ins = [*group.node.inputs, *("",) * 9]
        if "QLinear" in group.node.op:
            x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = ins[:9]
            return cls(group, ctx, x, w, x_zero, w_zero, (x_scale, w_scale, y_scale), y_zero, bias)
        return cls(group, ctx, x=ins[0], w=ins[1], x_zero=ins[2], w_zero=ins[3])

    @property
    def type(self) -> TensorType:
        """Type of x."""
        return self.ctx.type(self.x)

    def _constant(self, value: str) -> Constant | None:
        return self.ctx.constant(value) if value else None

    def padding(self) -> tuple[tuple[str, ...], str]:
        """Return x with its zero point and "", or x alone and the byte of the zero point, if that is known."""
        zero = self._constant(self.x_zero)
        if self.x_zero and zero is None:
            return (self.x, self.x_zero), ""
        return (self.x,), str(0 if zero is None else int(zero.array.item()) & 255)

    def weights(self, filters: bool = False) -> NDArray[np.int8] | None:
        """Return constant, non-empty weights less their zero points, if that fits signed bytes.

        Several zero points are one per column, or one per filter for `filters`."""
        w, zero = self.ctx.constant(self.w), self._constant(self.w_zero)
        if w is None or not w.array.size or w.type.dtype not in INT8 or (self.w_zero and zero is None):
            return None
        whole = w.array.astype(np.int32)
        if zero is not None:
            offset = zero.array.astype(np.int32)
            if offset.ndim > 1:
                return None
            each = offset.reshape(-1, *(1,) * (whole.ndim - 1)) if filters else offset
            whole = whole - (each if offset.size > 1 else offset.reshape(()))
        return None if whole.min() < -128 or whole.max() > 127 else whole.astype(np.int8)

    def weight_parts(self) -> tuple[NDArray[np.int8], ...] | None:
        """Return constant filters less their zero points as a sum of up to three filters of signed bytes.

        Other zero points than one, or one per filter, give None."""
        w, zero = self.ctx.constant(self.w), self._constant(self.w_zero)
        if w is None or not w.array.size or w.type.dtype not in INT8 or (self.w_zero and zero is None):
            return None
        rest = w.array.astype(np.int32)
        if zero is not None:
            if zero.array.ndim > 1 or zero.array.size not in (1, len(rest)):
                return None
            rest = rest - zero.array.astype(np.int32).reshape(-1, *(1,) * (rest.ndim - 1))
        parts: list[NDArray[np.int8]] = []
        while not parts or rest.any():
            parts.append(np.clip(rest, -128, 127).astype(np.int8))
            rest = rest - parts[-1]
        return tuple(parts)

    def plain(self, shape: Sequence[Dim]) -> tuple[Epilogue, tuple[str, TensorType]]:
        """Return the epilogue of a convolution that leaves its i32 sums, and these, which have `shape`."""
        kind = TensorType(DType.I32, tuple(shape))
        found = self.ctx.new_value(kind, "partial_sums")
        return Epilogue((), ("const vi n = (vi)x;",), "(vf)n", found), (found, kind)

    def shifted_weights(self, filters: bool = False) -> tuple[NDArray[np.int8], NDArray[np.int32]] | None:
        """Return constant weights in signed bytes, and by how much weights less zero points are larger than these.

        The latter are one number per column of a matrix, or per filter for `filters`. So any zero points are possible:
        the sum of the activations of a row, or under a window, times that number is added."""
        w, zero = self.ctx.constant(self.w), self._constant(self.w_zero)
        if w is None or not w.array.size or w.type.dtype not in INT8 or not (filters or w.array.ndim == 2):
            return None
        columns = w.array.shape[0 if filters else 1]
        offset = np.zeros((), np.int32) if zero is None else zero.array.astype(np.int32)
        if (self.w_zero and zero is None) or offset.ndim > 1 or offset.size not in (1, columns):
            return None
        shift = 128 if w.type.dtype is DType.U8 else 0
        signed = (w.array.astype(np.int32) - shift).astype(np.int8)
        return signed, np.broadcast_to(shift - offset, (columns,)).astype(np.int32)

    def window_sums(self, larger: NDArray[np.int32], shape: Sequence[Dim], channel: int) -> tuple[Epilogue, Factors]:
        """Return the epilogue of a convolution by a filter of ones, and its sums with `larger` as `Sums.rows`.

        `shape` is that of the results, with channels on an axis."""
        column = (larger.size, *(1,) * (len(shape) - 1 - channel))
        plain, sums = self.plain([1 if axis == channel else dim for axis, dim in enumerate(shape)])
        return plain, (sums, (self.ctx.add_constant(larger, "larger"), TensorType(DType.I32, column)))

    def row_sums(self, larger: NDArray[np.int32], shape: Sequence[Dim]) -> tuple[Step, Factors]:
        """Return the step that sums the rows of x, as unsigned bytes, and its sums with `larger` as `Sums.rows`.

        x has `shape`."""
        kind, column = TensorType(DType.I32, (*shape[:-1], 1)), TensorType(DType.I32, larger.shape)
        found = self.ctx.new_value(kind, "row_sums")
        return self.row_sums_step(found, shape), ((found, kind), (self.ctx.add_constant(larger, "larger"), column))

    def row_sums_step(self, found: str, shape: Sequence[Dim]) -> Step:
        """Return the step that writes the sums of the rows of x, as unsigned bytes, to `found`; x has `shape`."""
        extents, count = Extents(), product(shape[:-1])
        params = {"rows": extents(count), "k": extents(shape[-1]), "signed": self.type.dtype is DType.I8}
        work = serial_below(product(shape), PACK_WORK)
        return launch(Kernel("row_sums_int8", params), self.group, (self.x,), (found,), extents, work)

    def row_zeros(self) -> tuple[Step, tuple[str, TensorType]] | None:
        """Return the step that widens the zero points of x if they are one per row of a matrix, and its result.

        They are those of x as unsigned bytes."""
        rows, zero = (self.type.shape or ())[:-1], self.ctx.type(self.x_zero).shape if self.x_zero else None
        if not self._is_per_row(zero):
            return None
        kind = TensorType(DType.I32, (*rows, 1))
        found = self.ctx.new_value(kind, "row_zeros")
        extents, count = Extents(), product(rows)
        params = {"rows": extents(count), "k": extents(1), "signed": self.type.dtype is DType.I8}
        kernel = Kernel("row_sums_int8", params)
        work = serial_below(count, PACK_WORK)
        return launch(kernel, self.group, (self.x_zero,), (found,), extents, work), (found, kind)

    def _is_per_row(self, shape: Sequence[Dim] | None) -> bool:
        """Whether a scale or zero point of this shape is one per row of the matrices x; a single one is not."""
        x = self.type.shape or ()
        if not shape or all(d == 1 for d in shape) or "MatMul" not in self.group.node.op:
            return False
        return same_shape(shape, (*x[:-1], 1)) or (len(x) == 2 and same_shape(shape, x[:-1]))

    def sums(self, column: NDArray[np.int64], shape: tuple[int, ...]) -> Sums | None:
        """Return what is added to the sums, and their scale; None if zero points or scales have another form.

        `column` are the sums of the weights; a number per column is viewed with `shape`."""
        ctx, signed = self.ctx, self.type.dtype is DType.I8
        shift = 128 if signed else 0
        kind = TensorType(DType.I32, shape)
        addends: list[tuple[str, TensorType]] = []
        steps: tuple[Step, ...] = ()
        rows: tuple[Factors, ...] = ()
        zero = self._constant(self.x_zero)
        if (zeros := self.row_zeros()) is not None:
            step, factor = zeros
            steps, rows = (step,), ((factor, (ctx.add_constant((-column).astype(np.int32), "column_sums"), kind)),)
        elif self.x_zero and zero is None:
            run_time = ctx.type(self.x_zero).shape
            if run_time is None or any(d != 1 for d in run_time):
                return None
            term = ctx.new_value(TensorType(DType.I32, (len(column),)), "zero_term")
            kernel = Kernel("zero_point_term", {"n": len(column), "signed": signed, "shift": shift})
            values = (self.x_zero, ctx.add_constant(column.astype(np.int32), "column_sums"))
            steps = (launch(kernel, self.group, values, (term,), Extents(), 1),)
            addends.append((term, kind))
        elif zero is not None and zero.array.size != 1:
            return None
        elif less := shift + (0 if zero is None else int(zero.array.item())):
            addends.append((ctx.add_constant((-less * column).astype(np.int32), "zero_term"), kind))
        if self.addend:
            addends.append((self.addend, kind))
        return self.scaled(Sums(tuple(addends), steps, rows=rows), len(column), shape)

    def scaled(self, sums: Sums, columns: int, shape: tuple[int, ...]) -> Sums | None:
        """Return sums with their scale if the anchor requantizes them; None if scales have another form.

        A number for each of the columns is viewed with `shape`."""
        ctx = self.ctx
        if self.scales is None:
            return sums
        scales = [found.array for value in self.scales if (found := ctx.constant(value)) is not None]
        y_zero = self._constant(self.y_zero)
        one = not self.y_zero or (y_zero is not None and y_zero.array.size == 1)
        if not one or [s.dtype for s in scales] != [np.float32] * 3:
            return None
        x_scale, w_scale, y_scale = scales
        result = self.type.dtype if y_zero is None else y_zero.type.dtype
        if y_scale.size != 1 or w_scale.size not in (1, columns) or result not in RANGES:
            return None
        rows: tuple[int, ...] = ()
        if x_scale.size != 1:
            rows = (*x_scale.shape[: (self.type.rank or 0) - 1], 1)
            if not self._is_per_row(x_scale.shape) or x_scale.size * columns > _MOST_FACTORS:
                return None
        left = x_scale.reshape(rows).astype(np.float32)
        factor = left * w_scale.reshape(-1).astype(np.float32) / np.float32(y_scale.item())
        factors = np.ascontiguousarray(np.broadcast_to(factor, (*rows[:-1], columns)), np.float32)
        scale = ctx.add_constant(factors, "factors"), TensorType(DType.F32, (*rows[:-1], *shape))
        offset = 0.0 if y_zero is None else float(y_zero.array.item())
        low, high = RANGES[result]
        return replace(sums, scale=scale, zero=offset, low=low, high=high)


def pack_words(array: NDArray[np.int8], axis: int = 1) -> NDArray[np.uint32]:
    """Return signed bytes as words of the four along an axis, the first in the lowest byte."""
    bits: NDArray[np.uint32] = np.moveaxis(array, axis, -1).astype(np.uint8).astype(np.uint32)
    words = bits[..., 0] | bits[..., 1] << np.uint32(8) | bits[..., 2] << np.uint32(16) | bits[..., 3] << np.uint32(24)
    return np.asarray(words, np.uint32)


@dataclass(frozen=True)
class Requantized:
    """Epilogue with the zero point if the kernel quantizes its results (else None).

    `start`: the accumulators are initialized with the first operand, which the epilogue then leaves out."""

    epilogue: Epilogue
    zero: int | None = None
    start: bool = False

    @property
    def params(self) -> dict[str, Any]:
        """Template parameters."""
        return {"out": self.epilogue.c, "zero_point": self.zero, "start": self.start}


def requantized_epilogue(
    group: Group, ctx: Context, axes: Axes, sums: Sums, *, nhwc: bool = False
) -> Requantized | None:
    """Return the epilogue of a group whose anchor sums int8 products in i32; None if it cannot be fused.

    An NHWC kernel rounds and clamps quantized results itself. In others no node may follow an anchor that
    requantizes."""
    try:
        builder = EpilogueBuilder(group, ctx, axes, RESULTS)
        addends = [builder.operand(value, kind, (DType.I32,)) for value, kind in sums.addends]
        start = nhwc and len(addends) > 0 and builder.operands[0].strides == (0, 0, 1)
        terms = [f"(vi){name}" for name in ("x", *addends[start:])]
        for factors in sums.rows:
            terms.append(" * ".join(f"(vi){builder.operand(*factor, (DType.I32,))}" for factor in factors))
        lines = [f"const vi n = {' + '.join(terms)};"]
        name = "n"
        if sums.scale is not None:
            scaled = f"__builtin_convertvector(n, vf) * {builder.operand(*sums.scale, RESULTS)}"
            if not nhwc:
                if group.epilogue:
                    return None
                rounded = f"vround({scaled}) + {vector(sums.zero)}"
                clamped = f"vmin({vector(sums.high)}, vmax({vector(sums.low)}, {rounded}))"
                return Requantized(builder.finish(lines, clamped))
            lines.append(f"const vf scaled = {scaled};")
            if not group.epilogue:
                return Requantized(builder.finish(lines, "scaled"), int(sums.zero), start)
            high, low, zero = (f"vset1({v:.1f}f)" for v in (sums.high, sums.low, sums.zero))
            lines.append(f"const vf quantized = vmin({high}, vmax({low}, vround(scaled) + {zero}));")
            name = "quantized"
        elif not group.epilogue:
            return Requantized(builder.finish(lines, "(vf)n"), None, start)
        program, zero_point = _without_rounding(builder.program()) if nhwc else (builder.program(), None)
        if builder.dtype is DType.I32 or not vectorizable(program, int8=True):
            return None
        if nhwc and ctx.reassociate:
            with contextlib.suppress(Unsupported):
                program = _folded(program, ctx)
        allowed = RESULTS if nhwc else (DType.F32, *INT8)
        return Requantized(builder.apply(program, name, lines, allowed), zero_point, start)
    except Unsupported:
        return None


def _without_rounding(program: Pointwise) -> tuple[Pointwise, int | None]:
    """Strip the rounding, zero point and clamp that a program's only result ends with; return the zero point too."""

    def made(index: int) -> Instruction | None:
        place = index - len(program.inputs)
        return program.instructions[place] if place >= 0 else None

    def number(op: str) -> float:
        found = made(ending[op].args[1]) if op in ending else None
        return float(found.attr("value")) if found is not None and found.op == "Const" else math.nan

    ending: dict[str, Instruction] = {}
    index = program.results[0]
    for op in ("Narrow", "AtMost", "Above", "Add", "Round"):
        found = made(index)
        if found is not None and found.op == op:
            ending[op], index = found, found.args[0]
        elif op != "Add":  # a zero point of 0 is not added
            return program, None
    zero = number("Add") if "Add" in ending else 0.0
    if RANGES.get(ending["Narrow"].dtype) != (number("Above"), number("AtMost")) or not zero.is_integer():
        return program, None
    return Pointwise(program.inputs, program.instructions, ending["Round"].args, program.outputs), int(zero)


@dataclass(frozen=True)
class _Linear:
    """Linear form: values of the new program, by handle, each times a constant, plus a constant."""

    terms: dict[int, Array]
    constant: Array

    @classmethod
    def of(cls, handle: int) -> _Linear:
        """Return the form of one value."""
        return cls({handle: np.ones(())}, np.zeros(()))

    def scaled(self, factor: Array | float) -> _Linear:
        """Return the form times a constant."""
        return _Linear({h: f * factor for h, f in self.terms.items()}, self.constant * factor)

    def plus(self, other: _Linear) -> _Linear:
        """Return the sum of two forms."""
        added = {h: self.terms[h] + f if h in self.terms else f for h, f in other.terms.items()}
        return _Linear({**self.terms, **added}, self.constant + other.constant)


def _folded(program: Pointwise, ctx: Context) -> Pointwise:
    """Rewrite what is linear before a rounding, or at the end, to few products and sums.

    Unsupported if a constant does not fit f32."""
    b = Builder(ctx, listed=[o.value for o in program.inputs])
    known: list[_Linear] = []
    for item in program.inputs:
        constant = ctx.constant(item.value)
        if constant is not None and item.dtype is DType.F32 and constant.array.size <= _FOLDED:
            shape = [d for d in item.type.shape or () if isinstance(d, int)]
            known.append(_Linear({}, constant.array.reshape(shape).astype(np.float64)))
        else:
            known.append(_Linear.of(b.operand(item.value, item.type)))
    for instruction in program.instructions:
        args = [known[a] for a in instruction.args]
        found = _linear(instruction, args)
        if found is None:
            handles = [_written(b, ctx, a) for a in args]
            found = _Linear.of(b.op(instruction.op, *handles, dtype=instruction.dtype, **dict(instruction.attrs)))
        known.append(found)
    results = [_written(b, ctx, known[r]) for r in program.results]
    return b.finish(results, program.outputs)


def _linear(instruction: Instruction, args: Sequence[_Linear]) -> _Linear | None:
    """Return the result of an instruction if it is linear in f32 values."""
    if instruction.dtype is not DType.F32:
        return None
    match instruction.op, list(args):
        case "Const", []:
            return _Linear({}, np.asarray(float(instruction.attr("value"))))
        case "Add", [left, right]:
            return left.plus(right)
        case "Sub", [left, right]:
            return left.plus(right.scaled(-1.0))
        case "Neg", [value]:
            return value.scaled(-1.0)
        case "Mul", [factor, value] if not factor.terms:
            return value.scaled(factor.constant)
        case "Mul", [value, factor] if not factor.terms:
            return value.scaled(factor.constant)
        case "Div", [value, divisor] if not divisor.terms and divisor.constant.all():
            return value.scaled(1.0 / divisor.constant)
    return None


def _written(b: Builder, ctx: Context, value: _Linear) -> int:
    """Emit a linear form to the new program and return its handle."""
    found = _constant(b, ctx, value.constant) if not value.terms or value.constant.any() else None
    for handle, factor in value.terms.items():
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
