"""Elementwise groups: one loop nest over the output, whatever the operands' shapes, types and strides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...engine.symbolic import Dim, same
from ..iteration import Access, Extents, Space, collapse, contiguous
from ..kernel_graph import Group, Kernel, Pitch, Step
from ..lower import Context, lowering
from ..pointwise import Pointwise, from_nodes
from ..pointwise_c import computable, vectorisable
from ..template_params import accesses, code, cost, operand, threads

NAMED = ("BatchNormalization", "Dropout", "com.microsoft.FastGelu", "com.microsoft.BiasGelu", "com.microsoft.QuickGelu")
"""Operators that are lowered so although rules don't declare them elementwise, for their other operands or outputs."""


@lowering("", *NAMED)
def lower_elementwise(group: Group, ctx: Context) -> list[Step] | None:
    """A group of elementwise nodes whose outputs all have one shape."""
    program = from_nodes(group.nodes, group.inputs, group.outputs, ctx)
    if program is None:
        return None
    shapes = [ctx.type(value).shape for value in group.outputs]
    shape = shapes[0]
    if shape is None or any(s is None or not equal(s, shape) for s in shapes[1:]):
        return None
    reads = accesses(program, shape)
    if reads is None:
        return None
    long = bool(shape) and isinstance(shape[-1], int) and shape[-1] >= ctx.target.lanes
    by_rows = long and not ctx.columns.isdisjoint((*group.inputs, *group.outputs))
    step = elementwise_step(program, shape, reads, nodes=tuple(n.name for n in group.nodes), by_rows=by_rows)
    return None if step is None else [step]


def equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are provably the same."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def elementwise_step(
    program: Pointwise,
    shape: Sequence[Dim],
    reads: Sequence[Access],
    writes: Sequence[Access] | None = None,
    nodes: tuple[str, ...] = (),
    by_rows: bool = False,
) -> Step | None:
    """The step that computes a program over a space: operands as `reads` tells, results as `writes` (default: whole
    tensors of that shape). None if the program has no C. With `by_rows` the last axis stays a loop of its own, so that
    tensors may be columns of wider ones."""
    whole = [contiguous(value, shape) for value in program.outputs]
    writes = whole if writes is None else writes
    roles = "." * (len(shape) - 1) + "c" if by_rows else ""
    space = collapse(shape, [a.strides for a in (*reads, *writes)], roles)
    vector = vectorisable(program, halves=True) and all(s[-1] == 1 for s in space.strides[len(reads) :])
    if not vector and not computable(program):
        return None
    extents = Extents()
    operands = [
        operand(f"x{k}", item.dtype, space.strides[k], extents, reads[k].offset)
        for k, item in enumerate(program.inputs)
    ]
    results = [
        operand(f"y{k}", dtype, space.strides[len(reads) + k], extents, writes[k].offset)
        for k, dtype in enumerate(program.result_types)
    ]
    text = code(program, operands, vector=vector)
    params = {
        "extents": extents.all(space.extents),
        "reads": operands,
        "writes": results,
        "body": text.body,
        "results": text.results,
        "vector": vector,
    }
    outputs = tuple(w.value for w in writes)
    return Step(
        Kernel("elementwise", params),
        inputs=tuple(r.value for r in reads),
        outputs=outputs,
        dims=tuple(extents.dims),
        in_place=_in_place(program, reads, writes),
        threads=threads(shape, cost(program)),
        nodes=nodes,
        pitches=tuple(_pitches(space, [*reads, *writes], len(reads))),
    )


def _pitches(space: Space, tensors: Sequence[Access], reads: int) -> Iterator[Pitch]:
    """The tensors that are walked row by row, the rows as long as those of the space."""
    length = space.extents[-1]
    for k, (tensor, strides) in enumerate(zip(tensors, space.strides, strict=True)):
        if strides[-1] != 1 or tensor.offset != 0 or not tensor.shape or not isinstance(length, int):
            continue
        if tensor.shape[-1] != length or not length:
            continue
        path = ("reads", k) if k < reads else ("writes", k - reads)
        factors = [s // length if isinstance(s, int) and s % length == 0 else 0 for s in strides[:-1]]
        if all(factors):
            yield Pitch(k, length, tuple(((*path, "strides", i), f) for i, f in enumerate(factors)))


def _in_place(program: Pointwise, reads: Sequence[Access], writes: Sequence[Access]) -> tuple[tuple[int, int], ...]:
    """The pairs of operand and result that may share memory: equal in size and walked alike, so that each element is
    read before it is written; the operand must not be read a second time in another way."""
    pairs = []
    for j, write in enumerate(writes):
        for k, read in enumerate(reads):
            alike = read.shape == write.shape and read.strides == write.strides and read.offset == write.offset
            again = any(other.value == read.value and other is not read for other in reads)
            if alike and not again and program.inputs[k].dtype.bits == program.result_types[j].bits:
                pairs.append((k, j))
    return tuple(pairs)
