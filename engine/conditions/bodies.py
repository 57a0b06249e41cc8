"""The bodies of If, Loop and Scan."""

from __future__ import annotations

from typing import Any

from .. import carried, inlining
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
    return inlining.inline(ev, _body(b), _flat(inputs))


@function
def iterate(ev: Scope, b: Value, count: int, *values: Value) -> list[Value]:
    """The outputs of a Loop with this body after so many runs."""
    return inlining.iterate(ev, _body(b), count, _flat(values))


@function
def node_count(ev: Scope, b: Value) -> int:
    """How many nodes a body has, those of the bodies in it included."""
    return _count(_body(b).graph)


def _count(graph: Any) -> int:
    return sum(1 + sum(_count(inner) for _, inner in node.subgraphs()) for node in graph.nodes)


@function
def pointwise(ev: Scope, b: Value) -> bool:
    """Whether a body computes every element from the same elements of its inputs."""
    return inlining.is_pointwise(ev, _body(b))


@function
def total(ev: Scope, b: Value) -> bool:
    """Whether the elementwise operators of a body have a result whatever they are given: no division of integers."""
    return inlining.is_total(_body(b))


@function
def hoisted(ev: Scope, b: Value) -> BodyRef:
    """A body without what is the same in every run of it, which is computed where its node stands."""
    return carried.hoisted(ev, _body(b))


@function
def products(ev: Scope, b: Value, count: int, values: list[Value]) -> list[Value]:
    """The operands of a Scan with the products of their pieces and matrices made at once."""
    return carried.products(ev, _body(b), count, values)


@function
def multiplied(ev: Scope, b: Value, count: int, values: list[Value]) -> BodyRef:
    """A Scan's body that scans such products."""
    return carried.multiplied(ev, _body(b), count, values)


@function
def unchanged(ev: Scope, b: Value) -> list[int]:
    """The places of the carried values that each run of a Loop's body passes on as they came."""
    return carried.unchanged(_body(b))


@function
def captured(ev: Scope, b: Value, places: list[int], values: list[Value]) -> BodyRef:
    """A Loop's body that reads carried values which no run changes from around it."""
    return carried.captured(ev, _body(b), places, values)


@function
def unread(ev: Scope, b: Value) -> list[int]:
    """The places of a Loop's outputs that nothing reads and nothing read is computed from."""
    return carried.unread(_body(b))


@function
def without(ev: Scope, b: Value, places: list[int]) -> BodyRef:
    """A Loop's body without these outputs, and without what is carried for them."""
    return carried.without(ev, _body(b), places)


@function
def twins(ev: Scope, b: Value, values: list[Value]) -> list[int]:
    """For each carried value of a Loop the place of the first one that is always equal to it."""
    return carried.twins(ev, _body(b), values)


@function
def merged(ev: Scope, b: Value, values: list[Value]) -> BodyRef:
    """A Loop's body that carries one value for all those that are always equal."""
    return carried.merged(ev, _body(b), values)
