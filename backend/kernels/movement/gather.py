"""Lowering of Gather, GatherElements, GatherND, the scatters and ReverseSequence, which find elements by index.

A scatter writes in place if its operand dies with it, or if a caller gives one array for both (a key-value cache).

An index out of range, which ONNX forbids, never accesses memory outside: it is clamped, reads zero, or is not written.
"""

from __future__ import annotations

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import product, same
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Extents, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone
from .copies import word

INDEX = {DType.I64: "int64_t", DType.I32: "int32_t"}
REDUCTIONS = {
    "none": "u",
    "add": "old + u",
    "mul": "old * u",
    "max": "old > u || old != old ? old : u",
    "min": "old < u || old != old ? old : u",
}


@lowering_alone("Gather")
def lower_gather(node: Node, ctx: Context) -> list[Step] | None:
    """Rows along an axis."""
    data, index = ctx.type(node.inputs[0]), ctx.type(node.inputs[1])
    c = word(ctx, node.inputs[0])
    if c is None or not data.shape or index.shape is None or index.dtype not in INDEX:
        return None
    axis = int_attr(node, "axis", 0) % len(data.shape)
    extents = Extents()
    params = {
        "c": c,
        "index": INDEX[index.dtype],
        "outer": extents(product(data.shape[:axis])),
        "extent": extents(data.shape[axis]),
        "count": extents(product(index.shape)),
        "inner": extents(product(data.shape[axis + 1 :])),
    }
    work = threads((*data.shape[:axis], *index.shape, *data.shape[axis + 1 :]))
    return [launch(Kernel("gather", params), node, node.inputs, node.outputs, extents, work)]


@lowering_alone("GatherElements", "ScatterElements", "GatherND", "ScatterND")
def lower_indexed(node: Node, ctx: Context) -> list[Step] | None:
    """One index for each element, along an axis; or a tuple of indices for each row of elements."""
    data, index = ctx.type(node.inputs[0]), ctx.type(node.inputs[1])
    scatter, tuples = node.op.startswith("Scatter"), node.op.endswith("ND")
    reduction = str(node.attrs.get("reduction", "none")) if scatter else "none"
    c = word(ctx, node.inputs[0])
    if reduction != "none":  # on the true type instead
        c = None if data.dtype in (DType.BOOL, None) else C_TYPES.get(data.dtype)
    shape = data.shape
    if c is None or shape is None or not (shape or tuples) or not index.shape or index.dtype not in INDEX:
        return None
    batch = int_attr(node, "batch_dims", 0) if tuples else 0
    size = index.shape[-1] if tuples else 0
    if not isinstance(size, int) or (tuples and size == 0):
        return None
    extents = Extents()
    params: dict[str, object] = {
        "c": c,
        "index": INDEX[index.dtype],
        "scatter": scatter,
        "join": REDUCTIONS[reduction] if scatter else "",
        "size": extents(product(shape)),
        "sizes": extents.all(shape[batch:]),
        "strides": extents.all(contiguous("", shape).strides[batch:]),
        "tuple": size,
    }
    if tuples:
        positions, rest = index.shape[:-1], shape[batch + size :]
        params |= {
            "extents": extents.all(positions),
            "inner": extents(product(rest)),
            "batch": "1" if not batch else "more",
            "batch_items": extents(product(positions[batch:])),
            "batch_stride": extents(product(shape[batch:])),
        }
    else:
        positions, rest = index.shape, ()
        params |= {"axis": int_attr(node, "axis", 0) % len(shape), "extents": extents.all(positions)}
    work = 1 if scatter else threads((*positions, *rest))
    shared = ((0, 0),) if scatter else ()
    return [launch(Kernel("index", params), node, node.inputs, node.outputs[:1], extents, work, in_place=shared)]


@lowering_alone("TensorScatter", "rewrite.UpdateCache")
def lower_tensor_scatter(node: Node, ctx: Context) -> list[Step] | None:
    """Rows along an axis behind the first, from an index for each batch on; any element type.

    Ours may make the axis longer, by zeros."""
    past, update = (ctx.type(value).shape for value in node.inputs[:2])
    whole = ctx.type(node.outputs[0]).shape
    index = next(iter(node.inputs[2:3]), "")
    c, dtype = word(ctx, node.inputs[0]), ctx.type(index).dtype if index else None
    if c is None or not past or not update or not whole or len(past) != len(update) or (index and dtype not in INDEX):
        return None
    axis = int_attr(node, "axis", -2) % len(past)
    if axis == 0:
        return None
    extents = Extents()
    params = {
        "c": c,
        "index": INDEX[dtype] if dtype else "",
        "circular": node.attrs.get("mode", "linear") == "circular",
        "outer": extents(product(past[:axis])),
        "blocks": extents(product(past[1:axis])),
        "had": extents(past[axis]),
        "extent": extents(whole[axis]),
        "count": extents(update[axis]),
        "inner": extents(product(past[axis + 1 :])),
    }
    inputs = (*node.inputs[:2], *([index] if index else []))
    kernel = Kernel("tensor_scatter", params)
    return [launch(kernel, node, inputs, node.outputs, extents, threads(whole), in_place=((0, 0),))]


@lowering_alone("ReverseSequence")
def lower_reverse_sequence(node: Node, ctx: Context) -> list[Step] | None:
    """The first rows in time of each batch item reversed; any element type."""
    shape, lengths, c = ctx.type(node.inputs[0]).shape, ctx.type(node.inputs[1]), word(ctx, node.inputs[0])
    batch, time = int_attr(node, "batch_axis", 1), int_attr(node, "time_axis", 0)
    if c is None or not shape or lengths.shape is None or lengths.dtype is not DType.I64 or {batch, time} != {0, 1}:
        return None
    if not same(lengths.shape[0], shape[batch]):
        return None
    extents = Extents()
    params = {
        "c": c,
        "batch_first": batch == 0,
        "first": extents(shape[0]),
        "second": extents(shape[1]),
        "inner": extents(product(shape[2:])),
    }
    return [launch(Kernel("reverse_sequence", params), node, node.inputs, node.outputs, extents, threads(shape))]
