"""Nodes that move no data: their result aliases the memory of an operand, with another shape."""

from __future__ import annotations

from ...engine.ir import symbolic
from ...engine.ir.graph import DType, Node, TensorType
from ...engine.ir.symbolic import Dim
from ..codegen.pointwise_emit import C_TYPES
from ..ir.iteration_space import RESHAPES
from ..ir.kernel import ALIGNMENT
from ..ir.kernel_graph import ModelPlan, View
from ..ir.lower import Context
from ..memory.buffer_assignment import nbytes

_Starts = tuple[int, list[Dim]]
"""An axis, and where each output begins along it."""


def views_of(node: Node, context: Context) -> list[View] | None:
    """Return a node as aliases of its first input; None if it moves data.

    Parts of a tensor (Split, Slice, Gather along the outermost axis) qualify if they begin at a multiple of the
    alignment that kernels rely on."""
    source = context.type(node.inputs[0]) if node.inputs and node.inputs[0] else TensorType()
    if source.shape is None or source.dtype is None or source.dtype.numpy.kind == "O":
        return None
    if any(context.type(v).shape is None for v in node.outputs if v):
        return None
    offsets = _offsets(node, source.shape, source.dtype.numpy.itemsize, context)
    if offsets is None or not all(symbolic.divides(offset, ALIGNMENT) for offset in offsets):
        return None
    found = zip(offsets, node.outputs, strict=True)
    return [View(node.inputs[0], output, offset, (node.name,)) for offset, output in found if output]


def aliased(plan: ModelPlan, value: str) -> str:
    """Return the value of a plan that a value aliases as a whole, through any number of aliases."""
    views = {item.output: item.input for item in plan.items if isinstance(item, View) and item.offset == 0}
    while value in views and symbolic.same(nbytes(plan.type(views[value])), nbytes(plan.type(value))):
        value = views[value]
    return value


def _offsets(node: Node, shape: tuple[Dim, ...], size: int, context: Context) -> list[Dim] | None:
    """Return the byte at which each output begins, for elements of `size` bytes; None if one is not contiguous."""
    if node.op in RESHAPES or (node.op == "Transpose" and _moves_nothing(node, shape)):
        return [0]
    if node.op == "BitCast" and _same_width(context.type(node.inputs[0]), context.type(node.outputs[0])):
        return [0]
    starts = {"Split": _split, "Slice": _slice, "Gather": _gather}.get(node.op)
    found = starts(node, shape, context) if starts else None
    if found is None or not all(d == 1 for d in shape[: found[0]]):
        return None
    stride = symbolic.product(shape[found[0] + 1 :])
    return [start * stride * size for start in found[1]]


def _same_width(source: TensorType, target: TensorType) -> bool:
    """Whether elements of two types have as many bytes, of which each pattern is an element."""
    types = [kind.dtype for kind in (source, target) if kind.dtype in C_TYPES or kind.dtype in (DType.F16, DType.BF16)]
    sizes = {dtype.numpy.itemsize for dtype in types if dtype is not None}
    return len(types) == 2 and len(sizes) == 1 and target.dtype is not DType.BOOL


def _moves_nothing(node: Node, shape: tuple[Dim, ...]) -> bool:
    perm = node.attrs.get("perm")
    order = perm if isinstance(perm, tuple) else reversed(range(len(shape)))
    moved = [int(p) for p in order if shape[int(p)] != 1]  # type: ignore[arg-type]
    return moved == sorted(moved)


def _from_start(axis: int, rank: int) -> int | None:
    """Return an axis counted from 0; None if there is none."""
    return axis % rank if -rank <= axis < rank else None


def _split(node: Node, shape: tuple[Dim, ...], context: Context) -> _Starts | None:
    axis = _from_start(int(node.attrs.get("axis", 0)), len(shape))  # type: ignore[arg-type]
    parts = [context.type(v).shape if v else None for v in node.outputs]
    if axis is None or None in parts:  # after an unused output, the start of the next one is unknown
        return None
    lengths = [part[axis] for part in parts if part is not None]
    return axis, [symbolic.total(lengths[:i]) for i in range(len(lengths))]


def _slice(node: Node, shape: tuple[Dim, ...], context: Context) -> _Starts | None:
    given = [context.contents(v) if v else None for v in node.inputs[1:]]
    starts = given[0] if given else None
    axes = given[2] if len(given) > 2 else tuple(range(len(starts or ())))
    steps = given[3] if len(given) > 3 else (1,)
    if starts is None or axes is None or len(starts) != 1 or len(axes) != 1 or steps != (1,):
        return None
    axis = _from_start(axes[0], len(shape)) if isinstance(axes[0], int) else None
    return None if axis is None else _inside(axis, starts[0], shape, 0)


def _gather(node: Node, shape: tuple[Dim, ...], context: Context) -> _Starts | None:
    axis = _from_start(int(node.attrs.get("axis", 0)), len(shape))  # type: ignore[arg-type]
    index = context.contents(node.inputs[1])
    return None if axis is None or index is None or len(index) != 1 else _inside(axis, index[0], shape, 1)


def _inside(axis: int, at: Dim, shape: tuple[Dim, ...], room: int) -> _Starts | None:
    """Return a start along an axis; None unless `room` elements certainly follow: it might be clamped."""
    start = shape[axis] + at if isinstance(at, int) and at < 0 else at
    inside = symbolic.at_least(start, 0) and symbolic.at_least(shape[axis] - start, room)
    return (axis, [start]) if inside else None
