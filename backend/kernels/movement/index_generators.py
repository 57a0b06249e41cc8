"""Lowering of tensors computed from element positions: constants, ranges, triangles, one-hot codes, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engine.ir.graph import Constant, DType, Node
from ....engine.ir.symbolic import Dim, product
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.pointwise_program import NATIVE, Builder
from ...codegen.template_params import int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone
from ..rowwise.elementwise import elementwise_step
from .copies import word


@lowering_alone("ConstantOfShape")
def lower_constant_of_shape(node: Node, ctx: Context) -> list[Step] | None:
    """A shape known in terms of dims."""
    kind = ctx.type(node.outputs[0])
    value = node.attrs.get("value")
    number = value.array.ravel()[0].item() if isinstance(value, Constant) else 0.0
    if kind.shape is None or kind.dtype not in NATIVE:
        return None
    builder = Builder(ctx)
    program = builder.finish([builder.const(number, kind.dtype)], node.outputs)
    step = elementwise_step(program, kind.shape, [], node)
    return None if step is None else [step]


@lowering_alone("Range")
def lower_range(node: Node, ctx: Context) -> list[Step] | None:
    """Range of numbers; the length is that of the inferred output."""
    kind = ctx.type(node.outputs[0])
    if kind.shape is None or kind.dtype not in C_TYPES or kind.dtype is None:
        return None
    inputs = (node.inputs[0], node.inputs[2])
    return _step(node, {"kind": "range", "c": C_TYPES[kind.dtype]}, inputs, (1, 1, kind.shape[0]))


@lowering_alone("EyeLike")
def lower_eye(node: Node, ctx: Context) -> list[Step] | None:
    """Ones on a diagonal."""
    kind = ctx.type(node.outputs[0])
    if kind.shape is None or kind.dtype not in C_TYPES or kind.dtype is None:
        return None
    params = {"kind": "eye", "c": C_TYPES[kind.dtype], "diagonal": int_attr(node, "k", 0)}
    return _step(node, params, (), (1, *kind.shape))


@lowering_alone("Trilu")
def lower_trilu(node: Node, ctx: Context) -> list[Step] | None:
    """The triangle above or below a diagonal; zero elsewhere."""
    shape, c = ctx.type(node.inputs[0]).shape, word(ctx, node.inputs[0])
    if shape is None or c is None or len(shape) < 2:
        return None
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    known = ctx.ints(given) if given else (0,)
    upper, diagonal = bool(int_attr(node, "upper", 1)), known[0] if known else None
    params = {"kind": "triangle", "c": c, "upper": upper, "diagonal": diagonal}
    inputs = node.inputs[:1] if known else node.inputs[:2]
    return _step(node, params, inputs, (product(shape[:-2]), *shape[-2:]))


@lowering_alone("OneHot")
def lower_one_hot(node: Node, ctx: Context) -> list[Step] | None:
    """Along any axis; the depth is that of the inferred output."""
    index, out, c = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), word(ctx, node.outputs[0])
    if index.dtype not in C_TYPES or index.dtype is None or out.shape is None or c is None:
        return None
    axis = int_attr(node, "axis", -1) % len(out.shape)
    params = {"kind": "one_hot", "c": c, "index": C_TYPES[index.dtype]}
    space = (product(out.shape[:axis]), out.shape[axis], product(out.shape[axis + 1 :]))
    return _step(node, params, (node.inputs[0], node.inputs[2]), space)


@lowering_alone("CumSum", "CumProd")
def lower_cumulative(node: Node, ctx: Context) -> list[Step] | None:
    """Along a known axis; f32 is summed or multiplied in double precision."""
    kind, axis = ctx.type(node.inputs[0]), ctx.ints(node.inputs[1])
    if not kind.shape or kind.dtype not in C_TYPES or kind.dtype in (None, DType.BOOL) or not axis:
        return None
    at = axis[0] % len(kind.shape)
    flags = {name: bool(int_attr(node, name, 0)) for name in ("exclusive", "reverse")}
    space = (product(kind.shape[:at]), kind.shape[at], product(kind.shape[at + 1 :]))
    params = {"kind": "cumulative", "c": C_TYPES[kind.dtype], "times": node.op == "CumProd", **flags}
    return _step(node, params, node.inputs[:1], space)


def _step(node: Node, params: dict[str, Any], inputs: tuple[str, ...], space: Sequence[Dim]) -> list[Step]:
    extents = Extents()
    sizes = dict(zip(("outer", "middle", "inner"), extents.all(space), strict=True))
    kernel = Kernel("index_generators", {**params, **sizes})
    return [launch(kernel, node, inputs, node.outputs, extents, threads(space))]
