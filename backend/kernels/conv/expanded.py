"""A pointwise convolution computed line by line within the depthwise one that reads it, NHWC.

Networks for mobile devices expand few channels to many, filter each of those, and shrink them again. In the first
layers the many are larger than the second-level cache. Computed as the lines of the depthwise kernel's ring they stay
in it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....engine.ir.graph import Node
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import DEFAULT
from ..gemm import tiles as tiling
from ..gemm.matmul import pack_columns
from ..gemm.tiles import Precision
from .depthwise_lines_nhwc import Expansion, can_copy_lines, lines_step
from .depthwise_pool_nhwc import Grouping, fits_table
from .problem import ConvProblem, PlaneProblem, read_conv

_LEAST = 512 << 10
"""Least bytes for each thread of one expanded image that is not stored; or a quarter of the second-level cache."""


def expands(producer: Group, consumer: Group, ctx: Context) -> bool:
    """Whether one kernel computes both groups. Only the anchor of the second reads what the first one computes."""
    return _read(producer, consumer, ctx) is not None


def expanded_step(group: Group, ctx: Context) -> Step | None:
    """Return the step of a group whose prologue is a pointwise convolution; None if no kernel takes both."""
    anchor = next((node for node in group.prologue if node.op == group.op), None)
    if anchor is None:
        return None
    first = _part(group.prologue, anchor, (group.node.inputs[0],))
    second = _part((group.node, *group.epilogue), group.node, group.outputs)
    found = _read(first, second, ctx)
    if found is None:
        return None
    expanded, filtered = found
    lanes, channels, target = ctx.target.lanes, expanded.m, ctx.target
    blocks = -(-channels // lanes)
    rows, most = (8, 3) if target.registers >= 32 else (4, 3)
    if blocks % 3 and blocks % 2 == 0:
        rows, most = (12, 2) if target.registers >= 32 else (6, 2)
    tile = f"{rows}x{min(most, blocks)}"
    choice = replace(tiling.choose(target, None, channels, expanded.channels, tile=tile), near=0, streams=False)
    packed = pack_columns(expanded.w.reshape(channels, -1).T, choice.nv * lanes, lanes)
    layout = Grouping.of(1, 1, channels, lanes)
    weights = (layout.pack(filtered.w, channels), packed)
    inputs = (expanded.x, *(ctx.add_constant(array, "packed") for array in weights), *expanded.epilogue.values)
    problem = PlaneProblem(group, filtered.window, filtered.epilogue, inputs, channels)
    return lines_step(problem, ctx, DEFAULT, Expansion(expanded.epilogue, choice, expanded.channels))


def _least_bytes(ctx: Context) -> int:
    """Return the size from which an expanded image is not stored."""
    return max(_LEAST, ctx.target.l2 // 4) * ctx.threads


def _part(nodes: tuple[Node, ...], anchor: Node, outputs: tuple[str, ...]) -> Group:
    """Return nodes of a group, in order, as one of their own."""
    made = {value for node in nodes for value in node.outputs}
    inputs = dict.fromkeys(v for node in nodes for v in node.inputs if v and v not in made)
    return Group(nodes, anchor, tuple(inputs), outputs)


def _read(producer: Group, consumer: Group, ctx: Context) -> tuple[ConvProblem, ConvProblem] | None:
    """Return both convolutions if one kernel computes them, and is faster; None otherwise."""
    if not producer.op == consumer.op == "rewrite.ChannelsLastConv":
        return None
    if consumer.prologue or producer.prologue or producer.outputs != consumer.node.inputs[:1]:
        return None
    expanded, filtered = (read_conv(group, ctx, nhwc=True) for group in (producer, consumer))
    if expanded is None or filtered is None or filtered.x in filtered.epilogue.values:
        return None
    channels, window = expanded.m, filtered.window
    if not expanded.flat or {expanded.precision, filtered.precision} != {Precision.F32} or expanded.epilogue.is_narrow:
        return None
    if any(o.strides[:2] != (0, 0) for o in expanded.epilogue.operands):
        return None
    if (filtered.groups, filtered.channels, filtered.m) != (channels, 1, 1) or channels == 1 or not fits_table(window):
        return None
    if not can_copy_lines(PlaneProblem(consumer, window, filtered.epilogue, (filtered.x,), channels)):
        return None
    pixels = math.prod(map(ctx.likely, window.inputs))
    row = 3 * ctx.target.vector_bytes * expanded.channels  # of a panel of weights
    narrow = expanded.channels <= channels and row <= ctx.target.l1 // 2
    large = pixels * channels * 4 > _least_bytes(ctx)
    return (expanded, filtered) if narrow and large else None
