"""Interfaces of operators, and the table of them that the checks consult.

The engine implements the table from the schemas of the `onnx` package; the rule language itself knows no operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Parameter:
    """One formal input or output. A `variadic` one, always the last, stands for any number of values.

    `type` is the type variable or concrete type of the schema (`T`, `tensor(int64)`). `dtypes` are the short names of
    the allowed element types, empty for what is not a tensor. `others` says whether sequences, optionals or maps are
    allowed too."""

    name: str
    optional: bool
    variadic: bool
    homogeneous: bool
    type: str
    dtypes: frozenset[str]
    others: bool


@dataclass(frozen=True, slots=True)
class Attribute:
    """One formal attribute. `kind` is the ONNX name of its type (`INT`, `FLOATS`, `GRAPH`); no `default` is None."""

    name: str
    kind: str
    default: Any
    required: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The interface of an operator. `max_inputs` and `max_outputs` are None for any number."""

    op: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, Attribute]
    min_inputs: int
    max_inputs: int | None
    min_outputs: int
    max_outputs: int | None
    since_version: int
    deprecated: bool

    def is_tensor(self, attribute: str) -> bool:
        """Return whether an attribute holds a tensor, which a pattern binds as a constant."""
        return attribute in self.attributes and self.attributes[attribute].kind == "TENSOR"


class OperatorInfo(Protocol):
    """A table of operators."""

    def schema(self, op: str) -> Signature | None:
        """Return the interface of `op` (`Conv`, `com.microsoft.Gelu`), or None if no schema describes it."""

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        """Return why an operator or attribute does not have one meaning at the versions `low` to `high` of its domain.

        The end of a sentence (`exists from opset 20 on`), empty if it does."""

    def newest(self, domain: str) -> int | None:
        """Return the newest known version of a domain; None for an unknown domain."""

    def version(self) -> str:
        """Return a word that changes whenever the table may have changed on this machine; part of cache keys."""

    def release(self) -> str:
        """Return a word that is the same wherever the table is."""

    def names(self) -> Iterable[str]:
        """Return all operator names, for spelling suggestions."""
