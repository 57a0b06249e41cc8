"""Small graphs on which rules are tried: read from the e-graph of a test, inserted into the e-graph of the search.

A graph is a flat list of items, where later ones read earlier ones: inputs with a type, constants with contents, and
operators with all attributes. It is independent of the rule it was made for, so that the search may change it freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import Attrs, Constant, TensorType, content_text
from rewrite.engine.ir.names import ABSENT, OWN_DOMAIN
from rewrite.engine.ir.values import TensorRef, Unprovable
from rewrite.engine.operators.inference import IllTyped
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.engine.rewriting.build_nodes import build_node
from rewrite.engine.rewriting.evaluate import Evaluator
from rewrite.soundness.sampling.validity import invalid

Array = NDArray[Any]
NONE = -1
"""Number that stands for an absent input."""


@dataclass(frozen=True, slots=True)
class InputItem:
    """Graph input."""

    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class ConstItem:
    """Constant."""

    array: Array


@dataclass(frozen=True, slots=True)
class NodeItem:
    """Operator over items, by number."""

    op: str
    attrs: Attrs
    children: tuple[int, ...]
    outputs: int = 1


Item = InputItem | ConstItem | NodeItem


@dataclass(frozen=True, slots=True)
class SmallGraph:
    """Items, and which of them are the results."""

    items: tuple[Item, ...]
    roots: tuple[int, ...]

    def with_item(self, index: int, item: Item) -> SmallGraph:
        """Return the graph with one item replaced."""
        return replace(self, items=(*self.items[:index], item, *self.items[index + 1 :]))

    def key(self) -> str:
        """Return a text that is equal for equal graphs only."""
        return f"{[_key(item) for item in self.items]}{self.roots}"

    def is_extreme(self, finite: bool) -> bool:
        """Whether a constant has elements of extreme magnitude, or, with `finite`, elements that are not finite."""
        for item in self.items:
            if isinstance(item, ConstItem) and item.array.dtype.kind == "f":
                sizes = np.abs(item.array.astype(np.float64))
                far = np.isfinite(sizes) & (sizes > 0) & ((sizes > 1e6) | (sizes < 1e-9))
                if far.any() or (finite and not np.isfinite(sizes).all()):
                    return True
        return False

    def describe(self) -> str:
        """Return the graph in one line: terms first, then their leaves."""
        leaves: list[str] = []
        names: dict[int, str] = {}

        def term(index: int) -> str:
            if index == NONE:
                return "none"
            item = self.items[index]
            if isinstance(item, NodeItem):
                attrs = [f"{k}: {_plain(v)}" for k, v in item.attrs.items() if normalize_attrs(item.op, {}).get(k) != v]
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
        return (item.op, content_text(attrs), item.children, item.outputs)
    return str(item.type)


def read(egraph: EGraph, roots: Sequence[int]) -> SmallGraph:
    """Return the graph below some classes; a declared operator stands for itself, not for its definition."""
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
    """Insert a graph, its inputs named after `prefix`; return the classes of its roots, None if it is ill-typed."""
    at: dict[int, int] = {NONE: ABSENT}
    before = len(egraph.nodes)
    try:
        for i, item in enumerate(graph.items):
            at[i] = _insert(item, at, egraph, evaluator, f"{prefix}.{i}")
        own = range(before, len(egraph.nodes))  # including nodes from definitions of declared operators
        if invalid(egraph, dict.fromkeys((*own, *at.values()))):
            return None
    except (IllTyped, Unprovable, ArithmeticError, LookupError, TypeError, ValueError):
        return None  # ill-typed, whether inference reports it or fails
    return [at[r] for r in graph.roots]


def _insert(item: Item, at: dict[int, int], egraph: EGraph, evaluator: Evaluator, name: str) -> int:
    if isinstance(item, InputItem):
        return egraph.add_input(name, item.type)
    if isinstance(item, ConstItem):
        return egraph.add_constant(Constant(item.array))
    children = [at[c] for c in item.children]
    if item.op.startswith(f"{OWN_DOMAIN}."):
        values: list[Any] = [None if c == ABSENT else TensorRef(c) for c in children]
        return build_node(evaluator, item.op.removeprefix(f"{OWN_DOMAIN}."), item.attrs, values).handle
    if item.op == "Proj":
        index = item.attrs["index"]
        if children[0] == ABSENT or not isinstance(index, int) or index >= len(egraph.types(children[0])):
            raise IllTyped("no such output")
    return egraph.add(item.op, item.attrs, children, item.outputs)
