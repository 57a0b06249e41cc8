"""Operators that only move elements, each to a place known beforehand: boxes copied between strided tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim, at_least, divides, exact_div, maximum, minimum, product, same, total
from ..iteration import Access, Extents, collapse, contiguous
from ..kernel_graph import ALIGNMENT, Group, Join, Kernel, Step, View
from ..lower import Context, lowering
from ..template_params import int_attr, threads

WORDS = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}
"""The C type that elements of so many bits are moved as."""

SHORT = 16  # rows of up to so many elements are not worth a call of memcpy


def single(group: Group) -> Node | None:
    """The group's only node; None if there are more."""
    return group.anchor if len(group.nodes) == 1 else None


def word(ctx: Context, value: str) -> str | None:
    """The C type to move a value's elements as, None if they have no such size."""
    dtype = ctx.type(value).dtype
    return None if dtype is None or dtype.value == "string" else WORDS.get(dtype.bits)


def copy_step(node: Node, ctx: Context, parts: Sequence[tuple[Access, Access]]) -> list[Step] | None:
    """The step that copies each pair's first access to its second, element by element (their shapes are equal)."""
    sources = list(dict.fromkeys(read.value for read, _ in parts))
    targets = list(dict.fromkeys(write.value for _, write in parts))
    words = {word(ctx, value) for value in (*sources, *targets)}
    if len(words) != 1 or None in words:
        return None
    extents = Extents()
    params = {
        "c": words.pop(),
        "sources": len(sources),
        "parts": [
            _part(read, write, extents) | {"source": sources.index(read.value), "target": targets.index(write.value)}
            for read, write in parts
        ],
    }
    return [
        Step(
            Kernel("copy", params),
            inputs=tuple(sources),
            outputs=tuple(targets),
            dims=tuple(extents.dims),
            threads=threads((total(product(read.shape) for read, _ in parts),)),
            nodes=(node.name,),
        )
    ]


def copy_values(source: str, target: str, kind: TensorType) -> Step:
    """The step that copies a tensor of this type, whose dims and dtype are known."""
    assert kind.shape is not None
    assert kind.dtype is not None
    extents = Extents()
    read, write = contiguous(source, kind.shape), contiguous(target, kind.shape)
    part = _part(read, write, extents) | {"source": 0, "target": 0}
    params = {"c": WORDS[kind.dtype.bits], "sources": 1, "parts": [part]}
    return Step(
        Kernel("copy", params), (source,), (target,), dims=tuple(extents.dims), threads=threads(kind.shape), nodes=()
    )


@dataclass(frozen=True)
class Columns:
    """Columns of a tensor: rows of `pitch` elements, of which they are those from `offset` on."""

    value: str
    pitch: int
    offset: int = 0

    def access(self, shape: Sequence[Dim]) -> Access:
        """Them as a tensor of this shape."""
        rows = contiguous(self.value, (*shape[:-1], self.pitch))
        return Access(self.value, tuple(shape), rows.strides, self.offset)


def copy_columns(moves: Sequence[tuple[Columns, Columns, Sequence[Dim]]], nodes: tuple[str, ...]) -> Step:
    """The step that copies f32 tensors of these shapes, columns of one value to columns of another."""
    sources = list(dict.fromkeys(read.value for read, _, _ in moves))
    targets = list(dict.fromkeys(write.value for _, write, _ in moves))
    extents = Extents()
    parts = [
        _part(read.access(shape), write.access(shape), extents)
        | {"source": sources.index(read.value), "target": targets.index(write.value)}
        for read, write, shape in moves
    ]
    return Step(
        Kernel("copy", {"c": WORDS[32], "sources": len(sources), "parts": parts}),
        tuple(sources),
        tuple(targets),
        dims=tuple(extents.dims),
        threads=threads((total(product(shape) for _, _, shape in moves),)),
        nodes=nodes,
    )


def _part(read: Access, write: Access, extents: Extents) -> dict[str, Any]:
    space = collapse(read.shape, [read.strides, write.strides])
    sizes, strides = list(space.extents), [list(s) for s in space.strides]
    kind = "rows" if strides[0][-1] == 1 and strides[1][-1] == 1 else "strided"
    if kind == "strided" and strides[1][-1] == 1 and 1 in strides[0][:-1]:
        kind = "transpose"
        dim = strides[0].index(1)
        for items in (sizes, *strides):
            items.insert(-1, items.pop(dim))
    found: dict[str, Any] = {
        "kind": kind,
        "extents": extents.all(sizes),
        "short": isinstance(sizes[-1], int) and sizes[-1] <= SHORT,
    }
    for name, pointer, access, steps in (("read", "x", read, strides[0]), ("write", "y", write, strides[1])):
        texts = extents.all(steps)
        found[name] = {"name": pointer, "strides": texts, "inner": texts[-1], "offset": extents(access.offset)}
    return found


def _whole(value: str, ctx: Context) -> Access:
    shape = ctx.type(value).shape
    assert shape is not None
    return contiguous(value, shape)


def _moved(node: Node, ctx: Context, read: Access | None) -> list[Step] | None:
    """One box, to all of the node's output (seen with the box's shape)."""
    if read is None:
        return None
    return copy_step(node, ctx, [(read, contiguous(node.outputs[0], read.shape))])


@lowering("Transpose")
def lower_transpose(group: Group, ctx: Context) -> list[Step] | None:
    """Any permutation."""
    node = single(group)
    if node is None:
        return None
    x = _whole(node.inputs[0], ctx)
    perm: Any = node.attrs.get("perm", tuple(reversed(range(len(x.shape)))))
    return _moved(node, ctx, x.permuted(perm))


@lowering("Expand")
def lower_expand(group: Group, ctx: Context) -> list[Step] | None:
    """To the inferred shape of the output."""
    node = single(group)
    if node is None:
        return None
    shape = ctx.type(node.outputs[0]).shape
    return None if shape is None else _moved(node, ctx, _whole(node.inputs[0], ctx).broadcast(shape))


@lowering("Tile")
def lower_tile(group: Group, ctx: Context) -> list[Step] | None:
    """Each dim is read `repeats` times over."""
    node = single(group)
    if node is None:
        return None
    x = _whole(node.inputs[0], ctx)
    repeats = ctx.contents(node.inputs[1])
    if repeats is None or len(repeats) != len(x.shape):
        return None
    shape, strides = [], []
    for dim, stride, count in zip(x.shape, x.strides, repeats, strict=True):
        shape += [count, dim]
        strides += [0, stride]
    return _moved(node, ctx, Access(x.value, tuple(shape), tuple(strides)))


@lowering("DepthToSpace", "SpaceToDepth")
def lower_depth_space(group: Group, ctx: Context) -> list[Step] | None:
    """Channels to blocks of pixels and back."""
    node = single(group)
    if node is None:
        return None
    x = _whole(node.inputs[0], ctx)
    n = int_attr(node, "blocksize")
    if node.op == "DepthToSpace":
        depth = exact_div(x.shape[1], n * n)
        if depth is None:
            return None
        if node.attrs.get("mode", "DCR") == "DCR":
            return _moved(node, ctx, x.split(1, (n, n, depth)).permuted((0, 3, 4, 1, 5, 2)))
        return _moved(node, ctx, x.split(1, (depth, n, n)).permuted((0, 1, 4, 2, 5, 3)))
    height, width = exact_div(x.shape[2], n), exact_div(x.shape[3], n)
    if height is None or width is None:
        return None
    return _moved(node, ctx, x.split(3, (width, n)).split(2, (height, n)).permuted((0, 3, 5, 1, 2, 4)))


@lowering("Concat")
def lower_concat(group: Group, ctx: Context) -> Sequence[Step | Join] | None:
    """Each input to its place along the axis; along the outermost one they may be made there (see `joining`)."""
    node = single(group)
    if node is None:
        return None
    out = _whole(node.outputs[0], ctx)
    axis = int_attr(node, "axis") % len(out.shape)
    parts, start = [], _zero()
    for value in node.inputs:
        read = _whole(value, ctx)
        parts.append((read, out.sliced(axis, start, 1, read.shape[axis])))
        start = start + read.shape[axis]
    steps = copy_step(node, ctx, parts)
    dtype = ctx.type(node.outputs[0]).dtype
    if steps is None or dtype is None:
        return steps
    pitch = _pitch(dtype, out.shape, axis)
    if pitch and all(isinstance(read.shape[-1], int) for read, _ in parts):
        return [Join(node.inputs, tuple(w.offset * 4 for _, w in parts), node.outputs[0], (node.name,), pitch)]
    if not all(d == 1 for d in out.shape[:axis]):
        return steps
    offsets = tuple(write.offset * dtype.numpy.itemsize for _, write in parts)
    if not all(divides(offset, ALIGNMENT) for offset in offsets):
        return steps
    return [Join(node.inputs, offsets, node.outputs[0], (node.name,))]


def _pitch(dtype: DType | None, shape: Sequence[Dim], axis: int) -> int:
    """The length of rows if parts along an axis are columns, which kernels may read and write where they are (see
    `pitch`), else 0."""
    length = shape[axis]
    columns = dtype is DType.F32 and axis == len(shape) - 1 and any(d != 1 for d in shape[:-1])
    return length if columns and isinstance(length, int) else 0


@lowering("Split")
def lower_split(group: Group, ctx: Context) -> Sequence[Step | View] | None:
    """Each output from its place along the axis; columns may be read where they are (see `pitch`)."""
    node = single(group)
    if node is None:
        return None
    x = _whole(node.inputs[0], ctx)
    axis = int_attr(node, "axis", 0) % len(x.shape)
    sizes = _split_sizes(node, ctx, x.shape[axis])
    if sizes is None:
        return None
    parts, start = [], _zero()
    for value, size in zip(node.outputs, sizes, strict=False):
        if value:
            read = x.sliced(axis, start, 1, size)
            parts.append((read, contiguous(value, read.shape)))
        start = start + size
    pitch = _pitch(ctx.type(node.inputs[0]).dtype, x.shape, axis)
    if pitch and all(isinstance(size, int) for size in sizes):
        return [View(x.value, write.value, read.offset * 4, (node.name,), pitch) for read, write in parts]
    return copy_step(node, ctx, parts)


def _zero() -> Dim:
    return 0


def _split_sizes(node: Node, ctx: Context, extent: Dim) -> Sequence[Dim] | None:
    """What each output takes of the axis."""
    if len(node.inputs) > 1 and node.inputs[1]:
        return ctx.contents(node.inputs[1])
    count = int_attr(node, "num_outputs", len(node.outputs))
    if isinstance(extent, int):
        size = -(-extent // count)
        return [size] * (count - 1) + [extent - size * (count - 1)]
    even = exact_div(extent, count)
    return None if even is None else [even] * count


@lowering("Slice")
def lower_slice(group: Group, ctx: Context) -> Sequence[Step | View] | None:
    """Known starts and steps; the lengths are those of the inferred output. Columns may be read where they are (see
    `pitch`)."""
    node = single(group)
    if node is None:
        return None
    read = _whole(node.inputs[0], ctx)
    shape = ctx.type(node.outputs[0]).shape
    starts = ctx.contents(node.inputs[1])
    given = [*node.inputs[3:5], "", ""]
    axes = ctx.ints(given[0]) if given[0] else range(len(starts or ()))
    steps = ctx.ints(given[1]) if given[1] else [1] * len(starts or ())
    if shape is None or starts is None or axes is None or steps is None:
        return None
    for start, axis, step in zip(starts, axes, steps, strict=True):
        axis %= len(read.shape)
        place = slice_start(start, read.shape[axis], step)
        if place is None or not step:
            return None
        read = read.sliced(axis, place, step, shape[axis])
    if list(steps) == [1] and isinstance(shape[-1], int) and isinstance(read.offset, int):
        pitch = _pitch(ctx.type(read.value).dtype, _whole(read.value, ctx).shape, axis)
        if pitch:
            return [View(read.value, node.outputs[0], read.offset * 4, (node.name,), pitch)]
    return _moved(node, ctx, read)


def slice_start(start: Dim, extent: Dim, step: int) -> Dim | None:
    """Where a slice begins, clamped as ONNX has it; None if the sign of `start` is not known."""
    if isinstance(start, int) and isinstance(extent, int):
        start = start + extent if start < 0 else start
        return min(max(start, 0), extent if step > 0 else extent - 1)
    if at_least(start, 0):
        top = extent if step > 0 else extent - 1
        return start if same(start, top) or start == 0 else minimum(start, top)
    if at_least(-start, 1):
        return maximum(start + extent, 0)
    return None
