"""Resize with antialiasing: filters that widen as an axis shrinks, tabulated for sizes that are known.

An axis is resized at a time. Weights of positions outside of the image are added to those of its ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import Node, TensorType
from ....engine.ir.symbolic import Dim, product
from ...codegen.template_params import float_attr, int_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context

_LARGEST = 1 << 22
"""Largest number of weights of an axis."""


def filtered_steps(
    node: Node, ctx: Context, wanted: Sequence[Dim], axes: Sequence[int], scales: Sequence[float | None]
) -> list[Step] | None:
    """Return a step for each axis that is resized to its extent in `wanted`; None if such an extent is not known."""
    x = ctx.type(node.inputs[0])
    assert x.shape is not None
    found = []
    for axis in axes:
        size, resized = x.shape[axis], wanted[axis]
        if not isinstance(size, int) or not isinstance(resized, int) or size < 1 or resized < 1:
            return None
        scale = scales[axis] or resized / size
        if resized * (4 / min(scale, 1.0) + 4) > _LARGEST:
            return None
        found.append(filter_table(node, size, resized, scale))
    steps, value, shape = [], node.inputs[0], x.shape
    for axis, (first, weights) in zip(axes, found, strict=True):
        resized = wanted[axis]
        shape = (*shape[:axis], resized, *shape[axis + 1 :])
        target = node.outputs[0] if axis == axes[-1] else ctx.new_value(TensorType(x.dtype, shape), "resized")
        extents = Extents()
        params = {
            "taps": weights.shape[1],
            "outer": extents(product(shape[:axis])),
            "size": extents(x.shape[axis]),
            "resized": extents(resized),
            "inner": extents(product(shape[axis + 1 :])),
        }
        inputs = [value, ctx.add_constant(weights.astype(ctx.real.numpy), "filters"), ctx.add_constant(first, "first")]
        work = threads(shape, 2 * weights.shape[1])
        steps.append(launch(Kernel("resize_filtered", params), node, inputs, [target], extents, work))
        value = target
    return steps


def filter_table(node: Node, size: int, resized: int, scale: float) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the first source position of each output position, and the weights [resized, taps] from there on."""
    cubic, a = node.attrs.get("mode") == "cubic", float_attr(node, "cubic_coeff_a", -0.75)
    shrunk, reach = min(scale, 1.0), 2.0 if cubic else 1.0
    at = _coordinates(str(node.attrs.get("coordinate_transformation_mode", "half_pixel")), size, resized, scale)
    low = np.floor(at - reach / shrunk).astype(np.int64)
    positions = low[:, None] + np.arange(int(np.ceil(2 * reach / shrunk)) + 2)
    d = np.abs(positions - at[:, None]) * shrunk
    if cubic:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    else:
        weights = np.maximum(1 - d, 0.0)
    if int_attr(node, "exclude_outside", 0):
        weights[(positions < 0) | (positions >= size)] = 0
    weights /= weights.sum(1, keepdims=True)
    inside = np.clip(positions, 0, size - 1)
    taps = min(size, weights.shape[1])
    first = np.clip(inside[:, 0], 0, size - taps)
    table = np.zeros((resized, taps))
    np.add.at(table, (np.arange(resized)[:, None], inside - first[:, None]), weights)
    return first.astype(np.int32), table


def _coordinates(mode: str, size: int, resized: int, scale: float) -> NDArray[np.float64]:
    """Return where each output position lies in the source."""
    i = np.arange(resized, dtype=np.float64)
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":  # of a scale, the length may be a fraction
        return i * ((size - 1) / (scale * size - 1) if resized > 1 else 0.0)
    if mode == "pytorch_half_pixel" and resized <= 1:
        return i
    if mode == "half_pixel_symmetric":
        return (size - 1) / 2 + (2 * i + 1 - resized) / (2 * scale)
    return (i + 0.5) / scale - 0.5
