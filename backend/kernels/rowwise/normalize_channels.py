"""Lowering of `rewrite.ChannelsLastGroupNormalization`: NHWC images, by groups of channels or single channels.

Vectors run over channels, so each lane has a sum of its own. One kernel computes mean and variance of blocks of pixels,
a second one merges them and normalizes. Both compute the prologue; the second one also scale, bias and the epilogue.
"""

from __future__ import annotations

from typing import Any

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.symbolic import ceildiv
from ...codegen.pointwise_emit import vectorizable
from ...codegen.pointwise_ops import from_nodes
from ...codegen.template_params import accesses, float_attr, int_attr, launch, threads
from ...ir.iteration_space import Extents, collapse, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ..gemm.epilogue import same_shape
from ..registry import lowering
from .normalize import NORMAL, affine_nodes
from .row_programs import Overlay, RowPrograms

BLOCK, STRIP = 128 << 10, 16 << 10
"""Bytes of pixels whose statistics are computed at once, in the second-level cache, and that are normalized at once."""
MOST = 512
"""Maximum number of pixels of a block."""


@lowering("rewrite.ChannelsLastGroupNormalization")
def lower_channels_last_norm(group: Group, ctx: Context) -> list[Step] | None:
    """Normalization of NHWC images with a known number of channels, by groups of neighboring channels."""
    anchor = group.node
    x, *factors = anchor.inputs
    kind = ctx.type(x)
    groups = int_attr(anchor, "num_groups")
    made = {v for n in group.nodes for v in n.outputs}
    if kind.dtype is not DType.F32 or kind.shape is None or len(kind.shape) < 3 or not made.isdisjoint(factors):
        return None
    channels = kind.shape[-1]
    if not isinstance(channels, int) or channels < 2 or groups < 1 or channels % groups:
        return None
    if not all(same_shape(ctx.type(v).shape, (channels,)) for v in factors):
        return None
    programs = _programs(group, ctx, kind)
    if programs is None:
        return None
    tensors = accesses(programs.inputs, kind.shape)
    if tensors is None:
        return None
    tensors += [contiguous(value, kind.shape) for value in programs.outputs]
    roles = "o" + "R" * (len(kind.shape) - 2) + "i"
    space = collapse(kind.shape, [a.strides for a in tensors], roles)
    if space.roles not in ("oRi", "Ri"):
        return None
    pixels, images = space.extents[-2], space.extents[0] if len(space.extents) == 3 else 1
    padded, block = -(-channels // 16) * 16, max(1, min(MOST, BLOCK // (4 * channels)))
    shape = (images, ceildiv(pixels, block), 3, padded)
    statistics = ctx.new_value(TensorType(DType.F32, shape), "statistics")
    count = len(programs.before.inputs)
    work = threads(kind.shape, 8 + len(programs.before.instructions))

    def step(template: str, inputs: tuple[str, ...], outputs: tuple[str, ...], **more: Any) -> Step:
        extents = Extents()
        params = programs.params(space.strides, extents)
        for operand in params["later"]:
            operand["steady"] = operand["strides"][-2] == "0"
        extra = len(programs.before.outputs) - 1
        params |= {
            "outer": extents.all(space.extents[:-2]),
            "pixels": extents(pixels),
            "channels": channels,
            "padded": padded,
            "block": block,
        }
        if template == "normalize_channels":
            params |= {
                "size": channels // groups,
                "epsilon": float_attr(anchor, "epsilon", 1e-5),
                "extra": params["writes"][:extra],
                "finals": params["writes"][extra:],
                "strip": max(1, STRIP // (4 * channels)),
                "scratch": padded * 12,
            }
        return launch(Kernel(template, params), group, inputs, outputs, extents, work, **more)

    inputs = tuple(o.value for o in programs.inputs)
    in_place = tuple(
        (k, j)
        for k, item in enumerate(programs.before.inputs)
        for j, output in enumerate(programs.outputs)
        if tensors[k].strides == contiguous(output, kind.shape).strides
        and inputs.count(item.value) == 1
        and item.dtype is ctx.type(output).dtype
    )
    return [
        step("channel_statistics", inputs[:count], (statistics,)),
        step("normalize_channels", (*inputs, statistics), programs.outputs, scratch=padded * 12, in_place=in_place),
    ]


def _programs(group: Group, ctx: Context, kind: TensorType) -> RowPrograms | None:
    """Return the programs before and after the normalization; None if one cannot be vectorized."""
    nodes = affine_nodes(group.node)
    virtual = {v: kind for n in nodes for v in (*n.inputs, *n.outputs) if v.startswith("(")}
    early = {v for n in group.prologue for v in n.outputs}
    extras, finals = [v for v in group.outputs if v in early], [v for v in group.outputs if v not in early]
    if not finals or not all(same_shape(ctx.type(v).shape, kind.shape or ()) for v in group.outputs):
        return None
    before = from_nodes(group.prologue, group.inputs, [group.node.inputs[0], *extras], ctx)
    after = from_nodes([*group.prologue, *nodes, *group.epilogue], [NORMAL], finals, Overlay(ctx, virtual))
    if before is None or after is None or not all(vectorizable(p, half=True) for p in (before, after)):
        return None
    return RowPrograms(before, after, NORMAL)
