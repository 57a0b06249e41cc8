"""Pointwise programs: straight-line code over the elements of tensors.

A program is what a run of elementwise operators becomes before it is a kernel, or the prologue or epilogue of one: a
list of instructions over numbered values, without shapes, loops or memory. `from_nodes` builds one; activations are
expanded there into a few primitives, equal instructions are shared, and constants with one value for all elements
become immediates. `pointwise_c.emit` writes it as C, on vectors or on scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..engine.graph import DType, Node
from .pointwise_ops import EXPANSIONS, LIBRARY_DOMAINS
from .pointwise_program import (
    NATIVE,
    UNIFORM_LIMIT,
    Builder,
    Context,
    Instruction,
    Operand,
    Pointwise,
    Unsupported,
    uniform,
)

__all__ = [
    "NATIVE",
    "UNIFORM_LIMIT",
    "Builder",
    "Context",
    "Instruction",
    "Operand",
    "Pointwise",
    "Unsupported",
    "from_nodes",
    "supported",
    "uniform",
]


def supported(node: Node, ctx: Context) -> bool:
    """Whether the node can be part of a pointwise program as it stands."""
    return from_nodes([node], [], [o for o in node.outputs if o], ctx) is not None


def from_nodes(nodes: Iterable[Node], inputs: Sequence[str], outputs: Sequence[str], ctx: Context) -> Pointwise | None:
    """The program that computes `outputs` by `nodes` (in topological order), None if one of them isn't pointwise or
    has an element type outside `NATIVE`.

    The operands are those of `inputs` that are read, in that order, then every other value read from outside."""
    builder = Builder(ctx)
    for value in inputs:
        builder.listed.append(value)
    try:
        for node in nodes:
            _translate(builder, node)
        results = [builder.read(value) for value in outputs]
    except Unsupported:
        return None
    return builder.finish(results, tuple(outputs))


def _translate(b: Builder, node: Node) -> None:
    """Add a node's instructions and note what its output is."""
    name = node.op.rpartition(".")[2]
    if node.domain not in LIBRARY_DOMAINS or name not in EXPANSIONS or (any(node.outputs[1:]) and name != "Dropout"):
        raise Unsupported(node.op)
    out_type = b.ctx.type(node.outputs[0])
    if out_type.dtype not in NATIVE:
        raise Unsupported(node.op)
    handle = EXPANSIONS[name](b, node)
    if b.dtype(handle) is not out_type.dtype:
        raise Unsupported(node.op)
    b.known[node.outputs[0]] = handle
    for mask in node.outputs[1:]:  # a Dropout that drops nothing
        b.known[mask] = b.const(True, DType.BOOL)
