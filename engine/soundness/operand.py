"""What the tensor variables of a rule stand for in an instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...grammar import ast
from ..graph import DType, TensorType
from ..symbolic import Dim

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor operand: an input of the model, or a constant if it has an `array`."""

    dtype: DType
    shape: tuple[Dim, ...]
    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> Tensor:
        """The constant with these contents."""
        return cls(DType.from_numpy(array.dtype), tuple(array.shape), array)

    @property
    def is_const(self) -> bool:
        """Whether it is a constant."""
        return self.array is not None

    @property
    def type(self) -> TensorType:
        """Its tensor type."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor operand computed from the operands named before it."""

    expr: ast.Expr
