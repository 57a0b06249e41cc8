"""Pointwise programs as values: instructions over numbered operands, and the builder that collects them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..engine.graph import Constant, DType, TensorType

UNIFORM_LIMIT = 4096  # constants up to this many elements are looked through for one common value

NATIVE = frozenset(
    {
        DType.F32,
        DType.F64,
        DType.I8,
        DType.I16,
        DType.I32,
        DType.I64,
        DType.U8,
        DType.U16,
        DType.U32,
        DType.U64,
        DType.BOOL,
        DType.BF16,
    }
)
"""The element types that programs compute on; bf16 is only read, written and converted."""


class Context(Protocol):
    """What the builder asks of its surroundings (`lower.Context` provides it)."""

    def type(self, value: str, /) -> TensorType:
        """The tensor type of a value."""
        ...

    def constant(self, value: str, /) -> Constant | None:
        """The contents of a value, None when it isn't constant."""
        ...


@dataclass(frozen=True)
class Instruction:
    """One primitive applied to earlier values. `attrs` are sorted pairs of JSON-able values."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default."""
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True)
class Operand:
    """A tensor that a program reads. `type.shape` broadcasts to the result's shape by NumPy's rule; for an operand that
    ONNX lines up otherwise (a per-channel vector) it is the shape seen so: `(C, 1, 1)` for one of shape `(C,)`."""

    value: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        """Its element type."""
        assert self.type.dtype is not None
        return self.type.dtype


@dataclass(frozen=True)
class Pointwise:
    """A program. Values are numbered: the operands come first, then one for each instruction; `results` are the
    numbers of the values in `outputs`."""

    inputs: tuple[Operand, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    outputs: tuple[str, ...]

    def dtype(self, index: int) -> DType:
        """The element type of a numbered value."""
        n = len(self.inputs)
        return self.inputs[index].dtype if index < n else self.instructions[index - n].dtype

    @property
    def result_types(self) -> tuple[DType, ...]:
        """The element types of the results."""
        return tuple(self.dtype(r) for r in self.results)

    @property
    def is_copy(self) -> bool:
        """Whether it computes nothing: each result is an operand."""
        return not self.instructions

    def spec(self) -> dict[str, Any]:
        """The program as JSON-able data without names: two that compute the same have the same one."""
        return {
            "inputs": [o.dtype.value for o in self.inputs],
            "code": [[i.op, list(i.args), i.dtype.value, [list(a) for a in i.attrs]] for i in self.instructions],
            "results": list(self.results),
        }


class Unsupported(Exception):
    """Raised inside the builder for what cannot be a pointwise program."""


@dataclass
class Builder:
    """Collects operands and instructions; values are handles until `finish` numbers them."""

    ctx: Context
    listed: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    operands: dict[Operand, int] = field(default_factory=dict)
    code: dict[Instruction, int] = field(default_factory=dict)
    handles: list[Operand | Instruction] = field(default_factory=list)

    def read(self, value: str) -> int:
        """The handle of a named value: one computed before, an immediate, or an operand."""
        if value in self.known:
            return self.known[value]
        constant = self.ctx.constant(value)
        if constant is not None and (number := uniform(constant)) is not None:
            return self.const(number, constant.type.dtype)
        return self.operand(value, self.ctx.type(value))

    def operand(self, value: str, type_: TensorType) -> int:
        """The handle of an external tensor seen with that type."""
        if type_.dtype not in NATIVE or type_.shape is None:
            raise Unsupported(value)
        key = Operand(value, type_)
        if key not in self.operands:
            self.operands[key] = len(self.handles)
            self.handles.append(key)
        return self.operands[key]

    def const(self, number: float | int | bool, dtype: DType | None) -> int:
        """The handle of an immediate."""
        if dtype not in NATIVE:
            raise Unsupported(str(dtype))
        text: Any = float(number) if dtype.is_float else int(number)
        if isinstance(text, float) and not math.isfinite(text):
            text = repr(text)  # JSON has no NaN or infinity
        return self.op("Const", dtype=dtype, value=text)

    def like(self, number: float | int, other: int) -> int:
        """An immediate of the element type of another value."""
        return self.const(number, self.dtype(other))

    def dtype(self, handle: int) -> DType:
        """The element type of a handle."""
        return self.handles[handle].dtype

    def op(self, op: str, *args: int, dtype: DType | None = None, **attrs: Any) -> int:
        """The handle of a primitive applied to handles; its element type is that of the first unless given."""
        key = Instruction(op, args, dtype or self.dtype(args[0]), tuple(sorted(attrs.items())))
        if (handle := self.code.get(key)) is None:
            handle = self.code[key] = len(self.handles)
            self.handles.append(key)
        return handle

    def finish(self, results: list[int], outputs: tuple[str, ...]) -> Pointwise:
        """Number what the results need: operands first, in the order asked for, then the instructions."""
        needed: set[int] = set()
        stack = list(results)
        while stack:
            handle = stack.pop()
            if handle not in needed:
                needed.add(handle)
                entry = self.handles[handle]
                stack.extend(entry.args if isinstance(entry, Instruction) else ())
        order = {name: i for i, name in enumerate(self.listed)}
        operands = sorted((order.get(o.value, len(order)), h) for o, h in self.operands.items() if h in needed)
        code = sorted(h for h in self.code.values() if h in needed)
        number = {handle: i for i, handle in enumerate((*(h for _, h in operands), *code))}
        instructions = []
        for handle in code:
            entry = self.handles[handle]
            assert isinstance(entry, Instruction)
            instructions.append(Instruction(entry.op, tuple(number[a] for a in entry.args), entry.dtype, entry.attrs))
        inputs = tuple(entry for _, h in operands if isinstance(entry := self.handles[h], Operand))
        return Pointwise(inputs, tuple(instructions), tuple(number[r] for r in results), outputs)


def uniform(constant: Constant) -> float | int | bool | None:
    """The value that all elements of a constant have (bit for bit), None if they differ or were not looked at."""
    array = constant.array
    if not 0 < array.size <= UNIFORM_LIMIT or array.dtype.kind not in "fiub":
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    if array.size > 1 and np.unique(flat.view(f"u{array.itemsize}")).size > 1:
        return None
    value: float | int | bool = flat[0].item()
    return value
