"""Values made where they are wanted: operands of a Concat along the outermost axis that steps write to their places.

An operand that can't be made there (an input, a constant, a part of something else, an output of its own) is copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..engine import symbolic
from ..engine.graph import TensorType, ValueType
from .kernel_graph import Item, Join, Step, View, is_host, writes
from .kernels.movement import copy_values
from .storage import nbytes


def joined(items: Sequence[Item], outputs: Sequence[str], types: dict[str, ValueType]) -> list[Item]:
    """The items with steps that copy those operands of joins that cannot be made in their places; `types` gets the
    types of the copies. Joins of columns have been settled before (see `pitch`)."""
    if not any(isinstance(item, Join) for item in items):
        return list(items)
    makers = _Makers(items, outputs, types)
    found: list[Item] = []
    for number, item in enumerate(items):
        found += _with_copies(item, number, makers, types) if isinstance(item, Join) else [item]
    return found


def _with_copies(item: Join, number: int, makers: _Makers, types: dict[str, ValueType]) -> list[Item]:
    """A join, after the copies that it needs."""
    steps: list[Item] = []
    parts = []
    for place, value in enumerate(item.parts):
        part = makers.placeable(value, number)
        if part is None:
            kind = types[value]
            assert isinstance(kind, TensorType)
            part = f"{item.output} ({place})"
            types[part] = kind
            steps.append(replace(copy_values(value, part, kind), nodes=item.nodes))
        parts.append(part)
    return [*steps, replace(item, parts=tuple(parts))]


class _Makers:
    """Who makes each value, and which values have their places already."""

    def __init__(self, items: Sequence[Item], outputs: Sequence[str], types: Mapping[str, ValueType]) -> None:
        self.items, self.types = items, types
        self.source = {i.output: i for i in items if isinstance(i, View)}
        self.makers: dict[str, list[int]] = {}
        for number, item in enumerate(items):
            for value in writes(item):
                self.makers.setdefault(value, []).append(number)
        self.hosts = [n for n, item in enumerate(items) if is_host(item)]
        self.taken = {self._root(v) for v in outputs}
        self.uses = Counter(self._root(v) for i in items if isinstance(i, Join) for v in i.parts)

    def _root(self, value: str) -> str:
        while value in self.source:
            value = self.source[value].input
        return value

    def placeable(self, value: str, number: int) -> str | None:
        """The value to be made in its place for this operand of the join with that number; None if it must be copied.

        It is the operand, or what that is a view of as a whole."""
        root = self._root(value)
        kind, own = self.types.get(value), self.types.get(root)
        makers = self.makers.get(root, [])
        if not makers or root in self.taken or self.uses[root] > 1:
            return None
        if not all(isinstance(self.items[m], Step | Join) for m in makers):
            return None
        if any(makers[0] < host < number for host in self.hosts):
            return None  # its memory may belong to another stage
        if not isinstance(kind, TensorType) or not isinstance(own, TensorType) or own.shape is None:
            return None
        return root if own.dtype is not None and symbolic.same(nbytes(kind), nbytes(own)) else None
