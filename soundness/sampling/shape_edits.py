"""Edits of shapes: extents, single dims, ranks, and the axis along which a constant varies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...engine.ir.graph import DType
from ...engine.ir.symbolic import Dim, symbol
from ...engine.ir.values import RestRef
from ...engine.operators.schemas import attributes_of
from .edit import MAX_DIMS, Edit, Editing, data, extents, is_list, whole, with_dim, with_extent, with_number
from .instance import Instance, Slot, Tensor, static
from .operand_synthesis import factors
from .subject import literal_value
from .values import Array, draw

_EXTENTS = (0, 2, 1, 3, 5, 4, 7)
_LARGEST = 256
"""Maximum number of elements of a constant that varies along a new axis."""
_CHOSEN_EXTENTS = 5
"""Maximum number of different extents of which all assignments of 1 and 2 are tried."""
_LARGEST_SIZE = 64
"""Maximum element of a list of sizes that is multiplied or divided."""
_MOST_GROUPED = 4
"""Maximum number of tensors of which all ways to double filters or channels are tried."""
_LONGEST = 7
"""Maximum extent of a shape that other tensors take, and of an axis along which a constant varies."""


def _places_of_extents(editing: Editing, instance: Instance) -> list[Any]:
    return [(d,) for d in extents(instance.tensors)]


def _extent(editing: Editing, instance: Instance, old: int) -> Iterator[Instance]:
    """An extent changes wherever it occurs: in the data, then in lists and attributes too. 0 makes sums empty, and a
    large extent is equal to another one."""
    large = [d for d in extents(instance.tensors) if d > max(_EXTENTS)]
    for new in (n for n in (*_EXTENTS, *large) if n != old):
        yield _with_extent(editing, instance, old, new)
        if old != 1 and new < 4:
            yield instance.replace(**{n: with_number(v, old, new, editing.rng) for n, v in instance.operands.items()})


def _with_extent(editing: Editing, instance: Instance, old: int, new: Dim) -> Instance:
    return editing.resized(instance, {s: with_extent(t, old, new) for s, t in data(instance) if old in t.shape})


def _places_of_positive_extents(editing: Editing, instance: Instance) -> list[Any]:
    return [(d,) for d in extents(data(instance)) if d]


def _empty(editing: Editing, instance: Instance, old: int) -> Iterator[Instance]:
    """Make a sum empty, with infinite constants, one more axis, or an unknown extent that hides the emptiness from
    inference."""
    empty = _with_extent(editing, instance, old, 0)
    infinite = {}
    for slot, tensor in data(empty):
        if tensor.array is not None and tensor.array.size and tensor.dtype.is_float:
            array = draw(tensor.dtype, tensor.array.shape, editing.rng)
            array.reshape(-1)[:: max(array.size - 1, 1)] = np.inf
            infinite[slot] = Tensor.of(array)
    yield empty.replace_tensors(infinite)
    for slot, tensor in data(empty):
        if len(tensor.shape) < MAX_DIMS:
            yield editing.resized(empty, {slot: (1, *tensor.shape)})
    for (extent,) in _places_of_positive_extents(editing, empty):
        yield from _unknown_extent(editing, empty, extent)


def _unknown_extent(editing: Editing, instance: Instance, old: int) -> Iterator[Instance]:
    """An extent of the inputs is symbolic."""
    inputs = [(slot, t) for slot, t in data(instance) if not t.is_const and old in t.shape]
    if inputs:
        yield editing.resized(instance, {slot: with_extent(t, old, symbol("N")) for slot, t in inputs})


def _one_or_two(editing: Editing, instance: Instance) -> Iterator[Instance]:
    """Every extent is 1 or 2 wherever it occurs, so that shapes agree for no reason."""
    found = data(instance)
    every = extents(found)
    if len(every) <= _CHOSEN_EXTENTS:
        for chosen in itertools.product((2, 1), repeat=len(every)):
            sizes: dict[Dim, Dim] = dict(zip(every, chosen, strict=True))
            yield editing.resized(instance, {slot: tuple(sizes.get(d, d) for d in t.shape) for slot, t in found})


def _groups_of_tensors(editing: Editing, instance: Instance) -> list[Any]:
    found = data(instance)
    return [(found,), *(([one],) for one in found)]


def _square(editing: Editing, instance: Instance, chosen: list[tuple[Slot, Tensor]]) -> Iterator[Instance]:
    """All extents, or all but those of 1, are equal, so that types no longer distinguish axes. Indices may be smaller
    than that, too."""
    for new, every in ((2, False), (3, False), (2, True), (1, True)):
        changed = editing.resized(
            instance, {s: tuple(new if every or d != 1 else 1 for d in t.shape) for s, t in chosen}
        )
        yield changed
        indices = {s: t.array % new for s, t in changed.tensors if t.array is not None and t.dtype.is_integer}
        yield changed.replace_tensors({s: Tensor.of(array) for s, array in indices.items()})


def _all_or_inputs(editing: Editing, instance: Instance) -> list[Any]:
    found = data(instance)
    inputs = [one for one in found if not one[1].is_const]
    return [(found,), *([(inputs,)] if 0 < len(inputs) < len(found) else [])]


def _same_shape(editing: Editing, instance: Instance, chosen: list[tuple[Slot, Tensor]]) -> Iterator[Instance]:
    """All operands, or all inputs, have one shape, or one element each: any two types agree."""
    short = [s for _, t in chosen if (s := static(t.shape)) is not None and max(s, default=0) <= _LONGEST]
    for shape in dict.fromkeys([(1,), (), (2,), *short]):
        yield editing.resized(instance, {slot: shape for slot, _ in chosen})
    yield editing.resized(instance, {slot: (1,) * len(t.shape) for slot, t in chosen})


def _places_of_dims(editing: Editing, instance: Instance) -> list[Any]:
    return [(slot, t, axis) for slot, t in data(instance) for axis, d in enumerate(t.shape) if isinstance(d, int)]


def _dim(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor, axis: int) -> Iterator[Instance]:
    """One dim changes; then the dims that were equal at the same place of the other operands change too."""
    old, from_end = tensor.shape[axis], axis - len(tensor.shape)
    alike = [(s, t) for s, t in data(instance) if -from_end <= len(t.shape) and t.shape[from_end] == old]
    others = [d for _, t in instance.tensors for d in t.shape if isinstance(d, int)]
    for new in dict.fromkeys((1, 2, 3, 0, *others)):
        if new != old:
            yield editing.resized(instance, {slot: with_dim(tensor, axis, new)})
            if new:
                yield editing.resized(instance, {s: with_dim(t, len(t.shape) + from_end, new) for s, t in alike})


def _places_of_images(editing: Editing, instance: Instance) -> list[Any]:
    return [(slot, t) for slot, t in data(instance) if not t.is_const and len(t.shape) >= 3]


def _batch(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """There are as many images as columns, or as a window of 2, 3 or step 2 leaves of them, so that types do not
    distinguish the first and the last axis of the result."""
    width = tensor.shape[-1]
    if isinstance(width, int):
        for new in dict.fromkeys((width, width - 2, width - 1, (width + 1) // 2)):
            if 1 < new <= _LONGEST and new != tensor.shape[0]:
                yield editing.resized(instance, {slot: with_dim(tensor, 0, new)})


def _places_of_sizes(editing: Editing, instance: Instance) -> list[Any]:
    """Return pairs of a dim of the data and an element of a list of integers."""
    return [
        (slot, t, axis, sizes, at)
        for slot, t, axis in _places_of_dims(editing, instance)
        for sizes, listed in _places_of_lists(editing, instance)
        if listed.array is not None
        for at, size in enumerate(listed.array.tolist())
        if 0 < size <= _LARGEST_SIZE
    ]


def _multiplied(
    editing: Editing, instance: Instance, slot: Slot, tensor: Tensor, axis: int, sizes: Slot, at: int
) -> Iterator[Instance]:
    """A dim and a size are multiplied together, as a Reshape takes them: axes are split and joined at other places."""
    listed = dict(instance.tensors)[sizes].array
    size = tensor.shape[axis]
    assert listed is not None
    for factor in (2, 3) if isinstance(size, int) else ():
        changed = listed.copy()
        changed[at] *= factor
        yield editing.resized(
            instance.replace_tensors({sizes: Tensor.of(changed)}), {slot: with_dim(tensor, axis, size * factor)}
        )


def _places_of_lists(editing: Editing, instance: Instance) -> list[Any]:
    """Return the constants that may be sizes, whose type ONNX fixes."""
    return [(slot, t) for slot, t in instance.tensors if t.dtype is DType.I64 and is_list(t)]


def _factored(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """A size becomes two factors, or two sizes their product."""
    assert tensor.array is not None
    sizes = tensor.array.tolist()
    for at, size in enumerate(sizes if len(sizes) < MAX_DIMS else ()):
        for pair in factors(size) if 1 < size <= _LARGEST_SIZE else ():
            yield _with_list(instance, slot, tensor, [*sizes[:at], *pair, *sizes[at + 1 :]])
    for at in range(len(sizes) - 1 if max(map(abs, sizes), default=0) <= _LARGEST_SIZE else 0):
        yield _with_list(instance, slot, tensor, [*sizes[:at], sizes[at] * sizes[at + 1], *sizes[at + 2 :]])


def _with_list(instance: Instance, slot: Slot, tensor: Tensor, items: list[int]) -> Instance:
    return instance.replace_tensors({slot: Tensor.of(np.array(items, tensor.dtype.numpy))})


def _places_of_groups(editing: Editing, instance: Instance) -> list[Any]:
    grouped = [n for n, ops in sorted(editing.subject.rests.items()) if any("group" in attributes_of(op) for op in ops)]
    return [(name,) for name in grouped]


def _grouped(editing: Editing, instance: Instance, name: str) -> Iterator[Instance]:
    """Two groups of channels where the pattern leaves `group` open: filters, images and biases are resized to fit.

    Which tensor is what is not known here, so every choice is made: twice as many filters or channels of each tensor,
    and of the vectors as many as the first filters."""
    before = instance.operands.get(name)
    attrs = before.attrs if isinstance(before, RestRef) else {}
    if attrs.get("group", 1) != 1:
        return
    changed = instance.replace(**{name: RestRef({**attrs, "group": 2})})
    yield changed
    images = [(slot, t) for slot, t in data(instance) if len(t.shape) > 2][:_MOST_GROUPED]
    vectors = [(slot, t) for slot, t in data(instance) if len(t.shape) == 1]
    for chosen in itertools.product((1, 0, None), repeat=len(images)):
        shapes = {
            slot: with_dim(t, axis, 2 * t.shape[axis])
            for (slot, t), axis in zip(images, chosen, strict=True)
            if axis is not None
        }
        filters = {t.shape[0] for (_, t), axis in zip(images, chosen, strict=True) if axis == 0}
        shapes |= {slot: (2 * t.shape[0],) for slot, t in vectors if t.shape[0] in filters}
        if shapes:
            yield editing.resized(changed, shapes)


def _widened(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor, axis: int) -> Iterator[Instance]:
    """A tensor has extent 1 where another operand, of its shape otherwise, has more."""
    ones = (1,) * (len(tensor.shape) - axis - 1)
    changed = editing.resized(instance, {slot: with_dim(tensor, axis, 1)})
    for other_slot, other in instance.tensors:
        for size in (2, 3) if other_slot != slot else ():
            for wide in (with_dim(tensor, axis, size), (size, *ones)):
                if not other.is_const or static(wide) is not None:
                    yield editing.resized(changed, {other_slot: wide})


def _places_of_data(editing: Editing, instance: Instance) -> list[Any]:
    return sorted(data(instance), key=lambda one: not one[1].is_const)


def _rank(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """Change the rank of a tensor: one axis more or less, or the trailing part of another's shape, with an axis of
    1."""
    shape = tensor.shape
    shapes = [(1, *shape), shape[1:], (2, *shape), (*shape, 1), shape[:-1], (), (1,), shape[2:]]
    for other in dict.fromkeys(t.shape for _, t in data(instance)):
        for start in range(len(other)):
            rest = other[start:]
            shapes += [rest, *((*rest[:i], 1, *rest[i + 1 :]) for i in range(len(rest)))]
            shapes += [_vector(d, i, len(rest)) for i, d in enumerate(rest)]
    for new in dict.fromkeys(shapes):
        if new != shape and len(new) <= MAX_DIMS and (not tensor.is_const or static(new) is not None):
            yield editing.resized(instance, {slot: new})


def _vector(size: Any, axis: int, rank: int) -> tuple[Any, ...]:
    """Return a shape with one extent that is not 1."""
    return (1,) * axis + (size,) + (1,) * (rank - 1 - axis)


def _ranks(editing: Editing, instance: Instance) -> Iterator[Instance]:
    """All tensors gain an axis or lose one, in front or at the end."""
    shapes = {slot: t.shape for slot, t in instance.tensors}
    for size in (1, 2, 3):
        yield editing.resized(instance, {slot: (size, *shape) for slot, shape in shapes.items()})
        yield editing.resized(instance, {slot: (*shape, size) for slot, shape in shapes.items()})
    yield editing.resized(instance, {slot: shape[1:] for slot, shape in shapes.items()})
    yield editing.resized(instance, {slot: shape[:-1] for slot, shape in shapes.items()})


def _places_of_constant_data(editing: Editing, instance: Instance) -> list[Any]:
    return [(slot, t) for slot, t in data(instance) if t.is_const]


def _direction(editing: Editing, instance: Instance, slot: Slot, tensor: Tensor) -> Iterator[Instance]:
    """A constant varies along another axis, with distinct values, or has one more axis."""
    assert tensor.array is not None
    found = data(instance)
    highest = min(max((len(t.shape) for _, t in found), default=1), MAX_DIMS)
    own_shape: tuple[int, ...] = tensor.array.shape
    own = [d for d in own_shape if d > 1]
    long = own if len(own) == 1 else [] if own else [d for d in extents(found) if 1 < d <= _LONGEST]
    shapes = [_vector(n, i, rank) for n in long for rank in range(1, highest + 1) for i in range(rank)]
    if own:
        shapes += [own_shape[::-1], (*own_shape, 1), (1, *own_shape)]
    if len(own) <= 1:
        shapes += [shape for _, t in found if (shape := static(t.shape)) is not None]
    for shape in dict.fromkeys(shapes):
        if shape != own_shape and len(shape) <= MAX_DIMS and math.prod(shape) <= _LARGEST:
            yield instance.replace_tensors({slot: Tensor.of(_distinct(tensor, shape, editing.rng))})
    if tensor.dtype.is_float and tensor.array.size > 1:
        yield instance.replace_tensors({slot: Tensor.of(_distinct(tensor, own_shape, editing.rng))})


def _distinct(tensor: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return contents of a shape: those of the tensor if they are distinct already, else new ones."""
    assert tensor.array is not None
    flat, size = tensor.array.reshape(-1), math.prod(shape)
    if tensor.dtype.is_float and np.unique(flat[:size].astype(np.float64)).size < size:
        return np.asarray(np.abs(draw(tensor.dtype, shape, rng)) + tensor.array.dtype.type(0.25))
    return np.resize(tensor.array, shape)


def _places_of_literals(editing: Editing, instance: Instance) -> list[Any]:
    numbers = {name: literal_value(expr) for name, expr in editing.subject.literals.items()}
    return [(name, number) for name, number in numbers.items() if number is not None]


def _literal(editing: Editing, instance: Instance, name: str, number: float) -> Iterator[Instance]:
    """A literal of the pattern stands for a tensor that has axes, all of whose elements have its value."""
    found = [t for _, t in instance.tensors]
    dtype = next((t.dtype for t in found if t.dtype.is_float), found[0].dtype if found else DType.F32)
    shapes = [(1,), (1, 1, 1), *(t.shape for t in found), *((2, *t.shape) for t in found)]
    for shape in dict.fromkeys([*shapes, (2, 1, 1), *(t.shape[1:] for t in found)]):
        if (sizes := static(shape)) is not None and len(sizes) <= MAX_DIMS:
            with np.errstate(all="ignore"):
                array = np.full(sizes, number).astype(dtype.numpy)
            yield instance.replace(**{name: Tensor.of(array)})


def _after_square(edit: Edit) -> Edit:
    """Return an edit of the instance with all extents equal, so that a vector fits wherever a matrix did."""

    def places(editing: Editing, instance: Instance) -> list[Any]:
        bases = itertools.islice(_square(editing, instance, data(instance)), 2)
        return [(base, place) for base in bases for place in edit.places(editing, base)]

    def alternatives(
        editing: Editing, instance: Instance, base: Instance, place: tuple[Any, ...]
    ) -> Iterator[Instance]:
        return edit.alternatives(editing, base, *place)

    return Edit(places, alternatives, weight=0, enumerated="share")


DIRECTION = Edit(_places_of_constant_data, _direction, weight=3, enumerated="share")
RANK = Edit(_places_of_data, _rank, weight=3, enumerated="share")
SHAPE_EDITS = (
    Edit(_places_of_extents, _extent, weight=4, enumerated="all"),
    Edit(_places_of_positive_extents, _empty, weight=1, enumerated="all"),
    Edit(_groups_of_tensors, _square, weight=4, enumerated="all"),
    Edit(_places_of_literals, _literal, weight=3, enumerated="all"),
    Edit(whole, _one_or_two, weight=1, enumerated="all"),
    Edit(_all_or_inputs, _same_shape, weight=2, enumerated="all"),
    Edit(_places_of_groups, _grouped, weight=1, enumerated="all"),
    Edit(_places_of_images, _batch, weight=1, enumerated="all"),
    Edit(_places_of_dims, _dim, weight=4, enumerated="share"),
    Edit(_places_of_sizes, _multiplied, weight=2, enumerated="share"),
    Edit(_places_of_lists, _factored, weight=2, enumerated="share"),
    DIRECTION,
    RANK,
    _after_square(DIRECTION),
    _after_square(RANK),
    Edit(whole, _ranks, weight=1),
    Edit(_places_of_dims, _widened, weight=3),
    Edit(_places_of_positive_extents, _unknown_extent, weight=1),
)
