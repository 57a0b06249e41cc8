"""What the checks ask about ONNX operators; the engine's operator table answers.

The rule language knows no operator by itself, so that it depends on nothing above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class OperatorSignature(Protocol):
    """The inputs and attributes of one operator.

    `inputs` are tuples that begin with (name, optional, variadic); `attributes` is keyed by attribute name."""

    @property
    def inputs(self) -> Sequence[tuple[Any, ...]]: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...
    @property
    def min_inputs(self) -> int: ...
    @property
    def max_inputs(self) -> int: ...


class OperatorInfo(Protocol):
    """A table of operators. `names` is what “did you mean” chooses from."""

    def signature(self, op: str) -> OperatorSignature | None:
        """The signature of `op` (`Conv`, `com.microsoft.Gelu`), or None when there is no such operator."""
        ...

    def names(self) -> Iterable[str]:
        """All known operator names."""
        ...
