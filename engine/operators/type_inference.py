"""Forward type inference over graphs: from what is known of the inputs to what is known of every value.

`inference.infer` knows operators; this module applies it to the nodes of a graph in order. The importer, the exporter
and the backend's planner share it; the e-graph shares `complete_type`. They differ only in which of two descriptions of
a dim they prefer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..ir.graph import Constant, Node, OtherType, TensorType, ValueType
from ..ir.symbolic import Dim, symbol
from .inference import IllTyped, Inference, SymbolicValue, infer


@dataclass(slots=True)
class TypeEnvironment:
    """Types, constants and contents of small integer tensors, by value.

    `fresh` returns a new symbol for a dim of which nothing is known."""

    fresh: Callable[[], Dim]
    types: dict[str, ValueType] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    contents: dict[str, SymbolicValue] = field(default_factory=dict)

    def type(self, value: str) -> TensorType:
        """Return the tensor type of a value; all unknown if nothing is known or the value is not a tensor."""
        found = self.types.get(value)
        return found if isinstance(found, TensorType) else TensorType()

    def infer(self, node: Node, *, requirements: bool = False) -> Inference:
        """Infer what is known of a node's outputs; all unknown, with the `error`, for a node that always fails.

        Such a node may stand in a branch that is never taken, so this is not an error of the graph. With `requirements`
        the result has what sizes have to meet that are not known yet."""
        try:
            return infer(
                node.op,
                node.attrs,
                [self.types.get(name, TensorType()) if name else None for name in node.inputs],
                [self.contents.get(name) for name in node.inputs],
                len(node.outputs),
                constants=[self.constants.get(name) for name in node.inputs],
                fresh=self.fresh,
                requirements=requirements,
            )
        except IllTyped as error:
            return Inference((TensorType(),) * len(node.outputs), (None,) * len(node.outputs), error)

    def record(self, node: Node, found: Inference, complete: Callable[[str, ValueType], ValueType]) -> None:
        """Record what was inferred of a node's outputs, each type completed by what else is known of the value."""
        for name, kind, contents in zip(node.outputs, found.types, found.values, strict=False):
            if name:
                self.types[name] = complete(name, kind)
                if contents is not None:
                    self.contents[name] = contents


class FreshSymbols:
    """Source of symbols `prefix0`, `prefix1`, … that are not among the names `taken`, to which it adds them."""

    def __init__(self, prefix: str, taken: set[str]) -> None:
        self._prefix = prefix
        self._taken = taken
        self.made: set[str] = set()

    def __call__(self) -> Dim:
        """Return a symbol of which nothing is known."""
        number = len(self.made)
        while (name := f"{self._prefix}{number}") in self._taken:
            number += 1
        self._taken.add(name)
        self.made.add(name)
        return symbol(name)


def complete_type(found: ValueType, other: ValueType, prefer_other: Callable[[Dim, Dim], bool]) -> ValueType:
    """Complete a type by another description of the same value.

    Where both have a dim, `prefer_other(dim, other_dim)` decides. Shapes of different ranks are not mixed."""
    if isinstance(found, OtherType) and isinstance(other, OtherType):
        return other if found == other.plain else found
    if not isinstance(found, TensorType) or not isinstance(other, TensorType):
        return other if found == TensorType() else found
    shape = found.shape
    if shape is None:
        shape = other.shape
    elif other.shape is not None and len(other.shape) == len(shape):
        shape = tuple(b if prefer_other(a, b) else a for a, b in zip(shape, other.shape, strict=True))
    return TensorType(found.dtype or other.dtype, shape)
