"""Reasons of merges: why two classes of an e-graph are one.

They are recorded with each union, so that a trail can be made of them afterwards (proofs from an e-graph: Nieuwenhuis
and Oliveras, "Proof-producing congruence closure", RTA 2005). A reason is made once for each union that changed
something, so recording takes no time that could be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.values import Value


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule matched at `roots`, where its variables had the values `env`, and built `values`, one for each root.

    `backward` is True for the right-to-left direction of a rule that holds both ways."""

    rule: str
    backward: bool
    roots: tuple[int, ...]
    values: tuple[int, ...]
    env: Mapping[str, Value] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Defined:
    """The outputs of a node of a declared operator equal the definition of the operator."""

    node: int


@dataclass(frozen=True, slots=True)
class Congruence:
    """Two nodes have the same operator and attributes, and equal operands; or, in an e-graph with an egglog side, two
    classes that egglog found to be one for such a reason."""

    first: int
    second: int


Reason = Applied | Defined | Congruence
