"""The bodies of If, Loop and Scan."""

from __future__ import annotations

from typing import Any

from ..scope import Scope
from ..values import BodyRef, TensorRef, Unprovable, Value
from .registry import function


def _body(value: Value) -> BodyRef:
    if not isinstance(value, BodyRef):
        raise Unprovable("no body")
    return value


def _flat(values: tuple[Any, ...]) -> list[Value]:
    return [item for v in values for item in (v if isinstance(v, list) else [v])]


@function
def inline(ev: Scope, b: Value, *inputs: Value) -> list[TensorRef]:
    """The outputs of a body with these inputs."""
    return ev.inline(_body(b), _flat(inputs))


@function
def iterate(ev: Scope, b: Value, count: int, *carried: Value) -> list[Value]:
    """The outputs of a Loop with this body after so many runs."""
    return ev.iterate(_body(b), count, _flat(carried))


@function
def node_count(ev: Scope, b: Value) -> int:
    """How many nodes a body has, those of the bodies in it included."""
    return _count(_body(b).graph)


def _count(graph: Any) -> int:
    return sum(1 + sum(_count(inner) for _, inner in node.subgraphs()) for node in graph.nodes)


@function
def pointwise(ev: Scope, b: Value) -> bool:
    """Whether a body computes every element from the same elements of its inputs."""
    return ev.is_pointwise(_body(b))
