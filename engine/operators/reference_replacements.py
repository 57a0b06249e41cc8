"""Implementations of operators that `onnx.reference` lacks at an opset, or computes otherwise than the standard.

It gives the older versions of some operators the meaning of newer ones, so that a right program of an old model would
fail its verification where ONNX Runtime is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .folding import run_reference
from .folding.float64_kernels import FLOAT64_KERNELS

Array = NDArray[Any]
Attrs = Mapping[str, Any]
Function = Callable[[Attrs, Sequence[Any]], "Sequence[Any]"]
"""Returns the outputs of an operator, from its attributes and its inputs, None where absent."""


def replacements(opset: int) -> list[type[Any]]:
    """Return the operators to replace in models of an opset, as `ReferenceEvaluator` takes them (`new_ops`)."""
    return [_operator(name, opset, f) for name, first, last, f in _REPLACED if first <= opset <= last]


def opset_of(model: Any) -> int:
    """Return the version of the standard's operators that a `ModelProto` imports; 1 without one."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def _operator(name: str, opset: int, function: Function) -> type[Any]:
    from onnx import defs
    from onnx.reference.op_run import OpRun

    def run(self: Any, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        attributes = {key: value for key, value in attributes.items() if value is not None}
        found, names = function(attributes, inputs), self.onnx_node.output
        if any(names[len(found) :]):
            raise NotImplementedError(f"{len(names)} outputs of {name} at opset {opset}")
        present = [np.asarray(value) for value in found[: len(names)]]
        return (*present, *present[:1] * (len(names) - len(present)))  # nothing reads absent ones

    return type(name, (OpRun,), {"op_domain": "", "op_schema": defs.get_schema(name, opset, ""), "_run": run})


def _of_matrix(function: Callable[[Array], Array]) -> Function:
    """Return a function over all axes from `axis` on together, as up to opset 12."""

    def run(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
        (x,) = inputs
        axis = attrs["axis"] + (x.ndim if attrs["axis"] < 0 else 0)
        rows = x.reshape(int(np.prod(x.shape[:axis])), -1) if x.size else x
        return (function(rows.astype(np.float64)).astype(x.dtype).reshape(x.shape) if x.size else x,)

    return run


def _log_softmax(rows: Array) -> Array:
    shifted = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _hardmax(rows: Array) -> Array:
    return np.asarray(np.arange(rows.shape[1]) == rows.argmax(axis=1)[:, None], np.float64)


def _batch_normalization(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    """Normalize by the given mean and variance; of the older versions, those outside training have one output."""
    x, *parts = inputs
    if attrs.get("spatial", 1):
        parts = [part.reshape(-1, *[1] * (x.ndim - 2)) for part in parts]
    scale, bias, mean, variance = (part.astype(np.float64) for part in parts)
    return (((x - mean) / np.sqrt(variance + attrs["epsilon"]) * scale + bias).astype(x.dtype),)


def _dequantize(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    x, scale, zero = (*inputs, None)[:3]
    if scale.size > 1:
        axis = attrs.get("axis", 1)
        shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
        scale, zero = scale.reshape(shape), None if zero is None else zero.reshape(shape)
    elif scale.ndim:
        scale, zero = scale.reshape(()), None if zero is None else zero.reshape(())
    whole = x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))
    return ((whole.astype(scale.dtype) * scale).astype(scale.dtype),)


def _resize(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    """Sample at `output / scale`; "nearest" takes the pixel before. Runtimes differ in how that shrinks."""
    x, scales = (*inputs, attrs.get("scales"))[:2]
    scales = np.asarray(scales, np.float32)
    if attrs["mode"] not in ("nearest", "linear") or (attrs["mode"] == "nearest" and (scales < 1).any()):
        raise NotImplementedError(f"this resizing in mode {attrs['mode']!r}")
    sampling = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return run_reference("Resize", {"mode": attrs["mode"], **sampling}, [x, None, scales], 1)


def _scatter(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    return run_reference("ScatterElements", attrs, inputs, 1)


def _roi_align(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    whole = {"coordinate_transformation_mode": "output_half_pixel"}
    return run_reference("RoiAlign", {**attrs, **whole}, inputs, 1)


def _one_hot(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    """Take the depth also as a list of one number."""
    indices, depth, values = inputs
    return run_reference("OneHot", attrs, [indices, np.asarray(depth).reshape(()), values], 1)


def _non_max_suppression(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    """Take limits that are absent: no box, every overlap, every score."""
    boxes, scores, *limits = inputs
    least = np.array([np.finfo(np.float32).min])
    absent: tuple[Array, ...] = (np.zeros(1, np.int64), np.zeros(1, np.float32), least.astype(np.float32))
    limits = [b if a is None else a for a, b in zip((*limits, None, None, None), absent, strict=False)]
    return run_reference("NonMaxSuppression", attrs, [boxes, scores, *limits], 1)


def _of_rows(op: str) -> Function:
    """Return a product of integers that takes zero points of rows as the standard does."""
    return lambda attrs, inputs: run_reference(op, attrs, inputs, 1)


def _lrn(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    (x,) = inputs
    size, squares = attrs["size"], x.astype(np.float64) ** 2
    before, channels = (size - 1) // 2, x.shape[1]
    sums = np.zeros_like(squares)
    for c in range(channels):
        sums[:, c] = squares[:, max(c - before, 0) : c + size - before].sum(axis=1)
    return ((x / (attrs["bias"] + attrs["alpha"] / size * sums) ** attrs["beta"]).astype(x.dtype),)


def _max_roi_pool(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    x, regions = inputs
    pooled = attrs["pooled_shape"]
    out = np.zeros((len(regions), x.shape[1], *pooled), x.dtype)
    for n, (image, *corners) in enumerate(regions):
        left, top, right, bottom = (int(np.floor(c * attrs["spatial_scale"] + 0.5)) for c in corners)
        places = []
        for start, stop, parts, size in ((top, bottom, pooled[0], x.shape[2]), (left, right, pooled[1], x.shape[3])):
            step = max(stop - start + 1, 1) / parts
            ends = [(start + int(np.floor(i * step)), start + int(np.ceil((i + 1) * step))) for i in range(parts)]
            places.append([slice(*np.clip(pair, 0, size)) for pair in ends])
        for i, rows in enumerate(places[0]):
            for j, columns in enumerate(places[1]):
                window = x[int(image), :, rows, columns]
                if window.size:
                    out[n, :, i, j] = window.max(axis=(1, 2))
    return (out,)


def _global_lp_pool(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    found = FLOAT64_KERNELS["GlobalLpPool"](attrs, inputs)
    if found is None:
        raise NotImplementedError("GlobalLpPool of this type")
    return found


def _pad(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    """Cut elements off where a pad is negative, before others are added."""
    x, pads, value, axes = (*inputs, None, None)[:4]
    named = range(x.ndim) if axes is None else axes.tolist()
    cut, added = [slice(None)] * x.ndim, np.maximum(pads, 0)
    for axis, before, after in zip(named, *np.minimum(pads, 0).reshape(2, -1).tolist(), strict=True):
        cut[axis] = slice(-before, x.shape[axis] + after)
    return run_reference("Pad", attrs, [x[tuple(cut)], added, value, axes], 1)


def _unique(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Any]:
    """Unsorted, values are in the order of their first occurrence, along any axis."""
    (x,), axis = inputs, attrs.get("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    order = np.argsort(first) if not attrs.get("sorted", 1) else np.arange(len(first))
    values = np.take(values, order, axis=0 if axis is None else axis)
    numbers = (first[order], np.argsort(order)[inverse.reshape(-1)], counts[order])
    return values, *(part.astype(np.int64) for part in numbers)


_ANY = 1 << 30
_REPLACED: tuple[tuple[str, int, int, Function], ...] = (
    ("Softmax", 1, 12, _of_matrix(lambda rows: np.exp(_log_softmax(rows)))),
    ("LogSoftmax", 1, 12, _of_matrix(_log_softmax)),
    ("Hardmax", 1, 12, _of_matrix(_hardmax)),
    ("BatchNormalization", 7, 13, _batch_normalization),
    ("DequantizeLinear", 10, 18, _dequantize),
    ("Upsample", 7, 9, _resize),
    ("Resize", 10, 10, _resize),
    ("Scatter", 9, 10, _scatter),
    ("RoiAlign", 10, 15, _roi_align),
    ("OneHot", 9, _ANY, _one_hot),
    ("NonMaxSuppression", 10, _ANY, _non_max_suppression),
    *((op, 10, _ANY, _of_rows(op)) for op in ("MatMulInteger", "QLinearMatMul")),
    ("LRN", 1, _ANY, _lrn),
    ("MaxRoiPool", 1, _ANY, _max_roi_pool),
    ("GlobalLpPool", 2, _ANY, _global_lp_pool),
    ("Pad", 11, _ANY, _pad),
    ("Unique", 11, _ANY, _unique),
)
"""Operators with the first and last opset at which they are replaced."""
