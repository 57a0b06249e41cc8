"""Softmax, LogSoftmax and the normalisations: passes over the rows of one tensor.

The prologue (a mask or residual added, a scale) is computed in the first pass; scale, bias and the epilogue in the
last. The row may lie along any axes: where it is contiguous, vectors run along it, else across neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...engine.graph import Constant, DType, Node, TensorType
from ...engine.symbolic import Dim, exact_div
from ..iteration import Access, Extents, Space, collapse, contiguous
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..pointwise import Operand, Pointwise, from_nodes
from ..pointwise_c import vectorisable
from ..template_params import code, float_attr, int_attr, operand, threads
from .elementwise import equal

NORMAL = "(normalised)"  # the name of the anchor's result before scale and bias; no value of a model has it


@dataclass(frozen=True)
class Overlay:
    """A context in which some values have other types, or exist at all."""

    ctx: Context
    types: dict[str, TensorType]

    def type(self, value: str, /) -> TensorType:
        """The tensor type of a value."""
        return self.types.get(value) or self.ctx.type(value)

    def constant(self, value: str, /) -> Constant | None:
        """The contents of a value, None when it isn't constant."""
        return self.ctx.constant(value)


@lowering("Softmax", "LogSoftmax")
def lower_softmax(group: Group, ctx: Context) -> list[Step] | None:
    """Softmax along any axis."""
    anchor = _anchor(group)
    rank = ctx.type(anchor.inputs[0]).rank
    if not rank:
        return None
    axis = int_attr(anchor, "axis", -1) % rank
    mode = "softmax" if anchor.op == "Softmax" else "log_softmax"
    return _normalise(group, ctx, mode, _roles(rank, axis, axis + 1), [Node("Identity", (NORMAL,), anchor.outputs)])


@lowering("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def lower_layer_norm(group: Group, ctx: Context) -> list[Step] | None:
    """Normalisation over the last dims, with a scale and a bias of their shape."""
    anchor = _anchor(group)
    rank = ctx.type(anchor.inputs[0]).rank
    if not rank or any(anchor.outputs[1:]):
        return None
    axis = int_attr(anchor, "axis", -1) % rank
    mode = "layer" if anchor.op == "LayerNormalization" else "rms"
    nodes = _affine(anchor, anchor.inputs[1:])
    return _normalise(group, ctx, mode, _roles(rank, axis, rank), nodes, epsilon=_epsilon(anchor))


@lowering("InstanceNormalization", "GroupNormalization")
def lower_group_norm(group: Group, ctx: Context) -> list[Step] | None:
    """Normalisation of each channel, or group of channels, of each sample; scale and bias are one per channel."""
    anchor = _anchor(group)
    shape = ctx.type(anchor.inputs[0]).shape
    if shape is None or len(shape) < 2:
        return None
    factors: tuple[Dim, ...] | None = None
    roles = "oo" + "R" * (len(shape) - 2)
    if anchor.op == "GroupNormalization":
        groups = int_attr(anchor, "num_groups")
        size = exact_div(shape[1], groups)
        if size is None:
            return None
        factors, roles = (groups, size), "ooR" + "R" * (len(shape) - 2)
    elif len(shape) == 2:
        return None
    others = [v for n in group.nodes if n is not anchor for v in n.inputs]
    types = {}
    for value in anchor.inputs[1:3]:
        kind = ctx.type(value)
        if value in others or kind.shape is None or not equal(kind.shape, shape[1:2]):
            return None
        types[value] = replace(kind, shape=(shape[1], *(1,) * (len(shape) - 2)))
    nodes = _affine(anchor, anchor.inputs[1:])
    return _normalise(
        group,
        ctx,
        "layer",
        roles,
        nodes,
        epsilon=_epsilon(anchor),
        types=types,
        split=(1, factors) if factors else None,
    )


@lowering("LpNormalization")
def lower_lp_norm(group: Group, ctx: Context) -> list[Step] | None:
    """Division by the L1 or L2 norm along an axis."""
    anchor = _anchor(group)
    rank = ctx.type(anchor.inputs[0]).rank
    order = anchor.attrs.get("p", 2)
    if not rank or order not in (1, 2):
        return None
    axis = int_attr(anchor, "axis", -1) % rank
    return _normalise(
        group, ctx, f"l{order}", _roles(rank, axis, axis + 1), [Node("Identity", (NORMAL,), anchor.outputs)]
    )


def _anchor(group: Group) -> Node:
    assert group.anchor is not None
    return group.anchor


def _epsilon(node: Node) -> float:
    return float_attr(node, "epsilon", 1e-5)


def _roles(rank: int, first: int, end: int) -> str:
    return "o" * first + "R" * (end - first) + "i" * (rank - end)


def _affine(anchor: Node, operands: Sequence[str]) -> list[Node]:
    """Nodes from the normalised value to the anchor's result: times the first operand, plus the second if any."""
    names = [NORMAL, *(f"(affine {k})" for k in range(len(operands) - 1)), anchor.outputs[0]]
    ops = zip(("Mul", "Add"), operands, strict=False)
    return [Node(op, (names[k], value), (names[k + 1],)) for k, (op, value) in enumerate(ops) if value]


def _normalise(
    group: Group,
    ctx: Context,
    mode: str,
    roles: str,
    nodes: Sequence[Node],
    *,
    epsilon: float = 0.0,
    types: dict[str, TensorType] | None = None,
    split: tuple[int, tuple[Dim, ...]] | None = None,
) -> list[Step] | None:
    """The step for a group.

    `roles` says of each dim of the anchor's input (after `split`) whether it counts rows before (o) or after (i) the
    axes of the row (R); `nodes` lead from the normalised value to the anchor's result."""
    anchor = _anchor(group)
    x = anchor.inputs[0]
    kind = ctx.type(x)
    made = {v for n in group.nodes for v in n.outputs}
    if kind.dtype is not DType.F32 or kind.shape is None or any(v in made for v in anchor.inputs[1:]):
        return None
    virtual = {v: kind for n in nodes for v in (*n.inputs, *n.outputs) if v.startswith("(")}
    overlay = Overlay(ctx, {**(types or {}), **virtual})
    early = {v for n in group.prologue for v in n.outputs}
    extras = [v for v in group.outputs if v in early]
    finals = [v for v in group.outputs if v not in early]
    before = from_nodes(group.prologue, group.inputs, [x, *extras], ctx)
    after = from_nodes([*group.prologue, *nodes, *group.epilogue], [NORMAL], finals, overlay)
    if before is None or after is None or not finals or not (vectorisable(before) and vectorisable(after)):
        return None
    for value in group.outputs:
        shape = ctx.type(value).shape
        if shape is None or not equal(shape, kind.shape):
            return None
    later = [o for o in after.inputs if o.value != NORMAL]
    whole = [contiguous(o.value, o.type.shape or ()).broadcast(kind.shape) for o in (*before.inputs, *later)]
    if any(a is None for a in whole):
        return None
    accesses = [a for a in whole if a is not None] + [contiguous(v, kind.shape) for v in (*extras, *finals)]
    if split:
        accesses = [a.split(*split) for a in accesses]
    plan = _Plan(mode, epsilon, before, after, later, extras, finals, accesses, roles)
    return plan.step(ctx, tuple(n.name for n in group.nodes))


@dataclass(frozen=True)
class _Plan:
    """All that the kernel is made from; `accesses` are those of the reads, the later reads, and the results."""

    mode: str
    epsilon: float
    before: Pointwise
    after: Pointwise
    later: Sequence[Operand]
    extras: Sequence[str]
    finals: Sequence[str]
    accesses: Sequence[Access]
    roles: str

    def step(self, ctx: Context, nodes: tuple[str, ...]) -> list[Step] | None:
        """The step, None where no kernel fits."""
        shape = self.accesses[0].shape
        lanes = [k for k, role in enumerate(self.roles) if role == "i" and shape[k] != 1]
        order = [k for k, role in enumerate(self.roles) if role == "o"]
        order += lanes[:-1] + [k for k, role in enumerate(self.roles) if role == "R"] + lanes[-1:]
        accesses = [a.permuted(order) for a in self.accesses]
        roles = "".join("o" if self.roles[k] == "i" and k in lanes[:-1] else self.roles[k] for k in order)
        space = collapse(accesses[0].shape, [a.strides for a in accesses], roles)
        extents = Extents()
        tensors = self._tensors(space, extents)
        main = len(self.extras) + next(
            (k for k, dtype in enumerate(self.after.result_types) if dtype is DType.F32), len(self.finals)
        )
        reads, later, writes = tensors
        if main >= len(writes) or any(w["inner"] != "1" for w in writes):
            return None
        params = {
            "mode": self.mode,
            "epsilon": self.epsilon,
            "reads": reads,
            "later": later,
            "writes": writes,
            "extra": writes[: len(self.extras)],
            "finals": writes[len(self.extras) :],
            "main": main,
            "computed": not self.before.is_copy,
            **self._programs(reads, later),
        }
        name = self._loops(params, space, extents, ctx)
        if name is None:
            return None
        inputs = tuple(a.value for a in accesses[: len(reads) + len(later)])
        cost = 20 + len(self.before.instructions) + 4 * len(self.after.instructions)
        return [
            Step(
                Kernel(name, params, weight=2.0),
                inputs=inputs,
                outputs=(*self.extras, *self.finals),
                dims=tuple(extents.dims),
                in_place=self._in_place(inputs, main),
                threads=threads(shape, cost),
                nodes=nodes,
            )
        ]

    def _tensors(self, space: Space, extents: Extents) -> tuple[list[dict[str, Any]], ...]:
        first, second = len(self.before.inputs), len(self.before.inputs) + len(self.later)
        dtypes = [o.dtype for o in (*self.before.inputs, *self.later)]
        dtypes += [*self.before.result_types[1:], *self.after.result_types]
        names = [f"x{k}" for k in range(first)] + [f"z{k}" for k in range(len(self.later))]
        names += [f"y{k}" for k in range(len(dtypes) - second)]
        found = [
            operand(name, dtype, strides, extents)
            for name, dtype, strides in zip(names, dtypes, space.strides, strict=True)
        ]
        return found[:first], found[first:second], found[second:]

    def _programs(self, reads: list[dict[str, Any]], later: list[dict[str, Any]]) -> dict[str, Any]:
        early = code(self.before, reads, vector=True, prefix="p")
        free = iter(later)
        operands = [{"name": "s", "inner": "1"} if o.value == NORMAL else next(free) for o in self.after.inputs]
        late = code(self.after, operands, vector=True, prefix="q")
        return {
            "body": early.body,
            "value": early.results[0],
            "extra_results": early.results[1:],
            "after": late.body,
            "final_results": late.results,
        }

    def _loops(self, params: dict[str, Any], space: Space, extents: Extents, ctx: Context) -> str | None:
        """Adds the extents to the params; the name of the template that walks such a space."""
        texts = extents.all(space.extents)
        outer = space.roles.count("o")
        params["outer"] = texts[:outer]
        if space.roles[-1] == "R":
            length = space.extents[-1]
            vectors = -(-length // ctx.target.lanes) if isinstance(length, int) else 0
            held = vectors if space.roles.count("R") == 1 and 0 < vectors <= ctx.target.registers // 2 else 0
            tail = length % ctx.target.lanes if isinstance(length, int) else 0
            params |= {"middle": texts[outer:-1], "inner": texts[-1], "held": held, "tail": tail}
            return "normalize_rows"
        if space.roles.count("R") != 1:
            return None
        params |= {"count": texts[-2], "inner": texts[-1]}
        return "normalize_columns"

    def _in_place(self, inputs: tuple[str, ...], main: int) -> tuple[tuple[int, int], ...]:
        """Operands of the first pass that lie as the result does may become it, if nothing reads them later."""
        first = len(self.before.inputs)
        target = self.accesses[len(inputs) + main]
        return tuple(
            (k, main)
            for k in range(first)
            if self.accesses[k].strides == target.strides
            and inputs.count(inputs[k]) == 1
            and self.before.inputs[k].dtype is DType.F32
        )
