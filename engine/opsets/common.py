"""What adapters work with: the context of a node, and small helpers to build nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..graph import AttrValue, Constant, Node, TensorType
from ..symbolic import Dim


class Context(Protocol):
    """What an adapter may ask of the graph around a node, and how it adds to it."""

    def type(self, value: str) -> TensorType:
        """What is known of a value."""

    def constant(self, value: str) -> Constant | None:
        """The contents of a value, if it is a constant."""

    def contents(self, value: str) -> tuple[Dim, ...] | None:
        """The elements of a small integer tensor, if they are followed."""

    def is_used(self, value: str) -> bool:
        """Whether anything reads the value."""

    def add_constant(self, array: np.ndarray, hint: str) -> str:
        """Adds a constant and gives its name."""

    def new_value(self, hint: str) -> str:
        """A name that no value has."""


class NotExpressible(Exception):
    """An operator that the target opset has no words for. `needs` is the least opset that has, None if none does."""

    def __init__(self, node: Node, needs: int | None) -> None:
        self.node = node
        self.needs = needs
        super().__init__(f"{node.op} needs opset {needs}" if needs else f"{node.op} cannot be written")


def with_attrs(node: Node, drop: Sequence[str] = (), **extra: AttrValue) -> Node:
    """The node with some attributes dropped and some added or replaced."""
    attrs = {k: v for k, v in node.attrs.items() if k not in drop}
    return replace(node, attrs={**attrs, **extra})


def with_inputs(node: Node, *inputs: str) -> Node:
    """The node with other inputs; absent ones at the end are cut."""
    kept = list(inputs)
    while kept and not kept[-1]:
        kept.pop()
    return replace(node, inputs=tuple(kept))


def get(node: Node, i: int) -> str:
    """Input i of the node; the empty string if absent."""
    return node.inputs[i] if i < len(node.inputs) else ""


def new_node(node: Node, op: str, inputs: Sequence[str], ctx: Context, hint: str, **attrs: AttrValue) -> Node:
    """A helper node that comes of `node`, with one new output."""
    return Node(op, tuple(inputs), (ctx.new_value(hint),), dict(attrs), "", node.rules, node.origins)


def ints(node: Node, name: str) -> tuple[int, ...] | None:
    """An attribute that is a list of integers; None if absent."""
    found = node.attrs.get(name)
    return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else None


def int64(values: Any) -> np.ndarray:
    """The integers as an array of 64 bits."""
    return np.array(values, np.int64)
