"""An edit: one kind of change to an instance, as the places where it applies and the alternatives at each place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.graph import DType
from ...engine.ir.symbolic import Dim
from .instance import Instance, Slot, Tensor, resize
from .subject import Subject
from .values import PLAIN, draw

MAX_DIMS = 5
"""Highest rank of a tensor that an edit makes."""
LIST_LENGTH = 8
"""An integer vector of at most this many elements is taken for a list of axes, sizes or bounds."""
_ENORMOUS = 1 << 22
"""Number of elements that no edit exceeds."""


def weighted(rng: np.random.Generator, bounds: NDArray[np.float64]) -> int:
    """Return an index in proportion to the weights that `weight_bounds` were made of.

    As `rng.choice(len(weights), p=…)`, whose checks take ten times as long."""
    return int(bounds.searchsorted(rng.random(), side="right"))


def weight_bounds(weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the upper bounds of the parts of [0, 1) that are as long as weights."""
    found = np.array(weights)
    sums = (found / found.sum()).cumsum()
    return np.asarray(sums / sums[-1])


@dataclass(frozen=True)
class Editing:
    """What edits may draw on: the rule and a random generator."""

    subject: Subject
    rng: np.random.Generator

    def pick(self, items: list[Any]) -> Any:
        """Return a random item of a list that is not empty."""
        return items[int(self.rng.integers(len(items)))]

    def drawn(self, dtype: DType, shape: tuple[int, ...], style: str = PLAIN) -> Tensor:
        """Return a constant with random contents."""
        return Tensor.of(draw(dtype, shape, self.rng, style))

    def resized(self, instance: Instance, shapes: Mapping[Slot, tuple[Dim, ...]]) -> Instance:
        """Return the instance with other shapes in some slots, or as it is if a tensor would be enormous."""
        if any(math.prod(d for d in shape if isinstance(d, int)) > _ENORMOUS for shape in shapes.values()):
            return instance
        tensors = dict(instance.tensors)
        return instance.replace_tensors(
            {slot: resize(tensors[slot], shape, self.rng) for slot, shape in shapes.items()}
        )


@dataclass(frozen=True)
class Edit:
    """One kind of change.

    `places` returns the places of an instance to which it applies, as tuples, and `alternatives` yields what may stand
    at one of them, simplest first; a place is the rest of its arguments. A sampler picks the edit in proportion to
    `weight`, plus `per_place` for each place. `enumerated` says whether a complete enumeration includes it: `all`,
    `share` (limited together with other kinds that have many alternatives) or `none`."""

    places: Callable[[Editing, Instance], list[Any]]
    alternatives: Callable[..., Iterator[Instance]]
    weight: float
    enumerated: str = "none"
    per_place: float = 0.0


def whole(editing: Editing, instance: Instance) -> list[Any]:
    """Return the whole instance as the only place."""
    return [()]


def data(instance: Instance) -> list[tuple[Slot, Tensor]]:
    """Return the tensors that are not lists of axes or sizes."""
    return [(slot, t) for slot, t in instance.tensors if not is_list(t)]


def is_list(tensor: Tensor) -> bool:
    """Whether a tensor is likely to be a list of axes, sizes or bounds."""
    array = tensor.array
    return array is not None and tensor.dtype.is_integer and array.ndim == 1 and array.size <= LIST_LENGTH


def extents(tensors: Iterable[tuple[Slot, Tensor]]) -> list[int]:
    """Return the known extents of tensors, in order."""
    return sorted({d for _, t in tensors for d in t.shape if isinstance(d, int)})


def places_of_tensors(editing: Editing, instance: Instance) -> list[Any]:
    """Return the slots of all tensors, constants first, because conditions are about these."""
    return sorted(instance.tensors, key=lambda one: not one[1].is_const)


def places_of_constants(editing: Editing, instance: Instance) -> list[Any]:
    """Return the slots of constants."""
    return [(slot, t) for slot, t in instance.tensors if t.is_const]


def with_dim(tensor: Tensor, axis: int, new: Dim) -> tuple[Dim, ...]:
    """Return the shape of a tensor with one dim replaced."""
    return (*tensor.shape[:axis], new, *tensor.shape[axis + 1 :])


def with_extent(tensor: Tensor, old: int, new: Dim) -> tuple[Dim, ...]:
    """Return the shape of a tensor with one extent replaced."""
    return tuple(new if d == old else d for d in tensor.shape)


def with_number(value: Any, old: int, new: int, rng: np.random.Generator) -> Any:
    """Return an operand with a number replaced in its shape, in its contents and as an attribute."""
    if isinstance(value, Tensor):
        found = resize(value, with_extent(value, old, new), rng)
        if found.array is not None and found.dtype.is_integer:
            return Tensor.of(np.where(found.array == old, found.dtype.numpy.type(new), found.array))
        return found
    if isinstance(value, list):
        return [with_number(v, old, new, rng) for v in value]
    return new if type(value) is int and value == old else value
