"""Operators that find elements by index: Gather, GatherElements, GatherND, and the scatters.

An index out of range, which ONNX forbids, never touches memory outside: it is clamped, reads zero, or is not
written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim, product
from ..iteration import Extents, contiguous
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..pointwise_c import C_TYPES
from ..template_params import int_attr, threads
from .movement import single, word

INDEX = {DType.I64: "int64_t", DType.I32: "int32_t"}
JOINS = {
    "none": "u",
    "add": "old + u",
    "mul": "old * u",
    "max": "old > u || old != old ? old : u",
    "min": "old < u || old != old ? old : u",
}


@lowering("Gather")
def lower_gather(group: Group, ctx: Context) -> list[Step] | None:
    """Rows along an axis."""
    node = single(group)
    if node is None:
        return None
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
    return [_step("gather", params, node, extents, (*data.shape[:axis], *index.shape, *data.shape[axis + 1 :]))]


@lowering("GatherElements", "ScatterElements")
def lower_elements(group: Group, ctx: Context) -> list[Step] | None:
    """One index for each element, along an axis."""
    node = single(group)
    if node is None:
        return None
    data, index = ctx.type(node.inputs[0]), ctx.type(node.inputs[1])
    scatter = node.op == "ScatterElements"
    c = _element(ctx, node, scatter)
    if c is None or not data.shape or not index.shape or index.dtype not in INDEX:
        return None
    extents = Extents()
    params = _common(c, index, scatter, node, data.shape, extents) | {
        "tuple": 0,
        "axis": int_attr(node, "axis", 0) % len(data.shape),
        "extents": extents.all(index.shape),
    }
    return [_step("index", params, node, extents, index.shape, serial=scatter)]


@lowering("GatherND", "ScatterND")
def lower_nd(group: Group, ctx: Context) -> list[Step] | None:
    """A tuple of indices for each row of elements."""
    node = single(group)
    if node is None:
        return None
    data, index = ctx.type(node.inputs[0]), ctx.type(node.inputs[1])
    scatter = node.op == "ScatterND"
    c = _element(ctx, node, scatter)
    batch = int_attr(node, "batch_dims", 0)
    if c is None or data.shape is None or not index.shape or index.dtype not in INDEX:
        return None
    size = index.shape[-1]
    if not isinstance(size, int) or size == 0:
        return None
    extents = Extents()
    params = _common(c, index, scatter, node, data.shape, extents) | {
        "tuple": size,
        "extents": extents.all(index.shape[:-1]),
        "inner": extents(product(data.shape[batch + size :])),
        "batch": "1" if not batch else "more",
        "batch_items": extents(product(index.shape[batch:-1])),
        "batch_stride": extents(product(data.shape[batch:])),
    }
    params["sizes"] = extents.all(data.shape[batch:])
    params["strides"] = extents.all(contiguous("", data.shape).strides[batch:])
    return [_step("index", params, node, extents, (*index.shape[:-1], *data.shape[batch + size :]), serial=scatter)]


def _element(ctx: Context, node: Node, scatter: bool) -> str | None:
    """The C type to compute on: a word, but the true type where scattered values are joined."""
    if scatter and node.attrs.get("reduction", "none") != "none":
        dtype = ctx.type(node.inputs[0]).dtype
        return None if dtype is DType.BOOL or dtype is None else C_TYPES.get(dtype)
    return word(ctx, node.inputs[0])


def _common(
    c: str, index: TensorType, scatter: bool, node: Node, shape: Sequence[Dim], extents: Extents
) -> dict[str, object]:
    assert index.dtype is not None
    return {
        "c": c,
        "index": INDEX[index.dtype],
        "scatter": scatter,
        "join": JOINS[str(node.attrs.get("reduction", "none"))] if scatter else "",
        "size": extents(product(shape)),
        "sizes": extents.all(shape),
        "strides": extents.all(contiguous("", shape).strides),
    }


def _step(
    template: str,
    params: Mapping[str, object],
    node: Node,
    extents: Extents,
    shape: Sequence[Dim],
    *,
    serial: bool = False,
) -> Step:
    return Step(
        Kernel(template, params),
        inputs=node.inputs,
        outputs=node.outputs[:1],
        dims=tuple(extents.dims),
        threads=1 if serial else threads(shape),
        nodes=(node.name,),
    )
