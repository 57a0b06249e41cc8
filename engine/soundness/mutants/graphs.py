"""Small graphs to try a rule on: read from the e-graph of one of its tests, put into the e-graph of the search.

A graph here is a flat list of items, later ones reading earlier ones: inputs with a type, constants with contents, and
operators with all attributes filled in. It knows nothing of the rule it was made for, so that the search may change it
freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...egraph import ABSENT, EGraph
from ...evaluate import Evaluator
from ...graph import Attrs, Constant, TensorType
from ...operators import OWN_DOMAIN, normalise_attrs
from ...shapes import IllTyped
from ...values import TensorRef, Unprovable
from ..valid import invalid

Array = NDArray[Any]
NONE = -1
"""In place of an item's number: the absent input."""


@dataclass(frozen=True, slots=True)
class InputItem:
    """A graph input."""

    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class ConstItem:
    """A constant."""

    array: Array


@dataclass(frozen=True, slots=True)
class NodeItem:
    """An operator over items, by number."""

    op: str
    attrs: Attrs
    children: tuple[int, ...]
    outputs: int = 1


Item = InputItem | ConstItem | NodeItem


@dataclass(frozen=True, slots=True)
class SmallGraph:
    """Items and which of them are the results."""

    items: tuple[Item, ...]
    roots: tuple[int, ...]

    def with_item(self, index: int, item: Item) -> SmallGraph:
        """The graph with one item replaced."""
        return replace(self, items=(*self.items[:index], item, *self.items[index + 1 :]))

    def key(self) -> str:
        """A text that equal graphs share and different ones do not."""
        return f"{[_key(item) for item in self.items]}{self.roots}"

    def is_extreme(self, finite: bool) -> bool:
        """Whether a constant has elements of extreme magnitude, or (if asked for `finite`) such as are not finite."""
        for item in self.items:
            if isinstance(item, ConstItem) and item.array.dtype.kind == "f":
                sizes = np.abs(item.array.astype(np.float64))
                far = np.isfinite(sizes) & (sizes > 0) & ((sizes > 1e6) | (sizes < 1e-9))
                if far.any() or (finite and not np.isfinite(sizes).all()):
                    return True
        return False

    def describe(self) -> str:
        """The graph in one line for people: terms first, then what their leaves are."""
        leaves: list[str] = []
        names: dict[int, str] = {}

        def term(index: int) -> str:
            if index == NONE:
                return "none"
            item = self.items[index]
            if isinstance(item, NodeItem):
                attrs = [f"{k}: {_plain(v)}" for k, v in item.attrs.items() if normalise_attrs(item.op, {}).get(k) != v]
                return f"{item.op}({', '.join([*map(term, item.children), *attrs])})"
            if index not in names:
                names[index] = f"t{len(names)}"
                leaves.append(f"{names[index]}{_leaf(item)}")
            return names[index]

        terms = "; ".join(map(term, self.roots))
        return f"{terms} with {', '.join(leaves)}"


def _leaf(item: InputItem | ConstItem) -> str:
    if isinstance(item, InputItem):
        return f": {item.type}"
    return f": {Constant(item.array).type} = {item.array.tolist()}"


def _plain(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value)


def _key(item: Item) -> object:
    if isinstance(item, ConstItem):
        return (str(item.array.dtype), item.array.shape, item.array.tobytes())
    if isinstance(item, NodeItem):
        attrs = [(k, v.array.tolist() if isinstance(v, Constant) else v) for k, v in item.attrs.items()]
        return (item.op, repr(attrs), item.children, item.outputs)
    return str(item.type)


def read(egraph: EGraph, roots: Sequence[int]) -> SmallGraph:
    """The graph below some classes; of an operator of our own the operator and not its definition."""
    items: list[Item] = []
    number: dict[int, int] = {ABSENT: NONE}

    def visit(handle: int) -> int:
        at = egraph.find(handle)
        if at in number:
            return number[at]
        own = [h for h in egraph.members(at) if egraph.nodes[h].op.startswith(f"{OWN_DOMAIN}.")]
        node = egraph.nodes[own[0] if own else at]
        item: Item
        if node.op == "Input":
            item = InputItem(egraph.type(at))
        elif node.op == "Const":
            array = egraph.constants[str(node.attrs["digest"])].contents()
            if array is None:
                raise Unprovable("a constant is too large")
            item = ConstItem(array)
        else:
            children = tuple(visit(c) for c in node.children)
            item = NodeItem(node.op, dict(node.attrs), children, node.outputs)
        items.append(item)
        number[at] = len(items) - 1
        return number[at]

    found = tuple(visit(r) for r in roots)
    return SmallGraph(tuple(items), found)


def insert(graph: SmallGraph, egraph: EGraph, evaluator: Evaluator, prefix: str) -> list[int] | None:
    """The classes of a graph's roots in an e-graph, its inputs named after `prefix`; None if it is ill-typed."""
    at: dict[int, int] = {NONE: ABSENT}
    before = len(egraph.nodes)
    try:
        for i, item in enumerate(graph.items):
            at[i] = _insert(item, at, egraph, evaluator, f"{prefix}.{i}")
        own = range(before, len(egraph.nodes))  # those that the definition of an operator of our own adds, too
        if invalid(egraph, dict.fromkeys((*own, *at.values()))):
            return None
    except (IllTyped, Unprovable, ArithmeticError, LookupError, TypeError, ValueError):
        return None  # ill-typed in a way that inference says, or one that it trips over
    return [at[r] for r in graph.roots]


def _insert(item: Item, at: dict[int, int], egraph: EGraph, evaluator: Evaluator, name: str) -> int:
    if isinstance(item, InputItem):
        return egraph.add_input(name, item.type)
    if isinstance(item, ConstItem):
        return egraph.add_constant(Constant(item.array))
    children = [at[c] for c in item.children]
    if item.op.startswith(f"{OWN_DOMAIN}."):
        values: list[Any] = [None if c == ABSENT else TensorRef(c) for c in children]
        return evaluator.node(item.op.removeprefix(f"{OWN_DOMAIN}."), item.attrs, values).handle
    if item.op == "Proj":
        index = item.attrs["index"]
        if not isinstance(index, int) or index >= len(egraph.types(children[0])):
            raise IllTyped("no such output")
    return egraph.add(item.op, item.attrs, children, item.outputs)
