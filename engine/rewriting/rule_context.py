"""Rule context: what evaluating a rule's expressions may read besides the bindings of its match.

A context never changes: saturation derives one for each rule, and from that one for each match. The functions of the
condition library and of matching depend on this class only, not on the evaluator that implements it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from ...grammar.syntax import ast
from ..egraph.egraph import EGraph
from ..ir.graph import DType, Graph, TensorType
from ..ir.values import TensorRef, Unprovable, Value

Bindings = dict[str, Value]
"""Values of a rule's variables at one match."""
_T = TypeVar("_T")


def require(condition: object, otherwise: str) -> None:
    """Raise `Unprovable` unless a condition holds. Where `otherwise` takes long to format, a plain `if` is better."""
    if not condition:
        raise Unprovable(otherwise)


def known(fact: _T | None, otherwise: str) -> _T:
    """Return a fact; raise `Unprovable` with the message where it is None."""
    if fact is None:
        raise Unprovable(otherwise)
    return fact


@dataclass(slots=True, eq=False)  # not frozen: making one would take six times as long, and every match needs some
class RuleContext(ABC):
    """E-graph, declared operators and rule on whose behalf expressions are evaluated.

    `made_by` and `origins` are recorded with every node that evaluation adds: the rule, and the original nodes that
    the match replaces. `lets` and `indices` are those of the rule. `proving` is True inside a condition, where a
    constant stands for its contents. `assumed` is the element type of untyped numbers in tests. `bodies` interns the
    subgraphs that rules build, so that equal ones are identical."""

    egraph: EGraph
    declared: Mapping[str, ast.Op] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    made_by: str | None = None
    origins: tuple[str, ...] = ()
    lets: Mapping[str, ast.Expr] = field(default_factory=dict)
    indices: Sequence[str] = ()
    proving: bool = False
    assumed: DType | None = None
    bodies: dict[str, Graph] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.egraph!r}{f', for {self.made_by}' if self.made_by else ''}>"

    def for_rule(self, rule: ast.Rule, name: str, indices: Sequence[str]) -> Self:
        """Derive the context of a rule, whose nodes carry its name."""
        return replace(self, made_by=name, lets={b.target.name: b.value for b in rule.let}, indices=indices)

    def for_match(self, origins: tuple[str, ...]) -> Self:
        """Derive the context of one match of the rule, which replaces these original nodes."""
        return self._with(origins, self.proving)

    def in_condition(self) -> Self:
        """Derive the context in which the name of a constant stands for its contents."""
        return self if self.proving else self._with(self.origins, True)

    def building(self) -> Self:
        """Derive the context in which expressions build e-nodes."""
        return self._with(self.origins, False) if self.proving else self

    def _with(self, origins: tuple[str, ...], proving: bool) -> Self:
        """Return a copy; this runs for every match, and `replace` takes several times as long."""
        return type(self)(
            self.egraph, self.declared, self.kinds, self.made_by, origins, self.lets, self.indices, proving,
            self.assumed, self.bodies,
        )  # fmt: skip

    def outside_rule(self) -> Self:
        """Derive the context in which the rule's `let` names are unknown: that of definitions."""
        return replace(self, lets={}, proving=False) if self.lets or self.proving else self

    @abstractmethod
    def evaluate(self, expr: ast.Expr, env: Bindings) -> Value:
        """Evaluate an expression; outside conditions, arithmetic with tensors builds e-nodes."""

    def type(self, tensor: Value) -> TensorType:
        """Return the type of a tensor; raise `Unprovable` for any other value."""
        if isinstance(tensor, TensorRef):
            return self.egraph.type(tensor.handle)
        raise Unprovable(f"{tensor!r} is not a tensor")

    def contents(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the elements of a known constant, array or number; raise `Unprovable` for any other value."""
        if not isinstance(value, TensorRef):
            return np.asarray(value)
        info = self.egraph.constant(value.handle)
        return known(info.contents() if info is not None else None, "its contents are not known")
