"""Lowering of operators whose results have as many elements as data choose.

These are NonZero, Compress, NonMaxSuppression, Unique, and Slice between bounds of a run.

A first step writes what is chosen to memory that has room for all, and counts. Then the extent is measured, and a
second step writes the result, whose size is known by then."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....engine.ir.graph import DType, Node, TensorType, symbols_of
from ....engine.ir.symbolic import Dim, ceildiv, minimum, product, same, symbol, symbol_name
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Item, Measure, Step
from ...ir.lower import Context
from ..movement.copies import lower_slice, word
from ..movement.gather import INDEX
from ..registry import lowering_alone

SIZED_BY_DATA = frozenset({"NonZero", "Compress", "NonMaxSuppression", "Unique"})
"""Operators whose lowerers measure the extents of the results."""


def is_sized_by_data(node: Node, ctx: Context, bound: Collection[str]) -> bool:
    """Return whether the lowerer of a node measures the extents of its results.

    A Slice does if each dim that it changes is an extent of its own, not among those known before (`bound`)."""
    if node.op != "Slice":
        return node.op in SIZED_BY_DATA
    whole, part = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    before, after = whole.shape, part.shape
    if before is None or after is None or symbols_of(part) <= {*bound}:
        return False
    changed = [symbol_name(d) for d, old in zip(after, before, strict=True) if d != old]
    return len({*changed}) == len(changed) and all(name is not None and name not in bound for name in changed)


def _extent(ctx: Context, value: str, axis: int) -> str | None:
    """Return the name of the extent along an axis that data determine; None if it is stated as something else."""
    shape = ctx.type(value).shape
    return None if not shape else symbol_name(shape[axis])


def _positions(node: Node, ctx: Context, value: str, total: Dim, extent: str) -> tuple[str, list[Item]] | None:
    """Return a value of the positions of the first `total` elements that are not zero, and the items that find them."""
    dtype = ctx.type(value).dtype
    c = None if dtype is None else C_TYPES.get(dtype)
    if c is None:
        return None
    found, count = ctx.new_value(TensorType(DType.I64, (total,)), "positions"), _count(ctx)
    extents = Extents()
    params = {"c": c, "total": extents(total)}
    step = launch(Kernel("positions", params), node, [value], [found, count], extents, 1)
    return found, [step, Measure(count, extent, total, node.name or node.outputs[0])]


def _count(ctx: Context) -> str:
    return ctx.new_value(TensorType(DType.I64, (1,)), "count")


@lowering_alone("NonZero")
def lower_non_zero(node: Node, ctx: Context) -> list[Item] | None:
    """Coordinates of elements that are not zero, of a tensor of any rank but 0."""
    shape, extent = ctx.type(node.inputs[0]).shape, _extent(ctx, node.outputs[0], 1)
    if not shape or extent is None:
        return None
    found = _positions(node, ctx, node.inputs[0], product(shape), extent)
    if found is None:
        return None
    extents = Extents()
    count = ctx.type(node.outputs[0]).shape[1]  # type: ignore[index]  # it has an extent
    params = {"sizes": extents.all(shape), "count": extents(count)}
    kernel = Kernel("coordinates", params)
    step = launch(kernel, node, [found[0]], node.outputs, extents, threads((count, len(shape))))
    return [*found[1], step]


@lowering_alone("Compress")
def lower_compress(node: Node, ctx: Context) -> list[Item] | None:
    """Rows along an axis, or elements, where a condition holds. A condition longer than the axis is cut off."""
    x, condition, c = ctx.type(node.inputs[0]).shape, ctx.type(node.inputs[1]), word(ctx, node.inputs[0])
    if x is None or condition.shape is None or len(condition.shape) != 1 or condition.dtype is not DType.BOOL:
        return None
    flat = node.attrs.get("axis") is None
    axis = 0 if flat else int_attr(node, "axis") % max(len(x), 1)
    shape = (product(x),) if flat else x
    extent = _extent(ctx, node.outputs[0], axis)
    if c is None or extent is None or not shape:
        return None
    found = _positions(node, ctx, node.inputs[1], minimum(condition.shape[0], shape[axis]), extent)
    if found is None:
        return None
    count = ctx.type(node.outputs[0]).shape[axis]  # type: ignore[index]  # it has an extent
    return [*found[1], _gather(node, c, (node.inputs[0], found[0]), shape, axis, count, node.outputs[0])]


def _gather(
    node: Node, c: str, inputs: tuple[str, str], shape: Sequence[Dim], axis: int, count: Dim, output: str
) -> Step:
    """Return the step that reads rows along an axis of a tensor of this shape; the second input has their positions."""
    extents = Extents()
    params = {
        "c": c,
        "index": "int64_t",
        "outer": extents(product(shape[:axis])),
        "extent": extents(shape[axis]),
        "count": extents(count),
        "inner": extents(product(shape[axis + 1 :])),
    }
    work = threads((*shape[:axis], count, *shape[axis + 1 :]))
    return launch(Kernel("gather", params), node, inputs, (output,), extents, work)


@lowering_alone("Slice")
def lower_slice_between(node: Node, ctx: Context) -> Sequence[Item] | None:
    """Known bounds and steps, or run-time bounds with known axes and steps: then one axis after the other."""
    if node.outputs[0] not in ctx.measured:
        return lower_slice(node, ctx)
    starts, ends = (ctx.type(value) for value in node.inputs[1:3])
    shape, whole, c = ctx.type(node.inputs[0]).shape, ctx.type(node.outputs[0]).shape, word(ctx, node.inputs[0])
    if c is None or shape is None or whole is None or starts.dtype not in INDEX or starts != ends or not starts.shape:
        return None
    number = starts.shape[0]
    given = [ctx.ints(value) if value else None for value in (*node.inputs[3:5], "", "")[:2]]
    if not isinstance(number, int) or any(v and g is None for v, g in zip(node.inputs[3:5], given, strict=False)):
        return None
    axes = [a % len(shape) for a in given[0] or range(number)]
    steps = given[1] or [1] * number
    if not len(axes) == len(steps) == number or len({*axes}) < number or not all(0 < abs(s) < 1 << 31 for s in steps):
        return None
    names = [name for axis in axes if (name := _extent(ctx, node.outputs[0], axis)) is not None]
    if len(names) < number:
        return None
    items: list[Item] = []
    part, dims = node.inputs[0], list(shape)
    for i, (axis, step, extent) in enumerate(zip(axes, steps, names, strict=True)):
        before, last = tuple(dims), i + 1 == number
        extents = Extents()
        params = {"index": INDEX[starts.dtype], "at": i, "step": step, "extent": extents(before[axis])}
        places, count = ctx.new_value(TensorType(DType.I64, (before[axis],)), "positions"), _count(ctx)
        bounds = launch(Kernel("slice_positions", params), node, node.inputs[1:3], [places, count], extents, 1)
        dims[axis] = whole[axis]
        kind = TensorType(ctx.type(node.inputs[0]).dtype, tuple(dims))
        output = node.outputs[0] if last else ctx.new_value(kind, "part")
        measure = Measure(count, extent, before[axis], node.name or node.outputs[0])
        items += [bounds, measure, _gather(node, c, (part, places), before, axis, whole[axis], output)]
        part = output
    return items


@lowering_alone("NonMaxSuppression")
def lower_non_max_suppression(node: Node, ctx: Context) -> list[Item] | None:
    """Boxes kept of each class of each image; limits may be run-time values."""
    boxes, scores = (ctx.type(value) for value in node.inputs[:2])
    extent = _extent(ctx, node.outputs[0], 0)
    given = [*node.inputs[2:], "", "", ""][:3]
    kinds = (DType.I64, DType.F32, DType.F32)
    if boxes.shape is None or scores.shape is None or extent is None or len(boxes.shape) != 3:
        return None
    if any(value and ctx.type(value).dtype is not kind for value, kind in zip(given, kinds, strict=True)):
        return None
    if any(value and product(ctx.type(value).shape or ()) != 1 for value in given) or len(scores.shape) != 3:
        return None
    images, classes, count = scores.shape
    if not same(boxes.shape[0], images) or not same(boxes.shape[1], count) or boxes.shape[2] != 4:
        return None
    limit = ctx.ints(given[0]) if given[0] else (0,)
    room = count if limit is None else minimum(count, max(limit[0], 0))
    inputs = [*node.inputs[:2], *filter(None, given)]
    kept = ctx.new_value(TensorType(DType.I32, (images, classes, room)), "kept")
    counts, total = ctx.new_value(TensorType(DType.I64, (images, classes)), "counts"), _count(ctx)
    extents = Extents()
    scratch = ceildiv(8 * count + 20 * room, 64) * 64
    shared: dict[str, object] = {"images": extents(images), "classes": extents(classes), "room": extents(room)}
    params = {
        **shared,
        "count": extents(count),
        "scratch": extents(scratch),
        "center": bool(int_attr(node, "center_point_box", 0)),
        "first": len(inputs),
        **{
            name: inputs.index(value, 2) if value else 0
            for name, value in zip(("most", "overlap", "least"), given, strict=True)
        },
    }
    kernel, work = Kernel("non_max_suppression", params), threads((images, classes, count), 8)
    choose = launch(kernel, node, inputs, [kept, counts], extents, work, scratch=scratch)
    pairs = Extents()
    add = launch(Kernel("sum_counts", {"total": pairs(images * classes)}), node, [counts], [total], pairs, 1)
    rows = Extents()
    names = {"images": rows(images), "classes": rows(classes), "room": rows(room)}
    write = launch(Kernel("kept_boxes", names), node, [kept, counts], node.outputs, rows, 1)
    return [choose, add, Measure(total, extent, images * classes * room, node.name or node.outputs[0]), write]


@lowering_alone("Unique")
def lower_unique(node: Node, ctx: Context) -> list[Item] | None:
    """Different elements, or slices along an axis, of any type that C compares; sorted or in order of occurrence."""
    x, dtype = ctx.type(node.inputs[0]).shape, ctx.type(node.inputs[0]).dtype
    c, unit = None if dtype is None else C_TYPES.get(dtype), word(ctx, node.inputs[0])
    flat = node.attrs.get("axis") is None
    if x is None or c is None or unit is None or (not x and not flat):
        return None
    axis = 0 if flat else int_attr(node, "axis") % len(x)
    shape = (product(x),) if flat else x
    values, places, inverse, counts = [*node.outputs, "", "", ""][:4]
    named = [_extent(ctx, v, axis if v == values else 0) for v in (values, places, counts) if v]
    if not named or None in named:
        return None
    outer, count, inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    if inverse and not same(product(ctx.type(inverse).shape or ()), count):
        return None
    number = ctx.new_value(TensorType(DType.I64, (1,)), "count")
    i64 = TensorType(DType.I64, (count,))
    found = [ctx.new_value(i64, "first"), inverse or ctx.new_value(i64, "inverse"), ctx.new_value(i64, "counts")]
    scalar = outer == 1 and inner == 1
    extents = Extents()
    params = {
        "c": c,
        "scalar": scalar,
        "sorted": bool(int_attr(node, "sorted", 1)),
        "outer": extents(outer),
        "count": extents(count),
        "inner": extents(inner),
    }
    sort = launch(Kernel("unique", params), node, node.inputs, [*found, number], extents, 1, scratch=32 * count)
    label = node.name or next(filter(None, node.outputs))
    items: list[Item] = [sort, *(Measure(number, name, count, label) for name in dict.fromkeys(filter(None, named)))]
    size = symbol(next(filter(None, named)))
    if values:
        extents = Extents()
        params = {
            "c": unit,
            "index": "int64_t",
            "outer": extents(outer),
            "extent": extents(count),
            "count": extents(size),
            "inner": extents(inner),
        }
        inputs, work = (node.inputs[0], found[0]), threads((outer, size, inner))
        items.append(launch(Kernel("gather", params), node, inputs, [values], extents, work))
    parts = [(source, target) for source, target in ((found[0], places), (found[2], counts)) if target]
    if parts:
        sources, targets = zip(*parts, strict=True)
        extents = Extents()
        params = {"arrays": len(parts), "count": extents(size)}
        items.append(launch(Kernel("leading_parts", params), node, sources, targets, extents, 1))
    return items
