"""Lowering of elementwise groups: one loop nest over the output, whatever the operands' shapes, types and strides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from ....engine.ir.graph import Node
from ....engine.ir.symbolic import Dim
from ...codegen.pointwise_emit import computable, has_bytes, vectorizable
from ...codegen.pointwise_ops import from_nodes
from ...codegen.pointwise_program import Pointwise
from ...codegen.template_params import accesses, code, cost, launch, operand, threads
from ...ir.iteration_space import Access, Extents, Space, collapse, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import LeadingDimension, Step
from ...ir.lower import Context, Group
from ..gemm.epilogue import same_shape
from ..registry import lowering

NAMED = ("BatchNormalization", "Dropout", "com.microsoft.FastGelu", "com.microsoft.BiasGelu", "com.microsoft.QuickGelu")
"""Operators lowered elementwise although rules do not declare them so, because of further operands or outputs."""

_LONG = 192
"""Fewest elements of a row that takes so long that the step to the next row may be computed from variables."""


@lowering("", *NAMED, f64=True)
def lower_elementwise(group: Group, ctx: Context) -> list[Step] | None:
    """Group of elementwise nodes whose outputs all have one shape."""
    program = from_nodes(group.nodes, group.inputs, group.outputs, ctx)
    shape = ctx.type(group.outputs[0]).shape
    if program is None or shape is None or not all(same_shape(ctx.type(v).shape, shape) for v in group.outputs):
        return None
    reads = accesses(program.inputs, shape)
    if reads is None:
        return None
    long = bool(shape) and isinstance(shape[-1], int) and shape[-1] >= ctx.target.lanes
    by_rows = long and not ctx.columns.isdisjoint((*group.inputs, *group.outputs))
    step = elementwise_step(program, shape, reads, group, by_rows=by_rows)
    return None if step is None else [step]


def elementwise_step(
    program: Pointwise, shape: Sequence[Dim], reads: Sequence[Access], source: Group | Node, by_rows: bool = False
) -> Step | None:
    """Return the step that computes a program over a space, or None if it cannot be emitted as C.

    `by_rows` keeps the last axis a loop of its own, so that tensors may be columns of wider ones. Vectors along long
    rows are computed by kernels that read all `numbers` from `dims`, so that tensors of other sizes share them."""
    writes = [contiguous(value, shape) for value in program.outputs]
    roles = "." * (len(shape) - 1) + "c" if by_rows else ""
    space = collapse(shape, [a.strides for a in (*reads, *writes)], roles)
    int8 = has_bytes(program)
    vector = int8 or vectorizable(program, half=True)
    vector = vector and all(s[-1] == 1 for s in space.strides[len(reads) :])
    int8 = int8 and vector
    if not vector and not computable(program):
        return None
    extents = Extents()
    operands = [
        operand(f"x{k}", item.dtype, space.strides[k], extents, reads[k].offset, bytes_as_floats=int8)
        for k, item in enumerate(program.inputs)
    ]
    results = [
        operand(f"y{k}", dtype, space.strides[len(reads) + k], extents, writes[k].offset, bytes_as_floats=int8)
        for k, dtype in enumerate(program.result_types)
    ]
    body, texts = code(program, operands, vector=vector, int8=int8)
    sizes, length, places = extents.all(space.extents), space.extents[-1], dict[tuple[int, int], int]()
    if vector and isinstance(length, int) and length >= _LONG:
        numbers = [extents.variable(d) for d in space.extents]
        sizes = [f"n{place}" for place in numbers]
        for k, tensor in enumerate((*operands, *results)):
            for i, stride in enumerate(space.strides[k][:-1]):
                if stride != 0:
                    places[k, i] = extents.variable(stride)
                    tensor["strides"][i] = f"n{places[k, i]}"
    else:
        numbers = []
    params = {"extents": sizes, "reads": operands, "writes": results, "body": body, "results": texts, "vector": vector}
    params |= {"real": program.real.value if vector else "f32", "numbers": [*numbers, *places.values()]}
    kernel, inputs, work = Kernel("elementwise", params), (r.value for r in reads), threads(shape, cost(program))
    leading = tuple(_leading_dimensions(space, [*reads, *writes], len(reads), places))
    in_place = _in_place(program, reads, writes)
    outputs = program.outputs
    return launch(kernel, source, inputs, outputs, extents, work, in_place=in_place, leading_dimensions=leading)


def _leading_dimensions(
    space: Space, tensors: Sequence[Access], reads: int, places: Mapping[tuple[int, int], int]
) -> Iterator[LeadingDimension]:
    """Yield the tensors that are walked row by row, with rows as long as those of the space.

    `places` has the entry of `dims` for a tensor and an axis, if it has one."""
    length = space.extents[-1]
    for k, (tensor, strides) in enumerate(zip(tensors, space.strides, strict=True)):
        whole = tensor.offset == 0 and tensor.shape[-1:] == (length,)
        if not whole or strides[-1] != 1 or not isinstance(length, int) or not length:
            continue
        path = ("reads", k) if k < reads else ("writes", k - reads)
        factors = [s // length if isinstance(s, int) and s % length == 0 else 0 for s in strides[:-1]]
        if all(factors):
            params = tuple(((*path, "strides", i), f) for i, f in enumerate(factors) if (k, i) not in places)
            entries = tuple((places[k, i], f) for i, f in enumerate(factors) if (k, i) in places)
            yield LeadingDimension(k, length, params, entries)


def _in_place(program: Pointwise, reads: Sequence[Access], writes: Sequence[Access]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of operand and result that may share memory: equal in size and walked alike.

    Then each element is read before it is written; no other operand may read the same value."""
    values = [read.value for read in reads]
    return tuple(
        (k, j)
        for (j, write), (k, read) in product(enumerate(writes), enumerate(reads))
        if replace(read, value=write.value) == write
        and values.count(read.value) == 1
        and program.inputs[k].dtype.bits == program.result_types[j].bits
    )
