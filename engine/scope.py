"""What the functions of the condition library may ask of the evaluator that calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .egraph import EGraph
from .graph import AttrValue, DType, Graph, TensorType
from .values import TensorRef, Value


class Scope(Protocol):
    """An evaluation in an e-graph; see `evaluate.Evaluator`.

    `proving` says that it is of a condition; `made_by` and `origins` are noted of the nodes that are made, `kinds` are
    those of operators, `bodies` those made so far."""

    egraph: EGraph
    proving: bool
    made_by: str | None
    origins: tuple[str, ...]
    kinds: Mapping[str, str]
    bodies: dict[str, Graph]

    def type(self, tensor: Value) -> TensorType:
        """The type of a tensor; `Unprovable` for what is none."""

    def contents(self, tensor: Value) -> np.ndarray[Any, Any]:
        """The elements of a tensor that is a known constant; `Unprovable` for any other."""

    def constant(self, value: Value, dtype: DType | None) -> int:
        """The class of a constant with these contents."""

    def node(self, op: str, attrs: Mapping[str, AttrValue], inputs: list[Value]) -> TensorRef:
        """The class of an operator over values."""
