"""Lowering of Resize: nearest, linear and cubic. A kernel resizes one axis or two neighboring ones.

The axes behind them, such as NHWC channels, form one vector per position, which is resized as a whole. So more axes are
resized one after the other: taps are separable."""

from __future__ import annotations

from typing import Any

from ....engine.ir.graph import Node, TensorType
from ....engine.ir.symbolic import Dim, ceildiv, product, same
from ...codegen.render import c_float
from ...codegen.template_params import float_attr, int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import LeadingDimension, Step
from ...ir.lower import Context
from ...ir.schedule import Knob, Space
from ..registry import lowering_alone
from ..scheduling import alone, schedule
from .copies import word
from .resize_filtered import filtered_steps

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
EDGES = {"nearest": 0, "linear": 1, "cubic": 4}
"""Source positions beyond either end of an axis that a window may cover."""
AHEAD = 4
"""Rows whose sources are summed before the first of them is resized."""
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


@lowering_alone("Resize", f64=True)
def lower_resize(node: Node, ctx: Context) -> list[Step] | None:
    """Without cropping or an aspect ratio policy; scales may not be run-time dims, sizes may without antialiasing."""
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    mode = str(node.attrs.get("mode", "nearest"))
    coordinates = str(node.attrs.get("coordinate_transformation_mode", "half_pixel"))
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    c = word(ctx, node.inputs[0])
    if not x.shape or not y.shape or c is None or coordinates not in COORDINATES or policy != "stretch":
        return None
    antialias = bool(int_attr(node, "antialias", 0))
    if mode not in TAPS or (antialias and mode == "nearest") or (mode != "nearest" and x.dtype is not ctx.real):
        return None
    rank = len(x.shape)
    scales = _scales(node.inputs, node.attrs.get("axes"), rank, ctx)
    if scales is None:
        return None
    changed = [
        axis
        for axis, (old, new, scale) in enumerate(zip(x.shape, y.shape, scales, strict=True))
        if scale not in (None, 1.0) or not same(old, new)
    ] or [rank - 1]
    if antialias:
        return filtered_steps(node, ctx, y.shape, changed, scales)
    sizes = (*x.shape, *y.shape)

    def described(extents: Extents) -> dict[str, Any]:
        attrs = {name: str(value) for name, value in node.attrs.items()}
        return {"sizes": extents.all(sizes), "scales": scales, "attrs": attrs}

    label = f"resize {mode} {'x'.join(map(str, y.shape))}"
    lines = mode != "nearest" and changed[-1] == rank - 1
    point = schedule(alone(node), ctx, label, described, lambda: resize_space() if lines else None)
    ahead = int(point.get("ahead", AHEAD))
    made, value, shape = [], node.inputs[0], x.shape
    while changed:  # the last two together if they are neighbors
        first = 1 if len(changed) == 1 or len(changed) > 2 or changed[0] + 1 < changed[1] else 2
        axes, changed = changed[:first], changed[first:]
        resized = tuple(new if a in axes else old for a, (old, new) in enumerate(zip(shape, y.shape, strict=True)))
        target = ctx.new_value(TensorType(x.dtype, resized), "resized") if changed else node.outputs[0]
        own = [scale if a in axes else 1.0 for a, scale in enumerate(scales)]
        made.append(_resize(node, ctx, c, (value, target), (shape, resized), own[: axes[-1] + 1], ahead))
        value, shape = target, resized
    return made


def resize_space() -> Space:
    """Return the schedules of a resize along rows: `ahead`, the rows whose sources are summed before the first."""
    return Space(("resize",), (Knob("ahead", (1, 2, 4, 8, 16)),))


def _resize(
    node: Node,
    ctx: Context,
    c: str,
    values: tuple[str, str],
    shapes: tuple[tuple[Dim, ...], tuple[Dim, ...]],
    given: list[float | None],
    ahead: int,
) -> Step:
    """Return the step that resizes the last one or two axes with a scale in `given`, of a value to another one."""
    (source, target), (old, new) = values, shapes
    mode = str(node.attrs.get("mode", "nearest"))
    coordinates = str(node.attrs.get("coordinate_transformation_mode", "half_pixel"))
    if coordinates == "half_pixel_symmetric" and None in given:  # sizes leave it no fraction of an element to center
        coordinates = "half_pixel"
    end = len(given)
    images, resized = old[:end], new[:end]
    if end == 1:
        images, resized, given = (1, *images), (1, *resized), [1.0, *given]
    inner = product(old[end:])
    extents = Extents()
    factors = [
        c_float(scale) if scale else f"((real)({extents(new)}) / (real)({extents(size)}))"
        for size, new, scale in zip(images[-2:], resized[-2:], given[-2:], strict=True)
    ]
    taps, rounding = TAPS[mode], str(node.attrs.get("nearest_mode", "round_prefer_floor"))
    tables: Dim = resized[-2] * (1 + taps)
    if inner == 1 and taps > 1:
        lanes = ctx.target.lanes
        tables += ceildiv(resized[-1], lanes) * (lanes * (taps + 1) + 1)
        tables += ahead * (images[-1] + 2 * EDGES[mode] + 2 * lanes)
    else:
        tables += resized[-1] * (1 + taps)
    scratch = ceildiv(tables * ctx.target.element_bytes, 64) * 64
    params = {
        "c": "real" if taps > 1 else c,
        "taps": taps,
        "edge": EDGES[mode],
        "ahead": ahead,
        "coordinates": coordinates,
        "scaled": None not in given,
        "nearest": rounding,
        "cubic": float_attr(node, "cubic_coeff_a", -0.75),
        "exclude": bool(int_attr(node, "exclude_outside", 0)),
        "outer": extents(product(images[:-2])),
        "sizes": extents.all(images[-2:]),
        "resized": extents.all(resized[-2:]),
        "inner": extents(inner),
        "scales": factors,
        "scratch": extents(scratch),
        "repeat": _repeat(coordinates, rounding, _factor(images[-1], resized[-1], given[-1])) if inner == 1 else 0,
    }
    leading: tuple[LeadingDimension, ...] = ()
    if isinstance(inner, int) and inner > 1 and end == len(old) - 1:
        leading = (LeadingDimension(0, inner, ((("x_row",), 1),)), LeadingDimension(1, inner, ((("y_row",), 1),)))
    work, options = threads(new, 4 * taps), {"scratch": scratch, "leading_dimensions": leading}
    return launch(Kernel("resize", params), node, (source,), (target,), extents, work, **options)


def _scales(inputs: tuple[str, ...], axes: object, rank: int, ctx: Context) -> list[float | None] | None:
    """Return the factor of each axis, None where sizes imply it; None as a whole if a factor is a run-time value."""
    chosen = [a % rank for a in axes] if isinstance(axes, tuple) and axes else list(range(rank))
    factors: list[float | None] = [None] * len(chosen)
    if len(inputs) > 2 and inputs[2]:
        constant = ctx.constant(inputs[2])
        if constant is None:
            return None
        factors = constant.array.ravel().tolist() or factors
    given = dict(zip(chosen, factors, strict=True))
    return [given.get(axis, 1.0) for axis in range(rank)]


def _factor(size: Dim, resized: Dim, scale: float | None) -> float | None:
    """Return the scale of an axis, which sizes imply where it is not given; None if it is known at run time only."""
    if scale is None and isinstance(size, int) and isinstance(resized, int) and size:
        return resized / size
    return scale


def _repeat(coordinates: str, rounding: str, scale: float | None) -> int:
    """Return how often nearest mode repeats each element of a row; 0 unless it does so uniformly."""
    if scale is None or scale != int(scale) or not 1 < scale <= 8:
        return 0
    count = int(scale)
    if coordinates == "half_pixel":  # never at a tie, and round(i / n + 1 / 2n - 1 / 2) = floor(i / n)
        return count if rounding.startswith("round") else 0
    simple = rounding == "floor" or (rounding == "round_prefer_floor" and count == 2)
    return count if coordinates == "asymmetric" and simple else 0
