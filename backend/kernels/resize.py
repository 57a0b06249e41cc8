"""Resize of images: nearest, linear and cubic, of two axes that follow each other (or of one).

What stands behind them, such as channels that are last, is a vector for each place and is resized as a whole."""

from __future__ import annotations

from ...engine.graph import DType
from ...engine.symbolic import Dim, product, same
from ..iteration import Extents
from ..kernel_graph import Group, Kernel, Pitch, Step
from ..lower import Context, lowering
from ..render import c_float
from ..template_params import float_attr, int_attr, threads
from .movement import single, word

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


@lowering("Resize")
def lower_resize(group: Group, ctx: Context) -> list[Step] | None:
    """Without antialiasing, cropping or a policy for the aspect ratio; sizes may be run-time dims, scales not."""
    node = single(group)
    if node is None:
        return None
    x, y = ctx.type(node.inputs[0]), ctx.type(node.outputs[0])
    mode = str(node.attrs.get("mode", "nearest"))
    coordinates = str(node.attrs.get("coordinate_transformation_mode", "half_pixel"))
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    c = word(ctx, node.inputs[0])
    if not x.shape or not y.shape or c is None or coordinates not in COORDINATES or policy != "stretch":
        return None
    if int_attr(node, "antialias", 0) or mode not in TAPS or (mode != "nearest" and x.dtype is not DType.F32):
        return None
    rank = len(x.shape)
    scales = _scales(node.inputs, node.attrs.get("axes"), rank, ctx)
    if scales is None:
        return None
    end = rank  # of the axes before those that stay as they are at the end
    while end > 1 and scales[end - 1] in (None, 1.0) and same(x.shape[end - 1], y.shape[end - 1]):
        end -= 1
    before = max(end - 2, 0)
    if not all(same(a, b) for a, b in zip(x.shape[:before], y.shape[:before], strict=True)):
        return None
    if any(scale not in (None, 1.0) for scale in scales[:before]):
        return None
    images, resized, given = x.shape[:end], y.shape[:end], scales[:end]
    if end == 1:
        images, resized, given = (1, *images), (1, *resized), [1.0, *given]
    inner = product(x.shape[end:])
    extents = Extents()
    factors = []
    for size, new, scale in zip(images[-2:], resized[-2:], given[-2:], strict=True):
        factors.append(c_float(scale) if scale else f"((float)({extents(new)}) / (float)({extents(size)}))")
    taps = TAPS[mode]
    scratch: Dim = (resized[-1] * 8 * taps + 127) // 64 * 64
    params = {
        "c": "float" if taps > 1 else c,
        "taps": taps,
        "coordinates": coordinates,
        "nearest": node.attrs.get("nearest_mode", "round_prefer_floor"),
        "cubic": float_attr(node, "cubic_coeff_a", -0.75),
        "exclude": bool(int_attr(node, "exclude_outside", 0)),
        "outer": extents(product(images[:-2])),
        "sizes": extents.all(images[-2:]),
        "resized": extents.all(resized[-2:]),
        "inner": extents(inner),
        "scales": factors,
        "scratch": extents(scratch),
        "repeat": _repeat(coordinates, str(node.attrs.get("nearest_mode", "round_prefer_floor")), given[-1])
        if inner == 1
        else 0,
    }
    return [
        Step(
            Kernel("resize", params),
            inputs=node.inputs[:1],
            outputs=node.outputs,
            dims=tuple(extents.dims),
            scratch=scratch,
            threads=threads(y.shape, 4 * taps),
            nodes=(node.name,),
            pitches=(Pitch(0, inner, ((("x_row",), 1),)), Pitch(1, inner, ((("y_row",), 1),)))
            if isinstance(inner, int) and inner > 1 and end == rank - 1
            else (),
        )
    ]


def _scales(inputs: tuple[str, ...], axes: object, rank: int, ctx: Context) -> list[float | None] | None:
    """The factor of each axis, None where the sizes tell it; None as a whole if a factor is only known at run time."""
    given = [*inputs[1:4], "", "", ""][1:3]
    chosen = [a % rank for a in axes] if isinstance(axes, tuple) and axes else list(range(rank))
    scales: list[float | None] = [1.0] * rank
    if given[0]:
        constant = ctx.constant(given[0])
        if constant is None:
            return None
        if constant.array.size:
            for axis, value in zip(chosen, constant.array.ravel().tolist(), strict=True):
                scales[axis] = float(value)
            return scales
    for axis in chosen:
        scales[axis] = None
    return scales


def _repeat(coordinates: str, rounding: str, scale: float | None) -> int:
    """How often a whole scale repeats each element of a row in nearest mode; 0 where it isn't so simple."""
    if scale is None or scale != int(scale) or not 1 < scale <= 8:
        return 0
    count = int(scale)
    if coordinates == "half_pixel":  # never at a tie, and round(i / n + 1 / 2n - 1 / 2) = floor(i / n)
        return count if rounding.startswith("round") else 0
    simple = rounding == "floor" or (rounding == "round_prefer_floor" and count == 2)
    return count if coordinates == "asymmetric" and simple else 0
