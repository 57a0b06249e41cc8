"""Seeing through nodes that only move data: where an operand's elements lie before they are moved.

A kernel that can walk strides reads the memory that Transpose, Reshape, Split or Slice would copy. If all readers of
such a node do, nobody reads its result, and the copy is not made.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..engine.graph import Node
from ..engine.symbolic import Dim
from .iteration import Access, contiguous
from .lower import Context

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_DEPTH = 8  # nodes that are looked through, at most


def sources(value: str, ctx: Context, depth: int = _DEPTH) -> Iterator[Access]:
    """Ways to read a value of known shape, each with that shape: from the earliest tensor in memory that has its
    elements to the value itself."""
    shape = ctx.type(value).shape
    if shape is None:
        return
    node = ctx.maker(value)
    if depth and node is not None and node.inputs and node.inputs[0]:
        for access in sources(node.inputs[0], ctx, depth - 1):
            seen = _moved(access, node, value, ctx)
            if seen is not None:
                yield seen
    if node is None or ctx.in_memory(value):
        yield contiguous(value, shape)


def _moved(access: Access, node: Node, output: str, ctx: Context) -> Access | None:
    """An access to a node's first input as one to its output; None if the node does more than move elements about."""
    if node.op in _RESHAPES:
        shape = ctx.type(output).shape
        return None if shape is None else access.reshaped(shape)
    if node.op == "Transpose":
        perm = node.attrs.get("perm", tuple(reversed(range(len(access.shape)))))
        return access.permuted(perm)  # type: ignore[arg-type]
    if node.op == "Split":
        return _part(access, node, output, ctx)
    if node.op == "Slice":
        return _slice(access, node, ctx)
    return None


def _part(access: Access, node: Node, output: str, ctx: Context) -> Access | None:
    """One output of Split, by the lengths of those before it."""
    axis = int(node.attrs.get("axis", 0)) % len(access.shape)  # type: ignore[arg-type]
    start: Dim = 0
    for value in node.outputs:
        shape = ctx.type(value).shape if value else None
        if shape is None:
            return None
        if value == output:
            return access.sliced(axis, start, 1, shape[axis])
        start = start + shape[axis]
    return None


def _slice(access: Access, node: Node, ctx: Context) -> Access | None:
    """A Slice with constant bounds of known dims, by steps of 1."""
    given = [*node.inputs[1:], "", "", ""][:4]
    starts = ctx.ints(given[0]) if given[0] else None
    shape = ctx.type(node.outputs[0]).shape
    if starts is None or shape is None:
        return None
    axes = ctx.ints(given[2]) if given[2] else tuple(range(len(starts)))
    steps = ctx.ints(given[3]) if given[3] else (1,) * len(starts)
    if axes is None or steps is None or any(step != 1 for step in steps):
        return None
    for start, axis in zip(starts, axes, strict=True):
        extent = access.shape[axis]
        if not isinstance(extent, int):
            return None
        first = min(max(start + extent if start < 0 else start, 0), extent)
        access = access.sliced(axis % len(shape), first, 1, shape[axis])
    return access
