"""Operands of one evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.graph import AttrValue

Array = NDArray[Any]
Attrs = Mapping[str, AttrValue]


BLOCK = 1 << 17
"""Elements of a block that is computed in double precision at once, about half of a second-level cache."""


class Refused(Exception):
    """The operator is not evaluated on these operands."""


@dataclass(frozen=True, slots=True)
class Call:
    """Operands of one evaluation: inputs, None where absent, the number of outputs, and their maximum size in bytes."""

    attrs: Attrs
    arrays: tuple[Array | None, ...]
    outputs: int
    limit: int

    def __getitem__(self, index: int) -> Array:
        found = self.get(index)
        if found is None:
            raise Refused
        return found

    def get(self, index: int) -> Array | None:
        """Return an input, None if absent."""
        return self.arrays[index] if index < len(self.arrays) else None

    def present(self) -> list[Array]:
        """Return all inputs, none of which may be absent."""
        return [self[i] for i in range(len(self.arrays))]

    def ints(self, index: int) -> list[int] | None:
        """Return an integer input as a list, None if absent."""
        found = self.get(index)
        return None if found is None else [int(v) for v in found.reshape(-1)]

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise Refused
        return value

    def axes(self, index: int, rank: int) -> tuple[int, ...] | None:
        """Return the axes in an input, counted from the front; None if it is absent."""
        given = self.ints(index)
        found = None if given is None else tuple(front_axis(a, rank) for a in given)
        if found is not None and len(set(found)) != len(found):
            raise Refused
        return found

    def allow(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Refuse a result that would be too large."""
        if math.prod(shape) * dtype.itemsize > self.limit:
            raise Refused


Fast = Callable[[Call], "Array | list[Array]"]
"""Returns the only output, or all."""


def numeric(*arrays: Array) -> None:
    """Refuse operands whose element types differ or are not ordinary numbers."""
    for array in arrays:
        if array.dtype != arrays[0].dtype or array.dtype.kind not in "biufV" or tiny(array.dtype):
            raise Refused


def common_shape(*arrays: Array) -> tuple[int, ...]:
    """Return the shape to which arrays broadcast; raises `ValueError` if they do not."""
    shape = arrays[0].shape
    return shape if all(a.shape == shape for a in arrays) else np.broadcast_shapes(*(a.shape for a in arrays))


@lru_cache(256)
def tiny(dtype: np.dtype[Any]) -> bool:
    """Whether it is an element type of at most 8 bits that NumPy itself does not compute with."""
    return (dtype.kind == "V" and dtype.name != "bfloat16") or dtype.name.startswith(
        ("int4", "uint4", "int2", "uint2", "float8", "float4")
    )


@lru_cache(256)
def real(dtype: np.dtype[Any]) -> bool:
    """Whether it is a floating-point type of NumPy, or bfloat16."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def in_double(function: Callable[[Array], Array], x: Array, *, rowwise: bool = True) -> Array:
    """Return a function of reals computed in double precision and rounded once.

    A `rowwise` function keeps the first axis and computes each of its slices by itself. Then a large array is computed
    in blocks: copies of twice its size would take longer than the function."""
    rows = max(1, BLOCK * len(x) // x.size) if rowwise and x.ndim and x.size > BLOCK else 0
    blocks = [x[i : i + rows] for i in range(0, len(x), rows)] if rows else [x]
    found = [np.asarray(function(block.astype(np.float64))).astype(x.dtype) for block in blocks]
    return np.concatenate(found) if rows else found[0]


def front_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front; refuses one out of range."""
    if not -rank <= axis < rank:
        raise Refused
    return axis % rank
