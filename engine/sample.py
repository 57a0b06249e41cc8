"""Inputs for a model, made up: seeded arrays of the declared types, sizes for symbolic dims.

Values are such that a model can run on them: indices lie within what they index, where that can be seen, other integers
are small and not negative, floats are drawn from the normal distribution.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .graph import DType, Graph, TensorType
from .symbolic import Dim, evaluate, symbols

Array = NDArray[np.generic]

_STEPS = frozenset(("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice"))
"""Operators that leave the values of an index alone."""
_SMALL = 8
_LENGTHS = (576, 512, 48, 1024, 320, 256, 16, 4096, 16000)


def free_symbols(graph: Graph) -> dict[str, bool]:
    """The symbols in the shapes of a graph's inputs, in order; True for one that only ever is a first dim (a batch)."""
    found: dict[str, bool] = {}
    for name in graph.inputs:
        for axis, dim in enumerate(graph.type(name).shape or ()):
            for symbol in sorted(symbols(dim)):
                found[symbol] = found.get(symbol, True) and axis == 0
    return found


def assignments(graph: Graph, shapes: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
    """Sizes for the symbolic dims, by name: several choices, the likely and small ones first.

    Which sizes a model can run on is not known beforehand (images want a multiple of 32, a signal whole frames, some
    dims must be equal), so whoever runs it takes the first ones that work. Sizes at which some tensor would be empty
    are left out: there, what operators do is not defined alike everywhere. `shapes` are sizes that are given."""
    given = dict(shapes or {})
    free = {name: first for name, first in free_symbols(graph).items() if name not in given}
    if not free:
        yield given
        return
    shown = [type_.shape or () for type_ in graph.types.values() if isinstance(type_, TensorType)]
    dims = [d for d in dict.fromkeys(d for s in shown for d in s) if symbols(d) and symbols(d) <= {*free, *given}]
    seen: list[dict[str, int]] = []
    for sizes in _choices(graph, free):
        sizes |= given
        if sizes not in seen and _suits(dims, sizes):
            seen.append(dict(sizes))
            yield sizes
    if not seen:
        yield {**dict.fromkeys(free, 1), **given}


def _suits(dims: Iterable[Dim], sizes: Mapping[str, int]) -> bool:
    try:
        return all(evaluate(dim, sizes) > 0 for dim in dims)
    except (ArithmeticError, ValueError):  # a size that no tensor can have
        return False


def _choices(graph: Graph, free: Mapping[str, bool]) -> Iterator[dict[str, int]]:
    choices = [(1, 3, 2), (2, 6, 0), (2, 8, 8), (2, 32, 32), (1, 64, 64), (1, 224, 0), (1, 1, 0)]
    if any((graph.type(v).rank or 0) >= 4 for v in graph.inputs):
        choices = [(1, 32, 32), (2, 64, 0), *choices[4:], *choices[:3]]
    for batch, start, step in choices:
        others = 0
        sizes = {}
        for name, first in free.items():
            sizes[name] = batch if first else start + others * step
            others += not first
        yield sizes
    # some are the batch in another place, the rest is the length of a signal
    elsewhere = [name for name, first in free.items() if not first]
    for length in _LENGTHS:
        for batch in (2, 1):
            for mask in range(1, 1 << min(len(elsewhere), 3)):
                sizes = dict.fromkeys(free, batch)
                sizes |= {name: length for i, name in enumerate(elsewhere) if mask >> i & 1}
                yield sizes


def make_inputs(graph: Graph, shapes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Array]:
    """Arrays for the inputs of a graph, but those that have a default. `shapes` gives sizes to symbolic dims; the
    rest are taken from `assignments`.

    Raises `UserError` for an input that cannot be made up: one of unknown type, or that is no tensor."""
    sizes = next(assignments(graph, shapes))
    return {name: _draw(graph, name, sizes, seed) for name in graph.inputs if name not in graph.defaults}


def _draw(graph: Graph, name: str, sizes: Mapping[str, int], seed: int) -> Array:
    type_ = graph.types.get(name)
    if not isinstance(type_, TensorType) or type_.dtype is None or type_.shape is None:
        raise UserError(f"no value can be made up for the input {name!r}: its type is not a tensor of known rank")
    shape = tuple(int(evaluate(dim, dict(sizes))) for dim in type_.shape)
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    dtype = type_.dtype
    if dtype is DType.STRING:
        return np.array(random.choice(["a", "b", "some words"], shape), dtype=object).reshape(shape)
    if dtype is DType.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        bits = dtype.bits
        if bits <= 8:
            low, high = (0, 1 << bits) if dtype.value[0] == "u" else (-(1 << (bits - 1)), 1 << (bits - 1))
            low, high = (low, high) if _bound(graph, name) is None else (0, min(high, _bound(graph, name) or 1))
        elif _is_extent(graph, name):
            low, high = 1, 3
        elif choices := _compared(graph, name):  # which way a model takes may hang on it
            ways = [*choices, max(choices) + 1]  # an only element takes every way in turn, as the seed goes on
            return np.asarray(random.choice(ways, shape) if shape else ways[seed % len(ways)]).astype(dtype.numpy)
        else:
            low, high = 0, _bound(graph, name) or _SMALL
        return np.asarray(random.integers(low, max(high, low + 1), shape)).astype(dtype.numpy)
    values = random.standard_normal(shape)
    if dtype in (DType.C64, DType.C128):
        return np.asarray(values + 1j * random.standard_normal(shape)).astype(dtype.numpy)
    return np.asarray(values).astype(dtype.numpy)


def _reached(graph: Graph, name: str) -> Iterator[tuple[str, int, int]]:
    """The places where a value, unchanged, is an operand: the operator, the operand's and the node's number."""
    values = {name}
    for number, node in enumerate(graph.nodes):
        for index, value in enumerate(node.inputs):
            if value in values:
                yield node.op, index, number
                if node.op in _STEPS and index == 0:
                    values.update(node.outputs)


def _compared(graph: Graph, name: str) -> list[int]:
    """The constants that an integer input is compared with."""
    found: dict[int, None] = {}
    for op, index, number in _reached(graph, name):
        other = graph.nodes[number].inputs[1 - index] if op == "Equal" else ""
        if other in graph.constants:
            found.update(dict.fromkeys(int(v) for v in graph.constants[other].array.reshape(-1)[:_SMALL]))
    return sorted(found)


def _bound(graph: Graph, name: str) -> int | None:
    """What the values of an input must stay below because they index something, None if nothing is seen."""
    bounds: list[int] = []
    for op, index, number in _reached(graph, name):
        if op not in ("Gather", "GatherElements", "OneHot", "ScatterElements") or index != (0 if op == "OneHot" else 1):
            continue
        node = graph.nodes[number]
        if op == "OneHot":
            continue
        data = node.inputs[0]
        shape = graph.constants[data].type.shape if data in graph.constants else graph.type(data).shape
        axis = node.attrs.get("axis", 0)
        if shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            continue
        size = shape[axis]
        bounds.append(size if isinstance(size, int) else 1)
    return max(min(bounds), 1) if bounds else None


def _is_extent(graph: Graph, name: str) -> bool:
    """Whether an integer input says sizes or counts."""
    places = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1, "TopK": 1, "Range": 1, "Resize": 3}
    return any(places.get(op) == index for op, index, _ in _reached(graph, name))
