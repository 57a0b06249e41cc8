"""Terms of a trail as they are collected: equal ones are one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..egraph.egraph import EGraph
from ..extraction.priced_egraph import dependencies, post_order
from ..ir.names import ABSENT
from ..ir.values import BodyRef, TensorRef, Value
from .coding import Encoder, NotCoded
from .trail import Term

LEFT_OUT = object()
"""Stands for the value of a variable that a replay finds by itself."""


class TermList:
    """List of terms in which equal ones are one; `known` has the number of each node of an e-graph that is in it."""

    def __init__(self, egraph: EGraph, terms: Sequence[Term] = ()) -> None:
        self.egraph = egraph
        self.terms = list(terms)
        self.known: dict[int, int] = {}
        self._numbers: dict[Any, int] = {}
        self._code = Encoder()
        for number, term in enumerate(self.terms):
            self._numbers.setdefault(self._key(term), number)

    def _key(self, term: Term) -> Any:
        attrs = tuple((name, repr(self._code.attribute(value))) for name, value in sorted(term.attrs.items()))
        return term.op, attrs, term.inputs, term.outputs, term.origin

    def _add(self, term: Term) -> int:
        key = self._key(term)
        if key not in self._numbers:
            self._numbers[key] = len(self.terms)
            self.terms.append(term)
        return self._numbers[key]

    def _node(self, handle: int, inputs: tuple[int, ...]) -> int:
        node = self.egraph.nodes[handle]
        if node.op == "Const":
            info = self.egraph.constants[str(node.attrs["digest"])]
            return self._add(Term("Const", node.attrs, (), elements=info.elements))
        origin = self.egraph.origins[handle][0] if node.serial and self.egraph.origins[handle] else ""
        return self._add(Term(node.op, node.attrs, inputs, node.outputs, origin))

    def number(self, handle: int) -> int:
        """Return the number of a node as a term."""
        nodes = self.egraph.nodes
        for h in post_order([handle], lambda h: () if h in self.known else nodes[h].children):
            if h not in self.known:
                self.known[h] = self._node(h, tuple(self.known[c] for c in nodes[h].children))
        return self.known[handle]

    def compose(self, choice: Mapping[int, int]) -> dict[int, int]:
        """Return the number of each class as the term of its chosen node over those of its operands."""
        egraph = self.egraph
        found = {egraph.find(ABSENT): self.number(ABSENT)}
        for c in post_order(choice, lambda c: dependencies(egraph, choice[c])):
            children = egraph.nodes[choice[c]].children
            found[c] = self._node(choice[c], tuple(found[egraph.find(d)] for d in children))
        del found[egraph.find(ABSENT)]
        return found

    def value(self, value: Value) -> Value:
        """Return the value of a variable over terms, or `LEFT_OUT` for one that a replay finds by itself."""
        try:
            self._code.value(value)
        except NotCoded:
            return LEFT_OUT
        return self._value(value)

    def _value(self, value: Value) -> Value:
        if isinstance(value, TensorRef):
            return TensorRef(self.number(value.handle))
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        if isinstance(value, BodyRef):
            return replace(value, captures={name: self._value(t) for name, t in value.captures.items()})
        return value
