"""Reductions over any axes: one of four accumulations, with a program before (on each element) and after (on results).

ReduceL2, for instance, is a sum with squares before and a square root after; prologue and epilogue join these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim
from ..iteration import Access, Extents, collapse, contiguous
from ..kernel_graph import Group, Kernel, Step
from ..lower import Context, lowering
from ..pointwise import Builder, Pointwise, from_nodes
from ..pointwise_c import C_TYPES, computable, literal, vectorisable
from ..template_params import Code, code, cost, operand, threads
from .elementwise import equal
from .normalize import Overlay

ITEM, RESULT = "(element)", "(reduced)"  # what is accumulated, and the accumulated value

# operator: accumulation, operators before and after it
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


@lowering(*MODES)
def lower_reduce(group: Group, ctx: Context) -> list[Step] | None:
    """A reduction with elementwise prologue and epilogue."""
    anchor = group.anchor
    assert anchor is not None
    mode, before_ops, after_ops = MODES[anchor.op]
    x, y = anchor.inputs[0], anchor.outputs[0]
    kind = ctx.type(x)
    axes = reduced_axes(anchor, ctx)
    if axes is None or kind.shape is None or kind.dtype is None:
        return None
    early = {v for n in group.prologue for v in n.outputs}
    if any(v in early for v in (*group.outputs, *anchor.inputs[1:])):
        return None
    keep = bool(anchor.attrs.get("keepdims", 1))
    overlay = Overlay(ctx, {ITEM: kind, RESULT: ctx.type(y)})
    before = from_nodes([*group.prologue, *_chain(before_ops, x, ITEM)], group.inputs, [ITEM], overlay)
    after = from_nodes(
        [*group.prologue, *_chain(after_ops, RESULT, y), *group.epilogue], [RESULT], group.outputs, overlay
    )
    if before is None or after is None:
        return None
    out_shape = ctx.type(y).shape
    outs = [ctx.type(v).shape for v in group.outputs]
    if out_shape is None or any(s is None or not equal(s, out_shape) for s in outs):
        return None
    return _Reduction(mode, anchor.op == "ReduceMean", before, after, kind.shape, out_shape, axes, keep).steps(
        group.outputs, tuple(n.name for n in group.nodes)
    )


@lowering("ReduceLogSumExp")
def lower_log_sum_exp(group: Group, ctx: Context) -> list[Step] | None:
    """As m + log(sum(exp(x - m))), where m is the maximum, or 0 if that is infinite."""
    anchor = group.anchor
    assert anchor is not None
    x, y = anchor.inputs[0], anchor.outputs[0]
    kind, out = ctx.type(x), ctx.type(y)
    axes = reduced_axes(anchor, ctx)
    if axes is None or len(group.nodes) > 1 or kind.shape is None or out.shape is None:
        return None
    if kind.dtype not in (DType.F32, DType.F64):
        return None
    keep = bool(anchor.attrs.get("keepdims", 1))
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

    steps: list[Step] = []
    for mode, before, after, result in (("max", plain, finite, top), ("sum", power, log, y)):
        found = _Reduction(mode, False, before, after, kind.shape, out.shape, axes, keep).steps(
            (result,), (anchor.name,)
        )
        if found is None:
            return None
        steps += found
    return steps


def reduced_axes(node: Node, ctx: Context) -> tuple[int, ...] | None:
    """The axes of a reduction, not negative; None if they are only known at run time."""
    rank = ctx.type(node.inputs[0]).rank
    if rank is None:
        return None
    given: Sequence[int] | None = ()
    if len(node.inputs) > 1 and node.inputs[1]:
        given = ctx.ints(node.inputs[1])
    elif "axes" in node.attrs:
        given = node.attrs["axes"]  # type: ignore[assignment]
    if given is None:
        return None
    if not given:
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in given}))


def _chain(ops: Sequence[str], source: str, target: str) -> list[Node]:
    """Nodes that apply the operators one after the other."""
    if not ops:
        return [Node("Identity", (source,), (target,))]
    (op,) = ops
    return [Node("Mul", (source, source), (target,)) if op == "Square" else Node(op, (source,), (target,))]


class _Reduction:
    """All that the kernel is made from."""

    def __init__(
        self,
        mode: str,
        mean: bool,
        before: Pointwise,
        after: Pointwise,
        shape: Sequence[Dim],
        out_shape: Sequence[Dim],
        axes: Sequence[int],
        keep: bool,
    ) -> None:
        self.mode, self.mean, self.before, self.after = mode, mean, before, after
        self.shape, self.out_shape, self.axes, self.keep = tuple(shape), tuple(out_shape), tuple(axes), keep

    def steps(self, outputs: tuple[str, ...], nodes: tuple[str, ...]) -> list[Step] | None:
        """The step, None where no kernel fits."""
        vector = vectorisable(self.before) and vectorisable(self.after)
        dtype = self.before.result_types[0]
        if (not vector and not (computable(self.before) and computable(self.after))) or dtype is DType.BOOL:
            return None
        later = [o for o in self.after.inputs if o.value != RESULT]
        reads = [contiguous(o.value, o.type.shape or ()).broadcast(self.shape) for o in self.before.inputs]
        others = [self._over_results(o.value, o.type.shape or ()) for o in later]
        found = [*reads, *others, *(self._over_results(v, self.out_shape) for v in outputs)]
        accesses = [a for a in found if a is not None]
        if len(accesses) < len(found):
            return None
        roles = "".join("R" if k in self.axes else "o" for k in range(len(self.shape)))
        if not self.axes:  # nothing to reduce: a row has one element
            accesses = [Access(a.value, (*a.shape, 1), (*a.strides, 0)) for a in accesses]
            roles += "R"
        space = collapse(accesses[0].shape, [a.strides for a in accesses], roles)
        rows = space.roles[-1] == "R" or not vector
        last = space.roles.rindex("R") if rows else len(space.roles) - 1
        order = [k for k, role in enumerate(space.roles) if role == "o" and k != last]
        order += [k for k, role in enumerate(space.roles) if role == "R" and k != last] + [last]
        extents = Extents()
        dtypes = [o.dtype for o in (*self.before.inputs, *later)] + list(self.after.result_types)
        count, n = len(self.before.inputs), len(self.before.inputs) + len(later)
        names = [f"x{k}" for k in range(count)] + [f"z{k}" for k in range(len(later))]
        names += [f"y{k}" for k in range(len(outputs))]
        tensors = [
            operand(name, kind, [strides[k] for k in order], extents)
            for name, kind, strides in zip(names, dtypes, space.strides, strict=True)
        ]
        if not rows and any(w["inner"] != "1" for w in tensors[n:]):
            return None
        texts = extents.all([space.extents[k] for k in order])
        outer = space.roles.count("o") - (not rows)
        early = code(self.before, tensors[:count], vector=vector, prefix="p")
        late = self._after(tensors[count:n], vector)
        params = {
            "mode": self.mode,
            "mean": self.mean,
            "vector": vector,
            "c": C_TYPES[dtype],
            "neutral": _neutral(self.mode, dtype),
            "outer": texts[:outer],
            "middle": texts[outer:-1],
            "inner": texts[-1],
            "reads": tensors[:count],
            "later": tensors[count:n],
            "writes": tensors[n:],
            "body": early.body,
            "value": early.results[0],
            "after": late.body,
            "final_results": late.results,
        }
        return [
            Step(
                Kernel("reduce_rows" if rows else "reduce_columns", params, weight=1.5),
                inputs=tuple(a.value for a in accesses[:n]),
                outputs=outputs,
                dims=tuple(extents.dims),
                threads=threads(self.shape, cost(self.before)),
                nodes=nodes,
            )
        ]

    def _over_results(self, value: str, shape: Sequence[Dim]) -> Access | None:
        """A tensor of the results' shape (or broadcast to it), seen over the space of the elements."""
        access = contiguous(value, shape).broadcast(self.out_shape)
        if access is None:
            return None
        kept = iter([s for k, s in enumerate(access.strides) if not (self.keep and k in self.axes)])
        return Access(value, self.shape, tuple(0 if k in self.axes else next(kept) for k in range(len(self.shape))))

    def _after(self, tensors: list[dict[str, Any]], vector: bool) -> Code:
        free = iter(tensors)
        operands = [{"name": "s", "inner": "1"} if o.value == RESULT else next(free) for o in self.after.inputs]
        return code(self.after, operands, vector=vector, prefix="q")


def _neutral(mode: str, dtype: DType) -> str:
    """What an accumulation of no elements gives, as C."""
    if mode in ("sum", "prod"):
        return "0" if mode == "sum" else "1"
    if dtype.is_float:
        return "-INFINITY" if mode == "max" else "INFINITY"
    info = np.iinfo(dtype.value.replace("i", "int").replace("u", "uint"))
    return literal(int(info.min if mode == "max" else info.max), dtype)
