"""A matrix product, read from a group, in the form that its kernels share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.symbolic import Dim, ceildiv, product
from ...codegen.template_params import launch
from ...ir.iteration_space import Access, Extents, contiguous
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.target import Target
from .epilogue import Epilogue

SMALL_WORK = 250_000
"""Below this many multiply-adds a second thread costs more than it saves."""
UNBATCHED = contiguous("", ())


@dataclass(frozen=True)
class Matrices:
    """Operand as a batch of matrices: an access over the batch dims, and the element strides of rows and columns."""

    value: str
    batch: Access
    row: Dim
    column: Dim


@dataclass(frozen=True)
class GemmProblem:
    """Batched product C = A * B with C contiguous, `batch` x m x n over k, and the fused epilogue of its group.

    `depth` has a value only where the operands agree in k, which for free sizes may be known at run time only."""

    group: Group
    epilogue: Epilogue
    a: Matrices
    b: Matrices
    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    depth: Dim

    @property
    def macs(self) -> Dim:
        """Number of multiply-adds."""
        return product((*self.batch, self.m, self.n, self.k))

    def describe(self, extents: Extents, *, weights: bool) -> dict[str, Any]:
        """Return what is computed as plain data: extents, strides, epilogue, and whether B is constant (`weights`)."""
        operands = [(*extents.all(o.batch.strides), extents(o.row), extents(o.column)) for o in (self.a, self.b)]
        sizes = extents.all((*self.batch, self.m, self.n, self.k, self.depth))
        epilogue = {"out": self.epilogue.c, **self.epilogue.params(extents)}
        return {"sizes": sizes, "operands": operands, "weights": weights, "epilogue": epilogue}


def narrowest(array: NDArray[Any], target: Target) -> tuple[str, NDArray[Any]]:
    """Return the C type and the elements of weights in 16 bits if they are exact in it, as those of 16-bit models are.

    A product of few rows takes as long as reading its weights. Vectors of them are widened as they are loaded."""
    if array.dtype != np.float32:
        return "real", array

    def bf16(x: NDArray[Any]) -> NDArray[Any] | None:
        bits = x.view(np.uint32)
        return None if (bits & np.uint32(0xFFFF)).any() else (bits >> np.uint32(16)).astype(np.uint16)

    def f16(x: NDArray[Any]) -> NDArray[Any] | None:
        with np.errstate(over="ignore", invalid="ignore"):
            found = x.astype(np.float16)
        same_bits = np.array_equal(found.astype(np.float32).view(np.uint32), x.view(np.uint32))
        return found.view(np.uint16) if same_bits else None

    x = np.ascontiguousarray(array)
    for name, narrow in (("v_bf16", bf16), ("v_f16", f16)):
        fast = name == "v_bf16" or target.isa != "portable"  # f16 is widened by an instruction
        if fast and narrow(x.reshape(-1)[:4096]) is not None and (found := narrow(x)) is not None:
            return name, found
    return "real", array


def pack_step(problem: GemmProblem, nr: int, ctx: Context) -> tuple[str, tuple[Dim, ...], Step]:
    """Return the packed value, its strides over the batch, and the step that packs B."""
    extents = Extents()
    kind = ctx.type(problem.b.value)
    assert kind.shape is not None
    images = product(kind.shape[:-2])
    panel = ceildiv(problem.n, nr) * nr * problem.k
    packed = ctx.bytes_value(panel * images * ctx.target.element_bytes, "panels")
    params = {
        "k": extents(problem.k),
        "n": extents(problem.n),
        "nr": nr,
        "images": extents(images),
        "image_stride": extents(problem.k * problem.n),
        "b_row": extents(problem.b.row),
        "b_column": extents(problem.b.column),
    }
    # Where the batch of A has become rows, B has one matrix, and the product has no batch.
    batch = kind.shape[:-2] if problem.batch else ()
    whole = contiguous(packed, (*batch, panel))
    seen = Access(packed, whole.shape[:-1], whole.strides[:-1]).broadcast(problem.batch)
    assert seen is not None
    step = launch(ctx.kernel("pack", params), problem.group, (problem.b.value,), (packed,), extents)
    return packed, seen.strides, step
