"""What the tensor variables of a rule stand for in an instance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from ...grammar import ast
from ..constants import ConstantInfo, summarise
from ..graph import Constant, DType, TensorType
from ..symbolic import Dim

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor operand: an input of the model, or a constant if it has an `array`, which is never written to."""

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

    @cached_property
    def type(self) -> TensorType:
        """Its tensor type."""
        return TensorType(self.dtype, self.shape)

    @cached_property
    def summary(self) -> ConstantInfo | None:
        """What an e-graph holds of a constant; None for an input. Instances share operands, and so this work."""
        return None if self.array is None else summarise(Constant(self.array))

    @cached_property
    def key(self) -> str:
        """A text that two operands share if they are the same."""
        return f"{self.type}{self.summary.digest if self.summary is not None else ''}"


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor operand computed from the operands named before it."""

    expr: ast.Expr
