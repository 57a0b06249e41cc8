"""Inputs for a model, made up: seeded arrays of the declared types, sizes for symbolic dims.

Values are such that a model can run on them: indices lie within what they index, where that can be seen, other integers
are small and not negative, floats are drawn from the normal distribution.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .graph import DType, Graph, TensorType
from .symbolic import evaluate, symbols

Array = NDArray[np.generic]

_STEPS = frozenset(("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice"))
"""Operators that leave the values of an index alone."""
_SMALL = 8


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

    Which sizes a model can run on is not known beforehand (images want a multiple of 32, some dims must be equal), so
    whoever runs it takes the first ones that work. `shapes` are sizes that are given."""
    given = dict(shapes or {})
    free = {name: first for name, first in free_symbols(graph).items() if name not in given}
    if not free:
        yield given
        return
    images = any((graph.type(v).rank or 0) >= 4 for v in graph.inputs)
    choices = [(1, 3, 2), (2, 6, 0), (2, 8, 8), (2, 32, 32), (1, 64, 64), (1, 224, 0), (1, 1, 0)]
    if images:
        choices = [(1, 32, 32), (2, 64, 0), *choices[4:], *choices[:3]]
    for batch, start, step in choices:
        sizes = dict(given)
        others = 0
        for name, first in free.items():
            sizes[name] = batch if first else start + others * step
            others += not first
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
