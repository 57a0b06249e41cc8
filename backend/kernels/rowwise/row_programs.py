"""Two pointwise programs around a loop over rows: one on its elements, one on its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....engine.ir.graph import Constant, TensorType
from ....engine.ir.symbolic import Dim
from ...codegen.pointwise_program import Operand, Pointwise
from ...codegen.template_params import code, operand
from ...ir.iteration_space import Extents
from ...ir.lower import Context


@dataclass(frozen=True)
class Overlay:
    """Context in which some values have other types, or exist in the first place."""

    ctx: Context
    types: dict[str, TensorType]

    def type(self, value: str, /) -> TensorType:
        """The tensor type of a value."""
        return self.types.get(value) or self.ctx.type(value)

    def constant(self, value: str, /) -> Constant | None:
        """The contents of a value, or None if it is not constant."""
        return self.ctx.constant(value)


@dataclass(frozen=True)
class RowPrograms:
    """Programs before and after a loop: the first result of one enters the loop, the other reads `between` from it."""

    before: Pointwise
    after: Pointwise
    between: str

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The tensors that both programs read, those of the first one first."""
        return (*self.before.inputs, *(o for o in self.after.inputs if o.value != self.between))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that both programs write."""
        return (*self.before.outputs[1:], *self.after.outputs)

    def params(
        self, strides: Sequence[Sequence[Dim]], extents: Extents, *, vector: bool = True, int8: bool = False
    ) -> dict[str, Any]:
        """Return the template parameters: tensors `x`, `z` and `y` with the strides of inputs and outputs, and C.

        `int8`: vectors hold the bytes among them as floats."""
        count, rows = len(self.before.inputs), iter(strides)
        dtypes = [o.dtype for o in self.inputs]
        results = (*self.before.result_types[1:], *self.after.result_types)
        reads, later, writes = (
            [operand(f"{letter}{k}", dtype, next(rows), extents, bytes_as_floats=int8) for k, dtype in enumerate(kinds)]
            for letter, kinds in (("x", dtypes[:count]), ("z", dtypes[count:]), ("y", results))
        )
        body, (value, *extra) = code(self.before, reads, vector=vector, prefix="p", int8=int8)
        free, between = iter(later), {"name": "s", "inner": "1"}
        operands = [between if o.value == self.between else next(free) for o in self.after.inputs]
        after, final = code(self.after, operands, vector=vector, prefix="q", int8=int8)
        programs = {"body": body, "value": value, "extra_results": extra, "after": after, "final_results": final}
        return {"reads": reads, "later": later, "writes": writes, **programs}
