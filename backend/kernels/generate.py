"""Tensors made of the places of their elements: constants, ranges, triangles, one-hot codes, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.graph import Constant, DType, Node
from ...engine.symbolic import Dim, product
from ..iteration import Extents
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..pointwise import Builder, Unsupported
from ..pointwise_c import C_TYPES
from ..template_params import int_attr, threads
from .elementwise import elementwise_step
from .movement import single, word


@lowering("ConstantOfShape")
def lower_constant_of_shape(group: Group, ctx: Context) -> list[Step] | None:
    """A shape known in terms of dims."""
    node = single(group)
    if node is None:
        return None
    kind = ctx.type(node.outputs[0])
    value = node.attrs.get("value")
    number = value.array.ravel()[0].item() if isinstance(value, Constant) else 0.0
    if kind.shape is None:
        return None
    builder = Builder(ctx)
    try:
        program = builder.finish([builder.const(number, kind.dtype)], node.outputs)
    except Unsupported:
        return None
    step = elementwise_step(program, kind.shape, [], nodes=(node.name,))
    return None if step is None else [step]


@lowering("Range")
def lower_range(group: Group, ctx: Context) -> list[Step] | None:
    """Of plain numbers; the length is that of the inferred output."""
    node = single(group)
    if node is None:
        return None
    kind = ctx.type(node.outputs[0])
    if kind.shape is None or kind.dtype not in C_TYPES or kind.dtype is None:
        return None
    inputs = (node.inputs[0], node.inputs[2])
    return _step(node, {"kind": "range", "c": C_TYPES[kind.dtype]}, inputs, (1, 1, kind.shape[0]))


@lowering("EyeLike")
def lower_eye(group: Group, ctx: Context) -> list[Step] | None:
    """Ones on a diagonal."""
    node = single(group)
    if node is None:
        return None
    kind = ctx.type(node.outputs[0])
    if kind.shape is None or kind.dtype not in C_TYPES or kind.dtype is None:
        return None
    params = {"kind": "eye", "c": C_TYPES[kind.dtype], "diagonal": int_attr(node, "k", 0)}
    return _step(node, params, (), (1, *kind.shape))


@lowering("Trilu")
def lower_trilu(group: Group, ctx: Context) -> list[Step] | None:
    """The triangle above or below a diagonal; zero elsewhere."""
    node = single(group)
    if node is None:
        return None
    shape, c = ctx.type(node.inputs[0]).shape, word(ctx, node.inputs[0])
    if shape is None or c is None or len(shape) < 2:
        return None
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    known = ctx.ints(given) if given else (0,)
    params = {
        "kind": "triangle",
        "c": c,
        "upper": bool(int_attr(node, "upper", 1)),
        "diagonal": known[0] if known else None,
    }
    inputs = node.inputs[:1] if known else node.inputs[:2]
    return _step(node, params, inputs, (product(shape[:-2]), *shape[-2:]))


@lowering("OneHot")
def lower_one_hot(group: Group, ctx: Context) -> list[Step] | None:
    """Along any axis; the depth is that of the inferred output."""
    node = single(group)
    if node is None:
        return None
    index, out, c = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), word(ctx, node.outputs[0])
    if index.dtype not in C_TYPES or index.dtype is None or out.shape is None or c is None:
        return None
    axis = int_attr(node, "axis", -1) % len(out.shape)
    params = {"kind": "one_hot", "c": c, "index": C_TYPES[index.dtype]}
    space = (product(out.shape[:axis]), out.shape[axis], product(out.shape[axis + 1 :]))
    return _step(node, params, (node.inputs[0], node.inputs[2]), space)


@lowering("CumSum")
def lower_cum_sum(group: Group, ctx: Context) -> list[Step] | None:
    """Along a known axis; f32 is summed in double precision."""
    node = single(group)
    if node is None:
        return None
    kind, axis = ctx.type(node.inputs[0]), ctx.ints(node.inputs[1])
    if not kind.shape or kind.dtype not in C_TYPES or kind.dtype in (None, DType.BOOL) or not axis:
        return None
    at = axis[0] % len(kind.shape)
    params = {
        "kind": "cum_sum",
        "c": C_TYPES[kind.dtype],
        "exclusive": bool(int_attr(node, "exclusive", 0)),
        "reverse": bool(int_attr(node, "reverse", 0)),
    }
    space = (product(kind.shape[:at]), kind.shape[at], product(kind.shape[at + 1 :]))
    return _step(node, params, node.inputs[:1], space)


def _step(node: Node, params: dict[str, Any], inputs: tuple[str, ...], space: Sequence[Dim]) -> list[Step]:
    extents = Extents()
    sizes = dict(zip(("outer", "middle", "inner"), extents.all(space), strict=True))
    return [
        Step(
            Kernel("generate", {**params, **sizes}),
            inputs=inputs,
            outputs=node.outputs,
            dims=tuple(extents.dims),
            threads=threads(space),
            nodes=(node.name,),
        )
    ]
