"""Seeded inputs for a model, in the ranges that such models see: pixels and signals, token numbers, masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# Default sizes of symbolic dims, by the names that exporters use, and of others.
_USUAL = {"batch": 1, "seq": 32, "height": 224, "width": 224}
_OTHER = 2


def make_inputs(model: Any, dims: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded arrays for all true inputs of an `onnx.ModelProto` (initializers listed as inputs are left out).

    `dims` gives sizes of symbolic dimensions by position, `input.axis`, or by name.
    """
    from onnx import helper

    generator = np.random.default_rng(seed)
    constants = {t.name for t in model.graph.initializer}
    arrays: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = tuple(_size(dim, f"{value.name}.{axis}", dims or {}) for axis, dim in enumerate(tensor.shape.dim))
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        arrays[value.name] = _values(value.name, shape, np.dtype(dtype), generator)
        if value.name.endswith("_lens"):  # of recordings, which come first
            arrays[value.name][...] = max((array.shape[-1] for array in arrays.values() if array.ndim > 1), default=0)
    return arrays


def _size(dim: Any, place: str, dims: Mapping[str, int]) -> int:
    if dim.HasField("dim_value") and dim.dim_value > 0:
        return int(dim.dim_value)
    name = dim.dim_param
    if place in dims or name in dims:
        return dims[place if place in dims else name]
    return next((size for word, size in _USUAL.items() if word in name.lower()), _OTHER)


def _values(name: str, shape: tuple[int, ...], dtype: np.dtype, generator: np.random.Generator) -> np.ndarray:
    """Masks are ones with a padded end, sampling rates are 16000, other integers are small numbers, floats normal."""
    if dtype == np.bool_:
        return generator.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.integer):
        if "mask" in name:
            mask = np.ones(shape, dtype)
            mask[..., shape[-1] - shape[-1] // 4 :] = 0
            return mask
        if name == "sr":
            return np.full(shape, 16000, dtype)
        return generator.integers(0, 2 if "type" in name else 250, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def page(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Synthetic text lines in [-1, 1]: text models find nothing in noise."""
    generator = np.random.default_rng(seed)
    height, width = shape[-2:]
    picture = np.ones(shape, np.float32)
    for top in range(10, height - 24, 48):
        for left in range(16, width - 16, 14):
            if generator.random() < 0.15:
                continue  # a space
            for across, down in zip(generator.integers(0, 18, 3), generator.integers(0, 9, 3), strict=True):
                if generator.random() < 0.5:
                    picture[..., top + across : top + across + 3, left : left + 10] = -1
                else:
                    picture[..., top : top + 20, left + down : left + down + 2] = -1
    return picture + np.float32(0.05) * generator.standard_normal(shape, dtype=np.float32)
