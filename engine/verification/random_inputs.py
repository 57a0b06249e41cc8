"""Random inputs for a model: seeded arrays of the declared types, and sizes for symbolic dims.

Values are such that models run on them: indices lie within what they index if that is visible, masks are 0 or 1, other
integers are small and nonnegative, floats are drawn from the normal distribution.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ..ir.dim_expr import symbol_name
from ..ir.graph import DType, Graph, TensorType
from ..ir.symbolic import Dim, evaluate, product, solution, symbols

Array = NDArray[np.generic]

_STEPS = frozenset(("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice"))
"""Operators that do not change the values of an index."""
_SMALL = 8
_LARGEST = 1 << 27
"""Maximum number of elements of all inputs."""
_LENGTHS = (576, 512, 48, 1024, 320, 256, 16, 4096, 16000)


def free_symbols(graph: Graph) -> dict[str, bool]:
    """Return the symbols in the shapes of the inputs, in order; True for one that is always a first dim (a batch)."""
    found: dict[str, bool] = {}
    for name in graph.inputs:
        for axis, dim in enumerate(graph.type(name).shape or ()):
            for symbol in sorted(symbols(dim)):
                found[symbol] = found.get(symbol, True) and axis == 0
    return found


def sizes_of(graph: Graph, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the sizes that arrays give to the symbols of a graph's inputs, but for those that it does not name."""
    return {
        name: extent
        for value, array in arrays.items()
        for dim, extent in zip(graph.type(value).shape or (), array.shape, strict=False)
        if (name := symbol_name(dim)) is not None and not name.startswith("_")
    }


def assignments(graph: Graph, shapes: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
    """Enumerate choices of sizes for the symbolic dims, by name, likely and small ones first.

    Which sizes a model runs with is not known beforehand: images need a multiple of 32, a signal whole frames, some
    dims must be equal. So callers take the first choices that work. Choices that make some tensor empty are left out,
    since operators on those differ between implementations. `shapes` are known sizes."""
    given = dict(shapes or {})
    free = {name: first for name, first in free_symbols(graph).items() if name not in given}
    if not free:
        yield given
        return
    shown = [type_.shape or () for type_ in graph.types.values() if isinstance(type_, TensorType)]
    dims = [d for d in dict.fromkeys(itertools.chain(*shown)) if symbols(d) and symbols(d) <= {*free, *given}]
    seen: list[dict[str, int]] = []
    flat = {name: size for name, size in _flattened(graph).items() if name in free}
    choices = [*_choices(graph, free)]
    for chosen in [*(chosen | flat for chosen in choices if flat), *choices]:
        sizes = chosen | given
        if sizes not in seen and _suits(dims, sizes) and _is_small(graph, sizes):
            seen.append(sizes)
            yield dict(sizes)
    if not seen:
        yield {**dict.fromkeys(free, 1), **given}


def _suits(dims: Iterable[Dim], sizes: Mapping[str, int]) -> bool:
    try:
        return all(evaluate(dim, sizes) > 0 for dim in dims)
    except (ArithmeticError, ValueError):  # a size that no tensor can have
        return False


def _flattened(graph: Graph) -> dict[str, int]:
    """Return the least sizes at which last dims of a value fill the last one of a constant shape in a Reshape of it.

    A model that flattens an image for a product with weights may run with other sizes, too, but with few."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        target = graph.constants.get(node.inputs[1]) if node.op == "Reshape" else None
        shape = graph.type(node.inputs[0]).shape if target is not None else None
        if target is None or shape is None or not target.array.size:
            continue
        for count in range(1, len(shape) + 1):
            solved = solution(product(shape[-count:]), int(target.array.reshape(-1)[-1]))
            if solved is not None and solved[1] > 0:
                name, size = solved
                found[name] = min(size, found.get(name, size))
    return found


def _is_small(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether inputs of these sizes fit into memory."""
    shapes = [graph.type(name).shape or () for name in graph.inputs]
    return sum(math.prod(int(evaluate(d, sizes)) for d in shape) for shape in shapes) <= _LARGEST


def _choices(graph: Graph, free: Mapping[str, bool]) -> Iterator[dict[str, int]]:
    choices = [(1, 3, 2), (2, 6, 0), (2, 8, 8), (2, 32, 32), (1, 64, 64), (1, 224, 0), (1, 1, 0)]
    if any((graph.type(v).rank or 0) >= 4 for v in graph.inputs):
        choices = [(1, 32, 32), (2, 64, 0), *choices[4:], *choices[:3]]
    elsewhere = [name for name, first in free.items() if not first]
    for batch, start, step in choices:
        yield dict.fromkeys(free, batch) | {name: start + i * step for i, name in enumerate(elsewhere)}
    # some symbols are a batch in another position, the others the length of a signal
    for length, batch in itertools.product(_LENGTHS, (2, 1)):
        for mask in range(1, 1 << min(len(elsewhere), 3)):
            yield dict.fromkeys(free, batch) | {name: length for i, name in enumerate(elsewhere) if mask >> i & 1}
    # some first dims are no batch: an image or a sequence without one
    for length in (32, *_LENGTHS):
        for other in (length, 1):
            yield {name: length if first else other for name, first in free.items()}


def make_inputs(
    graph: Graph, shapes: Mapping[str, int] | None = None, seed: int = 0, *, long: bool = False
) -> dict[str, Array]:
    """Return arrays for the inputs of a graph without a default.

    Sizes of symbolic dims that are not in `shapes` come from `assignments`. If `long`, integers of unknown
    meaning may be up to the largest of these sizes, since they may be lengths.

    Raises `UserError` for an input whose type is unknown or not a tensor."""
    sizes = next(assignments(graph, shapes))
    most = max(_SMALL, *sizes.values()) if long and sizes else _SMALL
    return {name: _draw(graph, name, sizes, seed, most) for name in graph.inputs if name not in graph.defaults}


def _draw(graph: Graph, name: str, sizes: Mapping[str, int], seed: int, most: int) -> Array:
    type_ = graph.types.get(name)
    if not isinstance(type_, TensorType) or type_.dtype is None or type_.shape is None:
        raise UserError(f"cannot generate a value for input {name!r}: its type is not a tensor of known rank")
    shape = tuple(int(evaluate(dim, dict(sizes))) for dim in type_.shape)
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    dtype = type_.dtype
    if dtype is DType.STRING:
        return np.array(random.choice(["a", "b", "some words"], shape), dtype=object).reshape(shape)
    if dtype is DType.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        if dtype.bits <= 8:
            half, bound = 1 << (dtype.bits - 1), _bound(graph, name)
            low, high = (0, 2 * half) if dtype.value[0] == "u" else (-half, half)
            low, high = (low, high) if bound is None else (0, min(high, bound))
        elif _is_extent(graph, name):
            low, high = 1, 3
        elif choices := _compared(graph, name):  # the branch that a model takes may depend on it
            branches = [*choices, max(choices) + 1]  # a scalar takes every branch in turn as the seed grows
            value = random.choice(branches, shape) if shape else branches[seed % len(branches)]
            return np.asarray(value).astype(dtype.numpy)
        else:
            low, high = 0, _bound(graph, name) or (2 if _is_mask(graph, name) else most)
        return np.asarray(random.integers(low, max(high, low + 1), shape)).astype(dtype.numpy)
    values = random.standard_normal(shape)
    if dtype in (DType.C64, DType.C128):
        return np.asarray(values + 1j * random.standard_normal(shape)).astype(dtype.numpy)
    return np.asarray(values).astype(dtype.numpy)


def _reached(graph: Graph, name: str) -> Iterator[tuple[str, int, int]]:
    """Enumerate the uses of an unchanged value: the operator, and the numbers of the operand and the node."""
    values = {name}
    for number, node in enumerate(graph.nodes):
        for index, value in enumerate(node.inputs):
            if value in values:
                yield node.op, index, number
                if node.op in _STEPS and index == 0:
                    values.update(node.outputs)


def _compared(graph: Graph, name: str) -> list[int]:
    """Return the constants that an integer input is compared with."""
    found: dict[int, None] = {}
    for op, index, number in _reached(graph, name):
        other = graph.nodes[number].inputs[1 - index] if op == "Equal" else ""
        if other in graph.constants:
            found.update(dict.fromkeys(int(v) for v in graph.constants[other].array.reshape(-1)[:_SMALL]))
    return sorted(found)


def _bound(graph: Graph, name: str) -> int | None:
    """Return the upper bound of an input whose values index an axis; None if no such use is visible."""
    bounds: list[int] = []
    for op, index, number in _reached(graph, name):
        if op in ("Gather", "GatherElements", "ScatterElements") and index == 1:
            node = graph.nodes[number]
            data, axis = node.inputs[0], node.attrs.get("axis", 0)
            shape = graph.constants[data].type.shape if data in graph.constants else graph.type(data).shape
            if shape is not None and isinstance(axis, int) and -len(shape) <= axis < len(shape):
                bounds.append(size if isinstance(size := shape[axis], int) else 1)
    return max(min(bounds), 1) if bounds else None


def _is_extent(graph: Graph, name: str) -> bool:
    """Whether an integer input holds sizes or counts."""
    places = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1, "TopK": 1, "Range": 1, "Resize": 3}
    return any(places.get(op) == index for op, index, _ in _reached(graph, name))


def _is_mask(graph: Graph, name: str) -> bool:
    """Whether an integer input is a mask: subtracted from 1, as those of attention are, or converted to bool."""
    for op, index, number in _reached(graph, name):
        node = graph.nodes[number]
        if op == "Cast" and node.attrs.get("to") == DType.BOOL.onnx:
            return True
        one = graph.constants.get(node.inputs[0]) if op == "Sub" and index == 1 else None
        if one is not None and bool(np.all(one.array == 1)):
            return True
    return False
