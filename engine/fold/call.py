"""The operands of one evaluation, and what refuses it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import AttrValue

Array = NDArray[Any]
Attrs = Mapping[str, AttrValue]


class Refused(Exception):
    """The operator is not evaluated on these operands."""


class Call:
    """The operands of one evaluation."""

    def __init__(self, attrs: Attrs, arrays: tuple[Array | None, ...], outputs: int, limit: int) -> None:
        self.attrs = attrs
        self.arrays = arrays
        self.outputs = outputs
        self.limit = limit

    def __getitem__(self, index: int) -> Array:
        found = self.get(index)
        if found is None:
            raise Refused
        return found

    def get(self, index: int) -> Array | None:
        """An input, None if absent."""
        return self.arrays[index] if index < len(self.arrays) else None

    def present(self) -> list[Array]:
        """All inputs, none of which may be absent."""
        return [self[i] for i in range(len(self.arrays))]

    def ints(self, index: int) -> list[int] | None:
        """An integer input as a list, None if absent."""
        found = self.get(index)
        return None if found is None else [int(v) for v in found.reshape(-1)]

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise Refused
        return value

    def tuple(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers, None if not set."""
        value = self.attrs.get(name)
        return None if value is None else tuple(int(v) for v in value)  # type: ignore[arg-type, union-attr]

    def allow(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Refuses a result that would be too large."""
        if math.prod(shape) * dtype.itemsize > self.limit:
            raise Refused


Fast = Callable[[Call], list[Array]]


def numeric(*arrays: Array) -> None:
    """Refuses operands whose element types differ or are no ordinary numbers."""
    for array in arrays:
        if array.dtype != arrays[0].dtype or array.dtype.kind not in "biufV" or tiny(array.dtype):
            raise Refused


@lru_cache(256)
def tiny(dtype: np.dtype[Any]) -> bool:
    """Whether it is an element type of 8 bits or fewer that NumPy does not compute with by itself."""
    return (dtype.kind == "V" and dtype.name != "bfloat16") or dtype.name.startswith(
        ("int4", "uint4", "int2", "uint2", "float8", "float4")
    )


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Refused
    return axis % rank


def axes_of(call: Call, index: int, rank: int) -> list[int] | None:
    """The axes that an input names, counted from the front; None if it is absent."""
    axes = call.ints(index)
    if axes is None:
        return None
    found = [_axis(a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise Refused
    return found
