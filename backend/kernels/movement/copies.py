"""Lowering of operators that move elements to positions known at compile time: copies of strided boxes, and Pad."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ....engine.ir.graph import DType, Node, TensorType
from ....engine.ir.symbolic import Dim, divides, exact_div, product, total
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Access, Extents, collapse, contiguous, slice_access
from ...ir.kernel import ALIGNMENT, Kernel
from ...ir.kernel_graph import Join, Step, View
from ...ir.lower import Context
from ...ir.schedule import Knob, Space
from ..registry import lowering_alone
from ..scheduling import alone, schedule

WORDS = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}
"""C types as which elements are moved, by their bits."""
_BYTES = {c: bits // 8 for bits, c in WORDS.items()}

SHORT = 16
"""Longest row, in elements, that is not worth a call of memcpy."""
BLOCK = 16
"""Rows and columns of the blocks in which tensors are transposed."""
LONG = 768
"""Shortest row, in bytes, whose copy takes so long that the step to the next row may be computed from variables."""


def word(ctx: Context, value: str) -> str | None:
    """Return the C type as which a value's elements are moved, or None for other sizes."""
    dtype = ctx.type(value).dtype
    return None if dtype is None or dtype.value == "string" else WORDS.get(dtype.bits)


def _copied(node: Node, ctx: Context, parts: Sequence[tuple[Access, Access]], strip: int = 1) -> list[Step] | None:
    """Return the step that copies each pair's first access to its second, which has the same shape."""
    words = {word(ctx, access.value) for pair in parts for access in pair}
    c = words.pop()
    return None if words or c is None else [_copy(parts, c, (node.name,), strip)]


def _copy(parts: Sequence[tuple[Access, Access]], c: str, nodes: tuple[str, ...], strip: int = 1) -> Step:
    """Return the step that copies elements of a C type; `strip`: blocks of a transposition side by side."""
    sources = list(dict.fromkeys(read.value for read, _ in parts))
    targets = list(dict.fromkeys(write.value for _, write in parts))
    extents, itemsize = Extents(), _BYTES[c]
    boxes = [
        _part(read, write, extents, itemsize)
        | {"source": sources.index(read.value), "target": targets.index(write.value)}
        | ({"strip": strip} if strip > 1 else {})
        for read, write in parts
    ]
    return Step(
        Kernel("copy", {"c": c, "sources": len(sources), "parts": boxes}),
        tuple(sources),
        tuple(targets),
        dims=tuple(extents.dims),
        threads=threads((total(product(read.shape) for read, _ in parts),)),
        nodes=nodes,
    )


def copy_values(source: str, target: str, kind: TensorType) -> Step:
    """Return the step that copies a tensor of this type, whose dims and element type are known."""
    assert kind.shape is not None
    assert kind.dtype is not None
    return _copy([(contiguous(source, kind.shape), contiguous(target, kind.shape))], WORDS[kind.dtype.bits], ())


@dataclass(frozen=True)
class Columns:
    """Columns of a tensor: rows of `leading_dimension` elements, of which they are those from `offset` on."""

    value: str
    leading_dimension: int
    offset: int = 0

    def access(self, shape: Sequence[Dim]) -> Access:
        """View the columns as a tensor of this shape."""
        rows = contiguous(self.value, (*shape[:-1], self.leading_dimension))
        return Access(self.value, tuple(shape), rows.strides, self.offset)


def copy_columns(moves: Sequence[tuple[Columns, Columns, Sequence[Dim]]], dtype: DType, nodes: tuple[str, ...]) -> Step:
    """Return the step that copies tensors of these shapes and one type, columns of one value to those of another."""
    return _copy([(read.access(shape), write.access(shape)) for read, write, shape in moves], WORDS[dtype.bits], nodes)


def _part(read: Access, write: Access, extents: Extents, itemsize: int) -> dict[str, Any]:
    """Return the template parameters of one box: rows copied whole, a transposition, or element by element.

    Long rows and transpositions of whole blocks have all their `numbers` in `dims`, so that the dozens of copies of a
    model with windows share a few kernels. `itemsize` is that of an element in bytes."""
    space = collapse(read.shape, [read.strides, write.strides])
    sizes, strides = list(space.extents), [list(s) for s in space.strides]
    kind = "rows" if strides[0][-1] == 1 and strides[1][-1] == 1 else "strided"
    if kind == "strided" and strides[1][-1] == 1 and 1 in strides[0][:-1]:
        kind = "transpose"
        dim = strides[0].index(1)
        for items in (sizes, *strides):
            items.insert(-1, items.pop(dim))
    short = isinstance(sizes[-1], int) and sizes[-1] <= SHORT
    shared = kind == "rows" and isinstance(sizes[-1], int) and sizes[-1] * itemsize >= LONG
    if kind == "transpose":
        shared = all(not isinstance(size, int) or size >= BLOCK for size in sizes[-2:])
    numbers: list[int] = []

    def text(dim: Dim) -> str:
        if not shared:
            return extents(dim)
        numbers.append(extents.variable(dim))
        return f"n{numbers[-1]}"

    found: dict[str, Any] = {"kind": kind, "extents": list(map(text, sizes)), "short": short, "numbers": numbers}
    for name, pointer, access, steps in (("read", "x", read, strides[0]), ("write", "y", write, strides[1])):
        last = "1" if steps[-1] == 1 else text(steps[-1])
        texts = [*("0" if step == 0 else text(step) for step in steps[:-1]), last]
        offset = f"dims[{extents.variable(access.offset)}]" if shared else extents(access.offset)
        found[name] = {"name": pointer, "strides": texts, "inner": texts[-1], "offset": offset}
    return found


def _whole(value: str, ctx: Context) -> Access:
    shape = ctx.type(value).shape
    assert shape is not None
    return contiguous(value, shape)


def _moved(node: Node, ctx: Context, read: Access | None) -> list[Step] | None:
    """Return the step that copies one box to all of the node's output, viewed with the box's shape."""
    if read is None:
        return None
    write = contiguous(node.outputs[0], read.shape)
    steps = _copied(node, ctx, [(read, write)])
    if steps is None or [part["kind"] for part in steps[0].kernel.params["parts"]] != ["transpose"]:
        return steps

    def described(extents: Extents) -> dict[str, Any]:
        bits = ctx.type(read.value).dtype
        return {"sizes": extents.all(read.shape), "strides": extents.all(read.strides), "bits": bits and bits.bits}

    label = f"transpose {'x'.join(map(str, read.shape))}"
    point = schedule(alone(node), ctx, label, described, transpose_space)
    return _copied(node, ctx, [(read, write)], int(point["strip"])) if "strip" in point else steps


def transpose_space() -> Space:
    """Return the schedules of a transposition: `strip`, the blocks that are read side by side before the next rows."""
    return Space(("copy",), (Knob("strip", (1, 2, 4, 8)),))


@lowering_alone("Transpose")
def lower_transpose(node: Node, ctx: Context) -> list[Step] | None:
    """Any permutation."""
    x = _whole(node.inputs[0], ctx)
    perm: Any = node.attrs.get("perm", tuple(reversed(range(len(x.shape)))))
    return _moved(node, ctx, x.permuted(perm))


@lowering_alone("Expand")
def lower_expand(node: Node, ctx: Context) -> list[Step] | None:
    """To the inferred shape of the output."""
    shape = ctx.type(node.outputs[0]).shape
    return None if shape is None else _moved(node, ctx, _whole(node.inputs[0], ctx).broadcast(shape))


@lowering_alone("Tile")
def lower_tile(node: Node, ctx: Context) -> list[Step] | None:
    """Each dim is read `repeats` times."""
    x = _whole(node.inputs[0], ctx)
    repeats = ctx.contents(node.inputs[1])
    if repeats is None or len(repeats) != len(x.shape):
        return None
    shape = tuple(d for pair in zip(repeats, x.shape, strict=True) for d in pair)
    return _moved(node, ctx, Access(x.value, shape, tuple(s for stride in x.strides for s in (0, stride))))


@lowering_alone("DepthToSpace", "SpaceToDepth")
def lower_depth_space(node: Node, ctx: Context) -> list[Step] | None:
    """Channels to blocks of pixels and back."""
    x = _whole(node.inputs[0], ctx)
    n = int_attr(node, "blocksize")
    if node.op == "DepthToSpace":
        if (depth := exact_div(x.shape[1], n * n)) is None:
            return None
        dcr = node.attrs.get("mode", "DCR") == "DCR"
        factors, perm = ((n, n, depth), (0, 3, 4, 1, 5, 2)) if dcr else ((depth, n, n), (0, 1, 4, 2, 5, 3))
        return _moved(node, ctx, x.split(1, factors).permuted(perm))
    height, width = exact_div(x.shape[2], n), exact_div(x.shape[3], n)
    if height is None or width is None:
        return None
    return _moved(node, ctx, x.split(3, (width, n)).split(2, (height, n)).permuted((0, 3, 5, 1, 2, 4)))


@lowering_alone("Concat")
def lower_concat(node: Node, ctx: Context) -> Sequence[Step | Join] | None:
    """Each input to its position along the axis; along the outermost one, inputs may be computed in place."""
    out = _whole(node.outputs[0], ctx)
    axis = int_attr(node, "axis") % len(out.shape)
    reads = [_whole(value, ctx) for value in node.inputs]
    parts = list(zip(reads, _parts(out, axis, [read.shape[axis] for read in reads]), strict=True))
    steps = _copied(node, ctx, parts)
    dtype = ctx.type(node.outputs[0]).dtype
    if steps is None or dtype is None:
        return steps
    ld = _leading_dimension(dtype, out.shape, axis)
    offsets = tuple(write.offset * dtype.numpy.itemsize for _, write in parts)
    if ld and all(isinstance(read.shape[-1], int) for read, _ in parts):
        return [Join(node.inputs, offsets, node.outputs[0], (node.name,), ld)]
    outermost = all(d == 1 for d in out.shape[:axis])
    if not outermost or not all(divides(offset, ALIGNMENT) for offset in offsets):
        return steps
    return [Join(node.inputs, offsets, node.outputs[0], (node.name,))]


def _parts(whole: Access, axis: int, lengths: Sequence[Dim]) -> list[Access]:
    """Cut an access into parts of these lengths, side by side along an axis."""
    starts = accumulate(lengths[:-1], operator.add, initial=0)
    return [whole.sliced(axis, start, 1, length) for start, length in zip(starts, lengths, strict=True)]


def _leading_dimension(dtype: DType | None, shape: Sequence[Dim], axis: int) -> int:
    """Return the row length if parts along an axis are columns that kernels may read and write in place, else 0."""
    length = shape[axis]
    columns = dtype in (DType.F32, DType.BF16) and axis == len(shape) - 1 and any(d != 1 for d in shape[:-1])
    return length if columns and isinstance(length, int) else 0


@lowering_alone("Split")
def lower_split(node: Node, ctx: Context) -> Sequence[Step | View] | None:
    """Each output from its place along the axis; columns may be read in place."""
    x = _whole(node.inputs[0], ctx)
    axis = int_attr(node, "axis", 0) % len(x.shape)
    sizes = _split_sizes(node, ctx, x.shape[axis])
    if sizes is None:
        return None
    reads = zip(node.outputs, _parts(x, axis, sizes), strict=False)
    parts = [(read, contiguous(value, read.shape)) for value, read in reads if value]
    dtype = ctx.type(node.inputs[0]).dtype
    ld = _leading_dimension(dtype, x.shape, axis)
    if ld and dtype is not None and all(isinstance(size, int) for size in sizes):
        itemsize = dtype.numpy.itemsize
        return [View(x.value, write.value, read.offset * itemsize, (node.name,), ld) for read, write in parts]
    return _copied(node, ctx, parts)


def _split_sizes(node: Node, ctx: Context, extent: Dim) -> Sequence[Dim] | None:
    """Return the extent of each output along the axis."""
    if len(node.inputs) > 1 and node.inputs[1]:
        return ctx.contents(node.inputs[1])
    count = int_attr(node, "num_outputs", len(node.outputs))
    if isinstance(extent, int):
        size = -(-extent // count)
        return [size] * (count - 1) + [extent - size * (count - 1)]
    even = exact_div(extent, count)
    return None if even is None else [even] * count


def lower_slice(node: Node, ctx: Context) -> Sequence[Step | View] | None:
    """Known starts and steps; the lengths are those of the inferred output. Columns may be read in place."""
    found = slice_access(_whole(node.inputs[0], ctx), node, ctx)
    if found is None:
        return None
    read, along = found
    if len(along) == 1 and along[0][1] == 1 and isinstance(read.shape[-1], int) and isinstance(read.offset, int):
        dtype = ctx.type(read.value).dtype
        ld = _leading_dimension(dtype, _whole(read.value, ctx).shape, along[0][0])
        if ld and dtype is not None:
            return [View(read.value, node.outputs[0], read.offset * dtype.numpy.itemsize, (node.name,), ld)]
    return _moved(node, ctx, read)


@lowering_alone("Pad")
def lower_pad(node: Node, ctx: Context) -> list[Step] | None:
    """Margins known in terms of dims; the constant may be a run-time value."""
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    c = word(ctx, node.inputs[0])
    pads = ctx.contents(node.inputs[1])
    if c is None or not x.shape or y.shape is None or pads is None:
        return None
    rank = len(x.shape)
    value, axes_input = [*node.inputs[2:4], "", ""][:2]
    axes = ctx.ints(axes_input) if axes_input else tuple(range(rank))
    if axes is None or len(pads) != 2 * len(axes):
        return None
    before: list[Dim] = [0] * rank
    for k, axis in enumerate(axes):
        before[axis % rank] = pads[k]
    extents = Extents()
    params = {
        "c": c,
        "mode": node.attrs.get("mode", "constant"),
        "value": bool(value),
        "extents": extents.all(y.shape),
        "sizes": extents.all(x.shape),
        "strides": extents.all(contiguous("", x.shape).strides),
        "before": extents.all(before),
    }
    inputs = filter(None, (node.inputs[0], value))
    return [launch(Kernel("pad", params), node, inputs, node.outputs, extents, threads(y.shape))]
