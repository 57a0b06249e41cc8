"""Pointwise programs: straight-line code over the elements of tensors.

A run of elementwise operators becomes such a program before it is a kernel, or the prologue or epilogue of one: a list
of instructions over numbered values, without shapes, loops or memory. `pointwise_ops` builds programs from nodes,
`pointwise_emit` writes them as C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ...engine.ir.graph import Constant, DType, TensorType

UNIFORM_LIMIT = 4096
"""Largest constant, in elements, that is searched for one common value."""

_INTEGERS = frozenset(DType(f"{kind}{bits}") for kind in "iu" for bits in (8, 16, 32, 64))
NATIVE = frozenset({DType.F32, DType.F64, DType.BOOL, DType.F16, DType.BF16}) | _INTEGERS
"""Element types of the values in programs; 16-bit floats are only read, written and converted."""


class Context(Protocol):
    """Types and constants of values; `lower.Context` provides them."""

    def type(self, value: str, /) -> TensorType:
        """The tensor type of a value."""
        ...

    def constant(self, value: str, /) -> Constant | None:
        """The contents of a value, or None if it is not constant."""
        ...


@dataclass(frozen=True)
class Instruction:
    """Primitive applied to earlier values; `attrs` are sorted pairs of JSON-able values."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default."""
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True)
class Operand:
    """Tensor that a program reads; `type.shape` broadcasts to the result's shape by NumPy's rule.

    A vector that ONNX aligns with another axis has the shape that aligns it: `(C, 1, 1)` for a per-channel one."""

    value: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        """Its element type."""
        assert self.type.dtype is not None
        return self.type.dtype


@dataclass(frozen=True)
class Pointwise:
    """Program over numbered values: first the operands, then the result of each instruction.

    `results` are the numbers of the values in `outputs`."""

    inputs: tuple[Operand, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    outputs: tuple[str, ...]

    @property
    def real(self) -> DType:
        """The element type of vectors of its floats: f64 if it has any value of that type, else f32."""
        found = (*(o.dtype for o in self.inputs), *(i.dtype for i in self.instructions))
        return DType.F64 if DType.F64 in found else DType.F32

    def dtype(self, index: int) -> DType:
        """The element type of a numbered value."""
        n = len(self.inputs)
        return self.inputs[index].dtype if index < n else self.instructions[index - n].dtype

    @property
    def result_types(self) -> tuple[DType, ...]:
        """The element types of the results."""
        return tuple(self.dtype(r) for r in self.results)


class Unsupported(Exception):
    """Raised by the builder for an operator or type that pointwise programs do not cover."""


@dataclass
class Builder:
    """Collector of operands and instructions, identified by handles until `finish` numbers them."""

    ctx: Context
    listed: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    handles: list[Operand | Instruction] = field(default_factory=list)
    found: dict[Operand | Instruction, int] = field(default_factory=dict)  # the handle of each

    def read(self, value: str) -> int:
        """Return the handle of a named value: an earlier result, an immediate, or an operand."""
        if value in self.known:
            return self.known[value]
        constant = self.ctx.constant(value)
        if constant is not None and (number := uniform(constant)) is not None:
            return self.const(number, constant.type.dtype)
        return self.operand(value, self.ctx.type(value))

    def operand(self, value: str, type_: TensorType) -> int:
        """Return the handle of an external tensor viewed with that type."""
        if type_.dtype not in NATIVE or type_.shape is None:
            raise Unsupported(value)
        return self._handle(Operand(value, type_))

    def _handle(self, entry: Operand | Instruction) -> int:
        if entry not in self.found:
            self.found[entry] = len(self.handles)
            self.handles.append(entry)
        return self.found[entry]

    def const(self, number: float | int | bool, dtype: DType | None) -> int:
        """Return the handle of an immediate."""
        if dtype not in NATIVE:
            raise Unsupported(str(dtype))
        text: Any = float(number) if dtype.is_float else int(number)
        if isinstance(text, float) and not math.isfinite(text):
            text = repr(text)  # JSON has no NaN or infinity
        return self.op("Const", dtype=dtype, value=text)

    def like(self, number: float | int, other: int) -> int:
        """Return an immediate of the element type of another value."""
        return self.const(number, self.dtype(other))

    def dtype(self, handle: int) -> DType:
        """The element type of a handle."""
        return self.handles[handle].dtype

    def op(self, op: str, *args: int, dtype: DType | None = None, **attrs: Any) -> int:
        """Return the handle of a primitive applied to handles, by default of the first one's element type."""
        return self._handle(Instruction(op, args, dtype or self.dtype(args[0]), tuple(sorted(attrs.items()))))

    def finish(self, results: list[int], outputs: tuple[str, ...]) -> Pointwise:
        """Number the values that the results need: operands in the requested order, then instructions."""
        needed = set(results)
        for handle, entry in reversed([*enumerate(self.handles)]):  # arguments have smaller handles
            if handle in needed and isinstance(entry, Instruction):
                needed.update(entry.args)
        entries = [(handle, self.handles[handle]) for handle in sorted(needed)]
        order = {name: i for i, name in enumerate(self.listed)}
        operands = [(handle, entry) for handle, entry in entries if isinstance(entry, Operand)]
        operands.sort(key=lambda pair: order.get(pair[1].value, len(order)))
        code = [(handle, entry) for handle, entry in entries if isinstance(entry, Instruction)]
        number = {handle: i for i, (handle, _) in enumerate((*operands, *code))}
        instructions = tuple(replace(entry, args=tuple(number[a] for a in entry.args)) for _, entry in code)
        return Pointwise(tuple(o for _, o in operands), instructions, tuple(number[r] for r in results), outputs)


def uniform(constant: Constant) -> float | int | bool | None:
    """Return the value that all elements of a constant share bit for bit; None if they differ or are too many."""
    array = constant.array
    if not 0 < array.size <= UNIFORM_LIMIT or array.dtype.kind not in "fiub":
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    if array.size > 1 and np.unique(flat.view(f"u{array.itemsize}")).size > 1:
        return None
    value: float | int | bool = flat[0].item()
    return value
