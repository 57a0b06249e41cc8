"""What the functions of the condition library may ask of the evaluator that calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .egraph import EGraph
from .graph import AttrValue, DType, TensorType
from .values import BodyRef, TensorRef, Value


class Scope(Protocol):
    """An evaluation in an e-graph; see `evaluate.Evaluator`. `proving` says that it is of a condition."""

    egraph: EGraph
    proving: bool

    def type(self, tensor: Value) -> TensorType:
        """The type of a tensor; `Unprovable` for what is none."""

    def contents(self, tensor: Value) -> np.ndarray[Any, Any]:
        """The elements of a tensor that is a known constant; `Unprovable` for any other."""

    def constant(self, value: Value, dtype: DType | None) -> int:
        """The class of a constant with these contents."""

    def inline(self, body: BodyRef, inputs: list[Value]) -> list[TensorRef]:
        """The outputs of a body with these inputs."""

    def iterate(self, body: BodyRef, count: int, carried: list[Value]) -> list[Value]:
        """The outputs of a Loop with this body after `count` runs."""

    def is_pointwise(self, body: BodyRef) -> bool:
        """Whether a body computes every element from the same elements of its inputs."""

    def node(self, op: str, attrs: Mapping[str, AttrValue], inputs: list[Value]) -> TensorRef:
        """The class of an operator over values."""
