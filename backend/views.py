"""Nodes that move no data: their result is the memory of an operand, seen with another shape."""

from __future__ import annotations

from ..engine import symbolic
from ..engine.graph import Node, TensorType
from ..engine.symbolic import Dim
from .kernel_graph import ALIGNMENT, View
from .lower import Context

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


def views_of(node: Node, context: Context) -> list[View] | None:
    """The node as views of its first input, or None if it isn't one.

    Parts of a tensor (Split, Slice, Gather along the outermost axis) count if they begin at a multiple of the
    alignment that kernels rely on."""
    source = context.type(node.inputs[0]) if node.inputs and node.inputs[0] else TensorType()
    if source.shape is None or source.dtype is None or source.dtype.numpy.kind == "O":
        return None
    if any(context.type(v).shape is None for v in node.outputs if v):
        return None
    if node.op in _RESHAPES or (node.op == "Transpose" and _moves_nothing(node, source.shape)):
        offsets: list[Dim] | None = [0]
    elif node.op == "Split":
        offsets = _split_offsets(node, source.shape, context)
    elif node.op == "Slice":
        offsets = _slice_offset(node, source.shape, context)
    elif node.op == "Gather":
        offsets = _gather_offset(node, source.shape, context)
    else:
        return None
    if offsets is None:
        return None
    size = source.dtype.numpy.itemsize
    found = []
    for offset, output in zip(offsets, node.outputs, strict=True):
        if not symbolic.divides(offset * size, ALIGNMENT):
            return None
        if output:
            found.append(View(node.inputs[0], output, offset * size, (node.name,)))
    return found


def _moves_nothing(node: Node, shape: tuple[Dim, ...]) -> bool:
    perm = node.attrs.get("perm")
    if not isinstance(perm, tuple):
        perm = tuple(reversed(range(len(shape))))
    moved = [int(p) for p in perm if shape[int(p)] != 1]  # type: ignore[arg-type]
    return moved == sorted(moved)


def _outermost(shape: tuple[Dim, ...], axis: int) -> int | None:
    """The axis, counted from 0, if no axis before it has more than one element."""
    axis = axis + len(shape) if axis < 0 else axis
    return axis if 0 <= axis < len(shape) and all(d == 1 for d in shape[:axis]) else None


def _split_offsets(node: Node, shape: tuple[Dim, ...], context: Context) -> list[Dim] | None:
    axis = _outermost(shape, int(node.attrs.get("axis", 0)))  # type: ignore[arg-type]
    if axis is None:
        return None
    stride = symbolic.product(shape[axis + 1 :])
    offset: Dim = 0
    offsets: list[Dim] = []
    for output in node.outputs:
        part = context.type(output).shape if output else None
        offsets.append(offset * stride)
        if part is None:  # an output that nobody reads: where the next begins isn't known
            return None
        offset = offset + part[axis]
    return offsets


def _slice_offset(node: Node, shape: tuple[Dim, ...], context: Context) -> list[Dim] | None:
    arguments = [context.contents(v) if v else None for v in node.inputs[1:]]
    starts = arguments[0] if arguments else None
    axes = arguments[2] if len(arguments) > 2 else tuple(range(len(starts or ())))
    steps = arguments[3] if len(arguments) > 3 else (1,)
    if starts is None or axes is None or len(starts) != 1 or len(axes) != 1 or steps != (1,):
        return None
    axis = _outermost(shape, axes[0]) if isinstance(axes[0], int) else None
    result = context.type(node.outputs[0]).shape
    if axis is None or result is None:
        return None
    start, extent = starts[0], shape[axis]
    if isinstance(start, int) and start < 0:
        start = extent + start
    if not symbolic.at_least(start, 0) or not symbolic.at_least(extent - start, 0):
        return None  # it might be clamped
    return [start * symbolic.product(shape[axis + 1 :])]


def _gather_offset(node: Node, shape: tuple[Dim, ...], context: Context) -> list[Dim] | None:
    axis = _outermost(shape, int(node.attrs.get("axis", 0)))  # type: ignore[arg-type]
    index = context.contents(node.inputs[1])
    if axis is None or index is None or len(index) != 1:
        return None
    at, extent = index[0], shape[axis]
    if isinstance(at, int) and at < 0:
        at = extent + at
    if not symbolic.at_least(at, 0) or not symbolic.at_least(extent - at, 1):
        return None
    return [at * symbolic.product(shape[axis + 1 :])]
