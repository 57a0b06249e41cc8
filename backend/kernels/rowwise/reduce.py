"""Lowering of reductions over any axes, and of searches along one: ArgMax, ArgMin and TopK.

A reduction is one of four accumulations, with a pointwise program before (on elements) and after (on results):
ReduceL2 is a sum of squares with a square root after it. The group's prologue and epilogue join these programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....engine.ir.graph import DType, Node, TensorType
from ....engine.ir.symbolic import Dim, product
from ...codegen.pointwise_emit import C_TYPES, computable, has_bytes, literal, vectorizable
from ...codegen.pointwise_ops import from_nodes
from ...codegen.pointwise_program import Builder
from ...codegen.template_params import accesses, cost, int_attr, launch, threads
from ...ir.iteration_space import Access, Extents, Space, collapse, contiguous
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import Knob
from ...ir.schedule import Space as Schedules
from ..gemm.epilogue import same_shape
from ..registry import lowering, lowering_alone
from ..scheduling import at_width, bits_knob, schedule
from .row_programs import Overlay, RowPrograms

FEW, WIDE = 8, 16
"""Most elements of a row that one lane of a vector reduces by itself, and the fewest rows for that."""

ITEM, RESULT = "(element)", "(reduced)"
"""Names of the accumulated elements and of the accumulated value; no value of a model has them."""

MODES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "ReduceSum": ("sum", (), ()),
    "ReduceMean": ("sum", (), ()),
    "ReduceProd": ("prod", (), ()),
    "ReduceMax": ("max", (), ()),
    "ReduceMin": ("min", (), ()),
    "ReduceL1": ("sum", ("Abs",), ()),
    "ReduceL2": ("sum", ("Square",), ("Sqrt",)),
    "ReduceSumSquare": ("sum", ("Square",), ()),
    "ReduceLogSum": ("sum", (), ("Log",)),
}
"""Accumulation of each operator, with the operators before and after it."""


@lowering(*MODES, f64=True)
def lower_reduce(group: Group, ctx: Context) -> list[Step] | None:
    """A reduction with elementwise prologue and epilogue."""
    anchor = group.node
    mode, before_ops, after_ops = MODES[anchor.op]
    x, y = anchor.inputs[0], anchor.outputs[0]
    kind = ctx.type(x)
    axes = _reduced_axes(anchor, ctx)
    if axes is None or kind.shape is None or kind.dtype is None:
        return None
    early = {v for n in group.prologue for v in n.outputs}
    if any(v in early for v in (*group.outputs, *anchor.inputs[1:])):
        return None
    overlay = Overlay(ctx, {ITEM: kind, RESULT: ctx.type(y)})
    before = from_nodes([*group.prologue, *_chain(before_ops, x, ITEM)], group.inputs, [ITEM], overlay)
    after = from_nodes(
        [*group.prologue, *_chain(after_ops, RESULT, y), *group.epilogue], [RESULT], group.outputs, overlay
    )
    if before is None or after is None:
        return None
    out_shape = ctx.type(y).shape
    if out_shape is None or not all(same_shape(ctx.type(v).shape, out_shape) for v in group.outputs):
        return None
    step = _step(group, ctx, mode, RowPrograms(before, after, RESULT), kind.shape, out_shape, axes)
    return None if step is None else [step]


@lowering("ReduceLogSumExp", f64=True)
def lower_log_sum_exp(group: Group, ctx: Context) -> list[Step] | None:
    """M + log(sum(exp(x - m))), where m is the maximum, or 0 if that is infinite."""
    anchor = group.node
    x, y = anchor.inputs[0], anchor.outputs[0]
    kind, out = ctx.type(x), ctx.type(y)
    axes = _reduced_axes(anchor, ctx)
    if axes is None or len(group.nodes) > 1 or kind.shape is None or out.shape is None:
        return None
    if kind.dtype not in (DType.F32, DType.F64):
        return None
    thin = TensorType(kind.dtype, tuple(1 if k in axes else d for k, d in enumerate(kind.shape)))
    top = ctx.new_value(thin, "maximum")

    b = Builder(ctx)
    plain = b.finish([b.operand(x, kind)], (ITEM,))
    b = Builder(ctx)
    most = b.operand(RESULT, out)
    infinite = b.op("Equal", b.op("Abs", most), b.like(math.inf, most), dtype=DType.BOOL)
    finite = b.finish([b.op("Select", infinite, b.like(0, most), most, dtype=kind.dtype)], (top,))
    b = Builder(ctx)
    power = b.finish([b.op("Exp", b.op("Sub", b.operand(x, kind), b.operand(top, thin)))], (ITEM,))
    b = Builder(ctx)
    log = b.finish([b.op("Add", b.op("Log", b.operand(RESULT, out)), b.operand(top, out))], (y,))

    passes = (("max", RowPrograms(plain, finite, RESULT)), ("sum", RowPrograms(power, log, RESULT)))
    steps = [_step(group, ctx, mode, programs, kind.shape, out.shape, axes) for mode, programs in passes]
    return None if None in steps else [step for step in steps if step is not None]


def _reduced_axes(node: Node, ctx: Context) -> tuple[int, ...] | None:
    """Return the axes of a reduction, not negative; None if they are known at run time only."""
    rank = ctx.type(node.inputs[0]).rank
    if rank is None:
        return None
    given: Any = node.attrs.get("axes", ())
    if len(node.inputs) > 1 and node.inputs[1]:
        given = ctx.ints(node.inputs[1])
    if given is None:
        return None
    if not given:
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in given}))


def _chain(ops: Sequence[str], source: str, target: str) -> list[Node]:
    """Return the node that applies at most one operator."""
    op = ops[0] if ops else "Identity"
    return [Node("Mul", (source, source), (target,)) if op == "Square" else Node(op, (source,), (target,))]


def reduce_space(rows: bool, ctx: Context) -> Schedules:
    """Return the schedules of a reduction on vectors.

    Of rows `sums`: vectors of partial sums; of columns `wide`: vectors of results side by side; see `scheduling` for
    the other."""
    name, own = ("reduce_rows", "sums") if rows else ("reduce_columns", "wide")
    return Schedules((name,), (Knob(own, (1, 2, 4, 8)), bits_knob(ctx)))


def side_by_side(columns: Dim, lanes: int) -> int:
    """Return how many vectors of results of a reduction of columns are computed side by side.

    Eight read longer runs of each row: with rows of some KB, which share sets of the first-level cache, they take half
    the time of four. Columns beyond the last eight are computed one vector at a time, so that they must be few."""
    eight = 8 * lanes
    return 8 if isinstance(columns, int) and columns % eight <= columns // 4 and columns >= eight else 4


def _step(
    group: Group,
    ctx: Context,
    mode: str,
    programs: RowPrograms,
    shape: Sequence[Dim],
    out_shape: Sequence[Dim],
    axes: Sequence[int],
) -> Step | None:
    """Return the step that reduces `shape` to `out_shape`, or None if no kernel fits."""
    both = (programs.before, programs.after)
    dtype = programs.before.result_types[0]
    int8 = dtype is DType.F32 and any(map(has_bytes, both))
    vector = (
        all(vectorizable(p, half=True) or (int8 and has_bytes(p)) for p in both) and len({p.real for p in both}) == 1
    )
    int8 = int8 and vector
    if not (vector or all(map(computable, both))) or dtype is DType.BOOL or dtype not in C_TYPES:
        return None
    reads = accesses(programs.before.inputs, shape)
    thin = accesses(programs.inputs[len(programs.before.inputs) :], out_shape)
    if reads is None or thin is None:
        return None
    thin += [contiguous(value, out_shape) for value in programs.outputs]
    dropped = () if group.node.attrs.get("keepdims", 1) else axes
    tensors = [*reads, *(_over_elements(access, shape, axes, dropped) for access in thin)]
    roles = "".join("R" if k in axes else "o" for k in range(len(shape)))
    if not axes:  # nothing to reduce: a row has one element
        tensors = [Access(a.value, (*a.shape, 1), (*a.strides, 0)) for a in tensors]
        roles += "R"
    space = collapse(tensors[0].shape, [a.strides for a in tensors], roles)
    rows = not vector or (space.roles[-1] == "R" and not _few(space, len(programs.outputs)))
    last = space.roles.rindex("R" if rows else "o")
    order = sorted(range(len(space.roles)), key=lambda k: (k == last, space.roles[k] == "R"))
    extents = Extents()
    params = programs.params(
        [[strides[k] for k in order] for strides in space.strides], extents, vector=vector, int8=int8
    )
    if not rows and any(w["inner"] != "1" for w in params["writes"]):
        return None
    texts = extents.all([space.extents[k] for k in order])
    outer = space.roles.count("o") - (not rows)
    del params["extra_results"]  # the loop has one value
    params |= {
        "mode": mode,
        "mean": group.node.op == "ReduceMean",
        "vector": vector,
        "real": programs.before.real.value if vector else "f32",
        "c": C_TYPES[dtype],
        "neutral": _neutral(mode, dtype),
        "outer": texts[:outer],
        "middle": texts[outer:-1],
        "inner": texts[-1],
    }

    def described(extents: Extents) -> dict[str, Any]:
        strides = [[tensor[k] for k in order] for tensor in space.strides]
        code = programs.params(strides, extents, vector=vector, int8=int8)
        return {"mode": mode, "sizes": extents.all(space.extents), "roles": space.roles, "programs": code}

    label = f"{group.node.op} {'x'.join(map(str, space.extents))}"
    point = schedule(group, ctx, label, described, lambda: reduce_space(rows, ctx) if vector else None)
    ctx = at_width(point, ctx)
    chosen = point if rows else {"wide": side_by_side(space.extents[last], ctx.target.lanes), **point}
    params |= {name: value for name, value in chosen.items() if value != 4 and name != "bits"}
    kernel = ctx.kernel("reduce_rows" if rows else "reduce_columns", params)
    inputs, work = (o.value for o in programs.inputs), threads(shape, cost(programs.before))
    return launch(kernel, group, inputs, programs.outputs, extents, work)


def _few(space: Space, results: int) -> bool:
    """Whether the last axis has few elements to reduce, and the results before it fill vectors."""
    count = space.extents[-1]
    if not isinstance(count, int) or count > FEW or "o" not in space.roles:
        return False
    across = space.roles.rindex("o")
    wide = space.extents[across]
    contiguous_results = all(strides[across] == 1 for strides in space.strides[-results:])
    return contiguous_results and (not isinstance(wide, int) or wide >= WIDE)


def _over_elements(access: Access, shape: Sequence[Dim], axes: Sequence[int], dropped: Sequence[int]) -> Access:
    """View a tensor of results over the space of the elements; it lacks the `dropped` ones of the reduced axes."""
    strides = iter(access.strides)
    given = [0 if k in dropped else next(strides) for k in range(len(shape))]
    return Access(access.value, tuple(shape), tuple(0 if k in axes else s for k, s in enumerate(given)))


def _neutral(mode: str, dtype: DType) -> str:
    """Return the accumulation of no elements, as C."""
    if mode in ("sum", "prod"):
        return "0" if mode == "sum" else "1"
    if dtype.is_float:
        return "-INFINITY" if mode == "max" else "INFINITY"
    info = np.iinfo(dtype.value.replace("i", "int").replace("u", "uint"))
    return literal(int(info.min if mode == "max" else info.max), dtype)


@lowering_alone("ArgMax", "ArgMin")
def lower_arg(node: Node, ctx: Context) -> list[Step] | None:
    """Along any axis, of any element type that C has."""
    kind = ctx.type(node.inputs[0])
    if kind.dtype not in C_TYPES or not kind.shape or kind.dtype is None:
        return None
    axis = int_attr(node, "axis", 0) % len(kind.shape)
    count = kind.shape[axis]
    exact = axis == len(kind.shape) - 1 or (isinstance(count, int) and count < 1 << 24)  # places of columns are floats
    extents = Extents()
    params = {
        "most": node.op == "ArgMax",
        "last": bool(node.attrs.get("select_last_index", 0)),
        "c": C_TYPES[kind.dtype],
        "outer": extents(product(kind.shape[:axis])),
        "count": extents(count),
        "inner": extents(product(kind.shape[axis + 1 :])),
        "vectors": kind.dtype is DType.F32 and exact,
    }
    work = threads(kind.shape, 4)
    return [launch(Kernel("arg_reduce", params), node, node.inputs[:1], node.outputs[:1], extents, work)]


@lowering_alone("TopK")
def lower_top_k(node: Node, ctx: Context) -> list[Step] | None:
    """Along any axis, by a heap of the best elements (Knuth, The Art of Computer Programming, vol. 3, 5.2.3).

    k is that of the inferred outputs, which are always sorted."""
    kind = ctx.type(node.inputs[0])
    names = [*node.outputs, "", ""][:2]
    shape = next((ctx.type(v).shape for v in names if v), None)
    if not kind.shape or shape is None or kind.dtype not in C_TYPES or kind.dtype in (None, DType.BOOL):
        return None
    axis = int_attr(node, "axis", -1) % len(kind.shape)
    k = shape[axis]
    types = (kind.dtype, DType.I64)
    outputs = [v or ctx.new_value(TensorType(t, shape), "unused") for v, t in zip(names, types, strict=True)]
    scratch = (k * 16 + 127) // 64 * 64
    extents = Extents()
    params = {
        "c": C_TYPES[kind.dtype],
        "largest": bool(int_attr(node, "largest", 1)),
        "outer": extents(product(kind.shape[:axis])),
        "count": extents(kind.shape[axis]),
        "inner": extents(product(kind.shape[axis + 1 :])),
        "k": extents(k),
        "scratch": extents(scratch),
    }
    work = threads(kind.shape, 8)
    return [launch(Kernel("top_k", params), node, node.inputs[:1], outputs, extents, work, scratch=scratch)]
