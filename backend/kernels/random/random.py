"""Lowering of operators that draw random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import Dim, ceildiv, product
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import float_attr, int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone

_COST = 32
"""Simple operations that a number takes."""
_REAL: dict[DType | None, str] = {DType.F32: "f32", DType.F64: "f64"}
"""Element types of numbers and probabilities."""


@lowering_alone("RandomUniform", "RandomUniformLike", f64=True)
def lower_uniform(node: Node, ctx: Context) -> list[Step] | None:
    """Numbers from `low` on, below `high` where that is larger."""
    number = np.float64 if ctx.type(node.outputs[0]).dtype is DType.F64 else np.float32
    low, high = number(float_attr(node, "low", 0.0)), number(float_attr(node, "high", 1.0))
    below = np.nextafter(high, low) if low < high else np.maximum(low, high)
    with np.errstate(over="ignore", invalid="ignore"):
        return _drawn(node, ctx, "uniform", low=low.item(), width=(high - low).item(), most=below.item())


@lowering_alone("RandomNormal", "RandomNormalLike", f64=True)
def lower_normal(node: Node, ctx: Context) -> list[Step] | None:
    """Numbers of a normal distribution, by the transformation of Box and Muller (1958)."""
    mean, scale = float_attr(node, "mean", 0.0), float_attr(node, "scale", 1.0)
    return _drawn(node, ctx, "normal", mean=mean, scale=scale)


def _drawn(node: Node, ctx: Context, kind: str, **numbers: float) -> list[Step] | None:
    y = ctx.type(node.outputs[0])
    if y.shape is None or y.dtype not in _REAL or not all(map(math.isfinite, numbers.values())):
        return None
    return [_step(node, {"kind": kind, **numbers, "c": "real", "real": _REAL[y.dtype]}, (), product(y.shape))]


@lowering_alone("Bernoulli", f64=True)
def lower_bernoulli(node: Node, ctx: Context) -> list[Step] | None:
    """Ones with the probabilities that the input has, else zeros, of any type that C has."""
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    if x.shape is None or x.dtype not in _REAL or y.dtype is None or y.dtype not in C_TYPES:
        return None
    params = {"kind": "bernoulli", "c": C_TYPES[y.dtype], "real": _REAL[x.dtype]}
    return [_step(node, params, node.inputs[:1], product(x.shape))]


@lowering_alone("Multinomial", f64=True)
def lower_multinomial(node: Node, ctx: Context) -> list[Step] | None:
    """Classes, as many for each row as are asked for, by the logarithms of their probabilities up to a factor."""
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    if x.shape is None or len(x.shape) != 2 or x.dtype not in _REAL or y.dtype not in (DType.I32, DType.I64):
        return None
    samples, extents = int_attr(node, "sample_size", 1), Extents()
    rows, classes = x.shape
    scratch = ceildiv(classes * 8, 64) * 64
    sizes = {"rows": extents(rows), "classes": extents(classes), "samples": samples, "scratch": extents(scratch)}
    params = {"kind": "multinomial", "c": C_TYPES[y.dtype], "real": _REAL[x.dtype], "seed": _seed(node), **sizes}
    work = threads((rows, classes + samples), _COST)
    return [launch(Kernel("random", params), node, node.inputs, node.outputs, extents, work, scratch=scratch)]


def _step(node: Node, params: dict[str, Any], inputs: tuple[str, ...], count: Dim) -> Step:
    extents = Extents()
    kernel = Kernel("random", {**params, "seed": _seed(node), "count": extents(count)})
    return launch(kernel, node, inputs, node.outputs, extents, threads((count,), _COST))


def _seed(node: Node) -> int | None:
    """Return the bits of the seed as a double; None without one."""
    return int(np.float64(float_attr(node, "seed", 0.0)).view(np.uint64)) if "seed" in node.attrs else None
