"""Step of a node across one version of its operator's schema: the input of an adapter, and helpers to build its
result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ...ir.graph import AttrValue, Constant, Graph, Node, TensorType, trimmed
from ...ir.symbolic import Dim
from ..model_values import ModelValues

_T = TypeVar("_T")


class Unfit(Exception):
    """Nothing at the other version means what the node means, or it is not known what the node means.

    `needs` is the least opset that can express it, where that is not the newer of the two versions."""

    def __init__(self, needs: int | None = None) -> None:
        self.needs = needs
        super().__init__()


def require(condition: object) -> None:
    """Raise `Unfit` unless the condition holds."""
    if not condition:
        raise Unfit


def needed(found: _T | None) -> _T:
    """Return what was found; raise `Unfit` if it is None."""
    if found is None:
        raise Unfit
    return found


def int64(values: Any) -> np.ndarray:
    """Return the integers as an array of 64 bits."""
    return np.array(values, np.int64)


@dataclass(frozen=True, slots=True)
class Step:
    """A node, and the values of its graph. Queries for unknown facts raise `Unfit`."""

    node: Node
    values: ModelValues
    graph: Graph

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the node."""
        return self.node.attrs

    @property
    def y(self) -> str:
        """Name of the first output."""
        return self.node.outputs[0]

    def input(self, i: int) -> str:
        """Return the name of an input; the empty string if absent."""
        return self.node.inputs[i] if i < len(self.node.inputs) else ""

    def type(self, i: int = 0) -> TensorType:
        """Return what is known of an input."""
        return self.values.type(self.input(i))

    def shape(self, i: int = 0) -> tuple[Dim, ...]:
        """Return the shape of an input."""
        return needed(self.type(i).shape)

    def rank(self, i: int = 0) -> int:
        """Return the number of dims of an input."""
        return len(self.shape(i))

    def dtype(self) -> np.dtype[np.generic]:
        """Return the NumPy dtype of the first input."""
        return needed(self.type().dtype).numpy

    def constant(self, i: int) -> np.ndarray | None:
        """Return the elements of an input that is a constant, or small and known; else None."""
        name = self.input(i)
        found = self.values.constants.get(name)
        return found.array if found is not None else self.values.small(name) if name else None

    def array(self, i: int) -> np.ndarray:
        """Return the elements of an input that must be known."""
        return needed(self.constant(i))

    def ints(self, i: int) -> tuple[int, ...]:
        """Return the elements of an input of integers that must be known."""
        return tuple(int(v) for v in self.array(i).reshape(-1))

    def listed(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers; None if absent."""
        found = self.attrs.get(name)
        return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else None

    def add(self, array: np.ndarray, hint: str) -> str:
        """Add a constant to the graph and return its name."""
        name = self.values.new_value(hint)
        self.values.add_constant(self.graph, name, Constant(np.ascontiguousarray(array).reshape(np.shape(array))))
        return name

    def helper(self, op: str, inputs: Sequence[str], hint: str, **attrs: AttrValue) -> Node:
        """Return another node of the same origin, with one new output."""
        return Node(op, tuple(inputs), (self.values.new_value(hint),), attrs, "", self.node.rules, self.node.origins)

    def changed(
        self, *, op: str = "", inputs: Sequence[str] | None = None, drop: Sequence[str] = (), **attrs: Any
    ) -> Node:
        """Return the node as another operator, with other inputs (absent ones at the end are cut), without some
        attributes, and with others added or replaced."""
        present = self.node.inputs if inputs is None else trimmed(inputs)
        remaining = {name: value for name, value in self.node.attrs.items() if name not in drop}
        return replace(self.node, op=op or self.node.op, inputs=present, attrs={**remaining, **attrs})

    def as_inputs(self, arrays: Mapping[str, np.ndarray], drop: Sequence[str] = ()) -> Node:
        """Return the node with constants as its inputs after the first, without the attributes of these names."""
        names = [self.add(array, f"{self.y}_{name}") for name, array in arrays.items()]
        return self.changed(inputs=(self.input(0), *names), drop=(*arrays, *drop))
