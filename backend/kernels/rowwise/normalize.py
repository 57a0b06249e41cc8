"""Lowering of Softmax, LogSoftmax and the normalizations: passes over the rows of one tensor.

The first pass computes the prologue (an added mask or residual, a scale), the last one scale, bias and the epilogue.
The row may lie along any axes: where it is contiguous vectors run along it, else across neighboring rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....engine.ir.graph import Node, TensorType
from ....engine.ir.symbolic import Dim, exact_div, product
from ...codegen.pointwise_emit import vectorizable
from ...codegen.pointwise_ops import from_nodes
from ...codegen.template_params import accesses, float_attr, int_attr, launch, threads
from ...ir.iteration_space import Access, Extents, collapse, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import Knob, Space
from ..gemm.epilogue import same_shape
from ..registry import lowering, lowering_alone
from ..scheduling import at_width, bits_knob, schedule
from .row_programs import Overlay, RowPrograms

NORMAL = "(normalized)"
"""Name of the anchor's result before scale and bias; no value of a model has it."""
LONGEST_BUFFER = 4096
"""Elements of a row that is kept on the stack."""


@lowering("Softmax", "LogSoftmax", "LpNormalization", f64=True)
def lower_along_axis(group: Group, ctx: Context) -> list[Step] | None:
    """Softmax, its logarithm, or a division by the L1 or L2 norm, along any axis."""
    anchor = group.node
    rank, order = ctx.type(anchor.inputs[0]).rank, anchor.attrs.get("p", 2)
    if not rank or order not in (1, 2):
        return None
    mode = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}.get(anchor.op, f"l{order}")
    axis = int_attr(anchor, "axis", -1) % rank
    return _normalize(group, ctx, mode, _roles(rank, axis, axis + 1), [Node("Identity", (NORMAL,), anchor.outputs)])


@lowering("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", f64=True)
def lower_layer_norm(group: Group, ctx: Context) -> list[Step] | None:
    """Normalization over the last dims, with a scale and a bias of their shape."""
    anchor = group.node
    rank = ctx.type(anchor.inputs[0]).rank
    if not rank or any(anchor.outputs[1:]):
        return None
    axis = int_attr(anchor, "axis", -1) % rank
    mode = "layer" if anchor.op == "LayerNormalization" else "rms"
    return _normalize(group, ctx, mode, _roles(rank, axis, rank), affine_nodes(anchor))


@lowering("InstanceNormalization", "GroupNormalization", f64=True)
def lower_group_norm(group: Group, ctx: Context) -> list[Step] | None:
    """Normalization of each channel, or group of channels, of each sample; scale and bias are per channel."""
    anchor = group.node
    shape = ctx.type(anchor.inputs[0]).shape
    if shape is None or len(shape) < 2:
        return None
    factors: tuple[Dim, ...] = ()
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
        if value in others or not same_shape(kind.shape, shape[1:2]):
            return None
        types[value] = replace(kind, shape=(shape[1], *(1,) * (len(shape) - 2)))
    return _normalize(group, ctx, "layer", roles, affine_nodes(anchor), types, factors)


@lowering_alone("LRN", f64=True)
def lower_lrn(node: Node, ctx: Context) -> list[Step] | None:
    """Local response normalization across the channels of a tensor of rank 2 or more."""
    kind = ctx.type(node.inputs[0])
    if kind.dtype is not ctx.real or kind.shape is None or len(kind.shape) < 2:
        return None
    size = int_attr(node, "size")
    extents = Extents()
    params = {
        "size": size,
        "scale": float_attr(node, "alpha", 1e-4) / size,
        "beta": float_attr(node, "beta", 0.75),
        "bias": float_attr(node, "bias", 1.0),
        "batch": extents(kind.shape[0]),
        "channels": extents(kind.shape[1]),
        "inner": extents(product(kind.shape[2:])),
    }
    return [launch(Kernel("local_norm", params), node, node.inputs, node.outputs, extents, threads(kind.shape, 40))]


def _roles(rank: int, first: int, end: int) -> str:
    """Return the roles of dims (see `_normalize`) for rows along the axes from `first` to before `end`."""
    return "o" * first + "R" * (end - first) + "i" * (rank - end)


def affine_nodes(anchor: Node) -> list[Node]:
    """Return the nodes from the normalized value to the anchor's result: times its second operand, plus the third."""
    steps = list(zip(("Mul", "Add"), anchor.inputs[1:], strict=False))
    names = [NORMAL, *(f"(affine {k})" for k in range(len(steps) - 1)), anchor.outputs[0]]
    return [Node(op, (names[k], value), (names[k + 1],)) for k, (op, value) in enumerate(steps) if value]


def _normalize(
    group: Group,
    ctx: Context,
    mode: str,
    roles: str,
    nodes: Sequence[Node],
    types: Mapping[str, TensorType] | None = None,
    groups: tuple[Dim, ...] = (),
) -> list[Step] | None:
    """Return the step for a group.

    `roles` has a letter per dim of the anchor's input (its second one split into `groups`): R for the axes of the row,
    o for dims before and i for dims after them. `nodes` lead from the normalized value to the anchor's result."""
    anchor = group.node
    x = anchor.inputs[0]
    kind = ctx.type(x)
    made = {v for n in group.nodes for v in n.outputs}
    if kind.dtype is not ctx.real or kind.shape is None or any(v in made for v in anchor.inputs[1:]):
        return None
    virtual = {v: kind for n in nodes for v in (*n.inputs, *n.outputs) if v.startswith("(")}
    overlay = Overlay(ctx, {**(types or {}), **virtual})
    early = {v for n in group.prologue for v in n.outputs}
    extras = [v for v in group.outputs if v in early]
    finals = [v for v in group.outputs if v not in early]
    before = from_nodes(group.prologue, group.inputs, [x, *extras], ctx)
    after = from_nodes([*group.prologue, *nodes, *group.epilogue], [NORMAL], finals, overlay)
    if before is None or after is None or not finals or not all(vectorizable(p, half=True) for p in (before, after)):
        return None
    if not all(same_shape(ctx.type(value).shape, kind.shape) for value in group.outputs):
        return None
    programs = RowPrograms(before, after, NORMAL)
    tensors = accesses(programs.inputs, kind.shape)
    if tensors is None:
        return None
    tensors += [contiguous(value, kind.shape) for value in programs.outputs]
    step = _step(group, ctx, mode, programs, [a.split(1, groups) for a in tensors] if groups else tensors, roles)
    return None if step is None else [step]


def rows_space(vectors: int, ctx: Context) -> Space:
    """Return the schedules of rows of as many vectors, 0 if they are not known or have several parts.

    `held`: whether a row stays in registers; else `sums`: vectors of partial sums, and `unroll`: vectors of an
    iteration of the last pass; see `scheduling` for the other."""
    fits = 0 < vectors <= ctx.target.registers
    memory = ("held", (0,)) if fits else None
    return Space(
        ("normalize_rows",),
        (
            Knob("held", (0, 1) if fits else ()),
            Knob("sums", (1, 2, 4, 8), memory),
            Knob("unroll", (1, 2, 4), memory),
            bits_knob(ctx),
        ),
    )


def _step(
    group: Group, ctx: Context, mode: str, programs: RowPrograms, tensors: Sequence[Access], roles: str
) -> Step | None:
    """Return the step over the accesses to what the programs read and write, or None if no kernel fits."""
    before, after, shape = programs.before, programs.after, tensors[0].shape
    lanes = [k for k, role in enumerate(roles) if role == "i" and shape[k] != 1]
    order = [k for k, role in enumerate(roles) if role == "o"]
    order += lanes[:-1] + [k for k, role in enumerate(roles) if role == "R"] + lanes[-1:]
    space = collapse(
        [shape[k] for k in order],
        [a.permuted(order).strides for a in tensors],
        "".join("o" if k in lanes[:-1] else roles[k] for k in order),
    )
    extents = Extents()
    params = programs.params(space.strides, extents)
    writes, extra = params["writes"], len(before.outputs) - 1
    main = next((extra + k for k, dtype in enumerate(after.result_types) if dtype is ctx.real), len(writes))
    rows = space.extents[-1] if space.roles[-1] == "R" and space.roles.count("R") == 1 else 0
    vectors = -(-rows // ctx.target.lanes) if isinstance(rows, int) else 0

    def described(extents: Extents) -> dict[str, Any]:
        sizes = {"sizes": extents.all(space.extents), "roles": space.roles, "mode": mode}
        return {**sizes, "programs": programs.params(space.strides, extents)}

    label = f"{mode} {'x'.join(map(str, space.extents))}"
    along = space.roles[-1] == "R"
    point = schedule(group, ctx, label, described, lambda: rows_space(vectors, ctx) if along else None)
    ctx = at_width(point, ctx)
    vectors = -(-rows // ctx.target.lanes) if isinstance(rows, int) else 0
    fits = vectors <= ctx.target.registers
    held = vectors if point.get("held", int(vectors <= ctx.target.registers // 2)) and fits else 0
    kept = not held and (bool(before.instructions) or mode == "softmax" or space.roles[-1] != "R")
    buffer = rows if kept and main == len(writes) and isinstance(rows, int) and rows <= LONGEST_BUFFER else 0
    if (main == len(writes) and kept and not buffer) or any(w["inner"] != "1" for w in writes):
        return None  # a row that the last pass reads again needs memory for floats
    params |= {
        "mode": mode,
        "epsilon": float_attr(group.node, "epsilon", 1e-5) if mode in ("layer", "rms") else 0.0,
        "extra": writes[:extra],
        "finals": writes[extra:],
        "main": min(main, len(writes) - 1),
        "computed": bool(before.instructions),
        "buffer": buffer,
    }
    texts, outer = extents.all(space.extents), space.roles.count("o")
    params |= {"outer": texts[:outer], "inner": texts[-1]}
    if space.roles[-1] == "R":
        name, length = "normalize_rows", space.extents[-1]
        tail = length % ctx.target.lanes if isinstance(length, int) else 0
        params |= {"middle": texts[outer:-1], "held": held, "tail": tail}
        params |= {key: point[key] for key, usual in (("sums", 4), ("unroll", 1)) if point.get(key, usual) != usual}
    elif space.roles.count("R") == 1:
        name = "normalize_columns"
        params["count"] = texts[-2]
    else:
        return None
    inputs = [o.value for o in programs.inputs]
    # The result may take the memory of an operand of the first pass that nothing reads later. Not if rows of few
    # vectors end in a part of one: the first load of the next row would wait long for that masked store.
    waits = held > 0 and space.roles[-1] == "R" and rows % ctx.target.lanes != 0
    in_place = tuple(
        (k, main)
        for k, item in enumerate(before.inputs)
        if main < len(writes)
        and not waits
        and tensors[k].strides == tensors[len(inputs) + main].strides
        and inputs.count(item.value) == 1
        and item.dtype is ctx.real
    )
    work = threads(shape, 20 + len(before.instructions) + 4 * len(after.instructions))
    kernel = ctx.kernel(name, params)
    return launch(kernel, group, inputs, programs.outputs, extents, work, in_place=in_place)
