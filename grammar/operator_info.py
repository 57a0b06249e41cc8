"""What the checks ask about ONNX operators; the engine's operator table answers.

The rule language knows no operator by itself, so that it depends on nothing above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class OperatorSignature(Protocol):
    """The inputs and attributes of one operator.

    `inputs` are (name, optional, variadic); only the last may be variadic, and then `max_inputs` means nothing."""

    @property
    def inputs(self) -> Sequence[tuple[str, bool, bool]]:
        """The formal inputs in order."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes by name."""

    @property
    def min_inputs(self) -> int:
        """How many inputs it needs."""

    @property
    def max_inputs(self) -> int:
        """How many inputs it takes."""


class OperatorInfo(Protocol):
    """A table of operators."""

    def signature(self, op: str) -> OperatorSignature | None:
        """The signature of `op` (`Conv`, `com.microsoft.Gelu`), or None when there is no such operator."""

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        """How an operator (or attribute of it) fails to be there with one meaning at the versions `low` to `high` of
        its domain, as the end of a sentence (“exists from opset 20 on”); empty if it does not fail."""

    def newest(self, domain: str) -> int | None:
        """The newest version of a domain that is known; None for one of which nothing is."""

    def is_tensor(self, op: str, attribute: str) -> bool:
        """Whether an attribute of `op` holds a tensor, which a pattern binds as a constant."""

    def names(self) -> Iterable[str]:
        """All operator names, for “did you mean”."""
