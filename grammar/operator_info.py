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


class FormalParameter(Protocol):
    """One formal input or output of an operator.

    `type` is a type variable of the schema (`T`) or a concrete type (`tensor(int64)`); `dtypes` are the element types
    that are allowed; `others` says whether sequences, optionals or maps are allowed too."""

    @property
    def variadic(self) -> bool:
        """Whether it stands for any number of values; only the last may."""

    @property
    def homogeneous(self) -> bool:
        """Whether the values of a variadic one have one type."""

    @property
    def type(self) -> str:
        """The type as the schema writes it."""

    @property
    def dtypes(self) -> frozenset[str]:
        """The element types that are allowed."""

    @property
    def others(self) -> bool:
        """Whether it may be no tensor."""


class FormalAttribute(Protocol):
    """One formal attribute. `kind` is the ONNX name of its type (`INT`, `FLOATS`, …)."""

    @property
    def kind(self) -> str:
        """The kind of its values."""

    @property
    def default(self) -> Any:
        """Its default, None if there is none."""

    @property
    def required(self) -> bool:
        """Whether it must be there."""


class OperatorSchema(Protocol):
    """The types of one operator of the standard."""

    @property
    def inputs(self) -> Sequence[FormalParameter]:
        """The formal inputs in order."""

    @property
    def outputs(self) -> Sequence[FormalParameter]:
        """The formal outputs in order."""

    @property
    def attributes(self) -> Mapping[str, FormalAttribute]:
        """The formal attributes by name."""


class OperatorInfo(Protocol):
    """A table of operators."""

    def schema(self, op: str) -> OperatorSchema | None:
        """The types of an operator's inputs, outputs and attributes, or None if no schema describes it."""

    def signature(self, op: str) -> OperatorSignature | None:
        """The signature of `op` (`Conv`, `com.microsoft.Gelu`), or None when there is no such operator."""

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        """How an operator (or attribute of it) fails to be there with one meaning at the versions `low` to `high` of
        its domain, as the end of a sentence (“exists from opset 20 on”); empty if it does not fail."""

    def newest(self, domain: str) -> int | None:
        """The newest version of a domain that is known; None for one of which nothing is."""

    def is_tensor(self, op: str, attribute: str) -> bool:
        """Whether an attribute of `op` holds a tensor, which a pattern binds as a constant."""

    def version(self) -> str:
        """A word that changes whenever the answers of the table may have changed, for what is kept by content."""

    def names(self) -> Iterable[str]:
        """All operator names, for “did you mean”."""
