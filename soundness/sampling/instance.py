"""Instances of a rule: one operand for each of its variables, as values that can be edited, compared and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.ir.constants import ConstantInfo, summarize
from ...engine.ir.graph import Constant, DType, TensorType, content_text
from ...engine.ir.symbolic import Dim
from ...engine.ir.values import OpRef, RestRef
from ...grammar.printing.printer import print_expr
from ...grammar.syntax import ast
from .values import Array, draw

Slot = tuple[str, int | None]
"""Position of a tensor operand: the variable, and the index if it stands for a list."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """Tensor operand: an input of the model, or a constant if it has an `array`, which must not be written to."""

    dtype: DType
    shape: tuple[Dim, ...]
    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> Tensor:
        """Return the constant with these contents."""
        return cls(DType.from_numpy(array.dtype), tuple(array.shape), array)

    @property
    def is_const(self) -> bool:
        """Whether the operand is a constant."""
        return self.array is not None

    @cached_property
    def type(self) -> TensorType:
        """Tensor type."""
        return TensorType(self.dtype, self.shape)

    @cached_property
    def constant(self) -> Constant | None:
        """The constant; None for an input."""
        return None if self.array is None else Constant(self.array)

    @cached_property
    def summary(self) -> ConstantInfo | None:
        """What an e-graph stores of a constant; None for an input. Cached because instances share operands."""
        return None if self.constant is None else summarize(self.constant)

    @cached_property
    def type_text(self) -> str:
        """Tensor type as text."""
        return str(self.type)

    @cached_property
    def key(self) -> str:
        """Text that is equal for tensors of one type with equal contents."""
        return self.type_text if self.constant is None else f"{self.type_text}{self.constant.digest}"


@dataclass(frozen=True, slots=True)
class Term:
    """Tensor operand that is computed from the operands before it."""

    expr: ast.Expr


@dataclass(frozen=True)
class Instance:
    """Operands that fill in a rule's pattern.

    `form` is the index of the left side that is filled in (see `Subject`). `operands` are ordered: a term follows the
    operands that it reads. `steps` counts the edits since a test of the rule."""

    form: int
    operands: Mapping[str, Any]
    steps: int = 0

    def replace(self, **operands: Any) -> Instance:
        """Return the instance with some operands replaced."""
        return Instance(self.form, {**self.operands, **operands}, self.steps + 1)

    def without(self, *names: str) -> Instance:
        """Return the instance without some operands."""
        return Instance(self.form, {n: v for n, v in self.operands.items() if n not in names}, self.steps + 1)

    def replace_tensors(self, tensors: Mapping[Slot, Tensor]) -> Instance:
        """Return the instance with other tensors in some slots, each of which counts as an edit."""
        operands = dict(self.operands)
        for (name, index), tensor in tensors.items():
            old: Any = operands.get(name)
            operands[name] = tensor if index is None else [*old[:index], tensor, *old[index + 1 :]]
        return Instance(self.form, operands, self.steps + len(tensors))

    @cached_property
    def tensors(self) -> list[tuple[Slot, Tensor]]:
        """Tensor operands with their slots."""
        found: list[tuple[Slot, Tensor]] = []
        for name, value in self.operands.items():
            members = enumerate(value) if isinstance(value, list) else [(None, value)]
            found += [((name, i), v) for i, v in members if isinstance(v, Tensor)]
        return found

    @cached_property
    def key(self) -> str:
        """Text that is equal for equal instances."""
        return f"{self.form}:" + ";".join(f"{k}={_key(v)}" for k, v in self.operands.items())


def _key(value: Any) -> str:
    match value:
        case Tensor():
            return value.key
        case Term(expr=expr):
            return print_expr(expr)
        case list():
            return "[" + ",".join(map(_key, value)) + "]"
        case RestRef() | OpRef():
            return f"{getattr(value, 'op', '')}{content_text(sorted(value.attrs.items(), key=lambda p: p[0]))}"
    return content_text(value)


def static(shape: Sequence[Dim]) -> tuple[int, ...] | None:
    """Return a shape as numbers; None if a dim is symbolic."""
    known = tuple(d for d in shape if isinstance(d, int))
    return known if len(known) == len(shape) else None


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Convert an array; real numbers saturate at the limits of an integer type, NaN becomes 0."""
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and array.dtype.kind not in "iub":
            limits = np.iinfo(dtype)
            wide = np.nan_to_num(array.astype(np.float64), nan=0, posinf=3, neginf=-3)
            array = np.clip(wide, max(limits.min, -(2**62)), min(limits.max, 2**62))
        return np.asarray(array.astype(dtype))


def filled(shape: tuple[int, ...], number: float, dtype: DType) -> Tensor:
    """Return a constant of which every element is the same number."""
    return Tensor.of(cast(np.full(shape, number), dtype.numpy))


def resize(tensor: Tensor, shape: tuple[Dim, ...], rng: np.random.Generator) -> Tensor:
    """Return the tensor in another shape. The elements of a constant are truncated or repeated, which preserves what
    they have in common."""
    if tensor.array is None or shape == tensor.shape:
        return Tensor(tensor.dtype, shape, tensor.array)
    sizes = tuple(d if isinstance(d, int) else 2 for d in shape)
    return Tensor.of(np.resize(tensor.array, sizes) if tensor.array.size else draw(tensor.dtype, sizes, rng))


def retype(tensor: Tensor, dtype: DType) -> Tensor:
    """Return the tensor with another element type."""
    return Tensor(dtype, tensor.shape) if tensor.array is None else Tensor.of(cast(tensor.array, dtype.numpy))
